//! The transposition of K-major tiles in shared memory. It runs in place, before consumers read the
//! tiles. A warp takes blocks of 32 lines and up to 16 depths, and writes them as up to 16 rows of
//! 32 elements. Each lane has one line. It loads four depths at once, and stores them to different
//! rows, next to the elements of the other lanes. Loads and stores have no bank conflicts. For
//! loads the swizzle ensures this.

use pgemm_ir::{KernelBuilder, Special, Val, ty};

use crate::layout::swizzled;
use crate::tiles::line::{BLOCK_LINES, ELEMENT_BYTES, LineTile, QUAD};

/// Bytes of a quad.
const QUAD_BYTES: u32 = QUAD * ELEMENT_BYTES;

/// Bytes of a row of a block.
const ROW_BYTES: u32 = BLOCK_LINES * ELEMENT_BYTES;

/// The addresses that a lane reads and writes in each block.
pub(super) struct Transposition<'k> {
    tile: LineTile,
    /// Bytes from the start of a block to each of this lane's quads.
    quads: Vec<Val<'k, ty::U32>>,
    /// Bytes from the start of a row to this lane's element.
    element: Val<'k, ty::U32>,
}

impl<'k> Transposition<'k> {
    /// The transposition of K-major tiles of this form.
    pub(super) fn new(b: &'k KernelBuilder, tile: LineTile) -> Self {
        let lane = b.special(Special::Lane);
        let line = lane * (tile.box_depth * ELEMENT_BYTES);
        let swizzled = swizzled(line, tile.tensor_map().swizzle);
        Transposition {
            tile,
            quads: (0..tile.box_depth / QUAD).map(|quad| swizzled ^ (quad * QUAD_BYTES)).collect(),
            element: lane * ELEMENT_BYTES,
        }
    }

    /// Transposes the tile at `stage`. Warp `warp` of `warps` takes its share of the blocks.
    pub(super) fn run(
        &self,
        b: &'k KernelBuilder,
        stage: Val<'k, ty::Smem>,
        warp: Val<'k, ty::U32>,
        warps: u32,
    ) {
        let blocks = self.tile.bytes() / self.block_bytes();
        // This is not a loop, since the assembler would need more registers for one.
        for first in (0..blocks).step_by(warps as usize) {
            let block = warp + first;
            let transpose = || self.transpose(b, stage.offset(block * self.block_bytes()));
            if first + warps <= blocks {
                transpose();
            } else {
                b.if_(block.lt(blocks), transpose);
            }
        }
    }

    fn block_bytes(&self) -> u32 {
        self.tile.box_depth * ROW_BYTES
    }

    /// Transposes the block at an address.
    fn transpose(&self, b: &'k KernelBuilder, block: Val<'k, ty::Smem>) {
        let quads = self.quads.iter().map(|&quad| b.load_shared::<ty::F32, 4>(block.offset(quad)));
        let depths: Vec<_> = quads.flatten().collect();
        // All lanes must have loaded before any lane overwrites the block.
        b.warp_sync();
        let first = block.offset(self.element);
        for (row, depth) in (0..).zip(depths) {
            b.store_shared(first.offset(row * ROW_BYTES), [depth]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loads of a quarter of a warp that transposes, or of eight lanes that differ in their
    /// rows of A: eight neighbouring lines at the same depths. TMA's swizzle puts them in different
    /// banks.
    #[test]
    fn lanes_that_load_depths_do_not_wait_for_each_other() {
        let transposed = [8, 16].map(|box_depth| LineTile::transposed(32, 16, box_depth));
        let read = [8, 16].map(|k| LineTile::by_depths(32, k));
        for tile in transposed.into_iter().chain(read) {
            let box_depth = tile.box_depth;
            let swizzle = tile.tensor_map().swizzle;
            for (first, quad) in
                (0..32).step_by(8).flat_map(|first| (0..box_depth / QUAD).map(move |q| (first, q)))
            {
                let place = |line: u32| {
                    let plain = line * box_depth * ELEMENT_BYTES + quad * QUAD_BYTES;
                    swizzle.apply(plain) % 128 / QUAD_BYTES
                };
                let mut places: Vec<u32> = (first..first + 8).map(place).collect();
                places.sort_unstable();
                assert_eq!(places, (0..8).collect::<Vec<_>>());
            }
        }
    }
}
