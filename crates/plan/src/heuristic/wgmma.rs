//! The model of kernels of warpgroups, which multiply by wgmma.

use pgemm_kernels::{OutputMajor, Schedule, Spec, Terms, WgmmaSpec};

use super::placement::TilePlacement;
use super::{
    DRAM_BYTES_PER_CYCLE, LATENCY, LAUNCH_CYCLES, READ_AGAIN, SERIAL_CYCLES, fourth_power,
};
use crate::choice::Choice;
use crate::decomposition::Decomposition;
use crate::split::Split;

/// Multiply-adds that an SM's tensor cores do per cycle, times the bytes of an operand's element:
/// 2048 of 16 bits, half as many of tf32, twice as many of 8 bits.
const MAC_BYTES_PER_CYCLE: f64 = 4096.0;

/// Time of these under power, whose limit lowers the clock, over that at the nominal 1.7 GHz:
/// between the 1.15 of the survey's short readings and the 1.3 of 8192³ at steady power.
const MATH: f64 = 1.22;

/// Fewest cycles of a stage, however narrow the tile: waiting at barriers and issuing.
const STAGE_CYCLES: f64 = 264.0;

/// Bytes of shared memory that a stage's MMAs read and its loads write per cycle. A bound that is
/// sharp: where 128×112 is raced with wider tiles, all take as long as their MMAs (run
/// `2026-11-22-large-tuned-*` of `benchmarks/results`), and 128×96 10 % longer.
const SMEM_BYTES_PER_CYCLE: f64 = 175.0;

/// Bytes that reach an SM's shared memory from L2 per cycle.
const L2_BYTES_PER_CYCLE: f64 = 155.8;

/// The same of an operand whose slices lie in two lines of L2 or in one, by the lines and not by
/// what of them is wanted. From one timing (run `2026-11-21-night-unaligned` of
/// `benchmarks/results`: 4104³, bf16, 128×176 alone, 300 µs). Nothing has been measured where lines
/// of one operand only are whole, nor of f64 and f32, whose kernels hardly wait for L2: their
/// models do without.
const UNALIGNED_BYTES_PER_CYCLE: f64 = 55.8;

/// Bytes of a stage that lie outside the matrix take so much longer: TMA fills in zeros slowly.
const OUTSIDE: f64 = 12.24;

/// Cycles for each byte of a tile of D that its epilogue takes.
const EPILOGUE_PER_BYTE: f64 = 0.05;

/// So much longer where one warpgroup stores it alone. Where two take turns only the last epilogue
/// has nothing beside it, but what others take and MMAs hold each other up as they come near each
/// other: 4096×32768×512 takes 256 µs with 128×200, 19 % more than with 128×192, whose epilogue
/// takes half as long.
const STORED_BY_ONE: f64 = 1.2;

/// The same of a column-major D where warpgroups take turns: 128×72 two by two takes 0.9 µs longer
/// so than shared by both at 1000³ in f16 with an N-major B, and less with a K-major one.
const COLUMNS_STORED_BY_ONE: f64 = 2.0;

/// Cycles more for each byte of a tile of D that the threads of a warpgroup move, and so many times
/// as many where staging tiles have no lines of 128 bytes or D is column-major: 511×513×1024 in
/// bf16 with 64×64, with 64×48 and the other way round.
const BY_THREADS_PER_BYTE: f64 = 0.08;
const RAGGED_BY_THREADS: f64 = 3.0;
const COLUMNS_BY_THREADS: f64 = 1.5;

/// Cycles more for each element of a tile where an activation with an exponential is applied: 4096³
/// on an H200, by a kernel that nothing hides them in.
const ACTIVATION_PER_ELEMENT: f64 = 0.16;

/// So much longer where rows of staging tiles are not whole lines of 128 bytes.
const RAGGED: f64 = 2.0;

/// The same of 32-bit results, whose lines there are 64 bytes: between what 128×144 has at
/// 2048×8192×1024 in tf32, and at 1536³ and 2048×8192×3584 in s8 (run `2026-11-22-large-changed` of
/// `benchmarks/results`).
const RAGGED_OF_32_BITS: f64 = 3.0;

/// Cycles for each byte of a large whole tile of D from one to the next, beside the epilogue's,
/// where warpgroups share it and nothing is multiplied meanwhile. From pairs with kernels that take
/// turns (run `2026-11-22-turns*` of `benchmarks/results`), which have 128×256 take 2 to 8 % longer
/// where tensor cores are waited for; of tiles of fewer elements than [`LARGE_TILE`], of promoted
/// sums and of stream-K nothing like it was seen, and of an A from registers nothing was measured.
const BETWEEN_PER_BYTE: f64 = 0.05;

/// Elements of D in such a tile: 128×256.
const LARGE_TILE: f64 = 32_768.0;

/// Fewest cycles from one tile to the next where warpgroups take turns.
const TURN_CYCLES: f64 = 1400.0;

/// Time of MMAs of up to 128 columns, and of up to 192, whose sums one of two warpgroups promotes
/// while the other's run, over that of wider ones or of three warpgroups, which are waited for less
/// often. Lines of a staging tile that are ragged were not seen to cost anything there. From races
/// of ten problems of e4m3 on H200s (run `2026-11-22-last-e4m3-promoted-tiles-*` of
/// `benchmarks/results`), where the picks lose 0.1 % to the best.
const PROMOTED_OFTEN: f64 = 1.17;
const PROMOTED: f64 = 1.03;

/// Time of MMAs whose A comes from registers where warpgroups take turns, over that where they work
/// together: 128×160 of tf32 at 16384×16384×4096 on an H200.
const REGISTERS_IN_TURNS: f64 = 1.06;

/// What is left of [`READ_AGAIN`] where neighbours in D are neighbours on the device, and their
/// reads meet on the way.
const MERGED: f64 = 0.2832;

/// Time of the traffic of DRAM where CTAs that leave some SMs without work start wherever an SM
/// falls free, and a part of the device has more of them than another.
const UNEQUAL: f64 = 1.1;

/// L2 that holds what the workers of stream-K, each at its own place along k, have read of an
/// operand until others read it.
const L2_BYTES: f64 = 61.4e6;

/// Time of stream-K, whose workers are out of step along k, over that of workers in step.
const OUT_OF_STEP: f64 = 1.06;

/// Cycles that a launch of clusters takes more.
const CLUSTER_CYCLES: f64 = 50.0;

/// The same where CTAs of a repack kernel are on the device when the clusters come: 511×513×1023 in
/// bf16, by 64×48 and 64×64 alone and in clusters.
const CLUSTER_CYCLES_AFTER_REPACK: f64 = 300.0;

/// Cycles of the reduction of a tile that two workers share: storing, counting in, adding up.
const OF_TWO: f64 = 6700.0;

/// The same of a tile that more share, and for each element of it.
const OF_MANY: f64 = 7000.0;
const OF_MANY_PER_ELEMENT: f64 = 0.5489;

/// And for each part of it beyond four.
const OF_MANY_PER_PART: f64 = 90.0;

/// What the estimates of a spec need for every problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct WgmmaModel {
    schedule: Schedule,
    /// Bytes of an element of A or B along k, all terms together, and of D.
    operand_bytes: f64,
    output_bytes: f64,
    /// CTAs of a cluster along m and n.
    cluster: [f64; 2],
    tile_m: f64,
    tile_n: f64,
    /// Depth and operand bytes of a stage.
    depth_bytes: f64,
    stage_bytes: f64,
    /// Part of these that L2 sends for this CTA, the rest being shared with its cluster.
    from_l2: f64,
    /// CTAs that share a tile of A, and one of B.
    sharing: [f64; 2],
    /// Fourth powers of the cycles that tensor cores and shared memory need for a stage, whichever
    /// need more, and that its load may be late.
    per_stage: f64,
    /// Cycles of a tile's epilogue, what they are more where threads move D, and those between
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
            (true, ..=128) => PROMOTED_OFTEN,
            (true, ..=192) => PROMOTED,
            (false, _) if spec.reads_a_from_registers() && in_turns => REGISTERS_IN_TURNS,
            _ => 1.0,
        };
        // Both operands have as many terms, of which so many pairs are multiplied.
        let terms = f64::from(wgmma.terms.map_or(1, Terms::count));
        let products = wgmma.terms.map_or(1.0, |terms| terms.products().len() as f64);
        let math = products * tile_m * tile_n * depth_bytes / MAC_BYTES_PER_CYCLE * MATH * slower;
        // Each m64 block's MMAs read its rows of A and all of B.
        let read = products * depth_bytes * (tile_m / 64.0) * (64.0 + tile_n);
        let shared = (read + stage_bytes) / SMEM_BYTES_PER_CYCLE;
        let late = LATENCY / f64::from(spec.stages);
        let row_bytes = tile.n * spec.output.bytes();
        let ragged = spec.d_major == OutputMajor::N && !row_bytes.is_multiple_of(128);
        let longer = match (ragged && !promotes, spec.output.bytes()) {
            (false, _) => 1.0,
            (true, 4) => RAGGED_OF_32_BITS,
            (true, _) => RAGGED,
        };
        let per_byte = longer
            * match (in_turns, spec.d_major) {
                (true, OutputMajor::M) => COLUMNS_STORED_BY_ONE,
                (true, _) => STORED_BY_ONE,
                (false, _) if wgmma.warpgroups == 1 => STORED_BY_ONE,
                _ => 1.0,
            }
            * EPILOGUE_PER_BYTE;
        let bytes = tile_m * f64::from(row_bytes);
        let large = tile_m * tile_n >= LARGE_TILE && !promotes && !spec.reads_a_from_registers();
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
            by_threads: BY_THREADS_PER_BYTE * bytes / f64::from(spec.parts())
                * match (ragged, spec.d_major) {
                    (true, _) => RAGGED_BY_THREADS,
                    (false, OutputMajor::M) => COLUMNS_BY_THREADS,
                    (false, OutputMajor::N) => 1.0,
                },
            between: if large && !in_turns { BETWEEN_PER_BYTE * bytes } else { 0.0 },
        }
    }

    /// Estimated cycles.
    pub(super) fn cycles(&self, placement: &TilePlacement, choice: &Choice) -> f64 {
        let Choice { raster_rows, split, dependent_launch, .. } = *choice;
        let WgmmaModel { tile_m, tile_n, .. } = *self;
        let [m, n, _] = placement.extents;
        let work = placement.decompose(split);
        let Decomposition { tiles, k_tiles, split_tiles, workers, clusters } = work;

        // What the busiest cluster does: stages, and whole tiles or parts of one.
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

        // Where CTAs are: of one wave, those of a serial launch are neighbours on the device as
        // they are in D.
        let streams = split == Split::StreamK && workers > 0;
        let alone =
            placement.cluster_size == 1 && !streams && workers + whole <= placement.clusters;
        let merged = alone && !dependent_launch && placement.rows.min(placement.columns) > 1;
        let some_idle =
            2 * clusters > placement.clusters && 20 * clusters < 19 * placement.clusters;
        let unequal = alone && dependent_launch && some_idle;

        let inside = self.depth_bytes * (tile_m.min(m) + tile_n.min(n));
        let outside = (self.stage_bytes - inside).max(0.0);
        let fill =
            ((self.stage_bytes - outside) * self.from_l2 + OUTSIDE * outside) / L2_BYTES_PER_CYCLE;
        let stage =
            (self.per_stage + fourth_power(fill)).sqrt().sqrt().max(self.unaligned(placement));
        let activation = if placement.activated { ACTIVATION_PER_ELEMENT } else { 0.0 };
        let by_threads = if placement.by_threads { self.by_threads } else { 0.0 };
        let epilogue = self.epilogue + by_threads + activation * tile_m * tile_n;
        let busy = match self.schedule {
            Schedule::Cooperative => stages * stage + turns * epilogue,
            Schedule::PingPong => {
                let beside = (turns - 1.0).max(0.0) * epilogue.max(TURN_CYCLES);
                let both = fourth_power(stages * stage) + fourth_power(beside);
                both.sqrt().sqrt() + epilogue
            }
        };

        let [a, b] = placement.operands(self.operand_bytes);
        let results = self.output_bytes * m * n * placement.batch as f64;
        let read_again = if merged { MERGED * READ_AGAIN } else { READ_AGAIN };
        let again = read_again * placement.read_again([a, b]);
        let (missed, step) = if streams {
            (self.missed(placement, &work, raster_rows), OUT_OF_STEP)
        } else {
            (0.0, 1.0)
        };
        let traffic = a + b + results + again + missed;
        let pairs = f64::from(placement.sms) / 2.0;
        let in_pair = of_both(placement.in_pair(whole), placement.in_pair(workers));
        let of_pair = (in_pair / (tiles as f64 * k_tiles as f64)).max(1.0 / pairs);
        let unevenness = if unequal { UNEQUAL } else { 1.0 };
        let dram = traffic * of_pair * unevenness / DRAM_BYTES_PER_CYCLE;
        // Where DRAM is waited for, the ring fills meanwhile.
        let pauses = if busy > dram { whole_turns.saturating_sub(1) as f64 } else { 0.0 };
        let busy = busy + pauses * self.between;

        let reduction = match work.contributors() {
            0 => 0.0,
            1 | 2 => OF_TWO,
            parts => {
                OF_MANY
                    + OF_MANY_PER_PART * parts.saturating_sub(4) as f64
                    + OF_MANY_PER_ELEMENT * worker_turns as f64 * tile_m * tile_n
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

    /// Cycles in which L2 sends a stage whose slices lie in two lines each; 0 where every slice
    /// lies in one.
    fn unaligned(&self, placement: &TilePlacement) -> f64 {
        let TilePlacement { extents: [m, n, _], lines: [of_a, of_b], .. } = *placement;
        if of_a.max(of_b) == 1.0 {
            return 0.0;
        }
        let [of_row, of_column] = self.sharing;
        let lines = of_a * self.tile_m.min(m) / of_row + of_b * self.tile_n.min(n) / of_column;
        self.depth_bytes * lines / UNALIGNED_BYTES_PER_CYCLE
    }

    /// Bytes that stream-K reads from DRAM again: workers are anywhere along k, so an operand is
    /// read for each tile anew unless L2 still holds what was read of both since the last time.
    fn missed(&self, placement: &TilePlacement, work: &Decomposition, raster_rows: u32) -> f64 {
        let [m, n, k] = placement.extents;
        let (rows, columns) = if work.split_tiles == work.tiles {
            // Those of one product follow those of another.
            (placement.rows as f64, (placement.columns * placement.batch) as f64)
        } else {
            let rows = placement.rows.min(u64::from(raster_rows)) as f64;
            (rows, work.split_tiles as f64 / rows)
        };
        let operand = self.operand_bytes;
        let [cluster_m, cluster_n] = self.cluster;
        let (tile_m, tile_n) = (self.tile_m * cluster_m, self.tile_n * cluster_n);
        let of_tile = (tile_m + tile_n) * k * operand;
        // Gaps between readers of a line are random: exponentially distributed around the mean.
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
