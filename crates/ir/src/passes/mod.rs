//! Passes over a verified kernel. PTX and the emulator both consume what [`optimise`] returns.
//!
//! Passes keep the source location of every instruction that they keep. They never move, duplicate
//! or drop an operation that has an effect.

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
    /// The kernel breaks the rules of the language.
    #[error(transparent)]
    Invalid(#[from] VerifyError),
    /// A pass turned a valid kernel into an invalid one.
    #[error("a pass broke a valid kernel; please report it with the kernel's text form: {0}")]
    Broken(VerifyError),
}

/// Brings a kernel into the form that both back ends consume: verify, [`fold`], [`cse`], [`dce`],
/// [`legalise`], the first three passes again, verify. Values are numbered in program order.
///
/// # Errors
/// [`PassError::Invalid`] with every rule that the kernel breaks.
pub fn optimise(mut kernel: Kernel) -> Result<Kernel, PassError> {
    verify(&kernel)?;
    fold(&mut kernel);
    cse(&mut kernel);
    dce(&mut kernel);
    legalise(&mut kernel);
    // Legalisation leaves unused and equal constants, and predicates of constants.
    fold(&mut kernel);
    cse(&mut kernel);
    dce(&mut kernel);
    renumber(&mut kernel);
    verify(&kernel).map_err(PassError::Broken)?;
    Ok(kernel)
}

#[cfg(test)]
mod tests;
