//! [`BenchError`]: the error type of this crate.

mod parts;

use std::path::PathBuf;

use persistent_gemm::error::FileDamage;
use persistent_gemm::host::BackendKind;
use persistent_gemm::measure::{Elements, MeasureError};
use persistent_gemm::{Error, MatrixError, NumericsError, Problem};
use pgemm_ir::Element;
use pgemm_plan::PlanError;
use pgemm_ptx::EmitError;

use self::parts::listed;
pub use self::parts::{FamilyError, SurveyLimit};
use crate::names::problem_name;
use crate::worker::WorkerError;

/// The result type of this crate.
pub type Result<T, E = BenchError> = std::result::Result<T, E>;

/// Why a benchmark gave no number.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// cuBLASLt is requested, but the backend uses no device.
    #[error(
        "cuBLASLt runs on a GPU, and the backend is {backend}: leave it out, or use the cuda \
         backend"
    )]
    PeerWithoutDevice {
        /// The backend.
        backend: BackendKind,
    },

    /// The bits of kernels are to be compared, and the backend has none.
    #[error(
        "the backend {backend} has no kernels to compare: use the cuda or the emulator backend"
    )]
    NoKernels {
        /// The backend.
        backend: BackendKind,
    },

    /// A name that is no population.
    #[error("unknown population '{text}': use one of {}", known.join(", "))]
    UnknownPopulation {
        /// The text.
        text: String,
        /// The names of all populations.
        known: Vec<&'static str>,
    },

    /// A name that is no peer.
    #[error("unknown peer '{text}': use one or more of {}", known.join(", "))]
    UnknownPeer {
        /// The text.
        text: String,
        /// The names of all peers.
        known: Vec<&'static str>,
    },

    /// A row names a problem in a way that is not known.
    #[error(
        "'{name}' is not the name of a problem that can be computed again: it should be one that \
         `pgemm atlas` wrote, of the types of its file, with extents and batch of at least 1"
    )]
    ProblemName {
        /// The name.
        name: String,
    },

    /// A file names a library that takes no part.
    #[error("{name} takes no part, so its results are not computed again: install it")]
    NoSuchLibrary {
        /// The name.
        name: String,
    },

    /// There is no Python, or no torch that it can use.
    #[error(
        "torch takes no part: {cause}. Set PGEMM_PYTHON to a Python 3 that has torch with CUDA, or \
         leave torch out of the peers"
    )]
    NoTorch {
        /// What is missing.
        cause: Box<WorkerError>,
    },

    /// Another process does not do what it was asked for.
    #[error(transparent)]
    Worker(#[from] WorkerError),

    /// A program without peers.
    #[error(
        "this program was built without peers: build pgemm-bench with its feature peers, or leave \
         the comparison out"
    )]
    NoPeers,

    /// libcublasLt was not found.
    #[error(
        "libcublasLt was not found, looked for as {}. Install cuBLAS 11 or later (for example `pip \
         install nvidia-cublas`), or set PGEMM_CUBLASLT to the library's file",
        listed(tried)
    )]
    CublasLtNotFound {
        /// Every name that was tried.
        tried: Vec<PathBuf>,
    },

    /// The file that the user names cannot be loaded.
    #[error(
        "PGEMM_CUBLASLT names {path}, which cannot be loaded: {cause}. Set it to the file of \
         libcublasLt.so, version 11 to 13, or leave it out to search for one"
    )]
    CublasLtFile {
        /// The file.
        path: PathBuf,
        /// The error of the dynamic loader.
        cause: String,
    },

    /// The library lacks a function.
    #[error(
        "{path} has no function {symbol}: it is no cuBLASLt 11 to 13. Set PGEMM_CUBLASLT to one \
         that is"
    )]
    CublasLtSymbol {
        /// The library.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },

    /// A cuBLASLt call failed.
    #[error("{call} failed with {name} (status {status}): {what_to_do}")]
    CublasLt {
        /// The function.
        call: &'static str,
        /// Its cublasStatus_t.
        status: i32,
        /// The status's name.
        name: String,
        /// Advice for the user.
        what_to_do: &'static str,
    },

    /// cuBLASLt has no such product.
    #[error("cuBLASLt does not compute {a} × {b} → {d} like this: {limit}")]
    CublasLtTypes {
        /// Element of A.
        a: Element,
        /// Element of B.
        b: Element,
        /// Element of C and D.
        d: Element,
        /// The combinations that the library offers, and advice.
        limit: &'static str,
    },

    /// A scalar that does not fit the type in which the library adds up (integers or f16).
    #[error(
        "{scalar} = {value} is not {wanted}, and cuBLASLt's products of this kind take no other: \
         round it"
    )]
    CublasLtScalar {
        /// `alpha` or `beta`.
        scalar: &'static str,
        /// Its value.
        value: f64,
        /// The allowed values.
        wanted: &'static str,
    },

    /// The heuristic returned nothing.
    #[error(
        "cuBLASLt has no algorithm for {}: compare without this peer, or change layout or types",
        problem_name(problem, *elements)
    )]
    CublasLtNoAlgorithm {
        /// The problem.
        problem: Box<Problem>,
        /// Its element types.
        elements: Elements,
    },

    /// An algorithm that does not exist.
    #[error("there is no cuBLASLt candidate {requested}: the heuristic returned {count}")]
    NoSuchCandidate {
        /// The index requested.
        requested: usize,
        /// The number that exists.
        count: usize,
    },

    /// An extent exceeds what cuBLASLt takes.
    #[error("{what} = {value} exceeds the 63 bits that cuBLASLt takes: use a smaller problem")]
    CublasLtExtent {
        /// The extent's name.
        what: &'static str,
        /// Its value.
        value: usize,
    },

    /// The shared library of a release cannot be loaded.
    #[cfg(feature = "peers")]
    #[error(
        "{path} cannot be loaded as a release of persistent-gemm: {source}. Give the path of its \
         libpersistent_gemm.so"
    )]
    ReleaseNotLoaded {
        /// The file.
        path: PathBuf,
        /// The error of the dynamic loader.
        source: libloading::Error,
    },

    /// The shared library lacks a function.
    #[error(
        "{path} has no function {symbol}: it is not libpersistent_gemm.so of version 0.1 or later"
    )]
    ReleaseSymbol {
        /// The file.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },

    /// A function of a release failed.
    #[error("{call} of {path} failed: {message}")]
    Release {
        /// The release's library.
        path: PathBuf,
        /// The function.
        call: &'static str,
        /// The text of `pgemm_last_error`.
        message: String,
    },

    /// A knob that cannot be a C string.
    #[error("a knob of a release holds a zero byte, which ends a text in C: leave it out")]
    ReleaseText(#[source] std::ffi::NulError),

    /// A burst that is no time.
    #[error(
        "{requested} seconds for a choice are not possible: give more than 0 and at most {limit} s"
    )]
    Burst {
        /// The requested time, seconds.
        requested: f64,
        /// The longest, seconds.
        limit: f64,
    },

    /// A time for which choices cannot run before their slices.
    #[error("{requested} seconds before a slice are not possible: give 0 to {limit} s")]
    LeadIn {
        /// The requested time, seconds.
        requested: f64,
        /// The longest, seconds.
        limit: f64,
    },

    /// A factor that leaves out the best.
    #[error(
        "choices within {requested} times the best estimate cannot be: give a number of at least 1"
    )]
    Within {
        /// The factor requested.
        requested: f64,
    },

    /// A problem that a survey leaves out.
    #[error(
        "{m}x{n}x{k} is too large for a survey: {finding}. Leave it out, or measure it with `pgemm \
         bench`"
    )]
    TooLarge {
        /// Rows of A and D.
        m: usize,
        /// Columns of B and D.
        n: usize,
        /// Columns of A, rows of B.
        k: usize,
        /// The part that is too large.
        finding: SurveyLimit,
    },

    /// The bandwidth probe could not be built.
    #[error(transparent)]
    Probe(pgemm_kernels::ProbeError),

    /// Jobs of another kind than are measured in a row.
    #[error(
        "a stream of {what} is not measured: jobs are plain products, one at least, without an \
         epilogue, a batch or C"
    )]
    StreamOf {
        /// The request.
        what: &'static str,
    },

    /// A report is not JSON of the expected form.
    #[error("{path} is not a benchmark report: {finding}. Write it again with this version")]
    Report {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        finding: Box<FileDamage>,
    },

    /// A file holds no results that can be shown.
    #[error(
        "{path} has no results to show: {finding}. Give files that `--json` of pgemm bench, atlas, \
         numbers, regression or roofline wrote, results of pgemm autotune, or files of benchmarks/results"
    )]
    Results {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        finding: Box<FileDamage>,
    },

    /// A report was measured under other conditions, so its numbers cannot be compared with new
    /// ones.
    #[error(
        "{path} cannot be continued: its {what} is {file}, and now it is {now}. Give another file, \
         or measure under the same conditions"
    )]
    Resume {
        /// The report.
        path: PathBuf,
        /// The part that differs.
        what: &'static str,
        /// The value in the report.
        file: String,
        /// The present value.
        now: String,
    },

    /// A suite is not TOML.
    #[error("the suite is not TOML: {finding}. See crates/bench/suite.toml for its form")]
    SuiteSyntax {
        /// Where and why reading it failed.
        finding: Box<toml::de::Error>,
    },

    /// A family of a suite does not make sense.
    #[error("family '{family}' of the suite cannot be used: {finding}")]
    SuiteFamily {
        /// The family.
        family: String,
        /// What is wrong with it.
        finding: Box<FamilyError>,
    },

    /// A family that does not exist.
    #[error("the suite has no family '{requested}': it has {}", families.join(", "))]
    NoSuchFamily {
        /// The name requested.
        requested: String,
        /// The names that there are.
        families: Vec<String>,
    },

    /// The caller's progress function ended the survey.
    #[error("stopped before the end, as asked")]
    Stopped,

    /// A survey without choices.
    #[error("0 choices leave nothing to measure: ask for at least 1")]
    NoChoices,

    /// Something could not be measured.
    #[error(transparent)]
    Measure(MeasureError),

    /// The library cannot compute the problem, or the driver fails.
    #[error(transparent)]
    Gemm(#[from] Error),
}

impl BenchError {
    /// Whether a contestant computed something else than it should.
    pub fn is_wrong_result(&self) -> bool {
        matches!(self, BenchError::Measure(MeasureError::WrongResult { .. }))
    }

    /// Whether a peer does not offer what it was asked for, so that there was nothing to run.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            BenchError::CublasLtTypes { .. }
                | BenchError::CublasLtScalar { .. }
                | BenchError::CublasLtNoAlgorithm { .. }
                | BenchError::CublasLtExtent { .. }
                | BenchError::Worker(WorkerError::Refused(_))
        )
    }

    /// Whether it is about cuBLASLt: the library is missing, does not compute the product, or
    /// failed.
    pub fn is_of_peer(&self) -> bool {
        matches!(
            self,
            BenchError::NoPeers
                | BenchError::CublasLtNotFound { .. }
                | BenchError::CublasLtFile { .. }
                | BenchError::CublasLtSymbol { .. }
                | BenchError::CublasLt { .. }
                | BenchError::CublasLtTypes { .. }
                | BenchError::CublasLtScalar { .. }
                | BenchError::CublasLtNoAlgorithm { .. }
                | BenchError::NoSuchCandidate { .. }
                | BenchError::CublasLtExtent { .. }
        )
    }
}

/// Errors of this crate's contestants pass through the harness and are unwrapped here.
impl From<MeasureError> for BenchError {
    fn from(error: MeasureError) -> BenchError {
        match error {
            MeasureError::Gemm(error) => BenchError::Gemm(error),
            MeasureError::Contestant(error) => match error.downcast() {
                Ok(error) => *error,
                Err(error) => BenchError::Measure(MeasureError::Contestant(error)),
            },
            error => BenchError::Measure(error),
        }
    }
}

impl From<BenchError> for MeasureError {
    fn from(error: BenchError) -> MeasureError {
        match error {
            BenchError::Gemm(error) => MeasureError::Gemm(error),
            BenchError::Measure(error) => error,
            error => MeasureError::Contestant(Box::new(error)),
        }
    }
}

impl From<PlanError> for BenchError {
    fn from(error: PlanError) -> BenchError {
        BenchError::Gemm(error.into())
    }
}

impl From<EmitError> for BenchError {
    fn from(error: EmitError) -> BenchError {
        BenchError::Gemm(error.into())
    }
}

impl From<MatrixError> for BenchError {
    fn from(error: MatrixError) -> BenchError {
        BenchError::Gemm(error.into())
    }
}

impl From<NumericsError> for BenchError {
    fn from(error: NumericsError) -> BenchError {
        BenchError::Gemm(error.into())
    }
}
