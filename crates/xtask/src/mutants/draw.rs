//! Which faults are planted. A seed decides, and no two faults of a file overlap.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use super::candidates::Candidate;

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

/// Whether two faults change the same text.
pub fn overlap(a: &Fault, b: &Fault) -> bool {
    let (first, second) = (&a.candidate.range, &b.candidate.range);
    a.file == b.file && first.start < second.end && second.start < first.end
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::mutants::candidates::find;

    pub fn faults(package: &str, text: &str) -> Vec<Fault> {
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
