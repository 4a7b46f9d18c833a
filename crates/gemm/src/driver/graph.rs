//! Stream capture and graphs: work recorded once and launched many times.

use std::fmt;
use std::ptr;

use cudarc::driver::sys;

use super::device::Device;
use super::stream::StreamRef;
use crate::error::{Error, Result};

/// Recorded work, instantiated and ready to launch.
pub struct Graph {
    device: Device,
    raw: sys::CUgraphExec,
}

// SAFETY: a graph may be used from any thread, though by one at a time: launching takes
// `&mut self`.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures the work that `work` enqueues on `stream`, without running it, and instantiates the
    /// graph. While `work` runs, this thread must not allocate, load modules or wait for the
    /// stream. Kernel arguments are copied; the memory they point to is not.
    ///
    /// # Safety
    /// All memory that the recorded work uses must stay valid until the last launch of the graph
    /// has run.
    ///
    /// # Errors
    /// The error of `work`, or [`crate::Error::Driver`] if capture or instantiation fails.
    pub unsafe fn capture(
        device: &Device,
        stream: StreamRef<'_>,
        work: impl FnOnce(StreamRef<'_>) -> Result<()>,
    ) -> Result<Self> {
        // SAFETY: the caller's promises are the same.
        unsafe { Self::capture_with(device, stream, work) }
    }

    /// Like [`capture`](Self::capture), for work that returns errors of the caller's own.
    ///
    /// # Safety
    /// The same as for [`capture`](Self::capture).
    ///
    /// # Errors
    /// The same as for [`capture`](Self::capture).
    pub unsafe fn capture_with<E: From<Error>>(
        device: &Device,
        stream: StreamRef<'_>,
        work: impl FnOnce(StreamRef<'_>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let driver = device.driver();
        let _current = device.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive and belongs to the current context.
        driver.check("cuStreamBeginCapture", unsafe {
            (driver.api().cuStreamBeginCapture_v2)(stream.handle(), mode)
        })?;
        let capture = Capture { device, stream };
        let recorded = work(stream);
        let graph = capture.end();
        recorded?;
        let graph = graph?;
        let mut raw: sys::CUgraphExec = ptr::null_mut();
        // SAFETY: the graph is alive, `raw` is a valid place, no flags.
        driver.check("cuGraphInstantiate", unsafe {
            (driver.api().cuGraphInstantiateWithFlags)(&mut raw, graph.raw, 0)
        })?;
        Ok(Graph { device: device.clone(), raw })
    }

    /// Enqueues the recorded work on `stream`. Launches of one graph run one after another.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub fn launch(&mut self, stream: StreamRef<'_>) -> Result<()> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: graph and stream are alive; the caller of `capture` keeps the memory.
        driver.check("cuGraphLaunch", unsafe {
            (driver.api().cuGraphLaunch)(self.raw, stream.handle())
        })
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Graph").field(&self.raw).finish()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let driver = self.device.driver();
        // SAFETY: destroyed once; the driver keeps what is still running.
        driver.check_in_drop("cuGraphExecDestroy", unsafe {
            (driver.api().cuGraphExecDestroy)(self.raw)
        });
    }
}

/// A capture in progress. Dropping it ends the capture, also after a panic in the captured work, so
/// that the stream is usable again.
struct Capture<'a> {
    device: &'a Device,
    stream: StreamRef<'a>,
}

impl<'a> Capture<'a> {
    fn end(self) -> Result<Recorded<'a>> {
        let this = std::mem::ManuallyDrop::new(self);
        this.end_once()
    }

    fn end_once(&self) -> Result<Recorded<'a>> {
        let driver = self.device.driver();
        let mut raw: sys::CUgraph = ptr::null_mut();
        // SAFETY: the stream is being captured, `raw` is a valid place.
        driver.check("cuStreamEndCapture", unsafe {
            (driver.api().cuStreamEndCapture)(self.stream.handle(), &mut raw)
        })?;
        Ok(Recorded { device: self.device, raw })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end_once() {
            tracing::warn!(%error, "a capture could not be ended");
        }
    }
}

/// A `CUgraph`, needed only until it is instantiated.
struct Recorded<'a> {
    device: &'a Device,
    raw: sys::CUgraph,
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        let driver = self.device.driver();
        // SAFETY: destroyed once; an instantiated graph does not need it.
        driver.check_in_drop("cuGraphDestroy", unsafe { (driver.api().cuGraphDestroy)(self.raw) });
    }
}
