//! Passes over a verified kernel. PTX and the emulator both consume what [`optimise`] returns.
//!
//! Passes keep the source location of every instruction they keep, and never move, duplicate or drop an operation that
//! has an effect.

mod legalise;

pub use legalise::legalise;

use crate::{Kernel, VerifyError, verify};

/// Why a kernel could not be optimised.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PassError {
    /// The kernel breaks the language's rules as it is written.
    #[error(transparent)]
    Invalid(#[from] VerifyError),
    /// A pass made an invalid kernel out of a valid one.
    #[error("a pass broke a valid kernel; please report it with the kernel's text form: {0}")]
    Broken(VerifyError),
}

/// Brings a kernel into the form that both backends consume: verified, folded, legalised, verified again.
///
/// # Errors
/// [`PassError::Invalid`] with every rule that the kernel breaks.
pub fn optimise(mut kernel: Kernel) -> Result<Kernel, PassError> {
    verify(&kernel)?;
    legalise(&mut kernel);
    verify(&kernel).map_err(PassError::Broken)?;
    Ok(kernel)
}
