//! `Runner`: a GEMM with knobs on matrices at addresses, as the C++ class is one.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pgemm::driver::{ContextRef, Device};
use pgemm::tune::{Picks, Platform};
use pgemm::{Config, DeviceFacts, Error, Gemm, Major, Pointers, Problem};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Failure, detached};
use crate::source::stream_handle;
use crate::{gemms, knobs, raw};

/// `CU_STREAM_PER_THREAD`: one handle for a stream of each thread's own.
const PER_THREAD: u64 = 2;

/// GEMMs on one device: ``Runner(dtype='tf32', tile_m=256, tile_n=256, tile_k=32).run(A_ptr, B_ptr,
/// C_ptr, M, N, K)``.
///
/// Pointers are addresses of device memory. Matrices are row-major and have no gaps: A is M x K, B
/// is K x N, C is M x N. A tile of None leaves it to the planner, which is faster as a rule.
/// Further keywords are knobs: docs/python.md lists them.
#[pyclass(module = "persistent_gemm", frozen)]
pub struct Runner {
    gemm: Gemm,
    /// Streams with work that was not waited for.
    queued: Mutex<BTreeSet<u64>>,
}

#[pymethods]
impl Runner {
    #[new]
    #[pyo3(signature = (dtype=None, tile_m=Some(256), tile_n=Some(256), tile_k=Some(32), **knobs))]
    fn new(
        py: Python<'_>,
        dtype: Option<&Bound<'_, PyAny>>,
        tile_m: Option<u32>,
        tile_n: Option<u32>,
        tile_k: Option<u32>,
        knobs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Runner> {
        let make = || {
            let tf32 = "tf32".into_pyobject(py).map_err(PyErr::from)?.into_any();
            let requested = knobs::read(dtype.unwrap_or(&tf32), [tile_m, tile_n, tile_k], knobs)?
                .without_bias()?;
            detached(py, || create(requested))
        };
        let gemm = make().map_err(|failure: Failure| failure.raise(py))?;
        Ok(Runner { gemm, queued: Mutex::default() })
    }

    /// Queues C = A*B on the stream and returns at once. A stream of None is the legacy default
    /// stream. A number is a stream's handle. Streams of torch.cuda and cupy.cuda are accepted too.
    /// The first run of a problem plans and compiles.
    #[pyo3(signature = (A_ptr, B_ptr, C_ptr, M, N, K, stream=None))]
    #[expect(non_snake_case, reason = "these are the names that callers write")]
    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn run(
        &self,
        py: Python<'_>,
        A_ptr: u64,
        B_ptr: u64,
        C_ptr: u64,
        M: i64,
        N: i64,
        K: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let queue = || {
            let problem = row_major(M, N, K)?;
            let stream = stream.map_or(Ok(0), stream_handle)?;
            let pointers = Pointers::new(A_ptr, B_ptr, 0, C_ptr);
            detached(py, || {
                // SAFETY: whoever calls gives addresses of such matrices, as the documentation
                // asks.
                Ok(unsafe { raw::run(&self.gemm, &problem, &pointers, stream) }?)
            })?;
            self.queued.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
            Ok(())
        };
        queue().map_err(|failure: Failure| failure.raise(py))
    }

    /// Compiles and loads the kernels of a problem, so that later runs only launch. Required before
    /// the problem is captured into a CUDA graph. Returns None, or the name of a better kernel that
    /// is compiled while another one computes, which happens if the environment variable
    /// PGEMM_COMPILE is 'behind'.
    #[expect(non_snake_case, reason = "these are the names that callers write")]
    fn prepare(&self, py: Python<'_>, M: i64, N: i64, K: i64) -> PyResult<Option<String>> {
        let prepare = || {
            let problem = row_major(M, N, K)?;
            detached(py, || {
                let prepared = self.gemm.prepare(&problem)?;
                Ok(prepared.stand_in_for().map(|better| better.spec.to_string()))
            })
        };
        prepare().map_err(|failure: Failure| failure.raise(py))
    }

    /// Waits until all work is done that was queued by run since the last call. Its streams must
    /// still exist.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let streams =
            std::mem::take(&mut *self.queued.lock().unwrap_or_else(PoisonError::into_inner));
        let wait = || {
            for &stream in &streams {
                if stream == PER_THREAD {
                    // The default stream of another thread has no handle here.
                    self.gemm.sync()?;
                } else {
                    // SAFETY: the stream exists, as the documentation asks.
                    unsafe { raw::wait(self.gemm.device(), stream) }?;
                }
            }
            Ok(())
        };
        detached(py, wait).map_err(|failure| failure.raise(py))
    }

    /// Describes the plan of a problem in one line.
    #[expect(non_snake_case, reason = "these are the names that callers write")]
    fn describe(&self, py: Python<'_>, M: i64, N: i64, K: i64) -> PyResult<String> {
        let describe = || {
            let problem = row_major(M, N, K)?;
            first_plan(&problem, self.gemm.config(), self.gemm.device().properties())
        };
        describe().map_err(|failure: Failure| failure.raise(py))
    }
}

/// Kernels must not be unloaded while they run.
impl Drop for Runner {
    fn drop(&mut self) {
        if !self.queued.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            // Device errors are reported by the calls that wait for results.
            let _ = self.gemm.sync();
        }
    }
}

/// Describes how a GEMM with these knobs would compute a problem, in one line: kernel and plan. No
/// GPU is needed. The keywords are those of Runner. The planner chooses tiles that are not given.
#[pyfunction]
#[pyo3(signature = (M, N, K, dtype=None, tile_m=None, tile_n=None, tile_k=None, *, sm_count=pgemm::USUAL_SMS, **knobs))]
#[expect(non_snake_case, reason = "these are the names that callers write")]
#[expect(clippy::too_many_arguments, reason = "as above")]
pub fn describe(
    py: Python<'_>,
    M: i64,
    N: i64,
    K: i64,
    dtype: Option<&Bound<'_, PyAny>>,
    tile_m: Option<u32>,
    tile_n: Option<u32>,
    tile_k: Option<u32>,
    sm_count: u32,
    knobs: Option<&Bound<'_, PyDict>>,
) -> PyResult<String> {
    let describe = || {
        let tf32 = "tf32".into_pyobject(py).map_err(PyErr::from)?.into_any();
        let requested =
            knobs::read(dtype.unwrap_or(&tf32), [tile_m, tile_n, tile_k], knobs)?.without_bias()?;
        first_plan(&row_major(M, N, K)?, &requested.config, sm_count)
    };
    describe().map_err(|failure: Failure| failure.raise(py))
}

fn first_plan(
    problem: &Problem,
    config: &Config,
    device: impl Into<DeviceFacts>,
) -> Result<String, Failure> {
    let first = pgemm::first_plan(problem, config, device)?;
    Ok(format!("{}: {first}", first.spec))
}

fn row_major(m: i64, n: i64, k: i64) -> Result<Problem, Failure> {
    let extent = |what: &str, requested: i64| {
        let negative =
            |_| Failure::argument(format!("{what} is {requested}: it must be 0 or more"));
        usize::try_from(requested).map_err(negative)
    };
    Ok(Problem::new(extent("M", m)?, extent("N", n)?, extent("K", k)?, Major::K, Major::N))
}

/// The GEMM that keywords ask for.
///
/// # Errors
/// There is no such device, or a file is unusable.
pub fn create(requested: knobs::Requested) -> Result<Gemm, Failure> {
    let knobs::Requested { config, device, autotune_file } = requested;
    let device = match device {
        Some(ordinal) => gemms::device(ordinal)?,
        None => current_or_first()?,
    };
    let Some(path) = autotune_file else { return Ok(Gemm::create(&device, config)?) };
    let picks = picks(path, &Platform::of(device.properties()))?;
    Ok(Gemm::with_picks(&device, config, Arc::new(picks))?)
}

/// The tuned choices at a path of the caller. Unlike files named by the environment, these must be
/// usable.
fn picks(path: String, here: &Platform) -> Result<Picks, Failure> {
    if path == "off" {
        return Ok(Picks::default());
    }
    let path = PathBuf::from(path);
    let (picks, ignored) = Picks::load(&path, here);
    match ignored.into_iter().next() {
        Some(file) if !path.is_dir() => Err(file.why.into()),
        _ => Ok(picks),
    }
}

/// The device of the context that is current on this thread, by its primary context, else device 0.
fn current_or_first() -> Result<Device, Failure> {
    match ContextRef::current() {
        Ok(context) => raw::device_of(context),
        Err(Error::NoCurrentContext) => gemms::device(0),
        Err(error) => Err(error.into()),
    }
}
