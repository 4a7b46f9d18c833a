//! Tickets: handles of submitted jobs, used to poll or wait for their end.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pgemm_kernels::resident::layout::LANES;

use super::Shared;
use super::queue::JobId;
use super::signal::Signal;
use super::wait_progress::{PAUSE, SPIN, WaitProgress};
use super::watcher::WatchedJob;
use crate::driver::StreamRef;
use crate::error::{EngineError, Result};

/// Time during which a wait only yields the core before it begins to sleep. Linux adds some 50 µs
/// to every sleep.
const YIELD: Duration = Duration::from_millis(1);

/// The handle of a submitted job. Dropping it does not cancel the job. It is also a future, which
/// is ready when the job is done.
pub struct Ticket {
    pub(super) engine: Arc<Shared>,
    pub(super) lane: u32,
    pub(super) job: u32,
    /// The signal of the future, once it has been polled.
    pub(super) signal: Option<Arc<Signal>>,
}

impl Clone for Ticket {
    /// A ticket of the same job, which is polled for itself.
    fn clone(&self) -> Self {
        Ticket::new(&self.engine, self.lane, self.job)
    }
}

impl Ticket {
    pub(super) fn new(engine: &Arc<Shared>, lane: u32, job: u32) -> Self {
        Ticket { engine: engine.clone(), lane, job, signal: None }
    }

    /// The job's number in its lane, which wraps.
    pub fn number(&self) -> u32 {
        self.job
    }

    /// The ticket as a number, never 0, for
    /// [`Engine::ticket_from_raw`](super::Engine::ticket_from_raw) of the same engine.
    pub fn to_raw(&self) -> u64 {
        raw(self.lane, self.job)
    }

    pub(super) fn id(&self) -> JobId {
        JobId { lane: self.lane, number: self.job }
    }

    /// Whether the job is done. If so, its results are visible to the host and to work enqueued
    /// from now on. The answer is valid while fewer than 2^31 later jobs have been submitted.
    pub fn is_done(&self) -> bool {
        self.engine.host.is_done(self.id())
    }

    /// Whether the job is done or has failed, for callers that poll instead of waiting. While the
    /// job is pending, each call costs a driver call.
    ///
    /// # Errors
    /// [`EngineError::Failed`], [`EngineError::Aborted`].
    pub fn poll(&self) -> Result<bool> {
        if self.is_done() {
            return Ok(true);
        }
        self.engine.check(self)?;
        Ok(self.is_done())
    }

    /// Waits until the job is done.
    ///
    /// # Errors
    /// [`EngineError::Failed`], [`EngineError::Aborted`], and [`EngineError::Stuck`] after the
    /// watchdog's time without any job done.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(None)
    }

    /// Waits until the job is done, or for so long.
    ///
    /// # Errors
    /// [`EngineError::Timeout`], and those of [`wait`](Self::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        self.wait_until(Some(timeout))
    }

    /// Lets a stream wait for the job, and returns at once. Work enqueued there afterwards begins
    /// when the job is done or abandoned.
    ///
    /// # Errors
    /// [`EngineError::Capture`]: the job is done once, and a graph's replays would not wait for
    /// others; [`crate::Error::Driver`].
    pub fn stream_wait(&self, stream: StreamRef<'_>) -> Result<()> {
        if stream.is_capturing()? {
            return Err(EngineError::Capture.into());
        }
        let Shared { host, waits, .. } = &*self.engine;
        waits.enqueue(|| host.queue().wait_on(self.id(), stream))
    }

    /// Calls `callback` once when the job is done, or with the errors of [`wait`](Self::wait) if it
    /// fails. The call is made on a thread of the engine, even if the job is done already.
    /// Callbacks run one after another, so a blocking callback delays the others. A callback may
    /// submit jobs to the same engine and may drop its last handle. Panics are logged and dropped.
    /// The thread polls jobs with callbacks as a wait does, and sleeps if there are none.
    pub fn on_done(&self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        self.engine.watcher.register(self.clone(), Box::new(callback));
    }

    pub(super) fn wait_until(&self, timeout: Option<Duration>) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        let begin = Instant::now();
        let spin = timeout.map_or(SPIN, |timeout| timeout.min(SPIN));
        while begin.elapsed() < spin {
            if self.is_done() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let mut progress = WaitProgress::new(self.engine.done());
        while !self.is_done() {
            if let Some(waited) = timeout.filter(|timeout| begin.elapsed() >= *timeout) {
                return Err(EngineError::Timeout { job: self.job, waited }.into());
            }
            if let Some(waited) = progress.look(|| self.engine.done()) {
                self.engine.check(self)?;
                if waited >= self.engine.watchdog {
                    return Err(EngineError::Stuck { job: self.job, waited }.into());
                }
            }
            if begin.elapsed() < YIELD {
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

impl WatchedJob for Ticket {
    fn is_done(&self) -> bool {
        self.is_done()
    }

    fn check(&self) -> Result<()> {
        self.engine.check(self)
    }

    fn progress(&self) -> u64 {
        self.engine.done()
    }

    fn watchdog(&self) -> Duration {
        self.engine.watchdog
    }

    fn stuck(&self, waited: Duration) -> EngineError {
        EngineError::Stuck { job: self.job, waited }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({}, {})", self.lane, self.job)
    }
}

/// A lane and the job's number there.
fn raw(lane: u32, job: u32) -> u64 {
    u64::from(lane + 1) << 32 | u64::from(job)
}

/// The lane and number of [`raw`], where `submitted` jobs were submitted to a lane so far.
pub(super) fn from_raw(ticket: u64, submitted: impl Fn(u32) -> u32) -> Option<(u32, u32)> {
    let lane = ((ticket >> 32) as u32).checked_sub(1).filter(|lane| *lane < LANES)?;
    let job = ticket as u32;
    let back = submitted(lane).wrapping_sub(job);
    (1..=1 << 31).contains(&back).then_some((lane, job))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_nobody_was_given_are_no_tickets() {
        let submitted = |lane: u32| [3, 0, 5][lane as usize];
        for (lane, job) in [(0, 0), (0, 2), (2, 4), (2, u32::MAX)] {
            assert_eq!(from_raw(raw(lane, job), submitted), Some((lane, job)));
        }
        let others = [0, 7, raw(0, 3), raw(1, 0), raw(2, 5), raw(LANES, 0), u64::MAX];
        for ticket in others {
            assert_eq!(from_raw(ticket, submitted), None, "{ticket:#x}");
        }
    }
}
