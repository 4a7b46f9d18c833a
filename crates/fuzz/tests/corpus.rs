//! Every kept input, and some thousands of mutations of each target's.

use pgemm_fuzz::targets::TARGETS;

/// Mutated inputs for each target.
const EXECUTIONS: u64 = 10_000;

// One test, since executions are watched one at a time.
#[test]
fn parsers_refuse_what_they_cannot_read() {
    let seed = std::env::var("PGEMM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for target in &TARGETS {
        println!("{} with seed {seed}", target.name);
        pgemm_fuzz::run(target, seed, EXECUTIONS, |_| {});
    }
}

#[test]
fn every_corpus_has_a_target() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(TARGETS.iter().any(|target| *target.name == *name), "{name:?} has no target");
    }
}
