//! The cost model of wgmma kernels.
//!
//! [`WgmmaConstants`] were fitted to 16,685 timings on H200s: of problems that seeds drew, each with up
//! to 20 kernels of the catalogue's rule (all runs of `benchmarks/results/rule.jsonl`; bf16, f16,
//! tf32, e4m3 and s8), and of the suite (`survey.jsonl`). `pgemm atlas --fit` fits them. The
//! constants of this module say themselves where they come from.

use pgemm_ir::WARPGROUP_THREADS;
use pgemm_kernels::{Cluster, Loader, OutputMajor, Schedule, Side, Spec, Terms, WgmmaSpec};

use super::constants::WgmmaConstants;
use super::estimate::{Estimate, SpecTerms};
use super::placement::{RunChoice, TilePlacement};
use super::{SERIAL_CYCLES, fourth_power};
use crate::decomposition::Decomposition;
use crate::split::Split;

/// Multiply-adds of one SM's tensor cores per cycle, times the bytes of an operand's element. The
/// rate is 2048 for 16-bit elements, 1024 for tf32 and 4096 for 8-bit elements.
const MAC_BYTES_PER_CYCLE: f64 = 4096.0;

/// Bytes of a pass.
const PASS_BYTES: f64 = 2048.0;

/// Additional cycles for each element of a tile when the activation contains an exponential. It was
/// fitted at 4096³ on an H200 to a kernel that overlaps its epilogue with nothing.
const ACTIVATION_CYCLES_PER_ELEMENT: f64 = 0.16;

/// Additional cycles between two large whole tiles of a cooperative kernel, for each byte of a tile
/// of D. During them the tensor cores are idle. It was fitted to pairs of cooperative and ping-pong
/// kernels (run `2026-11-22-turns*` of `benchmarks/results`): 128×256 takes 2 to 8 % longer as a
/// cooperative kernel when the tensor cores are the limit. Tiles below [`LARGE_TILE_ELEMENTS`],
/// promoted sums and stream-K showed no such gap. Kernels that read A from registers were not
/// measured.
const TILE_GAP_CYCLES_PER_BYTE: f64 = 0.05;

/// Fewest elements of a large tile of D: 128×256.
const LARGE_TILE_ELEMENTS: f64 = 32_768.0;

/// Factors by which MMAs with promoted sums take longer in tiles of up to 128 columns, and of up to
/// 192 columns, with one or two warpgroups. Wider tiles and three warpgroups wait less often. The
/// factors were fitted to races of ten e4m3 problems on H200s (run
/// `2026-11-22-last-e4m3-promoted-tiles-*` of `benchmarks/results`).
const MATH_FACTOR_PROMOTED_128: f64 = 1.17;
const MATH_FACTOR_PROMOTED_192: f64 = 1.03;

/// Factor by which MMAs that read A from registers take longer in ping-pong kernels than in
/// cooperative ones. It was fitted to 128×160 of tf32 at 16384×16384×4096 on an H200.
const MATH_FACTOR_REGISTERS_PING_PONG: f64 = 1.06;

/// Factor on the operands that are read again when neighbouring tiles of D run on neighbouring SMs,
/// so that their reads of the same lines merge before they reach L2. It was fitted to serial and
/// dependent launches of the suite's problems.
const MERGED_REREAD_FACTOR: f64 = 0.2832;

/// Bytes of operands per cycle that the SMs of one GPC receive, if no other SM reads the same ones:
/// about 1 TB/s. 64×16 tiles of 16×4608×3584 (bf16) in clusters of 4, of 2.3 MB each, take
/// 10.54 µs in a serial launch and 12.82 µs in a dependent one (`pgemm bench --also`, H200). That
/// fits three and four clusters in the busiest GPC.
const BYTES_PER_CYCLE_OF_GPC: f64 = 590.0;

/// Additional cycles of a launch with clusters when CTAs of a repack kernel are still on the
/// device. It was fitted to 511×513×1023 in bf16 with 64×48 and 64×64 tiles, with and without clusters.
const CLUSTER_CYCLES_AFTER_REPACK: f64 = 300.0;

/// Bytes along k of one MMA.
const MMA_DEPTH_BYTES: f64 = 32.0;

/// Warps of a warpgroup.
const WARPS: u32 = WARPGROUP_THREADS / 32;

/// Bytes of a line of L2.
const LINE_BYTES: f64 = 128.0;

/// The least that the tiles of any problem take, in cycles. Operands consist of whole lines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeastCycles {
    /// A stage of an SM's tiles, and what L2 takes for one of its stages while all SMs share it.
    pub(crate) stage: f64,
    pub(crate) sent: f64,
    /// The epilogue of the last tile, and what each other tile adds to its stages. In ping-pong
    /// kernels it runs beside these.
    pub(crate) epilogue: f64,
    pub(crate) turn: f64,
    pub(crate) in_turns: bool,
    /// The reduction of a tile that two workers share, what each of an SM's parts of tiles adds to
    /// it, and what each further worker adds.
    pub(crate) reduction: f64,
    pub(crate) of_part: f64,
    pub(crate) worker: f64,
    /// What an activation adds to each tile, and what threads that store D do.
    pub(crate) activation: f64,
    pub(crate) by_threads: f64,
    /// What DRAM takes for an element of A or B, and for one of D.
    pub(crate) element: f64,
    pub(crate) result: f64,
}

impl LeastCycles {
    /// The same with the epilogue's activation, if there is one, and with threads that store D, if
    /// they do.
    pub(crate) fn with_epilogue(self, activated: bool, by_threads: bool) -> LeastCycles {
        let of = |is: bool, cycles: f64| if is { cycles } else { 0.0 };
        let more = of(activated, self.activation) + of(by_threads, self.by_threads);
        let LeastCycles { epilogue, turn, .. } = self;
        LeastCycles { epilogue: epilogue + more, turn: turn + more, ..self }
    }

    /// The stages and epilogues of an SM.
    pub(crate) fn busy(&self, stages: f64, turns: f64) -> f64 {
        let (stages, beside) = (stages * self.stage, (turns - 1.0) * self.turn);
        self.epilogue + if self.in_turns { stages.max(beside) } else { stages + beside }
    }
}

/// What a tile takes: bytes of L2 lines that are sent to an SM for a stage, the cycles of these,
/// of a stage and of an epilogue, and bytes of L2 lines that are written for each byte of D.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileCycles {
    sent: f64,
    fill: f64,
    stage: f64,
    epilogue: f64,
    line_bytes: f64,
}

/// The terms of the model that depend on the spec alone. They serve for every problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct WgmmaModel<'c> {
    constants: &'c WgmmaConstants,
    schedule: Schedule,
    /// Bytes of one element of A or B (all its terms together), and of one element of D.
    operand_bytes: f64,
    output_bytes: f64,
    /// CTAs of a cluster along m and n.
    cluster: [f64; 2],
    tile_m: f64,
    tile_n: f64,
    /// Bytes of one row of a stage (its depth along k), and bytes of the whole stage.
    depth_bytes: f64,
    stage_bytes: f64,
    /// Rows of A and columns of B that a stage holds, padding included.
    held: [f64; 2],
    /// CTAs that work on an SM at once.
    working: f64,
    /// The sum of the fourth powers of the cycles that a stage takes for the tensor cores, for
    /// shared memory, for the latency of its loads, and for threads that load operands.
    per_stage: f64,
    pub(super) of_spec: SpecTerms,
    /// Cycles of a warpgroup's epilogue apart from the L2 lines that its boxes touch, the number of
    /// pieces of D's lines that it stores, and the bytes of a piece.
    epilogue: f64,
    pieces: f64,
    piece_bytes: u64,
    /// Additional cycles when threads store D, and cycles between two tiles.
    by_threads: f64,
    between: f64,
    /// Cycles of a launch.
    launch: f64,
}

impl<'c> WgmmaModel<'c> {
    /// The model of a spec that validates.
    pub(super) fn new(spec: &Spec, wgmma: &WgmmaSpec, constants: &'c WgmmaConstants) -> Self {
        let tile = spec.tile;
        let [tile_m, tile_n, tile_k] = [tile.m, tile.n, tile.k].map(f64::from);
        let stage_bytes = f64::from(spec.stage_bytes());
        // Both operands have elements of one size.
        let depth_bytes = tile_k * f64::from(spec.a.bytes());
        let promotes = wgmma.promotion().is_some() && wgmma.terms.is_none();
        let in_turns = wgmma.schedule == Schedule::PingPong;
        let slower = match (promotes && wgmma.warpgroups < 3, tile.n) {
            (true, ..=128) => MATH_FACTOR_PROMOTED_128,
            (true, ..=192) => MATH_FACTOR_PROMOTED_192,
            (false, _) if spec.reads_a_from_registers() && in_turns => {
                MATH_FACTOR_REGISTERS_PING_PONG
            }
            _ => 1.0,
        };
        // Both operands have the same number of terms. `products` pairs of terms are multiplied.
        let terms = f64::from(wgmma.terms.map_or(1, Terms::count));
        let products = wgmma.terms.map_or(1.0, |terms| terms.products().len() as f64);
        let mmas = products * depth_bytes / MMA_DEPTH_BYTES * tile_m / 64.0;
        let math = products * tile_m * tile_n * depth_bytes / MAC_BYTES_PER_CYCLE
            * constants.math_factor
            * slower
            + constants.mma_cycles * mmas;
        // CTAs that work on an SM at once share its units. They wait at different times.
        let ctas = f64::from(spec.working_ctas_per_sm());
        let math = ctas * math;
        // Each m64 block's MMAs read its rows of A and all of B.
        let read = products * depth_bytes * (tile_m / 64.0) * (64.0 + tile_n);
        let shared = ctas * (read + stage_bytes) / constants.smem_bytes_per_cycle;
        let late = constants.load_latency / f64::from(spec.stages);
        let by_threads = [Side::M, Side::N].into_iter().zip([spec.a_tile(), spec.b_tile()]);
        let by_threads = by_threads.filter(|(side, _)| wgmma.loader(*side) == Loader::Threads);
        let passes: f64 = by_threads.map(|(_, tile)| f64::from(tile.bytes()) / PASS_BYTES).sum();
        let stored = match constants.cycles_per_pass * passes {
            0.0 => 0.0,
            some => {
                let in_flight = f64::from(spec.stages_in_flight());
                (ctas * some).max((constants.thread_load_latency + some) / in_flight)
            }
        };
        let per_stage = [math.max(constants.stage_cycles), shared, late, stored].map(fourth_power);

        let staging = spec.staging();
        let steps = f64::from(staging.steps());
        let lines = match spec.d_major {
            OutputMajor::N => 64,
            OutputMajor::M => staging.columns(),
        };
        // A warpgroup's part of a tile.
        let part = tile_n * 64.0 * f64::from(spec.blocks() * spec.output.bytes());
        let bytes = tile_m * tile_n * f64::from(spec.output.bytes());
        let ragged =
            spec.d_major == OutputMajor::N && !(tile.n * spec.output.bytes()).is_multiple_of(128);
        let large =
            tile_m * tile_n >= LARGE_TILE_ELEMENTS && !promotes && !spec.reads_a_from_registers();
        WgmmaModel {
            constants,
            schedule: wgmma.schedule,
            operand_bytes: terms * f64::from(spec.a.bytes()),
            output_bytes: f64::from(spec.output.bytes()),
            cluster: [spec.cluster.m, spec.cluster.n].map(f64::from),
            tile_m,
            tile_n,
            depth_bytes: terms * depth_bytes,
            stage_bytes,
            held: [spec.a_tile(), spec.b_tile()]
                .map(|operand| f64::from(operand.bytes()) / depth_bytes),
            working: ctas,
            per_stage: per_stage.into_iter().sum(),
            of_spec: SpecTerms {
                math,
                shared,
                stored,
                steps,
                ctas_per_sm: f64::from(spec.resources().ctas_per_sm),
                of_warp: [tile_m / f64::from(WARPS * spec.parts()), tile_n],
            },
            epilogue: constants.epilogue_cycles
                + constants.epilogue_cycles_per_step * steps
                + constants.epilogue_cycles_per_byte * part,
            pieces: steps * f64::from(lines),
            piece_bytes: u64::from(staging.line_bytes()),
            by_threads: constants.thread_store_cycles_per_byte * bytes / f64::from(spec.parts())
                * match (ragged, spec.d_major) {
                    (true, _) => constants.thread_store_factor_ragged,
                    (false, OutputMajor::M) => constants.thread_store_factor_column_major,
                    (false, OutputMajor::N) => 1.0,
                },
            between: if large && !in_turns { TILE_GAP_CYCLES_PER_BYTE * bytes } else { 0.0 },
            launch: constants.launch_cycles
                + constants.warpgroup_cycles * f64::from(spec.consumers())
                + if spec.cluster == Cluster::NONE { 0.0 } else { constants.any_cluster_cycles }
                + constants.cluster_cycles * f64::from(spec.cluster.size()).log2(),
        }
    }

    /// The least that the tiles of any problem take.
    pub(super) fn least_cycles(&self) -> LeastCycles {
        let [cluster_m, cluster_n] = self.cluster;
        let [held_a, held_b] = self.held;
        let sent = self.depth_bytes * (held_a / cluster_n + held_b / cluster_m);
        let fill = self.working * sent / self.constants.l2_bytes_per_cycle;
        let stage = (self.per_stage + fourth_power(fill)).sqrt().sqrt();
        let area = self.tile_m * self.tile_n;
        let (factor, turn) = match self.schedule {
            Schedule::Cooperative => (1.0, self.epilogue + self.between),
            Schedule::PingPong => (
                self.constants.ping_pong_factor,
                self.epilogue.max(self.constants.least_ping_pong_cycles),
            ),
        };
        // CTAs that work on an SM at once share its tiles.
        LeastCycles {
            stage: factor * stage / self.working,
            sent: sent / self.constants.l2_bytes_per_cycle_of_all,
            epilogue: self.epilogue,
            turn: turn / self.working,
            in_turns: self.schedule == Schedule::PingPong,
            reduction: self.constants.reduction_cycles,
            of_part: self.constants.reduction_cycles_per_element * area,
            worker: self.constants.reduction_cycles_per_worker,
            activation: ACTIVATION_CYCLES_PER_ELEMENT * area / self.working,
            by_threads: self.by_threads / self.working,
            element: self.operand_bytes / self.constants.dram_bytes_per_cycle,
            result: self.output_bytes / self.constants.dram_bytes_per_cycle,
        }
    }

    /// What a tile of the problem takes, however tiles are split and launched.
    pub(super) fn of_tile(&self, placement: &TilePlacement) -> TileCycles {
        let WgmmaModel { tile_m, tile_n, cluster: [cluster_m, cluster_n], .. } = *self;
        let [m, n, _] = placement.extents;
        let [held_a, held_b] = [self.held[0].min(m), self.held[1].min(n)];
        let outside = (self.stage_bytes - self.depth_bytes * (held_a + held_b)).max(0.0);
        let [of_a, of_b] = placement.lines;
        // L2 sends a tile of A once to the CTAs of a cluster along n, and a tile of B along m.
        let sent = self.depth_bytes * (held_a * of_a / cluster_n + held_b * of_b / cluster_m);
        let fill = self.working * (sent + self.constants.out_of_bounds_factor * outside)
            / self.constants.l2_bytes_per_cycle;
        let stage = (self.per_stage + fourth_power(fill)).sqrt().sqrt();
        let (lines, line_bytes) = self.lines_of_piece(placement.d_pitch);
        let activation = if placement.activated { ACTIVATION_CYCLES_PER_ELEMENT } else { 0.0 };
        let by_threads = if placement.by_threads { self.by_threads } else { 0.0 };
        let epilogue = self.epilogue
            + self.constants.epilogue_cycles_per_line * self.pieces * lines
            + by_threads
            + activation * tile_m * tile_n;
        TileCycles { sent, fill, stage, epilogue, line_bytes }
    }

    /// What the estimate of a choice is made of.
    pub(super) fn estimate(
        &self,
        placement: &TilePlacement,
        of_tile: &TileCycles,
        run: RunChoice,
    ) -> Estimate {
        let RunChoice { raster_rows, split, dependent_launch } = run;
        let WgmmaModel { tile_m, tile_n, cluster: [cluster_m, cluster_n], .. } = *self;
        let [m, n, _] = placement.extents;
        let work = placement.decompose(split);
        let Decomposition { tiles, k_tiles, split_tiles, workers, clusters } = work;

        // The work of the busiest cluster: its stages, and its whole tiles and parts of tiles.
        let whole = tiles - split_tiles;
        let whole_turns = whole.div_ceil(clusters);
        let (share, worker_turns, worker_tiles) = match workers {
            0 => (0, 0, 0),
            _ => (
                split_tiles.saturating_mul(k_tiles).div_ceil(workers),
                workers.div_ceil(clusters),
                split_tiles.div_ceil(workers),
            ),
        };
        let of_both = |whole: f64, workers: f64| whole * k_tiles as f64 + workers * share as f64;
        let stages = of_both(whole_turns as f64, worker_turns as f64);
        let turns = (whole_turns + worker_turns * worker_tiles) as f64;

        let streams = split == Split::StreamK && workers > 0;
        let merged = !dependent_launch && placement.may_merge(split);

        let TileCycles { sent, fill, stage, epilogue, line_bytes } = *of_tile;
        let busy = match self.schedule {
            Schedule::Cooperative => stages * stage + turns * epilogue,
            Schedule::PingPong => {
                let beside =
                    (turns - 1.0).max(0.0) * epilogue.max(self.constants.least_ping_pong_cycles);
                let both = fourth_power(self.constants.ping_pong_factor * stages * stage)
                    + fourth_power(beside);
                both.sqrt().sqrt() + epilogue
            }
        };

        let [a, b] = placement.operands(self.operand_bytes);
        let results = self.output_bytes * m * n * placement.batch as f64;
        let read_again = if merged {
            MERGED_REREAD_FACTOR * self.constants.reread_fraction
        } else {
            self.constants.reread_fraction
        };
        let again = read_again * placement.read_again([a, b]);
        let (missed, step) = if streams {
            let tile = [self.tile_m * cluster_m, self.tile_n * cluster_n];
            let missed = placement.missed(&work, tile, self.operand_bytes, raster_rows);
            (missed, self.constants.stream_k_factor)
        } else {
            (0.0, 1.0)
        };
        let traffic = a + b + results + again + missed;
        let pairs = f64::from(placement.sms) / 2.0;
        let in_pair = of_both(placement.in_pair(whole), placement.in_pair(workers));
        let all_stages = tiles as f64 * k_tiles as f64;
        let of_pair = (in_pair / all_stages).max(1.0 / pairs);
        let of_pair = traffic * of_pair / self.constants.bytes_per_cycle_of_pair;
        let of_gpc = placement
            .busiest_gpc(split, dependent_launch)
            .map_or(0.0, |busiest| traffic * busiest / clusters as f64 / BYTES_PER_CYCLE_OF_GPC);
        let dram = placement.memory_factor * traffic / self.constants.dram_bytes_per_cycle
            + results * line_bytes / self.constants.d_line_bytes_per_cycle;
        let l2 =
            all_stages * cluster_m * cluster_n * sent / self.constants.l2_bytes_per_cycle_of_all;
        // If memory is the limit, the ring fills during the gap between tiles, so the gap costs
        // nothing.
        let memory = of_pair.max(dram).max(l2);
        let pauses = if busy > memory { whole_turns.saturating_sub(1) as f64 } else { 0.0 };
        let busy = busy + pauses * self.between;

        let reduction = match work.contributors() {
            0 => 0.0,
            parts => {
                self.constants.reduction_cycles
                    + self.constants.reduction_cycles_per_worker * parts.saturating_sub(2) as f64
                    + self.constants.reduction_cycles_per_element
                        * worker_turns as f64
                        * tile_m
                        * tile_n
            }
        };
        let launch = self.launch
            + if dependent_launch { 0.0 } else { SERIAL_CYCLES }
            + if placement.cluster_size > 1 && placement.after_repack {
                CLUSTER_CYCLES_AFTER_REPACK
            } else {
                0.0
            };
        let bounds = [busy, of_pair, of_gpc, dram, l2].map(fourth_power);
        let cycles = step * (bounds.into_iter().sum::<f64>().sqrt().sqrt() + reduction + launch);
        Estimate {
            cycles,
            busy,
            of_pair,
            dram,
            l2,
            reduction,
            launch,
            epilogues: turns * epilogue,
            stage,
            fill,
            turns,
            whole_turns: whole_turns as f64,
            contributors: work.contributors() as f64,
            line_bytes,
            busiest: in_pair / all_stages * pairs,
            stages,
            occupied: clusters as f64 / placement.clusters as f64,
            results: results / traffic,
            missed: missed / traffic,
        }
    }

    /// L2 lines that a piece of a line of D touches in the mean, if lines of D are `pitch` bytes
    /// apart, and the bytes of these L2 lines over those of the piece.
    fn lines_of_piece(&self, pitch: u64) -> (f64, f64) {
        // Pieces begin in an L2 line at the multiples of the common divisor, equally often at each.
        let apart = 1u64 << (pitch | self.piece_bytes | LINE_BYTES as u64).trailing_zeros();
        let piece = self.piece_bytes as f64;
        let lines = piece / LINE_BYTES + 1.0 - apart as f64 / LINE_BYTES;
        (lines, lines * LINE_BYTES / piece)
    }
}
