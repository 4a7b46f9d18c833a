//! Passes over a verified kernel. PTX and the emulator both consume what [`optimise`] returns.
//!
//! Passes keep the source location of every instruction they keep, and never move, duplicate or drop an operation that
//! has an effect.

mod legalise;

pub use legalise::legalise;

use crate::Kernel;

/// Why a kernel could not be optimised.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PassError {}

/// Brings a kernel into the form that both backends consume.
pub fn optimise(mut kernel: Kernel) -> Result<Kernel, PassError> {
    legalise(&mut kernel);
    Ok(kernel)
}
