//! [`Comparison`]: what has become faster or slower between two collections of results.

use std::collections::BTreeMap;

use persistent_gemm::stats::{CONFIDENCE, central_interval, geometric_mean};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::atlas::Fault;
use crate::results::{Collection, PeerRow, ProblemRow, Spread};

/// Resamples of the problems for the interval of a mean.
const RESAMPLES: usize = 2000;

/// Fewest problems of which resamples say something: fewer hardly differ from each other.
const LEAST_OF_GROUP: usize = 6;

/// Seed of the resamples, so that the same files give the same intervals.
const SEED: u64 = 1;

/// By how much results may get worse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of a problem: 0.02 for 2 %.
    pub problem: f64,
    /// Of the geometric mean of a group.
    pub mean: f64,
}

/// The comparison of two collections.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Every problem that both have, in the order of the new collection.
    pub changes: Vec<Change>,
    /// The groups of these problems.
    pub groups: Vec<GroupChange>,
    /// Problems that only the old collection has.
    pub only_old: usize,
    /// Problems that only the new collection has.
    pub only_new: usize,
    /// Problems of which only the new collection has a wrong result of ours.
    pub newly_wrong: Vec<String>,
}

/// The change of a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The problem's name.
    pub problem: String,
    /// Its group.
    pub group: String,
    /// The peer of both ratios. `None` if our times are compared.
    pub peer: Option<String>,
    /// The old ratio or microseconds.
    pub old: f64,
    /// The new one.
    pub new: f64,
    /// How much faster the new kernel is: above 1 it is faster.
    pub change: f64,
    /// An interval of the change. It holds if both medians lie between the smallest and the largest
    /// round. `None` if our times are compared, of which only the median is known.
    pub interval: Option<[f64; 2]>,
}

/// The change of the problems of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupChange {
    /// The group, or `None` for all problems.
    pub group: Option<String>,
    /// Problems.
    pub problems: usize,
    /// The geometric mean of the changes.
    pub mean: f64,
    /// Its interval with a confidence of 95 %, from resampled problems. `None` of fewer than six.
    pub interval: Option<[f64; 2]>,
    /// The smallest change.
    pub worst: f64,
}

/// A judgement of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeJudgement {
    /// The whole interval is below what is tolerated.
    Slower,
    /// The whole interval is above.
    Faster,
    /// Neither.
    Same,
}

impl ChangeJudgement {
    /// The judgement of an interval of a change.
    fn of([low, high]: [f64; 2], tolerance: f64) -> ChangeJudgement {
        if high < 1.0 - tolerance {
            ChangeJudgement::Slower
        } else if low > 1.0 + tolerance {
            ChangeJudgement::Faster
        } else {
            ChangeJudgement::Same
        }
    }
}

impl Change {
    /// Whether the problem has become faster or slower.
    pub fn judgement(&self, tolerance: Tolerance) -> ChangeJudgement {
        let judged = self.interval.map(|interval| ChangeJudgement::of(interval, tolerance.problem));
        judged.unwrap_or(ChangeJudgement::Same)
    }

    fn of(old: &ProblemRow, new: &ProblemRow) -> Option<Change> {
        let peers = new.peers.iter().find_map(|now| {
            old.peers.iter().find(|before| before.name == now.name).map(|before| (before, now))
        });
        let change = Change {
            problem: new.problem.clone(),
            group: new.group.clone(),
            peer: None,
            old: old.us?,
            new: new.us?,
            change: old.us? / new.us?,
            interval: None,
        };
        Some(match peers {
            Some((before, now)) => change.of_ratios(before, now),
            None => change,
        })
    }

    fn of_ratios(self, before: &PeerRow, now: &PeerRow) -> Change {
        let [[old_low, old, old_high], [new_low, new, new_high]]: [Spread; 2] =
            [before.ratio, now.ratio];
        Change {
            peer: Some(now.name.clone()),
            old,
            new,
            change: new / old,
            interval: Some([new_low / old_high, new_high / old_low]),
            ..self
        }
    }
}

impl GroupChange {
    /// Whether the group has become faster or slower.
    pub fn judgement(&self, tolerance: Tolerance) -> ChangeJudgement {
        let judged = self.interval.map(|interval| ChangeJudgement::of(interval, tolerance.mean));
        judged.unwrap_or(ChangeJudgement::Same)
    }

    fn of(group: Option<&str>, changes: &[f64]) -> Option<GroupChange> {
        let mut random = StdRng::seed_from_u64(SEED);
        let means: Vec<f64> = (0..RESAMPLES)
            .filter_map(|_| {
                let drawn = (0..changes.len())
                    .filter_map(|_| changes.get(random.random_range(0..changes.len())));
                geometric_mean(drawn.copied())
            })
            .collect();
        Some(GroupChange {
            group: group.map(str::to_owned),
            problems: changes.len(),
            mean: geometric_mean(changes.iter().copied())?,
            interval: central_interval(&means, CONFIDENCE)
                .filter(|_| changes.len() >= LEAST_OF_GROUP),
            worst: changes.iter().copied().reduce(f64::min)?,
        })
    }
}

impl Comparison {
    /// Compares the problems that both collections have. Of a problem that a collection has several
    /// times, the last row counts.
    pub fn of(old: &Collection, new: &Collection) -> Comparison {
        let (before, now) = (by_problem(old), by_problem(new));
        let is_last =
            |row: &&ProblemRow| now.get(&key(row)).is_some_and(|last| std::ptr::eq(*last, *row));
        let rows = new.problems.iter().filter(is_last);
        let both: Vec<(&ProblemRow, &ProblemRow)> =
            rows.filter_map(|row| Some((*before.get(&key(row))?, row))).collect();
        let changes: Vec<Change> =
            both.iter().filter_map(|(before, now)| Change::of(before, now)).collect();
        let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for change in &changes {
            groups.entry(&change.group).or_default().push(change.change);
        }
        let all: Vec<f64> = changes.iter().map(|change| change.change).collect();
        let groups: Vec<GroupChange> = [(None, &all)]
            .into_iter()
            .chain(groups.iter().map(|(group, changes)| (Some(*group), changes)))
            .filter_map(|(group, changes)| GroupChange::of(group, changes))
            .collect();
        let newly_wrong = both
            .iter()
            .filter(|(before, now)| is_wrong(now) && !is_wrong(before))
            .map(|(_, now)| now.problem.clone())
            .collect();
        Comparison {
            only_old: before.keys().filter(|key| !now.contains_key(*key)).count(),
            only_new: now.keys().filter(|key| !before.contains_key(*key)).count(),
            changes,
            groups,
            newly_wrong,
        }
    }

    /// Whether nothing has become worse than is tolerated.
    pub fn is_fine(&self, tolerance: Tolerance) -> bool {
        let slower_problem = self
            .changes
            .iter()
            .any(|change| change.judgement(tolerance) == ChangeJudgement::Slower);
        let slower_group =
            self.groups.iter().any(|group| group.judgement(tolerance) == ChangeJudgement::Slower);
        !slower_problem && !slower_group && self.newly_wrong.is_empty()
    }
}

/// A problem, and how it was launched.
type Key<'c> = (&'c str, Option<&'c str>);

fn key(row: &ProblemRow) -> Key<'_> {
    (&row.problem, row.launch.as_deref())
}

/// The last row of each problem.
fn by_problem(collection: &Collection) -> BTreeMap<Key<'_>, &ProblemRow> {
    collection.problems.iter().map(|row| (key(row), row)).collect()
}

fn is_wrong(row: &ProblemRow) -> bool {
    row.faults.iter().any(|fault: &Fault| fault.wrong && fault.is_ours())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { problem: 0.02, mean: 0.005 };

    fn row(problem: &str, us: f64, ratio: Option<Spread>) -> ProblemRow {
        let peer = |ratio| PeerRow {
            name: "cuBLASLt".into(),
            us: 1.0,
            ratio,
            joules: None,
            algorithm: None,
        };
        ProblemRow {
            run: 0,
            problem: problem.into(),
            group: "square".into(),
            types: "bf16".into(),
            m: 8,
            n: 8,
            k: 8,
            batch: 1,
            majors: "kk".into(),
            operations: 1024,
            bytes: 384,
            regime: None,
            launch: Some("graph".into()),
            kernel: None,
            label: None,
            us: Some(us),
            joules: None,
            mhz: None,
            peers: ratio.map(peer).into_iter().collect(),
            faults: vec![],
        }
    }

    fn collection(problems: Vec<ProblemRow>) -> Collection {
        Collection { problems, ..Collection::default() }
    }

    fn spread(ratio: f64) -> Option<Spread> {
        Some([ratio - 0.005, ratio, ratio + 0.005])
    }

    #[test]
    fn ratios_to_the_same_peer_are_compared() {
        let old = collection(vec![row("a", 1.0, spread(1.0)), row("gone", 1.0, spread(1.0))]);
        let new = collection(vec![
            row("new", 1.0, spread(1.0)),
            // An earlier row of the same problem does not count.
            row("a", 9.0, spread(0.1)),
            row("a", 1.0, spread(0.9)),
        ]);
        let compared = Comparison::of(&old, &new);
        let [change] = &compared.changes[..] else { panic!("{compared:?}") };
        assert_eq!((change.peer.as_deref(), change.change), (Some("cuBLASLt"), 0.9));
        let [low, high] = change.interval.unwrap();
        assert!(low < 0.9 && 0.9 < high && high < 0.92, "{low}, {high}");
        assert_eq!(change.judgement(TOLERANCE), ChangeJudgement::Slower);
        assert_eq!((compared.only_old, compared.only_new), (1, 1));
        assert!(!compared.is_fine(TOLERANCE));
        assert!(Comparison::of(&new, &old).is_fine(TOLERANCE));
    }

    #[test]
    fn a_spread_that_reaches_the_old_ratio_is_no_change() {
        let old = collection(vec![row("a", 1.0, Some([0.9, 1.0, 1.1]))]);
        let new = collection(vec![row("a", 1.0, Some([0.85, 0.93, 1.0]))]);
        let compared = Comparison::of(&old, &new);
        assert_eq!(compared.changes[0].judgement(TOLERANCE), ChangeJudgement::Same);
        // A single problem says nothing of the mean either.
        assert_eq!((compared.groups[0].mean, compared.groups[0].interval), (0.93, None));
        assert!(compared.is_fine(TOLERANCE));
    }

    #[test]
    fn times_alone_judge_groups_and_not_problems() {
        let of = |scale: f64| {
            let problems = (0..40).map(|index| {
                let us = 10.0 * scale * (1.0 + 0.001 * f64::from(index % 7));
                row(&format!("p{index}"), us, None)
            });
            collection(problems.collect())
        };
        let slower = Comparison::of(&of(1.0), &of(1.03));
        assert!(slower.changes.iter().all(|change| change.interval.is_none()));
        assert_eq!(slower.changes[0].judgement(TOLERANCE), ChangeJudgement::Same);
        assert_eq!(slower.groups.len(), 2);
        assert!(
            slower.groups.iter().all(|group| group.judgement(TOLERANCE) == ChangeJudgement::Slower)
        );
        assert!(
            !slower.is_fine(TOLERANCE) && Comparison::of(&of(1.0), &of(1.004)).is_fine(TOLERANCE)
        );
    }

    #[test]
    fn a_result_that_has_become_wrong_fails() {
        let old = collection(vec![row("a", 1.0, spread(1.0))]);
        let mut new = old.clone();
        new.problems[0].faults.push(Fault {
            who: "persistent-gemm".into(),
            rank: None,
            algorithm: None,
            wrong: true,
            refused: false,
            why: "3 elements".into(),
        });
        let compared = Comparison::of(&old, &new);
        assert_eq!(compared.newly_wrong, ["a"]);
        assert!(!compared.is_fine(TOLERANCE));
        assert!(Comparison::of(&new, &new).is_fine(TOLERANCE));
    }
}
