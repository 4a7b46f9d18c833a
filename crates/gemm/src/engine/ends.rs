//! The end of an engine: jobs are finished or abandoned, and waiting streams continue.

use std::sync::Arc;
use std::time::Instant;

use pgemm_kernels::resident::layout::LANE_SLOTS;

use super::ticket::Ticket;
use super::{HOST, Shared};
use crate::driver::StreamJobs;
use crate::error::Result;

impl Shared {
    pub(super) fn drain(self: &Arc<Self>) -> Result<()> {
        let lanes = [vec![HOST], self.host.stream_lanes()].concat();
        lanes.into_iter().try_for_each(|lane| {
            let end = self.host.queue().submitted(lane);
            // Earlier jobs no longer occupy slots. Numbers that were not yet assigned count as
            // done.
            (1..=LANE_SLOTS)
                .rev()
                .try_for_each(|back| Ticket::new(self, lane, end.wrapping_sub(back)).wait())
        })
    }

    pub(super) fn stop(self: &Arc<Self>) -> Result<()> {
        self.host.close();
        if let Err(error) = self.drain() {
            let _ = self.abort();
            return Err(error);
        }
        self.host.stop();
        self.end()
    }

    pub(super) fn abort(&self) -> Result<()> {
        // A concurrent launch is waited for, or does not happen at all.
        self.host.abort();
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

    /// Releases streams that wait for jobs that will not be done, after the kernel has left for
    /// good.
    fn let_streams_go(&self) {
        self.waits.hold_up(|| self.host.give_up());
    }
}

impl StreamJobs for Shared {
    fn waited_for(&self) -> Option<u32> {
        let lanes = self.host.stream_lanes().into_iter();
        let job = lanes.into_iter().find_map(|lane| self.host.queue().pending(lane))?;
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
