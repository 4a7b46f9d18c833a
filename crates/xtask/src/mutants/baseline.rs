//! The tests without a fault: how long each takes, and which faults it reaches.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::build::Binary;
use super::process::{End, Purpose, run};
use super::workers::each;
use crate::commands::output;
use crate::error::{AtPath, Error};
use crate::files::remove_folder;

/// A test without a fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// The program that has it.
    pub binary: String,
    pub name: String,
    pub seconds: f64,
    /// The numbers of the faults that it reaches.
    pub reached: Vec<usize>,
    /// It passes, and neither skips itself for want of something nor takes too long.
    pub can_judge: bool,
}

/// How the tests are run.
pub struct Terms<'a> {
    pub binaries: &'a [Binary],
    /// Tests that run at the same time.
    pub jobs: usize,
    /// A test that takes longer is left out.
    pub longest: Duration,
    /// Where files of the tests are.
    pub scratch: &'a Path,
}

/// Runs every test that a file has no line for, and adds its line. The first line of the file says
/// what it is for. Returns all tests, the shortest first.
///
/// # Errors
/// A test cannot be started, or the file cannot be written.
pub fn baseline(file: &Path, key: &str, terms: &Terms) -> Result<Vec<Test>, Error> {
    let mut tests = recorded(file, key);
    let is_there = |test: &Test| terms.binaries.iter().any(|binary| binary.name == test.binary);
    tests.retain(is_there);
    if tests.is_empty() {
        fs::write(file, format!("{key}\n")).at(file)?;
    }
    let known: HashSet<(&str, &str)> =
        tests.iter().map(|test| (test.binary.as_str(), test.name.as_str())).collect();
    let mut left = Vec::new();
    for binary in terms.binaries {
        let names = list(binary)?.into_iter();
        let new = names.filter(|name| !known.contains(&(binary.name.as_str(), name.as_str())));
        left.extend(new.map(|name| (binary, name)));
    }
    println!("{} tests run without a fault", left.len());
    let writing = Mutex::new(());
    let new = each(&left, terms.jobs, |worker, (binary, name)| {
        let test = record(binary, name, terms, worker)?;
        let line = serde_json::to_string(&test).expect("plain data");
        let _one_at_a_time = writing.lock().expect("no thread panics");
        let file_of_lines = OpenOptions::new().append(true).open(file);
        file_of_lines.and_then(|mut lines| writeln!(lines, "{line}")).at(file)?;
        Ok(test)
    })?;
    tests.extend(new);
    tests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(tests)
}

/// The tests that a file has, or none if it is for something else.
fn recorded(file: &Path, key: &str) -> Vec<Test> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines();
    if lines.next() != Some(key) {
        return Vec::new();
    }
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn record(binary: &Binary, name: &str, terms: &Terms, worker: usize) -> Result<Test, Error> {
    let folder = terms.scratch.join(format!("reached-{worker}"));
    remove_folder(&folder)?;
    fs::create_dir_all(&folder).at(&folder)?;
    let scratch = terms.scratch.join(worker.to_string());
    let run = run(binary, name, Purpose::Record(&folder), terms.longest, &scratch)?;
    Ok(Test {
        binary: binary.name.clone(),
        name: name.to_owned(),
        seconds: run.seconds,
        reached: numbers(&folder)?,
        can_judge: run.end == End::Passed && !run.output.contains("SKIPPED"),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with two tests, of which one reaches a fault and the other skips itself.
    const PROGRAM: &str = "#!/bin/sh
case \"$*\" in
*--ignored*) echo 'c: test' ;;
*--list*) echo 'a: test'; echo 'b: test'; echo 'c: test' ;;
*'--exact a '*) touch \"$PGEMM_MUTANTS_REACHED/7\" ;;
*) echo 'SKIPPED: no GPU' ;;
esac
";

    #[test]
    fn tests_are_recorded_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("binary");
        fs::write(&path, PROGRAM).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, permissions).unwrap();
        let package = folder.path().to_owned();
        let binaries = [Binary { name: "a/b".to_owned(), path: path.clone(), package }];
        let scratch = folder.path().join("scratch");
        let longest = Duration::from_secs(60);
        let terms = Terms { binaries: &binaries, jobs: 2, longest, scratch: &scratch };
        let file = folder.path().join("baseline");
        let mut tests = baseline(&file, "key", &terms).unwrap();
        tests.sort_by(|a, b| a.name.cmp(&b.name));
        let facts = |test: &Test| (test.name.clone(), test.reached.clone(), test.can_judge);
        let found: Vec<_> = tests.iter().map(facts).collect();
        assert_eq!(found, [("a".to_owned(), vec![7], true), ("b".to_owned(), vec![], false)]);

        // A second run has nothing left to do, and one for other faults begins anew.
        assert_eq!(recorded(&file, "key").len(), 2);
        let again = PROGRAM.replace("touch", "false");
        fs::write(&path, again).unwrap();
        assert!(baseline(&file, "key", &terms).unwrap().iter().any(|test| test.can_judge));
        assert!(recorded(&file, "other").is_empty());
        assert!(!baseline(&file, "other", &terms).unwrap().iter().any(|test| test.can_judge));
    }
}
