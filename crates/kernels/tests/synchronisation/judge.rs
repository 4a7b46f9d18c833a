//! Whether a fault is noticed, and by what.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use pgemm_conformance::synchronisation::{Change, Fault};
use pgemm_ir::{Kernel, Location, verify};

use crate::subject::Subject;

/// What notices a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judgement {
    Verifier,
    Emulator,
    /// Nothing.
    Survived,
    /// No problem reaches the operation.
    Unreached,
}

/// A fault of a kernel and what notices it.
pub struct Judged {
    pub fault: Fault,
    pub judgement: Judgement,
}

/// The kind of a fault: the operation and what happens to it.
pub fn kind(fault: &Fault) -> String {
    let op = fault.op.name();
    match &fault.change {
        Change::Remove => format!("{op} removed"),
        Change::Repeat => format!("{op} twice"),
        Change::OtherParity => format!("{op} of the other parity"),
        Change::Replace(other) if other.name() != op => format!("{op} to {}", other.name()),
        Change::Replace(other) => format!("{op} {:+}", number(other) - number(&fault.op)),
    }
}

/// The number among the attributes of an operation.
fn number(op: &pgemm_ir::Op) -> i64 {
    let text = format!("{op:?}");
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// The line of source and the kind of a fault.
pub fn place(fault: &Fault) -> String {
    let location = &fault.location;
    format!("{} `{}` {}", location.file, source_line(location), kind(fault))
}

/// What tells the faults of a kernel apart: kind, source and named scopes, and the number among
/// those of which all of this is the same. The first two say whether kernels have clusters and
/// whether consumers take turns, which changes what an operation is needed for.
pub fn keys(kernel: &Kernel, name: &str, faults: &[Fault]) -> Vec<String> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let features = (kernel.cluster > 1, name.contains("-p2-"));
    let key = |fault: &Fault| {
        let key = format!("{features:?} {} {}", kind(fault), fault.location);
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        format!("{key} {count}")
    };
    faults.iter().map(key).collect()
}

/// Judges faults of a kernel.
pub fn judge(subject: &Subject, faults: &[Fault]) -> Vec<Judged> {
    // Runs of the sound kernel that have passed.
    let mut sound = BTreeSet::new();
    // By operation: the run that noticed its last fault.
    let mut hints: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut judge = |fault: &Fault| {
        let kernel = fault.plant(&subject.kernel);
        if verify(&kernel).is_err() {
            return Judgement::Verifier;
        }
        let problems = subject.reaching(fault.place);
        if problems.is_empty() {
            return Judgement::Unreached;
        }
        let runs = (0..subject.settings.len())
            .flat_map(|setting| problems.iter().map(move |&problem| (problem, setting)));
        let hint = hints.get(&fault.place).copied();
        let noticed = hint
            .into_iter()
            .chain(runs)
            .find(|&(problem, setting)| subject.run(&kernel, problem, setting).is_err());
        let Some((problem, setting)) = noticed else { return Judgement::Survived };
        hints.insert(fault.place, (problem, setting));
        // A run that also fails without the fault would say nothing.
        if sound.insert((problem, setting)) {
            let result = subject.run(&subject.kernel, problem, setting);
            result.unwrap_or_else(|kind| panic!("{}, without a fault: {kind}", subject.name));
        }
        Judgement::Emulator
    };
    let judged = |fault: &Fault| Judged { fault: fault.clone(), judgement: judge(fault) };
    faults.iter().map(judged).collect()
}

/// The text of a source line of this repository.
fn source_line(location: &Location) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(&location.file)).unwrap();
    text.lines().nth(location.line as usize - 1).unwrap().trim().to_owned()
}
