//! The autotuner: races kernels of the catalogue against the heuristic's pick by successive halving, keeps what it found in
//! JSON files, and gives it back to [`Gemm`](crate::Gemm). `docs/autotuning.md` explains the search and the files.

mod candidates;
mod error;
mod interval;
mod picks;
mod results;
mod search;
mod survey;
mod tuner;

pub use candidates::{RASTER_PRIOR, candidates};
pub use error::TuneError;
pub use interval::{CONFIDENCE, Interval, median_interval};
pub use picks::{Ignored, Pick, Picks, VARIABLE, install_folder};
pub use results::{KeyBatch, Platform, ProblemKey, Results, SCHEMA, TuneResult};
pub use search::{
    Effort, Finalist, Progress, Run, Search, Timer, Timing, Trial, TuneOptions, search,
};
pub use survey::{Survey, SurveyOptions, SurveyRow, Surveyor};
pub use tuner::Tuner;
