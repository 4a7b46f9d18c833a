//! The file of results: a line of JSON for each fault that was judged.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::draw::Fault;
use crate::error::{AtPath, Error};

/// Whether the tests noticed a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Noticed,
    Survived,
}

/// A fault that was judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub id: usize,
    #[serde(rename = "crate")]
    pub package: String,
    pub file: String,
    pub line: usize,
    pub column: usize,
    /// The text of the program.
    pub before: String,
    /// The text of the fault. It is empty if a statement was left out.
    pub after: String,
    pub outcome: Outcome,
    /// The test that noticed it.
    pub test: Option<String>,
    /// How many tests reach it, and how many of them were run.
    pub reached: usize,
    pub ran: usize,
    pub seconds: f64,
}

/// The lines of a file.
pub struct Results {
    path: PathBuf,
    known: HashMap<(String, usize, usize, String), Judged>,
    writing: Mutex<()>,
}

impl Results {
    /// The results that a file has.
    ///
    /// # Errors
    /// It has lines that are no results.
    pub fn open(path: &Path) -> Result<Results, Error> {
        let text = if path.exists() { fs::read_to_string(path).at(path)? } else { String::new() };
        let mut known = HashMap::new();
        for line in text.lines() {
            let judged: Judged = serde_json::from_str(line)
                .map_err(|source| Error::Results { path: path.to_owned(), source })?;
            let key = (judged.file.clone(), judged.line, judged.column, judged.after.clone());
            known.insert(key, judged);
        }
        Ok(Results { path: path.to_owned(), known, writing: Mutex::new(()) })
    }

    /// The faults that no test noticed, by their numbers.
    pub fn survivors(&self) -> Vec<Judged> {
        let survived = self.known.values().filter(|judged| judged.outcome == Outcome::Survived);
        let mut survivors: Vec<Judged> = survived.cloned().collect();
        survivors.sort_by_key(|judged| judged.id);
        survivors
    }

    /// What is known about a fault.
    pub fn known(&self, fault: &Fault) -> Option<&Judged> {
        let candidate = &fault.candidate;
        let after = candidate.after.clone();
        self.known.get(&(fault.file.clone(), candidate.line, candidate.column, after))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, judged: &Judged) -> Result<(), Error> {
        let line = serde_json::to_string(judged).expect("plain data");
        let _one_at_a_time = self.writing.lock().expect("no thread panics");
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        file.and_then(|mut file| writeln!(file, "{line}")).at(&self.path)
    }
}

/// How many faults of each crate were noticed, and those that were not.
pub fn summary(all: &[Judged]) -> String {
    let mut crates = BTreeMap::<&str, (usize, usize)>::new();
    for judged in all {
        let (count, noticed) = crates.entry(&judged.package).or_default();
        *count += 1;
        *noticed += usize::from(judged.outcome == Outcome::Noticed);
    }
    let mut text = String::new();
    for judged in all.iter().filter(|judged| judged.outcome == Outcome::Survived) {
        let Judged { id, file, line, column, before, after, reached, ran, .. } = judged;
        let after = if after.is_empty() { "(left out)" } else { after };
        let tests = match (reached, ran) {
            (0, _) => "no test reaches it".to_owned(),
            (reached, ran) if ran < reached => format!("{ran} of {reached} tests were run"),
            (reached, _) => format!("{reached} tests reach it"),
        };
        text += &format!("survivor {id}: {file}:{line}:{column}: {before} -> {after} ({tests})\n");
    }
    text += "| crate | faults | noticed | share |\n|---|---|---|---|\n";
    let total = crates.values().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    for (name, (count, noticed)) in crates.into_iter().chain([("all", total)]) {
        let share = 100.0 * noticed as f64 / count.max(1) as f64;
        text += &format!("| {name} | {count} | {noticed} | {share:.0} % |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::candidates::find;

    fn judged(id: usize, outcome: Outcome, reached: usize) -> Judged {
        Judged {
            id,
            package: "cute".to_owned(),
            file: "a.rs".to_owned(),
            line: id,
            column: 10,
            before: "1".to_owned(),
            after: "2".to_owned(),
            outcome,
            test: None,
            reached,
            ran: reached.min(3),
            seconds: 0.5,
        }
    }

    #[test]
    fn a_run_goes_on_where_the_last_one_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let candidate = find("fn f() { 1 }").unwrap().candidates.remove(0);
        let fault = Fault { id: 1, package: "cute".to_owned(), file: "a.rs".to_owned(), candidate };
        assert_eq!(Results::open(&path).unwrap().known(&fault), None);
        let line = judged(1, Outcome::Noticed, 2);
        Results::open(&path).unwrap().add(&line).unwrap();
        Results::open(&path).unwrap().add(&judged(2, Outcome::Noticed, 2)).unwrap();
        assert_eq!(Results::open(&path).unwrap().known(&fault), Some(&line));
        let survivors = [judged(4, Outcome::Survived, 0), judged(3, Outcome::Survived, 2)];
        survivors.iter().for_each(|line| Results::open(&path).unwrap().add(line).unwrap());
        let [second, first] = survivors;
        assert_eq!(Results::open(&path).unwrap().survivors(), [first, second]);
        fs::write(&path, "{}").unwrap();
        assert!(Results::open(&path).is_err());
    }

    #[test]
    fn the_summary_counts_and_names_survivors() {
        let all = [
            judged(1, Outcome::Noticed, 2),
            judged(2, Outcome::Survived, 0),
            judged(3, Outcome::Survived, 9),
            judged(4, Outcome::Survived, 2),
        ];
        let expected = "survivor 2: a.rs:2:10: 1 -> 2 (no test reaches it)\n\
                        survivor 3: a.rs:3:10: 1 -> 2 (3 of 9 tests were run)\n\
                        survivor 4: a.rs:4:10: 1 -> 2 (2 tests reach it)\n\
                        | crate | faults | noticed | share |\n|---|---|---|---|\n\
                        | cute | 4 | 1 | 25 % |\n| all | 4 | 1 | 25 % |\n";
        assert_eq!(summary(&all), expected);
    }
}
