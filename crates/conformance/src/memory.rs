//! Atomic operations, and bulk copies and reductions.

use pgemm_ir::ty::{F32, F64, S32, U32, U64};
use pgemm_ir::{
    AtomicOp, Element, KernelBuilder, Order, ReductionOp, RegionKind, Scalar, Scope, SmemRequest,
    Special, Val, ty,
};

use crate::case::{Case, Closeness};

const EXACT: Closeness = Closeness::Exact;

/// Atomic operations in shared memory. The lanes of a warp take turns by their numbers, so that
/// their order is known. A lane stores `a` and combines it with `b`.
fn atomics<T: Scalar>(ops: &[AtomicOp]) -> Vec<Case> {
    let case = |&op: &AtomicOp| {
        let name = format!("atomic {}", op.name());
        Case::new::<T, T>(&name, EXACT, move |b, [x, y, _]| {
            let place = own_place(b);
            b.store_shared(place, [x]);
            let old: Val<'_, T> = b.atomic(op, place, y, Order::Relaxed, Scope::Cta);
            // Both the old value and the new one count.
            let [new] = b.load_shared::<T, 1>(place);
            choose(b, old, new)
        })
    };
    ops.iter().map(case).collect()
}

/// Eight bytes of shared memory for each thread.
fn own_place(b: &KernelBuilder) -> Val<'_, ty::Smem> {
    let kind = RegionKind::Data(Element::F32);
    let region = b.region("places", kind, SmemRequest::whole(8 * 128, 16));
    b.smem_address(region).offset(b.special(Special::Thread) * 8)
}

/// The first value in even threads and the second in odd ones.
fn choose<'k, T: Scalar>(b: &'k KernelBuilder, even: Val<'k, T>, odd: Val<'k, T>) -> Val<'k, T> {
    (b.special(Special::Thread) & 1).eq(0).select(even, odd)
}

/// An exchange in shared memory that takes place in every second thread.
fn exchange<T: Scalar>(
    order: Order,
    same: impl for<'k> Fn(Val<'k, T>) -> Val<'k, T> + Copy + 'static,
) -> Case {
    Case::new::<T, T>(&format!("compare_exchange {order}"), EXACT, move |b, [x, y, _]| {
        let place = own_place(b);
        b.store_shared(place, [x]);
        let even = (b.special(Special::Lane) & 2).eq(0);
        let expected = even.select(x, same(x));
        let old = b.compare_exchange(place, expected, y, order, Scope::Cta);
        let [new] = b.load_shared::<T, 1>(place);
        choose(b, old, new)
    })
}

/// A count of all threads of a CTA in shared memory. The result is the same in whatever order the
/// threads come.
fn histogram() -> Case {
    Case::new::<U32, U32>("count in shared memory", EXACT, |b, [a, ..]| {
        let kind = RegionKind::Data(Element::F32);
        let region = b.region("counts", kind, SmemRequest::whole(4 * 128, 16));
        let thread = b.special(Special::Thread);
        let counts = b.smem_address(region);
        b.store_shared(counts.offset(thread * 4), [b.constant(0u32)]);
        b.sync_cta();
        let bin = counts.offset((a & 15) * 4);
        b.atomic::<U32>(AtomicOp::Add, bin, 1u32, Order::Relaxed, Scope::Cta);
        b.sync_cta();
        let [count] = b.load_shared::<U32, 1>(counts.offset(thread * 4));
        count
    })
}

/// Copies the operands of a CTA by one bulk load that completes on an mbarrier.
fn bulk_load() -> Case {
    Case::with_addresses::<U32, U32>("bulk_load", EXACT, 8, |b, [input, output], _| {
        let kind = RegionKind::Data(Element::F32);
        let tile = b.smem_address(b.region("tile", kind, SmemRequest::whole(24 * 128, 128)));
        let full = b.smem_address(b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8)));
        let thread = b.special(Special::Thread);
        b.if_(thread.eq(0), || {
            full.mbarrier_init(1);
            b.fence_mbarrier_init();
        });
        b.sync_cta();
        b.if_(thread.eq(0), || {
            full.mbarrier_expect_copies(|copies| copies.load_bytes(input, tile, 24 * 128));
        });
        full.mbarrier_wait(0);
        let [first, second] =
            [0, 8].map(|at| b.load_shared::<U32, 1>(tile.offset(thread * 24 + at))[0]);
        b.store_global(output, [first ^ (second << 1u32)]);
    })
}

/// Asynchronous copies of so many bytes by each thread, which read as many of them as `size` says.
/// The thread's neighbour reads them.
fn copy_async(bytes: u32, by_mbarrier: bool) -> Case {
    let how = if by_mbarrier { "counted by an mbarrier" } else { "in groups" };
    let name = format!("copy_async of {bytes} bytes {how}");
    Case::with_addresses::<U32, U32>(&name, EXACT, 8, move |b, [input, output], [x, ..]| {
        let kind = RegionKind::Data(Element::F32);
        let tile = b.smem_address(b.region("tile", kind, SmemRequest::whole(16 * 128, 128)));
        let full = b.smem_address(b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8)));
        let thread = b.special(Special::Thread);
        b.if_(thread.eq(0), || full.mbarrier_init(128));
        b.sync_cta();
        // Every fourth thread fills with zeros.
        let size = (x & 3).eq(0).select(0u32, (x >> 2u32) % (bytes + 1));
        b.copy_async(bytes, input.byte_offset(thread * bytes), tile.offset(thread * bytes), size);
        if by_mbarrier {
            full.mbarrier_arrive_after_copies();
            full.mbarrier_wait(0);
        } else {
            b.copy_commit();
            b.copy_wait(0);
            b.sync_cta();
        }
        let neighbour = tile.offset((thread ^ 1) * bytes);
        let mut sum = b.constant(0u32);
        for at in (0..bytes).step_by(4) {
            let [word] = b.load_shared::<U32, 1>(neighbour.offset(at));
            sum = (sum << 1u32) ^ word;
        }
        b.store_global(output, [sum]);
    })
}

/// A bulk store of 16 bytes by each thread, and a bulk reduction into the same bytes.
fn bulk_reduce<T: Scalar>(
    element: Element,
    op: ReductionOp,
    number: impl for<'k> Fn(Val<'k, T>) -> Val<'k, T> + Copy,
) -> Case {
    let name = format!("bulk_reduce {op} {element}");
    Case::with_addresses::<T, T>(&name, EXACT, 16, move |b, [_, output], [x, y, _]| {
        let kind = RegionKind::Data(Element::F32);
        let tile = b.smem_address(b.region("tile", kind, SmemRequest::whole(16 * 128, 128)));
        let thread = b.special(Special::Thread);
        let own = tile.offset(thread * 16);
        let size = T::TYPE.bytes().unwrap_or(4);
        for (value, first) in [(x, true), (y, false)] {
            for at in (0..16).step_by(size as usize) {
                b.store_shared(own.offset(at), [number(value)]);
            }
            b.fence_proxy_async();
            if first {
                b.bulk_store(own, output, 16);
            } else {
                b.bulk_reduce(op, element, own, output, 16);
            }
            b.bulk_commit();
            b.bulk_wait(0);
        }
    })
}

/// A pair of f16 or bf16 that are neither infinite nor NaN.
fn finite(pair: Val<'_, ty::B32>) -> Val<'_, ty::B32> {
    (pair.bits() & 0xbfff_bfff).as_b32()
}

pub(crate) fn cases() -> Vec<Case> {
    use AtomicOp::{Add, And, Dec, Exch, Inc, Max, Min, Or, Xor};

    let mut cases = [
        atomics::<U32>(&[Add, Inc, Dec, Min, Max, And, Or, Xor, Exch]),
        atomics::<S32>(&[Add, Min, Max, Exch]),
        atomics::<U64>(&[Add, Min, Max, And, Or, Xor, Exch]),
        atomics::<F32>(&[Add, Exch]),
        atomics::<F64>(&[Add, Exch]),
        vec![histogram(), bulk_load()],
    ]
    .concat();
    for order in [Order::Relaxed, Order::Acquire, Order::Release, Order::AcquireRelease] {
        cases.extend([exchange::<U32>(order, |a| !a), exchange::<U64>(order, |a| !a)]);
    }
    for bytes in [4, 8, 16] {
        cases.extend([false, true].map(|by_mbarrier| copy_async(bytes, by_mbarrier)));
    }
    for op in ReductionOp::ALL {
        cases.push(bulk_reduce::<S32>(Element::S32, op, |a| a));
        cases.push(bulk_reduce::<ty::B32>(Element::F16, op, finite));
        cases.push(bulk_reduce::<ty::B32>(Element::Bf16, op, finite));
    }
    cases.push(bulk_reduce::<F32>(Element::F32, ReductionOp::Add, |a| a));
    cases.push(bulk_reduce::<F64>(Element::F64, ReductionOp::Add, |a| a));
    cases
}
