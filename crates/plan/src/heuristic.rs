//! The heuristic: a cost model that estimates the cycles of a problem for each kernel that the
//! planner considers. The planner takes the kernel with the fewest.
//!
//! [`cycles`] is the whole model. It adds up the stages and epilogues of the busiest SM, where each
//! stage is bound by the tensor cores, shared memory, L2 or the latency of a load. It combines them
//! with the traffic of L2 and of DRAM, then adds the reduction of split tiles and the launch.
//! Boosted trees and a neural network correct the least estimates from the same quantities. The
//! first trees correct some dozen of these estimates, more trees and the network the least of them,
//! and all trees the least of these. Kernels of f64 and f32, which add up in registers, have trees
//! and a network of their own.
//!
//! The constants, the trees and the networks are fitted to timings of kernels on an H200, in
//! `benchmarks/results`: drawn problems (`rule.jsonl`), the suite (`survey.jsonl`), races of large
//! problems (`races.jsonl`), trials of the autotuner (`autotune.jsonl`), former picks for whole
//! populations (`atlas.jsonl`), and drawn problems of f64 and f32 (`exact.jsonl`). `pgemm atlas
//! --fit` fits the [`Constants`] to the first two and the last, and `scripts/fit-corrections.py`
//! fits what corrects the estimates to all; the script also says what picks lose on problems that
//! were held out from these.
//! `pgemm atlas --judge` says what the picks lose on stored timings, and a test of the crate
//! `pgemm-bench` holds that below a limit. Other trees correct the bounds of tiles before anything
//! is estimated. They are fitted to the estimates of all kernels of drawn problems by
//! `scripts/fit-tile-trees.sh`, without timings.

mod constants;
mod direct;
mod estimate;
mod features;
mod network;
mod placement;
mod ranking;
mod rated;
mod registers;
mod shape;
mod short;
mod tile_features;
mod trees;
mod wgmma;

use pgemm_kernels::{OutputMajor, Spec};

pub use self::constants::Constants;
pub(crate) use self::direct::may_be_direct;
pub use self::features::{FEATURES, NAMES as FEATURE_NAMES, STEADY};
use self::placement::TilePlacement;
pub(crate) use self::ranking::{Access, SpecGroup, all_corrected, keep_least, least_corrected};
pub use self::ranking::{Ranking, rank};
pub use self::rated::RatedSpec;
pub use self::shape::Shape;
pub(crate) use self::short::Short;
pub use self::tile_features::{TILE_FEATURES, TILE_NAMES as TILE_FEATURE_NAMES};
pub(crate) use self::tile_features::{TileFeatures, TileTerms};
pub(crate) use self::trees::{Trees, corrections};
pub(crate) use self::wgmma::LeastCycles;
use crate::choice::Choice;
use crate::decomposition::Decomposition;
use crate::device::DeviceFacts;
pub use crate::device::NOMINAL_MHZ;

/// Fraction of an operand's bytes that is added to the traffic if more than one tile reads the
/// operand. SMs at the other half of L2 read it a second time.
const REREAD_FRACTION: f64 = 0.72;

/// Additional cycles of a serial launch of a wgmma kernel, which begins only after the previous one
/// has ended.
const SERIAL_CYCLES: f64 = 1150.0;

/// The estimated cycles of a problem on a device. The spec of the choice must be valid. Extents
/// `[m, n, k]` stand for one product whose operands consist of whole L2 lines.
pub fn cycles(choice: &Choice, shape: impl Into<Shape>, device: impl Into<DeviceFacts>) -> f64 {
    RatedSpec::new(choice.spec).corrected(shape.into(), device.into(), choice.into())
}

/// The estimate of a choice with these constants, before it is corrected. The spec must be valid.
pub fn cycles_with(
    constants: &Constants,
    choice: &Choice,
    shape: impl Into<Shape>,
    device: impl Into<DeviceFacts>,
) -> f64 {
    let placement = TilePlacement::new(choice.spec, shape.into(), device.into());
    rated::cycles_with(constants, choice, &placement)
}

/// The estimate of a choice before it is corrected, and the features from which it is.
pub fn features_of(
    choice: &Choice,
    shape: impl Into<Shape>,
    device: impl Into<DeviceFacts>,
) -> (f64, [f32; FEATURES]) {
    let placement = TilePlacement::new(choice.spec, shape.into(), device.into());
    RatedSpec::new(choice.spec).features(&placement, choice.into())
}

/// Most bytes of an operand that each row of tiles may read anew, since L2 keeps them.
const KEPT_BYTES: u64 = 8 << 20;

/// The height of a raster block in cluster tiles for these extents, of which the first are the rows
/// that the kernel sees. Tiles follow each other along the lines of D if L2 keeps the operand that
/// is read anew for each line of tiles, since DRAM takes D fastest then. Otherwise the tiles in
/// flight cover a square of D, so that they share operands in L2, and the rows are divided into
/// blocks of equal height.
///
/// On an H200 in bf16, 132 kernels took 1.6 % less so than in squares where the operand had up to
/// that, and the 50 of them with more than 100 MB of D 3.0 % less (13248×14656×64: 110.6 and
/// 124.4 µs). With a larger operand, 65 took 2.8 % longer. (One-off computations on the runs
/// `2026-11-26-turns-raster-*` of `benchmarks/results`, by which the limit was chosen, too.)
pub fn raster_rows(spec: &Spec, [m, n, k]: [u64; 3], sms: u32) -> u32 {
    let (tile, cluster) = (spec.tile, spec.cluster);
    // Extents are below 2^31, so the rows fit.
    let rows = m.div_ceil(u64::from(tile.m * cluster.m)).max(1) as u32;
    let (anew, along_lines) = match spec.d_major {
        OutputMajor::N => (n, 1),
        OutputMajor::M => (m, rows),
    };
    if anew.saturating_mul(k).saturating_mul(u64::from(spec.a.bytes())) <= KEPT_BYTES {
        return along_lines;
    }
    let in_flight = f64::from(sms / cluster.size());
    let aspect = f64::from(tile.n * cluster.n) / f64::from(tile.m * cluster.m);
    let square = ((in_flight * aspect).sqrt() + 0.5).max(1.0) as u32;
    let groups = rows.div_ceil(square);
    rows.div_ceil(groups)
}

/// Cycles of a CTA that stores the sums of `parts` tile parts and then adds up the sums of all
/// contributors: `of_part` for each part stored, and `of_tile` for each tile's worth of elements
/// written or read.
fn reduction_cycles(work: &Decomposition, parts: f64, of_part: f64, of_tile: f64) -> f64 {
    match work.contributors() {
        0 => 0.0,
        read => of_part * parts + (parts + read as f64) * of_tile,
    }
}

pub(crate) fn fourth_power(x: f64) -> f64 {
    x * x * (x * x)
}

#[cfg(test)]
mod tests;
