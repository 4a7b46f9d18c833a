//! The part of a release's C interface that measuring needs: structs, numbers and functions as
//! `persistent_gemm.h` of version 0.1 declares them. Later versions only append fields to structs,
//! and distinguish versions by `struct_size`.

use std::ffi::{CStr, c_char, c_void};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;
use persistent_gemm::Error;
use pgemm_ir::Element;

use crate::error::BenchError;

/// `pgemm_status`; 0 is success.
pub(super) type Status = i32;

/// `PGEMM_ROW_MAJOR` and `PGEMM_COLUMN_MAJOR`.
pub(super) const ROW_MAJOR: i32 = 0;
pub(super) const COLUMN_MAJOR: i32 = 1;

/// Element types in the order of their numbers, which begin with 1.
const DTYPES: [Element; 10] = [
    Element::F16,
    Element::Bf16,
    Element::F32,
    Element::Tf32,
    Element::F64,
    Element::E4m3,
    Element::E5m2,
    Element::S8,
    Element::U8,
    Element::S32,
];

/// The number of an element type; 0, "unspecified", for a type that is not the type of a matrix.
pub(super) fn dtype(element: Element) -> i32 {
    let place = DTYPES.iter().position(|&dtype| dtype == element);
    place.map_or(0, |place| place as i32 + 1)
}

/// `pgemm_config`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Config {
    pub(super) struct_size: usize,
    pub(super) dtype_a: i32,
    pub(super) dtype_b: i32,
    pub(super) dtype_c: i32,
    pub(super) precision: i32,
    pub(super) tile_m: u32,
    pub(super) tile_n: u32,
    pub(super) tile_k: u32,
    pub(super) persistent: i32,
    pub(super) cluster_m: u32,
    pub(super) cluster_n: u32,
    pub(super) warps_per_block: u32,
    pub(super) prefetch_depth: u32,
    pub(super) raster_rows: u32,
    pub(super) schedule: i32,
    pub(super) swapped: i32,
    pub(super) unordered: i32,
    pub(super) dependent_launch: i32,
    pub(super) sms: u32,
    pub(super) device: i32,
    pub(super) split: *const c_char,
    pub(super) kernel: *const c_char,
    pub(super) autotune_file: *const c_char,
    pub(super) epilogue: *const c_char,
}

/// `pgemm_problem`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Problem {
    pub(super) struct_size: usize,
    pub(super) m: i64,
    pub(super) n: i64,
    pub(super) k: i64,
    pub(super) lda: i64,
    pub(super) ldb: i64,
    pub(super) ldc: i64,
    pub(super) ldd: i64,
    pub(super) layout_a: i32,
    pub(super) layout_b: i32,
    pub(super) layout_c: i32,
    pub(super) alpha: f64,
    pub(super) beta: f64,
    pub(super) batch: i64,
    pub(super) batch_stride_a: i64,
    pub(super) batch_stride_b: i64,
    pub(super) batch_stride_c: i64,
    pub(super) batch_stride_d: i64,
    pub(super) bias: *const c_void,
}

/// `pgemm_engine_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct EngineOptions {
    pub(super) struct_size: usize,
    pub(super) goal: i32,
    pub(super) sms: u32,
    pub(super) idle_microseconds: u64,
    pub(super) watchdog_microseconds: u64,
}

/// Declares [`Api`] and its loader, so that the name and type of a function are written once.
macro_rules! api {
    ($($field:ident: $symbol:literal, fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of a release. The library is never unloaded, because its threads may
        /// outlive its handles.
        pub(super) struct Api {
            pub(super) path: PathBuf,
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Api {
            pub(super) fn load(path: &Path) -> Result<Api, BenchError> {
                // The dynamic loader does not look for a name without a folder in the current
                // folder.
                let file = fs::canonicalize(path)
                    .map_err(|source| Error::Io { path: path.to_owned(), source })?;
                // SAFETY: a library of this project has no initialisers that require anything.
                let library = unsafe { Library::new(file) }
                    .map_err(|source| BenchError::ReleaseNotLoaded { path: path.to_owned(), source })?;
                let library: &'static Library = Box::leak(Box::new(library));
                Ok(Api {
                    $($field: {
                        // SAFETY: the type is the prototype of this symbol in persistent_gemm.h.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol.as_bytes())
                        };
                        *symbol.map_err(|_| BenchError::ReleaseSymbol { path: path.to_owned(), symbol: $symbol })?
                    },)*
                    path: path.to_owned(),
                })
            }
        }
    };
}

api! {
    version: "pgemm_version", fn() -> *const c_char;
    last_error: "pgemm_last_error", fn() -> *const c_char;
    config_init: "pgemm_config_init", fn(*mut Config, usize) -> Status;
    problem_init: "pgemm_problem_init", fn(*mut Problem, usize) -> Status;
    create: "pgemm_create", fn(*const Config, *mut *mut c_void) -> Status;
    destroy: "pgemm_destroy", fn(*mut *mut c_void) -> Status;
    prepare: "pgemm_prepare", fn(*const c_void, *const Problem) -> Status;
    run_ex: "pgemm_run_ex", fn(
        *const c_void, *const Problem, *const c_void, *const c_void, *const c_void, *mut c_void, *mut c_void
    ) -> Status;
    plan_describe: "pgemm_plan_describe", fn(*const c_void, *const Problem, *mut c_char, usize, *mut usize) -> Status;
    engine_options_init: "pgemm_engine_options_init", fn(*mut EngineOptions, usize) -> Status;
    engine_create: "pgemm_engine_create", fn(
        *const c_void, *const Problem, *const EngineOptions, *mut *mut c_void
    ) -> Status;
    engine_destroy: "pgemm_engine_destroy", fn(*mut *mut c_void) -> Status;
    job_prepare: "pgemm_job_prepare", fn(
        *const c_void, *const Problem, *const c_void, *const c_void, *const c_void, *mut c_void, *mut *mut c_void
    ) -> Status;
    job_destroy: "pgemm_job_destroy", fn(*mut *mut c_void) -> Status;
    submit_many: "pgemm_engine_submit_many", fn(*const c_void, *const *const c_void, usize, *mut u64) -> Status;
    drain: "pgemm_engine_drain", fn(*const c_void) -> Status;
}

impl Api {
    /// Converts a status into a result, with the library's own message.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), BenchError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes nothing and returns a text that is valid until the next
        // failure on this thread.
        let message = unsafe { CStr::from_ptr((self.last_error)()) };
        let message = message.to_string_lossy().into_owned();
        Err(BenchError::Release { path: self.path.clone(), call, message })
    }
}
