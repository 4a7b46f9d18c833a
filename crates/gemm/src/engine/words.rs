//! The words of host memory that host and kernel share, as the host's side of the protocol accesses
//! them. An engine has them in pinned memory. Tests have them in the memory of the emulator.

use std::sync::atomic::{self, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::lock::lock;
use crate::driver::{Mailbox, StreamRef};
use crate::error::Result;

/// Words of host memory that the kernel reads and writes too. A place is an offset in bytes, a
/// multiple of 4.
pub(super) trait SharedWords: Send + Sync {
    /// A stream that can store words and wait for them.
    type Stream<'s>: Copy;

    /// Loads a word.
    fn load(&self, at: usize, order: Ordering) -> u32;

    /// Stores a word.
    fn store(&self, at: usize, word: u32, order: Ordering);

    /// Writes consecutive words, an even number, to a multiple of 8. Nothing orders these writes
    /// but later stores or fences that release them.
    fn write(&self, at: usize, words: &[u32]);

    /// A fence between accesses of these words.
    fn fence(&self, order: Ordering);

    /// Locks a mutex under which these words are accessed.
    fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T>;

    /// Lets a stream store a word when it gets there.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    fn store_on(&self, stream: Self::Stream<'_>, at: usize, word: u32) -> Result<()>;

    /// Lets a stream wait until a word is at least `word`, as a number that wraps.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    fn wait_on(&self, stream: Self::Stream<'_>, at: usize, word: u32) -> Result<()>;
}

impl SharedWords for Mailbox {
    type Stream<'s> = StreamRef<'s>;

    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.halves()[at / 4].load(order)
    }

    fn store(&self, at: usize, word: u32, order: Ordering) {
        self.halves()[at / 4].store(word, order);
    }

    fn write(&self, at: usize, words: &[u32]) {
        for (place, pair) in self.words()[at / 8..].iter().zip(words.as_chunks::<2>().0) {
            place.store(u64::from(pair[0]) | u64::from(pair[1]) << 32, Ordering::Relaxed);
        }
    }

    fn fence(&self, order: Ordering) {
        atomic::fence(order);
    }

    fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        lock(mutex)
    }

    fn store_on(&self, stream: StreamRef<'_>, at: usize, word: u32) -> Result<()> {
        // SAFETY: the word is one of the mailbox, which outlives the stream's work: the engine
        // waits for its jobs.
        unsafe { stream.write_word(self.address() + at as u64, word) }
    }

    fn wait_on(&self, stream: StreamRef<'_>, at: usize, word: u32) -> Result<()> {
        // SAFETY: as for stores.
        unsafe { stream.wait_word(self.address() + at as u64, word) }
    }
}
