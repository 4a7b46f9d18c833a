//! The tests without a fault: how long each takes, and which faults it reaches.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::build::Binary;
use super::process::{End, Purpose, run};
use super::workers::each;
use crate::commands::output;
use crate::error::{AtPath, Error};
use crate::files::remove_folder;

/// The longest that a test may take.
const LIMIT: Duration = Duration::from_secs(1800);

/// A test that passes without a fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// The program that has it.
    pub binary: String,
    pub name: String,
    pub seconds: f64,
    /// The numbers of the faults that it reaches.
    pub reached: Vec<usize>,
}

/// What the tests do without a fault.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// What it was recorded for: the commit and its faults.
    key: String,
    /// The tests that can judge, the shortest first.
    pub tests: Vec<Test>,
    /// Tests that fail, or skip themselves for want of something.
    pub left_out: Vec<String>,
}

impl Baseline {
    /// The record in a file, if it is for the same faults, or else a new one.
    ///
    /// # Errors
    /// A test cannot be started, or the file cannot be written.
    pub fn find(
        file: &Path,
        key: &str,
        binaries: &[Binary],
        jobs: usize,
        scratch: &Path,
    ) -> Result<Baseline, Error> {
        let known = fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(known) = known.filter(|known: &Baseline| known.key == key) {
            return Ok(known);
        }
        let baseline = record(key, binaries, jobs, scratch)?;
        fs::write(file, serde_json::to_string(&baseline).expect("plain data")).at(file)?;
        Ok(baseline)
    }

    /// The tests that reach a fault, the shortest first.
    pub fn reaching(&self, fault: usize) -> Vec<&Test> {
        self.tests.iter().filter(|test| test.reached.contains(&fault)).collect()
    }
}

fn record(key: &str, binaries: &[Binary], jobs: usize, scratch: &Path) -> Result<Baseline, Error> {
    let mut names = Vec::new();
    for binary in binaries {
        names.extend(list(binary)?.into_iter().map(|name| (binary, name)));
    }
    println!("{} tests run without a fault", names.len());
    let judged = each(&names, jobs, |worker, (binary, name)| {
        let folder = scratch.join(format!("reached-{worker}"));
        remove_folder(&folder)?;
        fs::create_dir_all(&folder).at(&folder)?;
        let scratch = scratch.join(worker.to_string());
        let run = run(binary, name, Purpose::Record(&folder), LIMIT, &scratch)?;
        let can_judge = run.end == End::Passed && !run.output.contains("SKIPPED");
        let reached = numbers(&folder)?;
        let seconds = run.seconds;
        let test = Test { binary: binary.name.clone(), name: name.clone(), seconds, reached };
        Ok((can_judge, test))
    })?;
    let mut baseline = Baseline { key: key.to_owned(), ..Baseline::default() };
    for (can_judge, test) in judged {
        if can_judge {
            baseline.tests.push(test);
        } else {
            baseline.left_out.push(format!("{} {}", test.binary, test.name));
        }
    }
    baseline.tests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(baseline)
}

/// The names of the files in a folder, which are numbers.
fn numbers(folder: &Path) -> Result<Vec<usize>, Error> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).at(folder)? {
        numbers.extend(entry.at(folder)?.file_name().to_string_lossy().parse::<usize>());
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The names of the tests of a program that are not ignored.
fn list(binary: &Binary) -> Result<Vec<String>, Error> {
    let names = |arguments: &[&str]| {
        let mut command = Command::new(&binary.path);
        command.current_dir(&binary.package).args(["--list", "--format", "terse"]).args(arguments);
        let names = output(&mut command)?;
        let names = names.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect::<Vec<_>>())
    };
    let ignored = names(&["--ignored"])?;
    Ok(names(&[])?.into_iter().filter(|name| !ignored.contains(name)).collect())
}

/// Programs by their names.
pub fn by_name(binaries: &[Binary]) -> BTreeMap<&str, &Binary> {
    binaries.iter().map(|binary| (binary.name.as_str(), binary)).collect()
}

/// Where the record of a run is.
pub fn file(folder: &Path) -> PathBuf {
    folder.join("baseline.json")
}
