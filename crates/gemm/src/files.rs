//! Files that this library and its command write. They are replaced atomically, so a reader sees
//! the old or the new file, never half of one. What is no regular file is never replaced. Reading a
//! file of another schema fails with the reason. This module also provides the date and the command
//! line for the heads of results.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::error::{Error, FileDamage, Result};

/// The folder of a file, or the current one if the path names none.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks that files can be created in the folder, or in the one above it in which it would be
/// created. Leaves nothing behind.
///
/// # Errors
/// [`Error::Io`] with the folder.
pub fn check_folder(folder: &Path) -> Result<()> {
    let there = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    UnfinishedFile::new(there)
        .map(drop)
        .map_err(|source| Error::Io { path: folder.to_owned(), source })
}

/// Checks that [`write()`] can write to `path`. Leaves nothing behind.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn check_path(path: &Path) -> Result<()> {
    let target = Target::of(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    check_folder(folder_of(&target.path))
}

/// Writes `content` to `path` as [`replace`] does. The folder is created if it is missing.
///
/// # Errors
/// [`Error::Io`] with the path. An existing file is then unchanged.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    let target = Target::of(path);
    target
        .and_then(|target| {
            fs::create_dir_all(folder_of(&target.path))?;
            target.replace(|file| file.write_all(content))
        })
        .map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Writes to `path` what `content` writes. An existing file is replaced when the new one is
/// complete and on the disk, and its permissions stay as they are. Where `path` is a symbolic link,
/// the file that it leads to is replaced.
///
/// # Errors
/// What the operating system says, or that `path` is a folder, a device or something else that is
/// no regular file. An existing file is then unchanged.
pub fn replace(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    Target::of(path)?.replace(content)
}

/// Like [`write()`], with a value as [`indented`] JSON.
///
/// # Errors
/// The errors of [`write()`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = indented(value).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    write(path, &text)
}

/// The size up to which files of this library are read, bytes.
const MOST_BYTES: u64 = 1 << 30;

/// The content of a results file.
///
/// # Errors
/// [`Error::Io`] with the path. A device or a pipe, whose end may never come, is not read, and
/// neither is a file of more than 1 GiB.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_regular(path).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// The content of a regular file of at most 1 GiB.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    read_regular_up_to(path, MOST_BYTES)
}

/// The content of a regular file of at most so many bytes.
pub(crate) fn read_regular_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = fs::metadata(path).and_then(regular)?.len();
    if bytes > most {
        let text = format!("it has {bytes} bytes, and such files have at most {most}");
        return Err(io::Error::other(text));
    }
    fs::read(path)
}

/// The metadata of a regular file. Others are refused.
fn regular(there: Metadata) -> io::Result<Metadata> {
    if there.is_file() {
        Ok(there)
    } else if there.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else {
        Err(io::Error::other("it is a device, a pipe or a socket, and not a regular file"))
    }
}

/// A value as indented JSON that ends its last line.
pub fn indented(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// A file to write, and the permissions of the one that is there.
struct Target {
    /// Its path, which leads through no symbolic link to another file.
    path: PathBuf,
    permissions: Option<Permissions>,
}

/// Most symbolic links from a path to a file that is not there yet; Linux follows as many.
const MOST_LINKS: usize = 40;

impl Target {
    fn of(path: &Path) -> io::Result<Target> {
        match fs::metadata(path) {
            Ok(there) => {
                let permissions = Some(regular(there)?.permissions());
                Ok(Target { path: path.canonicalize()?, permissions })
            }
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
                let mut path = path.to_owned();
                for _ in 0..MOST_LINKS {
                    let Ok(next) = fs::read_link(&path) else { break };
                    path = folder_of(&path).join(next);
                }
                Ok(Target { path, permissions: None })
            }
            Err(failed) => Err(failed),
        }
    }

    fn replace(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let unfinished = UnfinishedFile::with(folder_of(&self.path), content)?;
        if let Some(permissions) = self.permissions {
            unfinished.file.as_file().set_permissions(permissions)?;
        }
        unfinished.persist(&self.path)
    }
}

/// How the names of unfinished files begin and end.
const PREFIX: &str = ".pgemm-";
const SUFFIX: &str = ".partial";

/// The age from which on an unfinished file that nobody has locked is one that a process has left.
const STALE: Duration = Duration::from_secs(60);

/// The files that this process writes.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the unfinished files of this process, which is about to end.
pub fn remove_unfinished() {
    for path in unfinished().drain(..) {
        // There is nobody to tell.
        let _ = fs::remove_file(path);
    }
}

/// A file that is being written, in the folder of the final one. It is removed if it is not
/// persisted. If its process ends before that, the next one that writes to the folder removes it.
pub struct UnfinishedFile {
    file: NamedTempFile,
    listed: Listed,
}

/// A path that is among [`UNFINISHED`] as long as this lives.
struct Listed(PathBuf);

impl Listed {
    fn new(path: &Path) -> Listed {
        unfinished().push(path.to_owned());
        Listed(path.to_owned())
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        unfinished().retain(|path| *path != self.0);
    }
}

impl UnfinishedFile {
    /// An empty file in a folder, which is there.
    fn new(folder: &Path) -> io::Result<UnfinishedFile> {
        remove_stale(folder);
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).suffix(SUFFIX);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Temporary files are private by default; this one becomes an ordinary file, as the
            // umask wants it.
            builder.permissions(Permissions::from_mode(0o666));
        }
        let file = builder.tempfile_in(folder)?;
        let listed = Listed::new(file.path());
        // Where there are no locks, only its age protects it.
        file.as_file().try_lock().ok();
        Ok(UnfinishedFile { file, listed })
    }

    /// A file in a folder, with all that `content` writes, on the disk.
    fn with(
        folder: &Path,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<UnfinishedFile> {
        let unfinished = UnfinishedFile::new(folder)?;
        let mut writer = BufWriter::with_capacity(1 << 20, unfinished.file.as_file());
        content(&mut writer)?;
        writer.flush()?;
        drop(writer);
        unfinished.file.as_file().sync_all()?;
        Ok(unfinished)
    }

    /// A file in a folder, which is created if it is missing, with the whole content.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn staged(folder: &Path, content: &[u8]) -> io::Result<UnfinishedFile> {
        fs::create_dir_all(folder)?;
        UnfinishedFile::with(folder, |file| file.write_all(content))
    }

    /// Gives it its final name. A file that has that name is replaced.
    pub(crate) fn persist(self, path: &Path) -> io::Result<()> {
        let UnfinishedFile { file, listed: _listed } = self;
        file.persist(path)?;
        Ok(())
    }

    /// Gives it its final name, if no file has that.
    ///
    /// # Errors
    /// The error, and the file.
    pub fn persist_new(self, path: &Path) -> std::result::Result<(), (io::Error, UnfinishedFile)> {
        let UnfinishedFile { file, listed } = self;
        let persisted = file.persist_noclobber(path).map(drop);
        persisted.map_err(|failed| (failed.error, UnfinishedFile { file: failed.file, listed }))
    }
}

/// Removes unfinished files that processes have left in a folder. Each process looks once.
fn remove_stale(folder: &Path) {
    static SEEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let seen = &mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.insert(folder.to_owned()) {
        remove_stale_of(folder, STALE);
    }
}

/// Removes unfinished files of this age that nobody has locked. What cannot be looked at stays.
fn remove_stale_of(folder: &Path, age: Duration) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        let old = file.metadata().ok().and_then(|file| file.modified().ok()?.elapsed().ok());
        if old.is_some_and(|old| old >= age) && file.try_lock().is_ok() {
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// Parses JSON with a field `schema` of this value, or says why it cannot be read.
pub fn parse<T: DeserializeOwned>(text: &[u8], schema: u32) -> Result<T, FileDamage> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let head: Head = serde_json::from_slice(text)?;
    if head.schema != schema {
        return Err(FileDamage::Schema { found: head.schema, needed: schema });
    }
    Ok(serde_json::from_slice(text)?)
}

/// This process's command line, one string for each argument.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// The time, UTC, ISO 8601, to the second.
pub fn now() -> String {
    iso_8601(SystemTime::now())
}

/// `2026-11-20T11:45:00Z`.
fn iso_8601(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.json");
        for content in ["a longer text", "short"] {
            write(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(folder_of(&path)).unwrap().count(), 1);

        // The path of the file is an existing folder.
        let error = write(folder_of(&path), b"text").unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}/new: ", folder.path().display())));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn paths_that_cannot_be_written_are_found_first_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("taken"), "mine").unwrap();
        for path in ["taken/survey.json", "taken/new/survey.json", "."] {
            let error = check_path(&folder.path().join(path)).unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{path}: {error}");
        }
        for path in ["survey.json", "new/survey.json", "new/newer/survey.json", "taken"] {
            check_path(&folder.path().join(path)).unwrap();
        }
        check_folder(&folder.path().join("new/newer")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_never_replaced() {
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        for path in [Path::new("/dev/null"), &socket, folder.path()] {
            for error in [write(path, b"text").unwrap_err(), check_path(path).unwrap_err()] {
                let (name, error) = (path.display().to_string(), error.to_string());
                assert!(error.starts_with(&format!("{name}: ")), "{error}");
                assert!(error.contains("regular file") || error.contains("directory"), "{error}");
            }
        }
        use std::os::unix::fs::FileTypeExt;
        assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_and_permissions_too() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).unwrap();
        fs::write(at("inner/there"), "old").unwrap();
        fs::set_permissions(at("inner/there"), Permissions::from_mode(0o640)).unwrap();
        for (link, target) in
            [("to-file", "inner/there"), ("to-link", "to-nothing"), ("to-nothing", "inner/new")]
        {
            symlink(target, at(link)).unwrap();
        }
        for (link, file) in [("to-file", "inner/there"), ("to-link", "inner/new")] {
            check_path(&at(link)).unwrap();
            write(&at(link), link.as_bytes()).unwrap();
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(at(file)).unwrap(), link);
        }
        let mode = fs::metadata(at("inner/there")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        symlink("to-itself", at("to-itself")).unwrap();
        assert!(write(&at("to-itself"), b"text").is_err());
    }

    #[test]
    fn what_a_process_has_left_is_removed_and_what_is_being_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(format!("{PREFIX}left{SUFFIX}"));
        fs::write(&left, "half").unwrap();
        fs::write(folder.path().join(".pgemm-notes"), "mine").unwrap();
        let unfinished = UnfinishedFile::new(folder.path()).unwrap();
        remove_stale_of(folder.path(), STALE);
        assert!(left.exists(), "it may have been created just now");
        remove_stale_of(folder.path(), Duration::ZERO);
        assert!(!left.exists() && unfinished.file.path().exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        // Its process ends.
        let path = unfinished.file.path().to_owned();
        assert!(super::unfinished().contains(&path));
        drop(unfinished);
        assert!(!path.exists() && !super::unfinished().contains(&path));
    }

    /// A file is old enough after [`STALE`], and the first one that a process writes into the
    /// folder removes it.
    #[test]
    fn the_first_write_into_a_folder_removes_what_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let left = |name: &str, age: Duration| {
            let path = folder.path().join(format!("{PREFIX}{name}{SUFFIX}"));
            let file = File::create(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
            path
        };
        let (old, new) = (left("old", STALE * 2), left("new", STALE / 2));
        write(&folder.path().join("first"), b"text").unwrap();
        assert!(!old.exists() && new.exists());
        // Later ones do not look again.
        let old = left("old", STALE * 2);
        write(&folder.path().join("second"), b"text").unwrap();
        assert!(old.exists());
    }

    #[test]
    fn a_failure_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "old").unwrap();
        let full = replace(&path, |file| {
            file.write_all(&[0; 1 << 21])?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(full.unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn files_have_the_permissions_of_any_other() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        write(&ours, b"text").unwrap();
        fs::write(&plain, "text").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }

    #[test]
    fn another_schema_is_named_before_what_else_differs() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct File {
            schema: u32,
            speed: f64,
        }
        let file = File { schema: 3, speed: 0.5 };
        assert_eq!(parse::<File>(&indented(&file).unwrap(), 3).unwrap(), file);
        for (text, part) in [
            (r#"{"schema": 4}"#, "its schema is 4, this version reads 3"),
            (r#"{"schema": 3}"#, "speed"),
            (r#"{"speed": 1}"#, "schema"),
            (r#"{"schema": 3, "sp"#, "EOF"),
        ] {
            let why = parse::<File>(text.as_bytes(), 3).unwrap_err().to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn dates_are_iso_8601() {
        let at = |seconds| iso_8601(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_799), "2000-02-29T23:59:59Z");
        assert_eq!(at(1_795_175_100), "2026-11-20T11:45:00Z");
        assert_eq!(at(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
