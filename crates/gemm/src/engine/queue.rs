//! The host's end of the queue: memory that the kernel reads and writes, and the lanes that jobs are submitted to.

use std::iter::Peekable;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgemm_kernels::resident::layout::{
    LANE_SLOTS, LANES, RECORD_BYTES, RING_SLOTS, doorbell, initial_queue, queue,
};
use pgemm_kernels::resident::record::{Completion, QueueMemory};

use super::job::WORDS;
use crate::driver::{Device, DeviceBuffer, Mailbox, StreamRef};
use crate::error::Result;

/// Where the host's words are, in bytes.
const STATE_AT: usize = 64;
const COMPLETIONS_AT: usize = 4096;
const COMPLETIONS: usize = (LANES * LANE_SLOTS) as usize;
const RECORDS_AT: usize = (COMPLETIONS_AT + COMPLETIONS * 4).next_multiple_of(4096);
const MAILBOX_BYTES: usize = RECORDS_AT + COMPLETIONS * RECORD_BYTES as usize;

const _: () = assert!(doorbell::BYTES as usize <= STATE_AT);

/// The memory of a queue.
pub(super) struct Queue {
    mailbox: Mailbox,
    words: DeviceBuffer,
    ring: DeviceBuffer,
    lanes: [Mutex<Lane>; LANES as usize],
}

/// The next job of a lane.
#[derive(Default)]
struct Lane {
    next: u32,
}

impl Queue {
    /// An empty one.
    pub(super) fn new(device: &Device, stream: StreamRef<'_>) -> Result<Self> {
        let mailbox = Mailbox::new(device, MAILBOX_BYTES)?;
        let words = DeviceBuffer::from_host(device, &initial_queue(), stream)?;
        debug_assert_eq!(words.bytes(), queue::BYTES as usize);
        let ring = DeviceBuffer::new(device, (RING_SLOTS * RECORD_BYTES) as usize)?;
        Ok(Queue { mailbox, words, ring, lanes: Default::default() })
    }

    /// Where the kernel finds it.
    pub(super) fn memory(&self) -> QueueMemory {
        let host = self.mailbox.address();
        QueueMemory {
            queue: self.words.address(),
            ring: self.ring.address(),
            doorbells: host,
            state: host + STATE_AT as u64,
            completions: host + COMPLETIONS_AT as u64,
            submitted: host + RECORDS_AT as u64,
        }
    }

    /// Writes records of jobs to the next slots of a lane, as long as slots are free, and rings the doorbell once. `record` makes the
    /// record of a place, and `submitted` hears of each job's number.
    ///
    /// # Errors
    /// That of `record`; the jobs before are submitted.
    pub(super) fn submit<J, E>(
        &self,
        lane: u32,
        jobs: &mut Peekable<impl Iterator<Item = J>>,
        record: impl Fn(J, Completion) -> Result<[u64; WORDS], E>,
        mut submitted: impl FnMut(u32),
    ) -> Result<(), E> {
        let mut held = lock(&self.lanes[lane as usize]);
        let first = held.next;
        let mut outcome = Ok(());
        while self.is_free(lane, held.next)
            && let Some(job) = jobs.next()
        {
            let own = Completion::of(lane, held.next);
            match record(job, own) {
                Ok(record) => self.write(own.word, &record),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            submitted(held.next);
            held.next = held.next.wrapping_add(1);
        }
        if held.next != first {
            self.doorbell(lane).store(held.next, Ordering::Release);
        }
        drop(held);
        // The kernel writes its state first and then looks at the doorbells.
        fence(Ordering::SeqCst);
        outcome
    }

    /// Whether the slot of a job of a lane has none before it that is not done.
    fn is_free(&self, lane: u32, job: u32) -> bool {
        let own = Completion::of(lane, job);
        let before = Completion { value: own.value.wrapping_sub(LANE_SLOTS), ..own };
        let said = self.completion(own.word).load(Ordering::Acquire);
        // Nobody was there in the first round.
        job < LANE_SLOTS && said == 0 || before.is_done(said)
    }

    /// Whether a job is done; what it stored can be seen then.
    pub(super) fn is_done(&self, job: Completion) -> bool {
        job.is_done(self.completion(job.word).load(Ordering::Acquire))
    }

    /// A number that changes when jobs get done.
    pub(super) fn done(&self) -> u64 {
        let words = self.mailbox.halves()[COMPLETIONS_AT / 4..][..COMPLETIONS].iter();
        words.map(|word| u64::from(word.load(Ordering::Relaxed))).sum()
    }

    /// How many jobs of a lane were submitted.
    pub(super) fn submitted(&self, lane: u32) -> u32 {
        lock(&self.lanes[lane as usize]).next
    }

    fn write(&self, slot: u32, record: &[u64; WORDS]) {
        let at = RECORDS_AT / 8 + slot as usize * WORDS;
        for (word, value) in self.mailbox.words()[at..at + WORDS].iter().zip(record) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// What the kernel says of itself: the number of its launch, and whether that takes jobs.
    pub(super) fn state(&self) -> (u32, bool) {
        let said = self.half(STATE_AT).load(Ordering::SeqCst);
        (said >> 1, said & 1 == 1)
    }

    /// Tells the kernel what to do.
    pub(super) fn control(&self, word: u32) {
        self.half(doorbell::CONTROL_AT as usize).store(word, Ordering::Release);
    }

    fn doorbell(&self, lane: u32) -> &AtomicU32 {
        self.half((doorbell::LANES_AT + lane * 4) as usize)
    }

    fn completion(&self, word: u32) -> &AtomicU32 {
        self.half(COMPLETIONS_AT + word as usize * 4)
    }

    fn half(&self, at: usize) -> &AtomicU32 {
        &self.mailbox.halves()[at / 4]
    }
}

/// A lock that a panicking holder cannot have left half-changed: what it guards is replaced whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
