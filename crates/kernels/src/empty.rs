//! An empty kernel. It measures the cost of a launch without any work.

use pgemm_ir::{Kernel, KernelBuilder, Occupancy};

use crate::probe::ProbeError;

/// Registers of each thread. This is the smallest number that a role can have.
const REGISTERS: u32 = 24;

/// A kernel of one warpgroup without parameters, verified and legalised.
///
/// # Errors
/// [`ProbeError::Build`] or [`ProbeError::Passes`] if the language refuses it.
pub fn empty_kernel() -> Result<Kernel, ProbeError> {
    let builder = KernelBuilder::new("empty", 1);
    builder.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("nothing", 1, REGISTERS, |_| ());
    });
    let kernel = builder.finish().map_err(|error| ProbeError::Build(Box::new(error)))?;
    pgemm_ir::optimise(kernel).map_err(|error| ProbeError::Passes(Box::new(error)))
}
