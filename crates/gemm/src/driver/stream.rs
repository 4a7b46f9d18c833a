//! Streams and events: [`StreamRef`] borrows a stream of anybody's, [`Stream`] and [`Event`] are
//! owned.

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::ptr;
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::api::{NOT_READY, SUCCESS};
use super::device::Device;
use crate::error::{Error, Result};

/// A borrowed CUDA stream. It is never destroyed here.
#[derive(Clone, Copy)]
pub struct StreamRef<'stream> {
    device: &'stream Device,
    raw: sys::CUstream,
}

// SAFETY: CUDA streams may be used from any thread; the pointer is an opaque handle that only the
// driver follows.
unsafe impl Send for StreamRef<'_> {}
// SAFETY: as above; the driver synchronises concurrent calls on one stream itself.
unsafe impl Sync for StreamRef<'_> {}

impl<'stream> StreamRef<'stream> {
    /// Borrows a `CUstream` or `cudaStream_t` (they are the same). Null is the context's legacy
    /// default stream.
    ///
    /// # Safety
    /// The stream must stay alive for `'stream` and belong to the context of `device`.
    pub unsafe fn from_raw(device: &'stream Device, raw: *mut c_void) -> Self {
        StreamRef { device, raw: raw.cast() }
    }

    /// The `CUstream`.
    pub fn as_raw(self) -> *mut c_void {
        self.raw.cast()
    }

    /// The device that the stream belongs to.
    pub fn device(self) -> &'stream Device {
        self.device
    }

    pub(super) fn handle(self) -> sys::CUstream {
        self.raw
    }

    /// Waits until the stream has done all work given to it so far.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] with the failure of any earlier asynchronous work.
    pub fn synchronize(self) -> Result<()> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: the stream is alive, as `from_raw` or the owner vouches, and its context is
        // current.
        let code = unsafe { (driver.api().cuStreamSynchronize)(self.raw) };
        driver.check("cuStreamSynchronize", code)
    }

    /// Waits until the stream has done all work given to it so far, at most this long. Looks again
    /// after 20 microseconds at first, and after up to a millisecond later.
    ///
    /// # Errors
    /// [`crate::Error::Timeout`] if the time has passed, and [`crate::Error::Driver`] with the
    /// failure of any earlier asynchronous work.
    pub fn synchronize_within(self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(20);
        while !self.is_idle()? {
            if start.elapsed() >= limit {
                return Err(Error::Timeout { seconds: limit.as_secs_f64() });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether the stream has done all work given to it so far.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] with the failure of any earlier asynchronous work.
    pub fn is_idle(self) -> Result<bool> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: the stream is alive, and its context is current.
        match unsafe { (driver.api().cuStreamQuery)(self.raw) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(driver.error("cuStreamQuery", code)),
        }
    }

    /// The stream's id, unique in the process. A handle may be reused for another stream after its
    /// stream was destroyed; an id is not. The legacy default stream and the per-thread default
    /// streams have ids too.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub fn id(self) -> Result<u64> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        let mut id = 0u64;
        // SAFETY: the stream is alive, and `id` is a valid place.
        let code = unsafe { (driver.api().cuStreamGetId)(self.raw, &mut id) };
        driver.check("cuStreamGetId", code)?;
        Ok(id)
    }

    /// Whether the stream is being captured, so that its work goes into a graph.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub fn is_capturing(self) -> Result<bool> {
        // CU_STREAM_CAPTURE_STATUS_NONE.
        const NONE: c_uint = 0;
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        let mut status: c_uint = NONE;
        // SAFETY: the stream is alive; the status is a C enum, which the driver writes as an int.
        let code = unsafe { (driver.api().cuStreamIsCapturing)(self.raw, &mut status) };
        driver.check("cuStreamIsCapturing", code)?;
        Ok(status != NONE)
    }

    /// Makes the stream wait for `event` before it does any work given to it from now on.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub fn wait(self, event: &Event) -> Result<()> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: stream and event are alive; the flag word is CU_EVENT_WAIT_DEFAULT.
        let code = unsafe { (driver.api().cuStreamWaitEvent)(self.raw, event.raw, 0) };
        driver.check("cuStreamWaitEvent", code)
    }
}

impl fmt::Debug for StreamRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamRef").field(&self.raw).finish()
    }
}

/// A stream of our own. It does not synchronise with the legacy default stream
/// (`CU_STREAM_NON_BLOCKING`).
pub struct Stream {
    device: Device,
    raw: sys::CUstream,
}

// SAFETY: CUDA streams may be used from any thread; the pointer is an opaque handle that only the
// driver follows.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver synchronises concurrent calls on one stream itself.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a stream.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub fn new(device: &Device) -> Result<Self> {
        let driver = device.driver();
        let _current = device.enter()?;
        let mut raw: sys::CUstream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: `raw` is a valid place, and the context is current.
        let code = unsafe { (driver.api().cuStreamCreate)(&mut raw, flags) };
        driver.check("cuStreamCreate", code)?;
        Ok(Stream { device: device.clone(), raw })
    }

    /// Creates a stream whose priority is `steps` above the default, limited by the device's range.
    /// Streams of different priorities do not share hardware channels, which are few, so a waiting
    /// stream does not block the others.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub(crate) fn before_others(device: &Device, steps: i32) -> Result<Self> {
        let driver = device.driver();
        let _current = device.enter()?;
        let (mut least, mut greatest): (c_int, c_int) = (0, 0);
        // SAFETY: both places are valid, and the context is current.
        driver.check("cuCtxGetStreamPriorityRange", unsafe {
            (driver.api().cuCtxGetStreamPriorityRange)(&mut least, &mut greatest)
        })?;
        let mut raw: sys::CUstream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // Lower numbers go first.
        let priority = (least - steps).max(greatest);
        // SAFETY: `raw` is a valid place, and the context is current.
        let code = unsafe { (driver.api().cuStreamCreateWithPriority)(&mut raw, flags, priority) };
        driver.check("cuStreamCreateWithPriority", code)?;
        Ok(Stream { device: device.clone(), raw })
    }

    /// Borrows the stream.
    pub fn as_ref(&self) -> StreamRef<'_> {
        StreamRef { device: &self.device, raw: self.raw }
    }

    /// The device that the stream belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until the stream has done all work given to it so far.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] with the failure of any earlier asynchronous work.
    pub fn synchronize(&self) -> Result<()> {
        self.as_ref().synchronize()
    }
}

impl<'stream> From<&'stream Stream> for StreamRef<'stream> {
    fn from(stream: &'stream Stream) -> Self {
        stream.as_ref()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.raw).finish()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let driver = self.device.driver();
        match self.device.enter() {
            Ok(_current) => {
                // SAFETY: destroyed once; the driver lets work in flight finish first.
                let code = unsafe { (driver.api().cuStreamDestroy_v2)(self.raw) };
                driver.check_in_drop("cuStreamDestroy", code);
            }
            Err(error) => tracing::warn!(%error, "a stream could not be destroyed"),
        }
    }
}

/// Whether an [`Event`] records when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The event records its time, for [`Event::elapsed_ms`].
    Enabled,
    /// The event only orders work, which is cheaper.
    Disabled,
}

/// A point in a stream's work.
pub struct Event {
    device: Device,
    raw: sys::CUevent,
}

// SAFETY: CUDA events may be used from any thread; the pointer is an opaque handle that only the
// driver follows.
unsafe impl Send for Event {}
// SAFETY: as above; the driver synchronises concurrent calls on one event itself.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event that has not been recorded yet.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub fn new(device: &Device, timing: Timing) -> Result<Self> {
        let driver = device.driver();
        let _current = device.enter()?;
        let mut raw: sys::CUevent = ptr::null_mut();
        let flags = match timing {
            Timing::Enabled => sys::CUevent_flags::CU_EVENT_DEFAULT,
            Timing::Disabled => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        // SAFETY: `raw` is a valid place, and the context is current.
        driver.check("cuEventCreate", unsafe {
            (driver.api().cuEventCreate)(&mut raw, flags as c_uint)
        })?;
        Ok(Event { device: device.clone(), raw })
    }

    /// Puts the event after all work given to `stream` so far.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the stream belongs to another context or the call fails.
    pub fn record(&self, stream: StreamRef<'_>) -> Result<()> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: event and stream are alive.
        driver.check("cuEventRecord", unsafe { (driver.api().cuEventRecord)(self.raw, stream.raw) })
    }

    /// Waits until the event has completed. Returns at once if it was never recorded.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] with the failure of any earlier asynchronous work.
    pub fn synchronize(&self) -> Result<()> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: the event is alive.
        driver.check("cuEventSynchronize", unsafe { (driver.api().cuEventSynchronize)(self.raw) })
    }

    /// Whether the event has happened; true if it was never recorded.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] with the failure of any earlier asynchronous work.
    pub fn has_happened(&self) -> Result<bool> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: the event is alive.
        match unsafe { (driver.api().cuEventQuery)(self.raw) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(driver.error("cuEventQuery", code)),
        }
    }

    /// Milliseconds from `start` to this event, to about half a microsecond. Both must have
    /// happened and have [`Timing::Enabled`].
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if either has not been recorded, has not happened yet, or has no
    /// timing.
    pub fn elapsed_ms(&self, start: &Event) -> Result<f32> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        let mut milliseconds = 0.0f32;
        // SAFETY: both events are alive, and `milliseconds` is a valid place.
        driver.check("cuEventElapsedTime", unsafe {
            (driver.api().cuEventElapsedTime)(&mut milliseconds, start.raw, self.raw)
        })?;
        Ok(milliseconds)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Event").field(&self.raw).finish()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let driver = self.device.driver();
        match self.device.enter() {
            Ok(_current) => {
                // SAFETY: destroyed once; a wait that is already enqueued is kept by the driver.
                let code = unsafe { (driver.api().cuEventDestroy_v2)(self.raw) };
                driver.check_in_drop("cuEventDestroy", code);
            }
            Err(error) => tracing::warn!(%error, "an event could not be destroyed"),
        }
    }
}
