//! Errors of measurements.

use std::error;
use std::fmt;

use pgemm_plan::PlanError;

use crate::error::{Error, MatrixError, NumericsError};
use crate::numerics::Comparison;

/// The result type of measurements.
pub(crate) type Result<T, E = MeasureError> = std::result::Result<T, E>;

/// Why a measurement gave no number.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A protocol's duration is not usable.
    #[error("{field} = {seconds} s is not possible: give 0 to {max} s")]
    Duration {
        /// The protocol's field.
        field: &'static str,
        /// The value, in seconds.
        seconds: f64,
        /// The longest that is allowed, seconds.
        max: f64,
    },

    /// A protocol without rounds measures nothing.
    #[error(
        "a protocol without rounds, or with empty ones, gives no ratio: use at least 1 round of 1 \
         palindrome"
    )]
    NoRounds,

    /// A contestant that does not exist.
    #[error("there is no contestant {requested}: {count} run")]
    NoSuchContestant {
        /// The requested index.
        requested: usize,
        /// The number that exists.
        count: usize,
    },

    /// There are no contestants.
    #[error("there is no contestant to measure: give at least one")]
    NoContestants,

    /// A slice ended as soon as it began.
    #[error(
        "{gemms} GEMMs took no time on the GPU: the contestant enqueues nothing; check its enqueue \
         function"
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
        "{sets} operand sets of {set_bytes} bytes exceed the {free} bytes that are free on the \
         device: use a smaller problem"
    )]
    SetsDoNotFit {
        /// Number of sets that the protocol rotates through.
        sets: usize,
        /// Bytes of one set.
        set_bytes: u64,
        /// Bytes free on the device.
        free: u64,
    },

    /// An operand set that does not exist.
    #[error("there is no operand set {requested}: {count} were made")]
    NoSuchSet {
        /// The requested set.
        requested: usize,
        /// The number that exists.
        count: usize,
    },

    /// A contestant computes something else, so it is not timed.
    #[error(
        "{contestant} computes a wrong D and is not timed (operand set {set}, {rows} rows \
         compared): {finding}. Fix or exclude the contestant"
    )]
    WrongResult {
        /// The contestant.
        contestant: String,
        /// The operand set.
        set: usize,
        /// Number of compared rows.
        rows: usize,
        /// The part that differs.
        finding: WrongOutput,
    },

    /// A contestant that is not of this library failed.
    #[error(transparent)]
    Contestant(Box<dyn error::Error + Send + Sync>),

    /// The library cannot compute the problem, or the driver fails.
    #[error(transparent)]
    Gemm(#[from] Error),
}

impl From<PlanError> for MeasureError {
    fn from(error: PlanError) -> MeasureError {
        MeasureError::Gemm(error.into())
    }
}

impl From<MatrixError> for MeasureError {
    fn from(error: MatrixError) -> MeasureError {
        MeasureError::Gemm(error.into())
    }
}

impl From<NumericsError> for MeasureError {
    fn from(error: NumericsError) -> MeasureError {
        MeasureError::Gemm(error.into())
    }
}

/// What is wrong with a D, and its number in a batch.
#[derive(Clone, Debug)]
pub struct WrongOutput {
    /// The product of a batch; `None` of a single one.
    pub product: Option<usize>,
    /// What is wrong.
    pub what: WrongElements,
}

/// What is wrong with the elements of a D.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WrongElements {
    /// They differ from the reference.
    Different(Box<Comparison>),
    /// This number of elements was not written.
    Unwritten(usize),
    /// Bytes between the rows were.
    Overwritten,
}

impl fmt::Display for WrongOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(product) = self.product {
            write!(f, "product {product}: ")?;
        }
        self.what.fmt(f)
    }
}

impl fmt::Display for WrongElements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WrongElements::Different(comparison) => comparison.fmt(f),
            WrongElements::Unwritten(elements) => write!(f, "{elements} elements are unwritten"),
            WrongElements::Overwritten => {
                f.write_str("bytes between the rows of D were overwritten")
            }
        }
    }
}
