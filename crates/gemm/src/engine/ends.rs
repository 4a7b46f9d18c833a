//! The end of an engine: jobs are finished or abandoned, and waiting streams continue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pgemm_kernels::resident::layout::{LANE_SLOTS, doorbell};

use super::queue::lock;
use super::ticket::Ticket;
use super::{ABORTED, HOST, OPEN, STOPPED, Shared};
use crate::driver::StreamJobs;
use crate::error::Result;

impl Shared {
    pub(super) fn drain(self: &Arc<Self>) -> Result<()> {
        let lanes = [vec![HOST], self.streams.lanes()].concat();
        lanes.into_iter().try_for_each(|lane| {
            let end = self.queue.submitted(lane);
            // Earlier jobs no longer occupy slots. Numbers that were not yet assigned count as
            // done.
            (1..=LANE_SLOTS)
                .rev()
                .try_for_each(|back| Ticket::new(self, lane, end.wrapping_sub(back)).wait())
        })
    }

    pub(super) fn stop(self: &Arc<Self>) -> Result<()> {
        let _ = self.phase.compare_exchange(OPEN, STOPPED, Ordering::AcqRel, Ordering::Acquire);
        if let Err(error) = self.drain() {
            let _ = self.abort();
            return Err(error);
        }
        self.queue.control(doorbell::STOP);
        self.end()
    }

    pub(super) fn abort(&self) -> Result<()> {
        // A concurrent launch happens before this and is waited for, or does not happen at all.
        let launcher = lock(&self.launcher);
        self.phase.fetch_max(ABORTED, Ordering::AcqRel);
        drop(launcher);
        self.queue.control(doorbell::ABORT);
        self.end()
    }

    /// Waits until the kernel has left.
    fn end(&self) -> Result<()> {
        let begin = Instant::now();
        let ended = self.stream.synchronize();
        tracing::debug!(waited = ?begin.elapsed(), "the resident kernel has left");
        ended.map_err(|error| self.fail(error))?;
        self.let_streams_go();
        Ok(())
    }

    /// Marks jobs that are not done as abandoned.
    fn give_up(&self) {
        let _ = self.phase.compare_exchange(STOPPED, ABORTED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Releases streams that wait for jobs that will not be done, after the kernel has left for
    /// good.
    fn let_streams_go(&self) {
        self.waits.hold_up(|| {
            for lane in [vec![HOST], self.streams.lanes()].concat() {
                if self.queue.give_up(lane) {
                    self.give_up();
                }
            }
        });
    }
}

impl StreamJobs for Shared {
    fn waited_for(&self) -> Option<u32> {
        let job = self.streams.lanes().into_iter().find_map(|lane| self.queue.pending(lane))?;
        match self.is_idle() {
            Ok(_) => Some(job),
            // Calls of the driver do not wait then, but say so.
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }
}
