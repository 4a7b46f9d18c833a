//! Submitting jobs: by the host, one or many at a time, and on a stream.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgemm_kernels::resident::layout::LANE_SLOTS;

use super::records::JobRecord;
use super::{Engine, HOST, Job, Shared, Ticket};
use crate::driver::StreamRef;
use crate::error::{EngineError, Error, Result};

impl Engine {
    /// Submits a job. Waits for a slot if none is free.
    ///
    /// # Errors
    /// [`EngineError::Stopped`], [`EngineError::Failed`], and those of [`Ticket::wait`] while it
    /// waits for a slot.
    ///
    /// # Safety
    /// The job's matrices must be device memory of the sizes that its problem requires. Until the
    /// job is done they must not be freed, operands must not be written, and D must not be
    /// accessed. Operands must have been written before, by completed work or by jobs that this one
    /// comes after.
    pub unsafe fn submit(&self, job: &Job) -> Result<Ticket> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.submit_after(job, &[]) }
    }

    /// Submits a job that begins when others are done, at most two. A job of a stream among them
    /// must be done already.
    ///
    /// # Errors
    /// The same as for [`submit`](Self::submit); too many others; [`EngineError::AfterStream`].
    ///
    /// # Safety
    /// The same as for [`submit`](Self::submit).
    pub unsafe fn submit_after(&self, job: &Job, after: &[&Ticket]) -> Result<Ticket> {
        loop {
            // SAFETY: the caller's promises are the same.
            match unsafe { self.try_submit_after(job, after) } {
                Err(Error::Engine(EngineError::Full { .. })) => {
                    self.shared.wait_for_slot(HOST, None)?
                }
                outcome => return outcome,
            }
        }
    }

    /// Submits a job that begins when the jobs `after` (at most two) are done. Waits up to
    /// `timeout` for a free slot.
    ///
    /// # Errors
    /// [`EngineError::Full`] if none got free, and those of [`submit_after`](Self::submit_after).
    ///
    /// # Safety
    /// The same as for [`submit`](Self::submit).
    pub unsafe fn submit_timeout(
        &self,
        job: &Job,
        after: &[&Ticket],
        timeout: Duration,
    ) -> Result<Ticket> {
        let begin = Instant::now();
        loop {
            // SAFETY: the caller's promises are the same.
            let full = match unsafe { self.try_submit_after(job, after) } {
                Err(full @ Error::Engine(EngineError::Full { .. })) => full,
                outcome => return outcome,
            };
            let left = timeout.saturating_sub(begin.elapsed());
            match self.shared.wait_for_slot(HOST, Some(left)) {
                Err(Error::Engine(EngineError::Timeout { .. })) => return Err(full),
                outcome => outcome?,
            }
        }
    }

    /// Submits a job if a slot is free.
    ///
    /// # Errors
    /// [`EngineError::Full`], and those of [`submit_after`](Self::submit_after).
    ///
    /// # Safety
    /// The same as for [`submit`](Self::submit).
    pub unsafe fn try_submit_after(&self, job: &Job, after: &[&Ticket]) -> Result<Ticket> {
        self.check_own(&[job], after)?;
        let mut ticket = None;
        let mut jobs = std::iter::once(job.record()).peekable();
        self.shared.submit(&mut jobs, after, |job| ticket = Some(job))?;
        let full = EngineError::Full { slots: LANE_SLOTS };
        ticket.map(|job| self.ticket(job)).ok_or_else(|| full.into())
    }

    /// Submits independent jobs, with one doorbell for as many as find free slots. Waits if there
    /// are too few slots. The jobs may be done in any order.
    ///
    /// # Errors
    /// The same as for [`submit`](Self::submit).
    ///
    /// # Safety
    /// The same as for [`submit`](Self::submit).
    pub unsafe fn submit_all<'j>(
        &self,
        jobs: impl IntoIterator<Item = &'j Job>,
    ) -> Result<Vec<Ticket>> {
        let jobs: Vec<_> = jobs.into_iter().collect();
        self.check_own(&jobs, &[])?;
        let mut tickets = Vec::with_capacity(jobs.len());
        let mut jobs = jobs.into_iter().map(Job::record).peekable();
        loop {
            self.shared.submit(&mut jobs, &[], |job| tickets.push(self.ticket(job)))?;
            if jobs.peek().is_none() {
                return Ok(tickets);
            }
            self.shared.wait_for_slot(HOST, None)?;
        }
    }

    /// Enqueues a job on a stream like other work. It begins when earlier work of the stream is
    /// done, and later work waits for it. The call blocks while the stream has as many pending jobs
    /// as there are slots.
    ///
    /// # Errors
    /// [`EngineError::Lanes`] where others streams' jobs are under way; [`EngineError::Capture`];
    /// the errors of [`submit`](Self::submit).
    ///
    /// # Safety
    /// As [`submit`](Self::submit), in the stream's order. Until the job is done, only this library
    /// may allocate or free device memory in this process. The driver waits for all streams in such
    /// calls and blocks the engine's next launch. This library's own calls wait for such jobs up to
    /// one second and then fail ([`Error::StreamWaits`]); memory dropped in that time is freed
    /// later. Unless the engine has no other jobs, earlier work of the stream must not need SMs
    /// that only the engine's departure would free: see the module's documentation.
    pub unsafe fn submit_on(&self, stream: StreamRef<'_>, job: &Job) -> Result<Ticket> {
        self.check_own(&[job], &[])?;
        let shared = &self.shared;
        if stream.is_capturing()? {
            return Err(EngineError::Capture.into());
        }
        loop {
            let (lane, number) = shared.waits.enqueue(|| {
                shared.check_open()?;
                let bell = |lane| shared.streams.ring_bell(lane, stream);
                shared.host.submit_on(stream.id()?, job.record(), stream, bell)
            })?;
            if let Some(job) = number {
                return Ok(Ticket::new(shared, lane, job));
            }
            shared.wait_for_slot(lane, None)?;
        }
    }

    fn check_own(&self, jobs: &[&Job], tickets: &[&Ticket]) -> Result<()> {
        let own = |engine: &Arc<Shared>| Arc::ptr_eq(engine, &self.shared);
        let what = match () {
            () if !jobs.iter().all(|job| own(job.engine())) => "job",
            () if !tickets.iter().all(|ticket| own(&ticket.engine)) => "ticket",
            () => return Ok(()),
        };
        Err(EngineError::Foreign { what }.into())
    }

    fn ticket(&self, job: u32) -> Ticket {
        Ticket::new(&self.shared, HOST, job)
    }
}

impl Shared {
    /// Submits as many jobs as find free slots. The remaining ones stay in `jobs`.
    fn submit<'j>(
        &self,
        jobs: &mut Peekable<impl Iterator<Item = &'j JobRecord>>,
        after: &[&Ticket],
        submitted: impl FnMut(u32),
    ) -> Result<()> {
        self.check_open()?;
        self.host.submit(jobs, after.iter().map(|ticket| ticket.id()), submitted)?;
        self.keep_running()
    }

    /// Waits until the oldest job that holds a slot is done, or for so long.
    fn wait_for_slot(self: &Arc<Self>, lane: u32, timeout: Option<Duration>) -> Result<()> {
        let oldest = self.host.oldest(lane);
        Ticket::new(self, lane, oldest.number).wait_until(timeout)
    }
}
