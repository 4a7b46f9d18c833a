//! Sizes of warps and warpgroups.

/// Threads of a warp.
pub(crate) const LANES: usize = 32;
/// Warps of a warpgroup.
pub(crate) const WARPGROUP_WARPS: usize = 4;
/// All lanes.
pub(crate) const FULL: u32 = u32::MAX;
