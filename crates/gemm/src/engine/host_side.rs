//! The host's side of an engine's protocol: jobs enter the lanes of the queue, the kernel is
//! launched when it has left, and jobs are finished or given up at the end. docs/resident.md
//! describes it. Nothing here calls the driver: launches and streams are the caller's.

use std::iter::Peekable;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use pgemm_kernels::resident::layout::{LANE_SLOTS, MOST_AFTER, doorbell};
use pgemm_kernels::resident::record::{Completion, RecordError};

use super::HOST;
use super::queue::{JobId, Queue, launch_after};
use super::records::JobRecord;
use super::stream_lanes::StreamLanes;
use super::words::SharedWords;
use crate::error::{EngineError, Result};

/// The engine accepts jobs.
pub(super) const OPEN: u32 = 0;
/// The engine accepts no more jobs.
pub(super) const STOPPED: u32 = 1;
/// Jobs that were not done are given up.
pub(super) const ABORTED: u32 = 2;
/// The kernel failed.
pub(super) const FAILED: u32 = 3;

/// The queue of an engine, its launches, and how far its end has come.
pub(super) struct HostSide<M, L> {
    queue: Queue<M>,
    /// What launches the kernel.
    launcher: Mutex<L>,
    launches: AtomicU32,
    phase: AtomicU32,
    lanes: Mutex<StreamLanes>,
}

impl<M: SharedWords, L> HostSide<M, L> {
    /// One without jobs and launches, over words that are zeros.
    pub(super) fn new(words: M, launcher: L) -> Self {
        HostSide {
            queue: Queue::new(words),
            launcher: Mutex::new(launcher),
            launches: AtomicU32::new(0),
            phase: AtomicU32::new(OPEN),
            lanes: Mutex::default(),
        }
    }

    /// Its queue.
    pub(super) fn queue(&self) -> &Queue<M> {
        &self.queue
    }

    /// [`OPEN`], [`STOPPED`], [`ABORTED`] or [`FAILED`].
    pub(super) fn phase(&self) -> u32 {
        self.phase.load(Ordering::Acquire)
    }

    /// The number of the last launch.
    pub(super) fn launches(&self) -> u32 {
        self.launches.load(Ordering::SeqCst)
    }

    /// Submits as many jobs of the host's as find free slots, each after others. The remaining ones
    /// stay in `jobs`. The caller then sees to it that the kernel runs.
    ///
    /// # Errors
    /// Too many others, or [`EngineError::AfterStream`]. Nothing is submitted then.
    pub(super) fn submit<'j>(
        &self,
        jobs: &mut Peekable<impl Iterator<Item = &'j JobRecord>>,
        after: impl ExactSizeIterator<Item = JobId>,
        submitted: impl FnMut(u32),
    ) -> Result<(), EngineError> {
        let mut others = [Completion::of(HOST, 0); MOST_AFTER as usize];
        let count = after.len();
        let Some(others) = others.get_mut(..count) else {
            return Err(RecordError::TooMany { jobs: count }.into());
        };
        for (other, job) in others.iter_mut().zip(after) {
            check_before_host(job, || self.is_done(job))?;
            *other = job.completion();
        }
        self.queue.submit(HOST, jobs, others, submitted)
    }

    /// Enqueues a job on a stream, which has a number of its own: the doorbell, then the `bell` of
    /// its lane, then the wait for the job. Returns the lane and the job's number there, or `None`
    /// if the lane is full.
    ///
    /// # Errors
    /// [`EngineError::Lanes`], or a driver error.
    pub(super) fn submit_on(
        &self,
        id: u64,
        job: &JobRecord,
        stream: M::Stream<'_>,
        bell: impl FnOnce(u32) -> Result<()>,
    ) -> Result<(u32, Option<u32>)> {
        let mut lanes = self.queue.words().lock(&self.lanes);
        let lane = lanes.of(id, |lane| self.queue.pending(lane).is_none())?;
        let number = self.queue.submit_from(lane, job, stream)?;
        if let Some(number) = number {
            bell(lane)?;
            self.queue.wait_on(JobId { lane, number }, stream)?;
        }
        Ok((lane, number))
    }

    /// The job that has the slot of a lane's next job, or had it.
    pub(super) fn oldest(&self, lane: u32) -> JobId {
        JobId { lane, number: self.queue.submitted(lane).wrapping_sub(LANE_SLOTS) }
    }

    /// Orders the look at the kernel's state after the doorbell of a stream whose bell has rung.
    pub(super) fn hear_bell(&self) {
        self.queue.words().fence(Ordering::SeqCst);
    }

    /// The lanes that streams have now.
    pub(super) fn stream_lanes(&self) -> Vec<u32> {
        self.queue.words().lock(&self.lanes).all()
    }

    /// Whether the kernel of the last launch has left, or is about to.
    pub(super) fn has_left(&self) -> bool {
        self.queue.has_left(self.launches())
    }

    /// Launches the kernel if it has left and jobs are not abandoned. A caller rings the doorbell
    /// and passes a sequentially consistent fence first. If the kernel has not left after that, it
    /// will read the doorbells again. `launch` gets the number of the launch.
    ///
    /// # Errors
    /// Those of `launch`.
    pub(super) fn launch_if_left(
        &self,
        launch: impl FnOnce(&mut L, u32) -> Result<()>,
    ) -> Result<()> {
        if !self.has_left() || self.phase() == ABORTED {
            return Ok(());
        }
        let mut launcher = self.queue.words().lock(&self.launcher);
        // A kernel that has abandoned tiles cannot continue.
        if !self.has_left() || self.phase() >= ABORTED {
            return Ok(());
        }
        let number = launch_after(self.launches());
        launch(&mut launcher, number)?;
        self.launches.store(number, Ordering::SeqCst);
        Ok(())
    }

    /// Whether a job is done, rather than given up.
    pub(super) fn is_done(&self, job: JobId) -> bool {
        self.queue.is_done(job.completion())
            && !(self.phase() >= ABORTED && self.queue.was_given_up(job))
    }

    /// Notes that the kernel failed.
    pub(super) fn fail(&self) {
        self.phase.store(FAILED, Ordering::Release);
    }

    /// Accepts no more jobs.
    pub(super) fn close(&self) {
        let _ = self.phase.compare_exchange(OPEN, STOPPED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Tells the kernel to end once all jobs are done.
    pub(super) fn stop(&self) {
        self.queue.control(doorbell::STOP);
    }

    /// Accepts no more jobs, and tells the kernel to abandon tiles that have not begun. A
    /// concurrent launch happens before this, or does not happen at all.
    pub(super) fn abort(&self) {
        let launcher = self.queue.words().lock(&self.launcher);
        self.phase.fetch_max(ABORTED, Ordering::AcqRel);
        drop(launcher);
        self.queue.control(doorbell::ABORT);
    }

    /// Abandons all jobs that are not done, after the kernel has left for good, so that waiting
    /// streams continue.
    pub(super) fn give_up(&self) {
        for lane in [vec![HOST], self.stream_lanes()].concat() {
            if self.queue.give_up(lane) {
                let _ = self.phase.compare_exchange(
                    STOPPED,
                    ABORTED,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
            }
        }
    }
}

/// Checks whether a job that the host submits can come after this one. The kernel reads the
/// doorbells lane by lane. It may accept the host's job before the pending job of the stream. The
/// host's tiles would then wait on all SMs for a job that has no SM left.
fn check_before_host(job: JobId, is_done: impl FnOnce() -> bool) -> Result<(), EngineError> {
    match job.lane == HOST || is_done() {
        true => Ok(()),
        false => Err(EngineError::AfterStream { job: job.number }),
    }
}

#[cfg(test)]
mod tests {
    use pgemm_kernels::resident::layout::LANES;

    use super::*;

    #[test]
    fn what_comes_after_a_streams_job_waits_for_it_first() {
        let job = |lane| JobId { lane, number: 3 };
        check_before_host(job(HOST), || false).unwrap();
        check_before_host(job(HOST + 1), || true).unwrap();
        for lane in HOST + 1..LANES {
            let error = check_before_host(job(lane), || false).unwrap_err();
            assert!(matches!(error, EngineError::AfterStream { job: 3 }), "{error}");
            let error = error.to_string();
            assert!(error.contains("job 3") && error.contains("wait for that ticket"), "{error}");
        }
    }
}
