//! The fragments of an A that wgmma reads from registers. Consumers load the fragments of one part
//! of a stage while the MMAs of the previous part run.

use super::Spec;

/// Depth of an MMA on tf32. All operands that wgmma reads from registers here are tf32.
pub(crate) const FRAGMENT_DEPTH: u32 = 8;

/// Registers per thread of a fragment of 64 rows, which has 4 elements per thread.
const FRAGMENT_REGISTERS: u32 = 4;

impl Spec {
    /// Number of parts of a stage, at least two. The registers of one part are written while the
    /// MMAs of the previous part read theirs.
    pub(crate) fn fragment_parts(&self) -> u32 {
        // MMAs of each block of 64 rows in a part. There are enough that they take longer than the
        // loads of the next part's fragments.
        let steps = if self.blocks() == 1 && self.tile.n <= 64 { 4 } else { 2 };
        (self.tile.k / FRAGMENT_DEPTH / steps).max(2)
    }

    /// Registers per thread that hold fragments of A. They hold two parts.
    pub(super) fn fragment_registers(&self) -> u32 {
        let steps = self.tile.k / FRAGMENT_DEPTH / self.fragment_parts();
        2 * FRAGMENT_REGISTERS * self.blocks() * steps
    }
}
