//! The f32 specs that the planner may pick.

use pgemm_ir::OperandMajor;

use super::spec::{FfmaSpec, ThreadTile};
use crate::dmma::Warps;
use crate::fusion::Epilogue;
use crate::spec::Tile;

/// Depth of a stage.
const TILE_K: u32 = 16;

/// Rows and columns of the CTA tile, a thread's part, warps along m and n, deepest ring worth having.
type Shape = (u32, u32, (u32, u32), (u32, u32), u32);

/// Largest first: parts of 8×16 and 12×12 load the least for each multiply-add, others fill the device on problems that have
/// few tiles, and those one block high or wide are for few rows or columns.
const SHAPES: [Shape; 11] = [
    (192, 192, (12, 12), (4, 2), 8),
    (128, 256, (8, 16), (2, 4), 8),
    (256, 128, (16, 8), (4, 2), 8),
    (128, 128, (8, 16), (4, 1), 6),
    (128, 128, (8, 8), (2, 4), 8),
    (128, 64, (8, 8), (4, 1), 8),
    (64, 128, (8, 8), (2, 2), 8),
    (64, 64, (8, 4), (2, 2), 12),
    (32, 64, (4, 4), (2, 2), 16),
    (32, 128, (4, 8), (1, 4), 10),
    (128, 32, (8, 4), (4, 1), 10),
];

/// Every spec for operands of these majors.
pub(crate) fn specs_for(
    a_major: OperandMajor,
    b_major: OperandMajor,
) -> impl Iterator<Item = FfmaSpec> {
    SHAPES.into_iter().map(move |(m, n, thread, warps, stages)| FfmaSpec {
        a_major,
        b_major,
        tile: Tile { m, n, k: TILE_K },
        stages,
        thread: ThreadTile { m: thread.0, n: thread.1 },
        warps: Warps { m: warps.0, n: warps.1 },
        epilogue: Epilogue::NONE,
    })
}
