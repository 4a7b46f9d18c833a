//! The geometry of tiles in shared memory. [`operand`] has operands' tiles in a stage of the ring
//! for tensor cores, and [`mod@line`] has those for FFMA kernels. [`chunked`] divides the former
//! among the threads that load them if TMA cannot, and [`turned`] if threads transpose them, too.
//! [`staging`] has the staging tiles of the
//! epilogue. Specs count the bytes of tiles. Loaders, mainloops and stores compute their addresses.

pub(crate) mod chunked;
pub(crate) mod line;
pub(crate) mod operand;
pub(crate) mod staging;
pub(crate) mod turned;
