//! The autotuner: races kernels of the catalogue and of its rule against the cost model's pick by
//! successive halving, and stores the results in JSON files, which [`Gemm`](crate::Gemm) reads.
//! `docs/autotuning.md` explains the search and the files.

#[cfg(feature = "tuner")]
mod candidates;
#[cfg(feature = "tuner")]
mod error;
#[cfg(feature = "tuner")]
mod search;
#[cfg(feature = "tuner")]
mod tuner;

#[cfg(feature = "tuner")]
pub use candidates::{RASTER_PRIOR, candidates};
#[cfg(feature = "tuner")]
pub use error::TuneError;
pub use pgemm_plan::{KeyBatch, ProblemKey, TunedChoice};
#[cfg(feature = "tuner")]
pub use search::{Effort, Progress, Run, Search, Timer, search};
#[cfg(feature = "tuner")]
pub use tuner::Tuner;

pub use crate::stats::{CONFIDENCE, Interval, median_interval};
pub use crate::tuned::{
    Finalist, Ignored, Picks, Platform, Results, Timing, Trial, TuneOptions, TuneResult, VARIABLE,
    files, install_folder, source,
};
