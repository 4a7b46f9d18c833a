//! The reduction of tiles that are split along k. A thread has the same elements of a tile in every CTA, so each thread counts
//! for itself: it stores its sums into a slot of the workspace, counts itself in, and where it is the last of its number
//! adds up what lies in the slots, in order of k, and finishes its elements. Results are the same bit for bit on every run,
//! nobody waits for a CTA that may not be running, and counters, which wrap, are left at zero.
//!
//! The slot of a worker's share of a tile is worker + tile: both only grow along the k-tiles laid end to end, so no two shares
//! have one slot, and those of a tile lie one behind the other.

use pgemm_ir::{AtomicOp, KernelBuilder, Order, Scope, Special, Val, WARPGROUP_THREADS, ty};

use super::ELEMENT_BYTES;
use super::spec::DmmaSpec;
use crate::launch::Workspace;
use crate::scheduler::{Scheduler, Segment};

/// Bytes of a thread's counter.
const COUNTER_BYTES: u32 = 4;

/// Partial sums begin at a multiple of it.
const PARTIALS_ALIGN: u32 = 256;

/// Sums of a thread that are taken together: as many loads are in flight.
const GROUP: usize = 16;

/// The workspace and who works on it.
pub(super) struct Reduction<'k> {
    b: &'k KernelBuilder,
    workspace: Val<'k, ty::U64>,
    /// Consumer threads.
    threads: u32,
    slot_bytes: u32,
}

/// Values of a lane for each pair of blocks.
type Sums<'k> = Vec<Vec<Val<'k, ty::F64>>>;

fn threads(spec: &DmmaSpec) -> u32 {
    spec.warpgroups() * WARPGROUP_THREADS
}

fn slot_bytes(spec: &DmmaSpec) -> u32 {
    spec.tile.m * spec.tile.n * ELEMENT_BYTES
}

/// The memory for so many split tiles and workers.
pub(super) fn workspace(spec: &DmmaSpec, split_tiles: u32, workers: u32) -> Workspace {
    if split_tiles == 0 {
        return Workspace { bytes: 0, zeroed: 0 };
    }
    let (tiles, workers) = (u64::from(split_tiles), u64::from(workers));
    let counters = tiles * u64::from(threads(spec) * COUNTER_BYTES);
    let counters = counters.next_multiple_of(PARTIALS_ALIGN.into());
    let slots = (tiles + workers) * u64::from(slot_bytes(spec));
    Workspace { bytes: counters + slots, zeroed: counters }
}

impl<'k> Reduction<'k> {
    /// A reduction in a workspace of [`workspace`] bytes.
    pub(super) fn new(b: &'k KernelBuilder, spec: &DmmaSpec, workspace: Val<'k, ty::U64>) -> Self {
        Reduction { b, workspace, threads: threads(spec), slot_bytes: slot_bytes(spec) }
    }

    /// Hands in a thread's sums of a part of a tile. Those of the whole tile, and true, where it is the last to.
    pub(super) fn contribute(
        &self,
        scheduler: &Scheduler<'k>,
        segment: &Segment<'k>,
        sums: &Sums<'k>,
    ) -> (Sums<'k>, Val<'k, ty::Bool>) {
        let b = self.b;
        let thread = b.special(Special::Thread) - WARPGROUP_THREADS;
        let all_counters = scheduler.split().tiles * (self.threads * COUNTER_BYTES);
        let partials = self
            .workspace
            .byte_offset(all_counters.div_ceil(PARTIALS_ALIGN) * PARTIALS_ALIGN)
            .byte_offset(thread * ELEMENT_BYTES);
        let contributors = scheduler.contributors(segment.tile);
        let slot = |worker: Val<'k, ty::U32>| {
            partials + (segment.tile + worker).widen() * u64::from(self.slot_bytes)
        };
        let place = |value: usize| value as u32 * self.threads * ELEMENT_BYTES;

        let own = slot(scheduler.worker(segment.unit));
        for (value, sum) in sums.iter().flatten().enumerate() {
            b.store_global(own.byte_offset(place(value)), [*sum]);
        }
        let counter = (segment.tile * self.threads + thread) * COUNTER_BYTES;
        let counter = self.workspace.byte_offset(counter);
        let end = contributors.count - 1;
        let arrived = b.atomic(AtomicOp::Inc, counter, end, Order::AcquireRelease, Scope::Gpu);
        let last = arrived.eq(end);

        let count: usize = sums.iter().map(Vec::len).sum();
        let values: Vec<usize> = (0..count).collect();
        let add_up = || {
            let group = |values: &[usize]| {
                let zeros = vec![b.constant(0.0); values.len()];
                b.for_carry(0, contributors.count, 1, zeros, |index, sums| {
                    let from = slot(contributors.first + index);
                    let load = |value: &usize| {
                        b.load_global::<ty::F64, 1>(from.byte_offset(place(*value)))[0]
                    };
                    let loaded: Vec<_> = values.iter().map(load).collect();
                    sums.into_iter().zip(loaded).map(|(sum, other)| sum + other).collect()
                })
            };
            values.chunks(GROUP).flat_map(group).collect::<Vec<Val<'k, ty::F64>>>()
        };
        let flat = b.if_else(last, add_up, || sums.concat());
        let mut flat = flat.into_iter();
        let sums = sums.iter().map(|pair| flat.by_ref().take(pair.len()).collect()).collect();
        (sums, last)
    }
}
