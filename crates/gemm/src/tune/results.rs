//! Results files: what was tuned, on what, and every number behind it. They are written whole or not at all, after each
//! problem, and read with suspicion.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pgemm_ir::Element;
use pgemm_kernels::AnySpec;
use serde::{Deserialize, Serialize};

use super::error::TuneError;
use super::search::{Finalist, Search, Trial, TuneOptions};
use crate::batch::Batch;
use crate::bench::{Elements, driver_version, now};
use crate::choice::Choice;
use crate::config::{Config, MAX_SPLITS, Split};
use crate::driver::DeviceProperties;
use crate::error::{Error, Result};
use crate::files;
use crate::heuristic::Shape;
use crate::plan::specs_for;
use crate::precision::{Precision, is_default};
use crate::problem::{Major, Problem};
use crate::reading::{Aligned, Seen};

/// The form of [`Results`]; goes up when a field changes its meaning or disappears.
pub const SCHEMA: u32 = 2;

/// What a choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProblemKey {
    /// Rows of A and D.
    pub m: usize,
    /// Columns of B and D.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Element type of A, and of B where that is not given.
    pub dtype: Element,
    /// Element type of B, where it is not A's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b_dtype: Option<Element>,
    /// Element type of C and D.
    pub output: Element,
    /// How accurately products are added up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub precision: Precision,
    /// Contiguous dimension of A.
    pub a_major: Major,
    /// Contiguous dimension of B.
    pub b_major: Major,
    /// Products, and whether all have the same A or the same B.
    #[serde(default, skip_serializing_if = "KeyBatch::is_one")]
    pub batch: KeyBatch,
}

/// What a choice depends on of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyBatch {
    /// Products.
    pub count: usize,
    /// Whether all have the same A.
    #[serde(default)]
    pub same_a: bool,
    /// Whether all have the same B.
    #[serde(default)]
    pub same_b: bool,
}

impl KeyBatch {
    fn is_one(&self) -> bool {
        *self == KeyBatch::default()
    }
}

/// A single product.
impl Default for KeyBatch {
    fn default() -> KeyBatch {
        KeyBatch { count: 1, same_a: false, same_b: false }
    }
}

impl ProblemKey {
    /// The key of a problem under a config: as the kernel sees it, so that operands that are laid out anew count as such, and a
    /// column-major D as that of the transposed problem. Leading dimensions and scalars are not part of it.
    pub fn of(problem: &Problem, config: &Config) -> ProblemKey {
        let Seen { problem, config, .. } = Seen::new(problem, config, Aligned::ALL);
        ProblemKey {
            m: problem.m,
            n: problem.n,
            k: problem.k,
            dtype: config.dtype,
            b_dtype: Some(config.b_dtype()).filter(|b| *b != config.dtype),
            output: config.output_dtype(),
            precision: config.precision(),
            a_major: problem.a.major,
            b_major: problem.b.major,
            batch: match problem.batch {
                Batch { count: 1, .. } => KeyBatch::default(),
                Batch { count, a, b, .. } => KeyBatch { count, same_a: a == 0, same_b: b == 0 },
            },
        }
    }

    /// Element types of A and B.
    pub fn operands(&self) -> [Element; 2] {
        [self.dtype, self.b_dtype.unwrap_or(self.dtype)]
    }

    /// The config of its types, with every knob left to the planner.
    pub fn config(&self) -> Config {
        let [a, b] = self.operands();
        Config::new(a).with_b_dtype(b).with_output(self.output).with_precision(self.precision)
    }

    /// The problem that is measured: no gaps between lines or matrices, alpha = 1, beta = 0.
    pub fn problem(&self) -> Problem {
        let KeyBatch { count, same_a, same_b } = self.batch;
        let problem = Problem::new(self.m, self.n, self.k, self.a_major, self.b_major);
        let problem = problem.with_batch(count);
        let problem = if same_a { problem.with_a_batch_stride(0) } else { problem };
        if same_b { problem.with_b_batch_stride(0) } else { problem }
    }

    /// Its m, n and k.
    pub fn extents(&self) -> [u64; 3] {
        [self.m, self.n, self.k].map(|extent| extent as u64)
    }

    /// [`problem`](Self::problem) as the heuristic sees it.
    pub fn shape(&self) -> Shape {
        Shape::of(&self.problem(), &self.config())
    }

    /// Every spec of the catalogue that can compute it.
    pub fn specs(&self) -> impl Iterator<Item = AnySpec> + use<> {
        specs_for(&self.problem(), self.operands(), self.output, self.precision, None)
    }

    /// Element types for the benchmark harness.
    pub fn elements(&self) -> Elements {
        let [a, b] = self.operands();
        Elements { b, precision: self.precision, ..Elements::new(a, self.output) }
    }

    /// Whether a choice's kernel has its majors.
    pub(super) fn has_majors_of(&self, choice: &Choice) -> bool {
        choice.has_majors(self.a_major, self.b_major)
    }

    fn fits(&self, candidate: &Choice) -> bool {
        let spec = &candidate.spec;
        let types = (candidate.operands(), spec.output()) == (self.operands(), self.output);
        let splits = match candidate.split {
            Split::SplitK(splits) => Some(splits),
            Split::Whole | Split::StreamK => None,
        };
        types
            && Precision::of(spec) == self.precision
            && self.has_majors_of(candidate)
            && candidate.raster_rows > 0
            && splits.is_none_or(|splits| (1..=MAX_SPLITS).contains(&splits))
            && spec.validate().is_ok()
    }
}

/// Where results hold: on this device, with this driver, with this version of the library.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// The device's name.
    pub device: String,
    /// The device's identity. Results hold on others of the same name too.
    pub uuid: String,
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// The CUDA version that the driver supports, such as `13.0`.
    pub cuda: String,
    /// The driver's version; `None` without NVML.
    pub driver: Option<String>,
    /// Version of this library.
    pub version: String,
}

impl Platform {
    /// A device under its present driver.
    pub fn of(device: &DeviceProperties) -> Platform {
        Platform {
            device: device.name.clone(),
            uuid: device.uuid_text(),
            sm_count: device.sm_count,
            cuda: device.driver_version.to_string(),
            driver: driver_version(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Why results from here do not hold on `there`; `None` where they do. A driver version that is not known on one side
    /// is no difference.
    pub fn difference(&self, there: &Platform) -> Option<String> {
        let text = |what: &str, ours: &str, theirs: &str| {
            (ours != theirs).then(|| format!("{what} {ours} there, {theirs} here"))
        };
        let driver = match (&self.driver, &there.driver) {
            (Some(ours), Some(theirs)) => text("driver", ours, theirs),
            _ => None,
        };
        let differences: Vec<String> = [
            text("device", &self.device, &there.device),
            text("SMs:", &self.sm_count.to_string(), &there.sm_count.to_string()),
            text("CUDA", &self.cuda, &there.cuda),
            driver,
            text("library version", &self.version, &there.version),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!differences.is_empty()).then(|| differences.join("; "))
    }
}

/// What was found for one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneResult {
    /// The problem.
    pub key: ProblemKey,
    /// When it was decided, UTC, ISO 8601.
    pub date: String,
    /// How much was measured.
    pub options: TuneOptions,
    /// What to use: the finalist where it won, the heuristic's pick otherwise.
    pub chosen: Choice,
    /// The heuristic's pick, the peer of all ratios.
    pub heuristic: Choice,
    /// Who was left, and the rounds that judged it; `None` where no candidate could run.
    pub finalist: Option<Finalist>,
    /// Every candidate's numbers.
    pub trials: Vec<Trial>,
}

impl TuneResult {
    /// What follows from a search that ends now.
    pub fn new(
        key: ProblemKey,
        heuristic: Choice,
        options: TuneOptions,
        search: Search,
    ) -> TuneResult {
        let Search { trials, finalist } = search;
        let winner = finalist.as_ref().filter(|finalist| finalist.wins());
        let chosen = winner.map_or(heuristic, |finalist| finalist.candidate);
        let date = now();
        TuneResult { key, date, options, chosen, heuristic, finalist, trials }
    }
}

/// A results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When the file was begun, UTC, ISO 8601.
    pub date: String,
    /// Where they hold.
    pub platform: Platform,
    /// One entry for each problem.
    pub problems: Vec<TuneResult>,
}

impl Results {
    /// Results that begin now.
    pub fn new(platform: Platform) -> Results {
        Results { schema: SCHEMA, date: now(), platform, problems: Vec::new() }
    }

    /// The entry of a problem.
    pub fn find(&self, key: &ProblemKey) -> Option<&TuneResult> {
        self.problems.iter().find(|result| result.key == *key)
    }

    /// Has `tune` decide those of `keys` that have no entry, in order, and calls `keep` after each, so that an interruption
    /// loses one at most. A problem for which `tune` returns `None` is left out. `go_on` is asked before each; where it
    /// says no, neither that problem nor a later one is begun. Returns how many were not begun.
    ///
    /// # Errors
    /// The first of `tune` or `keep`; entries made before stay.
    pub fn complete<E>(
        &mut self,
        keys: &[ProblemKey],
        mut go_on: impl FnMut() -> ControlFlow<()>,
        mut tune: impl FnMut(&ProblemKey) -> Result<Option<TuneResult>, E>,
        mut keep: impl FnMut(&Results) -> Result<(), E>,
    ) -> Result<usize, E> {
        for (index, key) in keys.iter().enumerate() {
            if self.find(key).is_some() {
                continue;
            }
            if go_on().is_break() {
                return Ok(keys.iter().skip(index).filter(|key| self.find(key).is_none()).count());
            }
            if let Some(result) = tune(key)? {
                self.problems.push(result);
                keep(self)?;
            }
        }
        Ok(0)
    }

    /// Puts these results into `folder`, which is created where it is missing, under a new name `{device}_{timestamp}.json`,
    /// and returns the path.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn create_in(&self, folder: &Path) -> Result<PathBuf> {
        let words = |text: &str| {
            text.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-', "_")
        };
        let stem = format!("{}_{}", words(&self.platform.device), words(&self.date));
        let mut path = folder.join(format!("{stem}.json"));
        let staged = files::indented(self).and_then(|text| files::stage(folder, &text));
        let mut file = staged.map_err(|source| Error::Io { path: folder.to_owned(), source })?;
        // Another process may have begun in the same second.
        for number in 2.. {
            match file.persist_noclobber(&path) {
                Ok(_) => break,
                Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => {
                    path = folder.join(format!("{stem}_{number}.json"));
                    file = taken.file;
                }
                Err(failed) => return Err(Error::Io { path, source: failed.error }),
            }
        }
        Ok(path)
    }

    /// Writes the file anew, as indented JSON. A reader sees the old file or the new one, never half of either.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn write(&self, path: &Path) -> Result<()> {
        files::write_json(path, self)
    }

    /// Creates the folder where it is missing, and checks that files can be made there.
    ///
    /// # Errors
    /// [`Error::Io`] with the folder.
    pub fn check_folder(folder: &Path) -> Result<()> {
        files::check_folder(folder)
    }

    /// Reads a file of this [`SCHEMA`] and checks that every choice is a kernel for its problem.
    ///
    /// # Errors
    /// [`Error::Io`], or [`TuneError::Damaged`].
    pub fn read(path: &Path) -> Result<Results> {
        let bytes =
            std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let damaged = |finding| TuneError::Damaged { path: path.to_owned(), finding };
        let results: Results = files::parse(&bytes, SCHEMA).map_err(damaged)?;
        for TuneResult { key, chosen, .. } in &results.problems {
            if !key.fits(chosen) {
                let [a, b] = key.operands();
                let finding = format!(
                    "{chosen} is no kernel for {}x{}x{} with operands of {a}, {}-major, and {b}, {}-major, and {} output",
                    key.m, key.n, key.k, key.a_major, key.b_major, key.output
                );
                return Err(damaged(finding).into());
            }
        }
        Ok(results)
    }

    /// Reads a file to be continued on `here`.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), or [`TuneError::Foreign`].
    pub fn read_for(path: &Path, here: &Platform) -> Result<Results> {
        let results = Results::read(path)?;
        match results.platform.difference(here) {
            Some(difference) => {
                Err(TuneError::Foreign { path: path.to_owned(), difference }.into())
            }
            None => Ok(results),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
