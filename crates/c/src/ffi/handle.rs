//! The object behind a `pgemm_gemm`.

use std::ffi::c_void;
use std::sync::Arc;

use pgemm::driver::{ContextRef, Device, StreamRef};
use pgemm::tune::Platform;
use pgemm::{Error, Gemm, Plan, Pointers, Prepared, Problem};

use super::queued::Queued;
use crate::config::{Requested, picks};
use crate::failure::Failure;

/// A GEMM: made by pgemm_create, used from any thread, destroyed by pgemm_destroy.
pub struct Handle {
    gemm: Gemm,
    queued: Queued,
}

impl Handle {
    /// # Safety
    /// If no device is named, the context that is current on this thread must outlive the handle.
    pub(super) unsafe fn create(requested: Requested) -> Result<Self, Failure> {
        let Requested { config, device, autotune_file } = requested;
        let device = match device {
            Some(ordinal) => Device::new(ordinal)?,
            // SAFETY: as the caller vouches.
            None => unsafe { current_or_first() }?,
        };
        let gemm = match autotune_file {
            None => Gemm::create(&device, config)?,
            Some(path) => {
                let picks = picks(&path, &Platform::of(device.properties()))?;
                Gemm::with_picks(&device, config, Arc::new(picks))?
            }
        };
        Ok(Handle { gemm, queued: Queued::default() })
    }

    pub(super) fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    pub(super) fn prepare(&self, problem: &Problem) -> Result<Arc<Prepared>, Failure> {
        Ok(self.gemm.prepare(problem)?)
    }

    /// The plan of a problem, which is prepared.
    pub(super) fn describe(&self, problem: &Problem) -> Result<String, Failure> {
        Ok(line(self.prepare(problem)?.plan()))
    }

    /// Queues a problem.
    ///
    /// # Safety
    /// The same as for [`Gemm::run`], with a stream that exists until `sync` is called or the
    /// handle is dropped.
    pub(super) unsafe fn run(
        &self,
        problem: &Problem,
        pointers: &Pointers,
        stream: *mut c_void,
    ) -> Result<(), Failure> {
        // SAFETY: the stream exists and belongs to the context, as the caller vouches.
        let stream = unsafe { StreamRef::from_raw(self.gemm.device(), stream) };
        // SAFETY: as the caller vouches.
        unsafe { self.gemm.run_at(problem, pointers, stream) }?;
        self.queued.note(stream)
    }

    /// Waits for the queued work.
    ///
    /// # Safety
    /// The streams of runs since the last call must exist.
    pub(super) unsafe fn sync(&self) -> Result<(), Failure> {
        // SAFETY: as the caller vouches.
        unsafe { self.queued.wait(self.gemm.device()) }
    }
}

/// Kernels must not be unloaded while they run. The streams may be gone by now, so the device is
/// waited for.
impl Drop for Handle {
    fn drop(&mut self) {
        if !self.queued.is_empty() {
            // Device errors are reported by the calls that wait for results.
            let _ = self.gemm.sync();
        }
    }
}

/// The device of the context that is current on this thread, else device 0.
///
/// # Safety
/// The context must outlive the device.
pub(super) unsafe fn current_or_first() -> Result<Device, Error> {
    match ContextRef::current() {
        // SAFETY: it is current, hence alive, and stays so as the caller vouches.
        Ok(context) => unsafe { Device::from_context(context) },
        Err(Error::NoCurrentContext) => Device::new(0),
        Err(error) => Err(error),
    }
}

/// Kernel and plan in one line.
pub(super) fn line(plan: &Plan) -> String {
    format!("{}: {plan}", plan.spec)
}
