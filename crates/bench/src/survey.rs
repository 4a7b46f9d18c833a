//! Surveys: brief timings of many choices for many problems, to fit the heuristic's constants. The
//! choices of a problem run in turn, forwards and back, and so does cuBLASLt's first pick.
//! [`Surveyor`] performs the measurements.

mod device;
mod fit;
mod judge;
mod tiles;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use persistent_gemm::Error;
use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind};
use persistent_gemm::measure::{LaunchMode, Measurement, Protocol};
use persistent_gemm::stats::Summary;
use pgemm_kernels::{Cluster, Spec};
use pgemm_plan::heuristic::Shape;
use pgemm_plan::{Choice, DeviceFacts, PlannedProblem, ProblemKey, heuristic};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};
use crate::machine::Machine;

pub use device::Surveyor;
pub use fit::{Fit, fit};
pub use judge::{Judgement, features, judge};
pub use tiles::{tile_feature_names, tile_features};

/// Problems with a longer expected time, in seconds, are left out.
const MAX_PROBLEM_SECONDS: f64 = 30.0;

/// Palindromes of all choices. Each choice has two slices in each of them.
const ROUNDS: u32 = 3;

/// Palindromes of choices that each run for some time before their slices.
const ROUNDS_WITH_LEAD_IN: u32 = 1;

/// Seconds for which the choices of a problem run before they are timed. Products that arithmetic
/// limits draw so much power that the clock slows down in this time. Before it is steady, kernels
/// that leave some SMs idle seem faster than they are.
const HEAT_SECONDS: f64 = 0.3;

/// Clock in Hz to convert the heuristic's cycles into approximate seconds.
const CLOCK_HZ: f64 = 1.7e9;

/// Options of a survey.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SurveyOptions {
    /// Seconds of each choice's launches, in short slices.
    pub seconds_per_choice: f64,
    /// Seconds for which a choice runs before each of its slices. Without them, all choices run at
    /// the clock that their mean power allows. With a tenth of a second, each runs at its own.
    #[serde(default)]
    pub lead_in_seconds: f64,
    /// Choices of a problem at most, the most promising first.
    pub limit: usize,
    /// Choices whose estimate is above this times the best are left out.
    pub within: f64,
    /// Whether kernels with clusters take part.
    pub clusters: bool,
    /// The kernels that choices are made from.
    #[serde(default)]
    pub source: ChoiceSource,
}

/// The kernels that the choices of a survey are made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChoiceSource {
    /// Those that the catalogue lists.
    #[default]
    Catalogue,
    /// All that the rule allows. Half of the choices are the most promising. The others are drawn
    /// from those that are not estimated to be much slower, so that a model that is fitted to the
    /// survey sees more than its own picks.
    Rule,
}

impl Default for SurveyOptions {
    fn default() -> Self {
        SurveyOptions {
            seconds_per_choice: 0.02,
            lead_in_seconds: 0.0,
            limit: 60,
            within: 3.0,
            clusters: false,
            source: ChoiceSource::Catalogue,
        }
    }
}

impl SurveyOptions {
    /// Whether anything can be measured so.
    ///
    /// # Errors
    /// No choices, a time that is none, or a factor below 1.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.limit == 0 {
            return Err(BenchError::NoChoices);
        }
        let requested = self.seconds_per_choice;
        if !(requested > 0.0 && requested <= 1.0) {
            return Err(BenchError::Burst { requested, limit: 1.0 });
        }
        let requested = self.lead_in_seconds;
        if !(0.0..=1.0).contains(&requested) {
            return Err(BenchError::LeadIn { requested, limit: 1.0 });
        }
        if !(self.within >= 1.0 && self.within.is_finite()) {
            return Err(BenchError::Within { requested: self.within });
        }
        Ok(())
    }

    /// The choices for a problem on a device, the most promising first: every spec with each split
    /// worth estimating and the heuristic's raster height.
    pub fn choices(&self, key: &ProblemKey, device: impl Into<DeviceFacts>) -> Vec<Choice> {
        let device = device.into();
        let ranked = |shape: Shape, specs: Vec<Spec>, before: f64| {
            let specs = specs.into_iter();
            let specs = specs.filter(|spec| self.clusters || spec.cluster == Cluster::NONE);
            let ranked = heuristic::rank(specs, shape, device, None).into_iter();
            ranked.map(move |choice| (heuristic::cycles(&choice, shape, device) + before, choice))
        };
        let mut all: Vec<(f64, Choice)> = match self.source {
            ChoiceSource::Catalogue => ranked(key.shape(), key.specs().collect(), 0.0).collect(),
            ChoiceSource::Rule => {
                let of_access = |(planned, specs): (PlannedProblem, Vec<Spec>)| {
                    ranked(Shape::of_planned(&planned), specs, planned.repack_cycles())
                };
                key.rule().into_iter().flat_map(of_access).collect()
            }
        };
        all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let most = all.first().map_or(0.0, |(least, _)| least * self.within);
        let near = all.into_iter().take_while(|(cycles, _)| *cycles <= most);
        let near = near.map(|(_, choice)| choice);
        match self.source {
            ChoiceSource::Catalogue => near.take(self.limit).collect(),
            ChoiceSource::Rule => self.drawn(key, near.collect()),
        }
    }

    /// The choices for each of these problems. All cores share the estimates: those of a problem
    /// take some tenths of a second.
    pub fn choices_of_all(
        &self,
        keys: &[ProblemKey],
        device: impl Into<DeviceFacts>,
    ) -> Vec<Vec<Choice>> {
        let device = device.into();
        keys.par_iter().map(|key| self.choices(key, device)).collect()
    }

    /// Half of them the most promising of these choices, each kernel and split with all launches
    /// that it has, the others drawn. Of these, each kernel with its split has one launch, the one
    /// that is estimated as faster.
    fn drawn(&self, key: &ProblemKey, ranked: Vec<Choice>) -> Vec<Choice> {
        let mut places = HashMap::new();
        let mut kernels: Vec<Vec<Choice>> = Vec::new();
        for choice in ranked {
            let place = *places.entry((choice.spec, choice.split)).or_insert(kernels.len());
            match kernels.get_mut(place) {
                Some(launches) => launches.push(choice),
                None => kernels.push(vec![choice]),
            }
        }
        let half = self.limit.div_ceil(2);
        let mut kernels = kernels.into_iter();
        let mut choices = Vec::new();
        while choices.len() < half
            && let Some(launches) = kernels.next()
        {
            choices.extend(launches);
        }
        let mut others: Vec<Choice> = kernels.map(|launches| launches[0]).collect();
        others.retain(|choice| is_in_pool(&choice.spec));
        let [m, n, k] = key.extents();
        let mut numbers = ChaCha8Rng::seed_from_u64(m << 42 ^ n << 21 ^ k);
        others.shuffle(&mut numbers);
        choices.extend(others);
        choices.truncate(self.limit);
        choices
    }

    /// The approximate time of these choices, in seconds.
    fn seconds(&self, key: &ProblemKey, choices: &[Choice], device: DeviceFacts) -> f64 {
        // Each choice has at least a first launch, two estimates of its time and a launch in each
        // slice.
        let slices = f64::from(2 * self.rounds());
        let of = |choice: &Choice| {
            let fewest = (3.0 + slices) * expected_seconds(key, choice, device);
            slices * self.lead_in_seconds + fewest.max(self.seconds_per_choice)
        };
        HEAT_SECONDS + choices.iter().map(of).sum::<f64>()
    }

    fn rounds(&self) -> u32 {
        if self.lead_in_seconds > 0.0 { ROUNDS_WITH_LEAD_IN } else { ROUNDS }
    }

    /// How the choices of a problem are timed.
    fn protocol(&self) -> Protocol {
        let slice = self.seconds_per_choice / f64::from(2 * self.rounds());
        Protocol {
            rounds: self.rounds(),
            lead_in_seconds: self.lead_in_seconds,
            palindromes_per_round: 1,
            slice_seconds: slice.max(Protocol::SHORTEST_QUICK_SLICE),
            warm_up_min_seconds: HEAT_SECONDS,
            warm_up_max_seconds: HEAT_SECONDS,
            energy_rounds: 0,
            ..Protocol::default()
        }
    }
}

/// Whether a spec belongs to the eighth of all specs that choices are drawn from, so that surveys
/// of many problems need few kernels.
fn is_in_pool(spec: &Spec) -> bool {
    if spec.wgmma().is_none() {
        return true;
    }
    let mut hasher = DefaultHasher::new();
    spec.hash(&mut hasher);
    hasher.finish().is_multiple_of(8)
}

/// The heuristic's estimate for one GEMM, seconds.
fn expected_seconds(key: &ProblemKey, choice: &Choice, device: DeviceFacts) -> f64 {
    key.cycles(choice, device).unwrap_or_else(|| heuristic::cycles(choice, key.shape(), device))
        / CLOCK_HZ
}

/// One choice for one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SurveyRow {
    /// The problem.
    #[serde(flatten)]
    pub key: ProblemKey,
    /// The timed choice.
    #[serde(flatten)]
    pub choice: Choice,
    /// How launches reached the GPU.
    pub launch: LaunchMode,
    /// Microseconds per GEMM, or `None` if it cannot run.
    pub microseconds: Option<f64>,
    /// Microseconds per GEMM of cuBLASLt's first pick, which ran in turn with the choices.
    pub peer_microseconds: Option<f64>,
    /// Why it cannot run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The rows of a problem's choices. Those that could run were the first contestants, in their
/// order, and the peer, if it could, was the last one.
fn rows(
    key: &ProblemKey,
    choices: &[(Choice, Result<(), String>)],
    with_peer: bool,
    measurement: Option<&Measurement>,
) -> Vec<SurveyRow> {
    // Times are rounded to nanoseconds. Files stay small, and slices are not more exact.
    let microseconds = |contestant: usize| {
        let seconds = Summary::of(&measurement?.seconds_per_gemm(contestant))?;
        Some((seconds.median * 1e9).round() / 1e3)
    };
    let ran = choices.iter().filter(|(_, entered)| entered.is_ok()).count();
    let peer_microseconds = with_peer.then(|| microseconds(ran)).flatten();
    let launch = measurement.map_or(LaunchMode::Graph, |measurement| measurement.launch);
    let mut contestants = 0..ran;
    let row = |(choice, entered): &(Choice, Result<(), String>)| SurveyRow {
        key: *key,
        choice: *choice,
        launch,
        microseconds: entered.as_ref().ok().and_then(|()| microseconds(contestants.next()?)),
        peer_microseconds,
        error: entered.as_ref().err().cloned(),
    };
    choices.iter().map(row).collect()
}

/// A survey: one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    /// The run.
    #[serde(flatten)]
    pub head: Head,
    /// The machine.
    pub machine: Machine,
    /// The options of the survey.
    pub options: SurveyOptions,
    /// One row for each choice and problem.
    #[serde(default, skip_serializing)]
    pub rows: Vec<SurveyRow>,
}

impl Survey {
    /// An empty survey that begins now, with this process's command line.
    pub fn new(machine: Machine, options: SurveyOptions) -> Survey {
        Survey { head: Head::now(ResultsKind::Survey), machine, options, rows: Vec::new() }
    }

    /// Writes JSON with one row a line. A reader sees the old file or the new one, never half of
    /// either.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed =
            |error: serde_json::Error| Error::Io { path: path.to_owned(), source: error.into() };
        Ok(files::write(path, self.text().map_err(failed)?.as_bytes())?)
    }

    fn text(&self) -> serde_json::Result<String> {
        let head = serde_json::to_string(self)?;
        let rows: Vec<String> =
            self.rows.iter().map(serde_json::to_string).collect::<serde_json::Result<_>>()?;
        let head = head.strip_suffix('}').unwrap_or(&head);
        Ok(format!("{head},\"rows\":[\n{}\n]}}\n", rows.join(",\n")))
    }
}

#[cfg(test)]
mod tests;
