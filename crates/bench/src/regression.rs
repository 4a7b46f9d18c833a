//! The frozen regression sample: problems of every type, schedule and kind of launch, on which a
//! release is measured in pairs against the previous one. Both releases are loaded as shared
//! libraries through the C interface. They run in one process on the same operands and are verified
//! before they are timed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use persistent_gemm::engine::Goal;
use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind};
use persistent_gemm::measure::{Elements, OperandSets, Protocol};
use persistent_gemm::stats::{Summary, geometric_mean};
use pgemm_ir::Element;
use pgemm_kernels::Epilogue;
use pgemm_plan::{Config, Major, Precision, Problem};
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::error::{BenchError, Result};
use crate::machine::Machine;
use crate::names::problem_name;
use crate::release::{Release, ReleaseContestant, ReleaseEngine, ReleaseKnobs};

/// A pair whose ratio is below this is measured again, and fails if it stays below.
pub const LEAST_RATIO: f64 = 0.98;
/// The geometric mean of all ratios may not be below this.
pub const LEAST_MEAN: f64 = 0.995;

/// A pair is repeated with this many times the seconds.
const LONGER: f64 = 3.0;
/// Jobs of an engine in a repetition, and operand sets that they rotate through.
const JOBS: usize = 1000;
const JOB_SETS: usize = 64;
/// Calls in a repetition: fewer than the driver queues before a call waits.
const CALLS: usize = 256;
/// Rounds of jobs or calls, each with both releases forwards and backwards.
const ROUNDS: usize = 9;
/// Time after which an engine has left the device; it leaves one millisecond after its last job.
const UNTIL_IT_HAS_LEFT: Duration = Duration::from_millis(3);
const SEED: u64 = 1;

/// The kind of launch of a problem of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegressionKind {
    /// Launches of a prepared product, timed on the device.
    Launch,
    /// Jobs of a resident engine, timed by the host.
    Jobs,
    /// Calls that launch a prepared product: the host's time only.
    Calls,
}

impl fmt::Display for RegressionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegressionKind::Launch => "launch",
            RegressionKind::Jobs => "jobs",
            RegressionKind::Calls => "calls",
        })
    }
}

/// One problem of the sample.
#[derive(Clone, Debug, PartialEq)]
pub struct RegressionProblem {
    /// The kind of launch.
    pub kind: RegressionKind,
    /// Extents, layouts and scalars.
    pub problem: Problem,
    /// Types, precision and epilogue.
    pub elements: Elements,
    /// The knobs that are set.
    pub knobs: ReleaseKnobs,
}

impl fmt::Display for RegressionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, problem_name(&self.problem, self.elements))?;
        match &self.knobs.split {
            Some(split) => write!(f, " {split}"),
            None => Ok(()),
        }
    }
}

/// The comparison of two releases on one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegressionRow {
    /// The problem's name.
    pub problem: String,
    /// Microseconds of a product, job or call with the old release: the median of all rounds.
    pub old_microseconds: f64,
    /// The same with the new release.
    pub new_microseconds: f64,
    /// Time of the old release over that of the new one. Above 1 the new release is faster.
    pub ratio: Summary,
    /// The first ratio, if the pair was measured again because it was below [`LEAST_RATIO`].
    pub first_ratio: Option<f64>,
}

/// The comparison of two releases: one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegressionReport {
    /// The run.
    #[serde(flatten)]
    pub head: Head,
    /// The machine.
    pub machine: Machine,
    /// The versions of the old and the new release.
    pub versions: [String; 2],
    /// One row for each problem that was measured.
    pub compared: Vec<RegressionRow>,
    /// The problems that were not measured, each with its error.
    pub failed: Vec<String>,
}

impl RegressionReport {
    /// The geometric mean of all ratios. `None` if there are none.
    pub fn geometric_mean(&self) -> Option<f64> {
        geometric_mean(self.compared.iter().map(|row| row.ratio.median))
    }

    /// The row with the lowest ratio.
    pub fn worst(&self) -> Option<&RegressionRow> {
        self.compared.iter().min_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median))
    }

    /// Whether all problems were measured and nothing is slower: no ratio is below
    /// [`LEAST_RATIO`], and their mean is not below [`LEAST_MEAN`].
    pub fn nothing_is_slower(&self) -> bool {
        self.failed.is_empty()
            && self.worst().is_some_and(|row| row.ratio.median >= LEAST_RATIO)
            && self.geometric_mean().is_some_and(|mean| mean >= LEAST_MEAN)
    }

    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// [`persistent_gemm::Error::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(files::write_json(path, self)?)
    }
}

/// The frozen sample of this crate, `regression.toml`.
///
/// # Errors
/// [`BenchError::SuiteSyntax`] if this version was built with a broken file.
pub fn regression_sample() -> Result<Vec<RegressionProblem>> {
    let file: File = toml::from_str(include_str!("../regression.toml"))
        .map_err(|error| BenchError::SuiteSyntax { finding: Box::new(error) })?;
    let groups = [
        (RegressionKind::Launch, file.products),
        (RegressionKind::Jobs, file.jobs),
        (RegressionKind::Calls, file.calls),
    ];
    let problems = groups
        .into_iter()
        .flat_map(|(kind, groups)| groups.into_iter().flat_map(move |group| group.problems(kind)));
    Ok(problems.collect())
}

/// `regression.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    products: Vec<Group>,
    jobs: Vec<Group>,
    calls: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    dtype: Element,
    output: Option<Element>,
    #[serde(default)]
    precision: Precision,
    #[serde(default)]
    epilogue: Epilogue,
    #[serde(default)]
    majors: Majors,
    #[serde(default)]
    beta: f64,
    split: Option<String>,
    problems: Vec<Extents>,
}

/// The contiguous dimensions of A and B, and an `m` where D is column-major.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Majors {
    #[default]
    Kk,
    Kn,
    Mk,
    Mn,
    Mnm,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Extents {
    /// M, N, K.
    One([usize; 3]),
    /// M, N, K, and the batch.
    Batch([usize; 4]),
}

impl Group {
    fn problems(self, kind: RegressionKind) -> impl Iterator<Item = RegressionProblem> {
        let (a_major, b_major, d_major) = match self.majors {
            Majors::Kk => (Major::K, Major::K, Major::N),
            Majors::Kn => (Major::K, Major::N, Major::N),
            Majors::Mk => (Major::M, Major::K, Major::N),
            Majors::Mn => (Major::M, Major::N, Major::N),
            Majors::Mnm => (Major::M, Major::N, Major::M),
        };
        let output = self.output.unwrap_or_else(|| Config::new(self.dtype).output_dtype());
        let (precision, epilogue) = (self.precision, self.epilogue);
        let elements = Elements { precision, epilogue, ..Elements::new(self.dtype, output) };
        let knobs = ReleaseKnobs { split: self.split, ..ReleaseKnobs::default() };
        self.problems.into_iter().map(move |extents| {
            let ([m, n, k], batch) = match extents {
                Extents::One(extents) => (extents, 1),
                Extents::Batch([m, n, k, batch]) => ([m, n, k], batch),
            };
            let problem = Problem::new(m, n, k, a_major, b_major).with_d_major(d_major);
            let problem = problem.with_batch(batch).with_beta(self.beta);
            RegressionProblem { kind, problem, elements, knobs: knobs.clone() }
        })
    }
}

/// Two releases on one device.
pub struct Regression<'a> {
    bench: &'a Bench,
    old: Release,
    new: Release,
    seconds: f64,
}

impl<'a> Regression<'a> {
    /// Loads the shared libraries of both releases. A pair of launches takes about `seconds`.
    ///
    /// # Errors
    /// The errors of [`Release::open`].
    pub fn open(bench: &'a Bench, old: &Path, new: &Path, seconds: f64) -> Result<Regression<'a>> {
        Ok(Regression { bench, old: Release::open(old)?, new: Release::open(new)?, seconds })
    }

    /// A report without rows.
    pub fn report(&self) -> RegressionReport {
        RegressionReport {
            head: Head::now(ResultsKind::Regression),
            machine: self.bench.machine(None),
            versions: [&self.old, &self.new].map(Release::version),
            compared: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Measures a pair, and once more, for longer, if the new release seems to be slower.
    ///
    /// # Errors
    /// A wrong result or an error of either release, or driver errors.
    pub fn compare(&self, problem: &RegressionProblem) -> Result<RegressionRow> {
        let first = self.pair(problem, self.seconds)?;
        if first.ratio.median >= LEAST_RATIO {
            return Ok(first);
        }
        let again = self.pair(problem, LONGER * self.seconds)?;
        Ok(RegressionRow { first_ratio: Some(first.ratio.median), ..again })
    }

    fn pair(&self, problem: &RegressionProblem, seconds: f64) -> Result<RegressionRow> {
        match problem.kind {
            RegressionKind::Launch => self.launches(problem, seconds),
            RegressionKind::Jobs => self.jobs(problem),
            RegressionKind::Calls => self.calls(problem),
        }
    }

    fn contestants(
        &self,
        problem: &RegressionProblem,
        operands: &Arc<OperandSets>,
    ) -> Result<[ReleaseContestant; 2]> {
        let device = self.bench.device();
        let knobs = &problem.knobs;
        Ok([
            self.old.contestant("old", device, operands, knobs)?,
            self.new.contestant("new", device, operands, knobs)?,
        ])
    }

    fn launches(&self, problem: &RegressionProblem, seconds: f64) -> Result<RegressionRow> {
        let operands = self.bench.operands(&problem.problem, problem.elements, SEED)?;
        let [mut old, mut new] = self.contestants(problem, &operands)?;
        let protocol = Protocol { energy_rounds: 0, ..Protocol::within(seconds, 2) };
        let outcome = self.bench.pair(&operands, &mut new, &mut old, &protocol)?;
        let [new, old] = &outcome.contestants[..] else {
            return Err(persistent_gemm::measure::MeasureError::NoContestants.into());
        };
        Ok(RegressionRow {
            problem: problem.to_string(),
            old_microseconds: old.microseconds.median,
            new_microseconds: new.microseconds.median,
            ratio: new.ratio,
            first_ratio: None,
        })
    }

    fn jobs(&self, problem: &RegressionProblem) -> Result<RegressionRow> {
        let (bench, stream) = (self.bench, self.bench.stream());
        let (device, elements) = (bench.device(), problem.elements);
        let operands =
            OperandSets::rotating(device, &problem.problem, elements, JOB_SETS, SEED, stream)?;
        let operands = Arc::new(operands);
        let engine = |release: &Release| release.engine(device, &operands, Goal::Throughput);
        let [old, new] = [engine(&self.old)?, engine(&self.new)?];
        let repeat = |engine: &ReleaseEngine| {
            // The first job brings the kernel back to the device.
            engine.run(1)?;
            let begin = Instant::now();
            engine.run(JOBS)?;
            let seconds = begin.elapsed().as_secs_f64();
            std::thread::sleep(UNTIL_IT_HAS_LEFT);
            Ok(seconds / JOBS as f64)
        };
        rounds(problem, || repeat(&old), || repeat(&new))
    }

    fn calls(&self, problem: &RegressionProblem) -> Result<RegressionRow> {
        let stream = self.bench.stream();
        let operands = self.bench.operands(&problem.problem, problem.elements, SEED)?;
        let [old, new] = self.contestants(problem, &operands)?;
        let repeat = |contestant: &ReleaseContestant| {
            stream.synchronize()?;
            let begin = Instant::now();
            for call in 0..CALLS {
                contestant.run(call % operands.count(), stream)?;
            }
            let seconds = begin.elapsed().as_secs_f64();
            stream.synchronize()?;
            Ok(seconds / CALLS as f64)
        };
        rounds(problem, || repeat(&old), || repeat(&new))
    }
}

/// Rounds of old, new, new, old after a warm-up of each. Each repetition returns its seconds.
fn rounds(
    problem: &RegressionProblem,
    mut old: impl FnMut() -> Result<f64>,
    mut new: impl FnMut() -> Result<f64>,
) -> Result<RegressionRow> {
    old()?;
    new()?;
    let (mut of_old, mut of_new, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let first = old()?;
        let ours = (new()? + new()?) / 2.0;
        let theirs = (first + old()?) / 2.0;
        of_old.push(theirs * 1e6);
        of_new.push(ours * 1e6);
        ratios.push(theirs / ours);
    }
    let median = |values: &[f64]| Summary::of(values).map(|summary| summary.median);
    let row = median(&of_old).zip(median(&of_new)).zip(Summary::of(&ratios));
    let ((old_microseconds, new_microseconds), ratio) =
        row.ok_or(persistent_gemm::measure::MeasureError::NoRounds)?;
    Ok(RegressionRow {
        problem: problem.to_string(),
        old_microseconds,
        new_microseconds,
        ratio,
        first_ratio: None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pgemm_plan::Plan;

    use super::*;

    #[test]
    fn the_sample_has_every_type_and_can_be_planned() {
        let sample = regression_sample().unwrap();
        let launched = sample.iter().filter(|problem| problem.kind == RegressionKind::Launch);
        assert!(launched.count() >= 60, "{}", sample.len());
        let types: BTreeSet<String> =
            sample.iter().map(|problem| problem.elements.a.to_string()).collect();
        for operand in pgemm_kernels::PRODUCTS.iter().flat_map(|product| product.operands) {
            let name = operand.to_string();
            assert!(types.contains(&name), "{name} is not in the sample: {types:?}");
        }
        let names: BTreeSet<String> = sample.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), sample.len(), "a problem is in the sample twice");
        for problem in sample {
            let Elements { a, d, precision, epilogue, .. } = problem.elements;
            let config = Config::new(a).with_output(d).with_precision(precision);
            let config = config.with_epilogue(epilogue);
            let plan = Plan::best(&problem.problem, &config, 132);
            assert!(plan.is_ok(), "{problem}: {plan:?}");
        }
    }

    #[test]
    fn one_slow_problem_or_a_slow_mean_or_an_error_fails() {
        let problem = &regression_sample().unwrap()[0];
        let report = |ratios: &[f64], failed: &[&str]| RegressionReport {
            head: Head::now(ResultsKind::Regression),
            machine: Machine::example(),
            versions: Default::default(),
            compared: ratios
                .iter()
                .map(|ratio| rounds(problem, || Ok(*ratio), || Ok(1.0)).unwrap())
                .collect(),
            failed: failed.iter().map(ToString::to_string).collect(),
        };
        assert!(report(&[0.985, 1.02], &[]).nothing_is_slower());
        assert!(!report(&[0.97, 1.1], &[]).nothing_is_slower());
        assert!(!report(&[0.99, 0.99], &[]).nothing_is_slower());
        assert!(!report(&[1.0], &["a wrong result"]).nothing_is_slower());
        assert!(!report(&[], &[]).nothing_is_slower());
        let report = report(&[1.0, 0.99, 1.1], &[]);
        assert_eq!(report.worst(), Some(&report.compared[1]));
    }

    #[test]
    fn rounds_compare_the_releases() {
        let problem = &regression_sample().unwrap()[0];
        let row = rounds(problem, || Ok(3e-6), || Ok(2e-6)).unwrap();
        assert_eq!((row.old_microseconds, row.new_microseconds), (3.0, 2.0));
        assert!((row.ratio.median - 1.5).abs() < 1e-12);
        assert!(row.problem.starts_with("launch bf16 kk 8192x8192x8192"), "{}", row.problem);
    }
}
