//! Tiles in shared memory, as pure geometry: the operands' tiles in a stage of the ring
//! ([`operand`] for tensor cores, [`line`] for FFMA kernels) and the staging tiles of the epilogue
//! ([`staging`]). Specs count their bytes; loaders, mainloops and stores compute their addresses.

pub(crate) mod line;
pub(crate) mod operand;
pub(crate) mod staging;
