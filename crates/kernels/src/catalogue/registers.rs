//! The f64 and f32 specs that the planner may choose.

use pgemm_ir::{Element, OperandMajor};

use crate::epilogue::EpilogueShape;
use crate::spec::{
    Cluster, DmmaSpec, FfmaSpec, MainloopSpec, Spec, ThreadTile, Tile, Warps, WorkSource,
};
use crate::tiles::staging::OutputMajor;

/// Rows and columns of the CTA tile, warps along both dimensions, and the deepest useful ring.
type DmmaShape = (u32, u32, (u32, u32), u32);

/// The shapes of f64 kernels, largest first. Large tiles read the least shared memory for each
/// multiply-add. Smaller tiles fill the device on problems with few tiles. Tiles of one block in
/// height or width are for few rows or columns.
const DMMA_SHAPES: [DmmaShape; 19] = [
    (128, 128, (2, 4), 6),
    (128, 128, (4, 2), 6),
    (256, 64, (4, 2), 5),
    (64, 256, (2, 4), 5),
    (96, 128, (2, 4), 7),
    (128, 96, (4, 2), 7),
    (64, 128, (2, 4), 8),
    (128, 64, (4, 2), 8),
    (64, 96, (2, 2), 5),
    (96, 64, (2, 2), 5),
    (64, 64, (2, 2), 7),
    (48, 64, (1, 4), 7),
    (64, 48, (4, 1), 7),
    (32, 64, (2, 2), 9),
    (64, 32, (2, 2), 9),
    (16, 64, (1, 4), 11),
    (64, 16, (4, 1), 11),
    (16, 128, (1, 8), 12),
    (128, 16, (8, 1), 12),
];

/// Depth of a stage.
const FFMA_TILE_K: u32 = 16;

/// Rows and columns of the CTA tile, a thread's part, warps along M and N, and the deepest useful
/// ring.
type FfmaShape = (u32, u32, (u32, u32), (u32, u32), u32);

/// The shapes of f32 kernels, largest first. Parts of 8×16 and 12×12 load the least for each
/// multiply-add. Smaller tiles fill the device on problems with few tiles. Tiles of one block in
/// height or width are for few rows or columns.
const FFMA_SHAPES: [FfmaShape; 11] = [
    (192, 192, (12, 12), (4, 2), 8),
    (128, 256, (8, 16), (2, 4), 8),
    (256, 128, (16, 8), (4, 2), 8),
    (128, 128, (8, 8), (2, 4), 8),
    (128, 64, (8, 8), (4, 1), 8),
    (64, 128, (8, 8), (2, 2), 8),
    (64, 64, (8, 4), (2, 2), 12),
    (32, 64, (4, 4), (2, 2), 16),
    (64, 32, (4, 4), (2, 2), 16),
    (32, 128, (4, 8), (1, 4), 10),
    (128, 32, (8, 4), (4, 1), 10),
];

fn spec(
    element: Element,
    (a_major, b_major): (OperandMajor, OperandMajor),
    tile: Tile,
    stages: u32,
    mainloop: MainloopSpec,
) -> Spec {
    Spec {
        a: element,
        b: element,
        output: element,
        a_major,
        b_major,
        d_major: OutputMajor::N,
        tile,
        stages,
        cluster: Cluster::NONE,
        mainloop,
        scaled: false,
        epilogue: EpilogueShape::NONE,
        source: WorkSource::Launch,
    }
}

/// Every f64 spec for operands of these majors.
pub(super) fn dmma(a_major: OperandMajor, b_major: OperandMajor) -> impl Iterator<Item = Spec> {
    DMMA_SHAPES.into_iter().map(move |(m, n, warps, stages)| {
        let dmma = DmmaSpec { warps: Warps { m: warps.0, n: warps.1 }, depth: 8 };
        let tile = Tile { m, n, k: DmmaSpec::TILE_K };
        spec(Element::F64, (a_major, b_major), tile, stages, MainloopSpec::Dmma(dmma))
    })
}

/// Every f32 spec for operands of these majors.
pub(super) fn ffma(a_major: OperandMajor, b_major: OperandMajor) -> impl Iterator<Item = Spec> {
    FFMA_SHAPES.into_iter().map(move |(m, n, thread, warps, stages)| {
        let thread = ThreadTile { m: thread.0, n: thread.1 };
        let ffma = FfmaSpec { thread, warps: Warps { m: warps.0, n: warps.1 } };
        let tile = Tile { m, n, k: FFMA_TILE_K };
        spec(Element::F32, (a_major, b_major), tile, stages, MainloopSpec::Ffma(ffma))
    })
}
