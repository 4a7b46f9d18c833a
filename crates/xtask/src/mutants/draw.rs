//! Which faults are planted. A seed decides, and no two faults of a file overlap.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use super::candidates::Candidate;
use super::results::Judged;

/// Every crate has at least this many faults, if it has as many candidates.
const LEAST: usize = 4;

/// A candidate, and the file that has it.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Its number, from 1, once it is drawn.
    pub id: usize,
    /// The folder of the crate in `crates`.
    pub package: String,
    /// The path of the file in the repository.
    pub file: String,
    pub candidate: Candidate,
}

/// Draws faults of every crate: as many as shall be judged, and spare ones behind them, in case some
/// do not compile.
pub fn draw(candidates: Vec<Fault>, seed: u64, count: usize) -> Vec<Drawn> {
    let mut crates = BTreeMap::<String, Vec<Fault>>::new();
    for fault in candidates {
        crates.entry(fault.package.clone()).or_default().push(fault);
    }
    let sizes: Vec<usize> = crates.values().map(Vec::len).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut drawn, mut id) = (Vec::new(), 0);
    for (mut faults, count) in crates.into_values().zip(shares(&sizes, count)) {
        faults.shuffle(&mut rng);
        let mut chosen = Vec::<Fault>::new();
        for fault in faults {
            if chosen.len() == count + count / 4 + LEAST {
                break;
            }
            if chosen.iter().all(|other| !overlap(other, &fault)) {
                id += 1;
                chosen.push(Fault { id, ..fault });
            }
        }
        drawn.push(Drawn { count, faults: chosen });
    }
    drawn
}

/// The same faults in code that may have changed since: each is the nearest one in its file that
/// replaces the same text by the same. It keeps its number. Returns those that are not there any
/// more, too.
pub fn redraw(candidates: Vec<Fault>, judged: &[Judged]) -> (Vec<Drawn>, Vec<Judged>) {
    let (mut crates, mut lost) = (BTreeMap::<String, Vec<Fault>>::new(), Vec::new());
    for known in judged {
        let is_same = |fault: &&Fault| {
            let candidate = &fault.candidate;
            let texts = [(&candidate.before, &known.before), (&candidate.after, &known.after)];
            fault.file == known.file && texts.iter().all(|(now, then)| now == then)
        };
        let distance = |fault: &&Fault| {
            let candidate = &fault.candidate;
            (candidate.line.abs_diff(known.line), candidate.column.abs_diff(known.column))
        };
        let chosen = crates.entry(known.package.clone()).or_default();
        let is_free = |fault: &&Fault| !chosen.iter().any(|other| overlap(other, fault));
        match candidates.iter().filter(is_same).filter(is_free).min_by_key(distance) {
            Some(fault) => chosen.push(Fault { id: known.id, ..fault.clone() }),
            None => lost.push(known.clone()),
        }
    }
    let drawn = crates.into_values().map(|faults| Drawn { count: faults.len(), faults });
    (drawn.collect(), lost)
}

/// The faults that were drawn from a crate.
#[derive(Debug)]
pub struct Drawn {
    /// How many of them are judged: the first that compile.
    pub count: usize,
    pub faults: Vec<Fault>,
}

/// How many faults each crate has, in proportion to its candidates.
fn shares(sizes: &[usize], count: usize) -> Vec<usize> {
    let all = sizes.iter().sum::<usize>().max(1);
    let share = |size: &usize| (count * size / all).max(LEAST).min(*size);
    let mut shares: Vec<usize> = sizes.iter().map(share).collect();
    // What rounding leaves over, and what small crates have too many, concerns the largest crate.
    if let Some(largest) = (0..sizes.len()).max_by_key(|index| sizes[*index]) {
        let others = shares.iter().sum::<usize>() - shares[largest];
        shares[largest] = count.saturating_sub(others).min(sizes[largest]);
    }
    shares
}

fn overlap(a: &Fault, b: &Fault) -> bool {
    let (first, second) = (&a.candidate.range, &b.candidate.range);
    a.file == b.file && first.start < second.end && second.start < first.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::candidates::find;
    use crate::mutants::results::Outcome;

    fn faults(package: &str, text: &str) -> Vec<Fault> {
        let fault = |candidate| Fault {
            id: 0,
            package: package.to_owned(),
            file: format!("{package}/lib.rs"),
            candidate,
        };
        find(text).unwrap().candidates.into_iter().map(fault).collect()
    }

    #[test]
    fn crates_have_faults_by_their_candidates() {
        assert_eq!(shares(&[5000, 3000, 2000], 100), [50, 30, 20]);
        assert_eq!(shares(&[9900, 98, 2], 100), [94, 4, 2]);
        assert_eq!(shares(&[3], 100), [3]);
    }

    #[test]
    fn faults_are_found_again_in_code_that_has_changed() {
        let before = faults("a", "fn f() { a(1 + 2); b(1 + 2); c(3 * 4); }");
        let judged = |id: usize, fault: &Fault| Judged {
            id,
            package: fault.package.clone(),
            file: fault.file.clone(),
            line: fault.candidate.line,
            column: fault.candidate.column,
            before: fault.candidate.before.clone(),
            after: fault.candidate.after.clone(),
            outcome: Outcome::Survived,
            test: None,
            reached: 0,
            ran: 0,
            seconds: 0.0,
        };
        let pick = |text: &str, nth: usize| {
            before.iter().filter(|fault| fault.candidate.before == text).nth(nth).unwrap()
        };
        let wanted = [pick("1 + 2", 1), pick("1 + 2", 0), pick("3 * 4", 0)];
        let wanted: Vec<Judged> = (7..).zip(wanted).map(|(id, fault)| judged(id, fault)).collect();
        // Both sums have moved on, and the product is gone.
        let after = faults("a", "fn f() {   a(1 + 2);   b(1 + 2); c(3); }");
        let (drawn, lost) = redraw(after, &wanted);
        assert_eq!(lost, wanted[2..]);
        let found = drawn[0].faults.iter().map(|fault| (fault.id, fault.candidate.range.start));
        assert!(found.eq([(7, 25), (8, 13)]), "{drawn:?}");
        assert_eq!((drawn.len(), drawn[0].count), (1, 2));
    }

    #[test]
    fn a_seed_decides_and_nothing_overlaps() {
        let text = "fn f() { a(1 + 2 * 3, 4 < 5 && 6 < 7); if b { c(8); } }";
        let both = || [faults("a", text), faults("b", text)].concat();
        let drawn = draw(both(), 1, 8);
        for drawn in &drawn {
            for (index, fault) in drawn.faults.iter().enumerate() {
                assert!(drawn.faults[..index].iter().all(|other| !overlap(other, fault)));
            }
        }
        let ids = drawn.iter().flat_map(|drawn| drawn.faults.iter().map(|fault| fault.id));
        assert!(ids.eq(1..=drawn.iter().map(|drawn| drawn.faults.len()).sum()));
        let ranges = |seed| {
            let drawn = draw(both(), seed, 8);
            let faults = drawn.into_iter().flat_map(|drawn| drawn.faults);
            faults.map(|fault| fault.candidate.range).collect::<Vec<_>>()
        };
        assert_eq!(ranges(1), ranges(1));
        assert!((2..10).any(|seed| ranges(seed) != ranges(1)));
    }
}
