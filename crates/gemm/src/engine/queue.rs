//! The host's end of the queue: the words that the kernel reads and writes, and the lanes that jobs
//! are submitted to.

use std::iter::Peekable;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use pgemm_kernels::resident::layout::{ENTRY_BYTES, LANE_SLOTS, LANES, doorbell};
use pgemm_kernels::resident::record::{Completion, QueueMemory, entry};

use super::records::JobRecord;
use super::words::SharedWords;
use crate::error::{EngineError, Result};

/// Offsets of the host's words, in bytes.
const STATE_AT: usize = 64;
pub(super) const COMPLETIONS_AT: usize = 4096;
pub(super) const COMPLETIONS: usize = (LANES * LANE_SLOTS) as usize;
const ENTRIES_AT: usize = (COMPLETIONS_AT + COMPLETIONS * 4).next_multiple_of(4096);

/// Bytes of the words that host and kernel share, which are zeros at first.
pub(super) const SHARED_BYTES: usize = ENTRIES_AT + COMPLETIONS * ENTRY_BYTES as usize;

const _: () = assert!(doorbell::BYTES as usize <= STATE_AT);

/// The addresses of a queue, as the kernel takes them: the words that it shares with the host begin
/// at `shared`, those of the device at `queue`.
pub(super) fn addresses(shared: u64, queue: u64, records: u64) -> QueueMemory {
    QueueMemory {
        queue,
        records,
        doorbells: shared,
        state: shared + STATE_AT as u64,
        completions: shared + COMPLETIONS_AT as u64,
        entries: shared + ENTRIES_AT as u64,
    }
}

/// A job of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobId {
    pub(super) lane: u32,
    /// Its number there, which wraps.
    pub(super) number: u32,
}

impl JobId {
    /// What says that it is done.
    pub(super) fn completion(self) -> Completion {
        Completion::of(self.lane, self.number)
    }
}

/// The host's end of a queue.
pub(super) struct Queue<M> {
    words: M,
    lanes: [Mutex<Lane>; LANES as usize],
}

/// The submissions of a lane.
#[derive(Default)]
struct Lane {
    /// The next job.
    next: u32,
    /// Tiles of all jobs before, which wraps.
    tiles: u32,
    /// For the host's lane: the rest of its doorbell, with record and tiles of the last job and a
    /// command.
    hint: [u32; 2],
    command: u32,
    /// Jobs that were given up, at the engine's end.
    given_up: Vec<u32>,
}

impl<M: SharedWords> Queue<M> {
    /// An empty one.
    pub(super) fn new(words: M) -> Self {
        Queue { words, lanes: Default::default() }
    }

    /// The words that it shares with the kernel.
    pub(super) fn words(&self) -> &M {
        &self.words
    }

    /// Writes entries of jobs, with the jobs that they come after, to the next free slots of a
    /// lane, and rings the doorbell once. `submitted` is called with each job's number.
    ///
    /// # Errors
    /// A job comes after too many others. Nothing is submitted then.
    pub(super) fn submit<'j>(
        &self,
        lane: u32,
        jobs: &mut Peekable<impl Iterator<Item = &'j JobRecord>>,
        after: &[Completion],
        mut submitted: impl FnMut(u32),
    ) -> Result<(), EngineError> {
        // Checked before anything is written.
        entry(0, 0, 0, after)?;
        let mut held = self.words.lock(&self.lanes[lane as usize]);
        let mut last = None;
        while self.is_free(lane, held.next)
            && let Some(job) = jobs.next()
        {
            let own = Completion::of(lane, held.next);
            let to_end = held.tiles.wrapping_add(job.tiles());
            self.write(own.word, &entry(job.number(), job.tiles(), to_end, after)?);
            job.submitted(own);
            submitted(held.next);
            held.next = held.next.wrapping_add(1);
            held.tiles = to_end;
            last = Some([job.number(), job.tiles()]);
        }
        if let Some(last) = last {
            held.hint = if after.is_empty() { last } else { [doorbell::LOOK, 0] };
            self.ring(&held);
        }
        drop(held);
        // The kernel writes its state first and then looks at the doorbells.
        self.words.fence(Ordering::SeqCst);
        Ok(())
    }

    /// Writes the entry of a job to the next slot of a lane, and enqueues the doorbell on the
    /// stream. Returns the job's number, or `None` if the slot's previous job is not done yet.
    pub(super) fn submit_from(
        &self,
        lane: u32,
        job: &JobRecord,
        stream: M::Stream<'_>,
    ) -> Result<Option<u32>> {
        let mut held = self.words.lock(&self.lanes[lane as usize]);
        let number = held.next;
        if !self.is_free(lane, number) {
            return Ok(None);
        }
        let own = Completion::of(lane, number);
        let to_end = held.tiles.wrapping_add(job.tiles());
        let entry = entry(job.number(), job.tiles(), to_end, &[]).map_err(EngineError::from)?;
        self.write(own.word, &entry);
        // The job counts as submitted only after the stream has accepted the doorbell.
        self.words.fence(Ordering::Release);
        let next = number.wrapping_add(1);
        let at = doorbell::STREAMS_AT + (lane - 1) * 4;
        self.words.store_on(stream, at as usize, next)?;
        job.submitted(own);
        (held.next, held.tiles) = (next, to_end);
        Ok(Some(number))
    }

    /// Lets a stream wait until a job is done.
    pub(super) fn wait_on(&self, job: JobId, stream: M::Stream<'_>) -> Result<()> {
        let own = job.completion();
        self.words.wait_on(stream, completion_at(own.word), own.value)
    }

    /// The first job of a lane that is not done.
    pub(super) fn pending(&self, lane: u32) -> Option<u32> {
        self.pending_before(lane, self.submitted(lane)).next()
    }

    fn pending_before(&self, lane: u32, next: u32) -> impl Iterator<Item = u32> {
        // Earlier jobs no longer occupy slots. Numbers that were not yet assigned count as done.
        let jobs = (1..=LANE_SLOTS).rev().map(move |back| next.wrapping_sub(back));
        jobs.filter(move |job| !self.is_done(Completion::of(lane, *job)))
    }

    /// Abandons the jobs of a lane that are not done, after the kernel has left for good, so that
    /// waiting streams continue. Returns whether there were any.
    pub(super) fn give_up(&self, lane: u32) -> bool {
        let mut held = self.words.lock(&self.lanes[lane as usize]);
        let pending: Vec<_> = self.pending_before(lane, held.next).collect();
        held.given_up.extend(&pending);
        for job in &pending {
            let own = Completion::of(lane, *job);
            self.words.store(completion_at(own.word), own.value, Ordering::Release);
        }
        !pending.is_empty()
    }

    /// Whether a job was given up so.
    pub(super) fn was_given_up(&self, job: JobId) -> bool {
        self.words.lock(&self.lanes[job.lane as usize]).given_up.contains(&job.number)
    }

    /// Whether the previous job in the slot of this job is done.
    fn is_free(&self, lane: u32, job: u32) -> bool {
        let own = Completion::of(lane, job);
        let before = Completion { value: own.value.wrapping_sub(LANE_SLOTS), ..own };
        let said = self.words.load(completion_at(own.word), Ordering::Acquire);
        // In the first round no slot has a previous job.
        job < LANE_SLOTS && said == 0 || before.is_done(said)
    }

    /// Whether the word of a job says that it is done. Its results are then visible.
    pub(super) fn is_done(&self, job: Completion) -> bool {
        job.is_done(self.words.load(completion_at(job.word), Ordering::Acquire))
    }

    /// A counter that changes when jobs are done.
    pub(super) fn done(&self) -> u64 {
        let words = (0..COMPLETIONS).map(|word| completion_at(word as u32));
        words.map(|at| u64::from(self.words.load(at, Ordering::Relaxed))).sum()
    }

    /// The number of jobs submitted to a lane.
    pub(super) fn submitted(&self, lane: u32) -> u32 {
        self.words.lock(&self.lanes[lane as usize]).next
    }

    fn write(&self, slot: u32, entry: &[u32; ENTRY_BYTES as usize / 4]) {
        self.words.write(ENTRIES_AT + slot as usize * ENTRY_BYTES as usize, entry);
    }

    /// Whether the kernel of launch number `launches`, the latest known launch, has left the
    /// device.
    pub(super) fn has_left(&self, launches: u32) -> bool {
        says_left(self.words.load(STATE_AT, Ordering::SeqCst), launches)
    }

    /// Sends a command to the kernel.
    pub(super) fn control(&self, command: u32) {
        let mut held = self.words.lock(&self.lanes[0]);
        held.command = command;
        self.ring(&held);
    }

    /// The host's lane's doorbell.
    fn ring(&self, lane: &Lane) {
        let [record, tiles] = lane.hint;
        let hint = doorbell::hint(record, tiles, lane.next, lane.command);
        self.words.store(doorbell::HINT_AT as usize, hint, Ordering::Release);
        self.words.store(doorbell::HOST_AT as usize, lane.next, Ordering::Release);
    }
}

/// The place of the completion word with this number.
fn completion_at(word: u32) -> usize {
    COMPLETIONS_AT + word as usize * 4
}

/// Number of bits of a launch number.
const LAUNCH_BITS: u32 = 31;

/// The number of the launch after that one.
pub(super) fn launch_after(number: u32) -> u32 {
    number.wrapping_add(1) & (u32::MAX >> (32 - LAUNCH_BITS))
}

/// Whether the kernel's state says that this launch or a later one has left. A launch may end
/// before the launching thread has counted it.
fn says_left(state: u32, launches: u32) -> bool {
    let (number, runs) = (state >> 1, state & 1 == 1);
    let ahead = number.wrapping_sub(launches) & (u32::MAX >> (32 - LAUNCH_BITS));
    !runs && ahead < 1 << (LAUNCH_BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_nobody_knows_of_yet_can_have_left() {
        let last = u32::MAX >> 1;
        for (number, launches, left) in [
            (0, 0, true),
            (7, 7, true),
            (8, 7, true),
            (6, 7, false),
            (0, last, true),
            (last, 0, false),
        ] {
            assert_eq!(says_left(number << 1, launches), left, "{number} of {launches}");
            assert!(!says_left(number << 1 | 1, launches));
        }
        assert_eq!((launch_after(7), launch_after(last)), (8, 0));
    }
}
