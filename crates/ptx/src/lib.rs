//! Lowers kernel IR to PTX text for `sm_90a`, and assembles it with `ptxas` to learn what it costs.
//!
//! [`emit`] takes a kernel after `pgemm_ir`'s passes: `Op::Roles` is already `If` and
//! `SetMaxRegisters`. The same kernel gives the same text, byte for byte, with registers and labels
//! numbered in program order. Kernels are expected to have passed the verifier. For others the
//! result is an error or a text that `ptxas` refuses, never a panic.

mod barrier;
mod collective;
mod control;
mod cubin;
mod custom;
mod element;
mod emitter;
mod entry;
mod error;
mod first_use;
mod memory;
mod operand;
mod placement;
pub mod ptxas;
mod report;
mod tensor_core;
mod text;
mod tma;
mod values;
mod warp_mma;

use pgemm_ir::Kernel;

pub use error::EmitError;
pub use report::ResourceReport;

/// A hash of the sources of this crate, tests apart. Kernels that were assembled in advance carry
/// it, and are not used if it differs.
pub const SOURCES: &str = env!("PGEMM_SOURCES");

/// The PTX of a kernel in its canonical form, without comments, so that hashes and snapshots stay
/// stable.
///
/// # Errors
/// See [`EmitError`]: roles that are not lowered, and attributes outside of what the hardware has.
pub fn emit(kernel: &Kernel) -> Result<String, EmitError> {
    entry::module(kernel, false)
}

/// The same code as [`emit`] with `// file:line (scopes)` above the instructions of each source
/// line.
///
/// # Errors
/// The same as those of [`emit`].
pub fn emit_annotated(kernel: &Kernel) -> Result<String, EmitError> {
    entry::module(kernel, true)
}
