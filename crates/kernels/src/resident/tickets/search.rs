//! The search for the job of a published tile among the jobs in the ring. It begins with the last
//! job that was published, goes on with a guess, and falls back to a binary search.

use pgemm_ir::{Order, Scope, Special, Val, ty};

use super::{FoundJob, Published, SlotEntry, Tickets};
use crate::queue::layout::{
    JOB_MASK, MOST_AFTER, RECORD_BYTES, RING_SLOTS, SLOT_BYTES, Slot, WORDS_AT, queue,
};
use crate::resident::leader;
use crate::resident::relay::GIVEN_UP;

/// How often the completion of another job is polled between two checks of whether tiles have been
/// given up.
const LOOKS_BETWEEN: u32 = 256;

/// The range of record numbers in [`queue::LATEST_AT`], and the mask of the job number's bits
/// there.
const RECORDS_NAMED: u32 = 1 << (queue::JOB_BIT - queue::RECORD_BIT);
const JOB_NAMED: u64 = (1 << (64 - queue::JOB_BIT)) - 1;

impl<'k> Tickets<'k> {
    /// The last job that was published.
    fn latest(&self, Published { word, beside }: Published<'k>) -> SlotEntry<'k> {
        let job = ((word >> 32).low_word() - 1) & JOB_MASK;
        let first = beside.low_word();
        let record = (beside >> queue::RECORD_BIT).low_word();
        let own = SlotEntry {
            first,
            job,
            record: record % RECORDS_NAMED,
            tiles: word.low_word() - first,
        };
        let is_own = (beside >> queue::JOB_BIT).eq(job.to_u64() & JOB_NAMED);
        self.b.if_else(is_own, || own, || self.entry(job))
    }

    fn slot(&self, job: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.queue.byte_offset(job % RING_SLOTS * SLOT_BYTES + queue::SLOTS_AT)
    }

    fn entry(&self, job: Val<'k, ty::U32>) -> SlotEntry<'k> {
        let [name, what] = leader::load_u64s(self.b, self.slot(job), Order::Relaxed, Scope::Gpu);
        SlotEntry {
            first: name.low_word(),
            job: (name >> 32).low_word(),
            record: what.low_word(),
            tiles: (what >> 32).low_word(),
        }
    }

    /// Whether the first tile of a published job is the ticket's tile or an earlier one. The answer
    /// is also correct if a later job has reused the slot: the job of the tile is not done, so the
    /// job whose slot was reused is an earlier one.
    fn begins_by(
        &self,
        entry: SlotEntry<'k>,
        job: Val<'k, ty::U32>,
        ticket: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Bool> {
        entry.job.ne(job) | (ticket - entry.first).lt(1 << 31)
    }

    /// The job of a published tile, and whether the job may begin. It may once the jobs that it
    /// depends on are done. It may not if tiles were given up before that.
    pub(super) fn find(
        &self,
        ticket: Val<'k, ty::U32>,
        published: Published<'k>,
    ) -> (FoundJob<'k>, Val<'k, ty::Bool>) {
        let b = self.b;
        let latest = ((published.word >> 32).low_word() - 1) & JOB_MASK;
        let entry = self.latest(published);
        let (job, entry) = b.if_else(
            self.begins_by(entry, latest, ticket),
            || (latest, entry),
            || {
                // The guess is right if all jobs have as many tiles as the latest one.
                let back = (entry.first - ticket + (entry.tiles - 1)) / entry.tiles;
                let guess = (latest - back.min(RING_SLOTS - 1)) & JOB_MASK;
                let guessed_entry = self.entry(guess);
                let hit = guessed_entry.job.eq(guess)
                    & (ticket - guessed_entry.first).lt(guessed_entry.tiles);
                b.if_else(hit, || (guess, guessed_entry), || self.search(ticket, latest))
            },
        );
        let word = self.word(entry.record);
        let begins = self.wait_for_dependencies(job);
        (
            FoundJob { job, first: entry.first, tiles: entry.tiles, record: entry.record, word },
            begins,
        )
    }

    /// The job of a published tile, by binary search among the jobs before the latest.
    fn search(
        &self,
        ticket: Val<'k, ty::U32>,
        latest: Val<'k, ty::U32>,
    ) -> (Val<'k, ty::U32>, SlotEntry<'k>) {
        let b = self.b;
        let begins = |back: Val<'k, ty::U32>| {
            let job = (latest - back) & JOB_MASK;
            self.begins_by(self.entry(job), job, ticket)
        };
        // Steps back of doubling length, up to a job that begins at or before the tile.
        let (back, step) = b.while_(
            (b.constant::<ty::U32>(1), b.constant::<ty::U32>(2)),
            |(back, _)| !begins(back),
            |(back, step)| ((back + step).min(RING_SLOTS - 1), step * 2),
        );
        // The job lies between this step and the step before.
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
        (job, self.entry(job))
    }

    /// Each lane's word of a record.
    fn word(&self, record: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        let b = self.b;
        let at = b.special(Special::Lane) * 4 + WORDS_AT;
        let [word] = b.load_global(self.records.byte_offset(record * RECORD_BYTES + at));
        word
    }

    /// Waits until the jobs that this one depends on are done, or until tiles are given up. Returns
    /// whether they are done.
    fn wait_for_dependencies(&self, job: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        let b = self.b;
        let at = self.slot(job).byte_offset(Slot::After as u32 * 4);
        let words = b.load_global::<ty::U32, 4>(at);
        let mut done = b.constant(true);
        for pair in words.chunks(2).take(MOST_AFTER as usize) {
            let (completion, value) = (pair[0].warp_uniform(), pair[1].warp_uniform());
            let wait = || self.wait_for_dependency(completion - 1, value);
            done = done & b.if_else(completion.ne(0), wait, || b.constant(true));
        }
        done
    }

    /// Waits for one job, named by its completion word and the value that it is to have.
    fn wait_for_dependency(
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
            |(_, _, polls)| {
                // Now and then the loop checks whether tiles have been given up.
                let given_up = b.if_else(
                    (polls % LOOKS_BETWEEN).eq(0),
                    || self.published().word.eq(GIVEN_UP),
                    || b.constant(false),
                );
                (waits(), given_up, polls + 1)
            },
        );
        // The earlier job stored by TMA what this job loads by TMA.
        b.fence_proxy_async_global();
        !waits
    }
}
