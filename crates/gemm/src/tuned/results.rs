//! Results files: tuned choices, the platform they are valid for, and all measurements. A file is
//! replaced atomically after each problem. Its content is checked when it is read.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pgemm_plan::{Choice, ProblemKey};
use serde::{Deserialize, Serialize};

use super::records::{Finalist, Trial, TuneOptions};
use crate::driver::DeviceProperties;
use crate::error::{Error, FileDamage, PlatformDifference, PlatformPart, Result};
use crate::files::{self, UnfinishedFile, now};
use crate::head::{Head, ResultsKind};
use crate::power::driver_version;

/// The platform that results are valid for: device and driver.
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
        }
    }
}

/// The result for one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneResult {
    /// The problem.
    pub key: ProblemKey,
    /// When it was decided, UTC, ISO 8601.
    pub date: String,
    /// The options of the measurement.
    pub options: TuneOptions,
    /// The choice to use: the finalist if it won, otherwise the heuristic's pick.
    pub chosen: Choice,
    /// The heuristic's pick, the peer of all ratios.
    pub heuristic: Choice,
    /// Who was left, and the rounds that judged it, or `None` if no candidate could run.
    pub finalist: Option<Finalist>,
    /// Every candidate's numbers.
    pub trials: Vec<Trial>,
}

impl TuneResult {
    /// The result of a search with these trials and this finalist.
    pub fn new(
        key: ProblemKey,
        heuristic: Choice,
        options: TuneOptions,
        trials: Vec<Trial>,
        finalist: Option<Finalist>,
    ) -> TuneResult {
        let winner = finalist.as_ref().filter(|finalist| finalist.wins());
        let chosen = winner.map_or(heuristic, |finalist| finalist.candidate);
        let date = now();
        TuneResult { key, date, options, chosen, heuristic, finalist, trials }
    }
}

/// A results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The run, and the version of the library, for which alone the results are valid.
    #[serde(flatten)]
    pub head: Head,
    /// The platform that the results are valid for.
    pub platform: Platform,
    /// One entry for each problem.
    pub problems: Vec<TuneResult>,
}

impl Results {
    /// Results that begin now.
    pub fn new(platform: Platform) -> Results {
        Results { head: Head::now(ResultsKind::Autotune), platform, problems: Vec::new() }
    }

    /// The differences of `here`, with this version of the library, that make these results invalid
    /// there. Empty if they are valid. A driver version that is unknown on one side does not count.
    pub fn differences(&self, here: &Platform) -> Vec<PlatformDifference> {
        let unlike = |part, there: &str, here: &str| {
            let difference =
                || PlatformDifference { part, there: there.to_owned(), here: here.to_owned() };
            (there != here).then(difference)
        };
        let there = &self.platform;
        let driver = match (&there.driver, &here.driver) {
            (Some(there), Some(here)) => unlike(PlatformPart::Driver, there, here),
            _ => None,
        };
        let sm_counts = [there.sm_count, here.sm_count].map(|count| count.to_string());
        let parts = [
            unlike(PlatformPart::Device, &there.device, &here.device),
            unlike(PlatformPart::SmCount, &sm_counts[0], &sm_counts[1]),
            unlike(PlatformPart::Cuda, &there.cuda, &here.cuda),
            driver,
            unlike(PlatformPart::Library, &self.head.version, env!("CARGO_PKG_VERSION")),
        ];
        parts.into_iter().flatten().collect()
    }

    /// The entry of a problem.
    pub fn find(&self, key: &ProblemKey) -> Option<&TuneResult> {
        self.problems.iter().find(|result| result.key == *key)
    }

    /// Tunes the problems of `keys` that have no entry, in order, with `tune`. It calls `keep`
    /// after each, so that an interruption loses at most one. A problem for which `tune` returns
    /// `None` is left out. If `go_on` returns false before a problem, that one and all later ones
    /// are not begun. Returns the number of problems that were not begun.
    ///
    /// # Errors
    /// The first error of `tune` or `keep`. Earlier entries stay.
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

    /// Writes these results to `folder`, which is created if it is missing, under a new name
    /// `{device}_{timestamp}.json`, and returns the path.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn create_in(&self, folder: &Path) -> Result<PathBuf> {
        let words = |text: &str| {
            text.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-', "_")
        };
        let stem = format!("{}_{}", words(&self.platform.device), words(&self.head.date));
        let mut path = folder.join(format!("{stem}.json"));
        let staged = files::indented(self).and_then(|text| UnfinishedFile::staged(folder, &text));
        let mut file = staged.map_err(|source| Error::Io { path: folder.to_owned(), source })?;
        // Another process may have created a file in the same second.
        for number in 2.. {
            match file.persist_new(&path) {
                Ok(()) => break,
                Err((taken, unfinished)) if taken.kind() == io::ErrorKind::AlreadyExists => {
                    path = folder.join(format!("{stem}_{number}.json"));
                    file = unfinished;
                }
                Err((source, _)) => return Err(Error::Io { path, source }),
            }
        }
        Ok(path)
    }

    /// Replaces the file atomically with these results as indented JSON.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn write(&self, path: &Path) -> Result<()> {
        files::write_json(path, self)
    }

    /// Checks that files can be made in the folder, or in the one above it in which it would be
    /// created.
    ///
    /// # Errors
    /// [`Error::Io`] with the folder.
    pub fn check_folder(folder: &Path) -> Result<()> {
        files::check_folder(folder)
    }

    /// Reads a file of the present [`SCHEMA`](crate::head::SCHEMA) and checks that every choice is
    /// a kernel for its problem.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::DamagedResults`].
    pub fn read(path: &Path) -> Result<Results> {
        let bytes = files::read(path)?;
        let damaged = |finding: FileDamage| Error::DamagedResults {
            path: path.to_owned(),
            finding: Box::new(finding),
        };
        let results: Results = Head::parse(&bytes, ResultsKind::Autotune).map_err(damaged)?;
        for TuneResult { key, chosen, .. } in &results.problems {
            if !key.fits(chosen) {
                let (choice, key) = (Box::new(*chosen), Box::new(*key));
                return Err(damaged(FileDamage::Choice { choice, key }));
            }
        }
        Ok(results)
    }

    /// Reads a file to be continued on `here`.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), or [`Error::ForeignResults`].
    pub fn read_for(path: &Path, here: &Platform) -> Result<Results> {
        let results = Results::read(path)?;
        let differences = results.differences(here);
        if differences.is_empty() {
            return Ok(results);
        }
        Err(Error::ForeignResults { path: path.to_owned(), differences })
    }
}

#[cfg(test)]
pub(crate) mod tests;
