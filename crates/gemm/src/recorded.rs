//! Texts that tests compare with files of `tests/fixtures`: numbers that nothing else fixes. A
//! change that is meant to change them writes the files anew by
//! `PGEMM_UPDATE_RECORDS=1 cargo test -p persistent-gemm recorded`.

use std::fs;
use std::path::Path;

/// Compares lines with those of a file.
///
/// # Panics
/// They differ.
pub(crate) fn check(name: &str, lines: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if std::env::var_os("PGEMM_UPDATE_RECORDS").is_some_and(|value| value == "1") {
        return fs::write(path, text).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap();
    let differing = recorded.lines().zip(lines).find(|(recorded, line)| recorded != line);
    assert!(differing.is_none(), "{}: {differing:#?}", path.display());
    assert_eq!(recorded.lines().count(), lines.len(), "{}", path.display());
}
