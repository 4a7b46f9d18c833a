//! The reduction of split tiles. Each worker stores its partial sums, in the order of its registers, into a slot of the
//! workspace and counts itself in; the tile is finished by those who find everybody there.
//!
//! * The slot of a worker's share of a tile is worker + tile: both only grow along the k-tiles laid end to end, so no two
//!   shares have one slot, and those of a tile lie one behind the other, in order of k.
//! * Sums are always taken in that order, whoever takes them, so results are the same bit for bit on every run. Where the
//!   launch asks for an unordered reduction, partial sums are added to one slot as they come.
//! * Nobody depends on a CTA that may not be running: who arrives last finishes the tile, alone if need be.
//! * Of two, the later has its sums in registers still and adds the other's to them on their way out. Most tiles of stream-K
//!   are such, and the other half is there long before: small kernels look for it, and load it, while they still multiply.
//! * Of more, the later ones own a piece of the tile each, wait a moment for the last, and add up and store their pieces
//!   all at once. Whoever has other work, or waited in vain, hands its piece over to the last.
//! * Counters return to where another launch can start from, with no memset between launches: arrivals go round in a
//!   circle of two generations, and the last of one generation clears what was handed over in the other.

use std::ops::Range;

use pgemm_ir::{
    AtomicOp, Carried, Element, KernelBuilder, Order, RegionId, RegionKind, Scope, SmemRequest,
    Type, Val, ValueId, WARPGROUP_THREADS, ty,
};

use crate::epilogue::{Place, WarpgroupStore};
use crate::promotion::Registers;
use crate::scheduler::{Scheduler, Segment, TileOrigin};
use crate::spec::KernelSpec;
use crate::staging::{STAGING_ROWS, Staging};
use crate::sums::{Gives, Sum, results};

/// Bytes of the counters of one part of a tile: arrivals, what was handed over in either generation, and padding.
pub const COUNTER_BYTES: u32 = 16;

/// Partial sums begin at a multiple of it.
pub const PARTIALS_ALIGN: u32 = 256;

/// Bytes of a thread's sums of 8 columns, four registers, and of all threads' of a warpgroup.
const QUAD_BYTES: u32 = 16;
const GROUP_BYTES: u32 = WARPGROUP_THREADS * QUAD_BYTES;

/// How often one who has nothing else to do looks whether all have arrived: some 20 µs.
const POLLS: u32 = 32;

/// Quads of a thread whose loads may be on their way at once: 128 registers.
const QUADS_IN_FLIGHT: u32 = 32;

/// A thread with fewer registers has half as many on their way.
pub(crate) const MANY_REGISTERS: u32 = 200;

/// Registers of a thread beside sums, its own and the other's, while it adds them up, and the most quads of the other's.
const BESIDE_SUMS: u32 = 28;
const MOST_ADDED: u32 = 8;

/// Where so few share a tile, a piece is a staging tile, read from as many slots at once; where more do, one quad.
const FEW: u32 = 8;

/// Quads of a part up to which pieces may be that narrow.
const MOST_QUADS: u32 = 32;

/// Most owners of a tile's pieces: one bit each of the word in which they hand these over; the other says that all arrived.
const OWNERS: u32 = 31;
const COMPLETE: u32 = 1 << OWNERS;

/// Shared words of a consumer warpgroup, for what its leader found out: before the warpgroup counted itself in, after that,
/// when it looked ahead, and what others handed over. Each is read by all, and they meet once more before the leader writes it
/// again: the first at the end of the same contribution, the others at the start of the next.
const WORDS: u32 = 4;

/// Bytes from the first of them to the others.
const ARRIVED_WORD: u32 = 4;
const AHEAD_WORD: u32 = 8;
const HANDED_OVER_WORD: u32 = 12;

/// The workspace and who works on it.
#[derive(Clone)]
pub struct Reduction<'k> {
    b: &'k KernelBuilder,
    spec: KernelSpec,
    staging: Staging,
    workspace: Val<'k, ty::U64>,
    unordered: Val<'k, ty::Bool>,
    words: RegionId,
}

/// A worker's part of a split tile in the workspace: what a consumer warpgroup computes of it.
#[derive(Clone, Copy)]
pub struct Share<'k> {
    /// The counter of arrivals.
    arrived: Val<'k, ty::U64>,
    /// This thread's sums in the first contributor's slot, in this worker's, and in that of the only other.
    first: Val<'k, ty::U64>,
    own: Val<'k, ty::U64>,
    other: Val<'k, ty::U64>,
    /// Who arrive.
    count: Val<'k, ty::U32>,
    /// Whether several slots have the others' sums, not one.
    pub of_many: Val<'k, ty::Bool>,
}

/// What a look ahead found.
pub struct Ahead<'k, S> {
    /// Where the share is; of no use where the tile is whole.
    pub share: Share<'k>,
    /// Whether the tile is of two, and the other is there.
    awaited: Val<'k, ty::Bool>,
    /// The other's sums then, zeros else: for each 8 columns of each m64 block.
    others: Vec<Val<'k, S>>,
}

/// What is left to store of a tile.
pub struct Rest<'k> {
    /// Whether anything is.
    pub stores: Val<'k, ty::Bool>,
    /// Whether the other's sums are to be added, and are there already from looking ahead.
    adds: Val<'k, ty::Bool>,
    awaited: Val<'k, ty::Bool>,
    /// Where they are.
    other: Val<'k, ty::U64>,
    /// Whether they have this worker's too.
    own_is_there: Val<'k, ty::Bool>,
}

/// Who reduces, and where the part lies in D.
pub struct Contributor<'w, 'e, 'k, S, R> {
    /// Its threads, which store results of type `R`.
    pub warpgroup: &'w WarpgroupStore<'e, 'k, R>,
    /// First element.
    pub origin: TileOrigin<'k>,
    /// The accumulators.
    pub accumulators: &'w Registers<'k, S>,
    /// The warpgroup's shared words.
    pub words: Val<'k, ty::Smem>,
}

impl<'k> Reduction<'k> {
    /// Declares the shared words. `workspace` is the address of [`GemmKernel::workspace`](crate::GemmKernel::workspace)
    /// bytes, a multiple of [`PARTIALS_ALIGN`].
    pub fn new(
        b: &'k KernelBuilder,
        spec: &KernelSpec,
        staging: &Staging,
        workspace: Val<'k, ty::U64>,
        unordered: Val<'k, ty::U32>,
    ) -> Self {
        let words = SmemRequest::whole(spec.consumers * WORDS * 4, 8);
        Reduction {
            b,
            spec: *spec,
            staging: *staging,
            workspace,
            unordered: unordered.ne(0),
            words: b.region("reduction", RegionKind::Data(Element::F32), words),
        }
    }

    /// The shared words of consumer warpgroup `consumer`.
    pub fn words(&self, consumer: Val<'k, ty::U32>) -> Val<'k, ty::Smem> {
        self.b.smem_address(self.words).offset(consumer * (WORDS * 4))
    }

    /// Where part `part` of a segment's tile is in the workspace, for thread `thread` of its warpgroup.
    pub fn share(
        &self,
        scheduler: &Scheduler<'k>,
        segment: &Segment<'k>,
        part: Val<'k, ty::U32>,
        thread: Val<'k, ty::U32>,
    ) -> Share<'k> {
        let b = self.b;
        let (parts, ctas) = (self.spec.parts(), self.spec.cluster.size());
        let rank =
            scheduler.in_cluster().map_or(b.constant(0), |cta| cta.n * self.spec.cluster.m + cta.m);
        let counters = (segment.tile * ctas + rank) * parts + part;
        let all_counters = scheduler.split().tiles * (ctas * parts * COUNTER_BYTES);
        let counter_bytes = all_counters.div_ceil(PARTIALS_ALIGN) * PARTIALS_ALIGN;
        let partials = self
            .workspace
            .byte_offset(counter_bytes)
            .byte_offset(part * (self.tile_bytes() / parts) + thread * QUAD_BYTES);
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
            of_many: !self.unordered & contributors.count.ne(2),
        }
    }

    /// Before the last stages of a segment: where its share is, and the other's sums if they are there already.
    pub fn look_ahead<S: Sum, R: Sum>(
        &self,
        segment: &Segment<'k>,
        share: impl FnOnce() -> Share<'k>,
        warpgroup: &WarpgroupStore<'_, 'k, R>,
        words: Val<'k, ty::Smem>,
    ) -> Ahead<'k, S> {
        let b = self.b;
        let quads = self.quads();
        let nothing = || vec![S::zero(b); quads as usize * 4];
        let (share, (awaited, others)) = b.if_else(
            segment.whole,
            || (Share::none(b), (b.constant::<ty::Bool>(false), nothing())),
            || {
                let share = share();
                let awaited = b.if_else(
                    share.of_many,
                    || b.constant::<ty::Bool>(false),
                    || self.look(&share, warpgroup, words.offset(AHEAD_WORD)),
                );
                let others = b.if_else(
                    awaited,
                    || {
                        let quad = |index| self.load_quad(share.other, index);
                        (0..quads).flat_map(quad).collect()
                    },
                    nothing,
                );
                (share, (awaited, others))
            },
        );
        Ahead { share, awaited, others }
    }

    /// Whether this is the only one missing.
    fn look<R: Sum>(
        &self,
        share: &Share<'k>,
        warpgroup: &WarpgroupStore<'_, 'k, R>,
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

    /// This thread's sums of 8 columns, counted in groups over all m64 blocks, in a slot.
    fn load_quad<S: Sum>(&self, slot: Val<'k, ty::U64>, index: u32) -> [Val<'k, S>; 4] {
        self.b.load_global::<S, 4>(slot.byte_offset(index * GROUP_BYTES))
    }

    /// Hands in the accumulators where one slot has or gets all of the others' sums: the last has to add it to its
    /// registers. Gives what is left to do.
    pub fn of_two<S: Gives<R>, R: Sum>(
        &self,
        share: &Share<'k>,
        ahead: Option<&Ahead<'k, S>>,
        contributor: &Contributor<'_, '_, 'k, S, R>,
    ) -> Rest<'k> {
        let b = self.b;
        let Contributor { warpgroup, accumulators, words, .. } = *contributor;
        let awaited = match ahead {
            None => self.look(share, warpgroup, words),
            Some(ahead) => b.if_else(
                ahead.awaited,
                || b.constant::<ty::Bool>(true),
                || self.look(share, warpgroup, words),
            ),
        };
        let arrive = || {
            let end = share.count * 2 - 1;
            b.atomic(AtomicOp::Inc, share.arrived, end, Order::AcquireRelease, Scope::Gpu)
        };
        let last = b.if_else(
            awaited,
            || {
                b.if_(warpgroup.leads, || {
                    arrive();
                });
                b.constant::<ty::U32>(1)
            },
            || {
                b.if_else(
                    self.unordered,
                    || self.hand_in(share, accumulators, |at, sums| S::reduce_add(b, at, sums)),
                    || self.hand_in::<S>(share, accumulators, |at, sums| b.store_global(at, sums)),
                );
                warpgroup.sync();
                let word = words.offset(ARRIVED_WORD);
                b.if_(warpgroup.leads, || {
                    let last = share.is_last(arrive());
                    b.store_shared(word, [last.select::<ty::U32>(1, 0)]);
                });
                warpgroup.sync();
                self.told(word)
            },
        );
        let last = last.ne(0);
        Rest {
            stores: last,
            adds: last,
            awaited: ahead.map_or(b.constant(false), |ahead| ahead.awaited),
            other: share.other,
            // Where sums are added as they come, a slot that they were added to has this worker's too.
            own_is_there: self.unordered & !awaited,
        }
    }

    /// This thread's sums of some 8 columns, counted in groups over all m64 blocks, for the epilogue: with the other's where
    /// they are missing, which are taken out of the workspace.
    pub fn sums<S: Sum>(
        &self,
        rest: &Rest<'k>,
        accumulators: &Registers<'k, S>,
        ahead: Option<&Ahead<'k, S>>,
        groups: Range<u32>,
    ) -> Vec<[Val<'k, S>; 4]> {
        // Those of slices before are stored, and their registers free.
        let registers = self.spec.registers().consumer;
        let own = (self.quads() - groups.start) / self.spec.sums_per_register();
        let most = if registers < MANY_REGISTERS { MOST_ADDED / 2 } else { MOST_ADDED };
        let spare = ((registers - BESIDE_SUMS) / 4).saturating_sub(own);
        let at_once = spare.clamp(1, most);
        let parts = groups.clone().step_by(at_once as usize);
        let parts = parts.map(|first| first..groups.end.min(first + at_once));
        parts.flat_map(|part| self.sums_at_once(rest, accumulators, ahead, part)).collect()
    }

    /// Those of so few that registers can have the other's beside all of this worker's.
    fn sums_at_once<S: Sum>(
        &self,
        rest: &Rest<'k>,
        accumulators: &Registers<'k, S>,
        ahead: Option<&Ahead<'k, S>>,
        groups: Range<u32>,
    ) -> Vec<[Val<'k, S>; 4]> {
        let b = self.b;
        let own = groups
            .clone()
            .flat_map(|index| accumulators.quad(b, index / self.groups(), index % self.groups()));
        let own: Vec<_> = own.collect();
        let add = || {
            let load = || groups.clone().flat_map(|index| self.load_quad(rest.other, index));
            let others = match ahead {
                None => load().collect(),
                Some(ahead) => {
                    let found = groups.start as usize * 4..groups.end as usize * 4;
                    b.if_else(
                        rest.awaited,
                        || ahead.others[found].to_vec(),
                        || load().collect::<Vec<_>>(),
                    )
                }
            };
            b.if_(self.unordered, || {
                for index in groups.clone() {
                    b.store_global(rest.other.byte_offset(index * GROUP_BYTES), [S::zero(b); 4]);
                }
            });
            let add = |(other, own): (Val<'k, S>, &Val<'k, S>)| {
                other + rest.own_is_there.select(S::neutral(b), *own)
            };
            others.into_iter().zip(&own).map(add).collect()
        };
        let sums: Vec<_> = b.if_else(rest.adds, add, || own.clone());
        sums.chunks(4).map(|quad| std::array::from_fn(|i| quad[i])).collect()
    }

    /// Hands in the accumulators where every share has a slot, and finishes pieces of the tile if all of it is there. Gives the
    /// parity of the next C slice.
    pub fn of_many<S: Gives<R>, R: Sum>(
        &self,
        segment: &Segment<'k>,
        share: &Share<'k>,
        contributor: &Contributor<'_, '_, 'k, S, R>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let Contributor { warpgroup, accumulators, words, .. } = *contributor;
        self.hand_in::<S>(share, accumulators, |address, sums| b.store_global(address, sums));
        warpgroup.sync();
        // Large tiles have no registers to spare, and are never shared by that many.
        let one_path = self.quads() > MOST_QUADS;
        let few = if one_path { b.constant(true) } else { share.count.lt(FEW + 1) };
        let pieces = few.select(self.staging.steps(), self.quads());
        let owners = share.count.min(pieces).min(OWNERS);
        let word = words.offset(ARRIVED_WORD);
        let handed_over = b.if_else(
            warpgroup.leads,
            || {
                let polls = segment.last.select(POLLS, 0);
                let Arrival { whose, handed_over } = self.arrive(share, owners, polls);
                b.store_shared(word, [whose]);
                handed_over
            },
            || b.constant(0),
        );
        warpgroup.sync();
        let owned = Owned { whose: self.told(word), owners, handed_over };
        b.if_else(
            few,
            || {
                let store = |piece, c_parity| {
                    self.finish_staging_tile(share, contributor, piece, c_parity);
                    c_parity ^ 1
                };
                let steps = self.staging.steps();
                let c_parity = self.finish(owned, steps, contributor, c_parity, store);
                if self.staging.buffers() > 1 {
                    // The next store begins with the first buffer and would not wait for it.
                    b.if_(warpgroup.leads, || b.bulk_wait_read(0));
                }
                c_parity
            },
            || {
                self.finish(owned, self.quads(), contributor, c_parity, |piece, c_parity| {
                    self.finish_quad(share, contributor, piece);
                    c_parity
                })
            },
        )
    }

    /// What the leader wrote for all.
    fn told(&self, word: Val<'k, ty::Smem>) -> Val<'k, ty::U32> {
        let [value] = self.b.load_shared::<ty::U32, 1>(word);
        value.warp_uniform()
    }

    fn tile_bytes(&self) -> u32 {
        self.spec.tile.m * self.spec.tile.n * 4
    }

    /// Columns of a tile, in groups of 8.
    fn groups(&self) -> u32 {
        self.spec.tile.n / 8
    }

    /// Quads of a part.
    fn quads(&self) -> u32 {
        self.spec.blocks() * self.groups()
    }

    /// Every 8 columns of every m64 block: the address of this thread's four sums in the worker's slot, and these.
    fn hand_in<S: Sum>(
        &self,
        share: &Share<'k>,
        accumulators: &Registers<'k, S>,
        store: impl Fn(Val<'k, ty::U64>, [Val<'k, S>; 4]),
    ) {
        let groups = self.groups();
        for block in 0..self.spec.blocks() {
            for group in 0..groups {
                let address = share.own.byte_offset((block * groups + group) * GROUP_BYTES);
                store(address, accumulators.quad(self.b, block, group));
            }
        }
    }

    /// Leader: counts the warpgroup in, and sees whether everybody is there, at once or while it looks `polls` times.
    fn arrive(
        &self,
        share: &Share<'k>,
        owners: Val<'k, ty::U32>,
        polls: Val<'k, ty::U32>,
    ) -> Arrival<'k> {
        let (b, arrived, count) = (self.b, share.arrived, share.count);
        let end = count * 2 - 1;
        let place = b.atomic(AtomicOp::Inc, arrived, end, Order::AcquireRelease, Scope::Gpu);
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
                            // The last has arrived; what all have stored is visible once its arrival is.
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
        Arrival { whose: owner.eq(0).select(own, waited), handed_over }
    }

    /// Runs `store` for the pieces that this one owns, if any, and, as the last to arrive, for what its leader finds handed
    /// over: that answer comes while it adds up its own. Of each round of pieces an owner has one.
    fn finish<S: Gives<R>, R: Sum>(
        &self,
        owned: Owned<'k>,
        pieces: u32,
        contributor: &Contributor<'_, '_, 'k, S, R>,
        c_parity: Val<'k, ty::U32>,
        store: impl FnOnce(Val<'k, ty::U32>, Val<'k, ty::U32>) -> Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let Owned { whose, owners, handed_over } = owned;
        let asks = whose.eq(1) & owners.ne(1);
        let (_, _, c_parity) = b.while_(
            (whose, asks, c_parity),
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
                        b.scope("ask", || {
                            let word = contributor.words.offset(HANDED_OVER_WORD);
                            b.if_(contributor.warpgroup.leads, || {
                                b.store_shared(word, [handed_over])
                            });
                            contributor.warpgroup.sync();
                            self.told(word)
                        })
                    };
                    b.if_else(asks, tell, nothing)
                };
                (more, b.constant(false), c_parity)
            },
        );
        c_parity
    }

    /// One staging tile.
    fn finish_staging_tile<S: Gives<R>, R: Sum>(
        &self,
        share: &Share<'k>,
        contributor: &Contributor<'_, '_, 'k, S, R>,
        piece: Val<'k, ty::U32>,
        c_parity: Val<'k, ty::U32>,
    ) {
        let (quads, slices) = (self.staging.columns() / 8, self.staging.slices());
        let sums = self.add_up::<S>(share, piece * quads, quads, FEW);
        let results = results::<S, R>(sums);
        let place = Place {
            row: contributor.origin.m + piece / slices * STAGING_ROWS,
            column: contributor.origin.n + piece % slices * self.staging.columns(),
            batch: contributor.origin.batch,
            buffer: 0,
            stores_pending: 0,
            side_by_side: 1,
        };
        contributor.warpgroup.store(&|quad: u32| results[quad as usize], place, c_parity);
    }

    /// One quad.
    fn finish_quad<S: Gives<R>, R: Sum>(
        &self,
        share: &Share<'k>,
        contributor: &Contributor<'_, '_, 'k, S, R>,
        piece: Val<'k, ty::U32>,
    ) {
        let groups = self.groups();
        let sums = self.add_up::<S>(share, piece, 1, QUADS_IN_FLIGHT);
        let origin = TileOrigin {
            m: contributor.origin.m + piece / groups * STAGING_ROWS,
            n: contributor.origin.n + piece % groups * 8,
            ..contributor.origin
        };
        contributor.warpgroup.store_elements(&results::<S, R>(sums), origin);
    }

    /// This thread's sums of some quads over all slots, in order; `most` slots are loaded at once.
    fn add_up<S: Sum>(
        &self,
        share: &Share<'k>,
        first: Val<'k, ty::U32>,
        quads: u32,
        most: u32,
    ) -> Vec<[Val<'k, S>; 4]> {
        let b = self.b;
        let slot_bytes = u64::from(self.spec.cluster.size() * self.tile_bytes());
        // The accumulators' registers are free by now; all the consumer's are not to spare.
        let few_registers = self.spec.registers().consumer < MANY_REGISTERS;
        let in_flight = if few_registers { QUADS_IN_FLIGHT / 2 } else { QUADS_IN_FLIGHT };
        let at_once = (in_flight / quads).clamp(1, most);
        let first = share.first.byte_offset(first * GROUP_BYTES);
        let zeros = || vec![S::neutral(b); quads as usize * 4];
        let sums = b.scope("add up", || {
            b.for_carry(0, share.count, at_once, zeros(), |index, mut sums| {
                let slot = first + index.widen() * slot_bytes;
                let loaded: Vec<_> = (0..at_once)
                    .map(|ahead| {
                        let slot = slot + u64::from(ahead) * slot_bytes;
                        let load =
                            || (0..quads).flat_map(|quad| self.load_quad(slot, quad)).collect();
                        match ahead {
                            0 => load(),
                            _ => b.if_else((index + ahead).lt(share.count), load, zeros),
                        }
                    })
                    .collect();
                for values in loaded {
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = *sum + value;
                    }
                }
                sums
            })
        });
        sums.chunks(4).map(|quad| std::array::from_fn(|i| quad[i])).collect()
    }
}

/// Pieces to finish.
#[derive(Clone, Copy)]
struct Owned<'k> {
    /// A bit for each owner whose pieces these are.
    whose: Val<'k, ty::U32>,
    /// How many owners there are.
    owners: Val<'k, ty::U32>,
    /// The leader's, of the last to arrive: the bits of those that handed theirs over.
    handed_over: Val<'k, ty::U32>,
}

/// What a leader finds when it counts its warpgroup in.
struct Arrival<'k> {
    /// A bit for each owner whose pieces are to be finished at once: its own, or none.
    whose: Val<'k, ty::U32>,
    /// The bits of those that handed theirs over, where it is the last.
    handed_over: Val<'k, ty::U32>,
}

impl<'k> Share<'k> {
    /// That of a whole tile.
    pub fn none(b: &'k KernelBuilder) -> Self {
        let at = b.constant(0);
        let (count, of_many) = (b.constant(1), b.constant(false));
        Share { arrived: at, first: at, own: at, other: at, count, of_many }
    }

    /// Whether the arrival after which the counter stood at `place` is followed by one only.
    fn is_last(&self, place: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        (place % self.count).eq(self.count - 1)
    }
}

impl<'k> Rest<'k> {
    /// All of a tile that nobody shares.
    pub fn all(b: &'k KernelBuilder) -> Self {
        let no = b.constant(false);
        let stores = b.constant(true);
        Rest { stores, adds: no, awaited: no, other: b.constant(0), own_is_there: no }
    }
}

impl<'k> Carried<'k> for Rest<'k> {
    type Static = ();

    fn split(self, values: &mut Vec<ValueId>) {
        values.extend([self.stores, self.adds, self.awaited, self.own_is_there].map(Val::id));
        values.push(self.other.id());
    }

    fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        let [stores, adds, awaited, own_is_there] =
            std::array::from_fn(|_| Val::join(b, values, Type::Bool));
        Rest { stores, adds, awaited, other: Val::join(b, values, Type::U64), own_is_there }
    }
}

impl<'k> Carried<'k> for Share<'k> {
    type Static = ();

    fn split(self, values: &mut Vec<ValueId>) {
        values.extend([self.arrived, self.first, self.own, self.other].map(Val::id));
        values.extend([self.count.id(), self.of_many.id()]);
    }

    fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        let [arrived, first, own, other] = std::array::from_fn(|_| Val::join(b, values, Type::U64));
        let (count, of_many) = (Val::join(b, values, Type::U32), Val::join(b, values, Type::Bool));
        Share { arrived, first, own, other, count, of_many }
    }
}
