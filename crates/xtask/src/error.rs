//! What can go wrong in a task.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::elf::{ElfError, NEWEST_GLIBC};

/// An error of a task.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{program} could not be started: {source}. It is needed to make a package; install it")]
    Start { program: String, source: io::Error },
    #[error("`{command}` failed ({status}); its messages are above")]
    Failed { command: String, status: ExitStatus },
    #[error("`{command}` printed what this task does not understand: {what}")]
    Output { command: String, what: String },
    #[error("{} does not have what the package takes from it: {what}", path.display())]
    Source { path: PathBuf, what: &'static str },
    #[error("{} cannot be packaged: {source}", path.display())]
    Elf { path: PathBuf, source: ElfError },
    #[error(
        "{} holds the path {folder} of this machine, so that another machine would build other \
         bytes; map it with --remap-path-prefix in crates/xtask/src/build.rs", path.display()
    )]
    MachinePath { path: PathBuf, folder: String },
    #[error(
        "the kernels of crates/cubins/shipped.txt have to be assembled ({why}), and there is no \
         assembler: run scripts/ptxas.sh, or set PGEMM_PTXAS to the path of ptxas {version}"
    )]
    NoAssembler { why: String, version: &'static str },
    #[error(
        "the command that was built has other kernels than crates/cubins/shipped.txt lists: {why}. \
         Delete crates/cubins/data/shipped.pack and try again"
    )]
    Pack { why: String },
    #[error(
        "{package} has the licence {licence}, which is not among those that the project may ship \
         (crates/xtask/src/licences.rs); read it, then add it there or remove the dependency"
    )]
    Licence { package: String, licence: String },
    #[error("{package} comes without the text of its licence, and no text of {licence} was found")]
    LicenceText { package: String, licence: String },
    #[error(
        "maturin was expected to make one wheel for manylinux {} and made: {}", NEWEST_GLIBC,
        if wheels.is_empty() { "none" } else { wheels }
    )]
    Wheel { wheels: String },
    #[error("{} is not Rust: {source}", path.display())]
    Rust { path: PathBuf, source: syn::Error },
    #[error(
        "{} has a line that is no result of this task: {source}; remove the line, or name another \
         file with --results", path.display()
    )]
    Results { path: PathBuf, source: serde_json::Error },
    #[error("faults in the crate {name} were asked for, but only these have any: {crates}")]
    NoCrate { name: String, crates: String },
}

/// Attaches a path to errors of reading and writing.
pub trait AtPath<T> {
    /// The same result, with an error that names the path.
    fn at(self, path: &Path) -> Result<T, Error>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { path: path.to_owned(), source })
    }
}
