//! The kept inputs of a target.

use std::fs;
use std::path::{Path, PathBuf};

use crate::targets::Target;

/// The folder of a target's inputs.
pub fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The inputs of a target: those that it makes itself, and those of its folder by name.
///
/// # Panics
/// The folder is missing or cannot be read.
pub fn of(target: &Target) -> Vec<Vec<u8>> {
    let folder = folder(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut inputs = (target.made)();
    inputs.extend(paths.iter().map(|path| fs::read(path).unwrap()));
    assert!(!inputs.is_empty(), "{} has no inputs", folder.display());
    inputs
}
