//! Operations in which the lanes of a warp exchange values.

use pgemm_ir::ty::{B32, Bool, F32, F64, S32, U32, U64};
use pgemm_ir::{Scalar, Shuffle, Special, Val};

use crate::case::{Case, Closeness};

const EXACT: Closeness = Closeness::Exact;

/// Every kind of shuffle at every width, with amounts that differ from lane to lane.
fn shuffles<T: Scalar>() -> Vec<Case> {
    let mut cases = vec![];
    for shuffle in Shuffle::ALL {
        for width in [2, 4, 8, 16, 32] {
            let name = format!("shuffle {} in {width}", shuffle.name());
            cases.push(Case::new::<T, T>(&name, EXACT, move |b, [a, ..]| {
                let thread = b.special(Special::Thread);
                a.shuffle_in(shuffle, width, thread * 7 + thread / 32 * 3)
            }));
        }
    }
    cases
}

fn reductions() -> Vec<Case> {
    vec![
        Case::new::<U32, U32>("warp_sum", EXACT, |_, [a, ..]| a.warp_sum()),
        Case::new::<U32, U32>("warp_min", EXACT, |_, [a, ..]| a.warp_min()),
        Case::new::<U32, U32>("warp_max", EXACT, |_, [a, ..]| a.warp_max()),
        Case::new::<U32, U32>("warp_and", EXACT, |_, [a, ..]| (a | 0x0f00).warp_and()),
        Case::new::<U32, U32>("warp_or", EXACT, |_, [a, ..]| (a & 0x0f00).warp_or()),
        Case::new::<U32, U32>("warp_xor", EXACT, |_, [a, ..]| a.warp_xor()),
        Case::new::<S32, S32>("warp_sum", EXACT, |_, [a, ..]| a.warp_sum()),
        Case::new::<S32, S32>("warp_min", EXACT, |_, [a, ..]| a.warp_min()),
        Case::new::<S32, S32>("warp_max", EXACT, |_, [a, ..]| a.warp_max()),
        Case::new::<F32, F32>("sum by shuffles", EXACT, |_, [a, ..]| {
            a.clamp(-1e6, 1e6).reduce_lanes(8, |a, b| a + b)
        }),
        Case::new::<F64, F64>("largest by shuffles", EXACT, |_, [a, ..]| {
            a.reduce_lanes(32, |a, b| a.max(b))
        }),
    ]
}

fn votes() -> Vec<Case> {
    fn holds(a: Val<'_, U32>) -> Val<'_, Bool> {
        (a & 1).eq(0)
    }
    vec![
        Case::new::<U32, U32>("any_lane", EXACT, |_, [a, ..]| a.lt(40).any_lane().select(1, 0)),
        Case::new::<U32, U32>("all_lanes", EXACT, |b, [a, ..]| {
            // It holds in every second warp.
            let all = holds(a) | (b.special(Special::Warp) & 1).eq(0);
            all.all_lanes().select(1, 0)
        }),
        Case::new::<U32, U32>("ballot", EXACT, |_, [a, ..]| holds(a).ballot()),
        Case::new::<U32, U32>("matching_lanes", EXACT, |_, [a, ..]| (a & 7).matching_lanes()),
        Case::new::<U64, U32>("matching_lanes", EXACT, |_, [a, ..]| {
            (a & 0x3_0000_0001).matching_lanes()
        }),
        Case::new::<U32, U32>("warp_uniform", EXACT, |_, [a, ..]| a.warp_uniform()),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = [shuffles::<U32>(), shuffles::<U64>()].concat();
    for other in [shuffles::<S32>(), shuffles::<F32>(), shuffles::<F64>(), shuffles::<B32>()] {
        cases.extend(other.into_iter().take(1));
    }
    [cases, reductions(), votes()].concat()
}
