//! Loads that one lane does for all lanes of its warp. The hardware does not merge the loads of
//! lanes that load the same word while other threads write it. On an H200 thirty-two requests then
//! queue at the L2 line of the word.

use pgemm_ir::{KernelBuilder, Order, Scope, Special, Val, ty};

/// Loads consecutive words, and gives them to all lanes. The whole warp calls this.
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

/// Does the same as [`load`] for 64-bit words. Each word is loaded at once.
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
        let half = |word: Val<'k, ty::U64>| word.low_word().warp_uniform().to_u64();
        half(words[at]) | (half(words[at] >> 32) << 32)
    })
}

/// Makes the values that the leading lane has acquired visible to the other lanes.
fn pass_on(b: &KernelBuilder, order: Order) {
    if order == Order::Acquire {
        b.warp_sync();
    }
}
