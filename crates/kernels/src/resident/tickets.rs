//! The tiles that a CTA of a resident kernel takes. A ticket is the number of a tile, counted over
//! all jobs. One warp of the CTA draws tickets and finds the jobs that their tiles belong to
//! ([`search`]). It hands each tile to the other warps through a small ring in shared memory.

mod search;

use pgemm_ir::{
    AtomicOp, Element, KernelBuilder, MBARRIER_BYTES, Order, RegionId, RegionKind, Scope,
    SmemRequest, Special, Val, carried, ty,
};

use super::layout::{RECORD_WORDS, Word, queue};
use super::leader;
use super::relay::{GIVEN_UP, LAST};
use crate::coordinates::TileOrigin;
use crate::divisor::Divisor;
use crate::epilogue::MOST_PARAMETERS;
use crate::problem::Vector;
use crate::queue::smem::{TILE_BYTES, TILE_SLOTS};
use crate::scheduler::Raster;
use crate::spec::{Spec, Tile};

/// The tiles of a CTA.
#[derive(Clone, Copy)]
pub(crate) struct Tickets<'k> {
    b: &'k KernelBuilder,
    tile: Tile,
    words: RegionId,
    full: RegionId,
    empty: RegionId,
    /// The barrier at which the producer requests another tile.
    requests: RegionId,
    /// Number of warps and threads that read each tile of the ring.
    readers: u32,
    /// Whether jobs have a bias.
    has_bias: bool,
    /// Number of parameters of the activation.
    parameters: usize,
    queue: Val<'k, ty::U64>,
    records: Val<'k, ty::U64>,
}

carried! {
    /// The position of a warp in the ring of tiles.
    #[derive(Clone, Copy)]
    pub(crate) struct TileCursor<'k> {
        slot: Val<'k, ty::U32>,
        phase: Val<'k, ty::U32>,
    }
}

/// The threads that read the tiles of a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The loader, which is one thread.
    Thread,
    /// All lanes of a warp.
    Warp,
    /// All warps of a consumer warpgroup, which read the same words.
    Warpgroup,
}

/// A tile of a job.
#[derive(Clone, Copy)]
pub(crate) struct JobTile<'k> {
    /// The tile's place in D.
    pub(crate) origin: TileOrigin<'k>,
    /// Number of stages. 0 says that no more tiles will come.
    pub(crate) k_tiles: Val<'k, ty::U32>,
    /// Number of the job's record.
    pub(crate) record: Val<'k, ty::U32>,
    /// The record's stamp.
    pub(crate) stamp: Val<'k, ty::U32>,
    /// Bits of alpha and beta.
    pub(crate) factors: [Val<'k, ty::U32>; 2],
    /// Bits of the activation's parameters, if it has any. Only threads that store have them.
    pub(crate) parameters: [Option<Val<'k, ty::U32>>; MOST_PARAMETERS],
    /// The bias, if the kernel's jobs have one. Only consumers have it.
    pub(crate) bias: Option<Vector<'k>>,
    /// Bits 0 to 3 say whether each product of a batch has its own A, B, C and D.
    pub(crate) steps: Val<'k, ty::U32>,
    /// Number of the job.
    pub(crate) job: Val<'k, ty::U32>,
}

carried! {
    /// A job that the warp has found. All lanes have the same values, but each lane has its own
    /// word of the record.
    #[derive(Clone, Copy)]
    struct FoundJob<'k> {
        job: Val<'k, ty::U32>,
        first: Val<'k, ty::U32>,
        tiles: Val<'k, ty::U32>,
        record: Val<'k, ty::U32>,
        word: Val<'k, ty::U32>,
    }
}

carried! {
    /// What the relay has published.
    #[derive(Clone, Copy)]
    struct Published<'k> {
        /// The number of tiles, the number of jobs, and whether more will come.
        word: Val<'k, ty::U64>,
        /// The first tile, the record and the low bits of the number of one job, usually the last
        /// one ([`queue::LATEST_AT`]).
        beside: Val<'k, ty::U64>,
    }
}

carried! {
    /// The words of a slot of the job ring that the search reads.
    #[derive(Clone, Copy)]
    struct SlotEntry<'k> {
        first: Val<'k, ty::U32>,
        job: Val<'k, ty::U32>,
        record: Val<'k, ty::U32>,
        tiles: Val<'k, ty::U32>,
    }
}

impl<'k> Tickets<'k> {
    /// Declares the ring of tiles. `readers` warps and threads read each slot.
    pub(crate) fn declare(
        b: &'k KernelBuilder,
        spec: &Spec,
        readers: u32,
        [queue, records]: [Val<'k, ty::U64>; 2],
    ) -> Self {
        let barriers = |count, name: &str| {
            let request = SmemRequest::whole(count * MBARRIER_BYTES, MBARRIER_BYTES);
            b.region(name, RegionKind::Mbarrier, request)
        };
        let words = SmemRequest::whole(TILE_SLOTS * TILE_BYTES, 16);
        Tickets {
            b,
            tile: spec.tile,
            words: b.region("tiles", RegionKind::Data(Element::S32), words),
            full: barriers(TILE_SLOTS, "tiles_full"),
            empty: barriers(TILE_SLOTS, "tiles_empty"),
            requests: barriers(1, "requests"),
            readers,
            has_bias: spec.epilogue.bias().is_some(),
            parameters: spec.epilogue.parameters().len(),
            queue,
            records,
        }
    }

    /// Initialises the barriers. One thread calls it.
    pub(crate) fn init(&self) {
        let b = self.b;
        for slot in 0..TILE_SLOTS {
            b.smem_address(self.full).offset(slot * MBARRIER_BYTES).mbarrier_init(1);
            b.smem_address(self.empty).offset(slot * MBARRIER_BYTES).mbarrier_init(self.readers);
        }
        b.smem_address(self.requests).mbarrier_init(1);
    }

    /// The first slot.
    pub(crate) fn start(&self) -> TileCursor<'k> {
        TileCursor { slot: self.b.constant(0), phase: self.b.constant(0) }
    }

    fn next(&self, cursor: TileCursor<'k>) -> TileCursor<'k> {
        let next = cursor.slot + 1;
        let wraps = next.eq(TILE_SLOTS);
        TileCursor {
            slot: wraps.select(0, next),
            phase: wraps.select(cursor.phase ^ 1, cursor.phase),
        }
    }

    fn barrier(&self, region: RegionId, cursor: TileCursor<'k>) -> Val<'k, ty::Smem> {
        self.b.smem_address(region).offset(cursor.slot * MBARRIER_BYTES)
    }

    fn tile(&self, cursor: TileCursor<'k>) -> Val<'k, ty::Smem> {
        self.b.smem_address(self.words).offset(cursor.slot * TILE_BYTES)
    }

    /// The next tile.
    pub(crate) fn take(
        &self,
        cursor: TileCursor<'k>,
        reader: Reader,
    ) -> (JobTile<'k>, TileCursor<'k>) {
        let b = self.b;
        self.barrier(self.full, cursor).mbarrier_wait(cursor.phase);
        let at = self.tile(cursor);
        let quad = |word: u32| b.load_shared::<ty::U32, 4>(at.offset(word * 4));
        let [_, k_tiles, steps, alpha] = quad(Word::Tiles as u32);
        let [beta, stamp, ..] = quad(Word::Beta as u32);
        let [m, n, batch, job] = quad(RECORD_WORDS);
        let [record, ..] = quad(RECORD_WORDS + 4);
        let stores = reader == Reader::Warpgroup;
        let bias = (self.has_bias && stores).then(|| quad(Word::Bias as u32));
        let parameters = (self.parameters > 0 && stores).then(|| quad(Word::Parameters as u32));
        let empty = self.barrier(self.empty, cursor);
        if reader == Reader::Thread {
            empty.mbarrier_arrive();
        } else {
            b.warp_sync();
            self.first(|| empty.mbarrier_arrive());
        }
        let all = |word: Val<'k, ty::U32>| match reader {
            Reader::Thread => word,
            Reader::Warp => word.warp_uniform(),
            Reader::Warpgroup => word.warpgroup_uniform(),
        };
        let tile = JobTile {
            origin: TileOrigin { m: all(m), n: all(n), batch: all(batch) },
            k_tiles: all(k_tiles),
            record: all(record),
            stamp: all(stamp),
            factors: [all(alpha), all(beta)],
            parameters: std::array::from_fn(|place| {
                let quad = parameters.filter(|_| place < self.parameters)?;
                Some(all(quad[place]))
            }),
            bias: bias.map(|[low, high, length, _]| Vector {
                address: all(low).to_u64() | (all(high).to_u64() << 32),
                length: all(length),
            }),
            steps: all(steps),
            job: all(job),
        };
        (tile, self.next(cursor))
    }

    /// Requests the tile after the next one. The producer calls this once for each tile that it
    /// takes.
    pub(crate) fn request(&self) {
        self.b.smem_address(self.requests).mbarrier_arrive();
    }

    /// Runs `then` in lane 0.
    fn first(&self, then: impl FnOnce()) {
        self.b.if_(self.b.special(Special::Lane).eq(0), then);
    }

    /// Draws tickets and hands tiles to the other warps until no more will come. One warp runs
    /// this.
    pub(crate) fn draw(&self) {
        let b = self.b;
        let zero = || b.constant::<ty::U32>(0);
        let none =
            FoundJob { job: zero(), first: zero(), tiles: zero(), record: zero(), word: zero() };
        b.while_(
            (self.start(), zero(), none, b.constant(true)),
            |(.., goes_on)| goes_on,
            |(cursor, phase, last, _)| {
                let ticket = self.ticket();
                let published = self.wait_for(ticket);
                let there = self.is_published(published, ticket);
                let nothing = || (last, b.constant(false));
                let next = || {
                    let same = (ticket - last.first).lt(last.tiles);
                    b.if_else(same, || (last, there), || self.find(ticket, published))
                };
                let (found, there) = b.if_else(there, next, nothing);
                self.barrier(self.empty, cursor).mbarrier_wait(cursor.phase ^ 1);
                self.pass_tile(cursor, found, ticket, there);
                b.if_(there, || b.smem_address(self.requests).mbarrier_wait(phase));
                (self.next(cursor), phase ^ 1, found, there)
            },
        );
        self.leave();
    }

    fn ticket(&self) -> Val<'k, ty::U32> {
        let b = self.b;
        let at = self.queue.byte_offset(queue::TICKET_AT);
        let drawn = b.if_else(
            b.special(Special::Lane).eq(0),
            || b.atomic(AtomicOp::Add, at, 1, Order::Relaxed, Scope::Gpu),
            || b.constant(0),
        );
        drawn.warp_uniform()
    }

    fn published(&self) -> Published<'k> {
        let at = self.queue.byte_offset(queue::PUBLISHED_AT);
        let [word, beside] = leader::load_u64s(self.b, at, Order::Acquire, Scope::Gpu);
        Published { word, beside }
    }

    /// Whether the tile of a ticket has been published and has not been given up.
    fn is_published(
        &self,
        published: Published<'k>,
        ticket: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Bool> {
        // Numbers wrap. The distance to a published tile is less than half of their range.
        let ahead = published.word.low_word() - ticket - 1;
        ahead.lt(1 << 31) & published.word.ne(GIVEN_UP)
    }

    /// Waits until the tile is published, or until no more tiles will be.
    fn wait_for(&self, ticket: Val<'k, ty::U32>) -> Published<'k> {
        self.b.while_(
            self.published(),
            |published| !self.is_published(published, ticket) & published.word.lt(LAST),
            |_| self.published(),
        )
    }

    /// Writes a tile to the ring. If `there` is false, the tile has no stages, and so its readers
    /// know that no more will come.
    fn pass_tile(
        &self,
        cursor: TileCursor<'k>,
        found: FoundJob<'k>,
        ticket: Val<'k, ty::U32>,
        there: Val<'k, ty::Bool>,
    ) {
        let b = self.b;
        let at = self.tile(cursor);
        let lane = b.special(Special::Lane);
        b.store_shared(at.offset(lane * 4), [there.select(found.word, 0)]);
        b.warp_sync();
        self.first(|| {
            let read = |word: u32| -> Val<'k, ty::U32> {
                let [value] = b.load_shared(at.offset(word * 4));
                value
            };
            let divisor = |at: Word| Divisor::new([0, 1, 2].map(|word| read(at as u32 + word)));
            let raster = Raster {
                tiles_of_product: divisor(Word::OfOne),
                tiles_of_group: divisor(Word::OfGroup),
                full_groups: read(Word::FullGroups as u32),
                raster_rows: divisor(Word::RasterRows),
                last_rows: divisor(Word::LastRows),
            };
            let zero = b.constant(0);
            let [batch, row, column] = raster.place(ticket - found.first);
            let (m, n) = (row * self.tile.m, column * self.tile.n);
            b.store_shared(at.offset(RECORD_WORDS * 4), [m, n, batch, found.job]);
            let rest = at.offset(RECORD_WORDS * 4 + 16);
            b.store_shared(rest, [found.record, zero, zero, zero]);
            self.barrier(self.full, cursor).mbarrier_arrive();
        });
    }

    /// The last CTA to leave prepares the queue for the next launch: tickets continue with the
    /// first tile that was not published.
    fn leave(&self) {
        let b = self.b;
        let others = b.special(Special::CtaCount) - 1;
        let at = self.queue.byte_offset(queue::LEFT_AT);
        let published = self.published().word;
        self.first(|| {
            let left = b.atomic(AtomicOp::Inc, at, others, Order::AcquireRelease, Scope::Gpu);
            b.if_(left.eq(others), || {
                let tickets = self.queue.byte_offset(queue::TICKET_AT);
                b.store_ordered(tickets, published.low_word(), Order::Relaxed, Scope::Gpu);
                // After an abort the next launch has to find that all tiles are given up.
                b.if_(published.ne(GIVEN_UP), || {
                    let at = self.queue.byte_offset(queue::PUBLISHED_AT);
                    b.store_ordered(at, published & (LAST - 1), Order::Relaxed, Scope::Gpu);
                });
            });
        });
    }
}
