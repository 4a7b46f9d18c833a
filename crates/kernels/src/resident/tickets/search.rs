//! The search for the job of a published tile, among the jobs in the ring.

use pgemm_ir::{Order, Scope, Special, Val, ty};

use super::{Found, Published, Seen, Tickets};
use crate::queue::layout::{
    JOB_MASK, MOST_AFTER, RECORD_BYTES, RING_SLOTS, SLOT_BYTES, Slot, WORDS_AT, queue,
};
use crate::resident::leader;
use crate::resident::relay::GIVEN_UP;

/// Looks at another job's completion between two at whether tiles are given up.
const LOOKS_BETWEEN: u32 = 256;

/// Numbers of records as [`queue::LATEST_AT`] names them, and the bits of jobs' numbers there.
const RECORDS_NAMED: u32 = 1 << (queue::JOB_BIT - queue::RECORD_BIT);
const JOB_NAMED: u64 = (1 << (64 - queue::JOB_BIT)) - 1;

impl<'k> Tickets<'k> {
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
    pub(super) fn find(
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
}
