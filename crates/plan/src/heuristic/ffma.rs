//! The model of f32 kernels: waves of tiles or of workers that share some, each bound by the issue
//! of instructions, by shared memory or by the latency of a load; beside them the traffic of DRAM.
//! Its constants are counts of instructions, guesses, and two that races on an H200 gave.

use pgemm_kernels::{FfmaSpec, Spec};

use super::placement::TilePlacement;
use super::{
    DRAM_BYTES_PER_CYCLE, LATENCY, LAUNCH_CYCLES, SERIAL_CYCLES, fourth_power, reduction_cycles,
};
use crate::choice::Choice;
use crate::decomposition::Decomposition;

/// Bytes of an element.
const BYTES: f64 = 4.0;

/// Threads of which an SM issues an instruction in a cycle.
const THREADS_PER_CYCLE: f64 = 128.0;

/// Time of multiply-adds over that at one in each cycle: some read two registers of a bank, as
/// ptxas places them, more of them where a thread has more than 128 sums. Measured at 4096³ and
/// 8192³.
const MATH: f64 = 1.18;
const MATH_OF_MANY: f64 = 1.22;

/// The time of a CTA of four consumer warps, one for each scheduler, over that of its instructions:
/// two such CTAs that share an SM take hardly longer than one. Measured at 1024³ and 4096³.
const ONE_WARP: f64 = 2.2;

/// Instructions of a stage beside loads and multiply-adds.
const STAGE_INSTRUCTIONS: f64 = 36.0;

/// Bytes of shared memory that reach registers per cycle.
const SMEM_BYTES_PER_CYCLE: f64 = 128.0;

/// Cycles of a barrier that all warps wait at, which the other CTA of the SM hides where there is
/// one.
const STAGE_CYCLES: f64 = 40.0;

/// Cycles of a tile's epilogue, and for each element of it: while sums are stored nothing is
/// multiplied.
const EPILOGUE_CYCLES: f64 = 1000.0;
const EPILOGUE_PER_ELEMENT: f64 = 0.1;

/// Cycles of handing in the sums of a part of a tile, and of reading those of each part, beside
/// what each element takes of them, which 2048³ in 132 parts and 512×512×8192 in 128 showed.
const REDUCTION_CYCLES: f64 = 1500.0;
const REDUCTION_PER_ELEMENT: f64 = 0.27;

/// What the estimates of a spec need for every problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct FfmaModel {
    /// Elements of a tile of D.
    elements: f64,
    /// CTAs that work on an SM at once.
    ctas_per_sm: u32,
    /// Cycles of a stage and of an epilogue where a CTA has the SM to itself.
    stage: f64,
    epilogue: f64,
    /// Cycles that an SM cannot do with fewer of for a stage, however many CTAs share it.
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
        let math = if sums > 128.0 { MATH_OF_MANY } else { MATH };
        let instructions = tile_k * (sums * math + lines / 4.0) + STAGE_INSTRUCTIONS;
        let issue = threads * instructions / THREADS_PER_CYCLE;
        let shared = threads * lines * tile_k * BYTES / SMEM_BYTES_PER_CYCLE;
        let late = LATENCY / f64::from(spec.stages);
        let alone = if ffma.warps.warpgroups() == 1 { ONE_WARP } else { 1.0 };
        let busy = fourth_power(issue) + fourth_power(shared);
        FfmaModel {
            elements: tile_m * tile_n,
            ctas_per_sm: ffma.ctas_per_sm(),
            stage: alone * (busy + fourth_power(late)).sqrt().sqrt() + STAGE_CYCLES,
            epilogue: EPILOGUE_CYCLES + EPILOGUE_PER_ELEMENT * tile_m * tile_n,
            busy_stage: busy.sqrt().sqrt(),
        }
    }

    /// Estimated cycles of a choice of this spec.
    pub(super) fn cycles(&self, placement: &TilePlacement, choice: &Choice) -> f64 {
        let work = placement.decompose(choice.split);
        let Decomposition { tiles, k_tiles, split_tiles, workers, .. } = work;
        let (sms, at_once) = (u64::from(placement.sms), u64::from(self.ctas_per_sm));
        // The whole tiles and the workers of an SM, and how many of each follow each other.
        let whole = (tiles - split_tiles).div_ceil(sms);
        let of_sm = workers.div_ceil(sms);
        let share = split_tiles.saturating_mul(k_tiles).div_ceil(workers.max(1)) as f64;
        let parts = split_tiles.div_ceil(workers.max(1)) as f64;
        let of_tile = REDUCTION_PER_ELEMENT * self.elements;
        let reduction = reduction_cycles(&work, parts, REDUCTION_CYCLES, of_tile);
        let of_whole = k_tiles as f64 * self.stage + self.epilogue;
        let of_worker = share * self.stage + parts * self.epilogue;
        let alone =
            whole.div_ceil(at_once) as f64 * of_whole + of_sm.div_ceil(at_once) as f64 * of_worker;
        let stages = whole as f64 * k_tiles as f64 + of_sm as f64 * share;
        let busy = alone.max(stages * self.busy_stage + self.epilogue) + reduction;
        // What all pairs of SMs take up, as far as there is work for them.
        let pairs = f64::from(placement.sms) / 2.0;
        let in_pair = placement.in_pair(tiles - split_tiles) * k_tiles as f64
            + placement.in_pair(workers) * share;
        let of_pair = (in_pair / (tiles.max(1) * k_tiles) as f64).max(1.0 / pairs);
        let dram = placement.traffic(BYTES) * of_pair / DRAM_BYTES_PER_CYCLE;
        let launch = LAUNCH_CYCLES + if choice.dependent_launch { 0.0 } else { SERIAL_CYCLES };
        (fourth_power(busy) + fourth_power(dram)).sqrt().sqrt() + launch
    }
}
