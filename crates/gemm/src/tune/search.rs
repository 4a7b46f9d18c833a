//! Successive halving, independent of how candidates are measured. Each rung races the remaining
//! candidates against the heuristic's pick and keeps the better half. Fresh rounds of the last one
//! decide. Candidates are measured through a [`Timer`], so the search is tested on a synthetic cost
//! model.

use std::ops::ControlFlow;

use super::error::TuneError;
use crate::stats::{CONFIDENCE, Summary, median_interval};
use crate::tuned::{Finalist, Timing, Trial, TuneOptions};
use pgemm_plan::Choice;

/// Longest budget of a problem, seconds.
const MAX_SECONDS: f64 = 86_400.0;

/// Fraction of the budget for the deciding rounds. The rungs share the remainder evenly, so
/// candidates are measured longer the fewer remain.
const FINAL_SHARE: f64 = 0.3;

/// Rounds of a rung.
const RUNG_ROUNDS: u32 = 5;

/// Deciding rounds. Of 21, the 6th smallest and the 6th largest hold the median with 97.3 %.
const FINAL_ROUNDS: u32 = 21;

impl TuneOptions {
    /// Whether anything can be measured so.
    ///
    /// # Errors
    /// No trials, or a budget that is no time.
    pub fn check(&self) -> Result<(), TuneError> {
        if self.trials == 0 {
            return Err(TuneError::NoTrials);
        }
        if !(self.seconds > 0.0 && self.seconds <= MAX_SECONDS) {
            return Err(TuneError::Budget { requested: self.seconds, limit: MAX_SECONDS });
        }
        Ok(())
    }
}

/// How thoroughly to measure a race.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Rounds, each of which gives one ratio for each candidate.
    pub rounds: u32,
    /// Seconds for all rounds and candidates together.
    pub seconds: f64,
}

/// Measures candidates against the heuristic's pick (the peer): a GPU, or a cost model in tests.
pub trait Timer {
    /// Measures all `candidates` against the peer in common rounds. The answer has one entry for
    /// each, in order.
    ///
    /// # Errors
    /// An error that prevents the measurement of the peer or of all candidates. A single candidate
    /// that cannot run is [`Run::Failed`].
    fn race(&mut self, candidates: &[Choice], effort: Effort) -> Result<Vec<Run>, TuneError>;
}

/// The outcome of a candidate in a race.
#[derive(Clone, Debug, PartialEq)]
pub enum Run {
    /// The candidate ran.
    Timed(Timing),
    /// The candidate cannot run or computes wrong results, with the reason.
    Failed(String),
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Every candidate, in the order given.
    pub trials: Vec<Trial>,
    /// The last remaining candidate, or `None` if no candidate could run.
    pub finalist: Option<Finalist>,
}

/// The progress of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Races done.
    pub done: usize,
    /// The total number of races, as currently known.
    pub of: usize,
    /// Candidates in the race that begins; 0 at the end.
    pub candidates: usize,
}

/// Races `candidates` until one is left, and judges it. Before each race `progress` decides whether
/// to continue.
///
/// # Errors
/// The errors of [`TuneOptions::check`], and of the timer; [`TuneError::Stopped`].
pub fn search(
    timer: &mut dyn Timer,
    candidates: &[Choice],
    options: &TuneOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Search, TuneError> {
    options.check()?;
    let mut progress = |step| match progress(step) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(TuneError::Stopped),
    };
    let mut trials: Vec<Trial> = candidates
        .iter()
        .map(|&candidate| Trial { candidate, rungs: Vec::new(), failure: None })
        .collect();
    let rungs = rungs(trials.len());
    let rung = Effort {
        rounds: RUNG_ROUNDS,
        seconds: options.seconds * (1.0 - FINAL_SHARE) / rungs.max(1) as f64,
    };
    let last = Effort { rounds: FINAL_ROUNDS, seconds: options.seconds * FINAL_SHARE };

    let mut done = 0;
    let mut left: Vec<&mut Trial> = trials.iter_mut().collect();
    while left.len() > 1 {
        let of = done + self::rungs(left.len()) + 1;
        progress(Progress { done, of, candidates: left.len() })?;
        let requested: Vec<Choice> = left.iter().map(|trial| trial.candidate).collect();
        let mut ranked = Vec::new();
        for (trial, run) in left.into_iter().zip(timer.race(&requested, rung)?) {
            match judged(run) {
                Ok((ratio, timing)) => {
                    trial.rungs.push(timing);
                    ranked.push((ratio, trial));
                }
                Err(failure) => trial.failure = Some(failure),
            }
        }
        ranked.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        // Half of the raced candidates, counting those that failed.
        ranked.truncate(requested.len().div_ceil(2));
        left = ranked.into_iter().map(|(_, trial)| trial).collect();
        done += 1;
    }

    let mut finalist = None;
    if let [trial] = left.as_mut_slice() {
        progress(Progress { done, of: done + 1, candidates: 1 })?;
        match timer.race(&[trial.candidate], last)?.pop().map(judged) {
            Some(Ok((ratio, timing))) => {
                finalist = median_interval(&timing.ratios, CONFIDENCE).map(|interval| Finalist {
                    candidate: trial.candidate,
                    ratio,
                    interval,
                    timing,
                });
            }
            Some(Err(failure)) => trial.failure = Some(failure),
            None => {}
        }
        done += 1;
    }
    // The decision is already made, so the answer is ignored.
    let _decided = progress(Progress { done, of: done, candidates: 0 });
    Ok(Search { trials, finalist })
}

/// The median ratio of a run, or why there is none.
fn judged(run: Run) -> Result<(f64, Timing), String> {
    match run {
        Run::Timed(timing) => match Summary::of(&timing.ratios) {
            Some(summary) => Ok((summary.median, timing)),
            None => Err("its rounds gave no finite ratios".to_owned()),
        },
        Run::Failed(failure) => Err(failure),
    }
}

/// Races until one of `candidates` is left.
fn rungs(candidates: usize) -> usize {
    let mut rungs = 0;
    let mut left = candidates;
    while left > 1 {
        left = left.div_ceil(2);
        rungs += 1;
    }
    rungs
}

#[cfg(test)]
mod tests;
