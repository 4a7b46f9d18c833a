//! The cost model of wgmma kernels.

use pgemm_kernels::{OutputMajor, Schedule, Spec, Terms, WgmmaSpec};

use super::placement::TilePlacement;
use super::{
    DRAM_BYTES_PER_CYCLE, LAUNCH_CYCLES, LOAD_LATENCY_CYCLES, REREAD_FRACTION, SERIAL_CYCLES,
    fourth_power,
};
use crate::choice::Choice;
use crate::decomposition::Decomposition;
use crate::split::Split;

/// Multiply-adds of one SM's tensor cores per cycle, times the bytes of an operand's element. The
/// rate is 2048 for 16-bit elements, 1024 for tf32 and 4096 for 8-bit elements.
const MAC_BYTES_PER_CYCLE: f64 = 4096.0;

/// Factor by which MMAs take longer than at the nominal 1.7 GHz, because the power limit lowers the
/// clock. The value lies between the 1.15 of the survey's short timings and the 1.3 of 8192³ at
/// steady power.
const MATH_FACTOR: f64 = 1.22;

/// Fewest cycles of a stage, however narrow the tile is. They go to barrier waits and instruction
/// issue.
const STAGE_CYCLES: f64 = 264.0;

/// Bytes of shared memory that a stage's MMAs read and its loads write per cycle. The bound is
/// sharp. In races of 128×112 against wider tiles, every kernel took as long as its MMAs (run
/// `2026-11-22-large-tuned-*` of `benchmarks/results`), and 128×96 took 10 % longer.
const SMEM_BYTES_PER_CYCLE: f64 = 175.0;

/// Bytes that reach an SM's shared memory from L2 per cycle.
const L2_BYTES_PER_CYCLE: f64 = 155.8;

/// The same rate for operands whose 128-byte slices can cross a boundary between two L2 lines. It
/// counts the lines touched, not the bytes used. It was fitted to one timing: 4104³, bf16, 128×176
/// without a cluster, 300 µs (run `2026-11-21-night-unaligned` of `benchmarks/results`). Problems
/// with only one unaligned operand have not been measured. The f64 and f32 models omit this bound,
/// because their kernels hardly wait for L2.
const UNALIGNED_BYTES_PER_CYCLE: f64 = 55.8;

/// Factor by which bytes of a stage that lie outside the matrix take longer to load. TMA fills in
/// zeros slowly.
const OUT_OF_BOUNDS_FACTOR: f64 = 12.24;

/// Cycles of the epilogue for each byte of a tile of D.
const EPILOGUE_CYCLES_PER_BYTE: f64 = 0.05;

/// Factor by which the epilogue takes longer when a single warpgroup stores the tile. In ping-pong
/// kernels all epilogues but the last overlap with MMAs, but the two slow each other down when they
/// take about the same time. 4096×32768×512 takes 256 µs with 128×200, 19 % more than with 128×192,
/// whose epilogue takes half as long.
const EPILOGUE_FACTOR_ONE_WARPGROUP: f64 = 1.2;

/// The same factor for a column-major D in ping-pong kernels. At 1000³ in f16 with an N-major B,
/// 128×72 in 2×2 clusters takes 0.9 µs longer as ping-pong than as a cooperative kernel. With a
/// K-major B the difference is smaller.
const EPILOGUE_FACTOR_PING_PONG_COLUMN_MAJOR: f64 = 2.0;

/// Additional cycles for each byte of a tile of D that the threads of one warpgroup store instead
/// of TMA. Two factors multiply them: one for staging tiles whose lines are not multiples of 128
/// bytes, one for a column-major D. All three were fitted to 511×513×1024 in bf16 with 64×64 and
/// 64×48 tiles, row-major and column-major.
const THREAD_STORE_CYCLES_PER_BYTE: f64 = 0.08;
const THREAD_STORE_FACTOR_RAGGED: f64 = 3.0;
const THREAD_STORE_FACTOR_COLUMN_MAJOR: f64 = 1.5;

/// Additional cycles for each element of a tile when the activation contains an exponential. It was
/// fitted at 4096³ on an H200 to a kernel that overlaps its epilogue with nothing.
const ACTIVATION_CYCLES_PER_ELEMENT: f64 = 0.16;

/// Factor by which the epilogue takes longer when rows of staging tiles are not multiples of 128
/// bytes.
const EPILOGUE_FACTOR_RAGGED: f64 = 2.0;

/// The same factor for 32-bit results, whose staging lines are then 64 bytes. It lies between the
/// values of 128×144 at 2048×8192×1024 in tf32, and at 1536³ and 2048×8192×3584 in s8 (run
/// `2026-11-22-large-changed` of `benchmarks/results`).
const EPILOGUE_FACTOR_RAGGED_32_BIT: f64 = 3.0;

/// Additional cycles between two large whole tiles of a cooperative kernel, for each byte of a tile
/// of D. During them the tensor cores are idle. It was fitted to pairs of cooperative and ping-pong
/// kernels (run `2026-11-22-turns*` of `benchmarks/results`): 128×256 takes 2 to 8 % longer as a
/// cooperative kernel when the tensor cores are the limit. Tiles below [`LARGE_TILE_ELEMENTS`],
/// promoted sums and stream-K showed no such gap. Kernels that read A from registers were not
/// measured.
const TILE_GAP_CYCLES_PER_BYTE: f64 = 0.05;

/// Fewest elements of a large tile of D: 128×256.
const LARGE_TILE_ELEMENTS: f64 = 32_768.0;

/// Fewest cycles from one tile to the next in ping-pong kernels.
const MIN_PING_PONG_TILE_CYCLES: f64 = 1400.0;

/// Factors by which MMAs with promoted sums take longer in tiles of up to 128 columns, and of up to
/// 192 columns, with one or two warpgroups. Wider tiles and three warpgroups wait less often.
/// Ragged staging lines showed no cost in these kernels. The factors were fitted to races of ten
/// e4m3 problems on H200s (run `2026-11-22-last-e4m3-promoted-tiles-*` of `benchmarks/results`),
/// where the model's picks lose 0.1 % to the best.
const MATH_FACTOR_PROMOTED_128: f64 = 1.17;
const MATH_FACTOR_PROMOTED_192: f64 = 1.03;

/// Factor by which MMAs that read A from registers take longer in ping-pong kernels than in
/// cooperative ones. It was fitted to 128×160 of tf32 at 16384×16384×4096 on an H200.
const MATH_FACTOR_REGISTERS_PING_PONG: f64 = 1.06;

/// Factor on [`REREAD_FRACTION`] when neighbouring tiles of D run on neighbouring SMs, so that
/// their reads of the same lines merge before they reach L2.
const MERGED_REREAD_FACTOR: f64 = 0.2832;

/// Factor by which DRAM traffic takes longer in a dependent launch of less than a full wave. Its
/// CTAs start on whichever SMs become free, so they are spread unevenly over the device.
const UNEVEN_PLACEMENT_FACTOR: f64 = 1.1;

/// A wave counts as full from this fraction (numerator, denominator) of the clusters that run at
/// once. [`UNEVEN_PLACEMENT_FACTOR`] applies to waves between one half and this.
const FULL_WAVE: (u64, u64) = (19, 20);

/// Bytes of L2 that keep operands for reuse under stream-K, whose workers are at different places
/// along k.
const L2_BYTES: f64 = 61.4e6;

/// Factor by which stream-K takes longer, because its workers are out of step along k.
const STREAM_K_FACTOR: f64 = 1.06;

/// Additional cycles of a launch with clusters.
const CLUSTER_CYCLES: f64 = 50.0;

/// The same when CTAs of a repack kernel are still on the device. It was fitted to 511×513×1023 in
/// bf16 with 64×48 and 64×64 tiles, with and without clusters.
const CLUSTER_CYCLES_AFTER_REPACK: f64 = 300.0;

/// Cycles to reduce a tile that two workers share: store the partial sums, signal arrival, add
/// them.
const REDUCTION_CYCLES_TWO_WORKERS: f64 = 6700.0;

/// Cycles to reduce a tile that more than two workers share, and cycles for each element of it.
const REDUCTION_CYCLES_MANY_WORKERS: f64 = 7000.0;
const REDUCTION_CYCLES_PER_ELEMENT: f64 = 0.5489;

/// Additional cycles for each part of such a tile beyond [`FREE_PARTS`].
const REDUCTION_CYCLES_PER_PART: f64 = 90.0;
const FREE_PARTS: u64 = 4;

/// The terms of the model that depend on the spec alone. They serve for every problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct WgmmaModel {
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
    /// Fraction of the stage's bytes that L2 sends to this CTA. The other CTAs of the cluster
    /// receive the remainder and share it by multicast.
    from_l2: f64,
    /// CTAs that share a tile of A, and one of B.
    sharing: [f64; 2],
    /// The sum of two fourth powers: that of the cycles of tensor cores or shared memory per stage,
    /// whichever is larger, and that of the load latency per stage.
    per_stage: f64,
    /// Cycles of a tile's epilogue, additional cycles when threads store D, and cycles between two
    /// tiles.
    epilogue: f64,
    by_threads: f64,
    between: f64,
}

impl WgmmaModel {
    /// The model of a spec that validates.
    pub(super) fn new(spec: &Spec, wgmma: &WgmmaSpec) -> Self {
        let tile = spec.tile;
        let [tile_m, tile_n, tile_k] = [tile.m, tile.n, tile.k].map(f64::from);
        let (depth_bytes, stage_bytes) =
            (tile_k * f64::from(spec.a.bytes()), f64::from(spec.stage_bytes()));
        // Both operands have elements of one size.
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
        let math =
            products * tile_m * tile_n * depth_bytes / MAC_BYTES_PER_CYCLE * MATH_FACTOR * slower;
        // Each m64 block's MMAs read its rows of A and all of B.
        let read = products * depth_bytes * (tile_m / 64.0) * (64.0 + tile_n);
        let shared = (read + stage_bytes) / SMEM_BYTES_PER_CYCLE;
        let late = LOAD_LATENCY_CYCLES / f64::from(spec.stages);
        let row_bytes = tile.n * spec.output.bytes();
        let ragged = spec.d_major == OutputMajor::N && !row_bytes.is_multiple_of(128);
        let longer = match (ragged && !promotes, spec.output.bytes()) {
            (false, _) => 1.0,
            (true, 4) => EPILOGUE_FACTOR_RAGGED_32_BIT,
            (true, _) => EPILOGUE_FACTOR_RAGGED,
        };
        let per_byte = longer
            * match (in_turns, spec.d_major) {
                (true, OutputMajor::M) => EPILOGUE_FACTOR_PING_PONG_COLUMN_MAJOR,
                (true, _) => EPILOGUE_FACTOR_ONE_WARPGROUP,
                (false, _) if wgmma.warpgroups == 1 => EPILOGUE_FACTOR_ONE_WARPGROUP,
                _ => 1.0,
            }
            * EPILOGUE_CYCLES_PER_BYTE;
        let bytes = tile_m * f64::from(row_bytes);
        let large =
            tile_m * tile_n >= LARGE_TILE_ELEMENTS && !promotes && !spec.reads_a_from_registers();
        WgmmaModel {
            schedule: wgmma.schedule,
            operand_bytes: terms * f64::from(spec.a.bytes()),
            output_bytes: f64::from(spec.output.bytes()),
            cluster: [spec.cluster.m, spec.cluster.n].map(f64::from),
            tile_m,
            tile_n,
            depth_bytes: terms * depth_bytes,
            stage_bytes,
            from_l2: (f64::from(spec.a_tile().bytes()) / f64::from(spec.cluster.n)
                + f64::from(spec.b_tile().bytes()) / f64::from(spec.cluster.m))
                / f64::from(spec.stage_bytes()),
            sharing: [spec.cluster.n, spec.cluster.m].map(f64::from),
            per_stage: (eighth_power(math.max(STAGE_CYCLES)) + eighth_power(shared)).sqrt()
                + fourth_power(late),
            epilogue: per_byte * bytes,
            by_threads: THREAD_STORE_CYCLES_PER_BYTE * bytes / f64::from(spec.parts())
                * match (ragged, spec.d_major) {
                    (true, _) => THREAD_STORE_FACTOR_RAGGED,
                    (false, OutputMajor::M) => THREAD_STORE_FACTOR_COLUMN_MAJOR,
                    (false, OutputMajor::N) => 1.0,
                },
            between: if large && !in_turns { TILE_GAP_CYCLES_PER_BYTE * bytes } else { 0.0 },
        }
    }

    /// Estimated cycles.
    pub(super) fn cycles(&self, placement: &TilePlacement, choice: &Choice) -> f64 {
        let Choice { raster_rows, split, dependent_launch, .. } = *choice;
        let WgmmaModel { tile_m, tile_n, .. } = *self;
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

        // In a serial launch of a single wave, neighbouring tiles of D run on neighbouring SMs.
        let streams = split == Split::StreamK && workers > 0;
        let alone =
            placement.cluster_size == 1 && !streams && workers + whole <= placement.clusters;
        let merged = alone && !dependent_launch && placement.rows.min(placement.columns) > 1;
        let some_idle = 2 * clusters > placement.clusters
            && FULL_WAVE.1 * clusters < FULL_WAVE.0 * placement.clusters;
        let unequal = alone && dependent_launch && some_idle;

        let inside = self.depth_bytes * (tile_m.min(m) + tile_n.min(n));
        let outside = (self.stage_bytes - inside).max(0.0);
        let fill = ((self.stage_bytes - outside) * self.from_l2 + OUT_OF_BOUNDS_FACTOR * outside)
            / L2_BYTES_PER_CYCLE;
        let stage =
            (self.per_stage + fourth_power(fill)).sqrt().sqrt().max(self.unaligned(placement));
        let activation = if placement.activated { ACTIVATION_CYCLES_PER_ELEMENT } else { 0.0 };
        let by_threads = if placement.by_threads { self.by_threads } else { 0.0 };
        let epilogue = self.epilogue + by_threads + activation * tile_m * tile_n;
        let busy = match self.schedule {
            Schedule::Cooperative => stages * stage + turns * epilogue,
            Schedule::PingPong => {
                let beside = (turns - 1.0).max(0.0) * epilogue.max(MIN_PING_PONG_TILE_CYCLES);
                let both = fourth_power(stages * stage) + fourth_power(beside);
                both.sqrt().sqrt() + epilogue
            }
        };

        let [a, b] = placement.operands(self.operand_bytes);
        let results = self.output_bytes * m * n * placement.batch as f64;
        let read_again =
            if merged { MERGED_REREAD_FACTOR * REREAD_FRACTION } else { REREAD_FRACTION };
        let again = read_again * placement.read_again([a, b]);
        let (missed, step) = if streams {
            (self.missed(placement, &work, raster_rows), STREAM_K_FACTOR)
        } else {
            (0.0, 1.0)
        };
        let traffic = a + b + results + again + missed;
        let pairs = f64::from(placement.sms) / 2.0;
        let in_pair = of_both(placement.in_pair(whole), placement.in_pair(workers));
        let of_pair = (in_pair / (tiles as f64 * k_tiles as f64)).max(1.0 / pairs);
        let unevenness = if unequal { UNEVEN_PLACEMENT_FACTOR } else { 1.0 };
        let dram = traffic * of_pair * unevenness / DRAM_BYTES_PER_CYCLE;
        // If DRAM is the limit, the ring fills during the gap between tiles, so the gap costs
        // nothing.
        let pauses = if busy > dram { whole_turns.saturating_sub(1) as f64 } else { 0.0 };
        let busy = busy + pauses * self.between;

        let reduction = match work.contributors() {
            0 => 0.0,
            1 | 2 => REDUCTION_CYCLES_TWO_WORKERS,
            parts => {
                REDUCTION_CYCLES_MANY_WORKERS
                    + REDUCTION_CYCLES_PER_PART * parts.saturating_sub(FREE_PARTS) as f64
                    + REDUCTION_CYCLES_PER_ELEMENT * worker_turns as f64 * tile_m * tile_n
            }
        };
        let launch = LAUNCH_CYCLES
            + if dependent_launch { 0.0 } else { SERIAL_CYCLES }
            + match (placement.cluster_size > 1, placement.after_repack) {
                (false, _) => 0.0,
                (true, false) => CLUSTER_CYCLES,
                (true, true) => CLUSTER_CYCLES_AFTER_REPACK,
            };
        let both = fourth_power(busy) + fourth_power(dram);
        step * (both.sqrt().sqrt() + reduction + launch)
    }

    /// Cycles in which L2 sends a stage whose slices cross line boundaries. 0 if no slice does.
    fn unaligned(&self, placement: &TilePlacement) -> f64 {
        let TilePlacement { extents: [m, n, _], lines: [of_a, of_b], .. } = *placement;
        if of_a.max(of_b) == 1.0 {
            return 0.0;
        }
        let [of_row, of_column] = self.sharing;
        let lines = of_a * self.tile_m.min(m) / of_row + of_b * self.tile_n.min(n) / of_column;
        self.depth_bytes * lines / UNALIGNED_BYTES_PER_CYCLE
    }

    /// Bytes that stream-K reads from DRAM more than once. Its workers are at different places
    /// along k, so each tile reads its operands again unless L2 still holds them.
    fn missed(&self, placement: &TilePlacement, work: &Decomposition, raster_rows: u32) -> f64 {
        let [m, n, k] = placement.extents;
        let (rows, columns) = if work.split_tiles == work.tiles {
            // The tiles of a batch form one list, product after product.
            (placement.rows as f64, (placement.columns * placement.batch) as f64)
        } else {
            let rows = placement.rows.min(u64::from(raster_rows)) as f64;
            (rows, work.split_tiles as f64 / rows)
        };
        let operand = self.operand_bytes;
        let [cluster_m, cluster_n] = self.cluster;
        let (tile_m, tile_n) = (self.tile_m * cluster_m, self.tile_n * cluster_n);
        let of_tile = (tile_m + tile_n) * k * operand;
        // The bytes read between two uses of a line are taken as exponentially distributed around
        // their mean.
        let missed = |between: f64| (-L2_BYTES / between.max(1.0)).exp();
        let a = (rows * tile_m).min(m) * k * operand * (columns - 1.0).max(0.0);
        let b = (columns * tile_n).min(n * placement.batch as f64)
            * k
            * operand
            * (rows - 1.0).max(0.0);
        a * missed(rows * of_tile) + b * missed(columns * of_tile)
    }
}

fn eighth_power(x: f64) -> f64 {
    fourth_power(x) * fourth_power(x)
}
