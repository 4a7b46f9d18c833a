//! A cache on disk of the JIT's resource reports, so that each kernel is judged once per device and
//! driver.
//!
//! The cubins themselves are in the driver's own cache (`CUDA_CACHE_PATH`, by default
//! `~/.nv/ComputeCache`). That cache loads them in milliseconds and recompiles damaged ones, but
//! gives no log. Without our record, a kernel that spills would look clean in every process but the
//! first.
//!
//! A damaged entry is rebuilt, and an unusable folder turns the cache off. The cache never makes a
//! call fail.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use pgemm_ptx::ResourceReport;

use crate::driver::DeviceProperties;
use crate::error::{Error, Result};
use crate::files::{self, UnfinishedFile};

/// Part of every key and entry: raise it when either changes meaning.
const FORMAT: u32 = 2;
const MAGIC: [u8; 8] = *b"PGEMMJIT";
/// Magic, format, key and payload length; the checksum and the payload follow.
const HEADER_BYTES: usize = 8 + 4 + KEY_BYTES + 8;
const KEY_BYTES: usize = blake3::OUT_LEN;
const CHECKSUM_BYTES: usize = blake3::OUT_LEN;
const EXTENSION: &str = "jit";

/// Environment variable with the cache's folder; the default is `persistent-gemm` in the user's
/// cache folder.
pub const DIRECTORY_VARIABLE: &str = "PGEMM_CACHE_DIR";
/// Environment variable with the cache's size limit in bytes; 0 turns the cache off.
pub const MAX_BYTES_VARIABLE: &str = "PGEMM_CACHE_MAX_BYTES";
/// The size limit where the environment names none: 16 MiB.
pub const DEFAULT_MAX_BYTES: u64 = 16 << 20;

/// A hash of everything that a report depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; KEY_BYTES]);

impl CacheKey {
    /// The key of the kernel `spec`, written as `ptx`, on a device under its present driver.
    pub fn new(spec: &str, ptx: &str, device: &DeviceProperties) -> Self {
        let (major, minor) = device.compute_capability;
        let mut hasher = blake3::Hasher::new();
        for part in [
            FORMAT.to_le_bytes().as_slice(),
            spec.as_bytes(),
            blake3::hash(ptx.as_bytes()).as_bytes(),
            device.driver_version.to_string().as_bytes(),
            device.name.as_bytes(),
            &major.to_le_bytes(),
            &minor.to_le_bytes(),
        ] {
            // Hashing the length distinguishes ("ab", "c") from ("a", "bc").
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        CacheKey(*hasher.finalize().as_bytes())
    }

    fn file_name(&self) -> String {
        format!("{}.{EXTENSION}", blake3::Hash::from_bytes(self.0).to_hex())
    }
}

/// Where a report came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// From the cache.
    Hit,
    /// The entry was missing. The report was built and stored.
    Miss,
    /// The entry was corrupted. The report was built again and stored.
    Rebuilt,
    /// The report was built but not stored, because the cache is off or its folder is not writable.
    Disabled,
    /// No report was needed: the kernel was assembled in advance.
    Assembled,
}

/// The content of the cache, and its use by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStats {
    /// The folder, `None` if the cache is off.
    pub directory: Option<PathBuf>,
    /// Number of reports there.
    pub entries: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The size limit in bytes.
    pub max_bytes: u64,
    /// Reports that this process found there.
    pub hits: u64,
    /// Number of reports that this process built, for any reason.
    pub builds: u64,
}

/// A folder of reports. Safe for any number of threads and processes at once: entries appear whole,
/// by renaming.
#[derive(Debug)]
pub struct JitCache {
    directory: Option<PathBuf>,
    max_bytes: u64,
    /// Whether a failure to write was reported: one warning is enough.
    warned: AtomicBool,
    hits: AtomicU64,
    builds: AtomicU64,
}

impl JitCache {
    /// The cache that the environment asks for: see [`DIRECTORY_VARIABLE`] and
    /// [`MAX_BYTES_VARIABLE`].
    pub fn from_environment() -> Self {
        let max_bytes = match std::env::var(MAX_BYTES_VARIABLE) {
            Ok(text) => text.trim().parse().unwrap_or_else(|_| {
                tracing::warn!(
                    "{MAX_BYTES_VARIABLE}={text} is no number of bytes: using {DEFAULT_MAX_BYTES}"
                );
                DEFAULT_MAX_BYTES
            }),
            Err(_) => DEFAULT_MAX_BYTES,
        };
        let directory = match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(directory) if !directory.is_empty() => Some(PathBuf::from(directory)),
            _ => directories::ProjectDirs::from("", "", "persistent-gemm")
                .map(|directories| directories.cache_dir().to_owned()),
        };
        match directory {
            Some(directory) => Self::new(directory, max_bytes),
            None => {
                tracing::warn!(
                    "this user has no cache folder, so kernels are judged anew in each process: \
                     set {DIRECTORY_VARIABLE}"
                );
                Self::disabled()
            }
        }
    }

    /// A cache in `directory`, which is created when the first report is stored, of at most
    /// `max_bytes` bytes; 0 turns it off.
    pub fn new(directory: PathBuf, max_bytes: u64) -> Self {
        JitCache {
            directory: (max_bytes > 0).then_some(directory),
            max_bytes,
            warned: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            builds: AtomicU64::new(0),
        }
    }

    /// A cache that holds nothing.
    pub fn disabled() -> Self {
        Self::new(PathBuf::new(), 0)
    }

    /// The report of `key`, from the cache or else from `build`, and which of the two it was.
    ///
    /// # Errors
    /// Only the errors of `build`.
    pub fn get_or_build<E>(
        &self,
        key: &CacheKey,
        build: impl FnOnce() -> Result<ResourceReport, E>,
    ) -> Result<(ResourceReport, Outcome), E> {
        let path = self.directory.as_ref().map(|directory| directory.join(key.file_name()));
        let mut outcome = Outcome::Miss;
        if let Some(path) = &path {
            match read(path, key) {
                Ok(Some(report)) => {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    return Ok((report, Outcome::Hit));
                }
                Ok(None) => {}
                Err(damage) => {
                    tracing::warn!(path = %path.display(), %damage, "rebuilding a damaged kernel \
                        cache entry");
                    // If the removal fails, the rename below still replaces the entry.
                    let _ = fs::remove_file(path);
                    outcome = Outcome::Rebuilt;
                }
            }
        }
        let report = build()?;
        self.builds.fetch_add(1, Ordering::Relaxed);
        let Some(path) = path else { return Ok((report, Outcome::Disabled)) };
        if let Err(error) = self.store(&path, key, &report) {
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "the kernel cache cannot be written, so kernels are judged anew in each \
                     process: make the folder writable, or set {DIRECTORY_VARIABLE}"
                );
            }
            outcome = Outcome::Disabled;
        }
        Ok((report, outcome))
    }

    /// Removes every report and returns how many there were.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be read or a file not removed.
    pub fn clear(&self) -> Result<u64> {
        let mut removed = 0;
        for entry in self.entries().map_err(|source| self.error(source))? {
            match fs::remove_file(&entry.path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(Error::Io { path: entry.path, source }),
            }
        }
        Ok(removed)
    }

    /// What the cache holds now.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder is there and cannot be read.
    pub fn stats(&self) -> Result<CacheStats> {
        let entries = self.entries().map_err(|source| self.error(source))?;
        Ok(CacheStats {
            directory: self.directory.clone(),
            entries: entries.len() as u64,
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
            max_bytes: self.max_bytes,
            hits: self.hits.load(Ordering::Relaxed),
            builds: self.builds.load(Ordering::Relaxed),
        })
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Io { path: self.directory.clone().unwrap_or_default(), source }
    }

    fn store(&self, path: &Path, key: &CacheKey, report: &ResourceReport) -> io::Result<()> {
        let bytes = encode(key, report)?;
        if bytes.len() as u64 > self.max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the report is larger than the cache",
            ));
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        create_private(directory)?;
        UnfinishedFile::staged(directory, &bytes)?.persist(path)?;
        self.evict(path)
    }

    /// Removes the least recently used entries, but not `keep`, until the remaining ones fit.
    fn evict(&self, keep: &Path) -> io::Result<()> {
        let mut entries = self.entries()?;
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        entries.retain(|entry| entry.path != keep);
        entries.sort_by_key(|entry| entry.used);
        for entry in entries {
            if bytes <= self.max_bytes {
                break;
            }
            // Another process may have removed the file already, or may still read it. An open file
            // survives its removal.
            let _ = fs::remove_file(&entry.path);
            bytes -= entry.bytes;
        }
        Ok(())
    }

    /// Lists the entries in the folder. Other files, which may be there if users share the folder,
    /// are none of them.
    fn entries(&self) -> io::Result<Vec<Entry>> {
        let Some(directory) = &self.directory else { return Ok(Vec::new()) };
        let files = match fs::read_dir(directory) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut entries = Vec::new();
        for file in files {
            let file = file?;
            // A file that another process has just removed is no entry.
            let Ok(metadata) = file.metadata() else { continue };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let path = file.path();
            if metadata.is_file() && is_entry(&path) {
                entries.push(Entry { path, bytes: metadata.len(), used });
            }
        }
        Ok(entries)
    }
}

/// Whether a file is named as entries are.
fn is_entry(path: &Path) -> bool {
    let hash = path.file_stem().and_then(|name| name.to_str());
    path.extension().is_some_and(|extension| extension == EXTENSION)
        && hash.is_some_and(|hash| blake3::Hash::from_hex(hash).is_ok())
}

struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Creates the folder with access for this user only, because decisions about code that will run
/// depend on its content.
fn create_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Why an entry cannot be used.
#[derive(Debug, thiserror::Error)]
enum CorruptedEntry {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it ends early")]
    Truncated,
    #[error("it is no kernel cache entry of format {FORMAT}")]
    Format,
    #[error("it belongs to another kernel")]
    Key,
    #[error("its length is not what its header says")]
    Length,
    #[error("its checksum does not match")]
    Checksum,
    #[error("its report cannot be read: {0}")]
    Report(#[from] serde_json::Error),
}

/// The entry at `path`, marked as used now; `None` if there is none.
fn read(path: &Path, key: &CacheKey) -> Result<Option<ResourceReport>, CorruptedEntry> {
    let bytes = match files::read_regular(path) {
        Ok(bytes) => bytes,
        // A parent that is a file, or a folder out of bounds, is reported when the report is
        // stored.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::PermissionDenied
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let report = decode(key, &bytes)?;
    // Only the order of eviction depends on this time.
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Ok(Some(report))
}

/// The file consists of magic, format, key, payload length, a checksum over everything else, and
/// the payload.
fn encode(key: &CacheKey, report: &ResourceReport) -> io::Result<Vec<u8>> {
    let payload = serde_json::to_vec(report)?;
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&FORMAT.to_le_bytes());
    header.extend_from_slice(&key.0);
    header.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    let checksum = checksum(&header, &payload);
    Ok([header.as_slice(), &checksum, &payload].concat())
}

fn decode(key: &CacheKey, bytes: &[u8]) -> Result<ResourceReport, CorruptedEntry> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(CorruptedEntry::Truncated)?;
    let (stored_checksum, payload) =
        rest.split_first_chunk::<CHECKSUM_BYTES>().ok_or(CorruptedEntry::Truncated)?;
    let mut fields = header;
    if take(&mut fields)? != MAGIC || u32::from_le_bytes(take(&mut fields)?) != FORMAT {
        return Err(CorruptedEntry::Format);
    }
    if take(&mut fields)? != key.0 {
        return Err(CorruptedEntry::Key);
    }
    if u64::from_le_bytes(take(&mut fields)?) != payload.len() as u64 {
        return Err(CorruptedEntry::Length);
    }
    if checksum(header, payload) != *stored_checksum {
        return Err(CorruptedEntry::Checksum);
    }
    Ok(serde_json::from_slice(payload)?)
}

fn checksum(header: &[u8], payload: &[u8]) -> [u8; CHECKSUM_BYTES] {
    *blake3::Hasher::new().update(header).update(payload).finalize().as_bytes()
}

/// The first `N` bytes, which are removed from `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], CorruptedEntry> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(CorruptedEntry::Truncated)?;
    *bytes = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests;
