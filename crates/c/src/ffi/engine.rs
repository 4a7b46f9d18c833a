//! Engines and their jobs.

use std::ffi::c_void;

use pgemm::Pointers;
use pgemm::driver::StreamRef;
use pgemm::engine::{Engine, Job};

use super::memory::{self, read};
use super::{Handle, guarded, handle, read_problem};
use crate::abi::{Callback, EngineOptions, PGEMM_SUCCESS, Problem, Status, Ticket};
use crate::engine::{options, timeout};
use crate::failure::{self, Failure};

/// A kernel that stays on the device and works through jobs as they come in: made by
/// pgemm_engine_create, used from any thread, destroyed by pgemm_engine_destroy.
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

/// Finishes the jobs that were submitted, destroys an engine and sets *engine to null; does nothing
/// where it is null already. No other thread may be using it. Its jobs may be destroyed before or
/// after. Callbacks may still be called shortly after it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_destroy(engine: *mut *mut EngineHandle) -> Status {
    // SAFETY: the caller gives the address of a pointer that pgemm_engine_create has written, or of
    // null.
    guarded(|| unsafe { destroy("engine", engine) })
}

/// Checks a problem at these addresses and makes it a job, which may be submitted as often as
/// wanted to the engine that prepared it. Takes as long as a small copy to the device. a, b, c, d
/// are as with pgemm_run_ex, at addresses that are multiples of 16, and so are the bytes from line
/// to line; D is row-major. A bias that the epilogue of the engine's GEMM adds is at problem.bias.
/// An engine has up to 2048 jobs at once. *job is null after a failure.
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

/// Destroys a job and sets *job to null; does nothing where it is null already. What was submitted
/// of it goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_job_destroy(job: *mut *mut JobHandle) -> Status {
    // SAFETY: the caller gives the address of a pointer that pgemm_job_prepare has written, or of
    // null.
    guarded(|| unsafe { destroy("job", job) })
}

/// Submits a job that begins when the after_count jobs of after, two at most, are done; after may
/// be null where there are none. Returns at once, but waits for a slot where 1024 jobs are under
/// way. What A, B and C hold must have been written before, by work that is done or by those jobs;
/// all of the matrices are to be left alone until the job is done. ticket may be null. A job of a
/// stream in after has to be done, else this is PGEMM_ERROR_INVALID_STATE: wait for it first, or
/// submit on that stream.
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

/// Enqueues a job on a stream (as pgemm_run has it) like other work: it begins when what was
/// enqueued before is done, and what is enqueued after waits for it. That costs the host more than
/// a launch. Two streams at once have jobs under way. Until the job is done no device memory may be
/// allocated or freed but by this library, whose calls wait for such jobs, for a second, and then
/// are PGEMM_ERROR_INVALID_STATE. ticket may be null.
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

/// Waits until a job is done: for so many microseconds, after which it is PGEMM_ERROR_TIMEOUT, or
/// where these are negative for ever. What the job stored can be seen then, by the host's copies
/// and by streams from then on. A ticket holds for 2^31 further jobs.
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

/// Writes to *done whether a job is done, as 1 or 0. Fails where it will never be: the engine
/// failed, or was aborted.
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

/// What a callback gets.
struct Context(*mut c_void);

// SAFETY: the caller gives it to be used on another thread.
unsafe impl Send for Context {}

impl Context {
    fn address(&self) -> *mut c_void {
        self.0
    }
}

/// Returns at once, and calls callback(status, context) once when a job is done, or will not be:
/// with what pgemm_engine_wait would return. It is called on a thread of the engine, one callback
/// after the other, so one that takes long holds up the others. It may call functions of this
/// engine, and destroy it. It is not called where this call fails.
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

/// Takes no more jobs, finishes those that were submitted, and leaves the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_stop(engine: *const EngineHandle) -> Status {
    // SAFETY: the caller's engine is alive.
    guarded(|| Ok(unsafe { self::engine(engine) }?.engine.stop()?))
}

/// Takes no more jobs and gives up those that have not begun, whose tickets then fail. What they
/// have stored is undefined, and streams that wait for them go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_engine_abort(engine: *const EngineHandle) -> Status {
    // SAFETY: the caller's engine is alive.
    guarded(|| Ok(unsafe { self::engine(engine) }?.engine.abort()?))
}

/// # Safety
/// `engine` must be null, or what pgemm_engine_create has made and nobody has destroyed for as long
/// as the result is used.
unsafe fn engine<'engine>(engine: *const EngineHandle) -> Result<&'engine EngineHandle, Failure> {
    // SAFETY: as the caller vouches.
    unsafe { engine.as_ref() }.ok_or_else(|| Failure::null("engine"))
}

/// # Safety
/// `job` must be null, or what pgemm_job_prepare has made and nobody has destroyed for as long as
/// the result is used.
unsafe fn job<'job>(job: *const JobHandle) -> Result<&'job Job, Failure> {
    // SAFETY: as the caller vouches.
    unsafe { job.as_ref() }.map(|job| &job.0).ok_or_else(|| Failure::null("job"))
}

/// Sets the caller's pointer to null.
///
/// # Safety
/// `target` must be null or the address of a pointer.
unsafe fn clear<T>(what: &'static str, target: *mut *mut T) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: as the caller vouches.
    unsafe { target.write(std::ptr::null_mut()) };
    Ok(())
}

/// Takes what the caller's pointer has, if anything, and drops it.
///
/// # Safety
/// `target` must be null or the address of a pointer, which is null or came from `Box::into_raw`
/// and is nobody else's.
unsafe fn destroy<T>(what: &'static str, target: *mut *mut T) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: as the caller vouches.
    let taken = unsafe { target.replace(std::ptr::null_mut()) };
    if !taken.is_null() {
        // SAFETY: as the caller vouches.
        drop(unsafe { Box::from_raw(taken) });
    }
    Ok(())
}

/// The caller's array.
///
/// # Safety
/// `source` must be null or the address of `count` values that stay as they are for as long as the
/// result is used.
unsafe fn slice<'s, T>(
    what: &'static str,
    source: *const T,
    count: usize,
) -> Result<&'s [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if source.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: as the caller vouches.
    Ok(unsafe { std::slice::from_raw_parts(source, count) })
}

/// # Safety
/// `target` must be null or the address of a value.
unsafe fn write<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: as the caller vouches.
        unsafe { target.write(value) };
    }
}
