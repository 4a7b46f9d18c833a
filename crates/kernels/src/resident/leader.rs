//! Loads that one lane does for all of its warp. Those that others write at the same time are not merged where all lanes ask for the same
//! word: on an H200 thirty-two requests queue at its line of L2.

use pgemm_ir::{KernelBuilder, Order, Scope, Special, Val, ty};

/// Consecutive words, the same in all lanes. The whole warp.
pub(crate) fn load<'k, const N: usize>(
    b: &'k KernelBuilder,
    address: Val<'k, ty::U64>,
    order: Order,
    scope: Scope,
) -> [Val<'k, ty::U32>; N] {
    let words = b.if_else(
        b.special(Special::Lane).eq(0),
        || b.load_ordered_many::<ty::U32, N>(address, order, scope).to_vec(),
        || vec![b.constant(0); N],
    );
    pass_on(b, order);
    std::array::from_fn(|at| words[at].warp_uniform())
}

/// The same of 64-bit words, each loaded as one.
pub(crate) fn load_u64s<'k, const N: usize>(
    b: &'k KernelBuilder,
    address: Val<'k, ty::U64>,
    order: Order,
    scope: Scope,
) -> [Val<'k, ty::U64>; N] {
    let words = b.if_else(
        b.special(Special::Lane).eq(0),
        || b.load_ordered_many::<ty::U64, N>(address, order, scope).to_vec(),
        || vec![b.constant(0); N],
    );
    pass_on(b, order);
    std::array::from_fn(|at| {
        let half = |word: Val<'k, ty::U64>| word.low_word().warp_uniform().widen();
        half(words[at]) | (half(words[at] >> 32) << 32)
    })
}

/// What the lane has acquired holds for the others too.
fn pass_on(b: &KernelBuilder, order: Order) {
    if order == Order::Acquire {
        b.warp_sync();
    }
}
