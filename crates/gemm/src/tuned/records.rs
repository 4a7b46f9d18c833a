//! The tuner's records about a problem: the options of the measurement, and the numbers of every
//! candidate.

use pgemm_plan::Choice;
use serde::{Deserialize, Serialize};

use crate::stats::Interval;

/// The amount of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneOptions {
    /// Candidates at most, besides the heuristic's pick.
    pub trials: usize,
    /// Seconds of measurement for each problem. Compiling and verifying come on top.
    pub seconds: f64,
}

impl Default for TuneOptions {
    fn default() -> Self {
        TuneOptions { trials: 50, seconds: 60.0 }
    }
}

/// A candidate's numbers in one race.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median microseconds per GEMM.
    pub microseconds: f64,
    /// The peer's time over the candidate's, for each round: above 1 the candidate is faster.
    pub ratios: Vec<f64>,
}

/// All measurements of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Choice,
    /// Its timings, one for each rung that it took part in.
    pub rungs: Vec<Timing>,
    /// Why the candidate cannot run or computes wrong results.
    pub failure: Option<String>,
}

/// The candidate that was left, and the fresh rounds that judge it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finalist {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Choice,
    /// Median of the ratios: the time of the heuristic's pick over its own.
    pub ratio: f64,
    /// The confidence interval of the median.
    pub interval: Interval,
    /// The rounds.
    pub timing: Timing,
}

impl Finalist {
    /// Whether the finalist is significantly faster than the heuristic's pick.
    pub fn wins(&self) -> bool {
        self.interval.lower > 1.0
    }
}
