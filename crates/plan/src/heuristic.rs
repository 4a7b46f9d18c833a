//! The heuristic: estimates the cycles of a problem for each spec of the catalogue, and takes the
//! fewest. [`cycles`] is the whole model: the busiest SM's stages, each bound by the tensor cores,
//! by shared memory, by L2 or by the latency of a load; beside them the traffic of DRAM, shared out
//! among pairs of SMs; then the reduction of split tiles and the launch.
//!
//! Its constants were fitted by `scripts/fit-heuristic.py`, which has the same formula, to 7746
//! timings on an H200 (bf16, both operands K-major or B N-major, the 178 problems of the suite with
//! up to 44 choices each, dependent and serial launches: `benchmarks/results/survey.jsonl`), of
//! those problems that take less than 150 µs: longer ones scatter with the clock. There its picks
//! take 1.6 % longer than the best that was measured (geometric mean; 15 % at worst), and 0.8 % (2
//! % at worst) over 41 large problems in races at steady power (run `2026-11-22-large-tuned-*` of
//! `benchmarks/results`), which the bounds of shared memory and of epilogues are from. All operands
//! there are made of whole lines of L2; what those of others take is `UNALIGNED_BYTES_PER_CYCLE`.

mod dmma;
mod ffma;
mod placement;
mod ranking;
mod rated;
mod shape;
mod wgmma;

use pgemm_kernels::Spec;

use self::placement::TilePlacement;
pub use self::ranking::{Ranking, rank};
pub use self::rated::Rated;
pub use self::shape::Shape;
use crate::choice::Choice;
use crate::decomposition::Decomposition;
pub use crate::device::NOMINAL_MHZ;

/// Cycles from a load to its arrival, in which a ring is filled once at most.
const LATENCY: f64 = 1780.0;

/// Bytes from DRAM for each pair of SMs (TPC) and cycle.
const DRAM_BYTES_PER_CYCLE: f64 = 48.57;

/// Part of an operand's traffic that is added where more than one tile reads it: SMs at the other
/// half of L2 do.
const READ_AGAIN: f64 = 0.72;

/// Cycles of a launch that no tile accounts for, and more of one that begins only when the one
/// before it has ended.
const LAUNCH_CYCLES: f64 = 2981.0;
const SERIAL_CYCLES: f64 = 1150.0;

/// The estimated cycles of a problem on `sms` SMs, for a spec that validates. Extents `[m, n, k]`
/// stand for one product of operands whose slices are whole lines of L2.
pub fn cycles(choice: &Choice, shape: impl Into<Shape>, sms: u32) -> f64 {
    Rated::new(choice.spec).cycles(&TilePlacement::new(choice.spec, shape.into(), sms), choice)
}

/// Rows of cluster tiles to walk together: as many as make the tiles in flight a square of D, so
/// that they share operands in L2, but in groups of equal height.
pub fn raster_rows(spec: &Spec, m: u64, sms: u32) -> u32 {
    let (tile, cluster) = (spec.tile, spec.cluster);
    // Extents are below 2^31, so the rows fit.
    let rows = m.div_ceil(u64::from(tile.m * cluster.m)).max(1) as u32;
    let in_flight = f64::from(sms / cluster.size());
    let aspect = f64::from(tile.n * cluster.n) / f64::from(tile.m * cluster.m);
    let square = (in_flight * aspect).sqrt().round().max(1.0) as u32;
    let groups = rows.div_ceil(square);
    rows.div_ceil(groups)
}

/// Cycles of a CTA that hands in `parts` tiles' sums and then adds up those of the contributors: so
/// many for each part handed in, and so many for the elements of each tile that is written or read.
fn reduction_cycles(work: &Decomposition, parts: f64, of_part: f64, of_tile: f64) -> f64 {
    match work.contributors() {
        0 => 0.0,
        read => of_part * parts + (parts + read as f64) * of_tile,
    }
}

fn fourth_power(x: f64) -> f64 {
    x * x * (x * x)
}

#[cfg(test)]
mod tests;
