//! The reduction of split tiles. Each worker stores its partial sums, in the order of its registers, into a slot of the
//! workspace and counts itself in; the tile is finished by those who find everybody there.
//!
//! * The slot of a worker's share of a tile is worker + tile: both only grow along the k-tiles laid end to end, so no two
//!   shares have one slot, and those of a tile lie one behind the other, in order of k.
//! * Sums are always taken in that order, whoever takes them, so results are the same bit for bit on every run. Where the
//!   launch asks for an unordered reduction, partial sums are added to one slot as they come.
//! * Nobody depends on a CTA that may not be running: who arrives last finishes the tile, alone if need be.
//! * Of two, the later has its sums in registers still and adds the other's to them on their way out. Most tiles of stream-K
//!   are such, and the other half is there long before.
//! * Of more, those who have nothing else to do wait a moment for the last, and then all help, each with the next piece that
//!   nobody has taken.
//! * Counters return to where another launch can start from, with no memset between launches: arrivals go round in a
//!   circle of two generations, and the last of one generation clears the other's pieces.

use pgemm_ir::{
    Accumulators, AtomicOp, Element, KernelBuilder, Order, RegionId, RegionKind, Scope,
    SmemRequest, Val, WARPGROUP_THREADS, ty,
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
const REGISTERS_IN_FLIGHT: u32 = 160;
const SLOTS_IN_FLIGHT: u32 = 8;

/// Shared words of a consumer warpgroup: what its leader found out before and after the warpgroup counted itself in.
const WORDS: u32 = 2;

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

/// One part of a split tile: what a consumer warpgroup computes of it.
struct Part<'w, 'e, 'k> {
    warpgroup: &'w WarpgroupStore<'e, 'k>,
    origin: TileOrigin<'k>,
    /// The warpgroup's words.
    words: Val<'k, ty::Smem>,
    /// The counter of arrivals.
    arrived: Val<'k, ty::U64>,
    /// Who arrive.
    count: Val<'k, ty::U32>,
    /// This thread's sums in the first contributor's slot, and in this worker's.
    first: Val<'k, ty::U64>,
    own: Val<'k, ty::U64>,
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

    /// Hands in a segment's accumulators, part `part` of its tile, from consumer warpgroup `consumer`, and finishes the tile,
    /// or pieces of it, if all of it is there. `origin` is that of the part.
    #[allow(clippy::too_many_arguments)]
    pub fn contribute(
        &self,
        scheduler: &Scheduler<'k>,
        epilogue: &Epilogue<'k>,
        segment: &Segment<'k>,
        [consumer, part]: [Val<'k, ty::U32>; 2],
        origin: TileOrigin<'k>,
        warpgroup: &WarpgroupStore<'_, 'k>,
        accumulators: &Accumulators,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
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
            .byte_offset(part * (self.tile_bytes() / parts) + warpgroup.thread * QUAD_BYTES);
        let contributors = scheduler.contributors(segment.tile);
        let slot = |worker: Val<'k, ty::U32>| {
            let index = segment.tile + self.unordered.select(0, worker);
            partials + (index * ctas + rank).widen() * u64::from(self.tile_bytes())
        };
        let part = Part {
            warpgroup,
            origin,
            words: b.smem_address(self.words).offset(consumer * (WORDS * 4)),
            arrived: self.workspace.byte_offset(counters * COUNTER_BYTES),
            count: contributors.count,
            first: slot(contributors.first),
            own: slot(segment.worker),
        };
        b.if_else(
            self.unordered | contributors.count.eq(2),
            || {
                // Of two slots, the one that is not this worker's.
                let is_first = segment.worker.eq(contributors.first);
                let other = slot(contributors.first + is_first.select(1, 0));
                b.scope("of two", || {
                    self.contribute_to_one(&part, other, epilogue, accumulators, c_parity)
                })
            },
            || {
                let polls = segment.last.select(self.polls(), 0);
                b.scope("of many", || self.contribute_to_many(&part, polls, accumulators, c_parity))
            },
        )
    }

    /// One slot, `other`, has or gets all of the others' sums: the last adds it to its registers.
    fn contribute_to_one(
        &self,
        part: &Part<'_, '_, 'k>,
        other: Val<'k, ty::U64>,
        epilogue: &Epilogue<'k>,
        accumulators: &Accumulators,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let is_last = |place: Val<'k, ty::U32>| (place % part.count).eq(part.count - 1);
        b.if_(part.warpgroup.leads, || {
            let awaited = is_last(b.load_acquire(part.arrived));
            b.store_shared(part.words, [awaited.select::<ty::U32>(1, 0)]);
        });
        part.warpgroup.sync();
        let awaited = self.told(part.words).ne(0);
        let arrive = || {
            let end = part.count * 2 - 1;
            b.atomic(AtomicOp::Inc, part.arrived, end, Order::AcquireRelease, Scope::Gpu)
        };
        let last = b.if_else(
            awaited,
            || {
                b.if_(part.warpgroup.leads, || {
                    arrive();
                });
                b.constant::<ty::U32>(1)
            },
            || {
                b.if_else(
                    self.unordered,
                    || self.hand_in(part, accumulators, |at, sums| b.reduce_add(at, sums)),
                    || self.hand_in(part, accumulators, |at, sums| b.store_global(at, sums)),
                );
                part.warpgroup.sync();
                let word = part.words.offset(4);
                b.if_(part.warpgroup.leads, || {
                    b.store_shared(word, [is_last(arrive()).select::<ty::U32>(1, 0)]);
                });
                part.warpgroup.sync();
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
                    let address = other.byte_offset((block * groups + group) * GROUP_BYTES);
                    let others = b.load_global::<ty::F32, 4>(address);
                    let own = quad(b, accumulators, block, group);
                    std::array::from_fn(|i| others[i] + own_is_there.select(-0.0, own[i]))
                };
                let c_parity = epilogue.store(part.origin, part.warpgroup, &sums, c_parity);
                b.if_(self.unordered, || {
                    let zero = b.constant::<ty::F32>(0.0);
                    for group in 0..self.spec.blocks() * groups {
                        b.store_global(other.byte_offset(group * GROUP_BYTES), [zero; 4]);
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
        part: &Part<'_, '_, 'k>,
        polls: Val<'k, ty::U32>,
        accumulators: &Accumulators,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        self.hand_in(part, accumulators, |address, sums| b.store_global(address, sums));
        part.warpgroup.sync();
        b.if_(part.warpgroup.leads, || {
            b.store_shared(part.words, [self.arrive(part, polls)]);
        });
        part.warpgroup.sync();
        let arrival = self.told(part.words);
        b.if_else(
            arrival.ne(0),
            || {
                let generation = (arrival - 1) / part.count;
                let c_parity = self.finish(part, generation, c_parity);
                if self.staging.buffers() > 1 {
                    // The next store begins with the first buffer and would not wait for it.
                    b.if_(part.warpgroup.leads, || b.bulk_wait_read(0));
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
        part: &Part<'_, '_, 'k>,
        accumulators: &Accumulators,
        store: impl Fn(Val<'k, ty::U64>, [Val<'k, ty::F32>; 4]),
    ) {
        let groups = self.spec.tile.n / 8;
        for block in 0..self.spec.blocks() {
            for group in 0..groups {
                let address = part.own.byte_offset((block * groups + group) * GROUP_BYTES);
                store(address, quad(self.b, accumulators, block, group));
            }
        }
    }

    /// Leader: counts the warpgroup in. 1 + its place in the circle of `2 · count` arrivals if all of a generation are
    /// there, at once or while it looks `polls` times; else 0.
    fn arrive(&self, part: &Part<'_, '_, 'k>, polls: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        let (b, arrived, count) = (self.b, part.arrived, part.count);
        let end = count * 2 - 1;
        let place = b.atomic(AtomicOp::Inc, arrived, end, Order::AcquireRelease, Scope::Gpu);
        let generation = place / count;
        let last = (place % count).eq(count - 1);
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
        part: &Part<'_, '_, 'k>,
        generation: Val<'k, ty::U32>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let pieces = self.pieces();
        if pieces == 1 {
            self.finish_piece(part, b.constant(0), c_parity);
            return c_parity ^ 1;
        }
        let taken = part.arrived.byte_offset(generation * 4 + 4);
        let word = part.words.offset(4);
        let take = || {
            b.if_(part.warpgroup.leads, || {
                let piece = b.atomic(AtomicOp::Add, taken, 1, Order::Relaxed, Scope::Gpu);
                b.store_shared(word, [piece]);
            });
            part.warpgroup.sync();
            self.told(word)
        };
        let (_, c_parity) = b.while_(
            (take(), c_parity),
            |(piece, _)| piece.lt(pieces),
            |(piece, c_parity)| {
                self.finish_piece(part, piece, c_parity);
                (take(), c_parity ^ 1)
            },
        );
        c_parity
    }

    /// One staging tile: the sum of all slots, in order.
    fn finish_piece(
        &self,
        part: &Part<'_, '_, 'k>,
        piece: Val<'k, ty::U32>,
        c_parity: Val<'k, ty::U32>,
    ) {
        let b = self.b;
        let groups = self.staging.columns() / 8;
        let slot_bytes = u64::from(self.spec.cluster.size() * self.tile_bytes());
        let at_once = (REGISTERS_IN_FLIGHT / (groups * 4)).clamp(1, SLOTS_IN_FLIGHT);
        let first = part.first.byte_offset(piece * (groups * GROUP_BYTES));
        // The neutral element: adding it changes no bit, not even a zero's sign.
        let zeros = vec![b.constant::<ty::F32>(-0.0); groups as usize * 4];
        let sums = b.scope("add up", || {
            b.for_carry(0, part.count, at_once, zeros, |index, mut sums| {
                let loaded: Vec<_> = (0..at_once)
                    .map(|ahead| {
                        let index = (index + ahead).min(part.count - 1);
                        let slot = first + index.widen() * slot_bytes;
                        let quad = |group| {
                            b.load_global::<ty::F32, 4>(slot.byte_offset(group * GROUP_BYTES))
                        };
                        (0..groups).flat_map(quad).collect::<Vec<_>>()
                    })
                    .collect();
                for (ahead, values) in loaded.into_iter().enumerate() {
                    let counts = (index + ahead as u32).lt(part.count);
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = *sum + counts.select(value, -0.0);
                    }
                }
                sums
            })
        });
        let slices = self.staging.slices();
        let place = Place {
            row: part.origin.m + piece / slices * STAGING_ROWS,
            column: part.origin.n + piece % slices * self.staging.columns(),
            buffer: 0,
            stores_pending: 0,
        };
        let quad = |group: u32| std::array::from_fn(|i| sums[group as usize * 4 + i]);
        part.warpgroup.store(&quad, place, c_parity);
    }
}
