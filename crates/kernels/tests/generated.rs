//! The PTX of kernels, compared with hashes of what it was. A change that is meant to change
//! kernels writes the hashes anew. Whether the kernels are right and fast is for other tests to
//! say.

#[path = "common/named.rs"]
mod named;

use std::fs;
use std::path::Path;

/// One in so many kernels that are shipped is generated; `pgemm cubins check` generates all. The
/// number is a prime, so that no type, tile or cluster is skipped by a regular order of the list.
const EVERY: usize = 29;

fn ptx(name: &str) -> String {
    pgemm_ptx::emit(&named::kernel(name)).unwrap()
}

#[test]
fn shipped_kernels_are_generated_as_their_list_says() {
    let list: Vec<_> = pgemm_cubins::list().collect();
    assert!(list.len() > 2000, "{} kernels", list.len());
    let changed = |(name, digits): &&(&str, &str)| pgemm_cubins::digits(&ptx(name)) != *digits;
    let changed: Vec<_> = list.iter().step_by(EVERY).filter(changed).collect();
    assert!(
        changed.is_empty(),
        "these kernels are generated differently now, and `pgemm cubins choose` writes the list \
         anew: {changed:?}"
    );
}

/// Kernels of every kind, shipped or not, by the names in a file, which also has their hashes.
/// `PGEMM_UPDATE_RECORDS=1` writes these anew.
#[test]
fn other_kernels_are_generated_as_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/generated.txt");
    let recorded = fs::read_to_string(&path).unwrap();
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let line = |name: &str| format!("{name} {}\n", pgemm_cubins::digits(&ptx(name)));
    if std::env::var_os("PGEMM_UPDATE_RECORDS").is_some_and(|value| value == "1") {
        let anew: String = recorded.lines().map(|recorded| line(&name(recorded))).collect();
        return fs::write(path, anew).unwrap();
    }
    assert!(recorded.lines().count() > 150, "{} kernels", recorded.lines().count());
    let changed: Vec<_> = recorded
        .lines()
        .map(name)
        .zip(recorded.split_inclusive('\n'))
        .filter(|(name, recorded)| line(name) != *recorded)
        .map(|(name, _)| name)
        .collect();
    assert!(
        changed.is_empty(),
        "these kernels are generated differently now; if that is meant, \
         `PGEMM_UPDATE_RECORDS=1 cargo test -p pgemm-kernels --test generated` records it: {changed:?}"
    );
}
