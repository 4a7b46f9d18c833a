//! Packs that a program brings: kernels for its problems, assembled in advance, and what the tuner
//! found for them. `pgemm pack` writes them.
//!
//! A pack is trusted as code is: its kernels run on the device. Its checksums find damage, not
//! malice.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Once, PoisonError, RwLock};

use pgemm_cubins::{Pack, PackError};
use serde::{Deserialize, Serialize};

use crate::driver::DeviceProperties;
use crate::error::{Error, FileDamage, PackDamage, Result};
use crate::files;
use crate::shipped::generator;
use crate::tuned::{Picks, Platform, Results};

/// The environment variable with packs that every process loads, separated as in `PATH`.
pub const VARIABLE: &str = "PGEMM_PACKS";

/// The schema version of [`Notes`].
const SCHEMA: u32 = 1;

/// What a pack holds besides kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notes {
    schema: u32,
    /// When it was written, UTC, ISO 8601.
    pub date: String,
    /// The version of the library that wrote it.
    pub version: String,
    /// What the tuner found, for one or more devices.
    pub results: Vec<Results>,
}

impl Notes {
    /// Notes of now with these results.
    pub fn new(results: Vec<Results>) -> Notes {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Notes { schema: SCHEMA, date: files::now(), version, results }
    }
}

/// A pack that was loaded.
#[derive(Clone, Debug)]
pub struct LoadedPack {
    /// The file.
    pub path: PathBuf,
    /// What it holds besides kernels.
    pub notes: Notes,
    kernels: Arc<Pack>,
}

impl LoadedPack {
    /// The number of kernels.
    pub fn kernels(&self) -> usize {
        self.kernels.len()
    }

    /// The assembler of the kernels.
    pub fn assembler(&self) -> &str {
        self.kernels.assembler()
    }

    fn read(path: &Path) -> Result<LoadedPack> {
        let bytes = files::read(path)?;
        let unusable =
            |finding| Error::UnusablePack { path: path.to_owned(), finding: Box::new(finding) };
        if bytes.is_empty() {
            return Err(unusable(PackError::Truncated.into()));
        }
        let kernels = Pack::read(bytes).map_err(|error| unusable(error.into()))?;
        let notes: Notes =
            files::parse(kernels.notes(), SCHEMA).map_err(|error| unusable(error.into()))?;
        if kernels.generator() != generator() {
            return Err(unusable(PackDamage::Generator { version: notes.version }));
        }
        let mut choices = notes.results.iter().flat_map(|results| &results.problems);
        if let Some(wrong) = choices.find(|result| !result.key.fits(&result.chosen)) {
            let (choice, key) = (Box::new(wrong.chosen), Box::new(wrong.key));
            return Err(unusable(FileDamage::Choice { choice, key }.into()));
        }
        // One file may be named in several ways.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(LoadedPack { path, notes, kernels: Arc::new(kernels) })
    }
}

/// All packs of this process: those of the environment first.
static LOADED: LazyLock<RwLock<Vec<LoadedPack>>> = LazyLock::new(|| {
    let paths = env::var_os(VARIABLE).unwrap_or_default();
    let paths = env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty());
    let read = |path: PathBuf| match LoadedPack::read(&path) {
        Ok(pack) => Some(pack),
        Err(error) => {
            tracing::warn!("{VARIABLE}: {error}");
            None
        }
    };
    RwLock::new(paths.filter_map(read).collect())
});

/// Loads a pack for this process. GEMMs take its kernels from now on, and those that are created
/// later take what the tuner found. Packs of [`VARIABLE`] are loaded without it.
///
/// # Errors
/// [`Error::Io`]; [`Error::UnusablePack`] if the file is no pack, is damaged, or was written by a
/// version of the library that generates kernels differently.
pub fn load(path: impl AsRef<Path>) -> Result<LoadedPack> {
    let pack = LoadedPack::read(path.as_ref())?;
    let mut loaded = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    loaded.retain(|known| known.path != pack.path);
    loaded.push(pack.clone());
    Ok(pack)
}

/// The packs that this process has loaded.
pub fn loaded() -> Vec<LoadedPack> {
    LOADED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The tuned choices for a device: those of [`Picks::from_environment`], and those of packs that
/// are valid for the device.
pub(crate) fn picks(device: &DeviceProperties) -> Arc<Picks> {
    let own = Picks::from_environment(device);
    let packs = loaded();
    if packs.iter().all(|pack| pack.notes.results.is_empty()) {
        return own;
    }
    let (mut picks, here) = (Picks::clone(&own), Platform::of(device));
    for pack in packs {
        let is_valid = |results: &Results| results.differences(&here).is_empty();
        let (valid, others): (Vec<Results>, Vec<_>) =
            pack.notes.results.into_iter().partition(is_valid);
        if let (true, Some(other)) = (valid.is_empty(), others.into_iter().next()) {
            let differences = other.differences(&here);
            let why = Error::ForeignResults { path: pack.path, differences };
            static WARNED: Once = Once::new();
            WARNED.call_once(|| tracing::warn!("ignoring autotune results of a pack: {why}"));
        }
        valid.into_iter().for_each(|results| picks.add(results));
    }
    Arc::new(picks)
}

/// What `find` returns for the kernels of the first pack for which it returns something.
pub(crate) fn find<T>(mut find: impl FnMut(&Pack) -> Option<T>) -> Option<T> {
    let loaded = LOADED.read().unwrap_or_else(PoisonError::into_inner);
    loaded.iter().find_map(|pack| find(&pack.kernels))
}

#[cfg(test)]
mod tests {
    use pgemm_cubins::Group;

    use super::*;

    /// A pack with one kernel.
    fn pack(generator: &str, notes: &[u8]) -> Vec<u8> {
        let kernels = [("kernel".to_owned(), vec![7; 100])];
        let group = Group::new(&kernels);
        pgemm_cubins::write(&[group], generator, "ptxas 12.9", notes).unwrap()
    }

    #[test]
    fn a_pack_is_loaded_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a.pgemm");
        let notes = files::indented(&Notes::new(vec![])).unwrap();
        std::fs::write(&path, pack(generator(), &notes)).unwrap();
        for _ in 0..2 {
            let pack = load(&path).unwrap();
            assert_eq!((pack.kernels(), pack.assembler()), (1, "ptxas 12.9"));
        }
        assert_eq!(loaded().iter().filter(|pack| pack.path == path).count(), 1);
        let cubin = find(|pack| pack.cubin("kernel"));
        assert_eq!(cubin, Some(Ok(vec![7; 100])));
        assert!(find(|pack| pack.cubin("other")).is_none());
    }

    #[test]
    fn other_packs_are_refused_with_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.pgemm");
        let notes = files::indented(&Notes::new(vec![])).unwrap();
        let whole = pack(generator(), &notes);
        for (bytes, what) in [
            (pack("another", &notes), "generated differently"),
            (pack(generator(), b"{}"), "notes"),
            (b"\x7fELF".to_vec(), "no pack"),
            (vec![], "cut off"),
            (whole[..whole.len() - 1].to_vec(), "cut off"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let message = load(&path).unwrap_err().to_string();
            assert!(message.contains("b.pgemm") && message.contains(what), "{message}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(load(&path), Err(Error::Io { .. })));
    }
}
