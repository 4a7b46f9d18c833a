//! Writes a folder as a compressed archive whose bytes depend on nothing but the files, their
//! executable bits and one given time: entries are sorted, and belong to nobody in particular.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use crate::error::{AtPath, Error};
use crate::files::paths_below;

/// Writes the files of a folder, below the folder's own name. `seconds` is the time of all entries,
/// since 1970.
///
/// # Errors
/// A file cannot be read, or the archive not be written.
pub fn write(folder: &Path, seconds: u64, archive: &Path) -> Result<(), Error> {
    let out = BufWriter::new(File::create(archive).at(archive)?);
    // 255 stands for an unknown operating system, and the time of the compression is left out.
    let compressor =
        GzBuilder::new().mtime(0).operating_system(255).write(out, Compression::best());
    let mut builder = tar::Builder::new(compressor);
    let above = folder.parent().unwrap_or(Path::new(""));
    let mut paths = vec![folder.to_owned()];
    paths.extend(paths_below(folder)?);
    for path in paths {
        let name = path.strip_prefix(above).unwrap_or(&path);
        append(&mut builder, &path, name, seconds).at(&path)?;
    }
    let finish = || builder.into_inner()?.finish()?.into_inner()?.sync_all();
    finish().at(archive)
}

fn append<W: Write>(
    builder: &mut tar::Builder<W>,
    path: &Path,
    name: &Path,
    seconds: u64,
) -> io::Result<()> {
    let facts = fs::symlink_metadata(path)?;
    let mut header = Header::new_ustar();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(seconds);
    header.set_size(0);
    if facts.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        builder.append_link(&mut header, name, fs::read_link(path)?)
    } else if facts.is_dir() {
        header.set_entry_type(EntryType::Directory);
        header.set_mode(0o755);
        builder.append_data(&mut header, name, io::empty())
    } else {
        let is_program = facts.permissions().mode() & 0o100 != 0;
        header.set_entry_type(EntryType::Regular);
        header.set_mode(if is_program { 0o755 } else { 0o644 });
        header.set_size(facts.len());
        builder.append_data(&mut header, name, File::open(path)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    use flate2::read::GzDecoder;

    use super::*;
    use crate::files::sha256;

    /// A folder with the same files, which are written in another order and have other times and
    /// permissions of the group.
    fn folder(names: &[&str], mode: u32, modified: SystemTime) -> (tempfile::TempDir, PathBuf) {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("package");
        for name in names {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("text of {name}")).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        }
        symlink("a", folder.join("link")).unwrap();
        (above, folder)
    }

    #[test]
    fn equal_files_give_equal_bytes() {
        let now = SystemTime::now();
        let (first, one) = folder(&["a", "b/c", "b/d"], 0o640, now);
        let (second, other) = folder(&["b/d", "b/c", "a"], 0o604, now - Duration::from_secs(9999));
        let archives = [first.path().join("1.tar.gz"), second.path().join("2.tar.gz")];
        write(&one, 77, &archives[0]).unwrap();
        write(&other, 77, &archives[1]).unwrap();
        assert_eq!(fs::read(&archives[0]).unwrap(), fs::read(&archives[1]).unwrap());
        assert_eq!(sha256(&archives[0]).unwrap(), sha256(&archives[1]).unwrap());

        fs::set_permissions(other.join("a"), PermissionsExt::from_mode(0o755)).unwrap();
        write(&other, 77, &archives[1]).unwrap();
        assert_ne!(fs::read(&archives[0]).unwrap(), fs::read(&archives[1]).unwrap());
    }

    #[test]
    fn entries_are_sorted_and_have_the_given_time_and_no_owner() {
        let (above, folder) = folder(&["b/d", "a", "b/c"], 0o755, SystemTime::now());
        let archive = above.path().join("it.tar.gz");
        write(&folder, 1234, &archive).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(File::open(&archive).unwrap()));
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            let owner = (header.uid().unwrap(), header.gid().unwrap());
            assert_eq!((header.mtime().unwrap(), owner), (1234, (0, 0)));
            names.push(entry.path().unwrap().to_string_lossy().into_owned());
        }
        let expected =
            ["package", "package/a", "package/b", "package/b/c", "package/b/d", "package/link"];
        assert_eq!(names, expected);
    }
}
