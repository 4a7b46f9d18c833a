//! Faults of an earlier run, in the code of today.

use std::collections::BTreeMap;

use super::draw::{Drawn, Fault, overlap};
use super::results::Judged;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::draw::tests::faults;
    use crate::mutants::results::Outcome;

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
}
