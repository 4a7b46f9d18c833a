//! Files and folders.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{AtPath, Error};

/// Everything below a folder, in the order of the bytes of the names.
///
/// # Errors
/// A folder cannot be read.
pub fn paths_below(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).at(folder)? {
        let path = entry.at(folder)?.path();
        if path.is_dir() && !path.is_symlink() {
            paths.extend(paths_below(&path)?);
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

/// The SHA-256 of a file, in hexadecimal digits.
///
/// # Errors
/// The file cannot be read.
pub fn sha256(file: &Path) -> Result<String, Error> {
    let digest = Sha256::digest(fs::read(file).at(file)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes a folder with all that is in it, if it is there.
///
/// # Errors
/// It cannot be removed.
pub fn remove_folder(folder: &Path) -> Result<(), Error> {
    if folder.exists() { fs::remove_dir_all(folder).at(folder) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_sha_256() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("abc");
        fs::write(&file, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&file).unwrap(), expected);
    }
}
