//! The output of a kernel of parts: what an author does with the sums of each tile.

use pgemm_ir::{Carried, KernelBuilder, Val, ty};

use crate::compute::ConvertsTo;
use crate::mainloop::wgmma::Sums;

/// What becomes of the sums of a kernel. Its functions write code for the consumer warpgroups. All
/// threads of a warpgroup run it, so that warps and warpgroups may work together in it.
pub trait Output<'k> {
    /// What is computed or loaded for a tile before its mainloop.
    type Prepared;
    /// What a warpgroup carries from one tile to its next. `()` if that is nothing.
    type State: Carried<'k> + Copy;

    /// Initialises barriers. One thread runs it, before all others begin.
    fn init(&self) {}

    /// The state of a warpgroup before its first tile.
    fn start(&self) -> Self::State;

    /// Runs before the mainloop of a tile, while its first operands are loaded. What it keeps takes
    /// registers during the mainloop.
    fn prepare(&self, tile: &OutputTile<'k>) -> Self::Prepared;

    /// Runs after the mainloop of a tile, with its sums. In a ping-pong kernel, the other warpgroup
    /// multiplies meanwhile.
    fn finish(
        &self,
        tile: &OutputTile<'k>,
        sums: &TileSums<'_, 'k>,
        prepared: Self::Prepared,
        state: Self::State,
    ) -> Self::State;

    /// Runs after the last tile of a warpgroup, before the kernel ends.
    fn drain(&self) {}
}

/// A warpgroup's part of a tile of the product.
#[derive(Clone, Copy)]
pub struct OutputTile<'k> {
    /// First row of the part.
    pub row: Val<'k, ty::U32>,
    /// First column of the part.
    pub column: Val<'k, ty::U32>,
    /// The index of the product in the batch.
    pub batch: Val<'k, ty::U32>,
    /// The index of the consumer warpgroup in the CTA.
    pub warpgroup: Val<'k, ty::U32>,
    /// The index of the thread in the warpgroup.
    pub thread: Val<'k, ty::U32>,
    /// Row and column of the thread's first sum in a block.
    pub(super) first: [Val<'k, ty::U32>; 2],
    pub(super) second_row: u32,
}

impl<'k> OutputTile<'k> {
    /// The two rows of the thread's quads in a block of 64 rows. They may lie beyond the last row
    /// of the product.
    pub fn rows(&self, block: u32) -> [Val<'k, ty::U32>; 2] {
        [0, self.second_row].map(|below| self.row + self.first[0] + (block * 64 + below))
    }

    /// The two columns of the thread's quads in a group of 8 columns. They may lie beyond the last
    /// column of the product.
    pub fn columns(&self, group: u32) -> [Val<'k, ty::U32>; 2] {
        [0, 1].map(|beside| self.column + self.first[1] + (group * 8 + beside))
    }
}

/// The sums of either type.
#[derive(Clone, Copy)]
pub(super) enum AnySums<'t, 'k> {
    Floats(&'t Sums<'k, ty::F32>),
    Integers(&'t Sums<'k, ty::S32>),
}

/// The sums that a thread has of its warpgroup's part of a tile. Beyond the edges of the product
/// they are sums of zeros.
pub struct TileSums<'t, 'k> {
    pub(super) b: &'k KernelBuilder,
    pub(super) sums: AnySums<'t, 'k>,
    pub(super) sets: u32,
    pub(super) blocks: u32,
    pub(super) groups: u32,
}

impl<'k> TileSums<'_, 'k> {
    /// Number of products. It is two for a gated spec, else one.
    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// Number of blocks of 64 rows.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Number of groups of 8 columns.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    fn block(&self, set: u32, block: u32, group: u32) -> u32 {
        assert!(
            set < self.sets && block < self.blocks && group < self.groups,
            "set {set}, block {block}, group {group} of {} sets of {} blocks of {} groups",
            self.sets,
            self.blocks,
            self.groups
        );
        set * self.blocks + block
    }

    /// The thread's quad of sums. Integers are converted to the nearest binary32.
    ///
    /// # Panics
    /// If there is no such set, block or group.
    #[track_caller]
    pub fn quad(&self, set: u32, block: u32, group: u32) -> [Val<'k, ty::F32>; 4] {
        let block = self.block(set, block, group);
        match self.sums {
            AnySums::Floats(sums) => sums.quad(self.b, block, group),
            AnySums::Integers(sums) => sums.quad(self.b, block, group).map(ty::S32::result),
        }
    }

    /// The thread's quad of integer sums. `None` if the kernel's operands are no integers.
    ///
    /// # Panics
    /// If there is no such set, block or group.
    #[track_caller]
    pub fn integers(&self, set: u32, block: u32, group: u32) -> Option<[Val<'k, ty::S32>; 4]> {
        let block = self.block(set, block, group);
        match self.sums {
            AnySums::Floats(_) => None,
            AnySums::Integers(sums) => Some(sums.quad(self.b, block, group)),
        }
    }
}
