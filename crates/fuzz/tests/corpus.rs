//! Every kept input, and some thousands of mutations of each target's.

use pgemm_fuzz::targets::TARGETS;

// One test, since executions are watched one at a time.
#[test]
fn parsers_refuse_what_they_cannot_read() {
    TARGETS.iter().for_each(pgemm_fuzz::test);
}

#[test]
fn every_corpus_has_a_target() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(TARGETS.iter().any(|target| *target.name == *name), "{name:?} has no target");
    }
}
