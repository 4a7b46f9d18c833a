//! The reduction of split tiles in wgmma kernels. Each worker stores its partial sums, in the order
//! of its registers, into a slot of the workspace and counts itself in; those who find everybody
//! there finish the tile.
//!
//! * The slot of a worker's share of a tile is worker + tile. Both only grow along the stages laid
//!   end to end, so no two shares have one slot, and those of a tile follow each other in the order
//!   of K.
//! * Sums are always taken in that order, whoever takes them, so that results are the same bit for
//!   bit on every run. Where the launch asks for an unordered reduction, partial sums are added to
//!   one slot as they come, and the last worker stores what it finds there.
//! * Nobody depends on a CTA that may not be running: who arrives last finishes the tile, alone if
//!   need be.
//! * Of two workers, the later still has its sums in registers, to which it adds the other's. Most
//!   tiles of stream-K are such, and the other half is there long before: small kernels look for
//!   it, and load it, while they still multiply.
//! * Of more workers, the later ones own a piece of the tile each, wait a moment for the last, and
//!   add up and store their pieces at the same time. Who has other work, or has waited in vain,
//!   hands its piece over to the last.
//! * Counters return to where another launch can start from, with no memset between launches:
//!   arrivals go round in a circle of two generations, and the last arrival of one generation
//!   clears what was handed over in the other.

use std::ops::Range;

use pgemm_ir::{
    AtomicOp, Element, KernelBuilder, Order, RegionId, RegionKind, Scope, SmemRequest, Val,
    WARPGROUP_THREADS, ty,
};

use super::Share;
use crate::compute::{AtomicSum, Gives};
use crate::coordinates::{Segment, TileOrigin};
use crate::launch::{Work, Workspace};
use crate::mainloop::wgmma::Sums;
use crate::scheduler::Scheduler;
use crate::spec::{Resources, Spec, Summation};
use crate::store::staged::{Store, Warpgroup};
use crate::store::write::StagedResult;
use crate::tiles::staging::STAGING_ROWS;

/// Bytes of the counters of one part of a tile: arrivals, what was handed over in either
/// generation, and padding.
const COUNTER_BYTES: u32 = 16;

/// Bytes of a thread's sums of 8 columns, four registers, and of all threads' of a warpgroup.
const QUAD_BYTES: u32 = 16;
const GROUP_BYTES: u32 = WARPGROUP_THREADS * QUAD_BYTES;

/// How often one who has nothing else to do looks whether all have arrived: some 20 µs.
const POLLS: u32 = 32;

/// Quads of a thread whose loads may be on their way at once, of 128 registers. A thread with few
/// registers has half as many on their way.
const QUADS_IN_FLIGHT: u32 = 32;

/// Registers of a thread beside sums, its own and the other's, while it adds them up, and the most
/// and fewest quads of the other's that are loaded at once.
const REGISTERS_BESIDE_SUMS: u32 = 28;
const MOST_QUADS_ADDED: u32 = 8;
const LEAST_QUADS_ADDED: u32 = 3;

/// Where so few workers share a tile, a piece is a staging tile, read from as many slots at once.
/// Where more do, it is one quad.
const FEW_WORKERS: u32 = 8;

/// Quads of a thread up to which pieces may be that narrow. Larger tiles have no registers to
/// spare, and are never shared by that many.
const MOST_NARROW_QUADS: u32 = 32;

/// Most owners of a tile's pieces: one bit each of the word in which they hand these over. The
/// other bit says that all have arrived.
const OWNERS: u32 = 31;
const COMPLETE: u32 = 1 << OWNERS;

/// Shared words in which a warpgroup's leader tells its threads what it has found out: before the
/// warpgroup counted itself in, after that, when it looked ahead, and what others handed over. Each
/// is read by all threads, who meet once more before the leader writes it again: the first two at
/// the end of the same contribution, the others at the start of the next.
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

/// The workspace and who works on it.
pub(crate) struct StagedFixup<'k> {
    b: &'k KernelBuilder,
    spec: Spec,
    resources: Resources,
    scheduler: Scheduler<'k>,
    workspace: Val<'k, ty::U64>,
    unordered: Val<'k, ty::Bool>,
    words: RegionId,
}

/// What a look ahead found.
pub(crate) struct LookAhead<'k, S> {
    /// Where the share is; not used where the tile is whole.
    share: Share<'k>,
    /// Whether only this worker is missing, of two.
    awaited: Val<'k, ty::Bool>,
    /// The other's sums in that case, else zeros: for each quad of each block of 64 rows.
    others: Vec<Val<'k, S>>,
}

/// What a warpgroup does with a tile after it has multiplied its share.
#[derive(Clone, Copy)]
pub(crate) struct Outcome<'k> {
    /// Whether it stores the sums that it has in registers.
    pub(crate) stores: Val<'k, ty::Bool>,
    /// Whether the other worker's sums are to be added to these before.
    adds: Val<'k, ty::Bool>,
    /// Where the share is.
    share: Share<'k>,
    /// Whether the look ahead has loaded the other's sums.
    is_loaded: Val<'k, ty::Bool>,
    /// A bit for each owner whose pieces it adds up from the workspace and stores.
    pub(crate) pieces: Val<'k, ty::U32>,
    /// How many owners there are.
    owners: Val<'k, ty::U32>,
    /// Known to the leader of the last to arrive: the bits of those that handed theirs over.
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

    /// Whether sums in registers can have those of another worker added: not those in f16, which
    /// are added in binary32.
    fn adds_in_registers(&self) -> bool {
        self.spec.wgmma().is_some_and(|wgmma| wgmma.summation != Summation::F16)
    }

    /// Where the warpgroup's share of a segment's tile is in the workspace.
    fn share(&self, segment: &Segment<'k>, warpgroup: &Warpgroup<'k>) -> Share<'k> {
        let (b, scheduler) = (self.b, &self.scheduler);
        let (parts, ctas) = (self.spec.parts(), self.spec.cluster.size());
        let rank =
            scheduler.in_cluster().map_or(b.constant(0), |cta| cta.n * self.spec.cluster.m + cta.m);
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
            partials + (index * ctas + rank).widen() * u64::from(self.tile_bytes())
        };
        let worker = scheduler.worker(segment.unit);
        // Of two slots, the one that is not this worker's.
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

    /// Before the last stages of a segment: where its share is, and the other's sums if they are
    /// there already. `None` for kernels without registers for that.
    pub(crate) fn look_ahead<S: AtomicSum>(
        &self,
        segment: &Segment<'k>,
        warpgroup: &Warpgroup<'k>,
        words: Val<'k, ty::Smem>,
    ) -> LookAhead<'k, S> {
        let b = self.b;
        let quads = self.quads();
        let nothing = || vec![S::zero(b); quads as usize * 4];
        let no = || b.constant::<ty::Bool>(false);
        let (share, (awaited, others)) = b.if_else(
            segment.whole,
            || (Share::none(b), (no(), nothing())),
            || {
                let share = self.share(segment, warpgroup);
                let look = || self.is_awaited(&share, warpgroup, words.offset(AHEAD_WORD));
                let awaited = b.if_else(share.from_slots, no, look);
                let load = || (0..quads).flat_map(|at| self.load_quad(share.other, at)).collect();
                (share, (awaited, b.if_else(awaited, load, nothing)))
            },
        );
        LookAhead { share, awaited, others }
    }

    /// Whether all but this worker have arrived.
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
        self.told(word).ne(0)
    }

    /// This thread's quad in a slot, counted over all blocks of 64 rows.
    fn load_quad<S: AtomicSum>(&self, slot: Val<'k, ty::U64>, index: u32) -> [Val<'k, S>; 4] {
        self.b.load_global::<S, 4>(slot.byte_offset(index * GROUP_BYTES))
    }

    /// Hands in the sums of a segment where others need them. Says what is left to store.
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
        let nothing = b.constant::<ty::U32>(0);
        let parts = b.if_else(
            segment.whole,
            || {
                let flags = (yes, no, no);
                (flags, Share::none(b), (nothing, b.constant(1), nothing))
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
                        // The last to arrive stores the tile and need not ask.
                        b.if_(warpgroup.leads, || {
                            self.count_in(&share);
                        });
                        (b.constant(1), b.constant(1), nothing)
                    },
                    || {
                        b.if_else(
                            self.unordered,
                            || self.hand_in(&share, sums, |at, quad| S::reduce_add(b, at, quad)),
                            || self.hand_in(&share, sums, |at, quad| b.store_global(at, quad)),
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

    /// Counts the warpgroup in. For which owners it stores pieces at once, 0 for none; of a tile
    /// that is added up in registers, 1 where it is the last to arrive. And how many owners there
    /// are, and, known to the leader, what others have handed over.
    fn arrive(
        &self,
        segment: &Segment<'k>,
        share: &Share<'k>,
        warpgroup: &Warpgroup<'k>,
        word: Val<'k, ty::Smem>,
    ) -> (Val<'k, ty::U32>, Val<'k, ty::U32>, Val<'k, ty::U32>) {
        let b = self.b;
        // One owner of the whole tile where it is added up in registers or lies in one slot.
        let owners = share.count.min(self.pieces(share)).min(OWNERS);
        let alone = self.unordered | !share.from_slots;
        let owners = alone.select(1, owners);
        let polls = segment.last.select(POLLS, 0);
        let handed_over = b.if_else(
            warpgroup.leads,
            || {
                let (whose, handed_over) = self.lead(share, owners, polls);
                b.store_shared(word, [whose]);
                handed_over
            },
            || b.constant(0),
        );
        warpgroup.sync();
        (self.told(word), owners, handed_over)
    }

    /// Counts the warpgroup in: one thread. Gives how many had been counted before, modulo two
    /// generations.
    fn count_in(&self, share: &Share<'k>) -> Val<'k, ty::U32> {
        let end = share.count * 2 - 1;
        self.b.atomic(AtomicOp::Inc, share.arrived, end, Order::AcquireRelease, Scope::Gpu)
    }

    /// Pieces of a tile that is added up from slots.
    fn pieces(&self, share: &Share<'k>) -> Val<'k, ty::U32> {
        self.is_few(share).select(self.resources.staging.steps(), self.quads())
    }

    /// Whether pieces are staging tiles.
    fn is_few(&self, share: &Share<'k>) -> Val<'k, ty::Bool> {
        let always = self.quads() > MOST_NARROW_QUADS;
        if always { self.b.constant(true) } else { share.count.lt(FEW_WORKERS + 1) }
    }

    /// What the leader wrote for all.
    fn told(&self, word: Val<'k, ty::Smem>) -> Val<'k, ty::U32> {
        let [value] = self.b.load_shared::<ty::U32, 1>(word);
        value.warp_uniform()
    }

    fn tile_bytes(&self) -> u32 {
        self.spec.tile.m * self.spec.tile.n * 4
    }

    /// Groups of 8 columns of a tile.
    fn groups(&self) -> u32 {
        self.spec.tile.n / 8
    }

    /// Quads of a thread.
    fn quads(&self) -> u32 {
        self.spec.blocks() * self.groups()
    }

    /// Every quad of the thread: its address in the worker's slot, and its sums.
    fn hand_in<S: AtomicSum>(
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

    /// Adds the other worker's sums to those in registers, where the outcome says so.
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

    /// Leader: counts the warpgroup in, and sees whether everybody is there, at once or while it
    /// looks `polls` times. Gives a bit for each owner whose pieces are to be finished at once, and
    /// for the last to arrive the bits of those that handed theirs over.
    fn lead(
        &self,
        share: &Share<'k>,
        owners: Val<'k, ty::U32>,
        polls: Val<'k, ty::U32>,
    ) -> (Val<'k, ty::U32>, Val<'k, ty::U32>) {
        let (b, arrived, count) = (self.b, share.arrived, share.count);
        let place = self.count_in(share);
        let generation = place / count;
        let handed_over = |generation: Val<'k, ty::U32>| arrived.byte_offset(generation * 4 + 4);
        let add = |bits| {
            b.atomic(AtomicOp::Add, handed_over(generation), bits, Order::Relaxed, Scope::Gpu)
        };
        let all_there = || (b.load_acquire(arrived) / count).ne(generation);
        let nothing = b.constant::<ty::U32>(0);
        // From the last, who waits least, backwards.
        let owner = count - 1 - place % count;
        let own = b.constant::<ty::U32>(1) << owner.min(OWNERS);
        let waited = b.if_else(
            owner.ne(0) & owner.lt(owners),
            || {
                let (complete, _) = b.while_(
                    (b.constant::<ty::Bool>(false), nothing),
                    |(complete, looked)| !complete & looked.lt(polls),
                    |(_, looked)| (all_there(), looked + 1),
                );
                let late = || {
                    b.if_else(
                        add(own).ge(COMPLETE),
                        || {
                            // The last has arrived. What all have stored is visible once its
                            // arrival is.
                            b.while_(all_there(), |seen| !seen, |_| all_there());
                            own
                        },
                        || nothing,
                    )
                };
                b.if_else(complete, || own, late)
            },
            || nothing,
        );
        let handed_over = b.if_else(
            owner.eq(0) & owners.ne(1),
            || {
                b.store_global(handed_over(generation ^ 1), [nothing]);
                add(b.constant(COMPLETE))
            },
            || nothing,
        );
        (owner.eq(0).select(own, waited), handed_over)
    }

    /// Adds up and stores the pieces that the warpgroup owns, if any, and, as the last to arrive,
    /// those that its leader finds handed over. Gives the parity of the next slice of C.
    pub(crate) fn store_pieces<S: AtomicSum + Gives<R>, R: StagedResult>(
        &self,
        outcome: &Outcome<'k>,
        store: &Store<'_, 'k, R>,
        origin: TileOrigin<'k>,
        words: Val<'k, ty::Smem>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let (b, share) = (self.b, &outcome.share);
        let staging = &self.resources.staging;
        let warpgroup = store.warpgroup();
        let staging_tiles = || {
            let store_piece = |piece, c_parity| {
                let quads = staging.columns() / 8;
                let first = piece * quads;
                let slots = self.unordered.select(1, share.count);
                let sums = self.add_up::<S>(share, slots, first, quads, FEW_WORKERS);
                // The one slot of an unordered reduction is left as zeros.
                b.if_(self.unordered, || {
                    let slot = share.first.byte_offset(first * GROUP_BYTES);
                    for quad in 0..quads {
                        b.store_global(slot.byte_offset(quad * GROUP_BYTES), [S::zero(b); 4]);
                    }
                });
                let results: Vec<[Val<'k, R>; 4]> =
                    sums.into_iter().map(|quad| quad.map(S::result)).collect();
                store.piece(origin, piece, &|group| results[group as usize], c_parity);
                c_parity ^ 1
            };
            let c_parity =
                self.finish(outcome, staging.steps(), warpgroup, words, c_parity, store_piece);
            if staging.buffers() > 1 {
                // The next tile's store begins with the first buffer and would not wait for it.
                b.if_(warpgroup.leads, || b.bulk_wait_read(0));
            }
            c_parity
        };
        if self.quads() > MOST_NARROW_QUADS {
            return staging_tiles();
        }
        b.if_else(self.is_few(share) | self.unordered, staging_tiles, || {
            let groups = self.groups();
            self.finish(outcome, self.quads(), warpgroup, words, c_parity, |piece, c_parity| {
                let sums = self.add_up::<S>(share, share.count, piece, 1, QUADS_IN_FLIGHT);
                let origin = TileOrigin {
                    m: origin.m + piece / groups * STAGING_ROWS,
                    n: origin.n + piece % groups * 8,
                    ..origin
                };
                store.quad(sums[0].map(S::result), origin);
                c_parity
            })
        })
    }

    /// Runs `store` for the pieces that the warpgroup owns, and then for what its leader finds
    /// handed over: that answer comes while it adds up its own. Of each round of pieces an owner has
    /// one.
    fn finish(
        &self,
        outcome: &Outcome<'k>,
        pieces: u32,
        warpgroup: &Warpgroup<'k>,
        words: Val<'k, ty::Smem>,
        c_parity: Val<'k, ty::U32>,
        store: impl FnOnce(Val<'k, ty::U32>, Val<'k, ty::U32>) -> Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let owners = outcome.owners;
        let asks = outcome.pieces.eq(1) & owners.ne(1);
        let (_, _, c_parity) = b.while_(
            (outcome.pieces, asks, c_parity),
            |(whose, _, _)| whose.ne(0),
            |(whose, asks, c_parity)| {
                let start = (b.constant::<ty::U32>(0), c_parity);
                let (_, c_parity) = b.for_carry(0, pieces, 1, start, |piece, (owner, c_parity)| {
                    let theirs = (whose >> owner & 1).ne(0);
                    let c_parity = b.if_else(theirs, || store(piece, c_parity), || c_parity);
                    let next = owner + 1;
                    (next.eq(owners).select(0, next), c_parity)
                });
                let nothing = || b.constant(0);
                let more = if pieces == 1 {
                    nothing()
                } else {
                    let tell = || {
                        let word = words.offset(HANDED_OVER_WORD);
                        b.if_(warpgroup.leads, || b.store_shared(word, [outcome.handed_over]));
                        warpgroup.sync();
                        self.told(word)
                    };
                    b.if_else(asks, tell, nothing)
                };
                (more, b.constant(false), c_parity)
            },
        );
        c_parity
    }

    /// This thread's sums of some quads over `slots` slots, in order; at most `most` slots are loaded
    /// at once.
    fn add_up<S: AtomicSum>(
        &self,
        share: &Share<'k>,
        slots: Val<'k, ty::U32>,
        first: Val<'k, ty::U32>,
        quads: u32,
        most: u32,
    ) -> Vec<[Val<'k, S>; 4]> {
        let b = self.b;
        let slot_bytes = u64::from(self.spec.cluster.size() * self.tile_bytes());
        // The accumulators' registers are free by now.
        let plenty = self.resources.registers.is_plenty;
        let in_flight = if plenty { QUADS_IN_FLIGHT } else { QUADS_IN_FLIGHT / 2 };
        let at_once = (in_flight / quads).clamp(1, most);
        let first = share.first.byte_offset(first * GROUP_BYTES);
        let neutral = || vec![S::neutral(b); quads as usize * 4];
        let sums = b.scope("add up", || {
            b.for_carry(0, slots, at_once, neutral(), |index, mut sums| {
                let slot = first + index.widen() * slot_bytes;
                let loaded: Vec<_> = (0..at_once)
                    .map(|ahead| {
                        let slot = slot + u64::from(ahead) * slot_bytes;
                        let load =
                            || (0..quads).flat_map(|quad| self.load_quad(slot, quad)).collect();
                        match ahead {
                            0 => load(),
                            _ => b.if_else((index + ahead).lt(slots), load, neutral),
                        }
                    })
                    .collect();
                for values in loaded {
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = S::add(*sum, value);
                    }
                }
                sums
            })
        });
        sums.chunks(4).map(|quad| std::array::from_fn(|i| quad[i])).collect()
    }
}
