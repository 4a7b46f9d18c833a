//! Passes over a verified kernel. PTX and the emulator both consume what [`optimise`] returns.
//!
//! Passes keep the source location of every instruction they keep, and never move, duplicate or drop an operation that
//! has an effect.

mod cse;
mod dce;
mod fold;
mod legalise;

pub use cse::cse;
pub use dce::{dce, renumber};
pub use fold::fold;
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

/// Brings a kernel into the form that both backends consume: verify, [`fold`], [`cse`], [`dce`], [`legalise`], verify.
/// Values are numbered in program order in the end.
///
/// # Errors
/// [`PassError::Invalid`] with every rule that the kernel breaks.
pub fn optimise(mut kernel: Kernel) -> Result<Kernel, PassError> {
    verify(&kernel)?;
    fold(&mut kernel);
    cse(&mut kernel);
    dce(&mut kernel);
    legalise(&mut kernel);
    // Legalisation leaves constants without use, makes equal ones and predicates of constants.
    fold(&mut kernel);
    cse(&mut kernel);
    dce(&mut kernel);
    renumber(&mut kernel);
    verify(&kernel).map_err(PassError::Broken)?;
    Ok(kernel)
}

#[cfg(test)]
mod tests;
