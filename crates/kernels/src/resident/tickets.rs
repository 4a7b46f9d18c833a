//! Tiles of jobs as a CTA takes them: one thread draws tickets, the numbers of tiles over all jobs, and finds their jobs; what a tile's
//! other warps need to know goes to them through a small ring in shared memory.

use pgemm_ir::{
    AtomicOp, Carried, Element, KernelBuilder, Order, RegionId, RegionKind, Scope, SmemRequest,
    Special, Type, Val, ValueId, ty,
};

use super::layout::{JOB_MASK, MOST_AFTER, RECORD_BYTES, RING_SLOTS, Word, queue};
use super::relay::{GIVEN_UP, LAST};
use crate::divisor::Divisor;
use crate::scheduler::{Scheduler, TileOrigin};
use crate::spec::{Cluster, Tile};
use crate::walk::{SplitArguments, Walk};

/// Tiles that a CTA knows of at once.
const SLOTS: u32 = 2;

/// Words of a tile.
const WORDS: u32 = 12;

const MBARRIER_BYTES: u32 = 8;

/// Bytes of shared memory that they take.
pub(crate) const SMEM_BYTES: u32 = SLOTS * (WORDS * 4 + 2 * MBARRIER_BYTES) + MBARRIER_BYTES;

/// Between two looks at what is published, in nanoseconds.
const REST: u32 = 20;

/// The tiles of a CTA.
#[derive(Clone, Copy)]
pub(crate) struct Tickets<'k> {
    b: &'k KernelBuilder,
    tile: Tile,
    words: RegionId,
    full: RegionId,
    empty: RegionId,
    /// Where the producer asks for another tile.
    asked: RegionId,
    /// Warps and threads that read each tile.
    readers: u32,
    queue: Val<'k, ty::U64>,
    ring: Val<'k, ty::U64>,
}

/// Where a warp stands in the ring of tiles.
#[derive(Clone, Copy)]
pub(crate) struct TileCursor<'k> {
    slot: Val<'k, ty::U32>,
    phase: Val<'k, ty::U32>,
}

/// A tile of a job.
#[derive(Clone, Copy)]
pub(crate) struct JobTile<'k> {
    /// Its place in D.
    pub(crate) origin: TileOrigin<'k>,
    /// Its stages; 0 where there is none any more.
    pub(crate) k_tiles: Val<'k, ty::U32>,
    /// Address of the job's record.
    pub(crate) record: Val<'k, ty::U64>,
    /// Bits of alpha and beta.
    pub(crate) factors: [Val<'k, ty::U32>; 2],
    /// Bits 0 to 3: whether A, B, C and D step from product to product.
    pub(crate) steps: Val<'k, ty::U32>,
    /// Number of the job.
    pub(crate) job: Val<'k, ty::U32>,
}

/// A job that was found: its number, its first tile, and how many it has.
#[derive(Clone, Copy)]
struct Found<'k> {
    job: Val<'k, ty::U32>,
    first: Val<'k, ty::U32>,
    tiles: Val<'k, ty::U32>,
}

impl<'k> Tickets<'k> {
    /// Declares the ring, whose slots `readers` warps or threads read.
    pub(crate) fn new(
        b: &'k KernelBuilder,
        tile: Tile,
        readers: u32,
        [queue, ring]: [Val<'k, ty::U64>; 2],
    ) -> Self {
        let barriers = |count| {
            let request = SmemRequest::whole(count * MBARRIER_BYTES, MBARRIER_BYTES);
            move |name: &str| b.region(name, RegionKind::Mbarrier, request)
        };
        let words = SmemRequest::whole(SLOTS * WORDS * 4, 16);
        Tickets {
            b,
            tile,
            words: b.region("tiles", RegionKind::Data(Element::S32), words),
            full: barriers(SLOTS)("tiles_full"),
            empty: barriers(SLOTS)("tiles_empty"),
            asked: barriers(1)("asked"),
            readers,
            queue,
            ring,
        }
    }

    /// Initialises the barriers: one thread.
    pub(crate) fn init(&self) {
        let b = self.b;
        for slot in 0..SLOTS {
            b.smem_address(self.full).offset(slot * MBARRIER_BYTES).mbarrier_init(1);
            b.smem_address(self.empty).offset(slot * MBARRIER_BYTES).mbarrier_init(self.readers);
        }
        b.smem_address(self.asked).mbarrier_init(1);
    }

    /// The first slot.
    pub(crate) fn start(&self) -> TileCursor<'k> {
        TileCursor { slot: self.b.constant(0), phase: self.b.constant(0) }
    }

    fn next(&self, cursor: TileCursor<'k>) -> TileCursor<'k> {
        let next = cursor.slot + 1;
        let wraps = next.eq(SLOTS);
        TileCursor {
            slot: wraps.select(0, next),
            phase: wraps.select(cursor.phase ^ 1, cursor.phase),
        }
    }

    fn barrier(&self, region: RegionId, cursor: TileCursor<'k>) -> Val<'k, ty::Smem> {
        self.b.smem_address(region).offset(cursor.slot * MBARRIER_BYTES)
    }

    /// The next tile: all lanes of a warp, or one thread where `alone`.
    pub(crate) fn take(
        &self,
        cursor: TileCursor<'k>,
        alone: bool,
    ) -> (JobTile<'k>, TileCursor<'k>) {
        let b = self.b;
        self.barrier(self.full, cursor).mbarrier_wait(cursor.phase);
        let at = b.smem_address(self.words).offset(cursor.slot * (WORDS * 4));
        let quads = [0, 16, 32].map(|bytes| b.load_shared::<ty::U32, 4>(at.offset(bytes)));
        let words: Vec<_> = quads.concat();
        let empty = self.barrier(self.empty, cursor);
        if alone {
            empty.mbarrier_arrive();
        } else {
            b.warp_sync();
            b.if_(b.special(Special::Lane).eq(0), || empty.mbarrier_arrive());
        }
        // Every warp of a warpgroup reads the same words.
        let word = |at: usize| if alone { words[at] } else { words[at].warpgroup_uniform() };
        let tile = JobTile {
            origin: TileOrigin { m: word(0), n: word(1), batch: word(2) },
            k_tiles: word(3),
            record: word(4).widen() | (word(5).widen() << 32),
            factors: [word(6), word(7)],
            steps: word(8),
            job: word(9),
        };
        (tile, self.next(cursor))
    }

    /// Asks for the tile behind the next one: the producer, once for each tile that it takes.
    pub(crate) fn ask(&self) {
        self.b.smem_address(self.asked).mbarrier_arrive();
    }

    /// Draws tickets and hands tiles on until no more will come. One thread.
    pub(crate) fn draw(&self) {
        let b = self.b;
        let none = Found { job: b.constant(JOB_MASK), first: b.constant(0), tiles: b.constant(0) };
        let goes_on = b.constant(true);
        b.while_(
            (self.start(), b.constant::<ty::U32>(0), none, goes_on),
            |(.., goes_on)| goes_on,
            |(cursor, phase, last, _)| {
                let at = self.queue.byte_offset(queue::TICKET_AT);
                let ticket = b.atomic(AtomicOp::Add, at, 1, Order::Relaxed, Scope::Gpu);
                let published = self.wait_for(ticket);
                let there = self.is_there(published, ticket);
                let found = b.if_else(
                    there,
                    || {
                        let found = self.find(ticket, published, last);
                        self.wait_for_others(found);
                        found
                    },
                    || last,
                );
                self.barrier(self.empty, cursor).mbarrier_wait(cursor.phase ^ 1);
                b.if_else(
                    there,
                    || self.hand_on(cursor, found, ticket),
                    || self.hand_end_on(cursor),
                );
                self.barrier(self.full, cursor).mbarrier_arrive();
                b.if_(there, || b.smem_address(self.asked).mbarrier_wait(phase));
                (self.next(cursor), phase ^ 1, found, there)
            },
        );
        self.leave();
    }

    fn published(&self) -> Val<'k, ty::U64> {
        let at = self.queue.byte_offset(queue::PUBLISHED_AT);
        self.b.load_ordered(at, Order::Acquire, Scope::Gpu)
    }

    /// Whether a tile of that number is among what was published, and is not given up.
    fn is_there(&self, published: Val<'k, ty::U64>, ticket: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        // Numbers wrap: those to come are less than half of all ahead.
        let ahead = published.low_word() - ticket - 1;
        ahead.lt(1 << 31) & published.ne(GIVEN_UP)
    }

    /// Waits until the tile is published, or none will be any more.
    fn wait_for(&self, ticket: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        let b = self.b;
        b.while_(
            self.published(),
            |published| !self.is_there(published, ticket) & published.lt(LAST),
            |_| {
                b.sleep(REST);
                self.published()
            },
        )
    }

    fn entry(&self, job: Val<'k, ty::U32>) -> (Val<'k, ty::U32>, Val<'k, ty::U32>) {
        let at = self.queue.byte_offset(job % RING_SLOTS * 8 + queue::DIRECTORY_AT);
        let entry = self.b.load_ordered::<ty::U64>(at, Order::Relaxed, Scope::Gpu);
        (entry.low_word(), (entry >> 32).low_word())
    }

    /// Whether a published job is the tile's or before it: so is one whose slot has a later job's already, since the tile's own is not
    /// done.
    fn begins_by(&self, job: Val<'k, ty::U32>, ticket: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        let (first, there) = self.entry(job);
        there.ne(job) | (ticket - first).lt(1 << 31)
    }

    /// The job of a published tile: that of the last one, or else found among those in the ring, from the latest on.
    fn find(
        &self,
        ticket: Val<'k, ty::U32>,
        published: Val<'k, ty::U64>,
        last: Found<'k>,
    ) -> Found<'k> {
        let b = self.b;
        let same = (ticket - last.first).lt(last.tiles);
        b.if_else(
            same,
            || last,
            || {
                let latest = ((published >> 32).low_word() - 1) & JOB_MASK;
                // Steps back that double, until it begins by then.
                let (back, step) = b.while_(
                    (b.constant::<ty::U32>(0), b.constant::<ty::U32>(1)),
                    |(back, _)| !self.begins_by((latest - back) & JOB_MASK, ticket),
                    |(back, step)| ((back + step).min(RING_SLOTS - 1), step * 2),
                );
                // It is at most `back` before the latest, and was more than `late`.
                let late = (back - step / 2 + 1).min(back);
                let (back, _) = b.while_(
                    (back, back.eq(0).select(0, late)),
                    |(back, late)| late.lt(back),
                    |(back, late)| {
                        let middle = (back + late) / 2;
                        let begins = self.begins_by((latest - middle) & JOB_MASK, ticket);
                        (begins.select(middle, back), begins.select(late, middle + 1))
                    },
                );
                let job = (latest - back) & JOB_MASK;
                let (first, _) = self.entry(job);
                let [tiles] = b.load_global(self.record(job).byte_offset(Word::Tiles.at()));
                Found { job, first, tiles }
            },
        )
    }

    fn record(&self, job: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.ring.byte_offset(job % RING_SLOTS * RECORD_BYTES)
    }

    /// Waits until the jobs are done that this one comes after.
    fn wait_for_others(&self, found: Found<'k>) {
        let b = self.b;
        let pairs = self.record(found.job).byte_offset(Word::After.at());
        for at in 0..MOST_AFTER {
            let [completion, value] = b.load_global::<ty::U32, 2>(pairs.byte_offset(at * 8));
            b.if_(completion.ne(0), || {
                let word = self.queue.byte_offset((completion - 1) * 4 + queue::COMPLETIONS_AT);
                let is_done = |said: Val<'k, ty::U32>| (said - value).lt(1 << 31);
                b.while_(
                    (b.load_acquire(word), self.published()),
                    |(said, published)| !is_done(said) & published.ne(GIVEN_UP),
                    |_| {
                        b.sleep(REST);
                        (b.load_acquire(word), self.published())
                    },
                );
            });
        }
        // What those stored by TMA is what this one loads by TMA.
        b.fence_proxy_async_global();
    }

    fn hand_on(&self, cursor: TileCursor<'k>, found: Found<'k>, ticket: Val<'k, ty::U32>) {
        let b = self.b;
        let record = self.record(found.job);
        let word = |word: Word, offset: u32| -> Val<'k, ty::U32> {
            let [value] = b.load_global(record.byte_offset(word.at() + offset * 4));
            value
        };
        let divisor = |at: Word| Divisor::of([word(at, 0), word(at, 1), word(at, 2)]);
        let (zero, one) = (b.constant(0), Divisor::of([b.constant(1); 3]));
        let walk = Walk {
            units: zero,
            of_one: divisor(Word::OfOne),
            of_group: divisor(Word::OfGroup),
            full_groups: word(Word::FullGroups, 0),
            raster_rows: divisor(Word::RasterRows),
            last_rows: divisor(Word::LastRows),
            k_tiles: one,
            split: SplitArguments {
                tiles: zero,
                workers: zero,
                share: one,
                larger_share: one,
                larger: zero,
                splits: zero,
                abreast: one,
            },
        };
        let scheduler = Scheduler::new(b, self.tile, Cluster { m: 1, n: 1 }, walk);
        let origin = scheduler.origin(ticket - found.first);
        let at = b.smem_address(self.words).offset(cursor.slot * (WORDS * 4));
        let (low, high) = (record.low_word(), (record >> 32).low_word());
        let quads = [
            [origin.m, origin.n, origin.batch, word(Word::KTiles, 0)],
            [low, high, word(Word::Alpha, 0), word(Word::Beta, 0)],
            [word(Word::Steps, 0), found.job, zero, zero],
        ];
        for (quad, offset) in quads.into_iter().zip([0, 16, 32]) {
            b.store_shared(at.offset(offset), quad);
        }
    }

    fn hand_end_on(&self, cursor: TileCursor<'k>) {
        let b = self.b;
        let at = b.smem_address(self.words).offset(cursor.slot * (WORDS * 4));
        for offset in [0, 16, 32] {
            b.store_shared(at.offset(offset), [b.constant::<ty::U32>(0); 4]);
        }
    }

    /// The last CTA to leave makes the queue ready for the next launch: tickets go on with the first tile that was not published.
    fn leave(&self) {
        let b = self.b;
        let others = b.special(Special::CtaCount) - 1;
        let at = self.queue.byte_offset(queue::LEFT_AT);
        let left = b.atomic(AtomicOp::Inc, at, others, Order::AcquireRelease, Scope::Gpu);
        b.if_(left.eq(others), || {
            let published = self.published();
            let tickets = self.queue.byte_offset(queue::TICKET_AT);
            b.store_ordered(tickets, published.low_word(), Order::Relaxed, Scope::Gpu);
            let at = self.queue.byte_offset(queue::PUBLISHED_AT);
            b.store_ordered(at, published & (LAST - 1), Order::Relaxed, Scope::Gpu);
        });
    }
}

impl<'k> Carried<'k> for TileCursor<'k> {
    type Static = ();

    fn split(self, values: &mut Vec<ValueId>) {
        values.extend([self.slot.id(), self.phase.id()]);
    }

    fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        let [slot, phase] = std::array::from_fn(|_| Val::join(b, values, Type::U32));
        TileCursor { slot, phase }
    }
}

impl<'k> Carried<'k> for Found<'k> {
    type Static = ();

    fn split(self, values: &mut Vec<ValueId>) {
        values.extend([self.job, self.first, self.tiles].map(Val::id));
    }

    fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        let [job, first, tiles] = std::array::from_fn(|_| Val::join(b, values, Type::U32));
        Found { job, first, tiles }
    }
}
