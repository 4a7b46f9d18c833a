//! The cost model of f64 kernels. Work comes in waves of whole tiles and of workers that share
//! split tiles. Each stage is bound by the tensor cores, shared memory, L2 or the latency of a
//! load, and the whole by DRAM traffic. The constants come from data sheets or are guesses; none
//! was fitted.

use pgemm_kernels::{DmmaSpec, Spec};

use super::placement::{RunChoice, TilePlacement};
use super::{
    DRAM_BYTES_PER_CYCLE, LAUNCH_CYCLES, LOAD_LATENCY_CYCLES, SERIAL_CYCLES, fourth_power,
    reduction_cycles,
};
use crate::decomposition::Decomposition;

/// Bytes of an element.
const BYTES: f64 = 8.0;

/// Multiply-adds of one SM's tensor cores per cycle: 67 TFLOP/s on 132 SMs at 1.98 GHz (NVIDIA's
/// data sheet of the H100).
const MACS_PER_CYCLE: f64 = 128.0;

/// Factors by which a stage's MMAs take longer than at the full rate, with eight warps and with
/// four. Two warps on one scheduler hide each other's latencies; a single one cannot.
const MATH_FACTOR_EIGHT_WARPS: f64 = 1.05;
const MATH_FACTOR_FOUR_WARPS: f64 = 1.12;

/// Bytes of shared memory per cycle, for fragment loads and TMA writes together.
const SMEM_BYTES_PER_CYCLE: f64 = 128.0;

/// Bytes that reach an SM from L2 per cycle.
const L2_BYTES_PER_CYCLE: f64 = 64.0;

/// Cycles of every stage apart from its MMAs: a barrier and address arithmetic.
const STAGE_CYCLES: f64 = 24.0;

/// Cycles of a tile's epilogue, and for each element of the tile. The epilogue does not overlap
/// with MMAs.
const EPILOGUE_CYCLES: f64 = 1000.0;
const EPILOGUE_CYCLES_PER_ELEMENT: f64 = 0.13;

/// Cycles to store the sums of one part of a tile, and additional cycles for each element stored or
/// read.
const REDUCTION_CYCLES: f64 = 3000.0;
const REDUCTION_CYCLES_PER_ELEMENT: f64 = 0.13;

/// The terms of the model that depend on the spec alone. They serve for every problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct DmmaModel {
    /// Elements of a tile of D.
    elements: f64,
    /// Cycles of a stage and of an epilogue.
    stage: f64,
    epilogue: f64,
}

impl DmmaModel {
    /// The model of a spec that validates.
    pub(super) fn new(spec: &Spec, dmma: &DmmaSpec) -> Self {
        let [tile_m, tile_n, tile_k] = [spec.tile.m, spec.tile.n, spec.tile.k].map(f64::from);
        let warps = f64::from(dmma.warps.count());
        let (warp_m, warp_n) = dmma.warp_tile(spec.tile);
        let slower = if dmma.warps.warpgroups() == 1 {
            MATH_FACTOR_FOUR_WARPS
        } else {
            MATH_FACTOR_EIGHT_WARPS
        };
        let math = tile_m * tile_n * tile_k / MACS_PER_CYCLE * slower;
        let stage_bytes = f64::from(spec.stage_bytes());
        let fragments = warps * f64::from(warp_m + warp_n) * tile_k * BYTES;
        let shared = (fragments + stage_bytes) / SMEM_BYTES_PER_CYCLE;
        let fill = stage_bytes / L2_BYTES_PER_CYCLE;
        let late = LOAD_LATENCY_CYCLES / f64::from(spec.stages);
        let bounds = [math, shared, fill, late].map(fourth_power);
        DmmaModel {
            elements: tile_m * tile_n,
            stage: bounds.into_iter().sum::<f64>().sqrt().sqrt() + STAGE_CYCLES,
            epilogue: EPILOGUE_CYCLES + EPILOGUE_CYCLES_PER_ELEMENT * tile_m * tile_n,
        }
    }

    /// Estimated cycles of a choice of this spec.
    pub(super) fn cycles(&self, placement: &TilePlacement, run: RunChoice) -> f64 {
        let work = placement.decompose(run.split);
        let Decomposition { tiles, k_tiles, split_tiles, workers, clusters } = work;
        // The work of the busiest CTA.
        let whole = tiles - split_tiles;
        let whole_turns = whole.div_ceil(clusters) as f64;
        let worker_turns = workers.div_ceil(clusters) as f64;
        let share = split_tiles.saturating_mul(k_tiles).div_ceil(workers.max(1)) as f64;
        let of_both = |whole: f64, workers: f64| whole * k_tiles as f64 + workers * share;
        let parts = worker_turns * split_tiles.div_ceil(workers.max(1)) as f64;
        let of_tile = REDUCTION_CYCLES_PER_ELEMENT * self.elements;
        let reduction = reduction_cycles(&work, parts, REDUCTION_CYCLES, of_tile);
        let busy = of_both(whole_turns, worker_turns) * self.stage
            + (whole_turns + parts) * self.epilogue
            + reduction;
        // The busiest pair's fraction of the work is also its fraction of the DRAM traffic.
        let pairs = f64::from(placement.sms) / 2.0;
        let in_pair = of_both(placement.in_pair(whole), placement.in_pair(workers));
        let of_pair = (in_pair / (tiles.max(1) * k_tiles) as f64).max(1.0 / pairs);
        let dram = placement.traffic(BYTES) * of_pair / DRAM_BYTES_PER_CYCLE;
        let launch = LAUNCH_CYCLES + if run.dependent_launch { 0.0 } else { SERIAL_CYCLES };
        (fourth_power(busy) + fourth_power(dram)).sqrt().sqrt() + launch
    }
}
