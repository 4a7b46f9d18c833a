//! The kept inputs of a target.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::targets::Target;

/// The folder of a target's inputs.
pub fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The inputs of a target: those that it makes itself, and those of its folder by name.
///
/// # Panics
/// There are none, or they cannot be read.
pub fn of(target: &Target) -> Vec<Vec<u8>> {
    let folder = folder(target);
    let mut paths: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => vec![],
        Err(error) => panic!("{}: {error}", folder.display()),
    };
    paths.sort();
    let mut inputs = (target.made)();
    inputs.extend(paths.iter().map(|path| fs::read(path).unwrap()));
    assert!(!inputs.is_empty(), "{} has no inputs", folder.display());
    inputs
}
