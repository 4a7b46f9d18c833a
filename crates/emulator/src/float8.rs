//! Products of 8-bit floats as Hopper's tensor cores add them up. Products and accumulator are
//! aligned to the largest of them, truncated 13 places below its leading bit and added, and the sum
//! is truncated in the same way. DeepSeek-AI, *DeepSeek-V3 Technical Report*, arXiv:2412.19437,
//! 2024, §3.5.2, reports about 14 bits.

use crate::product::{self, TILE_ROWS};

/// Places kept below the leading bit.
const FRACTION_BITS: u32 = 13;

/// Places of a binary32 below its leading bit.
const MANTISSA_BITS: u32 = 23;

/// `tile = a·b`, plus itself where `accumulate`: `a` is 64 × depth, `b` is depth × n, `tile` is 64
/// × n. The whole depth is added at once.
pub(crate) fn multiply(tile: &mut [f32], a: &[f32], b: &[f32], n: usize, accumulate: bool) {
    if !accumulate {
        tile.fill(0.0);
    }
    if aligning_loses_nothing(tile, a, b) {
        // No sum needs more bits than binary32 has.
        product::multiply(tile, a, b, n, true);
        tile.iter_mut().for_each(|sum| *sum = cut(*sum));
    } else {
        multiply_aligned(tile, a, b, n);
    }
}

fn multiply_aligned(tile: &mut [f32], a: &[f32], b: &[f32], n: usize) {
    let depth = a.len() / TILE_ROWS;
    let mut largest = vec![0.0f32; n];
    let mut places = vec![0.0f32; n];
    let mut sums = vec![0.0f32; n];
    for (row, a) in tile.chunks_exact_mut(n).zip(a.chunks_exact(depth)) {
        for (largest, sum) in largest.iter_mut().zip(&*row) {
            *largest = sum.abs();
        }
        for (&a, b) in a.iter().zip(b.chunks_exact(n)) {
            for (largest, &b) in largest.iter_mut().zip(b) {
                let product = (a * b).abs();
                // NaN is kept.
                let grows = product > *largest || product.is_nan();
                *largest = if grows { product } else { *largest };
            }
        }
        for ((places, sums), (largest, sum)) in
            places.iter_mut().zip(&mut sums).zip(largest.iter().zip(&*row))
        {
            *places = power_of_two(FRACTION_BITS as i32 - exponent(*largest));
            *sums = truncate(sum * *places);
        }
        for (&a, b) in a.iter().zip(b.chunks_exact(n)) {
            for ((sum, &b), &places) in sums.iter_mut().zip(b).zip(&places) {
                // Integers of at most 14 bits, so all sums are exact. They are not used if the
                // largest is infinite.
                *sum += truncate(a * b * places);
            }
        }
        for (column, sum) in row.iter_mut().enumerate() {
            *sum = if largest[column].is_finite() {
                cut(sums[column]) / places[column]
            } else {
                let products = a.iter().zip(b[column..].iter().step_by(n));
                products.fold(*sum, |sum, (a, b)| sum + a * b)
            };
        }
    }
}

/// Whether aligning truncates nothing: no bit of an accumulator or a product is further below the
/// largest possible number than the places that are kept.
fn aligning_loses_nothing(tile: &[f32], a: &[f32], b: &[f32]) -> bool {
    let [tile, a, b] = [tile, a, b].map(Span::of);
    let lowest = tile.lowest.min(a.lowest + b.lowest);
    let highest = tile.highest.max(a.highest + b.highest + 1);
    let finite = [tile, a, b].iter().all(|span| span.highest < 128);
    // Numbers are far from subnormal.
    finite && highest > -64 && lowest >= highest - FRACTION_BITS as i32
}

/// The exponents of the bits that are set in some numbers.
#[derive(Clone, Copy)]
struct Span {
    /// Exponent of the lowest bit, or less. Beyond all others if all numbers are zero.
    lowest: i32,
    /// Exponent of the highest bit; 128 if a number is not finite.
    highest: i32,
}

impl Span {
    fn of(values: &[f32]) -> Span {
        let none = 1 << 10;
        let (lowest, largest) = values.iter().fold((none, 0), |(lowest, largest), value| {
            let magnitude = value.abs().to_bits() as i32;
            let mantissa = magnitude & ((1 << MANTISSA_BITS) - 1) | 1 << MANTISSA_BITS;
            let below = MANTISSA_BITS as i32 - exponent((mantissa & -mantissa) as f32);
            let bit =
                if magnitude == 0 { none } else { (magnitude >> MANTISSA_BITS) - 127 - below };
            (bit.min(lowest), magnitude.max(largest))
        });
        Span { lowest, highest: (largest >> MANTISSA_BITS) - 127 }
    }
}

/// The exponent of a number's leading bit. Products of 8-bit floats and their sums are far from the
/// ends of the range of binary32.
fn exponent(value: f32) -> i32 {
    (value.to_bits() >> MANTISSA_BITS & 0xff) as i32 - 127
}

fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127).clamp(1, 254) as u32) << MANTISSA_BITS)
}

/// A number below 2^22, rounded towards zero. All processors have vector instructions for this
/// form, unlike for `as i32`.
fn truncate(value: f32) -> f32 {
    const UNITS: f32 = (1 << MANTISSA_BITS) as f32;
    let magnitude = value.abs();
    let nearest = magnitude + UNITS - UNITS;
    let beyond = if nearest > magnitude { 1.0 } else { 0.0 };
    (nearest - beyond).copysign(value)
}

/// A sum, truncated to the places that are kept. Zero has no sign.
fn cut(sum: f32) -> f32 {
    f32::from_bits((sum + 0.0).to_bits() & (u32::MAX << (MANTISSA_BITS - FRACTION_BITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Depth of an instruction.
    const DEPTH: usize = 32;

    /// One row of A times columns of B, both padded with zeros. Every row is the same.
    fn product(a: &[f32], columns: &[&[f32]], sums: &[f32]) -> Vec<f32> {
        let n = columns.len();
        let mut row = a.to_vec();
        row.resize(DEPTH, 0.0);
        let a = row.repeat(TILE_ROWS);
        let of_k = |k| columns.iter().map(move |b| b.get(k).copied().unwrap_or(0.0));
        let b: Vec<f32> = (0..DEPTH).flat_map(of_k).collect();
        let mut tile = sums.repeat(TILE_ROWS);
        multiply(&mut tile, &a, &b, n, true);
        assert!(tile.chunks_exact(n).all(|row| row == &tile[..n] || row[0].is_nan()));
        tile.truncate(n);
        tile
    }

    #[test]
    fn what_lies_below_the_places_kept_is_cut_off() {
        let one = [1.0, 0.0];
        // 2^-13 of the largest number counts, half of that does not, for either sign.
        let sums = [8192.0, 16384.0, -16384.0, 16383.0, -1.5];
        let found = product(&[1.0, 0.0], &[&one[..]; 5], &sums);
        assert_eq!(found, [8193.0, 16384.0, -16384.0, 16384.0, -0.5]);
        // Aligned to a product.
        let wide = [57344.0, 1.0];
        assert_eq!(product(&[1.0, 1.0], &[&wide[..]], &[3.0]), [57344.0]);
        assert_eq!(product(&[1.0, 1.0], &[&[57344.0, 4.0][..]], &[4.0]), [57352.0]);
    }

    #[test]
    fn a_sum_is_cut_off_too() {
        // 16383 + 2 needs 15 bits.
        assert_eq!(product(&[2.0, 0.0], &[&[1.0, 0.0][..]], &[16383.0]), [16384.0]);
        assert_eq!(product(&[2.0, 0.0], &[&[-1.0, 0.0][..]], &[-16383.0]), [-16384.0]);
        assert_eq!(product(&[0.0, 0.0], &[&[0.0, 0.0][..]], &[0.0]), [0.0]);
    }

    #[test]
    fn numbers_that_are_not_finite_stay() {
        let found = product(&[f32::INFINITY, 1.0], &[&[1.0, 1.0][..], &[-1.0, 1.0]], &[1.0; 2]);
        assert_eq!(found, [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(product(&[f32::NAN, 1.0], &[&[1.0, 1.0][..]], &[1.0])[0].is_nan());
        assert!(product(&[1.0, 1.0], &[&[1.0, f32::NAN][..]], &[1.0])[0].is_nan());
    }

    /// Pseudo-random numbers with up to four significant bits and exponents from 0 to below
    /// `exponents`. Some are zero.
    fn numbers(seed: u32, count: usize, exponents: u32) -> Vec<f32> {
        let mut state = seed;
        let mut below = |limit: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % limit
        };
        let mut number = || {
            let magnitude = (8 + below(8)) as f32 / 8.0 * (1 << below(exponents)) as f32;
            [magnitude, -magnitude, 0.0, -0.0][[0, 0, 0, 1, 1, 1, 2, 3][below(8) as usize]]
        };
        (0..count).map(|_| number()).collect()
    }

    /// The sum by the description of the module, in integers.
    fn reference(sum: f32, products: impl Iterator<Item = f32> + Clone) -> f32 {
        let addends = products.chain([sum]);
        let largest = addends.clone().fold(0.0, |largest: f32, addend| largest.max(addend.abs()));
        let unit = 2f64.powi(exponent(largest).max(-100) - FRACTION_BITS as i32);
        let sum: i64 = addends.map(|addend| (f64::from(addend) / unit) as i64).sum();
        let mut kept = 1;
        while sum.abs() / kept >= 1 << (FRACTION_BITS + 1) {
            kept *= 2;
        }
        ((sum / kept * kept) as f64 * unit) as f32
    }

    #[test]
    fn every_way_gives_the_same_bits() {
        let (n, depth) = (24, DEPTH);
        let mut ways = [0; 2];
        for (seed, exponents) in (0..60).zip([1, 2, 3, 4, 8, 15].into_iter().cycle()) {
            let a = numbers(3 * seed, TILE_ROWS * depth, exponents);
            let b = numbers(3 * seed + 1, depth * n, exponents);
            let before = numbers(3 * seed + 2, TILE_ROWS * n, exponents + 3);
            let accumulate = seed % 4 > 0;
            let sums = if accumulate { before.clone() } else { vec![0.0; before.len()] };
            let (mut found, mut aligned) = (before, sums.clone());
            multiply(&mut found, &a, &b, n, accumulate);
            multiply_aligned(&mut aligned, &a, &b, n);
            for (at, &sum) in sums.iter().enumerate() {
                let (row, column) = (at / n, at % n);
                let products = (0..depth).map(|k| a[row * depth + k] * b[k * n + column]);
                let expected = reference(sum, products).to_bits();
                assert_eq!([found[at], aligned[at]].map(f32::to_bits), [expected; 2], "{sum}");
            }
            ways[usize::from(aligning_loses_nothing(&sums, &a, &b))] += 1;
        }
        assert!(ways.iter().all(|&count| count > 5), "{ways:?}");
    }
}
