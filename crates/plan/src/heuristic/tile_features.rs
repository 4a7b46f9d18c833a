//! [`TileFeatures`]: the numbers from which the boosted trees correct the bound of a tile.

use pgemm_ir::OperandMajor;
use pgemm_kernels::{Loader, OutputMajor, Schedule, Side, Spec};

use super::shape::Shape;
use super::short::Short;
use super::wgmma::LeastCycles;

/// Features that a tile has in every problem, and those that depend on the problem.
const OWN: usize = 22;
const OF_PROBLEM: usize = 19;

/// The number of features.
pub const TILE_FEATURES: usize = OWN + OF_PROBLEM;

/// The names of the features, in their order.
pub const TILE_NAMES: [&str; TILE_FEATURES] = [
    "rows of the tile",
    "columns of the tile",
    "bytes of the tile along k",
    "columns beyond a multiple of 16",
    "columns beyond a multiple of 64",
    "consumers",
    "ping-pong",
    "swapped",
    "A across k",
    "B across k",
    "A loaded by threads",
    "B loaded by threads",
    "stages of the ring",
    "CTAs that fit on an SM",
    "bytes of an element of A",
    "bytes of an element of D",
    "cycles of a stage",
    "cycles of a stage for L2",
    "cycles of an epilogue",
    "cycles of a turn",
    "cycles of a reduction",
    "promoted",
    "bound",
    "busy",
    "reduction",
    "m",
    "n",
    "bytes along k",
    "padding along m",
    "padding along n",
    "stages along k",
    "waves",
    "last wave",
    "tiles along m",
    "tiles along n",
    "lines of a slice of A",
    "lines of a slice of B",
    "alignment of lines of D",
    "D stored by threads",
    "after a repack kernel",
    "batch",
];

/// The features that a tile has in every problem.
pub(crate) struct TileFeatures {
    own: [Short; OWN],
    tile: [u32; 2],
    bytes: f32,
}

/// What the bound of a tile says of a problem, in cycles.
pub(crate) struct TileTerms {
    pub(crate) bound: f64,
    /// The stages and epilogues of an SM, and the reduction of split tiles.
    pub(crate) busy: f64,
    pub(crate) reduction: f64,
    /// Tiles of one D along m and n, stages of each along k, and tiles of all products for each SM.
    pub(crate) tiles: [u64; 2],
    pub(crate) stages: f64,
    pub(crate) waves: f64,
}

impl TileFeatures {
    /// The features of the tile of a wgmma spec, whose cluster does not matter.
    pub(crate) fn new(spec: &Spec, least: &LeastCycles) -> TileFeatures {
        let Spec { tile, a, output, a_major, b_major, d_major, stages, .. } = *spec;
        let flag = |is: bool| f64::from(u8::from(is));
        let by_threads = |side| flag(spec.loader(side) == Loader::Threads);
        let promoted = spec.wgmma().is_some_and(|wgmma| wgmma.promotion().is_some());
        let own = [
            f64::from(tile.m),
            f64::from(tile.n),
            f64::from(tile.k * a.bytes()),
            f64::from(tile.n % 16),
            f64::from(tile.n % 64),
            f64::from(spec.consumers()),
            flag(spec.schedule() == Schedule::PingPong),
            flag(d_major == OutputMajor::M),
            flag(a_major != OperandMajor::K),
            flag(b_major != OperandMajor::K),
            by_threads(Side::M),
            by_threads(Side::N),
            f64::from(stages),
            f64::from(spec.resources().ctas_per_sm),
            f64::from(a.bytes()),
            f64::from(output.bytes()),
            least.stage,
            least.sent,
            least.epilogue,
            least.turn,
            least.of_part,
            flag(promoted),
        ];
        TileFeatures {
            own: own.map(|feature| Short::from(feature as f32)),
            tile: [tile.m, tile.n],
            bytes: a.bytes() as f32,
        }
    }

    /// All features of the tile for a problem as the tile's side of a swap sees it.
    pub(crate) fn of(&self, shape: &Shape, terms: &TileTerms) -> [Short; TILE_FEATURES] {
        let [m, n, k] = shape.extents.map(|extent| extent as f32);
        let [tile_m, tile_n] = self.tile;
        let TileTerms { bound, busy, reduction, tiles, stages, waves } = *terms;
        let [rows, columns] = tiles.map(|tiles| tiles as f32);
        let flag = |is: bool| f32::from(u8::from(is));
        let of_problem = [
            bound as f32,
            (busy / bound) as f32,
            (reduction / bound) as f32,
            m,
            n,
            k * self.bytes,
            rows * tile_m as f32 / m,
            columns * tile_n as f32 / n,
            stages as f32,
            waves.min(5.0) as f32,
            (waves - waves as u64 as f64) as f32,
            rows,
            columns,
            shape.operands[0].touched(tile_m) as f32,
            shape.operands[1].touched(tile_n) as f32,
            shape.alignment_of_d() as f32,
            flag(shape.by_threads),
            flag(shape.after_repack),
            shape.batch.min(64) as f32,
        ];
        let mut all = [Short::default(); TILE_FEATURES];
        let (own, others) = all.split_at_mut(OWN);
        own.copy_from_slice(&self.own);
        for (place, feature) in others.iter_mut().zip(of_problem) {
            *place = Short::from(feature);
        }
        all
    }
}
