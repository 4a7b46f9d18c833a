//! Jobs on streams. The stream rings the doorbell of a lane and continues when the job is done. The
//! kernel may have left the device by then, and no thread of the caller checks this. So a second
//! stream notifies the host, and a thread of the engine checks.

use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use pgemm_kernels::resident::layout::LANES;

use super::job::Job;
use super::queue::{Queue, lock};
use super::{BELLS_BEFORE, HOST, Shared};
use crate::driver::{Device, Event, HostSignal, Stream, StreamRef, Timing};
use crate::error::{EngineError, Result};

/// The lanes that streams have, by their numbers.
pub(super) struct Streams {
    lanes: Mutex<HashMap<u64, Lane>>,
    beside: Stream,
    signal: Arc<HostSignal>,
}

struct Lane {
    number: u32,
    rung: Event,
}

impl Streams {
    /// No lanes yet.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let beside = Stream::before_others(device, BELLS_BEFORE)?;
        Ok(Streams { lanes: Mutex::default(), beside, signal: Arc::default() })
    }

    /// Starts the thread that sees to it that the kernel runs when a stream has rung.
    ///
    /// # Errors
    /// [`EngineError::Thread`].
    pub(super) fn watch(&self, engine: Weak<Shared>) -> Result<(), EngineError> {
        let signal = self.signal.clone();
        spawn("pgemm-bell", move || {
            let mut seen = 0;
            while let Some(raised) = signal.wait(seen) {
                seen = raised;
                let Some(engine) = engine.upgrade() else { return };
                // The stream has rung the doorbell. Either the kernel sees it, or the following
                // check sees that the kernel left.
                fence(Ordering::SeqCst);
                if let Err(error) = engine.keep_running() {
                    tracing::error!(%error, "the resident kernel could not be launched");
                }
            }
        })
    }

    /// Enqueues a job on a stream. Returns its lane and its number there, or `None` if the lane is
    /// full.
    ///
    /// # Errors
    /// [`EngineError::Lanes`], or a driver error.
    pub(super) fn submit(
        &self,
        queue: &Queue,
        job: &Job,
        stream: StreamRef<'_>,
    ) -> Result<(u32, Option<u32>)> {
        let id = stream.id()?;
        let mut lanes = lock(&self.lanes);
        if !lanes.contains_key(&id) {
            let lane = claim(&mut lanes, queue, stream.device())?;
            lanes.insert(id, lane);
        }
        let Some(Lane { number, rung }) = lanes.get(&id) else {
            return Err(EngineError::Lanes { limit: LANES - 1 }.into());
        };
        let job = queue.submit_from(*number, job, stream)?;
        if job.is_some() {
            rung.record(stream)?;
            let beside = self.beside.as_ref();
            beside.wait(rung)?;
            beside.signal_host(&self.signal)?;
            queue.wait_on(*number, job, stream)?;
        }
        Ok((*number, job))
    }

    /// The lanes that streams have now.
    pub(super) fn lanes(&self) -> Vec<u32> {
        lock(&self.lanes).values().map(|lane| lane.number).collect()
    }
}

/// Starts a detached thread of the engine.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), EngineError> {
    let started = thread::Builder::new().name(name.into()).spawn(body);
    started.map(drop).map_err(|error| EngineError::Thread { cause: Arc::new(error) })
}

/// A lane for a new stream: an unused one, or one whose jobs are all done.
fn claim(lanes: &mut HashMap<u64, Lane>, queue: &Queue, device: &Device) -> Result<Lane> {
    let taken: Vec<u32> = lanes.values().map(|lane| lane.number).collect();
    if let Some(number) = (HOST + 1..LANES).find(|number| !taken.contains(number)) {
        return Ok(Lane { number, rung: Event::new(device, Timing::Disabled)? });
    }
    let idle =
        lanes.iter().find(|(_, lane)| queue.pending(lane.number).is_none()).map(|(id, _)| *id);
    let lane = idle.and_then(|id| lanes.remove(&id));
    lane.ok_or_else(|| EngineError::Lanes { limit: LANES - 1 }.into())
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.signal.end();
    }
}
