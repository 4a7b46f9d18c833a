//! The tools that make a package. They come from the Python package index, with exact versions,
//! because the bytes of a package depend on them: zig as the C compiler and linker for an older
//! glibc, cargo-zigbuild and maturin, which build Rust with it, and twine, which checks the wheel.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::run;
use crate::error::{AtPath, Error};

/// The version of zig, which is also that of the libc++ and the libunwind that programs are linked
/// with.
pub const ZIG: &str = "0.13.0";

const REQUIREMENTS: [&str; 4] =
    ["ziglang==0.13.0", "cargo-zigbuild==0.24.1", "maturin==1.16.0", "twine==7.0.0"];

/// An environment of Python that holds the tools.
pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// The tools in `.tools/dist` of the repository, which git ignores. They are installed unless
    /// these versions are there; that takes a network.
    ///
    /// # Errors
    /// Python 3 with venv is missing, or pip cannot install the tools.
    pub fn find(root: &Path) -> Result<Tools, Error> {
        let tools = Tools { folder: root.join(".tools/dist") };
        let stamp = tools.folder.join("requirements.txt");
        let requirements = REQUIREMENTS.join("\n");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == requirements) {
            return Ok(tools);
        }
        println!("installing {} into {}", REQUIREMENTS.join(", "), tools.folder.display());
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&tools.folder))?;
        run(tools
            .python()
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(REQUIREMENTS))?;
        fs::write(&stamp, requirements).at(&stamp)?;
        Ok(tools)
    }

    /// One of the tools.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.folder.join("bin").join(name));
        command.env("PATH", self.path()).env("VIRTUAL_ENV", &self.folder);
        command
    }

    /// The Python of the environment.
    pub fn python(&self) -> Command {
        self.command("python")
    }

    /// Zig.
    pub fn zig(&self) -> Command {
        let mut command = self.python();
        command.args(["-m", "ziglang"]);
        command
    }

    /// The folder of zig's package, which has its licences.
    ///
    /// # Errors
    /// The environment has no such package.
    pub fn zig_folder(&self) -> Result<PathBuf, Error> {
        let library = self.folder.join("lib");
        for entry in fs::read_dir(&library).at(&library)? {
            let folder = entry.at(&library)?.path().join("site-packages/ziglang");
            if folder.is_dir() {
                return Ok(folder);
            }
        }
        Err(Error::Source { path: library, what: "the package ziglang" })
    }

    /// The search path of programs, with the tools before others.
    fn path(&self) -> OsString {
        let mut path = self.folder.join("bin").into_os_string();
        if let Some(others) = env::var_os("PATH") {
            path.push(":");
            path.push(others);
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_zig_is_the_one_that_is_installed() {
        assert!(REQUIREMENTS.contains(&format!("ziglang=={ZIG}").as_str()));
    }
}
