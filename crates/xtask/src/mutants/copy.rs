//! A copy of the last commit, in which faults are planted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::candidates::find;
use super::draw::Fault;
use super::splice::{splice, switch};
use crate::commands::{output, run};
use crate::error::{AtPath, Error};
use crate::files::{paths_below, remove_folder};

/// Crates that are no part of what users have.
const LEFT_OUT: [&str; 3] = ["docs", "fuzz", "xtask"];

/// The folders of a run.
pub struct Copy {
    folder: PathBuf,
    /// The commit that is copied.
    pub commit: String,
}

impl Copy {
    /// Copies the last commit of a repository into the folder `plain` of a folder.
    ///
    /// # Errors
    /// Git fails, or the folder cannot be written.
    pub fn new(repository: &Path, folder: &Path) -> Result<Copy, Error> {
        let git = || {
            let mut git = Command::new("git");
            git.arg("-C").arg(repository);
            git
        };
        let commit = output(git().args(["rev-parse", "HEAD"]))?.trim().to_owned();
        let copy = Copy { folder: folder.to_owned(), commit };
        let (plain, archive) = (copy.plain(), folder.join("plain.tar"));
        remove_folder(&plain)?;
        fs::create_dir_all(&plain).at(&plain)?;
        run(git().arg("archive").arg("--output").arg(&archive).arg(&copy.commit))?;
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&plain))?;
        fs::remove_file(&archive).at(&archive)?;
        Ok(copy)
    }

    /// The commit as it is.
    fn plain(&self) -> PathBuf {
        self.folder.join("plain")
    }

    /// The commit with faults.
    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// What cargo builds from it.
    pub fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// The crates in which faults may be planted: folders of `crates`.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn crates(&self) -> Result<Vec<String>, Error> {
        let folder = self.plain().join("crates");
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).at(&folder)? {
            let name = entry.at(&folder)?.file_name().to_string_lossy().into_owned();
            if !LEFT_OUT.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// All faults that could be planted in a crate.
    ///
    /// # Errors
    /// A source file is missing, or is not Rust.
    pub fn candidates(&self, package: &str) -> Result<Vec<Fault>, Error> {
        let source = format!("crates/{package}/src");
        let mut faults = Vec::new();
        let mut files: Vec<(String, String)> = ["lib.rs", "main.rs"]
            .iter()
            .map(|root| (format!("{source}/{root}"), source.clone()))
            .filter(|(file, _)| self.plain().join(file).is_file())
            .collect();
        while let Some((file, children)) = files.pop() {
            let path = self.plain().join(&file);
            let text = fs::read_to_string(&path).at(&path)?;
            let found = find(&text).map_err(|source| Error::Rust { path, source })?;
            for module in found.modules {
                let folder = format!("{children}/{module}");
                let file = format!("{folder}.rs");
                let is_file = self.plain().join(&file).is_file();
                files.push((if is_file { file } else { format!("{folder}/mod.rs") }, folder));
            }
            faults.extend(found.candidates.into_iter().map(|candidate| Fault {
                id: 0,
                package: package.to_owned(),
                file: file.clone(),
                candidate,
            }));
        }
        Ok(faults)
    }

    /// Plants faults in the tree. Files that are right already are not written, so that cargo does
    /// not build them again. `largest` is the largest number of a fault.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn plant(&self, faults: &[&Fault], largest: usize) -> Result<Places, Error> {
        let mut files = BTreeMap::<&str, Vec<&Fault>>::new();
        for fault in faults {
            files.entry(&fault.file).or_default().push(fault);
        }
        let (mut texts, mut places) = (BTreeMap::<String, String>::new(), Places::default());
        for (file, mut faults) in files {
            let path = self.plain().join(file);
            faults.sort_by_key(|fault| fault.candidate.range.start);
            let numbered = faults.iter().map(|fault| (fault.id, &fault.candidate));
            let spliced = splice(&fs::read_to_string(&path).at(&path)?, numbered);
            texts.insert(file.to_owned(), spliced.text);
            let ids = faults.iter().map(|fault| fault.id);
            places.0.insert(file.to_owned(), ids.zip(spliced.ranges).collect());
        }
        for root in self.roots()? {
            let path = self.plain().join(&root);
            let plain = fs::read_to_string(&path).at(&path)?;
            texts.entry(root).or_insert(plain).push_str(&switch(largest));
        }
        self.write(&texts)?;
        Ok(places)
    }

    /// The roots of crates that have source files with faults. Tests and examples that name source
    /// files by their paths are such crates too.
    fn roots(&self) -> Result<Vec<String>, Error> {
        let mut roots = Vec::new();
        for package in self.crates()? {
            for root in ["lib.rs", "main.rs"] {
                roots.push(format!("crates/{package}/src/{root}"));
            }
            let tests = self.plain().join(format!("crates/{package}/tests"));
            for path in if tests.is_dir() { paths_below(&tests)? } else { Vec::new() } {
                let is_rust = path.extension().is_some_and(|extension| extension == "rs");
                if is_rust && names_sources(&fs::read_to_string(&path).at(&path)?) {
                    roots.push(self.name(&path, &self.plain()));
                }
            }
        }
        roots.retain(|root| self.plain().join(root).is_file());
        Ok(roots)
    }

    /// Makes the tree like the commit, except for files with other texts.
    fn write(&self, texts: &BTreeMap<String, String>) -> Result<(), Error> {
        let (plain, tree) = (self.plain(), self.tree());
        let mut names = BTreeSet::new();
        for path in paths_below(&plain)? {
            let name = self.name(&path, &plain);
            let to = tree.join(&name);
            if path.is_dir() {
                fs::create_dir_all(&to).at(&to)?;
                continue;
            }
            let text = match texts.get(&name) {
                Some(text) => text.clone().into_bytes(),
                None => fs::read(&path).at(&path)?,
            };
            if !fs::read(&to).is_ok_and(|present| present == text) {
                if let Some(folder) = to.parent() {
                    fs::create_dir_all(folder).at(folder)?;
                }
                fs::copy(&path, &to).at(&to)?;
                fs::write(&to, text).at(&to)?;
            }
            names.insert(name);
        }
        for path in paths_below(&tree)? {
            if path.is_file() && !names.contains(&self.name(&path, &tree)) {
                fs::remove_file(&path).at(&path)?;
            }
        }
        Ok(())
    }

    fn name(&self, path: &Path, folder: &Path) -> String {
        path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned()
    }
}

/// Whether a test or an example has source files of its crate as modules.
fn names_sources(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("#[path = \"../") && line.contains("/src/"))
}

/// Where faults are in the files of the tree: the number of each fault, and its bytes.
#[derive(Debug, Default)]
pub struct Places(BTreeMap<String, Vec<(usize, std::ops::Range<usize>)>>);

impl Places {
    /// The faults that a compiler's error is about, which has its places in files in order of
    /// importance: those around a place, or those within one. If there are none, they are those
    /// between the places in a file: a borrow may not end, for example, because a statement is left
    /// out.
    pub fn blamed(&self, error: &[(String, std::ops::Range<usize>)]) -> Vec<usize> {
        let within = |inner: &std::ops::Range<usize>, outer: &std::ops::Range<usize>| {
            outer.start <= inner.start && inner.end <= outer.end
        };
        let all = || {
            error.iter().flat_map(|(file, place)| {
                let faults = self.0.get(file).into_iter().flatten();
                faults.map(move |(id, bytes)| (*id, bytes, place))
            })
        };
        if let Some((id, ..)) = all().find(|(_, bytes, place)| within(place, bytes)) {
            return vec![id];
        }
        let blamed: Vec<usize> =
            all().filter(|(_, bytes, place)| within(bytes, place)).map(|all| all.0).collect();
        if !blamed.is_empty() {
            return blamed;
        }
        let mut whole = BTreeMap::<&str, std::ops::Range<usize>>::new();
        for (file, place) in error {
            let bytes = whole.entry(file).or_insert_with(|| place.clone());
            *bytes = bytes.start.min(place.start)..bytes.end.max(place.end);
        }
        let between = whole.iter().flat_map(|(file, place)| {
            let faults = self.0.get(*file).into_iter().flatten();
            faults.filter(move |(_, bytes)| within(bytes, place)).map(|(id, _)| *id)
        });
        between.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_about_the_fault_around_them() {
        let faults = vec![(3, 10..20), (1, 30..40), (2, 50..60)];
        let places = Places(BTreeMap::from([("a".to_owned(), faults)]));
        let blamed = |error: &[(&str, std::ops::Range<usize>)]| {
            let error: Vec<_> =
                error.iter().map(|(file, place)| (file.to_string(), place.clone())).collect();
            places.blamed(&error)
        };
        assert_eq!(blamed(&[("a", 12..13)]), [3]);
        assert_eq!(blamed(&[("b", 12..13), ("a", 0..5), ("a", 30..40)]), [1]);
        assert_eq!(blamed(&[("a", 5..45)]), [3, 1]);
        assert!(blamed(&[("a", 0..5)]).is_empty());
        assert_eq!(blamed(&[("a", 22..25), ("b", 0..99), ("a", 45..46)]), [1]);
    }

    #[test]
    fn tests_with_source_files_have_the_switch_too() {
        assert!(names_sources("mod b;\n#[path = \"../src/layout/mod.rs\"]\nmod a;"));
        assert!(names_sources("#[path = \"../../src/abi.rs\"]\nmod a;"));
        assert!(!names_sources("#[path = \"../common/mod.rs\"]\nmod a;"));
    }
}
