//! Matrix products of a warp. Operands are numbers of few bits, so that sums are exact.

use pgemm_ir::ty::{B32, U32};
use pgemm_ir::{Element, KernelBuilder, Scalar, Type, Val, WarpMma, ty};

use crate::case::{Case, Closeness};

/// A word whose elements are numbers of few bits near 1, or any integers.
fn small(word: Val<'_, B32>, element: Element) -> Val<'_, B32> {
    // The bits that stay, and those that are set: the exponent of 1.
    let (stay, set) = match element {
        Element::Tf32 => (0x8060_0000, 0x3f80_0000),
        Element::Bf16 => (0x8060_8060, 0x3f80_3f80),
        Element::F16 => (0x8300_8300, 0x3c00_3c00),
        _ => (u32::MAX, 0),
    };
    ((word.bits() & stay) | set).as_b32()
}

/// The word of four sums.
fn product<'k, S: Scalar>(
    b: &'k KernelBuilder,
    mma: WarpMma,
    operands: [Val<'k, B32>; 3],
    sums: [Val<'k, S>; 4],
    bits: impl Fn(Val<'k, S>) -> Val<'k, U32>,
) -> Val<'k, U32> {
    let [x, y, z] = operands.map(|word| word.bits());
    let words = [x, y, z, x ^ (y >> 3u32), y ^ (z >> 5u32), z ^ (x >> 7u32)];
    let words = words.map(|word| small(word.as_b32(), mma.operand));
    let results = b.warp_mma(mma, &words[..4], &words[4..], &sums);
    (0u32..)
        .zip(results)
        .map(|(i, sum)| bits(sum) << (5 * i))
        .reduce(|all, word| all ^ word)
        .unwrap()
}

fn of_floats(mma: WarpMma) -> Case {
    Case::new::<B32, U32>(&format!("warp_mma {mma}"), Closeness::Exact, move |b, operands| {
        let c = (operands[0].bits() & 15).to_f32();
        product(b, mma, operands, [c, c + 1.0, -c, c * 0.5], Val::<ty::F32>::bits)
    })
}

fn of_integers(mma: WarpMma) -> Case {
    Case::new::<B32, U32>(&format!("warp_mma {mma}"), Closeness::Exact, move |b, operands| {
        let c = operands[0].bits().as_s32();
        product(b, mma, operands, [c, c + 1, -c, c >> 3u32], |sum| sum.as_u32())
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let products = WarpMma::ALL.into_iter().filter_map(|mma| match mma.accumulator {
        Type::F32 => Some(of_floats(mma)),
        Type::S32 => Some(of_integers(mma)),
        // The hardware tests of f64 products compare it.
        _ => None,
    });
    products.collect()
}
