//! What a package is made of: the crates that are linked into its programs and libraries, and what
//! the compilers add to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::commands::{cargo, output, root, unexpected};
use crate::error::Error;
use crate::target::Target;

/// A crate: its name and its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CrateId {
    pub name: String,
    pub version: String,
}

/// What is known about a crate.
#[derive(Clone, Debug)]
pub struct CrateFacts {
    pub description: Option<String>,
    /// The licence as an SPDX expression.
    pub licence: Option<String>,
    /// The checksum of its package in the registry. Crates of this repository have none.
    pub sha256: Option<String>,
    /// The folder of its sources.
    pub folder: PathBuf,
}

/// A file of the package that is built by cargo: its name, and the crate that it is.
pub struct Artifact {
    pub name: &'static str,
    pub package: &'static str,
    features: &'static [&'static str],
}

/// All files that are built by cargo.
pub const ARTIFACTS: [Artifact; 3] = [
    Artifact { name: "bin/pgemm", package: "pgemm", features: &[] },
    Artifact {
        name: "lib/libpersistent_gemm",
        package: "persistent-gemm-c",
        features: &["--features", "tuner"],
    },
    Artifact {
        name: "the wheel persistent_gemm",
        package: "persistent-gemm-python",
        features: &[],
    },
];

/// The crates that are linked into the artifacts. Crates that only build scripts and macros use are
/// not among them.
pub struct Inventory {
    pub crates: BTreeMap<CrateId, CrateFacts>,
    /// Which crates each crate uses.
    pub uses: BTreeMap<CrateId, BTreeSet<CrateId>>,
}

impl Inventory {
    /// Asks cargo.
    ///
    /// # Errors
    /// Cargo fails, or prints something unexpected.
    pub fn of(target: Target) -> Result<Inventory, Error> {
        let mut uses = BTreeMap::new();
        for artifact in &ARTIFACTS {
            let mut command = cargo();
            command
                .current_dir(root())
                .args(["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "depth"])
                .args(["--format", " {p}", "--target", &target.triple()])
                .args(["--package", artifact.package])
                .args(artifact.features);
            let tree = output(&mut command)?;
            add_tree(&tree, &mut uses).map_err(|line| unexpected(&command, line))?;
        }
        let all = metadata()?;
        let mut crates = BTreeMap::new();
        for id in uses.keys() {
            let facts = all.get(id).cloned().ok_or_else(|| Error::Output {
                command: "cargo metadata".to_owned(),
                what: format!("no package {} {}", id.name, id.version),
            })?;
            crates.insert(id.clone(), facts);
        }
        Ok(Inventory { crates, uses })
    }

    /// The crate of an artifact, which is of this repository.
    pub fn artifact(&self, artifact: &Artifact) -> Option<&CrateId> {
        self.crates.keys().find(|id| id.name == artifact.package)
    }
}

/// Adds the edges of a tree as `cargo tree --prefix depth` prints it: each line has the depth, the
/// name and the version of a crate. The children of a crate that occurs again are left out.
///
/// # Errors
/// The first line that is not of this form.
fn add_tree(tree: &str, uses: &mut BTreeMap<CrateId, BTreeSet<CrateId>>) -> Result<(), String> {
    let mut path: Vec<CrateId> = Vec::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        let depth: Option<usize> = words.next().and_then(|depth| depth.parse().ok());
        let name = words.next();
        let version = words.next().and_then(|version| version.strip_prefix('v'));
        let (Some(depth), Some(name), Some(version)) = (depth, name, version) else {
            return Err(line.to_owned());
        };
        if depth > path.len() {
            return Err(line.to_owned());
        }
        path.truncate(depth);
        let id = CrateId { name: name.to_owned(), version: version.to_owned() };
        if let Some(parent) = path.last() {
            uses.entry(parent.clone()).or_default().insert(id.clone());
        }
        uses.entry(id.clone()).or_default();
        path.push(id);
    }
    Ok(())
}

/// The facts of all packages that the lock file names.
fn metadata() -> Result<BTreeMap<CrateId, CrateFacts>, Error> {
    let mut command = cargo();
    command.current_dir(root()).args(["metadata", "--locked", "--format-version", "1"]);
    let text = output(&mut command)?;
    let metadata: Value =
        serde_json::from_str(&text).map_err(|error| unexpected(&command, error.to_string()))?;
    let lock = root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock)
        .map_err(|source| Error::Io { path: lock.clone(), source })?;
    let checksums = checksums(&lock);

    let packages = metadata["packages"].as_array();
    let packages = packages.ok_or_else(|| unexpected(&command, "no list of packages"))?;
    let mut all = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        let (Some(name), Some(version), Some(manifest)) =
            (text("name"), text("version"), text("manifest_path"))
        else {
            return Err(unexpected(&command, "a package without a name, a version or a path"));
        };
        let id = CrateId { name, version };
        let facts = CrateFacts {
            description: text("description"),
            licence: text("license"),
            sha256: checksums.get(&id).cloned(),
            folder: Path::new(&manifest).parent().map_or_else(PathBuf::new, Path::to_owned),
        };
        all.insert(id, facts);
    }
    Ok(all)
}

/// The checksums in `Cargo.lock`, whose packages are blocks of lines such as `name = "serde"`.
fn checksums(lock: &str) -> BTreeMap<CrateId, String> {
    lock.split("[[package]]")
        .filter_map(|block| {
            let value = |key: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(key))?;
                Some(line.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned())
            };
            let id = CrateId { name: value("name")?, version: value("version")? };
            Some((id, value("checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> CrateId {
        CrateId { name: name.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn a_tree_gives_the_edges_also_of_crates_that_occur_again() {
        let tree = "0 top v0.1.0 (/home/crates/top)\n\
                    1 left v1.0.0\n\
                    2 low v2.0.0\n\
                    1 right v1.5.0\n\
                    2 left v1.0.0 (*)\n";
        let mut uses = BTreeMap::new();
        add_tree(tree, &mut uses).unwrap();
        let (left, right, low) = (id("left", "1.0.0"), id("right", "1.5.0"), id("low", "2.0.0"));
        assert_eq!(uses[&id("top", "0.1.0")], BTreeSet::from([left.clone(), right.clone()]));
        assert_eq!(uses[&right], BTreeSet::from([left.clone()]));
        assert_eq!(uses[&left], BTreeSet::from([low.clone()]));
        assert!(uses[&low].is_empty());
    }

    #[test]
    fn lines_that_are_no_crate_of_the_tree_are_refused() {
        for tree in ["0 top", "warning: something", "0 top v1.0.0\n2 deep v1.0.0\n"] {
            let line = add_tree(tree, &mut BTreeMap::new()).unwrap_err();
            assert_eq!(line, tree.lines().last().unwrap());
        }
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"b\"\nversion = \"2.0.0\"\nchecksum = \"0f\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([(id("b", "2.0.0"), "0f".to_owned())]));
    }
}
