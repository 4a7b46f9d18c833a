//! The host's end of the queue: memory that the kernel reads and writes, and the lanes that jobs
//! are submitted to.

use std::iter::Peekable;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgemm_kernels::resident::layout::{
    ENTRY_BYTES, LANE_SLOTS, LANES, RECORD_BYTES, RECORDS, doorbell, initial_queue, queue,
};
use pgemm_kernels::resident::record::{Completion, QueueMemory, entry};

use super::COPIES_BEFORE;
use super::job::Job;
use crate::driver::{Device, DeviceBuffer, Mailbox, Stream, StreamRef};
use crate::error::{EngineError, Result};

/// Offsets of the host's words, in bytes.
const STATE_AT: usize = 64;
const COMPLETIONS_AT: usize = 4096;
const COMPLETIONS: usize = (LANES * LANE_SLOTS) as usize;
const ENTRIES_AT: usize = (COMPLETIONS_AT + COMPLETIONS * 4).next_multiple_of(4096);
const MAILBOX_BYTES: usize = ENTRIES_AT + COMPLETIONS * ENTRY_BYTES as usize;

const _: () = assert!(doorbell::BYTES as usize <= STATE_AT);

/// The memory of a queue.
pub(super) struct Queue {
    mailbox: Mailbox,
    words: DeviceBuffer,
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

impl Queue {
    /// An empty one.
    pub(super) fn new(device: &Device, stream: StreamRef<'_>) -> Result<Self> {
        let mailbox = Mailbox::new(device, MAILBOX_BYTES)?;
        let words = DeviceBuffer::from_host(device, &initial_queue(), stream)?;
        debug_assert_eq!(words.bytes(), queue::BYTES as usize);
        Ok(Queue { mailbox, words, lanes: Default::default() })
    }

    /// The addresses of the queue and of its records, as the kernel takes them.
    pub(super) fn memory(&self, records: u64) -> QueueMemory {
        let host = self.mailbox.address();
        QueueMemory {
            queue: self.words.address(),
            records,
            doorbells: host,
            state: host + STATE_AT as u64,
            completions: host + COMPLETIONS_AT as u64,
            entries: host + ENTRIES_AT as u64,
        }
    }

    /// Writes entries of jobs, with the jobs that they come after, to the next free slots of a
    /// lane, and rings the doorbell once. `submitted` is called with each job's number.
    ///
    /// # Errors
    /// A job comes after too many others. Nothing is submitted then.
    pub(super) fn submit<'j>(
        &self,
        lane: u32,
        jobs: &mut Peekable<impl Iterator<Item = &'j Job>>,
        after: &[Completion],
        mut submitted: impl FnMut(u32),
    ) -> Result<(), EngineError> {
        // Checked before anything is written.
        entry(0, 0, 0, after)?;
        let mut held = lock(&self.lanes[lane as usize]);
        let mut last = None;
        while self.is_free(lane, held.next)
            && let Some(job) = jobs.next()
        {
            let own = Completion::of(lane, held.next);
            let to_end = held.tiles.wrapping_add(job.tiles());
            self.write(own.word, &entry(job.record(), job.tiles(), to_end, after)?);
            job.submitted(own);
            submitted(held.next);
            held.next = held.next.wrapping_add(1);
            held.tiles = to_end;
            last = Some([job.record(), job.tiles()]);
        }
        if let Some(last) = last {
            held.hint = if after.is_empty() { last } else { [doorbell::LOOK, 0] };
            self.ring(&held);
        }
        drop(held);
        // The kernel writes its state first and then looks at the doorbells.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Writes the entry of a job to the next slot of a lane, and enqueues the doorbell on the
    /// stream. Returns the job's number, or `None` if the slot's previous job is not done yet.
    pub(super) fn submit_from(
        &self,
        lane: u32,
        job: &Job,
        stream: StreamRef<'_>,
    ) -> Result<Option<u32>> {
        let mut held = lock(&self.lanes[lane as usize]);
        let number = held.next;
        if !self.is_free(lane, number) {
            return Ok(None);
        }
        let own = Completion::of(lane, number);
        let to_end = held.tiles.wrapping_add(job.tiles());
        let entry = entry(job.record(), job.tiles(), to_end, &[]).map_err(EngineError::from)?;
        self.write(own.word, &entry);
        // The job counts as submitted only after the stream has accepted the doorbell.
        fence(Ordering::Release);
        let next = number.wrapping_add(1);
        let at = doorbell::STREAMS_AT + (lane - 1) * 4;
        let address = self.mailbox.address() + u64::from(at);
        // SAFETY: the doorbell is a word of the mailbox, which outlives the stream's work: the
        // engine waits for its jobs.
        unsafe { stream.write_word(address, next) }?;
        job.submitted(own);
        (held.next, held.tiles) = (next, to_end);
        Ok(Some(number))
    }

    /// Lets a stream wait until a job of a lane is done.
    pub(super) fn wait_on(&self, lane: u32, job: Option<u32>, stream: StreamRef<'_>) -> Result<()> {
        let Some(job) = job else { return Ok(()) };
        let own = Completion::of(lane, job);
        let address = self.mailbox.address() + (COMPLETIONS_AT + own.word as usize * 4) as u64;
        // SAFETY: as for doorbells.
        unsafe { stream.wait_word(address, own.value) }
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
        let mut held = lock(&self.lanes[lane as usize]);
        let pending: Vec<_> = self.pending_before(lane, held.next).collect();
        held.given_up.extend(&pending);
        for job in &pending {
            let own = Completion::of(lane, *job);
            self.completion(own.word).store(own.value, Ordering::Release);
        }
        !pending.is_empty()
    }

    /// Whether a job was given up so.
    pub(super) fn was_given_up(&self, lane: u32, job: u32) -> bool {
        lock(&self.lanes[lane as usize]).given_up.contains(&job)
    }

    /// Whether the previous job in the slot of this job is done.
    fn is_free(&self, lane: u32, job: u32) -> bool {
        let own = Completion::of(lane, job);
        let before = Completion { value: own.value.wrapping_sub(LANE_SLOTS), ..own };
        let said = self.completion(own.word).load(Ordering::Acquire);
        // In the first round no slot has a previous job.
        job < LANE_SLOTS && said == 0 || before.is_done(said)
    }

    /// Whether the word of a job says that it is done. Its results are then visible.
    pub(super) fn is_done(&self, job: Completion) -> bool {
        job.is_done(self.completion(job.word).load(Ordering::Acquire))
    }

    /// A counter that changes when jobs are done.
    pub(super) fn done(&self) -> u64 {
        let words = self.mailbox.halves()[COMPLETIONS_AT / 4..][..COMPLETIONS].iter();
        words.map(|word| u64::from(word.load(Ordering::Relaxed))).sum()
    }

    /// The number of jobs submitted to a lane.
    pub(super) fn submitted(&self, lane: u32) -> u32 {
        lock(&self.lanes[lane as usize]).next
    }

    fn write(&self, slot: u32, entry: &[u32; ENTRY_BYTES as usize / 4]) {
        let at = ENTRIES_AT / 8 + slot as usize * (ENTRY_BYTES as usize / 8);
        let words = self.mailbox.words()[at..].iter();
        for (word, pair) in words.zip(entry.chunks_exact(2)) {
            word.store(u64::from(pair[0]) | u64::from(pair[1]) << 32, Ordering::Relaxed);
        }
    }

    /// Whether the kernel of launch number `launches`, the latest known launch, has left the
    /// device.
    pub(super) fn has_left(&self, launches: u32) -> bool {
        says_left(self.half(STATE_AT).load(Ordering::SeqCst), launches)
    }

    /// Sends a command to the kernel.
    pub(super) fn control(&self, command: u32) {
        let mut held = lock(&self.lanes[0]);
        held.command = command;
        self.ring(&held);
    }

    /// The host's lane's doorbell.
    fn ring(&self, lane: &Lane) {
        let [record, tiles] = lane.hint;
        let hint = doorbell::hint(record, tiles, lane.next, lane.command);
        self.half(doorbell::HINT_AT as usize).store(hint, Ordering::Release);
        self.half(doorbell::HOST_AT as usize).store(lane.next, Ordering::Release);
    }

    fn completion(&self, word: u32) -> &AtomicU32 {
        self.half(COMPLETIONS_AT + word as usize * 4)
    }

    fn half(&self, at: usize) -> &AtomicU32 {
        &self.mailbox.halves()[at / 4]
    }
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

/// Locks a mutex and ignores poisoning. The guarded value is always replaced as a whole, so a panic
/// cannot leave it half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The records of jobs, in device memory.
pub(super) struct Records {
    table: Mutex<Table>,
    address: u64,
    /// The stream that copies records while the kernel runs.
    stream: Stream,
}

struct Table {
    memory: DeviceBuffer,
    /// The last one's stamp.
    stamp: u32,
    /// Records that were never used begin here.
    fresh: u32,
    /// Free records, each with the last job that uses it.
    free: Vec<(u32, Option<Completion>)>,
}

impl Records {
    /// An empty table.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let memory = DeviceBuffer::new(device, (RECORDS * RECORD_BYTES) as usize)?;
        let address = memory.address();
        let table = Mutex::new(Table { memory, stamp: 0, fresh: 0, free: vec![] });
        Ok(Records { table, address, stream: Stream::before_others(device, COPIES_BEFORE)? })
    }

    /// The device address of the first record.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// A stamp that no record has had, for 2^32 of them.
    pub(super) fn stamp(&self) -> u32 {
        let mut table = lock(&self.table);
        table.stamp = table.stamp.wrapping_add(1).max(1);
        table.stamp
    }

    /// Writes a record, and gives its number.
    ///
    /// # Errors
    /// [`EngineError::Records`] if all records are held or in use by jobs;
    /// [`crate::Error::Driver`].
    pub(super) fn write(&self, bytes: &[u8], queue: &Queue) -> Result<u32> {
        let mut table = lock(&self.table);
        let idle =
            |(_, last): &(u32, Option<Completion>)| last.is_none_or(|job| queue.is_done(job));
        let record = match table.free.iter().position(idle) {
            Some(at) => table.free.swap_remove(at).0,
            None if table.fresh < RECORDS => {
                table.fresh += 1;
                table.fresh - 1
            }
            None => return Err(EngineError::Records { limit: RECORDS }.into()),
        };
        let at = (record * RECORD_BYTES) as usize;
        if let Err(error) = table.memory.copy_from_host(at, bytes, self.stream.as_ref()) {
            table.free.push((record, None));
            return Err(error);
        }
        Ok(record)
    }

    /// Returns a record that will not be submitted again. Its last job may still be running.
    pub(super) fn give_back(&self, record: u32, last: Option<Completion>) {
        lock(&self.table).free.push((record, last));
    }
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
