//! The reduction of split tiles in kernels that store D from registers. A thread has the same
//! elements of a tile in every CTA, so each thread counts by itself. It stores its sums into a slot
//! of the workspace and increments a counter of arrivals. If it is the last to arrive, it adds up
//! the slots in the order of K and finishes its elements.
//!
//! Results are the same bit for bit on every run. No thread waits for a CTA that may not be
//! running. Counters wrap, so that they are left at zero.
//!
//! The slot of a worker's share of a tile is worker + tile, as in [`super::staged`]. Each CTA of a
//! cluster has slots and counters of its own.

use pgemm_ir::{
    AtomicOp, KernelBuilder, NamedBarrier, Order, Scope, Special, Val, WARPGROUP_THREADS, ty,
};

use super::PARTIALS_ALIGN;
use crate::compute::Sum;
use crate::coordinates::Segment;
use crate::launch::{Work, Workspace};
use crate::scheduler::Scheduler;
use crate::spec::Spec;

/// Bytes of a thread's counter.
const COUNTER_BYTES: u32 = 4;

/// Number of sums of a thread that are added together, and the most contributors of which they are
/// loaded at once.
const GROUP: usize = 16;
const MOST_AT_ONCE: u32 = 4;

/// Registers of a thread besides the sums of a tile and those that are being loaded. With fewer,
/// ptxas 13.0 no longer keeps the descriptors of the epilogue's loads in uniform registers.
const REGISTERS_BESIDE_SUMS: u32 = 48;

/// Consumer threads of a CTA.
fn threads(spec: &Spec) -> u32 {
    spec.consumers() * WARPGROUP_THREADS
}

/// Bytes of a slot, which holds the sums of a tile.
fn slot_bytes(spec: &Spec) -> u32 {
    spec.tile.m * spec.tile.n * spec.accumulator().bytes()
}

/// Contributors of which a thread has registers to load a group of sums at once.
fn at_once(spec: &Spec, sums: u32) -> u32 {
    let registers = spec.accumulator().bytes() / 4;
    let taken = sums * registers + REGISTERS_BESIDE_SUMS;
    let free = spec.resources().registers.budget.consumer.saturating_sub(taken);
    (free / (sums.min(GROUP as u32) * registers).max(1)).clamp(1, MOST_AT_ONCE)
}

/// The memory for partial sums of a launch.
pub(crate) fn workspace(spec: &Spec, work: &Work) -> Workspace {
    let [tiles, workers, ctas] =
        [work.split_tiles, work.workers, spec.cluster.size()].map(u64::from);
    let counters = tiles * ctas * u64::from(threads(spec) * COUNTER_BYTES);
    let counters = counters.next_multiple_of(PARTIALS_ALIGN.into());
    let slots = (tiles + workers) * ctas * u64::from(slot_bytes(spec));
    Workspace { bytes: counters + slots, zeroed: counters }
}

/// The workspace, and the scheduler that knows which workers share a tile.
pub(crate) struct ThreadFixup<'k> {
    b: &'k KernelBuilder,
    scheduler: Scheduler<'k>,
    workspace: Val<'k, ty::U64>,
    /// CTAs of a cluster.
    ctas: u32,
    threads: u32,
    slot_bytes: u32,
    element_bytes: u32,
    /// Contributors whose sums are loaded at once.
    at_once: u32,
}

impl<'k> ThreadFixup<'k> {
    /// A reduction in the workspace at an address.
    pub(crate) fn new(
        b: &'k KernelBuilder,
        spec: &Spec,
        scheduler: Scheduler<'k>,
        workspace: Val<'k, ty::U64>,
    ) -> Self {
        let threads = threads(spec);
        ThreadFixup {
            b,
            scheduler,
            workspace,
            ctas: spec.cluster.size(),
            threads,
            slot_bytes: slot_bytes(spec),
            element_bytes: spec.accumulator().bytes(),
            at_once: at_once(spec, spec.tile.m * spec.tile.n / threads),
        }
    }

    /// Contributes a thread's sums of a part of a tile. If the thread is the last to arrive, it
    /// returns the sums of the whole tile, and true.
    pub(crate) fn contribute<S: Sum>(
        &self,
        segment: &Segment<'k>,
        sums: &[Val<'k, S>],
    ) -> (Vec<Val<'k, S>>, Val<'k, ty::Bool>) {
        self.contribute_by(segment, sums, |arrive| arrive())
    }

    /// Does the same for all threads of a warpgroup together. They count once, so that all of them
    /// return the same bool. `word` is shared memory of the warpgroup.
    pub(crate) fn contribute_together<S: Sum>(
        &self,
        segment: &Segment<'k>,
        sums: &[Val<'k, S>],
        (barrier, word): (&NamedBarrier<'k>, Val<'k, ty::Smem>),
    ) -> (Vec<Val<'k, S>>, Val<'k, ty::Bool>) {
        let b = self.b;
        let leads = (b.special(Special::Thread) % WARPGROUP_THREADS).eq(0);
        self.contribute_by(segment, sums, |arrive| {
            // The barrier before orders the stores of all threads before the arrival, and that
            // behind it orders the arrival before their loads.
            barrier.sync();
            b.if_(leads, || b.store_shared(word, [arrive().select::<ty::U32>(1, 0)]));
            barrier.sync();
            let [last] = b.load_shared::<ty::U32, 1>(word);
            last.warp_uniform().ne(0)
        })
    }

    /// Stores the sums, lets `count` call its argument, which counts an arrival and says whether it
    /// is the last, and adds up the sums of all if `count` returns true.
    fn contribute_by<S: Sum>(
        &self,
        segment: &Segment<'k>,
        sums: &[Val<'k, S>],
        count: impl FnOnce(&dyn Fn() -> Val<'k, ty::Bool>) -> Val<'k, ty::Bool>,
    ) -> (Vec<Val<'k, S>>, Val<'k, ty::Bool>) {
        let (b, scheduler, bytes) = (self.b, &self.scheduler, self.element_bytes);
        let thread = b.special(Special::Thread) - WARPGROUP_THREADS;
        let rank = scheduler.rank();
        let all_counters = scheduler.split_tiles() * (self.ctas * self.threads * COUNTER_BYTES);
        let partials = self
            .workspace
            .byte_offset(all_counters.div_ceil(PARTIALS_ALIGN) * PARTIALS_ALIGN)
            .byte_offset(thread * bytes);
        let contributors = scheduler.contributors(segment.tile);
        let slot = |worker: Val<'k, ty::U32>| {
            let index = (segment.tile + worker) * self.ctas + rank;
            partials + index.to_u64() * u64::from(self.slot_bytes)
        };
        let place = |value: usize| value as u32 * self.threads * bytes;

        let own = slot(scheduler.worker(segment.unit));
        for (value, sum) in sums.iter().enumerate() {
            b.store_global(own.byte_offset(place(value)), [*sum]);
        }
        let counter = segment.tile * self.ctas + rank;
        let counter = (counter * self.threads + thread) * COUNTER_BYTES;
        let counter = self.workspace.byte_offset(counter);
        let end = contributors.count - 1;
        let arrive = || {
            let arrived = b.atomic(AtomicOp::Inc, counter, end, Order::AcquireRelease, Scope::Gpu);
            arrived.eq(end)
        };
        let last = count(&arrive);

        let values: Vec<usize> = (0..sums.len()).collect();
        let add_up = || {
            let group = |values: &[usize]| {
                let zeros = vec![S::zero(b); values.len()];
                b.for_carry(0, contributors.count, self.at_once, zeros, |first, mut sums| {
                    let load = |ahead: u32| {
                        let index = first + ahead;
                        let from = slot(contributors.first + index.min(end));
                        let load = |value: &usize| {
                            b.load_global::<S, 1>(from.byte_offset(place(*value)))[0]
                        };
                        (index.lt(contributors.count), values.iter().map(load).collect::<Vec<_>>())
                    };
                    let loaded: Vec<_> = (0..self.at_once).map(load).collect();
                    for (exists, others) in loaded {
                        for (sum, other) in sums.iter_mut().zip(others) {
                            *sum = exists.select(S::add(*sum, other), *sum);
                        }
                    }
                    sums
                })
            };
            values.chunks(GROUP).flat_map(group).collect::<Vec<Val<'k, S>>>()
        };
        (b.if_else(last, add_up, || sums.to_vec()), last)
    }
}
