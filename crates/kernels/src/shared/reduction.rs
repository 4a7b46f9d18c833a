//! The reduction of tiles that are split along k. A thread has the same elements of a tile in every CTA, so each thread counts
//! for itself: it stores its sums into a slot of the workspace, counts itself in, and where it is the last of its number
//! adds up what lies in the slots, in order of k, and finishes its elements. Results are the same bit for bit on every run,
//! nobody waits for a CTA that may not be running, and counters, which wrap, are left at zero.
//!
//! The slot of a worker's share of a tile is worker + tile: both only grow along the k-tiles laid end to end, so no two shares
//! have one slot, and those of a tile lie one behind the other.

use std::ops::Add;

use pgemm_ir::{
    AtomicOp, IntoVal, KernelBuilder, Order, Scalar, Scope, Special, Val, WARPGROUP_THREADS, ty,
};

use super::SharedTile;
use crate::launch::Workspace;
use crate::scheduler::{Scheduler, Segment};

/// Bytes of a thread's counter.
const COUNTER_BYTES: u32 = 4;

/// Partial sums begin at a multiple of it.
const PARTIALS_ALIGN: u32 = 256;

/// Sums of a thread that are taken together: as many loads are in flight.
const GROUP: usize = 16;

/// The workspace and who works on it.
pub(crate) struct Reduction<'k> {
    b: &'k KernelBuilder,
    workspace: Val<'k, ty::U64>,
    /// Consumer threads.
    threads: u32,
    slot_bytes: u32,
    element_bytes: u32,
}

/// The memory for so many split tiles and workers.
pub(crate) fn workspace(tile: &SharedTile, split_tiles: u32, workers: u32) -> Workspace {
    if split_tiles == 0 {
        return Workspace { bytes: 0, zeroed: 0 };
    }
    let (tiles, workers) = (u64::from(split_tiles), u64::from(workers));
    let counters = tiles * u64::from(tile.threads() * COUNTER_BYTES);
    let counters = counters.next_multiple_of(PARTIALS_ALIGN.into());
    let slots = (tiles + workers) * u64::from(tile.bytes());
    Workspace { bytes: counters + slots, zeroed: counters }
}

impl<'k> Reduction<'k> {
    /// A reduction in a workspace of [`workspace`] bytes, whose address is a kernel parameter.
    pub(crate) fn new(b: &'k KernelBuilder, tile: &SharedTile) -> Self {
        Reduction {
            b,
            workspace: b.param("workspace"),
            threads: tile.threads(),
            slot_bytes: tile.bytes(),
            element_bytes: tile.element.bytes(),
        }
    }

    /// Hands in a thread's sums of a part of a tile. Those of the whole tile, and true, where it is the last to.
    pub(crate) fn contribute<T: Scalar>(
        &self,
        scheduler: &Scheduler<'k>,
        segment: &Segment<'k>,
        sums: &[Val<'k, T>],
        zero: impl IntoVal<'k, T> + Copy,
    ) -> (Vec<Val<'k, T>>, Val<'k, ty::Bool>)
    where
        Val<'k, T>: Add<Output = Val<'k, T>>,
    {
        let (b, bytes) = (self.b, self.element_bytes);
        let thread = b.special(Special::Thread) - WARPGROUP_THREADS;
        let all_counters = scheduler.split().tiles * (self.threads * COUNTER_BYTES);
        let partials = self
            .workspace
            .byte_offset(all_counters.div_ceil(PARTIALS_ALIGN) * PARTIALS_ALIGN)
            .byte_offset(thread * bytes);
        let contributors = scheduler.contributors(segment.tile);
        let slot = |worker: Val<'k, ty::U32>| {
            partials + (segment.tile + worker).widen() * u64::from(self.slot_bytes)
        };
        let place = |value: usize| value as u32 * self.threads * bytes;

        let own = slot(scheduler.worker(segment.unit));
        for (value, sum) in sums.iter().enumerate() {
            b.store_global(own.byte_offset(place(value)), [*sum]);
        }
        let counter = (segment.tile * self.threads + thread) * COUNTER_BYTES;
        let counter = self.workspace.byte_offset(counter);
        let end = contributors.count - 1;
        let arrived = b.atomic(AtomicOp::Inc, counter, end, Order::AcquireRelease, Scope::Gpu);
        let last = arrived.eq(end);

        let values: Vec<usize> = (0..sums.len()).collect();
        let add_up = || {
            let group = |values: &[usize]| {
                let zeros = vec![b.constant(zero); values.len()];
                b.for_carry(0, contributors.count, 1, zeros, |index, sums| {
                    let from = slot(contributors.first + index);
                    let load =
                        |value: &usize| b.load_global::<T, 1>(from.byte_offset(place(*value)))[0];
                    let loaded: Vec<_> = values.iter().map(load).collect();
                    sums.into_iter().zip(loaded).map(|(sum, other)| sum + other).collect()
                })
            };
            values.chunks(GROUP).flat_map(group).collect::<Vec<Val<'k, T>>>()
        };
        (b.if_else(last, add_up, || sums.to_vec()), last)
    }
}
