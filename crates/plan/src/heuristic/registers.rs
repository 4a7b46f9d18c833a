//! The cost model of f64 and f32 kernels, whose threads add up products of elements in registers
//! and store D from there. Work comes in waves of whole tiles and of workers that share split
//! tiles. Each stage is bound by its multiply-adds, shared memory, L2 or the latency of a load, and
//! the whole by DRAM traffic. The [`RegisterConstants`] of each instruction are fitted.

use pgemm_ir::WARPGROUP_THREADS;
use pgemm_kernels::{DmmaSpec, FfmaSpec, Spec, Warps};

use super::constants::RegisterConstants;
use super::estimate::{Estimate, SpecTerms};
use super::placement::{RunChoice, TilePlacement, part_missed};
use super::{fourth_power, reduction_cycles};
use crate::decomposition::Decomposition;
use crate::split::Split;

/// f64 multiply-adds of one SM's tensor cores per cycle: 67 TFLOP/s on 132 SMs at 1.98 GHz
/// (NVIDIA's data sheet of the H100).
const F64_MACS_PER_CYCLE: f64 = 128.0;

/// Threads for which an SM issues an instruction per cycle.
const THREADS_PER_CYCLE: f64 = 128.0;

/// f32 multiply-adds of an issue slot take longer if a thread has more sums than this: more of them
/// read two registers of the same bank, as ptxas assigns them. The factor was measured at 4096³ and
/// 8192³ on an H200.
const MANY_SUMS: f64 = 128.0;
const MANY_SUMS_FACTOR: f64 = 1.034;

/// Instructions of a stage of an f32 kernel apart from loads and multiply-adds.
const STAGE_INSTRUCTIONS: f64 = 36.0;

/// Elements that one instruction of an f32 kernel loads from shared memory: 16 bytes.
const ELEMENTS_PER_LOAD: f64 = 4.0;

/// The first CTAs of a launch, one for so many SMs, are on SMs of their own. Later ones may join
/// one of them while other SMs have none. On an H200 of 132 SMs, the 37th CTA was the first in one
/// launch of three, and the 73rd in the others (`benchmarks/probes/cta-placement.cu`).
const FIRST_PAIR: u64 = 4;

/// Cycles to transpose an element of a K-major operand of an f32 kernel. In surveys of 160
/// problems (runs `2026-11-25-exact-*`), kernels of 128×64 tiles that transposed A and B
/// multiplied 11 % slower in the median than those that transposed nothing.
const TRANSPOSED_ELEMENT: f64 = 0.037;

/// The terms of the model that depend on the spec alone. They serve for every problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterModel<'c> {
    constants: &'c RegisterConstants,
    /// Bytes of an element.
    bytes: f64,
    /// Bytes that a CTA loads for a stage, extents of a cluster tile, and the sums of a thread.
    loaded_bytes: f64,
    tile: [f64; 2],
    sums: f64,
    /// CTAs that work on one SM at the same time, and CTAs of a cluster.
    ctas_per_sm: u32,
    cluster_size: u64,
    /// Cycles of a stage and of an epilogue if the CTA has the SM to itself.
    stage: f64,
    epilogue: f64,
    /// Fewest cycles of a stage on an SM, however many CTAs share it, and those of its loads.
    busy_stage: f64,
    fill: f64,
    pub(super) of_spec: SpecTerms,
}

impl<'c> RegisterModel<'c> {
    /// The model of a valid f64 spec.
    pub(super) fn dmma(spec: &Spec, dmma: &DmmaSpec, constants: &'c RegisterConstants) -> Self {
        let [tile_m, tile_n, tile_k] = [spec.tile.m, spec.tile.n, spec.tile.k].map(f64::from);
        let (warp_m, warp_n) = dmma.warp_tile(spec.tile);
        let math = tile_m * tile_n * tile_k / F64_MACS_PER_CYCLE;
        let read = f64::from(dmma.warps.count() * (warp_m + warp_n)) * tile_k;
        Self::new(spec, constants, math, read, dmma.warps)
    }

    /// The model of a valid f32 spec.
    pub(super) fn ffma(spec: &Spec, ffma: &FfmaSpec, constants: &'c RegisterConstants) -> Self {
        let [thread_m, thread_n, tile_k] =
            [ffma.thread.m, ffma.thread.n, spec.tile.k].map(f64::from);
        let threads = f64::from(ffma.warps.warpgroups() * WARPGROUP_THREADS);
        let lines = thread_m + thread_n;
        let sums = thread_m * thread_n;
        let factor = if sums > MANY_SUMS { MANY_SUMS_FACTOR } else { 1.0 };
        let instructions =
            tile_k * (sums * factor + lines / ELEMENTS_PER_LOAD) + STAGE_INSTRUCTIONS;
        let transposition = f64::from(spec.transposed_elements()) * TRANSPOSED_ELEMENT;
        let issue = threads * instructions / THREADS_PER_CYCLE + transposition;
        Self::new(spec, constants, issue, threads * lines * tile_k, ffma.warps)
    }

    /// The model of a spec whose stage takes so many cycles at the full rate, and whose threads
    /// read so many elements of it from shared memory.
    fn new(
        spec: &Spec,
        constants: &'c RegisterConstants,
        math: f64,
        read: f64,
        warps: Warps,
    ) -> Self {
        let bytes = f64::from(spec.a.bytes());
        let tile = [spec.tile.m, spec.tile.n].map(f64::from);
        let elements = tile[0] * tile[1];
        let stage_bytes = f64::from(spec.stage_bytes());
        // CTAs of a cluster load parts of the operands that they share.
        let cluster = [spec.cluster.m, spec.cluster.n].map(f64::from);
        let lines = tile[0] / cluster[1] + tile[1] / cluster[0];
        let loaded_bytes = stage_bytes * lines / (tile[0] + tile[1]);
        let ctas_per_sm = spec.working_ctas_per_sm();
        let math = math * constants.math_factor;
        let alone = if spec.consumers() == 1 { constants.four_warps_factor } else { 1.0 };
        let shared = (read * bytes + stage_bytes) / constants.smem_bytes_per_cycle;
        let fill = loaded_bytes / constants.l2_bytes_per_cycle;
        let late = constants.load_latency / f64::from(spec.stages);
        let busy = [math, shared, fill].map(fourth_power).into_iter().sum::<f64>();
        let of_cta = fourth_power(alone * math) - fourth_power(math) + fourth_power(late);
        RegisterModel {
            constants,
            bytes,
            tile: [tile[0] * cluster[0], tile[1] * cluster[1]],
            loaded_bytes,
            sums: elements / f64::from(spec.consumers() * WARPGROUP_THREADS),
            ctas_per_sm,
            cluster_size: u64::from(spec.cluster.size()),
            stage: (busy + of_cta).sqrt().sqrt() + constants.stage_cycles,
            epilogue: constants.epilogue_cycles + constants.epilogue_cycles_per_element * elements,
            busy_stage: busy.sqrt().sqrt(),
            fill,
            of_spec: SpecTerms {
                math,
                shared,
                stored: 0.0,
                steps: 0.0,
                ctas_per_sm: f64::from(ctas_per_sm),
                of_warp: [tile[0] / f64::from(warps.m), tile[1] / f64::from(warps.n)],
            },
        }
    }

    /// The whole tiles, or the workers, that the busiest SM gets of so many. Each CTA gets one in
    /// turn. A launch of no more CTAs than SMs puts one on each. If there are clusters, these are
    /// clusters and the SMs that a cluster takes.
    fn of_busiest_sm(&self, units: u64, sms: u64) -> u64 {
        let at_once = u64::from(self.ctas_per_sm);
        if units <= sms {
            return units.min(1);
        }
        let (full, rest) = (units / (sms * at_once), units % (sms * at_once));
        let of_rest = if rest * FIRST_PAIR <= sms { rest.min(1) } else { at_once };
        full * at_once + of_rest
    }

    /// What the estimate of a choice is made of.
    pub(super) fn estimate(&self, placement: &TilePlacement, run: RunChoice) -> Estimate {
        let constants = self.constants;
        let work = placement.decompose(run.split);
        let Decomposition { tiles, k_tiles, split_tiles, workers, .. } = work;
        let at_once = u64::from(self.ctas_per_sm);
        let sms = placement.clusters / at_once;
        // The whole tiles and the workers of one SM.
        let whole = tiles - split_tiles;
        let [whole_of_sm, workers_of_sm] =
            [whole, workers].map(|units| self.of_busiest_sm(units, sms));
        let split_stages = split_tiles.saturating_mul(k_tiles);
        let share = split_stages.div_ceil(workers.max(1));
        // Unless every worker's share ends with a tile, or a whole number of them make one, the
        // share of some workers begins and ends inside of tiles.
        let even =
            split_stages.is_multiple_of(workers.max(1)) && k_tiles.is_multiple_of(share.max(1));
        let parts = if even { 1.0 } else { 2.0 };
        let of_tile = constants.reduction_cycles_per_sum * self.sums;
        let reduction = reduction_cycles(&work, parts, constants.reduction_cycles, of_tile);
        let finished = split_tiles.div_ceil(workers.max(1)) as f64;
        let share = share as f64;
        let of_whole = k_tiles as f64 * self.stage + self.epilogue;
        let of_worker = share * self.stage + finished * self.epilogue;
        // Workers begin, and whole tiles follow.
        let busy = |units: u64, cycles: f64, stages: f64| {
            let alone = units.div_ceil(at_once) as f64 * cycles;
            let shared = units as f64 * stages * self.busy_stage;
            alone.max(if units > 0 { shared + self.epilogue } else { 0.0 })
        };
        let busy_whole = busy(whole_of_sm, of_whole, k_tiles as f64);
        let busy_split = busy(workers_of_sm, of_worker, share);
        let of_both =
            |[whole, workers]: [u64; 2]| whole as f64 * k_tiles as f64 + workers as f64 * share;
        // The busiest pair's fraction of the work is also its fraction of the DRAM traffic. Every
        // pair gets a unit before any gets a second. A slower memory than an H200's takes longer
        // once many pairs read from it.
        let pairs = (sms * self.cluster_size / 2).max(1);
        let in_pair = of_both([whole, workers].map(|units| match self.cluster_size {
            1 => units.div_ceil(pairs),
            _ => units.div_ceil(sms),
        }));
        // A larger cluster takes several pairs.
        let in_pair = in_pair * (2.0 / self.cluster_size as f64).min(1.0);
        let all_stages = (tiles.max(1) * k_tiles) as f64;
        let of_pair = (in_pair / all_stages).max(placement.memory_factor / pairs as f64);
        let read = placement.read(self.bytes);
        let missed = if run.split == Split::StreamK && workers > 0 {
            placement.missed(&work, self.tile, self.bytes, run.raster_rows)
        } else {
            // Tiles that began together are ever further apart.
            let ctas = (tiles + workers).min(placement.clusters) * self.cluster_size;
            let apart = constants.drift * k_tiles as f64 * ctas as f64 * self.loaded_bytes;
            let again = read - placement.operands(self.bytes).into_iter().sum::<f64>();
            again.max(0.0) * part_missed(apart)
        };
        let of_traffic = |bytes: f64| bytes * of_pair / constants.bytes_per_cycle_of_pair;
        let [m, n, _] = placement.extents;
        let results = m * n * placement.batch as f64 * self.bytes;
        let traffic = placement.traffic(self.bytes);
        let dram = of_traffic(traffic) + results / constants.result_bytes_per_cycle;
        let of_missed = of_traffic(missed);
        let l2 = read / constants.l2_bytes_per_cycle_of_all;
        let serial = if run.dependent_launch { 0.0 } else { constants.serial_cycles };
        let launch = constants.launch_cycles + serial;
        let part = split_tiles as f64 / tiles.max(1) as f64;
        let missed_split = if part > 0.0 { of_missed } else { 0.0 };
        let limits = |busy: f64, part: f64, missed: f64| {
            let terms = [busy, part * dram + missed, part * l2];
            terms.map(fourth_power).into_iter().sum::<f64>().sqrt().sqrt()
        };
        let cycles = limits(busy_split, part, missed_split)
            + limits(busy_whole, 1.0 - part, of_missed - missed_split)
            + reduction
            + launch;
        let turns = [whole_of_sm, workers_of_sm].map(|units| units.div_ceil(at_once) as f64);
        Estimate {
            cycles,
            busy: busy_split + busy_whole,
            // The traffic of the busiest pair is that of DRAM here, apart from what is read again.
            of_pair: of_missed,
            dram,
            l2,
            reduction,
            launch,
            epilogues: (turns[0] + turns[1] * finished) * self.epilogue,
            stage: self.stage,
            fill: self.fill,
            turns: turns[0] + turns[1],
            whole_turns: turns[0],
            contributors: work.contributors() as f64,
            line_bytes: 1.0,
            busiest: in_pair / all_stages * pairs as f64,
            stages: of_both([whole_of_sm, workers_of_sm]),
            occupied: ((tiles - split_tiles + workers) as f64 / placement.clusters as f64).min(1.0),
            results: results / (traffic + missed),
            missed: missed / (traffic + missed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heuristic::constants::Constants;

    #[test]
    fn the_busiest_sm_gets_whole_turns_and_what_is_left() {
        let constants = Constants::fitted();
        let busiest = |name: &str, units: [u64; 7]| {
            let spec: Spec = name.parse().unwrap();
            let pgemm_kernels::MainloopSpec::Dmma(dmma) = &spec.mainloop else { panic!("{name}") };
            let model = RegisterModel::dmma(&spec, dmma, &constants.dmma);
            units.map(|units| model.of_busiest_sm(units, 132))
        };
        // Two CTAs work on an SM.
        let pair = "f64-kk-f64-64x64x16-s7-w2x2-k8";
        assert_eq!(busiest(pair, [0, 1, 132, 133, 264, 297, 298]), [0, 1, 1, 2, 2, 3, 4]);
        // One does.
        let single = "f64-kk-f64-128x128x16-s6-w2x4-k8";
        assert_eq!(busiest(single, [0, 1, 132, 133, 264, 265, 396]), [0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn slower_memory_takes_longer_where_it_is_the_limit() {
        use crate::heuristic::{Shape, cycles_with};
        use crate::{Choice, Config, DeviceFacts, Major, Problem};
        let choice = Choice::plain("f64-mn-f64-48x64x16-s7-w1x4-k8".parse().unwrap());
        let ratio = |m, n, k| {
            let config = Config::new(pgemm_ir::Element::F64);
            let shape = Shape::of(&Problem::new(m, n, k, Major::M, Major::N), &config);
            let h200 = DeviceFacts::new(132);
            let h100 = h200.with_memory_mb_per_second(3_352_320);
            let cycles = |device| cycles_with(&Constants::fitted(), &choice, shape, device);
            cycles(h100) / cycles(h200)
        };
        // One column of tiles reads each matrix once. A cube reads operands from L2.
        let (streamed, cube) = (ratio(48, 16256, 16216), ratio(4096, 4096, 4096));
        assert!(streamed > 1.1, "{streamed}");
        assert!((1.0..1.02).contains(&cube), "{cube}");
    }
}
