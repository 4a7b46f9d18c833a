//! The reduction of split tiles in wgmma kernels. Each worker stores its partial sums, in the order
//! of its registers, to a slot of the workspace and increments a counter of arrivals ([`arrival`]).
//! Workers that find all others arrived finish the tile ([`pieces`]).
//!
//! * The slot of a worker's share of a tile is worker + tile. Both only grow along the stages laid
//!   end to end, so no two shares have one slot. The slots of a tile follow each other in the order
//!   of K.
//! * Sums are always added in that order, so that results are the same bit for bit on every run. If
//!   the launch requests an unordered reduction, partial sums are added to one slot in the order of
//!   arrival. The last worker then stores the content of the slot.
//! * No worker depends on a CTA that may not be running. The last worker to arrive finishes the
//!   tile, alone if need be.
//! * Of two workers, the later one still has its sums in registers and adds the other's to them.
//!   Most split tiles of stream-K have two workers, and the first one has long finished. So small
//!   kernels load its sums while they still multiply.
//! * Of more workers, each of the later ones owns a piece of the tile. It waits for a moment for
//!   the last worker, then adds up and stores its piece. A worker that has other work, or that has
//!   waited in vain, hands its piece over to the last worker.
//! * Counters need no memset between launches. Arrivals are counted modulo two generations, and the
//!   last arrival of one generation clears the handed-over pieces of the other.

mod arrival;
mod pieces;

use std::ops::Range;

use pgemm_ir::{
    Element, KernelBuilder, RegionId, RegionKind, SmemRequest, Val, WARPGROUP_THREADS, ty,
};

use super::Share;
use crate::compute::AtomicSum;
use crate::coordinates::Segment;
use crate::launch::{Work, Workspace};
use crate::mainloop::wgmma::Sums;
use crate::scheduler::Scheduler;
use crate::spec::{Resources, Spec, Summation};
use crate::store::staged::Warpgroup;

/// Bytes of the counters of one part of a tile: arrivals, handed-over pieces of either generation,
/// and padding.
const COUNTER_BYTES: u32 = 16;

/// Bytes of a thread's sums of 8 columns, four registers, and of all threads' of a warpgroup.
const QUAD_BYTES: u32 = 16;
const GROUP_BYTES: u32 = WARPGROUP_THREADS * QUAD_BYTES;

/// Registers of a thread besides the two sets of sums while it adds the other worker's sums to its
/// own. The limits of how many of the other's quads are loaded at once follow.
const REGISTERS_BESIDE_SUMS: u32 = 28;
const MOST_QUADS_ADDED: u32 = 8;
const LEAST_QUADS_ADDED: u32 = 3;

/// Words of shared memory through which a warpgroup's leader broadcasts to its threads: the state
/// before the warpgroup's arrival, the state after it, the result of the look-ahead, and the
/// handed-over pieces. All threads read a word and synchronise once more before the leader writes
/// it again: the first two words at the end of the same contribution, the others at the start of
/// the next.
const WORDS: u32 = 4;
const AWAITED_WORD: u32 = 0;
const ARRIVED_WORD: u32 = 4;
const AHEAD_WORD: u32 = 8;
const HANDED_OVER_WORD: u32 = 12;

/// The memory for partial sums of a launch.
pub(super) fn workspace(spec: &Spec, work: &Work) -> Workspace {
    let (tiles, ctas) = (u64::from(work.split_tiles), u64::from(spec.cluster.size()));
    let counters = tiles * ctas * u64::from(spec.parts() * COUNTER_BYTES);
    let counters = counters.next_multiple_of(super::PARTIALS_ALIGN.into());
    let slots = if work.unordered { tiles } else { tiles + u64::from(work.workers) };
    let bytes = counters + slots * ctas * u64::from(spec.tile.m * spec.tile.n * 4);
    Workspace { bytes, zeroed: if work.unordered { bytes } else { counters } }
}

/// The fix-up of a kernel: the workspace, and the scheduler that knows which workers share a tile.
pub(crate) struct StagedFixup<'k> {
    b: &'k KernelBuilder,
    spec: Spec,
    resources: Resources,
    scheduler: Scheduler<'k>,
    workspace: Val<'k, ty::U64>,
    unordered: Val<'k, ty::Bool>,
    words: RegionId,
}

/// The result of a look-ahead.
pub(crate) struct LookAhead<'k, S> {
    /// The share in the workspace. It is not used if the tile is whole.
    share: Share<'k>,
    /// Whether this is the second of two workers, and the first has arrived.
    awaited: Val<'k, ty::Bool>,
    /// The sums of the first worker if it has arrived, else zeros. They are in the order of quads,
    /// for each block of 64 rows.
    others: Vec<Val<'k, S>>,
}

/// What a warpgroup does with a tile after it has multiplied its share.
#[derive(Clone, Copy)]
pub(crate) struct Outcome<'k> {
    /// Whether it stores the sums that it has in registers.
    pub(crate) stores: Val<'k, ty::Bool>,
    /// Whether the other worker's sums have to be added to these first.
    adds: Val<'k, ty::Bool>,
    /// The share in the workspace.
    share: Share<'k>,
    /// Whether the look-ahead has loaded the other worker's sums.
    is_loaded: Val<'k, ty::Bool>,
    /// The owners, as bits, whose pieces it adds up from the workspace and stores.
    pub(crate) pieces: Val<'k, ty::U32>,
    /// Number of owners.
    owners: Val<'k, ty::U32>,
    /// The owners that handed their pieces over, as bits. Only the leader of the last warpgroup to
    /// arrive knows them.
    handed_over: Val<'k, ty::U32>,
}

impl<'k> StagedFixup<'k> {
    /// Declares the shared words.
    pub(crate) fn declare(
        b: &'k KernelBuilder,
        spec: &Spec,
        scheduler: Scheduler<'k>,
        workspace: Val<'k, ty::U64>,
        unordered: Val<'k, ty::Bool>,
    ) -> Self {
        let words = SmemRequest::whole(spec.consumers() * WORDS * 4, 8);
        StagedFixup {
            b,
            spec: *spec,
            resources: spec.resources(),
            scheduler,
            workspace,
            unordered,
            words: b.region("fixup", RegionKind::Data(Element::F32), words),
        }
    }

    /// The shared words of consumer warpgroup `consumer`.
    pub(crate) fn words(&self, consumer: Val<'k, ty::U32>) -> Val<'k, ty::Smem> {
        self.b.smem_address(self.words).offset(consumer * (WORDS * 4))
    }

    /// Whether another worker's sums can be added to sums in registers. Sums in f16 cannot, since
    /// partial sums are added in binary32.
    fn adds_in_registers(&self) -> bool {
        self.spec.wgmma().is_some_and(|wgmma| wgmma.summation != Summation::F16)
    }

    /// The place in the workspace of the warpgroup's share of a segment's tile.
    fn share(&self, segment: &Segment<'k>, warpgroup: &Warpgroup<'k>) -> Share<'k> {
        let (b, scheduler) = (self.b, &self.scheduler);
        let (parts, ctas) = (self.spec.parts(), self.spec.cluster.size());
        let rank = scheduler.rank();
        let counters = (segment.tile * ctas + rank) * parts + warpgroup.part;
        let all_counters = scheduler.split_tiles() * (ctas * parts * COUNTER_BYTES);
        let align = super::PARTIALS_ALIGN;
        let part_bytes = warpgroup.part * (self.tile_bytes() / parts);
        let partials = self
            .workspace
            .byte_offset(all_counters.div_ceil(align) * align)
            .byte_offset(part_bytes + warpgroup.thread * QUAD_BYTES);
        let contributors = scheduler.contributors(segment.tile);
        let slot = |worker: Val<'k, ty::U32>| {
            let index = segment.tile + self.unordered.select(0, worker);
            partials + (index * ctas + rank).to_u64() * u64::from(self.tile_bytes())
        };
        let worker = scheduler.worker(segment.unit);
        // If there are two slots, this is the slot of the other worker.
        let is_first = worker.eq(contributors.first);
        Share {
            arrived: self.workspace.byte_offset(counters * COUNTER_BYTES),
            first: slot(contributors.first),
            own: slot(worker),
            other: slot(contributors.first + is_first.select(1, 0)),
            count: contributors.count,
            from_slots: match self.adds_in_registers() {
                true => self.unordered | contributors.count.ne(2),
                false => b.constant(true),
            },
        }
    }

    /// Runs before the last stages of a segment. Returns the place of its share, and the other
    /// worker's sums if that worker has arrived. Returns `None` if the kernel has no registers for
    /// these sums.
    pub(crate) fn look_ahead<S: AtomicSum>(
        &self,
        segment: &Segment<'k>,
        warpgroup: &Warpgroup<'k>,
        words: Val<'k, ty::Smem>,
    ) -> LookAhead<'k, S> {
        let b = self.b;
        let quads = self.quads();
        let zero = || vec![S::zero(b); quads as usize * 4];
        let no = || b.constant::<ty::Bool>(false);
        let (share, (awaited, others)) = b.if_else(
            segment.whole,
            || (Share::none(b), (no(), zero())),
            || {
                let share = self.share(segment, warpgroup);
                let look = || self.is_awaited(&share, warpgroup, words.offset(AHEAD_WORD));
                let awaited = b.if_else(share.from_slots, no, look);
                let load = || (0..quads).flat_map(|at| self.load_quad(share.other, at)).collect();
                (share, (awaited, b.if_else(awaited, load, zero)))
            },
        );
        LookAhead { share, awaited, others }
    }

    /// Whether all workers but this one have arrived.
    fn is_awaited(
        &self,
        share: &Share<'k>,
        warpgroup: &Warpgroup<'k>,
        word: Val<'k, ty::Smem>,
    ) -> Val<'k, ty::Bool> {
        let b = self.b;
        b.if_(warpgroup.leads, || {
            let awaited = share.is_last(b.load_acquire(share.arrived));
            b.store_shared(word, [awaited.select::<ty::U32>(1, 0)]);
        });
        warpgroup.sync();
        self.broadcast(word).ne(0)
    }

    /// Loads this thread's quad number `index` from a slot. Quads are counted over all blocks of 64
    /// rows.
    fn load_quad<S: AtomicSum>(&self, slot: Val<'k, ty::U64>, index: u32) -> [Val<'k, S>; 4] {
        self.b.load_global::<S, 4>(slot.byte_offset(index * GROUP_BYTES))
    }

    /// Stores the sums of a segment to the workspace if other workers need them. Returns what this
    /// warpgroup has to store of the tile.
    pub(crate) fn contribute<S: AtomicSum>(
        &self,
        segment: &Segment<'k>,
        warpgroup: &Warpgroup<'k>,
        sums: &Sums<'k, S>,
        ahead: Option<&LookAhead<'k, S>>,
        words: Val<'k, ty::Smem>,
    ) -> Outcome<'k> {
        let b = self.b;
        let (no, yes) = (b.constant::<ty::Bool>(false), b.constant::<ty::Bool>(true));
        let zero = b.constant::<ty::U32>(0);
        let parts = b.if_else(
            segment.whole,
            || {
                let flags = (yes, no, no);
                (flags, Share::none(b), (zero, b.constant(1), zero))
            },
            || {
                let share = match ahead {
                    Some(ahead) => ahead.share,
                    None => self.share(segment, warpgroup),
                };
                let is_loaded = ahead.map_or(no, |ahead| ahead.awaited);
                let look = || self.is_awaited(&share, warpgroup, words.offset(AWAITED_WORD));
                let awaited =
                    b.if_else(share.from_slots, || no, || b.if_else(is_loaded, || yes, look));
                let (whose, owners, handed_over) = b.if_else(
                    awaited,
                    || {
                        // The last worker to arrive stores the tile and need not read the counter.
                        b.if_(warpgroup.leads, || {
                            self.count_in(&share);
                        });
                        (b.constant(1), b.constant(1), zero)
                    },
                    || {
                        b.if_else(
                            self.unordered,
                            || self.each_quad(&share, sums, |at, quad| S::reduce_add(b, at, quad)),
                            || self.each_quad(&share, sums, |at, quad| b.store_global(at, quad)),
                        );
                        warpgroup.sync();
                        self.arrive(segment, &share, warpgroup, words.offset(ARRIVED_WORD))
                    },
                );
                let has_any = whose.ne(0);
                let stores = !share.from_slots & has_any;
                let pieces = share.from_slots.select(whose, 0);
                ((stores, stores, is_loaded), share, (pieces, owners, handed_over))
            },
        );
        let ((stores, adds, is_loaded), share, (pieces, owners, handed_over)) = parts;
        Outcome { stores, adds, share, is_loaded, pieces, owners, handed_over }
    }

    /// The word that the leader wrote for all threads.
    fn broadcast(&self, word: Val<'k, ty::Smem>) -> Val<'k, ty::U32> {
        let [value] = self.b.load_shared::<ty::U32, 1>(word);
        value.warp_uniform()
    }

    fn tile_bytes(&self) -> u32 {
        self.spec.tile.m * self.spec.tile.n * 4
    }

    /// Number of groups of 8 columns of a tile.
    fn groups(&self) -> u32 {
        self.spec.tile.n / 8
    }

    /// Number of quads of a thread.
    fn quads(&self) -> u32 {
        self.spec.blocks() * self.groups()
    }

    /// Runs `store` for every quad of the thread, with its address in the worker's slot.
    fn each_quad<S: AtomicSum>(
        &self,
        share: &Share<'k>,
        sums: &Sums<'k, S>,
        store: impl Fn(Val<'k, ty::U64>, [Val<'k, S>; 4]),
    ) {
        let groups = self.groups();
        for index in 0..self.quads() {
            let quad = sums.quad(self.b, index / groups, index % groups);
            store(share.own.byte_offset(index * GROUP_BYTES), quad);
        }
    }

    /// Adds the other worker's sums to those in registers, if the outcome says so.
    pub(crate) fn add_other<S: AtomicSum>(
        &self,
        outcome: &Outcome<'k>,
        sums: &mut Sums<'k, S>,
        ahead: Option<&LookAhead<'k, S>>,
    ) {
        if !self.adds_in_registers() {
            return;
        }
        let b = self.b;
        let registers = self.resources.registers;
        let spare = (registers.budget.consumer - REGISTERS_BESIDE_SUMS) / 4;
        let most = if registers.is_plenty { MOST_QUADS_ADDED } else { MOST_QUADS_ADDED / 2 };
        let at_once = spare.saturating_sub(self.quads()).clamp(LEAST_QUADS_ADDED, most);
        let others = |quads: Range<u32>| {
            let load = || {
                let loads = quads.clone().map(|index| self.load_quad(outcome.share.other, index));
                loads.flatten().collect::<Vec<_>>()
            };
            match ahead {
                None => load(),
                Some(ahead) => {
                    let found = quads.start as usize * 4..quads.end as usize * 4;
                    b.if_else(outcome.is_loaded, || ahead.others[found].to_vec(), load)
                }
            }
        };
        sums.add_where(b, outcome.adds, self.quads(), at_once, others);
    }
}
