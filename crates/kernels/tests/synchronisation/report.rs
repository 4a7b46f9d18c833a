//! The faults of several kernels: which of them are the same, which nothing notices, and why.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use std::{env, fs};

use pgemm_conformance::synchronisation::{Change, Fault, faults};
use pgemm_ir::{Kernel, Location};

use crate::judge::{Judgement, Subject};

/// Kernels that reach a fault in which it is tried until one of them notices it.
const MOST_KERNELS: u32 = 5;

/// The kind of a fault: the operation and what happens to it.
fn kind(fault: &Fault) -> String {
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
fn place(fault: &Fault) -> String {
    let location = &fault.location;
    format!("{} `{}` {}", location.file, source_line(location), kind(fault))
}

/// The text of a source line of this repository.
fn source_line(location: &Location) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(&location.file)).unwrap();
    text.lines().nth(location.line as usize - 1).unwrap().trim().to_owned()
}

/// What tells the faults of a kernel apart: kind, source and named scopes, and the number among
/// those of which all of this is the same. The first two say whether kernels have clusters and
/// whether consumers take turns, which changes what an operation is needed for.
fn keys(kernel: &Kernel, name: &str, faults: &[Fault]) -> Vec<String> {
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

/// A fault of all kernels that have it: the best judgement, and in how many kernels it was reached.
struct Different {
    fault: Fault,
    /// The last kernel in which it was tried.
    kernel: String,
    judgement: Judgement,
    kernels: u32,
}

/// Faults of several kernels by their keys.
#[derive(Default)]
pub struct Judged(BTreeMap<String, Different>);

impl Judged {
    /// Judges those faults of a kernel that are picked by their keys, and that no kernel before has
    /// noticed: code that is dead or idle in a narrow tile is needed in a wide one. The subject is
    /// made only if there are such faults. `PGEMM_LINE` restricts them to lines of source that have
    /// this text.
    pub fn add(
        &mut self,
        name: &str,
        kernel: &Kernel,
        picked: impl Fn(&str) -> bool,
        subject: impl FnOnce() -> Subject,
    ) {
        let line = env::var("PGEMM_LINE").unwrap_or_default();
        let faults = faults(kernel);
        let keys = keys(kernel, name, &faults);
        let open = |(key, fault): &(String, Fault)| {
            let before = self.0.get(key);
            picked(key)
                && (line.is_empty() || place(fault).contains(&line))
                && before.is_none_or(|before| {
                    before.judgement > Judgement::Emulator && before.kernels < MOST_KERNELS
                })
        };
        let (keys, faults): (Vec<String>, Vec<Fault>) =
            keys.into_iter().zip(faults).filter(open).unzip();
        if faults.is_empty() {
            return;
        }
        let begin = Instant::now();
        let judged = subject().judge(&faults);
        let survived = judged.iter().filter(|judged| **judged > Judgement::Emulator).count();
        let seconds = begin.elapsed().as_secs_f64();
        println!("{name}: {} faults in {seconds:.1} s, {survived} survive", faults.len());
        for ((key, fault), judgement) in keys.into_iter().zip(faults).zip(judged) {
            let before = self.0.get(&key);
            let kernels = before.map_or(0, |before| before.kernels);
            // Nothing is known of a fault that is not reached.
            let kernels = kernels + u32::from(judgement != Judgement::Unreached);
            let judgement = before.map_or(judgement, |before| before.judgement.min(judgement));
            self.0.insert(key, Different { fault, kernel: name.to_owned(), judgement, kernels });
        }
    }

    /// Prints the counts. Fails if a fault is noticed by nothing and not explained. The rows of
    /// `explained` begin with the line of source and the kind of a fault, whose vertical bars are
    /// escaped. Headings divide the rows by the kind of the reason.
    pub fn report(&self, explained: &str) {
        let mut kinds: BTreeMap<String, [usize; 4]> = BTreeMap::new();
        let mut survivors: BTreeMap<String, (usize, &Different)> = BTreeMap::new();
        let mut counts = [0; 4];
        for different in self.0.values() {
            let column = different.judgement as usize;
            counts[column] += 1;
            kinds.entry(kind(&different.fault)).or_default()[column] += 1;
            if different.judgement > Judgement::Emulator {
                survivors.entry(place(&different.fault)).or_insert((0, different)).0 += 1;
            }
        }
        println!("kind: verifier, emulator, survived, not reached");
        for (kind, counts) in kinds {
            println!("{kind}: {counts:?}");
        }
        let mut unexplained = vec![];
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, (count, Different { kernel, judgement, fault, .. })) in survivors {
            println!("{count} x {place} {:?}: {judgement:?} in {kernel}", fault.location.scopes);
            match heading(explained, &place) {
                Some(heading) => *reasons.entry(heading).or_default() += count,
                None => unexplained.push(place),
            }
        }
        for (heading, count) in reasons {
            println!("{heading}: {count}");
        }
        let noticed = counts[0] + counts[1];
        let percent = 100.0 * noticed as f64 / self.0.len().max(1) as f64;
        println!("{counts:?} of {}: {percent:.1} % noticed", self.0.len());
        assert!(unexplained.is_empty(), "not explained: {unexplained:#?}");
    }
}

/// The heading above the row of a fault.
fn heading<'a>(explained: &'a str, place: &str) -> Option<&'a str> {
    let row = format!("| {} |", place.replace('|', "\\|"));
    let (before, _) = explained.split_once(&row)?;
    before.lines().rev().find_map(|line| line.strip_prefix("## "))
}

/// Whether a kernel is among those that `PGEMM_ONLY` names: all, or those whose names have one of
/// the given texts, which commas separate.
pub fn is_picked(name: &str) -> bool {
    let only = env::var("PGEMM_ONLY").unwrap_or_default();
    only.split(',').any(|text| name.contains(text))
}

/// Whether a fault is drawn: one in `one_in` is, by `PGEMM_SEED`.
pub fn drawn(one_in: u64) -> impl Fn(&str) -> bool {
    let seed: u64 = env::var("PGEMM_SEED").map_or(1, |text| text.parse().unwrap());
    println!("seed {seed}");
    move |key| {
        // FNV-1a, which is the same on every machine.
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        (hash >> 32).is_multiple_of(one_in)
    }
}
