//! How waits for jobs ask: without pause at first, then now and then, and for how long nothing may
//! get done.

use std::time::{Duration, Instant};

/// So long a wait asks without pause: a job of few tiles takes less.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// Between two questions after that.
pub(super) const REST: Duration = Duration::from_micros(20);

/// How often a wait looks whether the kernel failed.
const LOOK: Duration = Duration::from_millis(5);

/// What a wait knows of its engine's progress.
pub(super) struct Patience {
    looked: Instant,
    /// When the engine's number of what is done was last another one.
    moved: Instant,
    progress: u64,
}

impl Patience {
    /// From now on, with the number as it is now.
    pub(super) fn new(progress: u64) -> Self {
        let now = Instant::now();
        Patience { looked: now, moved: now, progress }
    }

    /// Now and then: for how long nothing got done. `None` where it is not yet time to look again.
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
