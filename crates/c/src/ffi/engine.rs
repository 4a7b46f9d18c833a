//! Engines and their jobs.

use std::ffi::c_void;

use pgemm::Pointers;
use pgemm::driver::StreamRef;
use pgemm::engine::{Engine, Job};

use super::memory::{self, clear, destroy, read, slice, write};
use super::{Handle, guarded, handle, read_problem};
use crate::abi::{Callback, EngineOptions, PGEMM_SUCCESS, Problem, Status, Ticket};
use crate::engine::{options, timeout};
use crate::failure::{self, Failure};

/// A resident kernel that computes jobs as they arrive. It is created by pgemm_engine_create, may
/// be used from any thread, and is destroyed by pgemm_engine_destroy.
pub struct EngineHandle {
    engine: Engine,
    device: pgemm::driver::Device,
}

/// A problem at addresses, checked and ready to be submitted: made by pgemm_job_prepare, destroyed
/// by pgemm_job_destroy.
pub struct JobHandle(Job);

/// Sets all fields of an engine's options to their defaults. size is sizeof(pgemm_engine_options).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_options_init(
    options: *mut EngineOptions,
    size: usize,
) -> Status {
    // SAFETY: the caller gives an address to which `size` bytes can be written.
    guarded(|| unsafe { memory::initialise("options", options, size) })
}

/// Makes an engine for jobs like typical, in the GEMM's types, with its epilogue and on its device;
/// the GEMM may be destroyed before it. Its kernel is compiled now, up to some tenths of a second,
/// and launched with the first job. options may be null: all defaults. *engine is null after a
/// failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_create(
    gemm: *const Handle,
    typical: *const Problem,
    options: *const EngineOptions,
    engine: *mut *mut EngineHandle,
) -> Status {
    guarded(|| {
        // SAFETY: the caller gives the address of a pointer, or null.
        unsafe { clear("engine", engine) }?;
        // SAFETY: the caller's GEMM is alive, and its structs ones that their initialisers have
        // filled.
        let (gemm, typical) = unsafe { (handle(gemm)?.gemm(), read_problem(typical)?) };
        let requested = if options.is_null() {
            EngineOptions::default()
        } else {
            // SAFETY: as above.
            unsafe { read("options", options) }?
        };
        let started = Engine::start(gemm, &typical, self::options(&requested)?)?;
        let made = EngineHandle { engine: started, device: gemm.device().clone() };
        // SAFETY: as above.
        unsafe { engine.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Finishes the submitted jobs, destroys an engine and sets *engine to null. Does nothing if
/// *engine is null. No other thread may be using it. Its jobs may be destroyed before or after.
/// Callbacks may still be called shortly after it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_destroy(engine: *mut *mut EngineHandle) -> Status {
    // SAFETY: the caller gives the address of a pointer that pgemm_engine_create has written, or of
    // null.
    guarded(|| unsafe { destroy("engine", engine) })
}

/// Checks a problem at these addresses and makes it a job. The job may be submitted to this engine
/// any number of times. The call takes the time of a small copy to the device. a, b, c, d are as
/// for pgemm_run_ex. Their addresses and the bytes from line to line must be multiples of 16, and D
/// must be row-major. If the epilogue of the engine's GEMM adds a bias, it is at problem.bias. An
/// engine has at most 2048 jobs at a time. *job is null after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_job_prepare(
    engine: *const EngineHandle,
    problem: *const Problem,
    a: *const c_void,
    b: *const c_void,
    c: *const c_void,
    d: *mut c_void,
    job: *mut *mut JobHandle,
) -> Status {
    guarded(|| {
        // SAFETY: the caller gives the address of a pointer, or null.
        unsafe { clear("job", job) }?;
        // SAFETY: the caller's engine is alive, and its problem one that pgemm_problem_init has
        // filled.
        let (engine, given) = unsafe { (self::engine(engine)?, read("problem", problem)?) };
        let problem = crate::problem::problem(&given)?;
        let pointers = Pointers::new(a as u64, b as u64, c as u64, d as u64);
        let pointers = pointers.with_bias(given.bias as u64);
        let prepared = engine.engine.prepare(&problem, &pointers)?;
        // SAFETY: as above.
        unsafe { job.write(Box::into_raw(Box::new(JobHandle(prepared)))) };
        Ok(())
    })
}

/// Destroys a job and sets *job to null. Does nothing if *job is null. Its submissions are still
/// completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_job_destroy(job: *mut *mut JobHandle) -> Status {
    // SAFETY: the caller gives the address of a pointer that pgemm_job_prepare has written, or of
    // null.
    guarded(|| unsafe { destroy("job", job) })
}

/// Submits a job that begins when the after_count jobs of after are done. There may be at most two;
/// after may be null if there are none. Returns at once, but waits for a slot while 1024 jobs are
/// pending. A, B and C must have been written by completed work or by the jobs of after. All
/// matrices must not be used otherwise until the job is done. ticket may be null. If after contains
/// a job of a stream that is not done, the call fails with PGEMM_ERROR_INVALID_STATE: wait for that
/// job first, or submit on that stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_submit(
    engine: *const EngineHandle,
    job: *const JobHandle,
    after: *const Ticket,
    after_count: usize,
    ticket: *mut Ticket,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's engine and job are alive.
        let (engine, job) = unsafe { (&self::engine(engine)?.engine, self::job(job)?) };
        // SAFETY: the caller gives the address of so many tickets.
        let after = unsafe { slice("after", after, after_count) }?;
        let after = after.iter().map(|ticket| engine.ticket_from_raw(*ticket));
        let after = after.collect::<Result<Vec<_>, _>>()?;
        let after: Vec<_> = after.iter().collect();
        // SAFETY: the caller vouches for the matrices.
        let submitted = unsafe { engine.submit_after(job, &after) }?;
        // SAFETY: the caller gives the address of a ticket, or null.
        unsafe { write(ticket, submitted.to_raw()) };
        Ok(())
    })
}

/// Submits count jobs that do not depend on each other, and writes a ticket of each to tickets,
/// which may be null. Otherwise as pgemm_engine_submit, and cheaper for each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_submit_many(
    engine: *const EngineHandle,
    jobs: *const *const JobHandle,
    count: usize,
    tickets: *mut Ticket,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's engine is alive, and the address that of so many jobs.
        let (engine, jobs) =
            unsafe { (&self::engine(engine)?.engine, slice("jobs", jobs, count)?) };
        // SAFETY: all of them are alive.
        let jobs = jobs.iter().map(|job| unsafe { self::job(*job) });
        let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        // SAFETY: the caller vouches for the matrices.
        let submitted = unsafe { engine.submit_all(jobs) }?;
        if !tickets.is_null() {
            for (at, ticket) in submitted.iter().enumerate() {
                // SAFETY: there is room for as many tickets as there are jobs.
                unsafe { tickets.add(at).write(ticket.to_raw()) };
            }
        }
        Ok(())
    })
}

/// Enqueues a job on a stream (as for pgemm_run) like other work. It begins when earlier work of
/// the stream is done, and later work waits for it. This costs the host more than a launch. At most
/// two streams may have pending jobs at a time. Until the job is done, only this library may
/// allocate or free device memory. Its own calls wait for such jobs up to one second and then fail
/// with PGEMM_ERROR_INVALID_STATE. ticket may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_submit_on(
    engine: *const EngineHandle,
    job: *const JobHandle,
    stream: *mut c_void,
    ticket: *mut Ticket,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's engine and job are alive.
        let (engine, job) = unsafe { (self::engine(engine)?, self::job(job)?) };
        // SAFETY: the stream exists and belongs to the engine's context, as the caller vouches.
        let stream = unsafe { StreamRef::from_raw(&engine.device, stream) };
        // SAFETY: the caller vouches for the matrices.
        let submitted = unsafe { engine.engine.submit_on(stream, job) }?;
        // SAFETY: the caller gives the address of a ticket, or null.
        unsafe { write(ticket, submitted.to_raw()) };
        Ok(())
    })
}

/// Waits until a job is done, for at most this number of microseconds. After that time it fails
/// with PGEMM_ERROR_TIMEOUT. A negative number stands for no limit. When the job is done, its
/// results are visible to copies by the host and to work enqueued from then on. A ticket is valid
/// for 2^31 further jobs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_wait(
    engine: *const EngineHandle,
    ticket: Ticket,
    timeout_microseconds: i64,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's engine is alive.
        let ticket = unsafe { self::engine(engine) }?.engine.ticket_from_raw(ticket)?;
        match timeout(timeout_microseconds) {
            None => ticket.wait()?,
            Some(timeout) => ticket.wait_timeout(timeout)?,
        }
        Ok(())
    })
}

/// Writes to *done whether a job is done, as 1 or 0. Fails if the job will never be done, because
/// the engine failed or was aborted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_is_done(
    engine: *const EngineHandle,
    ticket: Ticket,
    done: *mut i32,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's engine is alive.
        let engine = unsafe { self::engine(engine) }?;
        if done.is_null() {
            return Err(Failure::null("done"));
        }
        let is_done = engine.engine.ticket_from_raw(ticket)?.poll()?;
        // SAFETY: the caller gives the address of a number.
        unsafe { done.write(i32::from(is_done)) };
        Ok(())
    })
}

/// The context pointer of a callback.
struct Context(*mut c_void);

// SAFETY: the caller gives it to be used on another thread.
unsafe impl Send for Context {}

impl Context {
    fn address(&self) -> *mut c_void {
        self.0
    }
}

/// Registers a callback and returns at once. callback(status, context) is called once when the job
/// is done or has failed, with the status that pgemm_engine_wait would return. It is called on a
/// thread of the engine. Callbacks run one after another, so a slow one delays the others. A
/// callback may call functions of this engine, and may destroy it. It is not called if this call
/// fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_on_done(
    engine: *const EngineHandle,
    ticket: Ticket,
    callback: Callback,
    context: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's engine is alive.
        let engine = unsafe { self::engine(engine) }?;
        let callback = callback.ok_or_else(|| Failure::null("callback"))?;
        let context = Context(context);
        engine.engine.ticket_from_raw(ticket)?.on_done(move |outcome| {
            let status = match outcome.map_err(Failure::from) {
                Ok(()) => PGEMM_SUCCESS,
                Err(Failure { status, message }) => {
                    failure::remember(message);
                    status
                }
            };
            // SAFETY: the caller gives a function that may be called so, once, on any thread.
            unsafe { callback(status, context.address()) };
        });
        Ok(())
    })
}

/// Waits until all jobs are done that were submitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_drain(engine: *const EngineHandle) -> Status {
    // SAFETY: the caller's engine is alive.
    guarded(|| Ok(unsafe { self::engine(engine) }?.engine.drain()?))
}

/// Accepts no more jobs, finishes the submitted ones, and leaves the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_stop(engine: *const EngineHandle) -> Status {
    // SAFETY: the caller's engine is alive.
    guarded(|| Ok(unsafe { self::engine(engine) }?.engine.stop()?))
}

/// Accepts no more jobs and abandons those that have not begun. Their tickets then fail, their
/// results are undefined, and streams that wait for them continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_abort(engine: *const EngineHandle) -> Status {
    // SAFETY: the caller's engine is alive.
    guarded(|| Ok(unsafe { self::engine(engine) }?.engine.abort()?))
}

/// # Safety
/// `engine` must be null, or come from pgemm_engine_create and not be destroyed while the result is
/// used.
unsafe fn engine<'engine>(engine: *const EngineHandle) -> Result<&'engine EngineHandle, Failure> {
    // SAFETY: as the caller vouches.
    unsafe { engine.as_ref() }.ok_or_else(|| Failure::null("engine"))
}

/// # Safety
/// `job` must be null, or come from pgemm_job_prepare and not be destroyed while the result is
/// used.
unsafe fn job<'job>(job: *const JobHandle) -> Result<&'job Job, Failure> {
    // SAFETY: as the caller vouches.
    unsafe { job.as_ref() }.map(|job| &job.0).ok_or_else(|| Failure::null("job"))
}
