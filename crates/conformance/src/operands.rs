//! Operands of operations: the ends of ranges, special values, and numbers of all sizes.

use pgemm_ir::Type;
use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt, SeedableRng};

/// `threads` triples of operands of a type, as 64 bits of which narrower types use the lower ones.
/// They begin with all pairs of the special values, and the first repeated. The others are drawn by
/// a fixed seed.
pub fn operands(ty: Type, threads: usize) -> Vec<[u64; 3]> {
    let special = special(ty);
    let pairs = special.iter().flat_map(|a| special.iter().map(move |b| [*a, *b, *a]));
    let mut all: Vec<[u64; 3]> = pairs.collect();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    all.resize_with(threads, || [(); 3].map(|()| random(ty, &mut rng)));
    all
}

fn special(ty: Type) -> Vec<u64> {
    match ty {
        Type::U32 | Type::S32 | Type::B32 => {
            vec![0, 1, 2, 31, 32, 33, 0x7fff_ffff, 1 << 31, 0xffff_ffff]
        }
        Type::U64 => vec![0, 1, 63, 64, 65, 1 << 32, 1 << 63, u64::MAX],
        Type::F32 => {
            let numbers = [0.0, -0.0, 1.0, -2.5, f32::MIN_POSITIVE, 1e-45, 3e38, f32::INFINITY];
            let numbers = numbers.map(|value| u64::from(value.to_bits()));
            numbers.into_iter().chain([0x7fc0_0001, 0xff80_0000]).collect()
        }
        _ => {
            let numbers = [0.0, -0.0, 1.0, -2.5, f64::MIN_POSITIVE, 5e-324, 1e308, f64::INFINITY];
            numbers.map(f64::to_bits).into_iter().chain([0x7ff8_0000_0000_0001]).collect()
        }
    }
}

/// A value of any size: integers are shifted by a random amount, floats have a random exponent.
fn random(ty: Type, rng: &mut impl Rng) -> u64 {
    let value: u64 = rng.random();
    match ty {
        Type::U32 | Type::S32 | Type::B32 => (value >> 32) >> rng.random_range(0..32u32),
        Type::U64 => value >> rng.random_range(0..64u32),
        Type::F32 => {
            let number = (value as i64) as f32 * 2f32.powi(rng.random_range(-103..-22));
            number.to_bits().into()
        }
        _ => ((value as i64) as f64 * 2f64.powi(rng.random_range(-163..37))).to_bits(),
    }
}
