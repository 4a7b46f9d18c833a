//! Files of results. They are replaced atomically, so a reader sees the old or the new file, never
//! half of one. Reading a file of another schema fails with the reason. This module also provides
//! the date and the command line for their heads.

use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::error::{Error, FileDamage, Result};

/// The folder of a file, or the current one if the path names none.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates the folder if it is missing, and checks that files can be created there.
///
/// # Errors
/// [`Error::Io`] with the folder.
pub fn check_folder(folder: &Path) -> Result<()> {
    temporary(folder).map(drop).map_err(|source| Error::Io { path: folder.to_owned(), source })
}

/// Checks that a file can be created at `path`, and creates its folder where it is missing.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn check_path(path: &Path) -> Result<()> {
    if path.is_dir() {
        let source = io::ErrorKind::IsADirectory.into();
        return Err(Error::Io { path: path.to_owned(), source });
    }
    check_folder(folder_of(path))
}

/// Writes `content` to `path` and replaces an existing file. The folder is created if it is
/// missing.
///
/// # Errors
/// [`Error::Io`] with the path. An existing file is then unchanged.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    stage(folder_of(path), content)
        .and_then(|file| Ok(file.persist(path)?))
        .map(drop)
        .map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Like [`write()`], with a value as [`indented`] JSON.
///
/// # Errors
/// The errors of [`write()`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = indented(value).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    write(path, &text)
}

/// A value as indented JSON that ends its last line.
pub fn indented(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// Writes the whole content to a temporary file in the folder of the final one.
pub fn stage(folder: &Path, content: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = temporary(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    std::fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".writing-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are private by default; this one becomes an ordinary file, as the umask
        // wants it.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
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
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(std::fs::read_dir(folder_of(&path)).unwrap().count(), 1);

        // The path of the file is an existing folder.
        let error = write(folder_of(&path), b"text").unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}/new: ", folder.path().display())));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn paths_that_cannot_be_written_are_found_first() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("taken"), "mine").unwrap();
        for path in ["taken/survey.json", "."] {
            let error = check_path(&folder.path().join(path)).unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{path}: {error}");
        }
        check_path(&folder.path().join("new/survey.json")).unwrap();
        assert!(folder.path().join("new").is_dir());
    }

    #[cfg(unix)]
    #[test]
    fn files_have_the_permissions_of_any_other() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        write(&ours, b"text").unwrap();
        std::fs::write(&plain, "text").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
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
