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

    /// The caller's progress function said so.
    #[error("stopped before the end, as asked")]
    Stopped,

    /// A burst that is no time.
    #[error(
        "{asked} seconds for a choice are not possible: give more than 0 and at most {limit} s"
    )]
    Burst {
        /// The time asked for, seconds.
        asked: f64,
        /// The longest, seconds.
        limit: f64,
    },

    /// A factor that leaves out the best.
    #[error(
        "choices within {asked} times the best estimate cannot be: give a number of at least 1"
    )]
    Within {
        /// The factor asked for.
        asked: f64,
    },

    /// A problem that a survey leaves out.
    #[error(
        "{m}x{n}x{k} is too large for a survey: {finding}. Leave it out, or measure it with `pgemm bench`"
    )]
    TooLarge {
        /// Rows of A and D.
        m: usize,
        /// Columns of B and D.
        n: usize,
        /// Columns of A, rows of B.
        k: usize,
        /// What of it is too large.
        finding: String,
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
