//! The f64 and f32 specs that the planner may choose.

use pgemm_ir::{Element, OperandMajor};

use crate::epilogue::EpilogueShape;
use crate::spec::{
    Cluster, DmmaSpec, FfmaSpec, MOST_BOX_LINES, MainloopSpec, Spec, ThreadTile, Tile, Warps,
    WorkSource,
};
use crate::tiles::staging::OutputMajor;

/// Warps of f64 kernels along M and N. Of kernels with four warps, two CTAs run on an SM.
const DMMA_WARPS: [&[(u32, u32)]; 2] =
    [&[(2, 2), (1, 4), (4, 1)], &[(2, 4), (4, 2), (1, 8), (8, 1)]];

/// Fewest registers of a thread of an f64 kernel that hold sums. Eight warps have more, as smaller
/// tiles are for four, unless the tile is one block high or wide. These two and the numbers of
/// stages are a choice. Kernels beyond them were not timed.
const FEWEST_SUMS: u32 = 16;
const FEWEST_SUMS_OF_EIGHT: u32 = 32;

/// Fewest and most stages of f64 kernels.
const DMMA_STAGES: [u32; 2] = [4, 12];

/// Clusters of f64 kernels, as CTAs along M and N, the most elements of their tiles, and the
/// fewest stages of their rings. CTAs of small tiles load much for each multiply-add. With more
/// kernels, the fastest takes 0.2 % less in the mean of 80 problems with few tiles (a one-off
/// computation on the runs `2026-11-26-exact-few-tiles-clusters-*` of `benchmarks/results`).
const DMMA_CLUSTERS: [(u32, u32); 5] = [(2, 1), (1, 2), (4, 1), (1, 4), (2, 2)];
const MOST_ELEMENTS_IN_CLUSTERS: u32 = 64 * 64;
const FEWEST_STAGES_IN_CLUSTERS: u32 = 11;

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

/// Every f64 spec for operands of these majors: all tiles of whole blocks that are legal, with the
/// warps that read the least of shared memory and the deepest ring that fits. Small tiles are in
/// clusters, too.
pub(super) fn dmma(a_major: OperandMajor, b_major: OperandMajor) -> impl Iterator<Item = Spec> {
    let block = DmmaSpec::BLOCK_LINES;
    let lines = move || (block..=MOST_BOX_LINES).step_by(block as usize);
    let tiles = lines().flat_map(move |m| lines().map(move |n| (m, n)));
    let alone = tiles.flat_map(move |tile| {
        DMMA_WARPS.into_iter().flat_map(move |grids| dmma_of(tile, grids, (a_major, b_major)))
    });
    alone.flat_map(|spec| {
        let has_clusters = spec.tile.m * spec.tile.n <= MOST_ELEMENTS_IN_CLUSTERS
            && spec.stages >= FEWEST_STAGES_IN_CLUSTERS;
        let clusters = DMMA_CLUSTERS.into_iter().filter(move |_| has_clusters);
        let clusters = clusters.map(|(m, n)| Cluster { m, n });
        let all = [Cluster::NONE].into_iter().chain(clusters);
        all.map(move |cluster| Spec { cluster, ..spec }).filter(|spec| spec.validate().is_ok())
    })
}

/// The f64 specs of a tile with those of these grids of warps that read the least shared memory.
fn dmma_of(
    (m, n): (u32, u32),
    grids: &'static [(u32, u32)],
    majors: (OperandMajor, OperandMajor),
) -> impl Iterator<Item = Spec> {
    let [fewest, most] = DMMA_STAGES;
    let tile = Tile { m, n, k: DmmaSpec::TILE_K };
    let dmma = |(m, n)| DmmaSpec { warps: Warps { m, n }, depth: 8 };
    let with = move |grid| {
        let plain = spec(Element::F64, majors, tile, fewest, MainloopSpec::Dmma(dmma(grid)));
        Spec { stages: plain.most_stages().min(most), ..plain }
    };
    let least_sums = move |(along_m, along_n): (u32, u32)| match along_m * along_n {
        8 if m.min(n) > DmmaSpec::BLOCK_LINES => FEWEST_SUMS_OF_EIGHT,
        _ => FEWEST_SUMS,
    };
    let is_useful = move |&grid: &(u32, u32)| {
        let spec = with(grid);
        dmma(grid).sums(tile) >= least_sums(grid)
            && spec.stages >= fewest
            && spec.validate().is_ok()
    };
    // All warps of a grid multiply as many elements, so they read the less the closer to squares
    // their parts are.
    let reads = move |(along_m, along_n): (u32, u32)| m / along_m + n / along_n;
    let useful = grids.iter().copied().filter(is_useful);
    let least = useful.clone().map(reads).min();
    useful.filter(move |&grid| Some(reads(grid)) == least).map(with)
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
