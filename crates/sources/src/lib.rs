//! Hashes the sources of a crate, for its build script. Kernels that were assembled in advance
//! carry the hashes of the crates that generated them, so that kernels of other sources are
//! recognised.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The environment variable that [`emit`] sets for the crate.
pub const VARIABLE: &str = "PGEMM_SOURCES";

/// Tells cargo to set [`VARIABLE`] to the hash of the crate's sources, for `env!`. A build script
/// calls it.
///
/// # Errors
/// A source cannot be read.
pub fn emit() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-env={VARIABLE}={}", hash(Path::new("src"))?);
    Ok(())
}

/// The hash of all Rust sources in a folder, as 64 hexadecimal digits. Tests do not count.
///
/// # Errors
/// A source cannot be read.
pub fn hash(folder: &Path) -> io::Result<String> {
    let mut sources = Vec::new();
    collect(folder, &mut sources)?;
    sources.sort();
    let mut hasher = blake3::Hasher::new();
    for path in sources {
        let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path)?.replace("\r\n", "\n");
        for part in [name, text] {
            // Hashing the length distinguishes ("ab", "c") from ("a", "bc").
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn collect(folder: &Path, sources: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            collect(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_a_folder_does_not_count() {
        let of_names = |names: &mut dyn Iterator<Item = u32>| {
            let folder = tempfile::tempdir().unwrap();
            names.for_each(|name| {
                fs::write(folder.path().join(format!("{name}.rs")), "text").unwrap();
            });
            hash(folder.path()).unwrap()
        };
        let mut hasher = blake3::Hasher::new();
        let mut names: Vec<String> = (0..40).map(|name| format!("{name}.rs")).collect();
        names.sort();
        for part in names.iter().flat_map(|name| [name.as_str(), "text"]) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let expected = hasher.finalize().to_hex().to_string();
        assert_eq!(of_names(&mut (0..40)), expected);
        assert_eq!(of_names(&mut (0..40).rev()), expected);
    }

    #[test]
    fn every_source_and_its_name_count_and_tests_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            hash(folder.path()).unwrap()
        };
        let first = write("lib.rs", "one\n");
        assert_eq!(first.len(), 64);
        assert_eq!(write("lib.rs", "one\r\n"), first);
        assert_eq!(write("tests.rs", "a test"), first);
        assert_eq!(write("tests/more.rs", "a test"), first);
        assert_eq!(write("notes.md", "no source"), first);
        let second = write("part/more.rs", "two");
        assert_ne!(second, first);
        assert_ne!(write("lib.rs", "three"), second);
    }
}
