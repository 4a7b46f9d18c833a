//! The two ways in which threads load a tile: line by line, or block by block if they transpose it.

use pgemm_ir::{KernelBuilder, Val, ty};

use super::lines::{MemoryMatrix, TileLines, Units};
use super::turned::TurnedLines;
use crate::coordinates::TileOrigin;
use crate::quantity::Side;
use crate::tiles::chunked::ChunkedTile;
use crate::tiles::operand::StageTile;
use crate::tiles::turned::TurnedTile;

/// The part of a stage's tile that each thread loads.
pub(super) enum LoadedTile {
    /// Chunks of lines.
    Lines(ChunkedTile),
    /// Blocks, which threads transpose.
    Turned(TurnedTile),
}

impl LoadedTile {
    /// What threads load of a tile. `turned` says whether they transpose it.
    pub(super) fn new(tile: &StageTile, turned: bool) -> Self {
        match turned {
            true => LoadedTile::Turned(TurnedTile::new(tile)),
            false => LoadedTile::Lines(ChunkedTile::new(tile)),
        }
    }
}

/// The loads of an operand's tile by threads, for one item.
pub(super) enum TileLoads<'k, 'o> {
    Lines(TileLines<'k, 'o>),
    Turned(TurnedLines<'k, 'o>),
}

impl<'k, 'o> TileLoads<'k, 'o> {
    pub(super) fn new(
        b: &'k KernelBuilder,
        tile: &'o LoadedTile,
        side: Side,
        matrix: MemoryMatrix<'k>,
        origin: TileOrigin<'k>,
    ) -> Self {
        match tile {
            LoadedTile::Lines(tile) => {
                TileLoads::Lines(TileLines::new(b, tile, side, matrix, origin))
            }
            LoadedTile::Turned(tile) => {
                TileLoads::Turned(TurnedLines::new(b, tile, side, matrix, origin))
            }
        }
    }

    /// Starts the loads of the stage that begins at `k`, in parts, each after `before`. If the
    /// stage does not exist, these are loads of a unit of the matrix.
    pub(super) fn load(
        &self,
        k: Val<'k, ty::U32>,
        exists: Val<'k, ty::Bool>,
        before: impl FnMut(usize),
    ) -> Units<'k> {
        match self {
            TileLoads::Lines(lines) => lines.load(k, exists, before),
            TileLoads::Turned(blocks) => blocks.load(k, exists, before),
        }
    }

    /// Stores a part of the stage that begins at `k`.
    pub(super) fn store(
        &self,
        stage: Val<'k, ty::Smem>,
        k: Val<'k, ty::U32>,
        part: usize,
        units: &Units<'k>,
    ) {
        match self {
            TileLoads::Lines(lines) => lines.store(stage, k, part, units),
            TileLoads::Turned(blocks) => blocks.store(stage, k, part, units),
        }
    }

    /// Stores all parts of the last stage of a tile, which begins at `k`.
    pub(super) fn store_last(
        &self,
        stage: Val<'k, ty::Smem>,
        k: Val<'k, ty::U32>,
        units: &Units<'k>,
    ) {
        match self {
            TileLoads::Lines(lines) => lines.store_last(stage, k, units),
            TileLoads::Turned(blocks) => blocks.store_last(stage, k, units),
        }
    }

    /// Whether elements of the product's matrix are in a unit which is partly outside of the span
    /// of the batch.
    pub(super) fn is_at_end(&self) -> Val<'k, ty::Bool> {
        match self {
            TileLoads::Lines(lines) => lines.is_at_end(),
            TileLoads::Turned(blocks) => blocks.is_at_end(),
        }
    }

    /// Stores those elements of the stage that begins at `k` again that are in such a unit.
    pub(super) fn store_ends(&self, stage: Val<'k, ty::Smem>, k: Val<'k, ty::U32>) {
        match self {
            TileLoads::Lines(lines) => lines.store_ends(stage, k),
            TileLoads::Turned(blocks) => blocks.store_ends(stage, k),
        }
    }
}
