//! [`Tuner`]: the search on a GPU, timed by the measuring harness.

use std::ops::ControlFlow;
use std::sync::Arc;

use pgemm_kernels::Spec;
use pgemm_plan::{Choice, Config, DeviceFacts, OperandAlignment, Plan, ProblemKey};

use super::candidates::candidates;
use super::error::TuneError;
use super::search::{Effort, Progress, Run, Search, Timer, search};
use crate::driver::{Device, StreamRef};
use crate::error::Error;
use crate::gemm::Gemm;
use crate::measure::{
    Contestant, Elements, GemmContestant, Harness, MeasureError, Measurement, OperandSets,
    Protocol, Verifier,
};
use crate::stats::Summary;
use crate::tuned::{Platform, Timing, TuneOptions, TuneResult};

type Result<T, E = TuneError> = std::result::Result<T, E>;

/// Seed of the random operands.
const SEED: u64 = 1;

/// Fraction of a race that warms up the card, and the limit of the warm-up in seconds.
const WARM_UP_SHARE: f64 = 0.2;
const WARM_UP_SECONDS: f64 = 1.5;

/// Tunes problems on one device.
#[derive(Debug)]
pub struct Tuner {
    harness: Harness,
    options: TuneOptions,
}

impl Tuner {
    /// A tuner for a device.
    ///
    /// # Errors
    /// The errors of [`TuneOptions::check`], or driver errors.
    pub fn new(device: &Device, options: TuneOptions) -> Result<Tuner> {
        options.check()?;
        Ok(Tuner { harness: Harness::new(device)?, options })
    }

    /// The platform that the results are valid for.
    pub fn platform(&self) -> Platform {
        Platform::of(self.harness.device().properties())
    }

    /// The kernels that [`tune`](Self::tune) will try for a problem, for programs that compile them
    /// before.
    ///
    /// # Errors
    /// The problem is malformed or has no kernel.
    pub fn specs(&self, key: &ProblemKey) -> Result<Vec<Spec>> {
        let facts = self.harness.device().properties().into();
        let Some(peer) = plans(key, facts)?.next().map(|plan| plan.choice()) else {
            return Ok(vec![]);
        };
        let candidates = candidates(key, facts, &peer, self.options.trials).into_iter();
        Ok(candidates.chain([peer]).map(|choice| choice.spec).collect())
    }

    /// Tunes one problem; [`Results::complete`](super::Results::complete) goes through many.
    /// Earlier results are not consulted; the peer is the heuristic's own pick.
    ///
    /// # Errors
    /// The problem is malformed, has no kernel or does not fit on the device, or the driver fails.
    /// A candidate that cannot run or computes wrong results is not an error; its trial contains
    /// the reason. [`TuneError::Stopped`](super::TuneError) if `progress` ends the search.
    pub fn tune(
        &self,
        key: &ProblemKey,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<TuneResult> {
        let device = self.harness.device();
        let facts = device.properties().into();
        let plans = plans(key, facts)?;
        let operands = self.harness.operands(&key.problem(), Elements::of(key), SEED)?;
        let mut peer = first_entry(device, &operands, &key.config(), plans)?;
        let candidates = candidates(key, facts, &peer.candidate, self.options.trials);
        let heuristic = peer.candidate;
        let (harness, operands) = (&self.harness, &operands);
        let verifier = Verifier::new(operands)?;
        verifier.verify(&mut peer, harness.stream())?;
        let mut timer = DeviceTimer { harness, operands, verifier, peer, entered: Vec::new() };
        let Search { trials, finalist } = search(&mut timer, &candidates, &self.options, progress)?;
        Ok(TuneResult::new(*key, heuristic, self.options, trials, finalist))
    }
}

/// The heuristic's plans for a problem, the most promising first.
fn plans(key: &ProblemKey, facts: DeviceFacts) -> Result<impl Iterator<Item = Plan>> {
    let alignment = OperandAlignment::ALIGNED;
    Ok(crate::plans(&key.problem(), &key.config(), facts, &(), alignment)?)
}

/// The first plan whose kernel the driver compiles cleanly and of which the device has room for a
/// cluster, as a contestant.
///
/// # Errors
/// [`Error::NoCleanKernel`], [`Error::ClusterDoesNotFit`], or another error that prevents the
/// launch of a kernel.
fn first_entry(
    device: &Device,
    operands: &Arc<OperandSets>,
    config: &Config,
    plans: impl Iterator<Item = Plan>,
) -> Result<Entry, MeasureError> {
    let mut too_large = None;
    for plan in plans {
        match Entry::new(device, operands, plan.choice()) {
            Err(MeasureError::Gemm(Error::UncleanKernel { .. })) => {}
            Err(MeasureError::Gemm(error @ Error::ClusterDoesNotFit { .. })) => {
                too_large.get_or_insert(error);
            }
            entered => return entered,
        }
    }
    Err(too_large.unwrap_or(Error::NoCleanKernel { dtype: config.dtype }).into())
}

/// A candidate as a contestant. Its name is unique, because candidates may differ in their raster
/// height only.
struct Entry {
    candidate: Choice,
    name: String,
    contestant: GemmContestant,
}

impl Entry {
    fn new(
        device: &Device,
        operands: &Arc<OperandSets>,
        candidate: Choice,
    ) -> Result<Entry, MeasureError> {
        let config = Config::for_choice(candidate);
        let contestant = GemmContestant::new(&Gemm::create(device, config)?, operands)?;
        Ok(Entry { candidate, name: candidate.to_string(), contestant })
    }
}

impl Contestant for Entry {
    fn name(&self) -> &str {
        &self.name
    }

    fn details(&self) -> serde_json::Value {
        self.contestant.details()
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        self.contestant.enqueue(set, stream)
    }
}

/// A timer on the GPU. Kernels are loaded and verified for their first race, and stay loaded.
struct DeviceTimer<'a> {
    harness: &'a Harness,
    operands: &'a Arc<OperandSets>,
    verifier: Verifier<'a>,
    peer: Entry,
    entered: Vec<(Choice, Result<Entry, String>)>,
}

impl Timer for DeviceTimer<'_> {
    fn race(&mut self, candidates: &[Choice], effort: Effort) -> Result<Vec<Run>> {
        for candidate in candidates {
            if !self.entered.iter().any(|(entered, _)| entered == candidate) {
                let entry = self.enter(*candidate)?;
                self.entered.push((*candidate, entry));
            }
        }
        let mut runnable: Vec<&mut dyn Contestant> = vec![&mut self.peer];
        runnable.extend(
            self.entered
                .iter_mut()
                .filter(|(candidate, _)| candidates.contains(candidate))
                .filter_map(|(_, entry)| entry.as_mut().ok())
                .map(|entry| entry as &mut dyn Contestant),
        );
        let measurement = match runnable.len() {
            1 => None,
            count => {
                let protocol = protocol(effort, count);
                Some(self.harness.race_verified(self.operands, &mut runnable, &protocol)?)
            }
        };
        // The candidates that ran, in the order of the race. The peer is the first.
        let ran = self.entered.iter().filter(|(candidate, _)| candidates.contains(candidate));
        let ran: Vec<Choice> =
            ran.filter(|(_, entry)| entry.is_ok()).map(|(candidate, _)| *candidate).collect();
        let run_of = |candidate: &Choice| self.run_of(candidate, &ran, measurement.as_ref());
        Ok(candidates.iter().map(run_of).collect())
    }
}

impl DeviceTimer<'_> {
    /// Loads and verifies a candidate. One that cannot run or computes wrongly leaves with the
    /// reason.
    ///
    /// # Errors
    /// An error of the device that keeps results from being compared.
    fn enter(&self, candidate: Choice) -> Result<Result<Entry, String>> {
        let mut entry = match Entry::new(self.harness.device(), self.operands, candidate) {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(error.to_string())),
        };
        match self.verifier.verify(&mut entry, self.harness.stream()) {
            Ok(_) => Ok(Ok(entry)),
            Err(error @ MeasureError::WrongResult { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn run_of(&self, candidate: &Choice, ran: &[Choice], measurement: Option<&Measurement>) -> Run {
        let entered = self.entered.iter().find(|(entered, _)| entered == candidate);
        if let Some((_, Err(why))) = entered {
            return Run::Failed(why.clone());
        }
        let timing = measurement.and_then(|measurement| {
            let index = 1 + ran.iter().position(|other| other == candidate)?;
            let seconds = measurement.seconds_per_gemm(index);
            let microseconds: Vec<f64> = seconds.iter().map(|seconds| seconds * 1e6).collect();
            let microseconds = Summary::of(&microseconds)?.median;
            Some(Timing { microseconds, ratios: measurement.ratios(index, 0) })
        });
        timing.map_or_else(|| Run::Failed("it did not race".to_owned()), Run::Timed)
    }
}

/// The harness's numbers for a race of `contestants`, the peer included: as long slices as the
/// budget allows, up to the harness's usual ones, then more of them.
fn protocol(effort: Effort, contestants: usize) -> Protocol {
    let warm_up = (WARM_UP_SHARE * effort.seconds).min(WARM_UP_SECONDS);
    let round = (effort.seconds - warm_up) / f64::from(effort.rounds.max(1));
    let slices = 2.0 * contestants as f64;
    let slice_seconds = (round / slices).clamp(Protocol::SHORTEST_SLICE, Protocol::SLICE_SECONDS);
    let palindromes = (round / (slices * slice_seconds)).floor().clamp(1.0, 1000.0);
    Protocol {
        rounds: effort.rounds,
        palindromes_per_round: palindromes as u32,
        slice_seconds,
        warm_up_min_seconds: 0.5 * warm_up,
        warm_up_max_seconds: warm_up,
        energy_rounds: 0,
        ..Protocol::within(effort.seconds, contestants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_race_takes_about_its_budget_and_fewer_contestants_get_longer_slices() {
        for contestants in [2, 5, 14, 51] {
            let effort = Effort { rounds: 5, seconds: 7.0 };
            let protocol = protocol(effort, contestants);
            let slices = f64::from(protocol.rounds * protocol.palindromes_per_round)
                * 2.0
                * contestants as f64;
            let seconds = protocol.warm_up_max_seconds + slices * protocol.slice_seconds;
            assert!((4.0..=7.01).contains(&seconds), "{contestants}: {seconds}");
            assert_eq!((protocol.rounds, protocol.energy_rounds), (5, 0));
        }
        let slice =
            |contestants| protocol(Effort { rounds: 5, seconds: 7.0 }, contestants).slice_seconds;
        assert!(slice(51) < slice(26) && slice(26) <= slice(2));
        assert_eq!(slice(2), Protocol::SLICE_SECONDS);
        // Even with the shortest budget, every contestant gets a slice of positive length.
        let tiny = protocol(Effort { rounds: 5, seconds: 0.001 }, 51);
        assert_eq!((tiny.slice_seconds, tiny.palindromes_per_round), (Protocol::SHORTEST_SLICE, 1));
    }
}
