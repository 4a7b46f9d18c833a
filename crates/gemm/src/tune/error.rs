//! What keeps a problem from being tuned, or results from being used.

use std::path::PathBuf;

/// Why nothing was tuned, or why a results file is not used.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A search without candidates.
    #[error("0 trials leave nothing to measure: ask for at least 1")]
    NoTrials,

    /// A budget that is no time.
    #[error(
        "a budget of {asked} seconds for a problem is not possible: give more than 0 and at most {limit}"
    )]
    Budget {
        /// The budget asked for, seconds.
        asked: f64,
        /// The longest, seconds.
        limit: f64,
    },

    /// A file that holds no results that this version can read.
    #[error(
        "{path} holds no autotune results of this version: {finding}. It is left as it is; tune again into another file"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and why reading it failed.
        finding: String,
    },

    /// Results from elsewhere.
    #[error(
        "{path} was tuned elsewhere: {difference}. It is left as it is; tune again on this machine"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What differs, there and here.
        difference: String,
    },
}
