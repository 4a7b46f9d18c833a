//! The peer: cuBLASLt, loaded at run time. The library works with column-major matrices, so a
//! row-major D is computed as its transpose, `Dᵀ = Bᵀ·Aᵀ`. A row-major matrix read as column-major
//! *is* its transpose, so nothing is copied.

mod descriptors;
mod library;
mod types;

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use persistent_gemm::driver::{Device, DeviceBuffer, StreamRef};
use persistent_gemm::measure::{Addresses, Elements};
use pgemm_kernels::{Activation, BiasAlong, Epilogue};
use pgemm_plan::{Major, Precision, Problem};

use self::descriptors::{Desc, Layout, PreferenceGuard};
use self::library::{Algo, Api, Handle, HeuristicResult, Status, config_attribute, desc_attribute};
use self::types::{Scalars, Types};
use crate::cublaslt_facts::{CublasLtCandidate, CublasLtVersion, WORKSPACE_BYTES};
use crate::error::{BenchError, Result};

/// Number of algorithms requested from the heuristic. On Hopper it usually returns 8.
const REQUESTED_ALGORITHMS: usize = 64;

/// An open cuBLASLt with its workspace. One is enough for all problems on a device; work that uses
/// it must stay on one stream, because plans share the workspace.
#[derive(Debug)]
pub struct CublasLt {
    session: Arc<Session>,
}

#[derive(Debug)]
struct Session {
    api: &'static Api,
    handle: Handle,
    device: Device,
    workspace: DeviceBuffer,
}

// SAFETY: NVIDIA documents cuBLASLt handles as usable from several host threads.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl CublasLt {
    /// Finds and opens the library on `device`, and allocates the workspace.
    ///
    /// # Errors
    /// [`BenchError::CublasLtNotFound`] with every place that was searched,
    /// [`BenchError::CublasLt`] if the library refuses the device, or driver errors.
    pub fn open(device: &Device) -> Result<CublasLt> {
        let api = Api::get()?;
        let workspace = DeviceBuffer::new(device, WORKSPACE_BYTES)?;
        let _current = device.enter()?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: `handle` is a valid place for the result, and the device's context is current.
        check(api, "cublasLtCreate", unsafe { (api.create)(&mut handle) })?;
        Ok(CublasLt {
            session: Arc::new(Session { api, handle, device: device.clone(), workspace }),
        })
    }

    /// The library's version.
    pub fn version(&self) -> CublasLtVersion {
        // SAFETY: the function takes nothing and only returns a constant.
        CublasLtVersion::of(unsafe { (self.session.api.version)() })
    }

    /// The path of the library.
    pub fn path(&self) -> &std::path::Path {
        &self.session.api.path
    }

    /// Asks the heuristic for algorithms for `problem`. The library has these parts of epilogues: a
    /// bias along the contiguous dimension of D (at the address `bias`), relu, and gelu in its tanh
    /// form. It has no silu. [`CublasLtPlan::epilogue`] returns the parts that are computed.
    ///
    /// # Errors
    /// [`BenchError::CublasLtTypes`] or [`BenchError::CublasLtScalar`] for types and scalars that
    /// the library does not offer, [`BenchError::CublasLtNoAlgorithm`] if the heuristic finds
    /// nothing, [`BenchError::CublasLt`] if a call fails.
    pub fn plan(&self, problem: &Problem, elements: Elements, bias: u64) -> Result<CublasLtPlan> {
        problem.validate()?;
        let api = self.session.api;
        let requested = (problem, elements);
        // A column-major D is the row-major one of the transposed problem.
        let transposed = problem.d_major == Major::M;
        let (problem, elements) = match transposed {
            true => (&problem.transposed(), Elements { a: elements.b, b: elements.a, ..elements }),
            false => (problem, elements),
        };
        let types = Types::of(elements, problem.beta != 0.0)?;
        let scalars = types.scale.scalars(problem)?;
        let (m, n, k) = (extent("m", problem.m)?, extent("n", problem.n)?, extent("k", problem.k)?);

        let desc = Desc::new(api, types.compute, types.scale.data_type())?;
        // The library's A is Bᵀ (n×k) and its B is Aᵀ (k×m). K-major operands lie column-major as
        // k×n and k×m.
        desc.set(desc_attribute::TRANSPOSE_A, c_int::from(problem.b.major == Major::K))?;
        desc.set(desc_attribute::TRANSPOSE_B, c_int::from(problem.a.major == Major::M))?;
        if elements.a.is_float8() && elements.precision == Precision::Fast {
            desc.accumulate_fast()?;
        }
        let fused = fused(if transposed {
            requested.1.epilogue.transposed()
        } else {
            requested.1.epilogue
        });
        if !fused.is_none() {
            desc.fuse(fused, bias)?;
        }
        let (b_rows, b_columns) = if problem.b.major == Major::K { (k, n) } else { (n, k) };
        let (a_rows, a_columns) = if problem.a.major == Major::M { (m, k) } else { (k, m) };
        let b = Layout::new(api, types.b, b_rows, b_columns, problem.b.leading_dimension)?;
        let a = Layout::new(api, types.a, a_rows, a_columns, problem.a.leading_dimension)?;
        let c = Layout::new(api, types.c, n, m, problem.c_leading_dimension)?;
        let d = Layout::new(api, types.d, n, m, problem.d_leading_dimension)?;
        let batch = problem.batch.normalised();
        if !batch.is_one() {
            for (layout, stride) in [(&a, batch.a), (&b, batch.b), (&c, batch.c), (&d, batch.d)] {
                layout.set_batch(batch.count, stride)?;
            }
        }

        let mut plan = CublasLtPlan {
            session: Arc::clone(&self.session),
            transposed,
            epilogue: if transposed { fused.transposed() } else { fused },
            without_c: types.c != types.d,
            desc,
            a,
            b,
            c,
            d,
            scalars,
            algos: Vec::new(),
            candidates: Vec::new(),
        };
        plan.ask_heuristic()?;
        if plan.candidates.is_empty() {
            let (problem, elements) = (Box::new(*requested.0), requested.1);
            return Err(BenchError::CublasLtNoAlgorithm { problem, elements });
        }
        Ok(plan)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: destroyed once; every plan holds this session, so none is left.
            let status = unsafe { (self.api.destroy)(self.handle) };
            if status != 0 {
                tracing::warn!(status, "cublasLtDestroy failed");
            }
        }
    }
}

/// One problem, ready to run with any of the heuristic's algorithms.
#[derive(Debug)]
pub struct CublasLtPlan {
    session: Arc<Session>,
    /// A and B are exchanged.
    transposed: bool,
    epilogue: Epilogue,
    /// C is of another type than D, and not read.
    without_c: bool,
    desc: Desc,
    a: Layout,
    b: Layout,
    c: Layout,
    d: Layout,
    scalars: Scalars,
    algos: Vec<(Algo, usize)>,
    candidates: Vec<CublasLtCandidate>,
}

// SAFETY: descriptors and layouts are plain data behind opaque pointers, written only while the
// plan is made.
unsafe impl Send for CublasLtPlan {}
// SAFETY: as above.
unsafe impl Sync for CublasLtPlan {}

impl CublasLtPlan {
    /// The heuristic's algorithms, its first pick first.
    pub fn candidates(&self) -> &[CublasLtCandidate] {
        &self.candidates
    }

    /// The part of the requested epilogue that the plan computes.
    pub fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    /// The allowed difference between the library's tanh form of gelu and the exact one: 5e-4 for
    /// the formula, and the error of an approximate tanh with 11 bits.
    pub fn slack(&self) -> f64 {
        let is_gelu = self.epilogue.activation() == Some(Activation::Gelu);
        if is_gelu { 3e-3 } else { 0.0 }
    }

    /// Enqueues the product with candidate `rank` on `stream`.
    ///
    /// # Safety
    /// `addresses` must be device memory of this plan's device that holds matrices of the plan's
    /// layouts and types, and must stay alive until the stream has passed the work. All of a
    /// session's work must be on one stream at a time.
    ///
    /// # Errors
    /// [`BenchError::NoSuchCandidate`], or [`BenchError::CublasLt`] if the launch fails.
    pub unsafe fn enqueue(
        &self,
        rank: usize,
        addresses: &Addresses,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let Some((algo, workspace_bytes)) = self.algos.get(rank) else {
            let count = self.algos.len();
            return Err(BenchError::NoSuchCandidate { requested: rank, count });
        };
        let session = &self.session;
        let _current = session.device.enter()?;
        let (alpha, beta) = self.scalars.pointers();
        let Addresses { a, b, c, d, .. } = *addresses;
        let (a, b) = if self.transposed { (b, a) } else { (a, b) };
        let c = if self.without_c { 0 } else { c };
        // SAFETY: descriptors, layouts and scalars live in `self`; the workspace is at least as
        // large as the heuristic was told; the caller vouches for the matrices. C is given even
        // where beta is 0: the library wants an address, unless C has another type than D, whose
        // place it would be.
        let status = unsafe {
            (session.api.matmul)(
                session.handle,
                self.desc.raw,
                alpha,
                b as *const c_void,
                self.b.raw,
                a as *const c_void,
                self.a.raw,
                beta,
                c as *const c_void,
                self.c.raw,
                d as *mut c_void,
                self.d.raw,
                algo,
                session.workspace.address() as *mut c_void,
                (*workspace_bytes).min(WORKSPACE_BYTES),
                stream.as_raw(),
            )
        };
        check(session.api, "cublasLtMatmul", status)?;
        Ok(())
    }

    fn ask_heuristic(&mut self) -> Result<(), BenchError> {
        let api = self.session.api;
        let preference = PreferenceGuard::new(api)?;
        preference.set_workspace(WORKSPACE_BYTES)?;
        let mut results = vec![HeuristicResult::default(); REQUESTED_ALGORITHMS];
        let mut returned: c_int = 0;
        // SAFETY: `results` has the number of places that is passed, and everything else is alive.
        let status = unsafe {
            (api.heuristic)(
                self.session.handle,
                self.desc.raw,
                self.b.raw,
                self.a.raw,
                self.c.raw,
                self.d.raw,
                preference.raw,
                REQUESTED_ALGORITHMS as c_int,
                results.as_mut_ptr(),
                &mut returned,
            )
        };
        // The library reports "nothing found" as an error. The caller recognises it by the empty
        // list.
        if status != NOT_SUPPORTED {
            check(api, "cublasLtMatmulAlgoGetHeuristic", status)?;
        }
        let usable = results
            .iter()
            .take(usize::try_from(returned).unwrap_or(0))
            .filter(|result| result.state == 0 && result.workspace_bytes <= WORKSPACE_BYTES);
        for result in usable {
            let get = |attribute| config(api, &result.algo, attribute);
            self.candidates.push(CublasLtCandidate {
                rank: self.algos.len(),
                algorithm_id: get(config_attribute::ALGORITHM_ID),
                tile_id: get(config_attribute::TILE_ID),
                stages_id: get(config_attribute::STAGES_ID),
                split_k: get(config_attribute::SPLIT_K),
                reduction_scheme: get(config_attribute::REDUCTION_SCHEME),
                cta_swizzling: get(config_attribute::CTA_SWIZZLING),
                custom_option: get(config_attribute::CUSTOM_OPTION),
                cluster_shape_id: get(config_attribute::CLUSTER_SHAPE_ID),
                workspace_bytes: result.workspace_bytes as u64,
                waves: result.waves,
            });
            self.algos.push((result.algo, result.workspace_bytes));
        }
        Ok(())
    }
}

/// The part of an epilogue that the library has for a row-major D: a bias along n, relu, gelu.
fn fused(requested: Epilogue) -> Epilogue {
    let bias = requested.bias().filter(|along| *along == BiasAlong::N);
    let activation =
        requested.activation().filter(|wanted| library::epilogue::activation(*wanted).is_some());
    let with_bias = bias.map_or(Epilogue::NONE, |along| Epilogue::NONE.with_bias(along));
    activation.map_or(with_bias, |activation| with_bias.with_activation(activation))
}

/// CUBLAS_STATUS_NOT_SUPPORTED.
const NOT_SUPPORTED: Status = 15;

fn check(api: &Api, call: &'static str, status: Status) -> Result<(), BenchError> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the function returns a static zero-terminated string for every status.
    let name = unsafe {
        let name = (api.status_name)(status);
        if name.is_null() {
            String::from("an unknown status")
        } else {
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    };
    let what_to_do = match status {
        1 => "the driver may be older than the library; install a matching pair",
        3 => "free device memory",
        7 | NOT_SUPPORTED => "the library lacks this combination of types, layout and alignment",
        8 => "the library lacks this GPU",
        13 | 14 => "an earlier kernel may have failed; run under compute-sanitizer",
        _ => "see CUBLASLT_LOG_LEVEL in NVIDIA's documentation for the library's own log",
    };
    Err(BenchError::CublasLt { call, status, name, what_to_do })
}

fn extent(what: &'static str, value: usize) -> Result<u64, BenchError> {
    i64::try_from(value)
        .map(|value| value as u64)
        .map_err(|_| BenchError::CublasLtExtent { what, value })
}

/// A configuration attribute, each of which is 16 or 32 bits wide, or `None` if the library does
/// not know it.
fn config(api: &Api, algo: &Algo, attribute: c_int) -> Option<u32> {
    let mut value = 0u32;
    let mut written = 0usize;
    for bytes in [size_of::<u32>(), size_of::<u16>()] {
        // SAFETY: `value` has room for `bytes` bytes and is zero above them.
        let status = unsafe {
            (api.config_get)(algo, attribute, (&raw mut value).cast(), bytes, &mut written)
        };
        if status == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_librarys_number() {
        assert_eq!(CublasLtVersion::of(120_805).to_string(), "12.8.5");
        assert_eq!(CublasLtVersion::of(130_100).to_string(), "13.1.0");
    }
}
