//! The polling of waits for jobs: without pause at first, then with pauses, up to the watchdog's
//! limit.

use std::time::{Duration, Instant};

/// Time of polling without pauses. A job of few tiles takes less.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// Pause between two polls after that.
pub(super) const PAUSE: Duration = Duration::from_micros(20);

/// Time between two checks whether the kernel failed.
const LOOK: Duration = Duration::from_millis(5);

/// A wait's record of the engine's progress.
pub(super) struct WaitProgress {
    looked: Instant,
    /// The time at which the engine's progress counter last changed.
    moved: Instant,
    progress: u64,
}

impl WaitProgress {
    /// Starts at the current time with the current progress counter.
    pub(super) fn new(progress: u64) -> Self {
        let now = Instant::now();
        WaitProgress { looked: now, moved: now, progress }
    }

    /// The time without progress so far. `None` if the next check is not due yet.
    pub(super) fn look(&mut self, progress: impl FnOnce() -> u64) -> Option<Duration> {
        if self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        let progress = progress();
        if progress != self.progress {
            (self.moved, self.progress) = (self.looked, progress);
        }
        Some(self.moved.elapsed())
    }
}
