//! Launches at addresses and on streams that Python passes. Wrong ones lead to errors of CUDA or
//! undefined behaviour.

use std::ffi::c_void;

use pgemm::driver::{ContextRef, Device, StreamRef};
use pgemm::engine::{Engine, Job, Ticket};
use pgemm::program::PreparedLaunch;
use pgemm::{Gemm, Pointers, Problem, Result};

use crate::errors::Failure;

/// Queues a problem.
///
/// # Safety
/// The addresses must be those of matrices on the GEMM's device as the problem describes them,
/// alive until the work is done; the stream must be one of its context.
pub unsafe fn run(gemm: &Gemm, problem: &Problem, pointers: &Pointers, stream: u64) -> Result<()> {
    // SAFETY: as the caller vouches.
    unsafe {
        let stream = StreamRef::from_raw(gemm.device(), stream as *mut c_void);
        gemm.run_at(problem, pointers, stream)
    }
}

/// Submits a job to an engine, after others.
///
/// # Safety
/// The job's addresses must be those of matrices as its problem describes them, alive and left
/// alone until it is done.
pub unsafe fn submit(engine: &Engine, job: &Job, after: &[&Ticket]) -> Result<Ticket> {
    // SAFETY: as the caller vouches.
    unsafe { engine.submit_after(job, after) }
}

/// Submits jobs that do not depend on each other.
///
/// # Safety
/// The same as for [`submit`].
pub unsafe fn submit_all(engine: &Engine, jobs: &[Job]) -> Result<Vec<Ticket>> {
    // SAFETY: as the caller vouches.
    unsafe { engine.submit_all(jobs) }
}

/// Enqueues a job of an engine on a stream.
///
/// # Safety
/// The same as for [`submit`], and the stream must be one of the engine's context.
pub unsafe fn submit_on(
    engine: &Engine,
    device: &Device,
    job: &Job,
    stream: u64,
) -> Result<Ticket> {
    // SAFETY: as the caller vouches.
    unsafe { engine.submit_on(StreamRef::from_raw(device, stream as *mut c_void), job) }
}

/// Waits until all is done that a stream was given.
///
/// # Safety
/// The stream must exist and be one of the device's context.
pub unsafe fn wait(device: &Device, stream: u64) -> Result<()> {
    // SAFETY: as the caller vouches.
    unsafe { StreamRef::from_raw(device, stream as *mut c_void) }.synchronize()
}

/// Queues a launch of a program.
///
/// # Safety
/// The addresses among its arguments must be valid for what the kernel does with them until it has
/// ended; the stream must be one of the device's context.
pub unsafe fn launch(launch: &PreparedLaunch<'_>, device: &Device, stream: u64) -> Result<()> {
    // SAFETY: as the caller vouches.
    unsafe { launch.enqueue(StreamRef::from_raw(device, stream as *mut c_void)) }
}

/// Whether a stream is being captured.
///
/// # Safety
/// The stream must exist and be one of the device's context.
pub unsafe fn is_capturing(device: &Device, stream: u64) -> Result<bool> {
    // SAFETY: as the caller vouches.
    unsafe { StreamRef::from_raw(device, stream as *mut c_void) }.is_capturing()
}

/// The device of a context that is current on this thread.
///
/// # Errors
/// Kernels cannot run on the device.
pub fn device_of(context: ContextRef) -> std::result::Result<Device, Failure> {
    // SAFETY: it is current, hence alive. In Python contexts are those of libraries that never
    // destroy them.
    Ok(unsafe { Device::from_context(context) }?)
}
