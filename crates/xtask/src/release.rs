//! What is released: the version, and the commit and compiler that it is made of.

use std::env;
use std::process::Command;

use crate::commands::{cargo, output, root, unexpected};
use crate::error::Error;
use crate::target::Target;

/// What is released.
pub struct Release {
    /// The version of the workspace.
    pub version: String,
    /// The commit of the sources.
    pub commit: String,
    /// The time that all files have, in seconds since 1970: that of the commit, unless
    /// SOURCE_DATE_EPOCH has another.
    pub seconds: u64,
    /// The version of Rust.
    pub rust: String,
}

impl Release {
    /// Asks cargo, git and rustc.
    ///
    /// # Errors
    /// One of them fails, or prints something unexpected.
    pub fn find() -> Result<Release, Error> {
        let mut command = cargo();
        command.current_dir(root()).args(["pkgid", "--package", "pgemm"]);
        let id = output(&mut command)?;
        let version = id.trim().rsplit(['#', '@']).next().unwrap_or_default().to_owned();

        let git = |args: &[&str]| output(Command::new("git").current_dir(root()).args(args));
        let mut commit = git(&["rev-parse", "HEAD"])?.trim().to_owned();
        if !git(&["status", "--porcelain"])?.is_empty() {
            println!(
                "some files are not as in the commit {commit}; the package has them as they are"
            );
            commit += " with changes";
        }
        let seconds = match env::var("SOURCE_DATE_EPOCH") {
            Ok(seconds) => seconds,
            Err(_) => git(&["log", "-1", "--format=%ct"])?,
        };
        let seconds = seconds
            .trim()
            .parse()
            .map_err(|_| unexpected(&command, format!("the time {seconds}, not in seconds")))?;
        Ok(Release { version, commit, seconds, rust: rust_version()? })
    }

    /// The name of the package for a machine, without its ending.
    pub fn name(&self, target: Target) -> String {
        format!("persistent_dense_gemm_hopper-linux-{}", target.machine())
    }

    /// The part of the version that must be the same for programs to go on working: versions 0.y.z
    /// with the same y are binary compatible.
    pub fn soversion(&self) -> String {
        self.version.rsplit_once('.').map_or(self.version.clone(), |(minor, _)| minor.to_owned())
    }

    /// The name by which the dynamic loader finds the shared library.
    pub fn soname(&self) -> String {
        format!("libpersistent_gemm.so.{}", self.soversion())
    }

    /// A release for tests.
    #[cfg(test)]
    pub fn example() -> Release {
        let text = |text: &str| text.to_owned();
        Release { version: text("1.2.3"), commit: text("c0ffee"), seconds: 7, rust: text("1.95.0") }
    }
}

/// The version of the compiler.
fn rust_version() -> Result<String, Error> {
    let mut command = Command::new("rustc");
    let text = output(command.arg("--version"))?;
    let version = text.split_whitespace().nth(1);
    version.map(str::to_owned).ok_or_else(|| unexpected(&command, text.clone()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_name_of_the_library_has_the_compatible_part_of_the_version() {
        let release = Release::example();
        assert_eq!(release.soname(), "libpersistent_gemm.so.1.2");
        assert_eq!(release.name(Target::X86_64), "persistent_dense_gemm_hopper-linux-x86_64");
        assert_eq!(release.name(Target::Aarch64), "persistent_dense_gemm_hopper-linux-aarch64");
    }

    #[test]
    fn a_release_has_the_version_of_the_workspace() {
        assert_eq!(Release::find().unwrap().version, env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn no_manifest_names_an_address() {
        // The project has no public repository and no site yet, and a package must not name one.
        let root = root();
        let crates = fs::read_dir(root.join("crates")).unwrap();
        let mut manifests: Vec<_> =
            crates.map(|entry| entry.unwrap().path().join("Cargo.toml")).collect();
        manifests.extend(
            ["Cargo.toml", "book.toml", "crates/python/pyproject.toml"].map(|name| root.join(name)),
        );
        assert!(manifests.len() > 10, "{manifests:?}");
        for manifest in manifests {
            let text = fs::read_to_string(&manifest).unwrap();
            let keys =
                ["repository", "git-repository", "homepage", "documentation", "[project.urls]"];
            let names_one = |line: &&str| {
                line.contains("://") || keys.iter().any(|key| line.trim_start().starts_with(key))
            };
            assert_eq!(text.lines().find(names_one), None, "{}", manifest.display());
        }
    }
}
