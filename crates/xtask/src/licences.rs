//! The licences of what is linked into the files of a package: one text that lists every crate with
//! its licence, and has the text of each licence once.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{AtPath, Error};
use crate::inventory::Inventory;

/// Licences that let a package be given to anybody, in binary form too, as long as it comes with
/// their texts. The sources of crates under MPL-2.0 are in the registry of Rust, unchanged.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Names of files with licences, without their endings.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// Something besides crates that is linked into a package: its name, its licence and the file that
/// has its text.
pub struct Runtime {
    pub name: String,
    pub licence: &'static str,
    pub text: PathBuf,
}

/// The text about all dependencies.
///
/// # Errors
/// A crate has no licence or one that is not allowed, or the text of a licence is not there.
/// `standard_texts` is the folder of Rust's documentation that has texts by SPDX name, for crates
/// whose package lacks the text.
pub fn text(
    inventory: &Inventory,
    runtimes: &[Runtime],
    standard_texts: &Path,
) -> Result<String, Error> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, facts) in &inventory.crates {
        if facts.sha256.is_none() {
            continue;
        }
        let package = format!("{} {}", id.name, id.version);
        let licence = facts.licence.clone().unwrap_or_else(|| "none".to_owned());
        if !is_allowed(&licence) {
            return Err(Error::Licence { package, licence });
        }
        let mut files = Vec::new();
        find(&facts.folder, 1, &mut files)?;
        if files.is_empty() {
            let file = standard_texts.join(format!("{licence}.txt"));
            if !file.is_file() {
                return Err(Error::LicenceText { package, licence });
            }
            files.push(file);
        }
        add(&package, &licence, &files, &mut list, &mut texts)?;
    }
    for Runtime { name, licence, text } in runtimes {
        add(name, licence, std::slice::from_ref(text), &mut list, &mut texts)?;
    }

    let mut whole = format!(
        "The programs and libraries of this package hold code of the following packages, under \
         these\nlicences. All crates are at https://crates.io, with their sources.\n\n{list}"
    );
    for (text, packages) in texts {
        let line = "=".repeat(80);
        let _ = write!(whole, "\n{line}\n{}\n{line}\n\n{text}\n", packages.join(", "));
    }
    Ok(whole)
}

fn add(
    package: &str,
    licence: &str,
    files: &[PathBuf],
    list: &mut String,
    texts: &mut BTreeMap<String, Vec<String>>,
) -> Result<(), Error> {
    let _ = writeln!(list, "{package}: {licence}");
    for file in files {
        let text = fs::read(file).at(file)?;
        let text = String::from_utf8_lossy(&text).replace("\r\n", "\n").trim_end().to_owned();
        let packages = texts.entry(text).or_default();
        if packages.last().is_none_or(|last| last != package) {
            packages.push(package.to_owned());
        }
    }
    Ok(())
}

/// The files of a folder that have licences, and those of its folders up to a depth, for C sources
/// that a crate brings.
fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let entries = fs::read_dir(folder).at(folder)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry.at(folder)?.path())).collect::<Result<_, Error>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_dir() && depth > 0 {
            find(&path, depth - 1, files)?;
        } else if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether an SPDX expression leaves a choice of allowed licences. All parts of an `AND` must; of
/// an `OR`, which binds less, one alternative is enough. To be safe, an `AND` within an `OR` counts
/// as if it stood outside.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression
        .split(" AND ")
        .all(|part| part.split(" OR ").any(|licence| ALLOWED.contains(&licence.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{CrateFacts, CrateId};

    #[test]
    fn one_alternative_and_all_parts_must_be_allowed() {
        for allowed in
            ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"]
        {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in ["none", "GPL-3.0", "MIT AND GPL-2.0", "MIT OR GPL-2.0 AND GPL-3.0"] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    /// Names and texts of files.
    type Files = &'static [(&'static str, &'static str)];

    /// An inventory of crates from the registry, whose folders have these files.
    fn inventory(root: &Path, crates: &[(&str, &str, Files)]) -> Inventory {
        let crates = crates.iter().map(|(name, licence, files)| {
            let folder = root.join(name);
            for (file, text) in *files {
                let path = folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let facts = CrateFacts {
                description: None,
                licence: Some((*licence).to_owned()),
                sha256: Some("0f".to_owned()),
                folder,
            };
            (CrateId { name: (*name).to_owned(), version: "1.0.0".to_owned() }, facts)
        });
        Inventory { crates: crates.collect(), uses: BTreeMap::new() }
    }

    #[test]
    fn each_text_is_there_once_with_all_that_it_is_for() {
        let folder = tempfile::tempdir().unwrap();
        let inventory = inventory(
            folder.path(),
            &[
                ("a", "MIT", &[("LICENSE-MIT", "the text\r\n")]),
                ("b", "MIT", &[("LICENSE", "the text\n"), ("c/COPYING", "of the C sources")]),
                ("c", "ISC", &[("src/lib.rs", "no licence")]),
            ],
        );
        let standard = folder.path().join("standard");
        fs::create_dir(&standard).unwrap();
        fs::write(standard.join("ISC.txt"), "the standard text").unwrap();
        let text = text(&inventory, &[], &standard).unwrap();
        assert_eq!(text.matches("the text").count(), 1);
        assert!(text.contains("\na 1.0.0, b 1.0.0\n"), "{text}");
        assert!(text.contains("of the C sources") && text.contains("the standard text"), "{text}");
        assert!(text.contains("a 1.0.0: MIT\nb 1.0.0: MIT\nc 1.0.0: ISC\n"), "{text}");
    }

    #[test]
    fn a_crate_without_licence_text_or_with_another_licence_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("nowhere");
        let files: Files = &[("src/lib.rs", "")];
        let error = |licence| {
            let inventory = inventory(folder.path(), &[("a", licence, files)]);
            text(&inventory, &[], &nowhere).unwrap_err().to_string()
        };
        assert!(error("MIT").contains("without the text"), "{}", error("MIT"));
        assert!(error("GPL-3.0").contains("GPL-3.0, which is not among"), "{}", error("GPL-3.0"));
    }
}
