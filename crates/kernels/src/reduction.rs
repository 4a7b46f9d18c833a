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
//! * Of more, those who have nothing else to do wait a moment for the last, and then all help, each with the next piece that
//!   nobody has taken.
//! * Counters return to where another launch can start from, with no memset between launches: arrivals go round in a
//!   circle of two generations, and the last of one generation clears the other's pieces.

use pgemm_ir::{
    Accumulators, AtomicOp, Carried, Element, KernelBuilder, Order, RegionId, RegionKind, Scope,
    SmemRequest, Type, Val, ValueId, WARPGROUP_THREADS, ty,
};

use crate::epilogue::{Epilogue, Place, WarpgroupStore};
use crate::gemm::quad;
use crate::scheduler::{Scheduler, Segment, TileOrigin};
use crate::spec::KernelSpec;
use crate::staging::{STAGING_ROWS, Staging};

/// Bytes of the counters of one part of a tile: arrivals, pieces taken in either generation, and padding.
pub const COUNTER_BYTES: u32 = 16;

/// Partial sums begin at a multiple of it.
pub const PARTIALS_ALIGN: u32 = 256;

/// Bytes of a thread's sums of 8 columns, four registers, and of all threads' of a warpgroup.
const QUAD_BYTES: u32 = 16;
const GROUP_BYTES: u32 = WARPGROUP_THREADS * QUAD_BYTES;

/// How often one who has nothing else to do looks whether all have arrived: some 20 µs.
const POLLS: u32 = 32;

/// Registers that loads of partial sums may fill at once, and most slots that are read at once.
const REGISTERS_IN_FLIGHT: u32 = 128;
const SLOTS_IN_FLIGHT: u32 = 8;

/// Shared words of a consumer warpgroup: what its leader found out before the warpgroup counted itself in, after that, and
/// when it looked ahead.
const WORDS: u32 = 3;

/// Bytes from the first of them to the last.
const AHEAD_WORD: u32 = 8;

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
    /// Whether one slot has, or gets, all of the others' sums.
    of_two: Val<'k, ty::Bool>,
}

/// What a look ahead found.
pub struct Ahead<'k> {
    /// Where the share is; of no use where the tile is whole.
    pub share: Share<'k>,
    /// Whether the tile is of two, and the other is there.
    awaited: Val<'k, ty::Bool>,
    /// The other's sums then, zeros else: for each 8 columns of each m64 block.
    others: Vec<Val<'k, ty::F32>>,
}

/// Who reduces, and where the part lies in D.
pub struct Contributor<'w, 'e, 'k> {
    /// Its threads.
    pub warpgroup: &'w WarpgroupStore<'e, 'k>,
    /// First element.
    pub origin: TileOrigin<'k>,
    /// The accumulators.
    pub accumulators: &'w Accumulators,
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
        // Of two slots, the one that is not this worker's.
        let is_first = segment.worker.eq(contributors.first);
        Share {
            arrived: self.workspace.byte_offset(counters * COUNTER_BYTES),
            first: slot(contributors.first),
            own: slot(segment.worker),
            other: slot(contributors.first + is_first.select(1, 0)),
            count: contributors.count,
            of_two: self.unordered | contributors.count.eq(2),
        }
    }

    /// Before the last stages of a segment: where its share is, and the other's sums if they are there already.
    pub fn look_ahead(
        &self,
        segment: &Segment<'k>,
        share: impl FnOnce() -> Share<'k>,
        warpgroup: &WarpgroupStore<'_, 'k>,
        words: Val<'k, ty::Smem>,
    ) -> Ahead<'k> {
        let b = self.b;
        let quads = self.spec.blocks() * self.spec.tile.n / 8;
        let nothing = || vec![b.constant::<ty::F32>(0.0); quads as usize * 4];
        let (share, (awaited, others)) = b.if_else(
            segment.whole,
            || {
                let (address, no) = (b.constant::<ty::U64>(0), b.constant::<ty::Bool>(false));
                let (first, own, other) = (address, address, address);
                let count = b.constant(1);
                let share = Share { arrived: address, first, own, other, count, of_two: no };
                (share, (no, nothing()))
            },
            || {
                let share = share();
                let awaited = b.if_else(
                    share.of_two,
                    || self.look(&share, warpgroup, words.offset(AHEAD_WORD)),
                    || b.constant::<ty::Bool>(false),
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
    fn look(
        &self,
        share: &Share<'k>,
        warpgroup: &WarpgroupStore<'_, 'k>,
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
    fn load_quad(&self, slot: Val<'k, ty::U64>, index: u32) -> [Val<'k, ty::F32>; 4] {
        self.b.load_global::<ty::F32, 4>(slot.byte_offset(index * GROUP_BYTES))
    }

    /// Hands in a segment's accumulators, and finishes the tile, or pieces of it, if all of it is there.
    pub fn contribute(
        &self,
        segment: &Segment<'k>,
        share: &Share<'k>,
        ahead: Option<&Ahead<'k>>,
        contributor: &Contributor<'_, '_, 'k>,
        epilogue: &Epilogue<'k>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        b.if_else(
            share.of_two,
            || {
                b.scope("of two", || {
                    self.contribute_to_one(share, ahead, contributor, epilogue, c_parity)
                })
            },
            || {
                let polls = segment.last.select(self.polls(), 0);
                b.scope("of many", || self.contribute_to_many(share, polls, contributor, c_parity))
            },
        )
    }

    /// One slot has or gets all of the others' sums: the last adds it to its registers.
    fn contribute_to_one(
        &self,
        share: &Share<'k>,
        ahead: Option<&Ahead<'k>>,
        contributor: &Contributor<'_, '_, 'k>,
        epilogue: &Epilogue<'k>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let Contributor { warpgroup, origin, accumulators, words } = *contributor;
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
                    || self.hand_in(share, accumulators, |at, sums| b.reduce_add(at, sums)),
                    || self.hand_in(share, accumulators, |at, sums| b.store_global(at, sums)),
                );
                warpgroup.sync();
                let word = words.offset(4);
                b.if_(warpgroup.leads, || {
                    let last = share.is_last(arrive());
                    b.store_shared(word, [last.select::<ty::U32>(1, 0)]);
                });
                warpgroup.sync();
                self.told(word)
            },
        );
        // Where sums are added as they come, a slot that they were added to has this worker's too.
        let own_is_there = self.unordered & !awaited;
        b.if_else(
            last.ne(0),
            || {
                let groups = self.spec.tile.n / 8;
                let sums = |block: u32, group: u32| {
                    let index = block * groups + group;
                    let others: Vec<_> = match ahead {
                        None => self.load_quad(share.other, index).to_vec(),
                        Some(ahead) => b.if_else(
                            ahead.awaited,
                            || ahead.others[index as usize * 4..][..4].to_vec(),
                            || self.load_quad(share.other, index).to_vec(),
                        ),
                    };
                    let own = quad(b, accumulators, block, group);
                    std::array::from_fn(|i| others[i] + own_is_there.select(-0.0, own[i]))
                };
                let c_parity = epilogue.store(origin, warpgroup, &sums, c_parity);
                b.if_(self.unordered, || {
                    let zero = b.constant::<ty::F32>(0.0);
                    for index in 0..self.spec.blocks() * groups {
                        let address = share.other.byte_offset(index * GROUP_BYTES);
                        b.store_global(address, [zero; 4]);
                    }
                });
                c_parity
            },
            || c_parity,
        )
    }

    /// Every share has a slot; all who find everybody there add up pieces of the tile.
    fn contribute_to_many(
        &self,
        share: &Share<'k>,
        polls: Val<'k, ty::U32>,
        contributor: &Contributor<'_, '_, 'k>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let Contributor { warpgroup, accumulators, words, .. } = *contributor;
        self.hand_in(share, accumulators, |address, sums| b.store_global(address, sums));
        warpgroup.sync();
        b.if_(warpgroup.leads, || {
            b.store_shared(words, [self.arrive(share, polls)]);
        });
        warpgroup.sync();
        let arrival = self.told(words);
        b.if_else(
            arrival.ne(0),
            || {
                let generation = (arrival - 1) / share.count;
                let c_parity = self.finish(share, contributor, generation, c_parity);
                if self.staging.buffers() > 1 {
                    // The next store begins with the first buffer and would not wait for it.
                    b.if_(warpgroup.leads, || b.bulk_wait_read(0));
                }
                c_parity
            },
            || c_parity,
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

    /// Staging tiles of a part.
    fn pieces(&self) -> u32 {
        self.staging.steps()
    }

    /// Waiting is of no use where there is one piece: the last to arrive takes it.
    fn polls(&self) -> u32 {
        if self.pieces() > 1 { POLLS } else { 0 }
    }

    /// Every 8 columns of every m64 block: the address of this thread's four sums in the worker's slot, and these.
    fn hand_in(
        &self,
        share: &Share<'k>,
        accumulators: &Accumulators,
        store: impl Fn(Val<'k, ty::U64>, [Val<'k, ty::F32>; 4]),
    ) {
        let groups = self.spec.tile.n / 8;
        for block in 0..self.spec.blocks() {
            for group in 0..groups {
                let address = share.own.byte_offset((block * groups + group) * GROUP_BYTES);
                store(address, quad(self.b, accumulators, block, group));
            }
        }
    }

    /// Leader: counts the warpgroup in. 1 + its place in the circle of `2 · count` arrivals if all of a generation are
    /// there, at once or while it looks `polls` times; else 0.
    fn arrive(&self, share: &Share<'k>, polls: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        let (b, arrived, count) = (self.b, share.arrived, share.count);
        let end = count * 2 - 1;
        let place = b.atomic(AtomicOp::Inc, arrived, end, Order::AcquireRelease, Scope::Gpu);
        let generation = place / count;
        let last = share.is_last(place);
        let several = self.pieces() > 1;
        b.if_(last & several, || {
            let other = arrived.byte_offset((generation ^ 1) * 4 + 4);
            b.store_global(other, [b.constant::<ty::U32>(0)]);
        });
        let (complete, _) = b.while_(
            (last, b.constant::<ty::U32>(0)),
            |(complete, looked)| !complete & looked.lt(polls),
            |(_, looked)| ((b.load_acquire(arrived) / count).ne(generation), looked + 1),
        );
        complete.select(place + 1, 0)
    }

    /// Adds up and stores pieces of a complete tile until none is left.
    fn finish(
        &self,
        share: &Share<'k>,
        contributor: &Contributor<'_, '_, 'k>,
        generation: Val<'k, ty::U32>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let pieces = self.pieces();
        if pieces == 1 {
            self.finish_piece(share, contributor, b.constant(0), c_parity);
            return c_parity ^ 1;
        }
        let taken = share.arrived.byte_offset(generation * 4 + 4);
        let word = contributor.words.offset(4);
        let take = || {
            b.if_(contributor.warpgroup.leads, || {
                let piece = b.atomic(AtomicOp::Add, taken, 1, Order::Relaxed, Scope::Gpu);
                b.store_shared(word, [piece]);
            });
            contributor.warpgroup.sync();
            self.told(word)
        };
        let (_, c_parity) = b.while_(
            (take(), c_parity),
            |(piece, _)| piece.lt(pieces),
            |(piece, c_parity)| {
                self.finish_piece(share, contributor, piece, c_parity);
                (take(), c_parity ^ 1)
            },
        );
        c_parity
    }

    /// One staging tile: the sum of all slots, in order.
    fn finish_piece(
        &self,
        share: &Share<'k>,
        contributor: &Contributor<'_, '_, 'k>,
        piece: Val<'k, ty::U32>,
        c_parity: Val<'k, ty::U32>,
    ) {
        let b = self.b;
        let groups = self.staging.columns() / 8;
        let slot_bytes = u64::from(self.spec.cluster.size() * self.tile_bytes());
        let at_once = (REGISTERS_IN_FLIGHT / (groups * 4)).clamp(1, SLOTS_IN_FLIGHT);
        let first = share.first.byte_offset(piece * (groups * GROUP_BYTES));
        // The neutral element: adding it changes no bit, not even a zero's sign.
        let zeros = vec![b.constant::<ty::F32>(-0.0); groups as usize * 4];
        let sums = b.scope("add up", || {
            b.for_carry(0, share.count, at_once, zeros, |index, mut sums| {
                let loaded: Vec<_> = (0..at_once)
                    .map(|ahead| {
                        let index = (index + ahead).min(share.count - 1);
                        let slot = first + index.widen() * slot_bytes;
                        let quad = |group| {
                            b.load_global::<ty::F32, 4>(slot.byte_offset(group * GROUP_BYTES))
                        };
                        (0..groups).flat_map(quad).collect::<Vec<_>>()
                    })
                    .collect();
                for (ahead, values) in loaded.into_iter().enumerate() {
                    let counts = (index + ahead as u32).lt(share.count);
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = *sum + counts.select(value, -0.0);
                    }
                }
                sums
            })
        });
        let slices = self.staging.slices();
        let place = Place {
            row: contributor.origin.m + piece / slices * STAGING_ROWS,
            column: contributor.origin.n + piece % slices * self.staging.columns(),
            buffer: 0,
            stores_pending: 0,
        };
        let quad = |group: u32| std::array::from_fn(|i| sums[group as usize * 4 + i]);
        contributor.warpgroup.store(&quad, place, c_parity);
    }
}

impl<'k> Share<'k> {
    /// Whether the arrival after which the counter stood at `place` is followed by one only.
    fn is_last(&self, place: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        (place % self.count).eq(self.count - 1)
    }
}

impl<'k> Carried<'k> for Share<'k> {
    type Static = ();

    fn split(self, values: &mut Vec<ValueId>) {
        values.extend([self.arrived, self.first, self.own, self.other].map(Val::id));
        values.extend([self.count.id(), self.of_two.id()]);
    }

    fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        let [arrived, first, own, other] = std::array::from_fn(|_| Val::join(b, values, Type::U64));
        let (count, of_two) = (Val::join(b, values, Type::U32), Val::join(b, values, Type::Bool));
        Share { arrived, first, own, other, count, of_two }
    }
}
