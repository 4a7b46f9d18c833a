//! Problems that are prepared before they are needed.

use std::ffi::c_void;

use super::memory::{self, read};
use super::{Handle, guarded, handle};
use crate::abi::{Problem, Progress, Status, WarmUpResult};
use crate::failure::Failure;

/// Sets all fields of the result of a warm-up to their defaults. size is
/// sizeof(pgemm_warm_up_result).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_warm_up_result_init(
    result: *mut WarmUpResult,
    size: usize,
) -> Status {
    // SAFETY: the caller gives an address to which `size` bytes can be written.
    guarded(|| unsafe { memory::initialise("result", result, size) })
}

/// Prepares count problems, as pgemm_prepare does for one, so that their first runs only launch.
/// Kernels that have to be compiled are compiled in several processes if the command pgemm is on
/// PATH or named by the environment variable PGEMM_PROGRAM. If progress is not null,
/// progress(done, all, context) is called before each problem that was not prepared yet, and at the
/// end. problems may be null if count is 0. What was done is written to *result, which may be null;
/// after a failure its numbers are 0, and the problems before the one that failed are prepared. The
/// GEMM remembers its last 4096 problems.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgemm_warm_up(
    gemm: *const Handle,
    problems: *const Problem,
    count: usize,
    progress: Progress,
    context: *mut c_void,
    result: *mut WarmUpResult,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's result is null, or one that pgemm_warm_up_result_init has filled.
        unsafe { memory::replace("result", result, &WarmUpResult::default()) }?;
        // SAFETY: the caller's GEMM is alive, and the address that of so many problems, each of
        // which pgemm_problem_init has filled.
        let (handle, problems) = unsafe { (handle(gemm)?, read_problems(problems, count)?) };
        let warm = handle.gemm().warm_up(&problems, |done, all| {
            if let Some(progress) = progress {
                // SAFETY: the caller gives a function that may be called so on this thread.
                unsafe { progress(done, all, context) };
            }
        })?;
        let (problems, kernels, assembled) = (warm.problems, warm.kernels, warm.assembled);
        let done = WarmUpResult { problems, kernels, assembled, ..WarmUpResult::default() };
        // SAFETY: as above.
        unsafe { memory::replace("result", result, &done) }
    })
}

/// The caller's problems. They are as far apart as the first one says, since the structs of the
/// caller's header may be smaller or larger than this library's.
///
/// # Safety
/// `problems` must be null or the address of `count` structs, which are as for [`read`].
unsafe fn read_problems(
    problems: *const Problem,
    count: usize,
) -> Result<Vec<pgemm::Problem>, Failure> {
    if count == 0 {
        return Ok(vec![]);
    }
    if problems.is_null() {
        return Err(Failure::null("problems"));
    }
    // SAFETY: the size comes first.
    let size = unsafe { problems.cast::<usize>().read_unaligned() };
    let at = |index: usize| {
        // SAFETY: the sizes of the problems before have been checked to be those of the first, so
        // this one is within the caller's array.
        let problem = unsafe { problems.byte_add(index * size) };
        // SAFETY: as above; the size comes first.
        let own = unsafe { problem.cast::<usize>().read_unaligned() };
        if own != size {
            return Err(Failure::argument(format!(
                "it says that it has {own} bytes, and problems[0] has {size}: call \
                 pgemm_problem_init(&problems[i], sizeof problems[i]) for each"
            )));
        }
        // SAFETY: as the caller vouches.
        crate::problem::problem(&unsafe { read("it", problem) }?)
    };
    let named = |index: usize| {
        at(index).map_err(|Failure { status, message }| Failure {
            status,
            message: format!("problems[{index}]: {message}"),
        })
    };
    (0..count).map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{PGEMM_ERROR_INVALID_ARGUMENT, PGEMM_SAME};

    /// A problem as a later header has it.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct LaterProblem {
        problem: Problem,
        more: [u64; 2],
    }

    fn of(m: i64, n: i64, k: i64) -> Problem {
        Problem { m, n, k, ..Problem::default() }
    }

    fn found(problems: &[Problem]) -> Result<Vec<pgemm::Problem>, Failure> {
        // SAFETY: so many are there.
        unsafe { read_problems(problems.as_ptr(), problems.len()) }
    }

    #[test]
    fn all_problems_are_read() {
        let batch = Problem { batch: 3, batch_stride_b: PGEMM_SAME, ..of(7, 8, 9) };
        let problems = [of(1, 2, 3), batch, of(4, 5, 6)];
        let expected = problems.map(|problem| crate::problem::problem(&problem).unwrap());
        assert_eq!(found(&problems).unwrap(), expected);
        // Those of a later header are farther apart.
        let later = problems.map(|problem| {
            let struct_size = size_of::<LaterProblem>();
            LaterProblem { problem: Problem { struct_size, ..problem }, more: [0; 2] }
        });
        // SAFETY: so many are there, as far apart as the first one says.
        let read = unsafe { read_problems(later.as_ptr().cast(), later.len()) };
        assert_eq!(read.unwrap(), expected);
        // SAFETY: there are none.
        assert!(unsafe { read_problems(std::ptr::null(), 0) }.unwrap().is_empty());
    }

    #[test]
    fn the_problem_that_is_wrong_is_named() {
        let size = size_of::<Problem>();
        let zeros = Problem { struct_size: 0, ..of(1, 1, 1) };
        for (problems, part) in [
            ([of(1, 1, 1), of(1, -2, 1)], "problems[1]: n is -2".to_owned()),
            ([zeros, of(1, 1, 1)], "problems[0]: it says that it has 0 bytes".to_owned()),
            (
                [of(1, 1, 1), zeros],
                format!("problems[1]: it says that it has 0 bytes, and problems[0] has {size}"),
            ),
        ] {
            let failure = found(&problems).unwrap_err();
            assert_eq!(failure.status, PGEMM_ERROR_INVALID_ARGUMENT);
            assert!(failure.message.contains(&part), "{failure:?}");
        }
        // SAFETY: null is refused.
        let failure = unsafe { read_problems(std::ptr::null(), 1) }.unwrap_err();
        assert!(failure.message.contains("problems is null"), "{failure:?}");
    }
}
