//! Files that appear whole or not at all.

use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::IoError;

/// Writes a temporary file next to `path` and renames it when it is complete and on disk. If
/// anything fails, an existing file at `path` is unchanged.
pub(super) fn write(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), IoError> {
    let existing = std::fs::metadata(path).ok();
    if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
        return Err(IoError::NotAFile { path: path.to_owned() });
    }
    replace(path, existing.map(|metadata| metadata.permissions()), content)
        .map_err(|source| IoError::Write { path: path.to_owned(), source })
}

/// Checks that [`write()`] would find a folder to write to.
pub(super) fn check(path: &Path) -> Result<(), IoError> {
    let existing = std::fs::metadata(path).ok();
    if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
        return Err(IoError::NotAFile { path: path.to_owned() });
    }
    temporary(path, existing.is_some())
        .map(drop)
        .map_err(|source| IoError::Write { path: path.to_owned(), source })
}

/// A temporary file in the folder of the final one, and the final path after resolving symbolic
/// links. A link remains, and its target is replaced.
fn temporary(path: &Path, exists: bool) -> std::io::Result<(NamedTempFile, PathBuf)> {
    let target = if exists { path.canonicalize()? } else { path.to_owned() };
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".pgemm-").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are private by default; this one becomes an ordinary file, as the umask
        // wants it.
        builder.permissions(Permissions::from_mode(0o666));
    }
    Ok((builder.tempfile_in(folder)?, target))
}

fn replace(
    path: &Path,
    permissions: Option<Permissions>,
    content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let (file, target) = temporary(path, permissions.is_some())?;
    let mut writer = BufWriter::with_capacity(1 << 20, file.as_file());
    content(&mut writer)?;
    writer.flush()?;
    drop(writer);
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.as_file().sync_all()?;
    file.persist(&target)?;
    Ok(())
}
