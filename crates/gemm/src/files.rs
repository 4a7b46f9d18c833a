//! JSON files of measurements: a reader sees an old file or a new one, never half of either, and learns why it cannot read
//! one of another schema.

use std::io::{self, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// The folder of a file; the current one where the path names none.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates the folder where it is missing, and checks that files can be made there.
///
/// # Errors
/// [`Error::Io`] with the folder.
pub(crate) fn check_folder(folder: &Path) -> Result<()> {
    temporary(folder).map(drop).map_err(|source| Error::Io { path: folder.to_owned(), source })
}

/// Puts `content` at `path`, in place of what was there. The folder is created where it is missing.
///
/// # Errors
/// [`Error::Io`] with the path; what was there is then still there.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    stage(folder_of(path), content)
        .and_then(|file| Ok(file.persist(path)?))
        .map(drop)
        .map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Like [`write()`], with a value as [`indented`] JSON.
///
/// # Errors
/// Those of [`write()`].
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = indented(value).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    write(path, &text)
}

/// A value as indented JSON that ends its last line.
pub(crate) fn indented(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// The whole content on disk under a passing name, in the folder where the file will be.
pub(crate) fn stage(folder: &Path, content: &[u8]) -> io::Result<NamedTempFile> {
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
        // Temporary files are private by default; this one becomes an ordinary file, as the umask wants it.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// What JSON with a field `schema` of this value holds, or in words why it cannot be read.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8], schema: u32) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let head: Head = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if head.schema != schema {
        return Err(format!("its schema is {}, this version reads {schema}", head.schema));
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
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

        // A folder stands where the file is to be.
        let error = write(folder_of(&path), b"text").unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}/new: ", folder.path().display())));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
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
            let why = parse::<File>(text.as_bytes(), 3).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
