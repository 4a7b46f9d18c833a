//! [`Collection`]: the results of any number of files as flat rows, whatever command wrote them.
//!
//! Reports, plots and comparisons are made of these rows. `docs/benchmarking.md` describes the
//! files.

mod compact;
mod full;

use std::collections::BTreeMap;
use std::path::Path;

use persistent_gemm::error::FileDamage;
use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind};
use persistent_gemm::measure::{Elements, operand_bytes};
use persistent_gemm::tune;
use pgemm_plan::Problem;
use serde::{Serialize, Serializer};

use crate::atlas::{AtlasFile, Fault, Regime};
use crate::error::{BenchError, Result};
use crate::names::parsed_name;
use crate::numbers::NumbersReport;
use crate::report::Report;
use crate::roofline::{Medians, RooflineReport};
use crate::stream::Method;
use crate::suite::Suite;

/// The group of problems that belong to no family of the suite.
const OTHER_PROBLEMS: &str = "problems";

/// Smallest, median and largest.
pub type Spread = [f64; 3];

/// The rows of several files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Collection {
    /// The runs. Rows have an index into them.
    pub runs: Vec<Run>,
    /// Upper limits of the throughput of the problems' types.
    pub ceilings: Ceilings,
    /// Problems that were timed, alone or beside other libraries.
    pub problems: Vec<ProblemRow>,
    /// Many jobs in a row.
    pub streams: Vec<StreamRow>,
    /// Errors of results.
    pub errors: Vec<ErrorRow>,
    /// Releases beside older ones.
    pub comparisons: Vec<ComparisonRow>,
    /// What the autotuner found.
    pub tuned: Vec<TunedRow>,
}

/// How and where rows were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// The name of the file, or of the run in a file of several.
    pub name: String,
    /// What was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ResultsKind>,
    /// When the run began, UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// The device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The driver's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The CUDA version that the driver supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// The version of cuBLASLt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cublaslt: Option<String>,
    /// The version of this library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The power limit, watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// What else one must know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Upper limits of throughput.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ceilings {
    /// Of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryCeiling>,
    /// Of arithmetic, by the types of a problem.
    pub types: BTreeMap<String, ArithmeticCeiling>,
}

/// The rate at which memory is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemoryCeiling {
    /// 10⁹ bytes per second.
    pub gb_per_s: f64,
    /// Whether it was measured on the device of the rows.
    pub measured: bool,
}

/// The rate of multiplications and additions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ArithmeticCeiling {
    /// 10¹² operations per second.
    pub tflops: f64,
    /// Whether it was measured on the device of the rows.
    pub measured: bool,
}

/// A problem that was timed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProblemRow {
    /// The index of the run.
    pub run: usize,
    /// The name that [`problem_name`](crate::problem_name) returns.
    pub problem: String,
    /// The family of the suite, or the population.
    pub group: String,
    /// Element types and the mode of computation, as the problem's name has them.
    #[serde(rename = "type")]
    pub types: String,
    /// Rows of D.
    pub m: usize,
    /// Columns of D.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
    /// Products of the batch.
    #[serde(skip_serializing_if = "is_one")]
    pub batch: usize,
    /// The contiguous dimensions of A and B.
    pub majors: String,
    /// Multiplications and additions.
    pub operations: u64,
    /// Bytes of A, B, D and, where it is read, C.
    pub bytes: u64,
    /// What bounds the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regime: Option<Regime>,
    /// `eager` or `graph`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<String>,
    /// Our kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// What the problem is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Our microseconds. `None` if nothing was timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub us: Option<f64>,
    /// Our joules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
    /// The clock of the SMs during our launches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mhz: Option<f64>,
    /// The other libraries.
    pub peers: Vec<PeerRow>,
    /// Who did not run or was wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

fn is_one(count: &usize) -> bool {
    *count == 1
}

/// Another library on a problem.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerRow {
    /// Its name.
    pub name: String,
    /// Its microseconds.
    pub us: f64,
    /// Its time over ours.
    pub ratio: Spread,
    /// Its joules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
    /// What ran, in its own terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
}

/// Many jobs of a problem in a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamRow {
    /// The index of the run.
    pub run: usize,
    /// The problem of each job.
    pub problem: String,
    /// Jobs in a row.
    pub count: usize,
    /// Multiplications and additions of a job.
    pub operations: u64,
    /// The times.
    pub methods: Vec<MethodRow>,
}

/// The times of a contestant with one method.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodRow {
    /// The contestant.
    pub contestant: String,
    /// How its jobs reach the device.
    #[serde(serialize_with = "method_name")]
    pub method: Method,
    /// Microseconds per job.
    pub us: Spread,
}

fn method_name<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.name())
}

/// Errors of the results of a product.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorRow {
    /// The index of the run.
    pub run: usize,
    /// The problem.
    pub problem: String,
    /// Element types and the mode, as in [`ProblemRow::types`].
    #[serde(rename = "type")]
    pub types: String,
    /// The values of the operands.
    pub values: String,
    /// The results of each contestant.
    pub results: Vec<ErrorsOf>,
}

/// Errors of the results of a contestant, as `docs/numbers.md` explains them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorsOf {
    /// The contestant.
    pub name: String,
    /// The normwise error.
    pub normwise: f64,
    /// The largest elementwise error.
    pub elementwise: f64,
    /// The mean elementwise error, with its sign.
    pub bias: f64,
    /// The largest part of a bound that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_bound: Option<f64>,
    /// Whether every element is within its bound. `None` if there is none, or in compact lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_bound: Option<bool>,
    /// Elements that are infinite although the reference is not, or NaN. `None` in compact lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<u64>,
}

/// A release beside an older one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonRow {
    /// The index of the run.
    pub run: usize,
    /// What was timed: `launch`, `jobs` or `calls`.
    pub kind: String,
    /// The problem.
    pub problem: String,
    /// Microseconds of the older release.
    pub old_us: f64,
    /// Microseconds of the newer one.
    pub new_us: f64,
    /// The time of the older one over that of the newer one.
    pub ratio: Spread,
}

/// What the autotuner found for a problem.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedRow {
    /// The index of the run.
    pub run: usize,
    /// The problem.
    pub problem: String,
    /// Element types and the mode, as in [`ProblemRow::types`].
    #[serde(rename = "type")]
    pub types: String,
    /// Rows of D.
    pub m: usize,
    /// Columns of D.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
    /// What the heuristic picks.
    pub picked: String,
    /// What is used.
    pub chosen: String,
    /// The pick's time over the finalist's: the ends of the interval, and between them the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Spread>,
    /// Candidates that were timed.
    pub trials: usize,
}

impl Collection {
    /// Reads files of results. Of files with several runs, as those in `benchmarks/results`, only
    /// runs for whose name `wanted` returns true are read.
    ///
    /// # Errors
    /// [`Error::Io`](persistent_gemm::Error::Io), and [`BenchError::Results`] for what holds no
    /// results.
    pub fn read<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Collection> {
        let mut reader = Reader {
            suite: Suite::standard()?,
            collection: Collection::default(),
            ceilings: Medians::default(),
            ceilings_run: None,
        };
        for path in paths {
            reader.add_file(path.as_ref(), &wanted)?;
        }
        Ok(reader.finish())
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        let Collection { problems, streams, errors, comparisons, tuned, .. } = self;
        problems.len() + streams.len() + errors.len() + comparisons.len() + tuned.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads files into a collection.
struct Reader {
    suite: Suite,
    collection: Collection,
    /// The ceilings of the card, from the last run that measured some.
    ceilings: Medians,
    /// That run.
    ceilings_run: Option<usize>,
}

impl Reader {
    /// The collection with the ceilings of the types of its problems: the nominal ones where
    /// nothing was measured.
    fn finish(self) -> Collection {
        let Reader { mut collection, ceilings, .. } = self;
        for row in &collection.problems {
            let Some((_, elements)) = parsed_name(&row.problem) else { continue };
            let limits = ceilings.limits(elements);
            let ceiling = ArithmeticCeiling {
                tflops: limits.rates.operations_per_second / 1e12,
                measured: limits.arithmetic_measured,
            };
            collection.ceilings.types.entry(row.types.clone()).or_insert(ceiling);
            let memory = MemoryCeiling {
                gb_per_s: limits.rates.bytes_per_second / 1e9,
                measured: limits.memory_measured,
            };
            collection.ceilings.memory.get_or_insert(memory);
        }
        collection
    }

    fn add_file(&mut self, path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        let text = files::read(path)?;
        let unreadable =
            |finding| BenchError::Results { path: path.to_owned(), finding: Box::new(finding) };
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        if compact::begins(line) {
            return self.add_compact(&text, wanted).map_err(unreadable);
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // The head of an atlas is its first line, and that of other files a part of the whole.
        if AtlasFile::begins(line) {
            let atlas = AtlasFile::read(path)?;
            self.add_atlas(name, &atlas);
            return Ok(());
        }
        match ResultsKind::of(&text).map_err(unreadable)? {
            kind @ ResultsKind::Bench => {
                let report: Report = Head::parse(&text, kind).map_err(unreadable)?;
                self.add_report(name, &report);
            }
            kind @ ResultsKind::Numbers => {
                let report: NumbersReport = Head::parse(&text, kind).map_err(unreadable)?;
                self.add_numbers(name, &report);
            }
            #[cfg(feature = "peers")]
            kind @ ResultsKind::Regression => {
                let report: crate::RegressionReport =
                    Head::parse(&text, kind).map_err(unreadable)?;
                self.add_regression(name, &report);
            }
            kind @ ResultsKind::Roofline => {
                let report: RooflineReport = Head::parse(&text, kind).map_err(unreadable)?;
                self.add_roofline(name, &report);
            }
            ResultsKind::Autotune => {
                let results = tune::Results::read(path)?;
                self.add_tuned(name, &results);
            }
            other => return Err(unreadable(FileDamage::NoRows { kind: other.name() })),
        }
        Ok(())
    }

    /// The index of a run, which is added.
    fn add_run(&mut self, run: Run) -> usize {
        self.collection.runs.push(run);
        self.collection.runs.len() - 1
    }

    /// A row of this problem without times.
    fn row(&self, run: usize, name: &str, problem: &Problem, elements: Elements) -> ProblemRow {
        let family = self.suite.family_of(problem, elements.a);
        ProblemRow {
            run,
            problem: name.to_owned(),
            group: family.map_or(OTHER_PROBLEMS, |family| &family.name).to_owned(),
            types: types_of(name).to_owned(),
            m: problem.m,
            n: problem.n,
            k: problem.k,
            batch: problem.batch.count,
            majors: format!("{}{}", problem.a.major, problem.b.major),
            operations: problem.operations().unwrap_or(0),
            bytes: operand_bytes(problem, elements).map_or(0, |bytes| bytes as u64),
            regime: Regime::of(problem, elements).ok(),
            launch: None,
            kernel: None,
            label: None,
            us: None,
            joules: None,
            mhz: None,
            peers: Vec::new(),
            faults: Vec::new(),
        }
    }
}

impl ComparisonRow {
    /// The row of a name that begins with what was timed.
    fn new(run: usize, name: &str, [old_us, new_us]: [f64; 2], ratio: Spread) -> ComparisonRow {
        let (kind, problem) = name.split_once(' ').unwrap_or(("", name));
        let (kind, problem) = (kind.to_owned(), problem.to_owned());
        ComparisonRow { run, kind, problem, old_us, new_us, ratio }
    }
}

/// What a problem's name says before its majors.
fn types_of(name: &str) -> &str {
    crate::names::split_name(name).map_or(name, |(types, _, _)| types)
}

#[cfg(test)]
mod tests;
