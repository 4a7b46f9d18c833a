//! The kernel of a command: one of the library's by its name, or one in a file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use persistent_gemm::program::Program;
use pgemm_ir::Kernel;
use pgemm_kernels::{GemmKernel, Spec};

use crate::Failure;

/// What names a kernel.
#[derive(Clone, Debug)]
pub enum Source {
    /// A kernel of the library.
    Spec(Spec),
    /// A file with a kernel in its text form.
    File(PathBuf),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        let path = PathBuf::from(text);
        match text.parse() {
            Ok(spec) => Ok(Source::Spec(spec)),
            Err(_) if path.exists() => Ok(Source::File(path)),
            Err(error) => Err(format!("there is no file '{text}', and {error}")),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Spec(spec) => spec.fmt(f),
            Source::File(path) => path.display().fmt(f),
        }
    }
}

impl Source {
    /// The kernel after all passes.
    pub fn kernel(&self) -> Result<Kernel, Failure> {
        match self {
            Source::Spec(spec) => Ok(GemmKernel::build(spec)?.kernel),
            Source::File(path) => Ok(Program::load_file(path)?.kernel().clone()),
        }
    }

    /// The kernel's spec.
    ///
    /// # Errors
    /// It is in a file, and `what` needs a kernel of the library.
    pub fn spec(&self, what: &str) -> Result<&Spec, Failure> {
        match self {
            Source::Spec(spec) => Ok(spec),
            Source::File(path) => {
                let path = path.display();
                Err(format!(
                    "{what} is for kernels of the library, and {path} is a file: 'pgemm kernel \
                     explain {path}' describes its kernel"
                )
                .into())
            }
        }
    }
}
