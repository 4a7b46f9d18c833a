//! The offline assembler, for tests and `pgemm kernel check`. Running kernels needs only the
//! driver.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{ResourceReport, cubin};

/// The environment variable with the path of the assembler.
pub const VARIABLE: &str = "PGEMM_PTXAS";

/// A kernel that was not assembled.
#[derive(Debug, thiserror::Error)]
pub enum PtxasError {
    /// There is no assembler.
    #[error(
        "no ptxas: set PGEMM_PTXAS to a ptxas binary, such as one that scripts/ptxas.sh installs, or \
         put one on PATH (CUDA 12.3 or newer)"
    )]
    NotFound,
    /// `PGEMM_PTXAS` names no file.
    #[error("PGEMM_PTXAS is {path}, which is not a file: set it to a ptxas binary or unset it")]
    NotAFile {
        /// Value of the variable.
        path: PathBuf,
    },
    /// A file could not be written, or the program could not be started.
    #[error("cannot run {path}")]
    Io {
        /// The assembler.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The assembler refused the text.
    #[error("{path} refused the kernel:\n{log}")]
    Refused {
        /// The assembler.
        path: PathBuf,
        /// Its log.
        log: String,
    },
    /// The assembler succeeded without a report on a kernel.
    #[error("{path} reported on no kernel: does the text have an entry? Its log:\n{log}")]
    NoReport {
        /// The assembler.
        path: PathBuf,
        /// Its log.
        log: String,
    },
}

/// An installed assembler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    path: PathBuf,
}

impl Ptxas {
    /// The assembler at a path.
    pub fn at(path: impl Into<PathBuf>) -> Ptxas {
        Ptxas { path: path.into() }
    }

    /// The assembler to use: `PGEMM_PTXAS`, else the first on `PATH`. Entries of `PATH` that are
    /// relative to the current folder are left out, because others may be able to write there.
    ///
    /// # Errors
    /// [`PtxasError::NotFound`] if there is none, [`PtxasError::NotAFile`] if `PGEMM_PTXAS` is
    /// wrong.
    pub fn find() -> Result<Ptxas, PtxasError> {
        if let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) {
            return if path.is_file() {
                Ok(Ptxas { path })
            } else {
                Err(PtxasError::NotAFile { path })
            };
        }
        let path = env::var_os("PATH").unwrap_or_default();
        on_path(&path).map(Ptxas::at).ok_or(PtxasError::NotFound)
    }

    /// The assemblers that `scripts/ptxas.sh` has installed into a folder as
    /// `ptxas-<version>/ptxas`, oldest version first.
    pub fn installed_in(tools: &Path) -> Vec<Ptxas> {
        let Ok(entries) = fs::read_dir(tools) else { return Vec::new() };
        let mut found: Vec<(Vec<u32>, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                let version = name.to_str()?.strip_prefix("ptxas-")?;
                let version = version.split('.').map(|part| part.parse().unwrap_or(0)).collect();
                let path = entry.path().join("ptxas");
                path.is_file().then_some((version, path))
            })
            .collect();
        found.sort();
        found.into_iter().map(|(_, path)| Ptxas { path }).collect()
    }

    /// The path of the binary.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version, such as `12.9.86`.
    ///
    /// # Errors
    /// [`PtxasError::Io`] if it cannot be run, [`PtxasError::Refused`] if it does not say.
    pub fn version(&self) -> Result<String, PtxasError> {
        let io = |source| PtxasError::Io { path: self.path.clone(), source };
        let output = Command::new(&self.path).arg("--version").output().map_err(io)?;
        let log = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = log.split(", V").nth(1).and_then(|rest| rest.split_whitespace().next());
        let Some(version) = version else {
            return Err(PtxasError::Refused { path: self.path.clone(), log });
        };
        Ok(version.to_owned())
    }

    /// Assembles PTX for `sm_90a` and reports what it costs. The code itself is discarded.
    ///
    /// # Errors
    /// [`PtxasError::Refused`] with the assembler's log if the text is wrong or registers cannot
    /// suffice.
    pub fn assemble(&self, ptx: &str) -> Result<ResourceReport, PtxasError> {
        Ok(self.cubin(ptx)?.1)
    }

    /// Assembles PTX for `sm_90a` to a cubin, and reports what it costs.
    ///
    /// # Errors
    /// The same as for [`assemble`](Self::assemble).
    pub fn cubin(&self, ptx: &str) -> Result<(Vec<u8>, ResourceReport), PtxasError> {
        let io = |source| PtxasError::Io { path: self.path.clone(), source };
        let folder = tempfile::tempdir().map_err(io)?;
        let source = folder.path().join("kernel.ptx");
        fs::write(&source, ptx).map_err(io)?;
        let output = Command::new(&self.path)
            .args(["-arch=sm_90a", "-v", "--warn-on-spills", "-o"])
            .arg(folder.path().join("kernel.cubin"))
            .arg(&source)
            .output()
            .map_err(io)?;
        let mut log = String::from_utf8_lossy(&output.stdout).into_owned();
        log.push_str(&String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(PtxasError::Refused { path: self.path.clone(), log });
        }
        let code = fs::read(folder.path().join("kernel.cubin")).map_err(io)?;
        let report = ResourceReport {
            moves_to_uniform: cubin::moves_to_uniform(&code),
            ..ResourceReport::parse(&log)
        };
        match report.registers {
            Some(_) => Ok((code, report)),
            None => Err(PtxasError::NoReport { path: self.path.clone(), log }),
        }
    }
}

/// The first `ptxas` in the absolute folders of a search path.
fn on_path(path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("ptxas"))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_number() {
        let tools = tempfile::tempdir().unwrap();
        for version in ["13.0", "9.2", "12.4"] {
            let folder = tools.path().join(format!("ptxas-{version}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("ptxas"), "").unwrap();
        }
        fs::create_dir(tools.path().join("ptxas-14.0")).unwrap();
        let found: Vec<String> = Ptxas::installed_in(tools.path())
            .iter()
            .map(|ptxas| ptxas.path.parent().unwrap().file_name().unwrap().to_string_lossy().into())
            .collect();
        assert_eq!(found, ["ptxas-9.2", "ptxas-12.4", "ptxas-13.0"]);
    }

    #[test]
    fn relative_folders_of_the_search_path_are_left_out() {
        let tools = tempfile::tempdir().unwrap();
        let there = tools.path().join("ptxas");
        fs::write(&there, "").unwrap();
        let here = env::current_dir().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let relative = up.join(tools.path().strip_prefix("/").unwrap());
        assert!(relative.join("ptxas").is_file());
        assert_eq!(on_path(relative.as_os_str()), None);
        let both = env::join_paths([relative.as_path(), Path::new(""), tools.path()]).unwrap();
        assert_eq!(on_path(&both), Some(there));
    }

    #[test]
    fn a_missing_assembler_is_an_error() {
        let error = Ptxas::at("/nonexistent/ptxas").assemble("").unwrap_err();
        assert!(matches!(error, PtxasError::Io { .. }), "{error}");
    }
}
