//! Every synchronising operation of the kernels, removed or weakened, one at a time. The verifier
//! or the emulator notices, or `explained.md` says why there is nothing to notice.

#[path = "../common/mod.rs"]
mod common;
mod judge;
#[path = "../covering/set.rs"]
mod set;
mod subject;

use std::collections::BTreeMap;
use std::time::Instant;

use judge::{Judgement, judge, keys, kind, place};
use pgemm_conformance::synchronisation::{Fault, faults};
use subject::{Subject, kernel, names};

/// Kernels in which a fault is tried until one of them notices it.
const MOST_KERNELS: u32 = 5;

/// Faults that nothing notices, with the reasons. Each row begins with the line of source and the
/// kind of the fault, whose vertical bars are escaped.
const EXPLAINED: &str = include_str!("explained.md");

/// A fault of all kernels that have it: the best judgement, and the number of kernels in which it
/// was reached or not.
struct Different {
    fault: Fault,
    kernel: String,
    judgement: Judgement,
    kernels: u32,
}

/// Judges the faults of kernels by key, the smallest kernels first. A fault is tried in further
/// kernels until one notices it: code that is dead or idle in a narrow tile is needed in a wide
/// one.
fn judge_by_key(names: &[String], picked: impl Fn(&str) -> bool) -> BTreeMap<String, Different> {
    let mut all: BTreeMap<String, Different> = BTreeMap::new();
    for name in names {
        let kernel = kernel(name);
        let faults = faults(&kernel);
        let keys = keys(&kernel, name, &faults);
        let open = |key: &String| {
            let before = all.get(key);
            picked(key)
                && before.is_none_or(|before| {
                    before.judgement > Judgement::Emulator && before.kernels < MOST_KERNELS
                })
        };
        let (keys, faults): (Vec<String>, Vec<Fault>) =
            keys.into_iter().zip(faults).filter(|(key, _)| open(key)).unzip();
        if faults.is_empty() {
            continue;
        }
        let begin = Instant::now();
        let judged = judge(&Subject::new(name), &faults);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{name}: {} faults in {seconds:.1} s", judged.len());
        for (key, judged) in keys.into_iter().zip(judged) {
            let kernels = all.get(&key).map_or(0, |before| before.kernels);
            // Nothing is known of a fault that is not reached.
            let kernels = kernels + u32::from(judged.judgement != Judgement::Unreached);
            let judgement = all
                .get(&key)
                .map_or(judged.judgement, |before| before.judgement.min(judged.judgement));
            let kernel = name.clone();
            all.insert(key, Different { fault: judged.fault, kernel, judgement, kernels });
        }
    }
    all
}

/// Prints the counts. Fails if a fault is noticed by nothing and not explained.
fn report(all: &BTreeMap<String, Different>) {
    let mut kinds: BTreeMap<String, [usize; 4]> = BTreeMap::new();
    let mut survivors: BTreeMap<String, (usize, &Different)> = BTreeMap::new();
    let mut counts = [0; 4];
    for different in all.values() {
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
    for (place, (count, Different { kernel, judgement, fault, .. })) in survivors {
        println!("{count} x {place} {:?}: {judgement:?} in {kernel}", fault.location.scopes);
        if !EXPLAINED.contains(&place.replace('|', "\\|")) {
            unexplained.push(place);
        }
    }
    println!("{counts:?} of {}", all.len());
    assert!(unexplained.is_empty(), "not explained: {unexplained:#?}");
}

#[test]
#[ignore = "it takes some 30 minutes: run it by name"]
fn faults_of_all_kernels_are_noticed() {
    let only = std::env::var("PGEMM_ONLY").unwrap_or_default();
    let names: Vec<String> = names().into_iter().filter(|name| name.contains(&only)).collect();
    report(&judge_by_key(&names, |_| true));
}

/// One fault in so many of a few small kernels, drawn by `PGEMM_SEED`.
#[test]
fn drawn_faults_are_noticed() {
    const ONE_IN: u64 = 8;
    const KERNELS: [&str; 4] = [
        "transpose_4",
        "bf16-kk-bf16-64x24x64-s3-w1-c1x1",
        "bf16-kk-bf16-64x40x64-s3-p2-c2x1",
        "f32-mk-f32-32x64x16-s4-t4x4-w2x2",
    ];
    let seed: u64 = std::env::var("PGEMM_SEED").map_or(1, |text| text.parse().unwrap());
    println!("seed {seed}");
    let drawn = |key: &str| {
        // FNV-1a, which is the same on every machine.
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        (hash >> 32) % ONE_IN == 0
    };
    report(&judge_by_key(&KERNELS.map(str::to_owned), drawn));
}
