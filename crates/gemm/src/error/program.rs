//! Errors of kernels that a program brings itself.

use std::path::PathBuf;

use pgemm_ir::BuildError;
use pgemm_ir::text::ParseError;

use super::TensorMapError;

/// What is wrong with a kernel of one's own, or with the arguments of its launch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The builder could not finish the kernel.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A layout that a kernel needs does not exist.
    #[error(transparent)]
    Layout(#[from] pgemm_cute::CuteError),
    /// The kernel breaks rules of the language.
    #[error(transparent)]
    Rules(#[from] pgemm_ir::PassError),
    /// The parts of a kernel are not possible, or the work of its launch.
    #[error(transparent)]
    Parts(Box<pgemm_kernels::parts::PartsError>),
    /// The text is not a kernel.
    #[error("the text is not a kernel: {0}")]
    Text(#[from] ParseError),
    /// The text is too long to be a kernel.
    #[error("the text has {bytes} bytes, and that of a kernel may have {most}: give another file")]
    TooLong {
        /// Bytes of the text.
        bytes: usize,
        /// The most that are read.
        most: usize,
    },
    /// A file that is no text.
    #[error(
        "line {line} is not UTF-8: give a kernel in its text form, as `Program::save` and \
         `pgemm kernel show` write it"
    )]
    NotUtf8 {
        /// The line, from 1.
        line: usize,
    },
    /// A file that holds no kernel that can be used.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ProgramError>,
    },
    /// The kernel has no parameter of this name.
    #[error("kernel '{kernel}' has no parameter '{name}': its parameters are {parameters}")]
    NoParameter {
        /// Name of the kernel.
        kernel: String,
        /// The name that was given.
        name: String,
        /// The parameters that it has, with their types.
        parameters: String,
    },
    /// An argument has another type than its parameter.
    #[error("parameter '{name}' of kernel '{kernel}' is {expected}, and the argument is {found}")]
    ArgumentType {
        /// Name of the kernel.
        kernel: String,
        /// Name of the parameter.
        name: String,
        /// The type of the parameter.
        expected: &'static str,
        /// The type of the argument.
        found: &'static str,
    },
    /// A tensor map that the hardware does not accept.
    #[error("parameter '{name}' of kernel '{kernel}': {source}")]
    TensorMap {
        /// Name of the kernel.
        kernel: String,
        /// Name of the parameter.
        name: String,
        /// The rule that it breaks.
        source: TensorMapError,
    },
    /// Parameters without an argument.
    #[error("kernel '{kernel}' is launched without {missing}: give every parameter a value")]
    MissingArguments {
        /// Name of the kernel.
        kernel: String,
        /// The parameters that have no argument.
        missing: String,
    },
    /// Arguments that were bound for another kernel.
    #[error(
        "the arguments belong to kernel '{bound}', and kernel '{kernel}' is launched: bind the \
         arguments that the kernel itself gives"
    )]
    ForeignArguments {
        /// Name of the kernel.
        kernel: String,
        /// The kernel that the arguments were bound for.
        bound: String,
    },
    /// The host read memory of the emulator that a kernel should have written, or that is not
    /// there.
    #[cfg(feature = "emulator")]
    #[error(transparent)]
    Memory(#[from] pgemm_emulator::MemoryError),
}
