//! The cost model of f32 kernels. Work comes in waves of whole tiles and of workers that share
//! split tiles. Each stage is bound by instruction issue, shared memory or the latency of a load,
//! and the whole by DRAM traffic. The constants are counts of instructions or guesses, except where
//! a measurement on an H200 is named.

use pgemm_kernels::{FfmaSpec, Spec};

use super::placement::{RunChoice, TilePlacement};
use super::{
    DRAM_BYTES_PER_CYCLE, LAUNCH_CYCLES, LOAD_LATENCY_CYCLES, SERIAL_CYCLES, fourth_power,
    reduction_cycles,
};
use crate::decomposition::Decomposition;

/// Bytes of an element.
const BYTES: f64 = 4.0;

/// Threads for which an SM issues an instruction per cycle.
const THREADS_PER_CYCLE: f64 = 128.0;

/// Factors by which multiply-adds take longer than one issue slot each. Some read two registers of
/// the same bank, as ptxas assigns them. There are more of these when a thread has more than
/// [`MANY_SUMS`] sums. Measured at 4096³ and 8192³ on an H200.
const MATH_FACTOR: f64 = 1.18;
const MATH_FACTOR_MANY_SUMS: f64 = 1.22;
const MANY_SUMS: f64 = 128.0;

/// Factor by which a CTA of four consumer warps, one for each scheduler, takes longer than the
/// issue of its instructions. Two such CTAs on one SM take hardly longer than one. Measured at
/// 1024³ and 4096³ on an H200.
const ALONE_FACTOR_FOUR_WARPS: f64 = 2.2;

/// Instructions of a stage apart from loads and multiply-adds.
const STAGE_INSTRUCTIONS: f64 = 36.0;

/// Elements that one instruction loads from shared memory: 16 bytes.
const ELEMENTS_PER_LOAD: f64 = 4.0;

/// Bytes of shared memory that reach registers per cycle.
const SMEM_BYTES_PER_CYCLE: f64 = 128.0;

/// Cycles of a barrier that all warps wait at. A second CTA on the SM hides them.
const STAGE_CYCLES: f64 = 40.0;

/// Cycles of a tile's epilogue, and for each element of the tile. The epilogue does not overlap
/// with multiply-adds of the same CTA.
const EPILOGUE_CYCLES: f64 = 1000.0;
const EPILOGUE_CYCLES_PER_ELEMENT: f64 = 0.1;

/// Cycles to store the sums of one part of a tile, and additional cycles for each element stored or
/// read. The latter was fitted to 2048³ in 132 parts and 512×512×8192 in 128 parts.
const REDUCTION_CYCLES: f64 = 1500.0;
const REDUCTION_CYCLES_PER_ELEMENT: f64 = 0.27;

/// The terms of the model that depend on the spec alone. They serve for every problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct FfmaModel {
    /// Elements of a tile of D.
    elements: f64,
    /// CTAs that run on one SM at the same time.
    ctas_per_sm: u32,
    /// Cycles of a stage and of an epilogue if the CTA has the SM to itself.
    stage: f64,
    epilogue: f64,
    /// Fewest cycles of a stage on an SM, however many CTAs share it.
    busy_stage: f64,
}

impl FfmaModel {
    /// The model of a spec that validates.
    pub(super) fn new(spec: &Spec, ffma: &FfmaSpec) -> Self {
        let [tile_m, tile_n, tile_k] = [spec.tile.m, spec.tile.n, spec.tile.k].map(f64::from);
        let [thread_m, thread_n] = [ffma.thread.m, ffma.thread.n].map(f64::from);
        let threads = f64::from(ffma.warps.warpgroups()) * 128.0;
        let lines = thread_m + thread_n;
        let sums = thread_m * thread_n;
        let math = if sums > MANY_SUMS { MATH_FACTOR_MANY_SUMS } else { MATH_FACTOR };
        let instructions = tile_k * (sums * math + lines / ELEMENTS_PER_LOAD) + STAGE_INSTRUCTIONS;
        let issue = threads * instructions / THREADS_PER_CYCLE;
        let shared = threads * lines * tile_k * BYTES / SMEM_BYTES_PER_CYCLE;
        let late = LOAD_LATENCY_CYCLES / f64::from(spec.stages);
        let alone = if ffma.warps.warpgroups() == 1 { ALONE_FACTOR_FOUR_WARPS } else { 1.0 };
        let busy = fourth_power(issue) + fourth_power(shared);
        FfmaModel {
            elements: tile_m * tile_n,
            ctas_per_sm: ffma.ctas_per_sm(),
            stage: alone * (busy + fourth_power(late)).sqrt().sqrt() + STAGE_CYCLES,
            epilogue: EPILOGUE_CYCLES + EPILOGUE_CYCLES_PER_ELEMENT * tile_m * tile_n,
            busy_stage: busy.sqrt().sqrt(),
        }
    }

    /// Estimated cycles of a choice of this spec.
    pub(super) fn cycles(&self, placement: &TilePlacement, run: RunChoice) -> f64 {
        let work = placement.decompose(run.split);
        let Decomposition { tiles, k_tiles, split_tiles, workers, .. } = work;
        let (sms, at_once) = (u64::from(placement.sms), u64::from(self.ctas_per_sm));
        // The whole tiles and the workers of one SM.
        let whole = (tiles - split_tiles).div_ceil(sms);
        let of_sm = workers.div_ceil(sms);
        let share = split_tiles.saturating_mul(k_tiles).div_ceil(workers.max(1)) as f64;
        let parts = split_tiles.div_ceil(workers.max(1)) as f64;
        let of_tile = REDUCTION_CYCLES_PER_ELEMENT * self.elements;
        let reduction = reduction_cycles(&work, parts, REDUCTION_CYCLES, of_tile);
        let of_whole = k_tiles as f64 * self.stage + self.epilogue;
        let of_worker = share * self.stage + parts * self.epilogue;
        let alone =
            whole.div_ceil(at_once) as f64 * of_whole + of_sm.div_ceil(at_once) as f64 * of_worker;
        let stages = whole as f64 * k_tiles as f64 + of_sm as f64 * share;
        let busy = alone.max(stages * self.busy_stage + self.epilogue) + reduction;
        // The busiest pair's fraction of the work is also its fraction of the DRAM traffic.
        let pairs = f64::from(placement.sms) / 2.0;
        let in_pair = placement.in_pair(tiles - split_tiles) * k_tiles as f64
            + placement.in_pair(workers) * share;
        let of_pair = (in_pair / (tiles.max(1) * k_tiles) as f64).max(1.0 / pairs);
        let dram = placement.traffic(BYTES) * of_pair / DRAM_BYTES_PER_CYCLE;
        let launch = LAUNCH_CYCLES + if run.dependent_launch { 0.0 } else { SERIAL_CYCLES };
        (fourth_power(busy) + fourth_power(dram)).sqrt().sqrt() + launch
    }
}
