//! Finds libcublasLt at run time and declares the fifteen functions and the few constants that the
//! peer needs, from NVIDIA's published ABI. The loaded library lives for the whole process:
//! unloading CUDA libraries is not safe.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cublaslt_facts::CUBLASLT_VARIABLE;
use crate::error::BenchError;

/// Major versions tried, the newest first; the functions used here are the same in all of them.
const VERSIONS: [u32; 3] = [13, 12, 11];

pub(super) type Handle = *mut c_void;
pub(super) type MatmulDesc = *mut c_void;
pub(super) type MatrixLayout = *mut c_void;
pub(super) type Preference = *mut c_void;
pub(super) type Status = c_int;

/// cublasLtMatmulAlgo_t: opaque, 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Algo {
    data: [u64; 8],
}

/// cublasLtMatmulHeuristicResult_t.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeuristicResult {
    pub(super) algo: Algo,
    pub(super) workspace_bytes: usize,
    pub(super) state: Status,
    pub(super) waves: f32,
    reserved: [c_int; 4],
}

/// cudaDataType_t.
pub(super) mod data_type {
    pub(in super::super) const R_32F: c_int = 0;
    pub(in super::super) const R_64F: c_int = 1;
    pub(in super::super) const R_16F: c_int = 2;
    pub(in super::super) const R_8I: c_int = 3;
    pub(in super::super) const R_32I: c_int = 10;
    pub(in super::super) const R_16BF: c_int = 14;
    pub(in super::super) const R_8F_E4M3: c_int = 28;
    pub(in super::super) const R_8F_E5M2: c_int = 29;

    use std::ffi::c_int;
}

/// cublasComputeType_t.
pub(super) mod compute_type {
    pub(in super::super) const F16: c_int = 64;
    pub(in super::super) const F32: c_int = 68;
    pub(in super::super) const F64: c_int = 70;
    pub(in super::super) const I32: c_int = 72;
    pub(in super::super) const F32_FAST_TF32: c_int = 77;

    use std::ffi::c_int;
}

/// cublasLtMatmulDescAttributes_t.
pub(super) mod desc_attribute {
    pub(in super::super) const TRANSPOSE_A: c_int = 3;
    pub(in super::super) const TRANSPOSE_B: c_int = 4;
    /// A cublasLtEpilogue_t.
    pub(in super::super) const EPILOGUE: c_int = 7;
    /// A pointer to as many elements as the library's D has rows.
    pub(in super::super) const BIAS_POINTER: c_int = 8;
    /// This attribute is an int8_t, unlike the others.
    pub(in super::super) const FAST_ACCUMULATION: c_int = 25;

    use std::ffi::c_int;
}

/// cublasLtEpilogue_t: its values are bits.
pub(super) mod epilogue {
    pub(in super::super) const DEFAULT: c_int = 1;
    pub(in super::super) const BIAS: c_int = 4;
    const RELU: c_int = 2;
    const GELU: c_int = 32;

    /// The bits of an activation, or `None` if the library has no such function.
    pub(in super::super) fn activation(wanted: Activation) -> Option<c_int> {
        let all = [(Activation::Relu, RELU), (Activation::Gelu, GELU)];
        all.into_iter().find(|(activation, _)| *activation == wanted).map(|(_, bits)| bits)
    }

    use std::ffi::c_int;

    use pgemm_kernels::Activation;
}

/// cublasLtMatrixLayoutAttribute_t.
pub(super) mod layout_attribute {
    /// An int32_t.
    pub(in super::super) const BATCH_COUNT: c_int = 5;
    /// An int64_t, in elements.
    pub(in super::super) const BATCH_STRIDE: c_int = 6;

    use std::ffi::c_int;
}

/// cublasLtMatmulPreferenceAttributes_t: the workspace limit, a size_t.
pub(super) const PREFERENCE_MAX_WORKSPACE_BYTES: c_int = 1;

/// cublasLtMatmulAlgoConfigAttributes_t.
pub(super) mod config_attribute {
    pub(in super::super) const ALGORITHM_ID: c_int = 0;
    pub(in super::super) const TILE_ID: c_int = 1;
    pub(in super::super) const SPLIT_K: c_int = 2;
    pub(in super::super) const REDUCTION_SCHEME: c_int = 3;
    pub(in super::super) const CTA_SWIZZLING: c_int = 4;
    pub(in super::super) const CUSTOM_OPTION: c_int = 5;
    pub(in super::super) const STAGES_ID: c_int = 6;
    pub(in super::super) const CLUSTER_SHAPE_ID: c_int = 8;

    use std::ffi::c_int;
}

/// Why the library could not be opened. The reason is kept for later calls.
#[derive(Clone, Debug)]
enum LoadFailure {
    NotFound { tried: Vec<PathBuf> },
    NotLoaded { path: PathBuf, cause: String },
    Symbol { path: PathBuf, symbol: &'static str },
}

impl From<LoadFailure> for BenchError {
    fn from(failure: LoadFailure) -> BenchError {
        match failure {
            LoadFailure::NotFound { tried } => BenchError::CublasLtNotFound { tried },
            LoadFailure::NotLoaded { path, cause } => BenchError::CublasLtFile { path, cause },
            LoadFailure::Symbol { path, symbol } => BenchError::CublasLtSymbol { path, symbol },
        }
    }
}

/// Declares [`Api`] and its loader, so that a function's name and type are written once.
macro_rules! api {
    ($($field:ident: $symbol:literal, fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The library's functions.
        #[derive(Debug)]
        pub(super) struct Api {
            /// The file, or the name that the dynamic loader resolved.
            pub(super) path: PathBuf,
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Api {
            fn resolve(path: PathBuf, library: &'static libloading::Library) -> Result<Api, LoadFailure> {
                Ok(Api {
                    $($field: {
                        // SAFETY: the type is the published prototype of this symbol, and the
                        // library is never unloaded.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol.as_bytes())
                        };
                        *symbol.map_err(|_| LoadFailure::Symbol {
                            path: path.clone(),
                            symbol: $symbol,
                        })?
                    },)*
                    path,
                })
            }
        }
    };
}

api! {
    create: "cublasLtCreate", fn(*mut Handle) -> Status;
    destroy: "cublasLtDestroy", fn(Handle) -> Status;
    version: "cublasLtGetVersion", fn() -> usize;
    status_name: "cublasLtGetStatusName", fn(Status) -> *const c_char;
    desc_create: "cublasLtMatmulDescCreate", fn(*mut MatmulDesc, c_int, c_int) -> Status;
    desc_destroy: "cublasLtMatmulDescDestroy", fn(MatmulDesc) -> Status;
    desc_set: "cublasLtMatmulDescSetAttribute", fn(MatmulDesc, c_int, *const c_void, usize) -> Status;
    layout_create: "cublasLtMatrixLayoutCreate", fn(*mut MatrixLayout, c_int, u64, u64, i64) -> Status;
    layout_set: "cublasLtMatrixLayoutSetAttribute", fn(MatrixLayout, c_int, *const c_void, usize) -> Status;
    layout_destroy: "cublasLtMatrixLayoutDestroy", fn(MatrixLayout) -> Status;
    preference_create: "cublasLtMatmulPreferenceCreate", fn(*mut Preference) -> Status;
    preference_destroy: "cublasLtMatmulPreferenceDestroy", fn(Preference) -> Status;
    preference_set: "cublasLtMatmulPreferenceSetAttribute", fn(Preference, c_int, *const c_void, usize) -> Status;
    heuristic: "cublasLtMatmulAlgoGetHeuristic", fn(
        Handle, MatmulDesc, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout, Preference, c_int,
        *mut HeuristicResult, *mut c_int
    ) -> Status;
    config_get: "cublasLtMatmulAlgoConfigGetAttribute", fn(
        *const Algo, c_int, *mut c_void, usize, *mut usize
    ) -> Status;
    matmul: "cublasLtMatmul", fn(
        Handle, MatmulDesc, *const c_void, *const c_void, MatrixLayout, *const c_void, MatrixLayout, *const c_void,
        *const c_void, MatrixLayout, *mut c_void, MatrixLayout, *const Algo, *mut c_void, usize, *mut c_void
    ) -> Status;
}

impl Api {
    /// The process's libcublasLt, found on the first call.
    pub(super) fn get() -> Result<&'static Api, BenchError> {
        static API: OnceLock<Result<Api, LoadFailure>> = OnceLock::new();
        API.get_or_init(Api::load).as_ref().map_err(|failure| failure.clone().into())
    }

    fn load() -> Result<Api, LoadFailure> {
        if let Some(path) = std::env::var_os(CUBLASLT_VARIABLE) {
            return Api::load_file(path.into());
        }
        let mut tried = Vec::new();
        for path in candidates(&SearchEnvironment::of_this_process()) {
            match Api::load_file(path) {
                Err(LoadFailure::NotLoaded { path, .. }) => tried.push(path),
                result => return result,
            }
        }
        Err(LoadFailure::NotFound { tried })
    }

    fn load_file(path: PathBuf) -> Result<Api, LoadFailure> {
        // SAFETY: opening NVIDIA's library runs its initialisers, which have no preconditions.
        match unsafe { libloading::Library::new(&path) } {
            Ok(library) => Api::resolve(path, Box::leak(Box::new(library))),
            Err(error) => Err(LoadFailure::NotLoaded { path, cause: error.to_string() }),
        }
    }
}

/// The folders that a search starts from.
struct SearchEnvironment {
    /// CUDA toolkits.
    toolkits: Vec<PathBuf>,
    /// Roots of Python installations and virtual environments.
    python_roots: Vec<PathBuf>,
}

impl SearchEnvironment {
    fn of_this_process() -> SearchEnvironment {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let mut toolkits: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].into_iter().filter_map(variable).collect();
        toolkits.push(PathBuf::from("/usr/local/cuda"));
        let mut python_roots: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
        // The packages of a Python on the PATH are next to its bin folder.
        if let Some(path) = std::env::var_os("PATH") {
            python_roots.extend(
                std::env::split_paths(&path)
                    .filter(|folder| folder.join("python3").exists())
                    .filter_map(|folder| folder.parent().map(Path::to_path_buf)),
            );
        }
        python_roots.extend(variable("HOME").map(|home| home.join(".local")));
        SearchEnvironment { toolkits, python_roots }
    }

    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for toolkit in &self.toolkits {
            folders.push(toolkit.join("lib64"));
            folders.push(toolkit.join("lib"));
        }
        for root in &self.python_roots {
            folders.push(root.join("lib"));
            for python in subfolders(&root.join("lib")) {
                // <root>/lib/python3.12/site-packages/nvidia/<package>/lib
                for packages in ["site-packages", "dist-packages"] {
                    let nvidia = python.join(packages).join("nvidia");
                    folders
                        .extend(subfolders(&nvidia).into_iter().map(|package| package.join("lib")));
                }
            }
        }
        folders
    }
}

/// Every name to try: for each version, newest first, the dynamic loader's own search and then the
/// folders that have it.
fn candidates(surroundings: &SearchEnvironment) -> Vec<PathBuf> {
    let folders = surroundings.folders();
    let mut candidates = Vec::new();
    for version in VERSIONS {
        let name = format!("libcublasLt.so.{version}");
        candidates.push(PathBuf::from(&name));
        candidates
            .extend(folders.iter().map(|folder| folder.join(&name)).filter(|path| path.exists()));
    }
    candidates
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heuristic_results_have_the_published_size() {
        assert_eq!(size_of::<Algo>(), 64);
        assert_eq!(size_of::<HeuristicResult>(), 96);
        assert_eq!(std::mem::offset_of!(HeuristicResult, waves), 76);
    }

    #[test]
    fn a_file_that_is_no_such_library_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcublasLt.so.13");
        std::fs::write(&path, "not a library").unwrap();
        for path in [path, folder.path().join("missing.so")] {
            let failure = Api::load_file(path.clone()).unwrap_err();
            let error = BenchError::from(failure).to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert!(error.contains("version 11 to 13"), "{error}");
        }
        // A library of another kind: the C library of this process.
        #[cfg(target_os = "linux")]
        {
            let error = BenchError::from(Api::load_file("libc.so.6".into()).unwrap_err());
            assert!(error.to_string().contains("has no function cublasLtCreate"), "{error}");
        }
    }

    #[test]
    fn wheels_and_toolkits_are_searched_newest_first() {
        let root = tempfile::tempdir().unwrap();
        let wheel = root.path().join("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
        let old_wheel = root.path().join("venv/lib/python3.12/site-packages/nvidia/cublas/lib");
        let toolkit = root.path().join("cuda/lib64");
        for (folder, version) in [(&wheel, 13), (&old_wheel, 12), (&toolkit, 12)] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(format!("libcublasLt.so.{version}")), b"").unwrap();
        }
        let surroundings = SearchEnvironment {
            toolkits: vec![root.path().join("cuda")],
            python_roots: vec![root.path().join("venv")],
        };
        assert_eq!(
            candidates(&surroundings),
            [
                PathBuf::from("libcublasLt.so.13"),
                wheel.join("libcublasLt.so.13"),
                PathBuf::from("libcublasLt.so.12"),
                toolkit.join("libcublasLt.so.12"),
                old_wheel.join("libcublasLt.so.12"),
                PathBuf::from("libcublasLt.so.11"),
            ]
        );
    }
}
