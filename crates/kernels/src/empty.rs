//! A kernel that does nothing: what a launch costs beside its work.

use pgemm_ir::{Kernel, KernelBuilder, Occupancy};

use crate::probe::ProbeError;

/// Registers of each thread, the fewest that a role can be given.
const REGISTERS: u32 = 24;

/// One warpgroup without parameters, verified and legalised.
///
/// # Errors
/// [`ProbeError::Build`] or [`ProbeError::Passes`] where the language does not take it.
pub fn empty_kernel() -> Result<Kernel, ProbeError> {
    let builder = KernelBuilder::new("empty", 1);
    builder.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("nothing", 1, REGISTERS, |_| ());
    });
    let kernel = builder.finish().map_err(|error| ProbeError::Build(Box::new(error)))?;
    pgemm_ir::optimise(kernel).map_err(|error| ProbeError::Passes(Box::new(error)))
}
