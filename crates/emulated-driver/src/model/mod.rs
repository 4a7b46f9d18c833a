//! What the driver has: its memory, kernels, streams and graphs, without its interface.

pub(crate) mod host;
pub(crate) mod kernels;
pub(crate) mod launch;
pub(crate) mod maps;
pub(crate) mod memory;
pub(crate) mod product;
pub(crate) mod streams;
pub(crate) mod work;

/// The name of the device.
pub const NAME: &str = "Emulated Hopper";
/// SMs of the device: enough for the largest cluster, and few, so that CTAs compute several tiles.
pub(crate) const SMS: u32 = 8;
