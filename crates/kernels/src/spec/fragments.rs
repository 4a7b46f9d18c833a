//! The fragments of an A that wgmma reads from registers. Consumers load the fragments of one part
//! of a stage while the MMAs of the previous part run.

use super::Spec;

/// Depth of an MMA on tf32. All operands that wgmma reads from registers here are tf32.
pub(crate) const FRAGMENT_DEPTH: u32 = 8;

/// Parts of a stage whose fragments are loaded one after the other.
pub(crate) const FRAGMENT_PARTS: usize = 2;

/// Registers per thread of a fragment of 64 rows, which has 4 elements per thread.
const FRAGMENT_REGISTERS: u32 = 4;

impl Spec {
    /// Registers per thread that hold fragments of A. Those of one part are written while the MMAs
    /// of the other part read theirs.
    pub(super) fn fragment_registers(&self) -> u32 {
        FRAGMENT_REGISTERS * self.blocks() * self.tile.k / FRAGMENT_DEPTH
    }
}
