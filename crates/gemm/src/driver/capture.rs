//! Stream captures, by this library or its caller: which capture a stream is part of, objects that
//! live as long as the captured graph, and calls that are allowed during any capture.

use std::ffi::{c_uint, c_void};
use std::ptr;

use cudarc::driver::sys;

use super::device::Device;
use super::stream::StreamRef;
use crate::error::Result;

const CAPTURE_INVALIDATED: c_uint = 901;

/// A capture in progress. Work enqueued on the stream becomes part of a graph.
pub(crate) struct CaptureInfo<'stream> {
    device: &'stream Device,
    id: u64,
    graph: sys::CUgraph,
}

impl<'stream> CaptureInfo<'stream> {
    /// The capture that `stream` is part of, if any.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the capture has failed already, or for the legacy default stream
    /// while a capture elsewhere forbids its use.
    pub(crate) fn of(stream: StreamRef<'stream>) -> Result<Option<Self>> {
        // Values of `CUstreamCaptureStatus`. 1 stands for a capture in progress.
        const NONE: c_uint = 0;
        const INVALIDATED: c_uint = 2;
        let device = stream.device();
        let driver = device.driver();
        let _current = device.enter()?;
        let (mut status, mut id, mut graph) = (NONE, 0u64, ptr::null_mut());
        // SAFETY: the stream is alive and all places are valid; the status is a C enum, which the
        // driver writes as an int. What the stream depends on is not asked for: programmatic
        // dependencies would make that fail.
        let code = unsafe {
            (driver.api().cuStreamGetCaptureInfo_v2)(
                stream.handle(),
                &mut status,
                &mut id,
                &mut graph,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        driver.check("cuStreamGetCaptureInfo", code)?;
        match status {
            NONE => Ok(None),
            INVALIDATED => Err(driver.error("cuStreamGetCaptureInfo", CAPTURE_INVALIDATED)),
            _ => Ok(Some(CaptureInfo { device, id, graph })),
        }
    }

    /// The capture's number, unique in the life of the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Drops `kept` on a thread of the driver once the graph and everything instantiated or cloned
    /// from it are gone and all their launches have ended. Dropping it must not call the driver. On
    /// an error it is dropped at once.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the driver refuses.
    pub(crate) fn keep<T: Send + 'static>(&self, kept: T) -> Result<()> {
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        let mut object: sys::CUuserObject = ptr::null_mut();
        let kept = Box::into_raw(Box::new(kept));
        let flags = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as c_uint;
        // SAFETY: `object` is a valid place; `kept` is what `release::<T>` takes, which the driver
        // calls once.
        let code = unsafe {
            (driver.api().cuUserObjectCreate)(
                &mut object,
                kept.cast(),
                Some(release::<T>),
                1,
                flags,
            )
        };
        driver.check("cuUserObjectCreate", code).inspect_err(|_| {
            // SAFETY: no object was made, so the box is still ours.
            drop(unsafe { Box::from_raw(kept) });
        })?;
        let flags = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as c_uint;
        // SAFETY: a graph may be given objects while it is being captured; it takes our one
        // reference over.
        let code = unsafe { (driver.api().cuGraphRetainUserObject)(self.graph, object, 1, flags) };
        driver.check("cuGraphRetainUserObject", code).inspect_err(|_| {
            // SAFETY: the graph did not take the reference, so it is still ours.
            let code = unsafe { (driver.api().cuUserObjectRelease)(object, 1) };
            driver.check_in_drop("cuUserObjectRelease", code);
        })
    }
}

/// # Safety
/// `kept` must come from `Box::<T>::into_raw`, and nobody else may use it any more.
unsafe extern "C" fn release<T>(kept: *mut c_void) {
    // SAFETY: as the caller vouches.
    drop(unsafe { Box::from_raw(kept.cast::<T>()) });
}

/// A guard that allows this thread to allocate and wait while a stream is being captured. The calls
/// must not touch the captured stream.
pub(crate) struct Uncaptured<'a> {
    device: &'a Device,
    before: sys::CUstreamCaptureMode,
    /// The capture mode belongs to the thread, so the guard must be dropped on the thread that
    /// created it.
    _this_thread: std::marker::PhantomData<*const ()>,
}

impl<'a> Uncaptured<'a> {
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub(crate) fn enter(device: &'a Device) -> Result<Self> {
        let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let before = exchange(device, relaxed)?;
        Ok(Uncaptured { device, before, _this_thread: std::marker::PhantomData })
    }
}

impl Drop for Uncaptured<'_> {
    fn drop(&mut self) {
        if let Err(error) = exchange(self.device, self.before) {
            tracing::warn!(%error, "the thread's capture mode could not be restored");
        }
    }
}

/// Sets this thread's capture mode and returns the previous one.
fn exchange(
    device: &Device,
    mut mode: sys::CUstreamCaptureMode,
) -> Result<sys::CUstreamCaptureMode> {
    let driver = device.driver();
    let _current = device.enter()?;
    // SAFETY: `mode` is a valid place. The driver writes back a mode that it was given before, or
    // the default: all are values of the enum.
    driver.check("cuThreadExchangeStreamCaptureMode", unsafe {
        (driver.api().cuThreadExchangeStreamCaptureMode)(&mut mode)
    })?;
    Ok(mode)
}
