//! Bells of streams. A stream rings the doorbell of a lane and continues when the job is done. The
//! kernel may have left the device by then, and no thread of the caller checks this. So a second
//! stream notifies the host, and a thread of the engine checks.

use std::sync::{Arc, Weak};
use std::thread;

use pgemm_kernels::resident::layout::LANES;

use super::{BELLS_BEFORE, HOST, Shared};
use crate::driver::{Device, Event, HostSignal, Stream, StreamRef, Timing};
use crate::error::{EngineError, Result};

/// The bells of the lanes that streams have.
pub(super) struct Streams {
    /// For each lane, the point at which its stream has rung the doorbell.
    rung: Vec<Event>,
    beside: Stream,
    signal: Arc<HostSignal>,
}

impl Streams {
    /// A bell for each lane.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let rung = (HOST + 1..LANES).map(|_| Event::new(device, Timing::Disabled));
        let rung = rung.collect::<Result<_>>()?;
        let beside = Stream::before_others(device, BELLS_BEFORE)?;
        Ok(Streams { rung, beside, signal: Arc::default() })
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
                engine.host.hear_bell();
                if let Err(error) = engine.keep_running() {
                    tracing::error!(%error, "the resident kernel could not be launched");
                }
            }
        })
    }

    /// Lets the thread check the kernel once the stream of a lane has got to here.
    ///
    /// # Errors
    /// [`crate::Error::Driver`].
    pub(super) fn ring_bell(&self, lane: u32, stream: StreamRef<'_>) -> Result<()> {
        let rung = &self.rung[(lane - HOST - 1) as usize];
        rung.record(stream)?;
        let beside = self.beside.as_ref();
        beside.wait(rung)?;
        beside.signal_host(&self.signal)
    }
}

/// Starts a detached thread of the engine.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), EngineError> {
    let started = thread::Builder::new().name(name.into()).spawn(body);
    started.map(drop).map_err(|error| EngineError::Thread { cause: Arc::new(error) })
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.signal.end();
    }
}
