//! The reduction of split tiles. Each worker stores its partial sums, in the order of its registers, into a slot of the
//! workspace and counts itself in; the tile is done by those who find everybody there.
//!
//! * The slot of a worker's share of a tile is worker + tile: both only grow along the k-tiles laid end to end, so no two
//!   shares have one slot, and those of a tile lie one behind the other, in order of k.
//! * Sums are always taken in that order, whoever takes them, so results are the same bit for bit on every run. Where the
//!   launch asks for an unordered reduction, partial sums are added to one slot as they come.
//! * Nobody depends on a CTA that may not be running: who arrives last finishes the tile, alone if need be. The others
//!   wait a moment where they have nothing else to do, and then help, each with the next piece that nobody has taken.
//! * Counters return to where another launch can start from, with no memset between launches: arrivals go round in a
//!   circle of two generations, and the last of one generation clears the other's pieces.

use pgemm_ir::{
    Accumulators, AtomicOp, Element, KernelBuilder, Order, RegionId, RegionKind, Scope,
    SmemRequest, Val, WARPGROUP_THREADS, ty,
};

use crate::epilogue::{Place, WarpgroupStore};
use crate::scheduler::{Scheduler, Segment, TileOrigin};
use crate::spec::KernelSpec;
use crate::staging::{STAGING_ROWS, Staging};

/// Bytes of the counters of one part of a tile: arrivals, pieces taken in either generation, and padding.
pub const COUNTER_BYTES: u32 = 16;

/// Partial sums begin at a multiple of it.
pub const PARTIALS_ALIGN: u32 = 256;

/// Bytes of a thread's partial sums of 8 columns: four registers.
const GROUP_BYTES: u32 = 16;

/// How often one who has nothing else to do looks whether all have arrived: some 20 µs.
const POLLS: u32 = 32;

/// Registers that loads of partial sums may fill at once.
const REGISTERS_IN_FLIGHT: u32 = 96;

/// Shared words of a consumer warpgroup: what its leader found out about arrivals and pieces.
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
struct Part<'k> {
    arrived: Val<'k, ty::U64>,
    /// Partial sums of the first contributor.
    partials: Val<'k, ty::U64>,
    /// Slots to add up.
    slots: Val<'k, ty::U32>,
    origin: TileOrigin<'k>,
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

    /// Hands in a segment's accumulators, part `part` of its tile, from consumer warpgroup `consumer`, and finishes pieces
    /// of the tile if all of it is there. `origin` is that of the part.
    #[allow(clippy::too_many_arguments)]
    pub fn contribute(
        &self,
        scheduler: &Scheduler<'k>,
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
        let partials =
            self.workspace.byte_offset(all_counters.div_ceil(PARTIALS_ALIGN) * PARTIALS_ALIGN);
        let contributors = scheduler.contributors(segment.tile);
        let slot = |worker: Val<'k, ty::U32>| {
            let index = segment.tile + self.unordered.select(0, worker);
            let cta = (index * ctas + rank).widen() * u64::from(self.tile_bytes());
            partials + cta + (part * (self.tile_bytes() / parts)).widen()
        };
        let tile = Part {
            arrived: self.workspace.byte_offset(counters * COUNTER_BYTES),
            partials: slot(contributors.first),
            slots: self.unordered.select(1, contributors.count),
            origin,
        };

        b.scope("partial sums", || {
            let own = slot(segment.worker).byte_offset(warpgroup.thread * GROUP_BYTES);
            b.if_else(
                self.unordered,
                || {
                    self.for_each_group(own, accumulators, |address, sums| {
                        b.reduce_add(address, sums)
                    })
                },
                || {
                    self.for_each_group(own, accumulators, |address, sums| {
                        b.store_global(address, sums)
                    })
                },
            );
        });
        let word = b.smem_address(self.words).offset(consumer * (WORDS * 4));
        b.scope("arrive", || {
            warpgroup.sync();
            b.if_(warpgroup.leads, || {
                let polls = segment.last.select(self.polls(), 0);
                let arrival = self.arrive(tile.arrived, contributors.count, polls);
                b.store_shared(word, [arrival]);
            });
            warpgroup.sync();
        });
        let arrival = self.told(word);
        b.if_else(
            arrival.ne(0),
            || {
                let generation = (arrival - 1) / contributors.count;
                let c_parity = self.finish(&tile, generation, word, warpgroup, c_parity);
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

    /// Every 8 columns of every m64 block: the address of this thread's four sums, and these.
    fn for_each_group(
        &self,
        first: Val<'k, ty::U64>,
        accumulators: &Accumulators,
        store: impl Fn(Val<'k, ty::U64>, [Val<'k, ty::F32>; 4]),
    ) {
        let groups = self.spec.tile.n / 8;
        for block in 0..self.spec.blocks() {
            for group in 0..groups {
                let offset = (block * groups + group) * WARPGROUP_THREADS * GROUP_BYTES;
                let sums = std::array::from_fn(|i| {
                    accumulators.get(self.b, block as usize, group * 4 + i as u32)
                });
                store(first.byte_offset(offset), sums);
            }
        }
    }

    /// Leader: counts the warpgroup in. 1 + its place in the circle of `2 · count` arrivals if all of a generation are
    /// there, at once or while it looks `polls` times; else 0.
    fn arrive(
        &self,
        arrived: Val<'k, ty::U64>,
        count: Val<'k, ty::U32>,
        polls: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
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
        tile: &Part<'k>,
        generation: Val<'k, ty::U32>,
        word: Val<'k, ty::Smem>,
        warpgroup: &WarpgroupStore<'_, 'k>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let pieces = self.pieces();
        if pieces == 1 {
            self.finish_piece(tile, b.constant(0), warpgroup, c_parity);
            return c_parity ^ 1;
        }
        let taken = tile.arrived.byte_offset(generation * 4 + 4);
        let word = word.offset(4);
        let take = || {
            b.if_(warpgroup.leads, || {
                let piece = b.atomic(AtomicOp::Add, taken, 1, Order::Relaxed, Scope::Gpu);
                b.store_shared(word, [piece]);
            });
            warpgroup.sync();
            self.told(word)
        };
        let (_, c_parity) = b.while_(
            (take(), c_parity),
            |(piece, _)| piece.lt(pieces),
            |(piece, c_parity)| {
                self.finish_piece(tile, piece, warpgroup, c_parity);
                (take(), c_parity ^ 1)
            },
        );
        c_parity
    }

    /// One staging tile: the sum of all slots, in order.
    fn finish_piece(
        &self,
        tile: &Part<'k>,
        piece: Val<'k, ty::U32>,
        warpgroup: &WarpgroupStore<'_, 'k>,
        c_parity: Val<'k, ty::U32>,
    ) {
        let b = self.b;
        let groups = self.staging.columns() / 8;
        let slot_bytes = u64::from(self.spec.cluster.size() * self.tile_bytes());
        let at_once = (REGISTERS_IN_FLIGHT / (groups * 4)).clamp(1, 4);
        let first = tile
            .partials
            .byte_offset(piece * (groups * WARPGROUP_THREADS * GROUP_BYTES))
            .byte_offset(warpgroup.thread * GROUP_BYTES);
        let group_address = |slot: Val<'k, ty::U64>, group: u32| {
            slot.byte_offset(group * WARPGROUP_THREADS * GROUP_BYTES)
        };
        // The neutral element: adding it changes no bit, not even a zero's sign.
        let zeros = vec![b.constant::<ty::F32>(-0.0); groups as usize * 4];
        let sums = b.scope("add up", || {
            b.for_carry(0, tile.slots, at_once, zeros, |index, mut sums| {
                let loaded: Vec<_> = (0..at_once)
                    .map(|ahead| {
                        let index = (index + ahead).min(tile.slots - 1);
                        let slot = first + index.widen() * slot_bytes;
                        (0..groups)
                            .flat_map(|group| {
                                b.load_global::<ty::F32, 4>(group_address(slot, group))
                            })
                            .collect::<Vec<_>>()
                    })
                    .collect();
                for (ahead, values) in loaded.into_iter().enumerate() {
                    let counts = (index + ahead as u32).lt(tile.slots);
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = *sum + counts.select(value, -0.0);
                    }
                }
                sums
            })
        });
        b.if_(self.unordered, || {
            let zero = b.constant::<ty::F32>(0.0);
            for group in 0..groups {
                b.store_global(group_address(first, group), [zero; 4]);
            }
        });
        let slices = self.staging.slices();
        let place = Place {
            row: tile.origin.m + piece / slices * STAGING_ROWS,
            column: tile.origin.n + piece % slices * self.staging.columns(),
            buffer: 0,
            stores_pending: 0,
        };
        warpgroup.store(&|register| sums[register as usize], place, c_parity);
    }
}
