//! [`features`]: the numbers from which the boosted trees correct an estimate.

use pgemm_kernels::{OutputMajor, Schedule, Spec};

use super::estimate::{Estimate, SpecTerms};
use super::placement::{RunChoice, TilePlacement};
use crate::split::Split;

/// The number of features.
pub const FEATURES: usize = 60;

/// The feature that says whether kernels run for so long that the clock is steady. It is 1 for
/// every estimate, and 0 for timings of kernels that ran too briefly.
pub const STEADY: usize = FEATURES - 1;

/// The names of the features, in their order.
pub const NAMES: [&str; FEATURES] = [
    "estimate",
    "busy",
    "pair",
    "dram",
    "l2",
    "reduction",
    "launch",
    "epilogues",
    "math",
    "shared",
    "stored by threads",
    "fill",
    "rows of the tile",
    "columns of the tile",
    "bytes of the tile along k",
    "stages of the ring",
    "ping-pong",
    "consumers",
    "cluster along m",
    "cluster along n",
    "swapped",
    "A across k",
    "B across k",
    "turns",
    "whole turns",
    "contributors",
    "stream-k",
    "dependent launch",
    "staging steps",
    "lines of a slice of A",
    "lines of a slice of B",
    "lines of D",
    "padding along m",
    "padding along n",
    "stages along k",
    "m",
    "n",
    "bytes along k",
    "last wave",
    "waves",
    "busiest pair",
    "CTAs that fit on an SM",
    "bytes of an element of A",
    "bytes of an element of D",
    "bytes of the ring",
    "stages of a turn",
    "columns of the tile beyond a multiple of 16",
    "columns of the tile beyond a multiple of 64",
    "after a repack kernel",
    "D stored by threads",
    "padding along k",
    "part of D in the traffic",
    "clusters in use",
    "raster rows",
    "batch",
    "time of DRAM traffic against an H200",
    "rows of a warp",
    "columns of a warp",
    "part of the traffic that is read again",
    "steady clock",
];

/// The features of an estimate. Parts of the estimate are fractions of the whole, and parts of a
/// stage fractions of the stage.
pub(super) fn features(
    spec: &Spec,
    of_spec: &SpecTerms,
    terms: &Estimate,
    placement: &TilePlacement,
    run: RunChoice,
) -> [f32; FEATURES] {
    let Spec { tile, cluster, a_major, b_major, d_major, stages, .. } = *spec;
    let [m, n, k] = placement.extents;
    let of_estimate = |part: f64| part / terms.cycles;
    let of_stage = |part: f64| part / terms.stage;
    let flag = |is: bool| f64::from(u8::from(is));
    let depth = f64::from(tile.k * spec.a.bytes());
    let ctas = placement.tiles() as f64 * placement.cluster_size as f64 / f64::from(placement.sms);
    let padding = |tiles: u64, extent: u32, ctas: u32, whole: f64| {
        tiles as f64 * f64::from(extent * ctas) / whole.max(1.0)
    };
    let [lines_a, lines_b] = placement.lines;
    let along_k = pgemm_ir::OperandMajor::K;
    [
        terms.cycles,
        of_estimate(terms.busy),
        of_estimate(terms.of_pair),
        of_estimate(terms.dram),
        of_estimate(terms.l2),
        of_estimate(terms.reduction),
        of_estimate(terms.launch),
        of_estimate(terms.epilogues),
        of_stage(of_spec.math),
        of_stage(of_spec.shared),
        of_stage(of_spec.stored),
        of_stage(terms.fill),
        f64::from(tile.m),
        f64::from(tile.n),
        depth,
        f64::from(stages),
        flag(spec.schedule() == Schedule::PingPong),
        f64::from(spec.consumers()),
        f64::from(cluster.m),
        f64::from(cluster.n),
        flag(d_major == OutputMajor::M),
        flag(a_major != along_k),
        flag(b_major != along_k),
        terms.turns.min(9.0),
        terms.whole_turns.min(9.0),
        terms.contributors.min(16.0),
        flag(run.split == Split::StreamK),
        flag(run.dependent_launch),
        of_spec.steps,
        lines_a,
        lines_b,
        terms.line_bytes,
        padding(placement.rows, tile.m, cluster.m, m),
        padding(placement.columns, tile.n, cluster.n, n),
        placement.k_tiles as f64,
        m,
        n,
        k * f64::from(spec.a.bytes()),
        ctas.fract(),
        ctas.min(5.0),
        terms.busiest.min(9.0),
        of_spec.ctas_per_sm,
        f64::from(spec.a.bytes()),
        f64::from(spec.output.bytes()),
        f64::from(stages * spec.stage_bytes()),
        terms.stages / terms.turns.max(1.0),
        f64::from(tile.n % 16),
        f64::from(tile.n % 64),
        flag(placement.after_repack),
        flag(placement.by_threads),
        placement.k_tiles as f64 * f64::from(tile.k) / k,
        terms.results,
        terms.occupied,
        f64::from(run.raster_rows),
        (placement.batch as f64).min(64.0),
        placement.memory_factor,
        of_spec.of_warp[0],
        of_spec.of_warp[1],
        terms.missed,
        1.0,
    ]
    .map(|feature| feature as f32)
}
