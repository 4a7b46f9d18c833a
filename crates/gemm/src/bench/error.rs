//! What can go wrong in a benchmark besides the driver.

use std::path::PathBuf;

use pgemm_ir::Element;

/// Why a benchmark gave no number.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A protocol's duration is not usable.
    #[error("{field} = {seconds} s is not possible: give 0 to {max} s")]
    Duration {
        /// The protocol's field.
        field: &'static str,
        /// What it holds, seconds.
        seconds: f64,
        /// The longest that is allowed, seconds.
        max: f64,
    },

    /// A protocol without rounds measures nothing.
    #[error(
        "a protocol without rounds, or with empty ones, gives no ratio: use at least 1 round of 1 palindrome"
    )]
    NoRounds,

    /// A contestant that does not exist.
    #[error("there is no contestant {asked}: {count} run")]
    NoSuchContestant {
        /// The index asked for.
        asked: usize,
        /// How many there are.
        count: usize,
    },

    /// cuBLASLt is asked for where no device is used.
    #[error(
        "cuBLASLt runs on a GPU, and the backend is {backend}: leave it out, or use the cuda backend"
    )]
    PeerWithoutDevice {
        /// The backend, as it prints.
        backend: String,
    },

    /// Nobody to measure.
    #[error("there is no contestant to measure: give at least one")]
    NoContestants,

    /// A slice ended as soon as it began.
    #[error(
        "{gemms} GEMMs took no time on the GPU: the contestant enqueues nothing; check its enqueue function"
    )]
    NoTime {
        /// GEMMs in the slice.
        gemms: u64,
    },

    /// The problem has nothing to time.
    #[error("{m}×{n}×{k} has nothing to time: use extents, and a batch, of at least 1")]
    EmptyProblem {
        /// Rows of D.
        m: usize,
        /// Columns of D.
        n: usize,
        /// Columns of A.
        k: usize,
    },

    /// The matrices do not fit on the device often enough.
    #[error(
        "{sets} operand sets of {set_bytes} bytes exceed the {free} bytes that are free on the device: use a smaller \
         problem"
    )]
    SetsDoNotFit {
        /// How many sets the protocol rotates through.
        sets: usize,
        /// Bytes of one set.
        set_bytes: u64,
        /// Bytes free on the device.
        free: u64,
    },

    /// An operand set that does not exist.
    #[error("there is no operand set {asked}: {count} were made")]
    NoSuchSet {
        /// The set asked for.
        asked: usize,
        /// How many there are.
        count: usize,
    },

    /// libcublasLt was not found.
    #[error(
        "libcublasLt was not found among {tried:?}. Install cuBLAS 11 or later (for example `pip install nvidia-cublas`), or \
         set PGEMM_CUBLASLT to the library's file"
    )]
    CublasLtNotFound {
        /// Every name that was tried.
        tried: Vec<PathBuf>,
    },

    /// The library lacks a function.
    #[error(
        "{path} has no function {symbol}: it is no cuBLASLt 11 to 13. Set PGEMM_CUBLASLT to one that is"
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
        /// What usually helps.
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
        /// What it computes instead, and what to do.
        limit: &'static str,
    },

    /// A scalar that the library has no type for where it adds up in integers or f16.
    #[error(
        "{scalar} = {value} is not {wanted}, and cuBLASLt's products of this kind take no other: round it"
    )]
    CublasLtScalar {
        /// `alpha` or `beta`.
        scalar: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        wanted: &'static str,
    },

    /// The heuristic returned nothing.
    #[error(
        "cuBLASLt has no algorithm for {problem}: compare without this peer, or change layout or types"
    )]
    CublasLtNoAlgorithm {
        /// The problem, as reports name it.
        problem: String,
    },

    /// An algorithm that does not exist.
    #[error("there is no cuBLASLt candidate {asked}: the heuristic returned {count}")]
    NoSuchCandidate {
        /// The index asked for.
        asked: usize,
        /// How many there are.
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

    /// A contestant computes something else, so it is not timed.
    #[error(
        "{contestant} computes a wrong D and is not timed (operand set {set}, {rows} rows compared): {finding}. Fix or \
         exclude the contestant"
    )]
    WrongResult {
        /// The contestant.
        contestant: String,
        /// The operand set.
        set: usize,
        /// How many rows were compared.
        rows: usize,
        /// What differs.
        finding: String,
    },

    /// The bandwidth probe could not be built.
    #[error(transparent)]
    Probe(pgemm_kernels::ProbeError),

    /// Jobs of another kind than are measured in a row.
    #[error(
        "a stream of {what} is not measured: jobs are plain products, one at least, without an epilogue, a batch or C"
    )]
    StreamOf {
        /// What was asked for.
        what: &'static str,
    },

    /// A report is not JSON of the expected form.
    #[error("{path} is not a benchmark report: {finding}. Write it again with this version")]
    Report {
        /// The file.
        path: PathBuf,
        /// Where and why reading it failed.
        finding: String,
    },

    /// A report was made under other conditions than those of now, so that its numbers and new ones do not belong together.
    #[error(
        "{path} cannot be continued: its {what} is {file}, and now it is {now}. Give another file, or measure under the same \
         conditions"
    )]
    Resume {
        /// The report.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// As the report has it.
        file: String,
        /// As it is now.
        now: String,
    },

    /// A suite is not TOML.
    #[error("the suite is not TOML: {finding}. See benchmarks/suite.toml for its form")]
    SuiteSyntax {
        /// Where and why reading it failed.
        finding: String,
    },

    /// A family of a suite does not make sense.
    #[error("family '{family}' of the suite cannot be used: {finding}")]
    SuiteFamily {
        /// The family.
        family: String,
        /// What is wrong with it.
        finding: String,
    },

    /// A family that does not exist.
    #[error("the suite has no family '{asked}': it has {}", families.join(", "))]
    NoSuchFamily {
        /// The name asked for.
        asked: String,
        /// The names that there are.
        families: Vec<String>,
    },
}
