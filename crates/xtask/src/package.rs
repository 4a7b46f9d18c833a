//! The folder that becomes a package, and how the files in it are laid out. `install.sh` copies the
//! folders `bin`, `include`, `lib` and `share` to a prefix; they also work where they are.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::error::{AtPath, Error};
use crate::files::{paths_below, remove_folder, sha256};

/// The folder of documents below the prefix.
pub const DOCUMENTS: &str = "share/doc/persistent_gemm";
/// The folder of other data below the prefix.
pub const DATA: &str = "share/persistent_gemm";
/// The list of checksums, in the form of `sha256sum`.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// A package that is being filled.
pub struct Package {
    folder: PathBuf,
}

impl Package {
    /// An empty package. What was in its folder is removed.
    ///
    /// # Errors
    /// The folder cannot be emptied or made.
    pub fn new(folder: PathBuf) -> Result<Package, Error> {
        remove_folder(&folder)?;
        fs::create_dir_all(&folder).at(&folder)?;
        Ok(Package { folder })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Copies a file that is no program.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn add(&self, file: &Path, name: &str) -> Result<(), Error> {
        self.copy(file, name, 0o644)
    }

    /// Copies a program.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn add_program(&self, file: &Path, name: &str) -> Result<(), Error> {
        self.copy(file, name, 0o755)
    }

    /// Writes a text that is a program.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_program(&self, text: &str, name: &str) -> Result<(), Error> {
        self.write(text, name)?;
        let path = self.folder.join(name);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).at(&path)
    }

    /// Writes a text.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, text: &str, name: &str) -> Result<(), Error> {
        let path = self.place(name)?;
        fs::write(&path, text).at(&path)
    }

    /// Makes a symbolic link to a file beside it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn link(&self, to: &str, name: &str) -> Result<(), Error> {
        let path = self.place(name)?;
        symlink(to, &path).at(&path)
    }

    /// Copies the files of a folder, and of the folders in it, whose endings are given.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn add_folder(&self, folder: &Path, endings: &[&str], name: &str) -> Result<(), Error> {
        for path in paths_below(folder)? {
            let ending = path.extension().unwrap_or_default();
            if path.is_file() && endings.iter().any(|wanted| *wanted == ending) {
                let below = path.strip_prefix(folder).unwrap_or(&path);
                self.add(&path, &format!("{name}/{}", below.display()))?;
            }
        }
        Ok(())
    }

    /// Writes the checksums of all files, and of those that symbolic links lead to.
    ///
    /// # Errors
    /// A file cannot be read, or the list not be written.
    pub fn write_checksums(&self) -> Result<(), Error> {
        let mut lines = String::new();
        for path in paths_below(&self.folder)? {
            if path.is_file() {
                let name = path.strip_prefix(&self.folder).unwrap_or(&path);
                lines += &format!("{}  {}\n", sha256(&path)?, name.display());
            }
        }
        self.write(&lines, CHECKSUMS)
    }

    fn copy(&self, file: &Path, name: &str, mode: u32) -> Result<(), Error> {
        let path = self.place(name)?;
        fs::copy(file, &path).at(file)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).at(&path)
    }

    /// The path of a file, whose folder is made.
    fn place(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.folder.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).at(folder)?;
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_list_files_and_links_in_order() {
        let above = tempfile::tempdir().unwrap();
        let package = Package::new(above.path().join("package")).unwrap();
        package.write("abc", "lib/it.so.1").unwrap();
        package.link("it.so.1", "lib/it.so").unwrap();
        package.write("", "bin/empty").unwrap();
        package.write_checksums().unwrap();
        let text = fs::read_to_string(package.folder().join(CHECKSUMS)).unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(text, format!("{empty}  bin/empty\n{abc}  lib/it.so\n{abc}  lib/it.so.1\n"));
    }

    #[test]
    fn a_folder_is_copied_by_endings_and_an_old_package_is_removed() {
        let above = tempfile::tempdir().unwrap();
        let source = above.path().join("source");
        fs::create_dir_all(source.join("images")).unwrap();
        for name in ["a.md", "lib.rs", "images/b.svg"] {
            fs::write(source.join(name), name).unwrap();
        }
        let folder = above.path().join("package");
        Package::new(folder.clone()).unwrap().write("old", "old").unwrap();
        let package = Package::new(folder.clone()).unwrap();
        package.add_folder(&source, &["md", "svg"], "doc").unwrap();
        let files: Vec<_> =
            paths_below(&folder).unwrap().into_iter().filter(|path| path.is_file()).collect();
        assert_eq!(files, [folder.join("doc/a.md"), folder.join("doc/images/b.svg")]);
    }
}
