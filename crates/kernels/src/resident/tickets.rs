//! Tiles of jobs as a CTA takes them: one warp draws tickets, the numbers of tiles over all jobs, and finds their jobs; what a tile's
//! other warps need to know goes to them through a small ring in shared memory.

use pgemm_ir::{
    AtomicOp, Carried, Element, KernelBuilder, Order, RegionId, RegionKind, Scope, SmemRequest,
    Special, Type, Val, ValueId, ty,
};

use super::layout::{
    JOB_MASK, MOST_AFTER, RECORD_BYTES, RECORD_WORDS, RING_SLOTS, SLOT_BYTES, Slot, WORDS_AT, Word,
    queue,
};
use super::leader;
use super::relay::{GIVEN_UP, LAST};
use crate::divisor::Divisor;
use crate::epilogue::MOST_PARAMETERS;
use crate::problem::Vector;
use crate::source::{Raster, TileOrigin};
use crate::spec::{Spec, Tile};

/// Tiles that a CTA knows of at once.
const SLOTS: u32 = 2;

/// Bytes of a tile: its record's words, and 8 words of its own.
const TILE_BYTES: u32 = RECORD_WORDS * 4 + 32;

const MBARRIER_BYTES: u32 = 8;

/// Looks at another job's completion between two at whether tiles are given up.
const LOOKS_BETWEEN: u32 = 256;

/// Numbers of records as [`queue::LATEST_AT`] names them, and the bits of jobs' numbers there.
const RECORDS_NAMED: u32 = 1 << (queue::JOB_BIT - queue::RECORD_BIT);
const JOB_NAMED: u64 = (1 << (64 - queue::JOB_BIT)) - 1;

/// Bytes of shared memory that they take.
pub(crate) const SMEM_BYTES: u32 = SLOTS * (TILE_BYTES + 2 * MBARRIER_BYTES) + 2 * MBARRIER_BYTES;

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
    /// Whether jobs have a bias.
    has_bias: bool,
    /// How many parameters the activation has.
    parameters: usize,
    queue: Val<'k, ty::U64>,
    records: Val<'k, ty::U64>,
}

/// Where a warp stands in the ring of tiles.
#[derive(Clone, Copy)]
pub(crate) struct TileCursor<'k> {
    slot: Val<'k, ty::U32>,
    phase: Val<'k, ty::U32>,
}

/// Who reads the tiles of a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// One thread: the loader.
    Thread,
    /// All lanes of a warp.
    Warp,
    /// All warps of a consumer warpgroup, which read the same words.
    Warpgroup,
}

/// A tile of a job.
#[derive(Clone, Copy)]
pub(crate) struct JobTile<'k> {
    /// Its place in D.
    pub(crate) origin: TileOrigin<'k>,
    /// Its stages; 0 where there is none any more.
    pub(crate) k_tiles: Val<'k, ty::U32>,
    /// Number of the job's record.
    pub(crate) record: Val<'k, ty::U32>,
    /// The record's stamp.
    pub(crate) stamp: Val<'k, ty::U32>,
    /// Bits of alpha and beta.
    pub(crate) factors: [Val<'k, ty::U32>; 2],
    /// Bits of the activation's parameters, for who stores, if it has any.
    pub(crate) parameters: [Option<Val<'k, ty::U32>>; MOST_PARAMETERS],
    /// Where the bias is, for who stores, if jobs have one.
    pub(crate) bias: Option<Vector<'k>>,
    /// Bits 0 to 3: whether A, B, C and D step from product to product.
    pub(crate) steps: Val<'k, ty::U32>,
    /// Number of the job.
    pub(crate) job: Val<'k, ty::U32>,
}

/// A job that was found, in all lanes, and of its record's words each lane one.
#[derive(Clone, Copy)]
struct Found<'k> {
    job: Val<'k, ty::U32>,
    first: Val<'k, ty::U32>,
    tiles: Val<'k, ty::U32>,
    record: Val<'k, ty::U32>,
    word: Val<'k, ty::U32>,
}

/// What the relay has published.
#[derive(Clone, Copy)]
struct Published<'k> {
    /// Tiles, jobs, and whether there will be more.
    word: Val<'k, ty::U64>,
    /// What is said beside it of a job, the last of them or another.
    beside: Val<'k, ty::U64>,
}

/// What a slot of the ring says, as far as it is looked at while searching.
#[derive(Clone, Copy)]
struct Seen<'k> {
    first: Val<'k, ty::U32>,
    job: Val<'k, ty::U32>,
    record: Val<'k, ty::U32>,
    tiles: Val<'k, ty::U32>,
}

impl<'k> Tickets<'k> {
    /// Declares the ring, whose slots `readers` warps or threads read.
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
        let words = SmemRequest::whole(SLOTS * TILE_BYTES, 16);
        Tickets {
            b,
            tile: spec.tile,
            words: b.region("tiles", RegionKind::Data(Element::S32), words),
            full: barriers(SLOTS, "tiles_full"),
            empty: barriers(SLOTS, "tiles_empty"),
            asked: barriers(1, "asked"),
            readers,
            has_bias: spec.epilogue.bias().is_some(),
            parameters: spec.epilogue.parameters().len(),
            queue,
            records,
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
                address: all(low).widen() | (all(high).widen() << 32),
                length: all(length),
            }),
            steps: all(steps),
            job: all(job),
        };
        (tile, self.next(cursor))
    }

    /// Asks for the tile behind the next one: the producer, once for each tile that it takes.
    pub(crate) fn ask(&self) {
        self.b.smem_address(self.asked).mbarrier_arrive();
    }

    /// Lane 0 only.
    fn first(&self, then: impl FnOnce()) {
        self.b.if_(self.b.special(Special::Lane).eq(0), then);
    }

    /// Draws tickets and hands tiles on until no more will come. One warp.
    pub(crate) fn draw(&self) {
        let b = self.b;
        let zero = || b.constant::<ty::U32>(0);
        let none =
            Found { job: zero(), first: zero(), tiles: zero(), record: zero(), word: zero() };
        b.while_(
            (self.start(), zero(), none, b.constant(true)),
            |(.., goes_on)| goes_on,
            |(cursor, phase, last, _)| {
                let ticket = self.ticket();
                let published = self.wait_for(ticket);
                let there = self.is_there(published, ticket);
                let nothing = || (last, b.constant(false));
                let next = || {
                    let same = (ticket - last.first).lt(last.tiles);
                    b.if_else(same, || (last, there), || self.find(ticket, published))
                };
                let (found, there) = b.if_else(there, next, nothing);
                self.barrier(self.empty, cursor).mbarrier_wait(cursor.phase ^ 1);
                self.hand_on(cursor, found, ticket, there);
                b.if_(there, || b.smem_address(self.asked).mbarrier_wait(phase));
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

    /// Whether a tile of that number is among what was published, and is not given up.
    fn is_there(&self, published: Published<'k>, ticket: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        // Numbers wrap: those to come are less than half of all ahead.
        let ahead = published.word.low_word() - ticket - 1;
        ahead.lt(1 << 31) & published.word.ne(GIVEN_UP)
    }

    /// Waits until the tile is published, or none will be any more.
    fn wait_for(&self, ticket: Val<'k, ty::U32>) -> Published<'k> {
        self.b.while_(
            self.published(),
            |published| !self.is_there(published, ticket) & published.word.lt(LAST),
            |_| self.published(),
        )
    }

    /// The last job that was published.
    fn latest(&self, Published { word, beside }: Published<'k>) -> Seen<'k> {
        let job = ((word >> 32).low_word() - 1) & JOB_MASK;
        let first = beside.low_word();
        let record = (beside >> queue::RECORD_BIT).low_word();
        let own =
            Seen { first, job, record: record % RECORDS_NAMED, tiles: word.low_word() - first };
        let is_own = (beside >> queue::JOB_BIT).eq(job.widen() & JOB_NAMED);
        self.b.if_else(is_own, || own, || self.seen(job))
    }

    fn slot(&self, job: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.queue.byte_offset(job % RING_SLOTS * SLOT_BYTES + queue::SLOTS_AT)
    }

    fn seen(&self, job: Val<'k, ty::U32>) -> Seen<'k> {
        let [name, what] = leader::load_u64s(self.b, self.slot(job), Order::Relaxed, Scope::Gpu);
        Seen {
            first: name.low_word(),
            job: (name >> 32).low_word(),
            record: what.low_word(),
            tiles: (what >> 32).low_word(),
        }
    }

    /// Whether a published job is the tile's or before it: so is one whose slot has a later job's already, since the tile's own is not
    /// done.
    fn begins_by(
        &self,
        seen: Seen<'k>,
        job: Val<'k, ty::U32>,
        ticket: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Bool> {
        seen.job.ne(job) | (ticket - seen.first).lt(1 << 31)
    }

    /// The job of a published tile, found among those in the ring from the latest on, and whether it begins: the jobs that it comes after
    /// are done then, else tiles are given up.
    fn find(
        &self,
        ticket: Val<'k, ty::U32>,
        published: Published<'k>,
    ) -> (Found<'k>, Val<'k, ty::Bool>) {
        let b = self.b;
        let latest = ((published.word >> 32).low_word() - 1) & JOB_MASK;
        let seen = self.latest(published);
        let (job, seen) = b.if_else(
            self.begins_by(seen, latest, ticket),
            || (latest, seen),
            || {
                // Where jobs have as many tiles as the latest, it is this one.
                let back = (seen.first - ticket + (seen.tiles - 1)) / seen.tiles;
                let guess = (latest - back.min(RING_SLOTS - 1)) & JOB_MASK;
                let guessed = self.seen(guess);
                let hit = guessed.job.eq(guess) & (ticket - guessed.first).lt(guessed.tiles);
                b.if_else(hit, || (guess, guessed), || self.search(ticket, latest))
            },
        );
        let word = self.word(seen.record);
        let begins = self.wait_for_others(job);
        (Found { job, first: seen.first, tiles: seen.tiles, record: seen.record, word }, begins)
    }

    /// The same where it is not the latest.
    fn search(
        &self,
        ticket: Val<'k, ty::U32>,
        latest: Val<'k, ty::U32>,
    ) -> (Val<'k, ty::U32>, Seen<'k>) {
        let b = self.b;
        let begins = |back: Val<'k, ty::U32>| {
            let job = (latest - back) & JOB_MASK;
            self.begins_by(self.seen(job), job, ticket)
        };
        // Steps back that double, until it begins by then.
        let (back, step) = b.while_(
            (b.constant::<ty::U32>(1), b.constant::<ty::U32>(2)),
            |(back, _)| !begins(back),
            |(back, step)| ((back + step).min(RING_SLOTS - 1), step * 2),
        );
        // It is at most `back` before the latest, and more than what `back` was before.
        let late = back - step / 2 + 1;
        let (back, _) = b.while_(
            (back, late),
            |(back, late)| late.lt(back),
            |(back, late)| {
                let middle = (back + late) / 2;
                let begins = begins(middle);
                (begins.select(middle, back), begins.select(late, middle + 1))
            },
        );
        let job = (latest - back) & JOB_MASK;
        (job, self.seen(job))
    }

    /// Each lane's word of a record.
    fn word(&self, record: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        let b = self.b;
        let at = b.special(Special::Lane) * 4 + WORDS_AT;
        let [word] = b.load_global(self.records.byte_offset(record * RECORD_BYTES + at));
        word
    }

    /// Waits until the jobs are done that this one comes after, or tiles are given up; gives whether they are done.
    fn wait_for_others(&self, job: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        let b = self.b;
        let at = self.slot(job).byte_offset(Slot::After as u32 * 4);
        let words = b.load_global::<ty::U32, 4>(at);
        let mut done = b.constant(true);
        for pair in words.chunks(2).take(MOST_AFTER as usize) {
            let (completion, value) = (pair[0].warp_uniform(), pair[1].warp_uniform());
            let wait = || self.wait_for_other(completion - 1, value);
            done = done & b.if_else(completion.ne(0), wait, || b.constant(true));
        }
        done
    }

    /// The same for one of them, by its completion word.
    fn wait_for_other(
        &self,
        completion: Val<'k, ty::U32>,
        value: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Bool> {
        let b = self.b;
        let word = self.queue.byte_offset(completion * 4 + queue::COMPLETIONS_AT);
        let waits = || {
            let [said] = leader::load(b, word, Order::Acquire, Scope::Gpu);
            !(said - value).lt(1 << 31)
        };
        let (waits, ..) = b.while_(
            (waits(), b.constant(false), b.constant::<ty::U32>(1)),
            |(waits, given_up, _)| waits & !given_up,
            |(_, _, looks)| {
                // Now and then whether tiles are given up.
                let given_up = b.if_else(
                    (looks % LOOKS_BETWEEN).eq(0),
                    || self.published().word.eq(GIVEN_UP),
                    || b.constant(false),
                );
                (waits(), given_up, looks + 1)
            },
        );
        // What that one stored by TMA is what this one loads by TMA.
        b.fence_proxy_async_global();
        !waits
    }

    /// Hands a tile on, or that there is none.
    fn hand_on(
        &self,
        cursor: TileCursor<'k>,
        found: Found<'k>,
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

    /// The last CTA to leave makes the queue ready for the next launch: tickets go on with the first tile that was not published.
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
                // A launch behind an abort finds that all is given up.
                b.if_(published.ne(GIVEN_UP), || {
                    let at = self.queue.byte_offset(queue::PUBLISHED_AT);
                    b.store_ordered(at, published & (LAST - 1), Order::Relaxed, Scope::Gpu);
                });
            });
        });
    }
}

/// Values that a struct is made of. What they are joined with is not looked at: their types are the fields'.
macro_rules! carried {
    ($name:ident { $($field:ident),* }) => {
        impl<'k> Carried<'k> for $name<'k> {
            type Static = ();

            fn split(self, values: &mut Vec<ValueId>) {
                values.extend([$(self.$field.id()),*]);
            }

            fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
                $(let $field = Val::join(b, values, Type::U32);)*
                $name { $($field),* }
            }
        }
    };
}

carried!(Published { word, beside });
carried!(TileCursor { slot, phase });
carried!(Found { job, first, tiles, record, word });
carried!(Seen { first, job, record, tiles });
