//! The functions of the C ABI. Each catches panics and checks its arguments. The crate's `unsafe`
//! code is in this module tree. The comments state the callers' obligations in terms of C, because
//! they become the comments of the header: every address must be null or valid.
#![allow(clippy::missing_safety_doc)]

mod engine;
mod handle;
mod memory;
mod packs;
mod program;
mod queued;
mod warm;

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pgemm::{Pointers, USUAL_SMS, first_plan};

use crate::abi::*;
use crate::config::{self, ConfigStrings, Requested};
use crate::failure::{self, Failure};
use crate::tuner::{self, Request};
pub use engine::{EngineHandle, JobHandle};
pub use handle::Handle;
use memory::{read, text, write_text};
pub use program::{ArgumentsHandle, ProgramHandle};

/// The version of the library, such as "0.1.0". The header's is PGEMM_VERSION_MAJOR and so on.
#[unsafe(no_mangle)]
pub extern "C" fn pgemm_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// A status in a few words. Never null, never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn pgemm_status_string(status: Status) -> *const c_char {
    failure::status_text(status).as_ptr()
}

/// The message of the last failed call on this thread: what was requested, what the limit is, and
/// what to do. Empty if no call failed. It is never null, must not be freed, and is valid until the
/// next failed call on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pgemm_last_error() -> *const c_char {
    failure::last_message()
}

/// Sets all fields of a config to their defaults. size is sizeof(pgemm_config).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_config_init(config: *mut Config, size: usize) -> Status {
    // SAFETY: the caller gives an address to which `size` bytes can be written.
    guarded(|| unsafe { memory::initialise("config", config, size) })
}

/// Sets all fields of a problem to their defaults. size is sizeof(pgemm_problem).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_problem_init(problem: *mut Problem, size: usize) -> Status {
    // SAFETY: the caller gives an address to which `size` bytes can be written.
    guarded(|| unsafe { memory::initialise("problem", problem, size) })
}

/// Creates a GEMM on the device that the config names. By default this is the device of the CUDA
/// context that is current on the calling thread; the context must outlive the GEMM. If there is
/// none, it is device 0 with its primary context. Nothing is compiled yet. *gemm is null after a
/// failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_create(config: *const Config, gemm: *mut *mut Handle) -> Status {
    guarded(|| {
        if gemm.is_null() {
            return Err(Failure::null("gemm"));
        }
        // SAFETY: the caller gives the address of a pointer.
        unsafe { gemm.write(std::ptr::null_mut()) };
        // SAFETY: the caller's config is one that pgemm_config_init has filled.
        let requested = unsafe { requested(config) }?;
        // SAFETY: the caller keeps the current context alive for as long as the GEMM.
        let handle = unsafe { Handle::create(requested) }?;
        // SAFETY: as above.
        unsafe { gemm.write(Box::into_raw(Box::new(handle))) };
        Ok(())
    })
}

/// Destroys a GEMM and sets *gemm to null. Does nothing if *gemm is null. Waits for the device if
/// there is queued work that pgemm_sync has not waited for. No other thread may be using the GEMM,
/// nor a graph that captured runs of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_destroy(gemm: *mut *mut Handle) -> Status {
    guarded(|| {
        if gemm.is_null() {
            return Err(Failure::null("gemm"));
        }
        // SAFETY: the caller gives the address of a pointer that pgemm_create has written, or of
        // null.
        let handle = unsafe { gemm.replace(std::ptr::null_mut()) };
        if !handle.is_null() {
            // SAFETY: it came from `Box::into_raw` in pgemm_create, and nobody has it any more.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    })
}

/// Plans a problem, and compiles and loads its kernel, so that later runs only launch. Otherwise
/// the first run of a problem does this. It takes up to some tenths of a second and is not possible
/// on a stream that is being captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_prepare(gemm: *const Handle, problem: *const Problem) -> Status {
    guarded(|| {
        // SAFETY: the caller's GEMM is alive, and its problem one that pgemm_problem_init has
        // filled.
        let (handle, problem) = unsafe { (handle(gemm)?, read_problem(problem)?) };
        handle.prepare(&problem).map(|_| ())
    })
}

/// Says when kernels are compiled that have to be, for the problems of this GEMM. Without this call
/// it is what the environment variable PGEMM_COMPILE says, now or behind, and otherwise
/// PGEMM_COMPILE_NOW. With PGEMM_COMPILE_BEHIND, pgemm_plan_describe describes the plan of the
/// kernel that computes for the time being, and a graph keeps the kernel that it has captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_set_compile(gemm: *const Handle, compile: Compile) -> Status {
    guarded(|| {
        // SAFETY: the caller's GEMM is alive.
        let handle = unsafe { handle(gemm) }?;
        handle.gemm().set_compile(config::compile(compile)?);
        Ok(())
    })
}

/// Queues C = A*B on a stream (a CUstream or cudaStream_t; null is the legacy default stream) and
/// returns. A is m x k, B is k x n, C is m x n: device memory, row-major, without gaps, and not
/// used otherwise until the work is done. The stream must belong to the GEMM's context, and must
/// exist until a later pgemm_sync has returned, if there is one. May be called from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_run(
    gemm: *const Handle,
    a: *const c_void,
    b: *const c_void,
    c: *mut c_void,
    m: i64,
    n: i64,
    k: i64,
    stream: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's GEMM is alive.
        let handle = unsafe { handle(gemm) }?;
        let problem = crate::problem::row_major(m, n, k)?;
        let pointers = Pointers::new(a as u64, b as u64, 0, c as u64);
        // SAFETY: the caller vouches for matrices and stream.
        unsafe { handle.run(&problem, &pointers, stream) }
    })
}

/// Queues D = alpha * A*B + beta * C, or a batch of such products, as the problem describes it.
/// Everything else is as with pgemm_run. C is not looked at where beta is 0, and may be D. A bias
/// that the config's epilogue adds is at problem.bias.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_run_ex(
    gemm: *const Handle,
    problem: *const Problem,
    a: *const c_void,
    b: *const c_void,
    c: *const c_void,
    d: *mut c_void,
    stream: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's GEMM is alive, and its problem one that pgemm_problem_init has
        // filled.
        let (handle, given) = unsafe { (handle(gemm)?, read("problem", problem)?) };
        let problem = crate::problem::problem(&given)?;
        let pointers = Pointers::new(a as u64, b as u64, c as u64, d as u64);
        let pointers = pointers.with_bias(given.bias as u64);
        // SAFETY: the caller vouches for matrices and stream.
        unsafe { handle.run(&problem, &pointers, stream) }
    })
}

/// Waits until all work is done that this GEMM was given before, on any stream and by any thread.
/// The streams that it was run on since the last call must still exist, and none may be being
/// captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_sync(gemm: *const Handle) -> Status {
    guarded(|| {
        // SAFETY: the caller's GEMM is alive.
        let handle = unsafe { handle(gemm) }?;
        // SAFETY: the streams exist, as the caller vouches.
        unsafe { handle.sync() }
    })
}

/// Prepares a problem and describes its plan: the kernel, the tiles, their split and order, and the
/// reason. Writes at most capacity bytes including the final zero. If length is not null, the
/// length of the whole text without the zero is written to *length. text may be null if capacity is
/// 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_plan_describe(
    gemm: *const Handle,
    problem: *const Problem,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's GEMM is alive, and its problem one that pgemm_problem_init has
        // filled.
        let (handle, problem) = unsafe { (handle(gemm)?, read_problem(problem)?) };
        let description = handle.describe(&problem)?;
        // SAFETY: the caller gives room for `capacity` bytes, and for the length where it is
        // wanted.
        unsafe { write_text(&description, text, capacity, length) }
    })
}

/// Describes the plan without a GEMM or a GPU, for a device with sm_count multiprocessors. 0 stands
/// for 132, as an H100 SXM or H200 has, and the memory is that of an H200. Results of the
/// autotuner are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_config_describe(
    config: *const Config,
    problem: *const Problem,
    sm_count: u32,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's structs are ones that pgemm_config_init and pgemm_problem_init have
        // filled.
        let (requested, problem) = unsafe { (requested(config)?, read_problem(problem)?) };
        let sms = if sm_count == 0 { USUAL_SMS } else { sm_count };
        let first = first_plan(&problem, &requested.config, sms)?;
        // SAFETY: the caller gives room for `capacity` bytes, and for the length where it is
        // wanted.
        unsafe { write_text(&handle::line(&first), text, capacity, length) }
    })
}

/// Finds the fastest kernel for a problem of the GEMM's types by measuring, and writes it to a
/// results file. An existing file is continued. A GEMM created with this file as autotune_file and
/// without knobs uses the result. At most trials candidates are measured for seconds seconds; 0
/// leaves either to the tuner. The device should be idle otherwise. Fails with
/// PGEMM_ERROR_NOT_SUPPORTED if the library was built without the tuner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_autotune(
    gemm: *const Handle,
    problem: *const Problem,
    trials: u32,
    seconds: f64,
    file: *const c_char,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's GEMM is alive, and its problem one that pgemm_problem_init has
        // filled.
        let (handle, problem) = unsafe { (handle(gemm)?, read_problem(problem)?) };
        // SAFETY: the caller's string ends in a zero.
        let file = unsafe { text("file", file) }?.ok_or_else(|| Failure::null("file"))?;
        tuner::autotune(handle.gemm(), &Request { problem, trials, seconds, file })
    })
}

/// Runs `call` and returns its status. A failure is stored for `pgemm_last_error`. Panics are
/// caught.
fn guarded(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|payload| Err(Failure::panicked(&*payload)));
    match outcome {
        Ok(()) => PGEMM_SUCCESS,
        Err(Failure { status, message }) => {
            failure::remember(message);
            status
        }
    }
}

/// # Safety
/// `gemm` must be null, or come from pgemm_create and not be destroyed while the result is used.
unsafe fn handle<'gemm>(gemm: *const Handle) -> Result<&'gemm Handle, Failure> {
    // SAFETY: as the caller vouches.
    unsafe { gemm.as_ref() }.ok_or_else(|| Failure::null("gemm"))
}

/// # Safety
/// The same as for [`read`], and the config's strings are null or end in a zero.
unsafe fn requested(config: *const Config) -> Result<Requested, Failure> {
    // SAFETY: as the caller vouches.
    let config = unsafe { read("config", config) }?;
    // SAFETY: as the caller vouches.
    let strings = unsafe {
        ConfigStrings {
            split: text("split", config.split)?,
            kernel: text("kernel", config.kernel)?,
            autotune_file: text("autotune_file", config.autotune_file)?,
            epilogue: text("epilogue", config.epilogue)?,
        }
    };
    Requested::new(&config, strings)
}

/// # Safety
/// The same as for [`read`].
unsafe fn read_problem(problem: *const Problem) -> Result<pgemm::Problem, Failure> {
    // SAFETY: as the caller vouches.
    crate::problem::problem(&unsafe { read("problem", problem) }?)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: the message ends in a zero, and no call on this thread comes between.
        unsafe { CStr::from_ptr(pgemm_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn nothing_unwinds() {
        assert_eq!(guarded(|| panic!("at {}", 7)), PGEMM_ERROR_INTERNAL);
        assert_eq!(last(), "a defect of this library: at 7. Please report it");
        assert_eq!(guarded(|| std::panic::panic_any(7)), PGEMM_ERROR_INTERNAL);
        assert!(last().contains("no message"));
        assert_eq!(guarded(|| Ok(())), PGEMM_SUCCESS);
        assert!(last().contains("no message"), "success leaves the message");
    }
}
