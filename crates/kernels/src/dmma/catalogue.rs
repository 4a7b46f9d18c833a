//! The f64 specs that the planner may pick.

use pgemm_ir::OperandMajor;

use super::spec::{DmmaSpec, TILE_K, Warps};
use crate::fusion::Epilogue;
use crate::spec::Tile;

/// Rows and columns of the CTA tile, warps along both, deepest ring worth having.
type Shape = (u32, u32, (u32, u32), u32);

/// Largest first. Large ones read the least of shared memory for each multiply-add, others fill the device on problems that
/// have few tiles, and those one block high or wide are for few rows or columns.
const SHAPES: [Shape; 15] = [
    (128, 128, (2, 4), 6),
    (128, 128, (4, 2), 6),
    (256, 64, (4, 2), 5),
    (64, 256, (2, 4), 5),
    (96, 128, (2, 4), 7),
    (128, 96, (4, 2), 7),
    (64, 128, (2, 4), 8),
    (128, 64, (4, 2), 8),
    (64, 96, (2, 2), 10),
    (64, 64, (2, 2), 12),
    (32, 64, (2, 2), 16),
    (32, 128, (1, 4), 10),
    (128, 32, (4, 1), 10),
    (16, 128, (1, 8), 12),
    (128, 16, (8, 1), 12),
];

/// Every spec for operands of these majors.
pub(crate) fn specs_for(
    a_major: OperandMajor,
    b_major: OperandMajor,
) -> impl Iterator<Item = DmmaSpec> {
    SHAPES.into_iter().map(move |(m, n, (warps_m, warps_n), stages)| DmmaSpec {
        a_major,
        b_major,
        tile: Tile { m, n, k: TILE_K },
        stages,
        warps: Warps { m: warps_m, n: warps_n },
        mma_k: 8,
        epilogue: Epilogue::NONE,
    })
}
