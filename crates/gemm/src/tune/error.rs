//! Errors of the tuner.

use pgemm_plan::PlanError;

use crate::error::Error;
use crate::measure::MeasureError;

/// Why a problem was not tuned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// A search without candidates.
    #[error("0 trials leave nothing to measure: ask for at least 1")]
    NoTrials,

    /// A budget that is no time.
    #[error(
        "a budget of {requested} seconds for a problem is not possible: give more than 0 and at \
         most {limit}"
    )]
    Budget {
        /// The requested budget, seconds.
        requested: f64,
        /// The longest, seconds.
        limit: f64,
    },

    /// The caller's progress function ended the search.
    #[error("stopped before the end, as asked")]
    Stopped,

    /// A candidate could not be measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),

    /// The library cannot compute the problem, or the driver fails.
    #[error(transparent)]
    Gemm(#[from] Error),
}

impl From<PlanError> for TuneError {
    fn from(error: PlanError) -> TuneError {
        TuneError::Gemm(error.into())
    }
}
