//! A release of this library as a contestant, loaded from its shared library through the C
//! interface, so that two releases run in one process on the same operands.

mod abi;

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use persistent_gemm::driver::{Device, StreamRef};
use persistent_gemm::engine::Goal;
use persistent_gemm::measure::{Addresses, Contestant, Elements, MeasureError, OperandSets};
use pgemm_plan::{Major, Precision, Problem};

use self::abi::Api;
use crate::error::{BenchError, Result};

/// The shared library of a release.
#[derive(Clone)]
pub struct Release(Arc<Api>);

/// Knobs with which a release computes a product. The release's planner chooses what is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseKnobs {
    /// The kernel, by its name.
    pub kernel: Option<String>,
    /// How tiles are split along k.
    pub split: Option<String>,
}

impl Release {
    /// Loads `libpersistent_gemm.so` of a release.
    ///
    /// # Errors
    /// [`BenchError::ReleaseNotLoaded`] or [`BenchError::ReleaseSymbol`].
    pub fn open(path: &Path) -> Result<Release> {
        Ok(Release(Arc::new(Api::load(path)?)))
    }

    /// The version that the library states.
    pub fn version(&self) -> String {
        // SAFETY: the function takes nothing and returns a text that lives as long as the library.
        unsafe { CStr::from_ptr((self.0.version)()) }.to_string_lossy().into_owned()
    }

    /// Prepares the problem of `operands` on the same device, without results of the autotuner.
    ///
    /// # Errors
    /// [`BenchError::Release`] with the release's message.
    pub fn contestant(
        &self,
        name: &str,
        device: &Device,
        operands: &Arc<OperandSets>,
        knobs: &ReleaseKnobs,
    ) -> Result<ReleaseContestant> {
        let handle = self.create(device, operands.elements(), knobs)?;
        let problems = (0..operands.count())
            .map(|set| {
                let addresses = operands.addresses(set)?;
                Ok((self.problem(operands.problem(), addresses.bias)?, addresses))
            })
            .collect::<Result<Vec<_>>>()?;
        if let Some((problem, _)) = problems.first() {
            // SAFETY: the handle and the problem are valid.
            let status = unsafe { (self.0.prepare)(handle.raw, problem) };
            self.0.check("pgemm_prepare", status)?;
        }
        Ok(ReleaseContestant {
            name: name.to_owned(),
            handle,
            problems,
            _operands: Arc::clone(operands),
        })
    }

    fn create(&self, device: &Device, elements: Elements, knobs: &ReleaseKnobs) -> Result<Handle> {
        let api = &self.0;
        let text = |text: Option<&str>| {
            text.map(CString::new).transpose().map_err(BenchError::ReleaseText)
        };
        let (kernel, split) = (text(knobs.kernel.as_deref())?, text(knobs.split.as_deref())?);
        let epilogue = text(Some(&elements.epilogue.to_string()))?;
        let pointer =
            |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let mut config = std::mem::MaybeUninit::<abi::Config>::zeroed();
        // SAFETY: the function fills a struct of the given size, and zeros are a valid value of
        // every field.
        let mut config = unsafe {
            api.check(
                "pgemm_config_init",
                (api.config_init)(config.as_mut_ptr(), size_of::<abi::Config>()),
            )?;
            config.assume_init()
        };
        config.dtype_a = abi::dtype(elements.a);
        config.dtype_b = abi::dtype(elements.b);
        config.dtype_c = abi::dtype(elements.d);
        let precision =
            Precision::ALL.iter().position(|&precision| precision == elements.precision);
        // The numbers of precisions follow the order of this list.
        config.precision = precision.unwrap_or(0) as i32;
        config.device = device.properties().ordinal as i32;
        config.kernel = pointer(&kernel);
        config.split = pointer(&split);
        config.epilogue = pointer(&epilogue);
        config.autotune_file = c"off".as_ptr();
        let mut handle =
            Handle { release: self.clone(), raw: ptr::null_mut(), destroy: api.destroy };
        // SAFETY: the texts live until the call returns, which copies them.
        let status = unsafe { (api.create)(&config, &mut handle.raw) };
        api.check("pgemm_create", status)?;
        Ok(handle)
    }

    fn problem(&self, problem: &Problem, bias: u64) -> Result<abi::Problem> {
        let api = &self.0;
        let mut raw = std::mem::MaybeUninit::<abi::Problem>::zeroed();
        // SAFETY: the function fills a struct of the given size, and zeros are a valid value of
        // every field.
        let mut raw = unsafe {
            api.check(
                "pgemm_problem_init",
                (api.problem_init)(raw.as_mut_ptr(), size_of::<abi::Problem>()),
            )?;
            raw.assume_init()
        };
        let layout = |row_major| if row_major { abi::ROW_MAJOR } else { abi::COLUMN_MAJOR };
        [raw.m, raw.n, raw.k] = [problem.m, problem.n, problem.k].map(|extent| extent as i64);
        raw.lda = problem.a.leading_dimension as i64;
        raw.ldb = problem.b.leading_dimension as i64;
        raw.ldc = problem.c_leading_dimension as i64;
        raw.ldd = problem.d_leading_dimension as i64;
        raw.layout_a = layout(problem.a.major == Major::K);
        raw.layout_b = layout(problem.b.major == Major::N);
        raw.layout_c = layout(problem.d_major == Major::N);
        [raw.alpha, raw.beta] = [problem.alpha, problem.beta];
        raw.batch = problem.batch.count as i64;
        raw.batch_stride_a = problem.batch.a as i64;
        raw.batch_stride_b = problem.batch.b as i64;
        raw.batch_stride_c = problem.batch.c as i64;
        raw.batch_stride_d = problem.batch.d as i64;
        raw.bias = bias as *const c_void;
        Ok(raw)
    }

    /// Starts an engine for the problem of `operands`, with a job for each of its sets.
    ///
    /// # Errors
    /// [`BenchError::Release`] with the release's message.
    pub fn engine(
        &self,
        device: &Device,
        operands: &Arc<OperandSets>,
        goal: Goal,
    ) -> Result<ReleaseEngine> {
        let api = &self.0;
        let gemm = self.create(device, operands.elements(), &ReleaseKnobs::default())?;
        let problem = self.problem(operands.problem(), 0)?;
        let mut options = std::mem::MaybeUninit::<abi::EngineOptions>::zeroed();
        // SAFETY: the function fills a struct of the given size, and zeros are a valid value of
        // every field.
        let mut options = unsafe {
            let status =
                (api.engine_options_init)(options.as_mut_ptr(), size_of::<abi::EngineOptions>());
            api.check("pgemm_engine_options_init", status)?;
            options.assume_init()
        };
        options.goal = i32::from(goal == Goal::Latency);
        let mut engine =
            Handle { release: self.clone(), raw: ptr::null_mut(), destroy: api.engine_destroy };
        // SAFETY: the GEMM, the problem and the options are valid.
        let status = unsafe { (api.engine_create)(gemm.raw, &problem, &options, &mut engine.raw) };
        api.check("pgemm_engine_create", status)?;
        let jobs = (0..operands.count()).map(|set| {
            let Addresses { a, b, c, d, .. } = operands.addresses(set)?;
            let mut job =
                Handle { release: self.clone(), raw: ptr::null_mut(), destroy: api.job_destroy };
            // SAFETY: the matrices are on the engine's device and outlive it.
            let status = unsafe {
                (api.job_prepare)(
                    engine.raw,
                    &problem,
                    a as *const c_void,
                    b as *const c_void,
                    c as *const c_void,
                    d as *mut c_void,
                    &mut job.raw,
                )
            };
            api.check("pgemm_job_prepare", status)?;
            Ok(job)
        });
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        Ok(ReleaseEngine { jobs, engine, _gemm: gemm, _operands: Arc::clone(operands) })
    }
}

/// An object created by a function of a release, and destroyed by another one.
struct Handle {
    release: Release,
    raw: *mut c_void,
    destroy: unsafe extern "C" fn(*mut *mut c_void) -> abi::Status,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is null or was made by the matching function, and nobody uses it any
        // more.
        let status = unsafe { (self.destroy)(&mut self.raw) };
        if let Err(error) = self.release.0.check("destroying a handle", status) {
            tracing::warn!(%error, "a handle of a release was not destroyed");
        }
    }
}

/// A prepared problem of a release.
pub struct ReleaseContestant {
    name: String,
    handle: Handle,
    problems: Vec<(abi::Problem, Addresses)>,
    _operands: Arc<OperandSets>,
}

impl ReleaseContestant {
    /// The release's description of its plan, in a few lines.
    ///
    /// # Errors
    /// [`BenchError::Release`] with the release's message.
    pub fn plan(&self) -> Result<String> {
        let api = &self.handle.release.0;
        let Some((problem, _)) = self.problems.first() else { return Ok(String::new()) };
        let mut text = vec![0_u8; 8192];
        // SAFETY: the function writes at most as many bytes as the text has.
        let status = unsafe {
            let text = text.as_mut_ptr().cast();
            (api.plan_describe)(self.handle.raw, problem, text, 8192, ptr::null_mut())
        };
        api.check("pgemm_plan_describe", status)?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Enqueues the product on the operands of a set, as a caller of the C library does.
    ///
    /// # Errors
    /// [`BenchError::Release`] with the release's message.
    pub fn run(&self, set: usize, stream: StreamRef<'_>) -> Result<()> {
        let count = self.problems.len();
        let Some((problem, addresses)) = self.problems.get(set) else {
            return Err(MeasureError::NoSuchSet { requested: set, count }.into());
        };
        let api = &self.handle.release.0;
        let Addresses { a, b, c, d, .. } = *addresses;
        // SAFETY: the operand sets are as the problem says and outlive this contestant; whoever
        // times waits for the stream before they are dropped.
        let status = unsafe {
            (api.run_ex)(
                self.handle.raw,
                problem,
                a as *const c_void,
                b as *const c_void,
                c as *const c_void,
                d as *mut c_void,
                stream.as_raw(),
            )
        };
        api.check("pgemm_run_ex", status)
    }
}

impl Contestant for ReleaseContestant {
    fn name(&self) -> &str {
        &self.name
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({ "version": self.handle.release.version() })
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        Ok(self.run(set, stream)?)
    }
}

/// An engine of a release, with a job for each operand set.
pub struct ReleaseEngine {
    /// Destroyed before the engine.
    jobs: Vec<Handle>,
    engine: Handle,
    _gemm: Handle,
    _operands: Arc<OperandSets>,
}

impl ReleaseEngine {
    /// Submits `count` independent jobs, and waits until they are done.
    ///
    /// # Errors
    /// [`BenchError::Release`] with the release's message.
    pub fn run(&self, count: usize) -> Result<()> {
        let api = &self.engine.release.0;
        let jobs: Vec<*const c_void> =
            (0..count).map(|job| self.jobs[job % self.jobs.len()].raw.cast_const()).collect();
        // SAFETY: engine and jobs are valid; the operand sets outlive them.
        unsafe {
            let status = (api.submit_many)(self.engine.raw, jobs.as_ptr(), count, ptr::null_mut());
            api.check("pgemm_engine_submit_many", status)?;
            api.check("pgemm_engine_drain", (api.drain)(self.engine.raw))
        }
    }
}
