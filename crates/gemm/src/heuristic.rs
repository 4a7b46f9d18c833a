//! The heuristic: estimates the cycles of a problem for each spec of the catalogue, and takes the fewest. [`cycles`] is the
//! whole model: the busiest SM's stages, each bound by the tensor cores, by shared memory, by L2 or by the latency of a load;
//! beside them the traffic of DRAM, shared out among pairs of SMs; then the reduction of split tiles and the launch.
//!
//! Its constants were fitted by `scripts/fit-heuristic.py`, which has the same formula, to 7746
//! timings on an H200 (bf16, both operands K-major or B N-major, the 178 problems of the suite with
//! up to 44 choices each, dependent and serial launches: `benchmarks/results/survey.jsonl`), of
//! those problems that take less than 150 µs: longer ones scatter with the clock, and the file
//! leaves them out. There its picks take 1.6 % longer than the best that was measured (geometric
//! mean; 15 % at worst), and 0.8 % (2 % at worst) over 41 large problems in races at steady power
//! (runs `2026-11-22-large-tuned-*` of `benchmarks/results/autotune.jsonl`), which the bounds of
//! shared memory and of epilogues are from. All operands there are made of whole lines of L2; what
//! those of others take is `TORN_BYTES_PER_CYCLE`.

mod any;
mod dmma;
mod ffma;
mod shape;

use std::sync::OnceLock;

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{AnySpec, KernelSpec, OutputMajor, Schedule, Terms, catalogue};

pub use self::any::AnyRated;
pub use self::dmma::RatedDmma;
pub use self::ffma::RatedFfma;
pub use self::shape::Shape;
use crate::choice::{Choice, Decomposition, clusters_at_once, tiles_of};
use crate::config::{MAX_SPLITS, Split};

/// The clock that cycles are counted at, MHz: a problem's microseconds are its [`cycles`] over this.
pub const NOMINAL_MHZ: f64 = 1700.0;

/// Multiply-adds that an SM's tensor cores do per cycle, times the bytes of an operand's element: 2048 of 16 bits, half as many
/// of tf32, twice as many of 8 bits.
const MAC_BYTES_PER_CYCLE: f64 = 4096.0;

/// Time of these under power, whose limit lowers the clock, over that at the nominal 1.7 GHz: between the 1.15 of the survey's
/// short readings and the 1.3 of 8192³ at steady power.
const MATH: f64 = 1.22;

/// Fewest cycles of a stage, however narrow the tile: waiting at barriers and issuing.
const STAGE_CYCLES: f64 = 264.0;

/// Bytes of shared memory that a stage's MMAs read and its loads write per cycle. A bound that is
/// sharp: where 128×112 is raced with wider tiles, all take as long as their MMAs (runs
/// `2026-11-22-large-tuned-*` of `benchmarks/results`), and 128×96 10 % longer.
const SMEM_BYTES_PER_CYCLE: f64 = 175.0;

/// Bytes that reach an SM's shared memory from L2 per cycle.
const L2_BYTES_PER_CYCLE: f64 = 155.8;

/// The same of an operand whose slices lie in two lines of L2 or in one, by the lines and not by
/// what of them is wanted. From one timing (run `2026-11-21-night-unaligned` of
/// `benchmarks/results`: 4104³, bf16, 128×176 alone, 300 µs). Nothing has been measured where lines
/// of one operand only are whole, nor of f64 and f32, whose kernels hardly wait for L2: their
/// models do without.
const TORN_BYTES_PER_CYCLE: f64 = 55.8;

/// Bytes of a stage that lie outside the matrix take so much longer: TMA fills in zeros slowly.
const OUTSIDE: f64 = 12.24;

/// Cycles from a load to its arrival, in which a ring is filled once at most.
const LATENCY: f64 = 1780.0;

/// Cycles for each byte of a tile of D that its epilogue takes.
const EPILOGUE_PER_BYTE: f64 = 0.05;

/// So much longer where one warpgroup stores it alone. Where two take turns only the last epilogue has nothing beside it, but what
/// others take and MMAs hold each other up as they come near each other: 4096×32768×512 takes 256 µs with 128×200, 19 % more
/// than with 128×192, whose epilogue takes half as long.
const STORED_BY_ONE: f64 = 1.2;

/// The same of a column-major D where warpgroups take turns: 128×72 two by two takes 0.9 µs longer so than shared by both at
/// 1000³ in f16 with an N-major B, and less with a K-major one.
const COLUMNS_STORED_BY_ONE: f64 = 2.0;

/// Cycles more for each byte of a tile of D that the threads of a warpgroup move, and so many times as many where staging tiles have no
/// lines of 128 bytes or D is column-major: 511×513×1024 in bf16 with 64×64, with 64×48 and the other way round.
const BY_THREADS_PER_BYTE: f64 = 0.08;
const RAGGED_BY_THREADS: f64 = 3.0;
const COLUMNS_BY_THREADS: f64 = 1.5;

/// Cycles more for each element of a tile where gelu or silu are applied: 4096³ on an H200, by a kernel that nothing hides them in.
const ACTIVATION_PER_ELEMENT: f64 = 0.16;

/// So much longer where rows of staging tiles are not whole lines of 128 bytes.
const RAGGED: f64 = 2.0;

/// The same of 32-bit results, whose lines there are 64 bytes: between what 128×144 has at
/// 2048×8192×1024 in tf32, and at 1536³ and 2048×8192×3584 in s8 (run `2026-11-22-large-changed` of
/// `benchmarks/results`).
const RAGGED_OF_32_BITS: f64 = 3.0;

/// Cycles for each byte of a large whole tile of D from one to the next, beside the epilogue's,
/// where warpgroups share it and nothing is multiplied meanwhile. From pairs with kernels that take
/// turns (runs `2026-11-22-turns*` of `benchmarks/results`), which have 128×256 take 2 to 8 %
/// longer where tensor cores are waited for; of tiles of fewer elements than [`LARGE_TILE`], of
/// promoted sums and of stream-K nothing like it was seen, and of an A from registers nothing was
/// measured.
const BETWEEN_PER_BYTE: f64 = 0.05;

/// Elements of D in such a tile: 128×256.
const LARGE_TILE: f64 = 32_768.0;

/// Fewest cycles from one tile to the next where warpgroups take turns.
const TURN_CYCLES: f64 = 1400.0;

/// Time of MMAs of up to 128 columns, and of up to 192, whose sums one of two warpgroups promotes
/// while the other's run, over that of wider ones or of three warpgroups, which are waited for less
/// often. Lines of a staging tile that are ragged were not seen to cost anything there. From races
/// of ten problems of e4m3 on H200s (runs `2026-11-22-last-e4m3-promoted-tiles-*` of
/// `benchmarks/results`), where the picks lose 0.1 % to the best.
const PROMOTED_OFTEN: f64 = 1.17;
const PROMOTED: f64 = 1.03;

/// Time of MMAs whose A comes from registers where warpgroups take turns, over that where they work together: 128×160 of tf32 at
/// 16384×16384×4096 on an H200.
const REGISTERS_IN_TURNS: f64 = 1.06;

/// Bytes from DRAM for each pair of SMs (TPC) and cycle.
const DRAM_BYTES_PER_CYCLE: f64 = 48.57;

/// Part of an operand's traffic that is added where more than one tile reads it: SMs at the other half of L2 do.
const READ_AGAIN: f64 = 0.72;

/// What is left of that where neighbours in D are neighbours on the device, and their reads meet on the way.
const MERGED: f64 = 0.2832;

/// Time of the traffic of DRAM where CTAs that leave some SMs without work start wherever an SM falls free, and a part of the
/// device has more of them than another.
const UNEQUAL: f64 = 1.1;

/// L2 that holds what the workers of stream-K, each at its own place along k, have read of an operand until others read it.
const L2_BYTES: f64 = 61.4e6;

/// Time of stream-K, whose workers are out of step along k, over that of workers in step.
const OUT_OF_STEP: f64 = 1.06;

/// Cycles of a launch that no tile accounts for, of one that begins only when the one before it has ended, and of clusters.
const LAUNCH_CYCLES: f64 = 2981.0;
const SERIAL_CYCLES: f64 = 1150.0;
const CLUSTER_CYCLES: f64 = 50.0;

/// The same where CTAs of a pass are on the device when they come: 511×513×1023 in bf16, by 64×48 and 64×64 alone and in clusters.
const CLUSTER_CYCLES_AFTER_PASS: f64 = 300.0;

/// Cycles of the reduction of a tile that two workers share: storing, counting in, adding up.
const OF_TWO: f64 = 6700.0;

/// The same of a tile that more share, and for each element of it.
const OF_MANY: f64 = 7000.0;
const OF_MANY_PER_ELEMENT: f64 = 0.5489;

/// And for each part of it beyond four.
const OF_MANY_PER_PART: f64 = 90.0;

/// A spec with what [`cycles`] needs of it for every problem.
#[derive(Clone, Copy, Debug)]
pub struct Rated {
    /// The spec.
    pub spec: KernelSpec,
    tile_m: f64,
    tile_n: f64,
    /// Depth and operand bytes of a stage.
    depth_bytes: f64,
    stage_bytes: f64,
    /// Part of these that L2 sends for this CTA, the rest being shared with its cluster.
    from_l2: f64,
    /// CTAs that share a tile of A, and one of B.
    sharing: [f64; 2],
    /// Fourth powers of the cycles that tensor cores and shared memory need for a stage, whichever need more, and that its load
    /// may be late.
    per_stage: f64,
    /// Cycles of a tile's epilogue, what they are more where threads move D, and those between tiles.
    epilogue: f64,
    by_threads: f64,
    between: f64,
}

impl Rated {
    /// A spec that validates, rated.
    pub fn new(spec: KernelSpec) -> Self {
        let tile = spec.tile;
        let [tile_m, tile_n, tile_k] = [tile.m, tile.n, tile.k].map(f64::from);
        let (depth_bytes, stage_bytes) =
            (tile_k * f64::from(spec.a.bytes()), f64::from(spec.stage_bytes()));
        // Both operands have elements of one size.
        let arithmetic = spec.arithmetic;
        let promotes = arithmetic.promotion.is_some() && arithmetic.terms.is_none();
        let in_turns = spec.schedule == Schedule::PingPong;
        let slower = match (promotes && spec.consumers < 3, tile.n) {
            (true, ..=128) => PROMOTED_OFTEN,
            (true, ..=192) => PROMOTED,
            (false, _) if spec.reads_a_to_registers() && in_turns => REGISTERS_IN_TURNS,
            _ => 1.0,
        };
        // Both operands have as many terms, of which so many pairs are multiplied.
        let terms = f64::from(spec.arithmetic.term_count());
        let products = spec.arithmetic.terms.map_or(1.0, |terms| terms.products().len() as f64);
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
                (false, _) if spec.consumers == 1 => STORED_BY_ONE,
                _ => 1.0,
            }
            * EPILOGUE_PER_BYTE;
        let bytes = tile_m * f64::from(row_bytes);
        let large = tile_m * tile_n >= LARGE_TILE && !promotes && !spec.reads_a_to_registers();
        Rated {
            spec,
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
    fn cycles(&self, placed: &Placed, choice: &Choice) -> f64 {
        let Choice { raster_rows, split, dependent_launch, .. } = *choice;
        let Rated { spec, tile_m, tile_n, .. } = *self;
        let [m, n, _] = placed.extents;
        let work = placed.decompose(split);
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

        // Where CTAs are: of one wave, those of a serial launch are neighbours on the device as they are in D.
        let streams = split == Split::StreamK && workers > 0;
        let alone = placed.cluster_size == 1 && !streams && workers + whole <= placed.clusters;
        let merged = alone && !dependent_launch && placed.rows.min(placed.columns) > 1;
        let some_idle = 2 * clusters > placed.clusters && 20 * clusters < 19 * placed.clusters;
        let unequal = alone && dependent_launch && some_idle;

        let inside = self.depth_bytes * (tile_m.min(m) + tile_n.min(n));
        let outside = (self.stage_bytes - inside).max(0.0);
        let fill =
            ((self.stage_bytes - outside) * self.from_l2 + OUTSIDE * outside) / L2_BYTES_PER_CYCLE;
        let stage = (self.per_stage + fourth_power(fill)).sqrt().sqrt().max(self.torn(placed));
        let activation = if placed.activated { ACTIVATION_PER_ELEMENT } else { 0.0 };
        let by_threads = if placed.by_threads { self.by_threads } else { 0.0 };
        let epilogue = self.epilogue + by_threads + activation * tile_m * tile_n;
        let busy = match spec.schedule {
            Schedule::Cooperative => stages * stage + turns * epilogue,
            Schedule::PingPong => {
                let beside = (turns - 1.0).max(0.0) * epilogue.max(TURN_CYCLES);
                let both = fourth_power(stages * stage) + fourth_power(beside);
                both.sqrt().sqrt() + epilogue
            }
        };

        let operand = f64::from(spec.a.bytes() * spec.arithmetic.term_count());
        let [a, b] = placed.operands(operand);
        let results = f64::from(spec.output.bytes()) * m * n * placed.batch as f64;
        let read_again = if merged { MERGED * READ_AGAIN } else { READ_AGAIN };
        let again = read_again * placed.read_again([a, b]);
        let (missed, step) = if streams {
            (self.missed(placed, &work, raster_rows), OUT_OF_STEP)
        } else {
            (0.0, 1.0)
        };
        let traffic = a + b + results + again + missed;
        let pairs = f64::from(placed.sms) / 2.0;
        let in_pair = of_both(placed.in_pair(whole), placed.in_pair(workers));
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
            + match (placed.cluster_size > 1, placed.after_pass) {
                (false, _) => 0.0,
                (true, false) => CLUSTER_CYCLES,
                (true, true) => CLUSTER_CYCLES_AFTER_PASS,
            };
        let both = fourth_power(busy) + fourth_power(dram);
        step * (both.sqrt().sqrt() + reduction + launch)
    }

    /// Cycles in which L2 sends a stage of which slices lie in two lines; 0 where all lie in one.
    fn torn(&self, placed: &Placed) -> f64 {
        let Placed { extents: [m, n, _], lines: [of_a, of_b], .. } = *placed;
        if of_a.max(of_b) == 1.0 {
            return 0.0;
        }
        let [of_row, of_column] = self.sharing;
        let lines = of_a * self.tile_m.min(m) / of_row + of_b * self.tile_n.min(n) / of_column;
        self.depth_bytes * lines / TORN_BYTES_PER_CYCLE
    }

    /// Bytes that stream-K reads from DRAM again: workers are anywhere along k, so an operand is read for each tile anew
    /// unless L2 still holds what was read of both since the last time.
    fn missed(&self, placed: &Placed, work: &Decomposition, raster_rows: u32) -> f64 {
        let [m, n, k] = placed.extents;
        let (rows, columns) = if work.split_tiles == work.tiles {
            // Those of one product follow those of another.
            (placed.rows as f64, (placed.columns * placed.batch) as f64)
        } else {
            let rows = placed.rows.min(u64::from(raster_rows)) as f64;
            (rows, work.split_tiles as f64 / rows)
        };
        let spec = &self.spec;
        let operand = f64::from(spec.a.bytes() * spec.arithmetic.term_count());
        let cluster = spec.cluster;
        let (tile_m, tile_n) =
            (self.tile_m * f64::from(cluster.m), self.tile_n * f64::from(cluster.n));
        let of_tile = (tile_m + tile_n) * k * operand;
        // Gaps between readers of a line are random: exponentially distributed around the mean.
        let missed = |between: f64| (-L2_BYTES / between.max(1.0)).exp();
        let a = (rows * tile_m).min(m) * k * operand * (columns - 1.0).max(0.0);
        let b =
            (columns * tile_n).min(n * placed.batch as f64) * k * operand * (rows - 1.0).max(0.0);
        a * missed(rows * of_tile) + b * missed(columns * of_tile)
    }
}

/// A problem in the tiles of a spec.
struct Placed {
    /// Extents along m, n and k as the kernel sees them.
    extents: [f64; 3],
    /// Lines of L2 that a slice of A and of B touches.
    lines: [f64; 2],
    /// Products, and the matrices that they have of A and of B.
    batch: u64,
    matrices: [u64; 2],
    /// Whether results have an activation that takes time.
    activated: bool,
    /// Whether threads move D, and a pass lays operands out before.
    by_threads: bool,
    after_pass: bool,
    /// Extents of one D in cluster tiles, and of k in stages.
    rows: u64,
    columns: u64,
    k_tiles: u64,
    sms: u32,
    /// Clusters that run at once, and CTAs of each.
    clusters: u64,
    cluster_size: u64,
    /// The usual raster height.
    raster_rows: u32,
}

impl Placed {
    /// A problem in the tiles of a spec.
    fn new(spec: AnySpec, shape: Shape, sms: u32) -> Placed {
        let whole = Choice::plain(spec);
        let seen = if whole.swapped() { shape.swapped() } else { shape };
        let Shape { extents: [m, n, k], lines, batch, matrices, activated, .. } = seen;
        let Shape { by_threads, after_pass, .. } = seen;
        let (rows, columns, k_tiles) = whole.tiles([m, n, k]);
        Placed {
            extents: [m, n, k].map(|extent| extent as f64),
            lines,
            batch,
            matrices,
            activated,
            by_threads,
            after_pass,
            rows,
            columns,
            k_tiles,
            sms,
            clusters: clusters_at_once(&spec, sms),
            cluster_size: u64::from(spec.cluster().size()),
            raster_rows: raster_rows(&spec, m, sms),
        }
    }

    fn decompose(&self, split: Split) -> Decomposition {
        Decomposition::new(self.tiles(), self.k_tiles, self.clusters, split)
    }

    /// Cluster tiles of all products.
    fn tiles(&self) -> u64 {
        tiles_of(self.rows, self.columns, self.batch)
    }

    /// Bytes of all matrices A and B with elements of so many.
    fn operands(&self, element_bytes: f64) -> [f64; 2] {
        let [m, n, k] = self.extents;
        let [of_a, of_b] = self.matrices.map(|count| count as f64 * k * element_bytes);
        [of_a * m, of_b * n]
    }

    /// What of these bytes more than one tile reads.
    fn read_again(&self, [a, b]: [f64; 2]) -> f64 {
        let shared = self.matrices.map(|count| count < self.batch);
        let again = |read: bool, bytes: f64| if read { bytes } else { 0.0 };
        again(self.columns > 1 || shared[0], a) + again(self.rows > 1 || shared[1], b)
    }

    /// Bytes of DRAM's traffic where all elements have so many and tiles that share lines do not run together.
    fn traffic(&self, element_bytes: f64) -> f64 {
        let [m, n, _] = self.extents;
        let [a, b] = self.operands(element_bytes);
        let again = READ_AGAIN * self.read_again([a, b]);
        a + b + element_bytes * m * n * self.batch as f64 + again
    }

    /// How many of these units of work the busiest pair of SMs gets: in full waves either SM, and either pair one before any
    /// gets a second. A cluster is spread over whole pairs.
    fn in_pair(&self, units: u64) -> f64 {
        if self.cluster_size > 1 {
            return units.div_ceil(self.clusters) as f64 * 2.0 / self.cluster_size as f64;
        }
        let (full, rest) = (units / self.clusters, units % self.clusters);
        (2 * full + if rest == 0 { 0 } else { 1 + u64::from(2 * rest > self.clusters) }) as f64
    }

    /// Ways to split the tiles that may be worth it where the last wave leaves SMs without work.
    fn splits(&self) -> impl Iterator<Item = Split> + use<> {
        let Placed { clusters, k_tiles, .. } = *self;
        let tiles = self.tiles();
        let stream = (!tiles.is_multiple_of(clusters) && tiles.saturating_mul(k_tiles) > clusters)
            .then_some(Split::StreamK);
        // As many as one wave takes.
        let fill = clusters / tiles.max(1);
        let split = (2..=u64::from(MAX_SPLITS).min(k_tiles))
            .contains(&fill)
            .then_some(Split::SplitK(fill as u32));
        stream.into_iter().chain(split)
    }
}

/// Cycles of a CTA that hands in `parts` tiles' sums and then adds up those of the contributors: so many for each part handed
/// in, and so many for the elements of each tile that is written or read.
fn reduction_cycles(work: &Decomposition, parts: f64, of_part: f64, of_tile: f64) -> f64 {
    match work.contributors() {
        0 => 0.0,
        read => of_part * parts + (parts + read as f64) * of_tile,
    }
}

fn fourth_power(x: f64) -> f64 {
    x * x * (x * x)
}

fn eighth_power(x: f64) -> f64 {
    fourth_power(x) * fourth_power(x)
}

/// The estimated cycles of a problem on `sms` SMs, for a spec that validates. Extents `[m, n, k]` stand for operands of whole
/// lines.
pub fn cycles(choice: &Choice, shape: impl Into<Shape>, sms: u32) -> f64 {
    AnyRated::new(choice.spec).cycles(&Placed::new(choice.spec, shape.into(), sms), choice)
}

/// What kernels multiply: element types of A, B and D.
pub(crate) const TYPES: [[Element; 3]; 47] = {
    use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S8, S32, Tf32, U8};
    [
        [Bf16, Bf16, Bf16],
        [Bf16, Bf16, F32],
        [F16, F16, F16],
        [F16, F16, F32],
        [Tf32, Tf32, F32],
        [E4m3, E4m3, Bf16],
        [E4m3, E4m3, F16],
        [E4m3, E4m3, F32],
        [E4m3, E4m3, E4m3],
        [E4m3, E4m3, E5m2],
        [E4m3, E5m2, Bf16],
        [E4m3, E5m2, F16],
        [E4m3, E5m2, F32],
        [E4m3, E5m2, E4m3],
        [E4m3, E5m2, E5m2],
        [E5m2, E4m3, Bf16],
        [E5m2, E4m3, F16],
        [E5m2, E4m3, F32],
        [E5m2, E4m3, E4m3],
        [E5m2, E4m3, E5m2],
        [E5m2, E5m2, Bf16],
        [E5m2, E5m2, F16],
        [E5m2, E5m2, F32],
        [E5m2, E5m2, E4m3],
        [E5m2, E5m2, E5m2],
        [S8, S8, S32],
        [S8, S8, F32],
        [S8, S8, F16],
        [S8, S8, Bf16],
        [S8, S8, S8],
        [S8, U8, S32],
        [S8, U8, F32],
        [S8, U8, F16],
        [S8, U8, Bf16],
        [S8, U8, S8],
        [U8, S8, S32],
        [U8, S8, F32],
        [U8, S8, F16],
        [U8, S8, Bf16],
        [U8, S8, S8],
        [U8, U8, S32],
        [U8, U8, F32],
        [U8, U8, F16],
        [U8, U8, Bf16],
        [U8, U8, S8],
        [F64, F64, F64],
        [F32, F32, F32],
    ]
};

/// The specs of the catalogue for operands of these types and majors, A's before B's, rated: with the operands as they are,
/// and with A and B in each other's place. Made once for each combination. Empty where types or majors have no kernel.
pub fn rated(
    operands: [Element; 2],
    output: Element,
    a: OperandMajor,
    b: OperandMajor,
) -> &'static [AnyRated] {
    static TABLES: [[OnceLock<Vec<AnyRated>>; 4]; TYPES.len()] =
        [const { [const { OnceLock::new() }; 4] }; TYPES.len()];
    let [a_type, b_type] = operands;
    let types = [a_type, b_type, output];
    let Some(kind) = TYPES.iter().position(|known| *known == types) else { return &[] };
    let along_mn = |major| usize::from(major == OperandMajor::Mn);
    TABLES[kind][along_mn(a) * 2 + along_mn(b)].get_or_init(|| {
        let plain = catalogue::any_specs_for(operands, a, b, OutputMajor::N, output);
        let swapped = catalogue::any_specs_for([b_type, a_type], b, a, OutputMajor::M, output);
        plain.into_iter().chain(swapped).map(AnyRated::new).collect()
    })
}

/// The specs of the catalogue for f32 that is split into such terms, rated, as [`rated`].
pub fn rated_terms(element: Element, terms: Terms) -> &'static [AnyRated] {
    static TABLES: [OnceLock<Vec<AnyRated>>; catalogue::TERM_TYPES.len()] =
        [const { OnceLock::new() }; catalogue::TERM_TYPES.len()];
    let types = catalogue::TERM_TYPES;
    let Some(kind) = types.iter().position(|known| *known == (element, terms)) else { return &[] };
    TABLES[kind].get_or_init(|| {
        let majors = [OutputMajor::N, OutputMajor::M].into_iter();
        let specs = majors.flat_map(|d| catalogue::specs_of_terms(element, terms, d));
        specs.map(AnySpec::from).map(AnyRated::new).collect()
    })
}

/// Choices with their estimates, least first. Only what is asked for is sorted.
pub struct Ranking(Vec<(f64, Choice)>);

impl Ranking {
    /// Every spec with the ways to split its tiles that may be worth it, or the one of `split`.
    pub fn new<'r>(
        specs: impl IntoIterator<Item = &'r AnyRated>,
        shape: impl Into<Shape>,
        sms: u32,
        split: Option<Split>,
        dependent_launch: Option<bool>,
    ) -> Self {
        let shape = shape.into();
        let mut choices = Vec::with_capacity(512);
        for rated in specs {
            let spec = rated.spec();
            let placed = Placed::new(spec, shape, sms);
            let raster_rows = placed.raster_rows;
            let mut add = |split| {
                for launch in [true, false] {
                    if dependent_launch.is_none_or(|asked| asked == launch) {
                        let dependent_launch = launch;
                        let choice = Choice { spec, raster_rows, split, dependent_launch };
                        choices.push((rated.cycles(&placed, &choice), choice));
                    }
                }
            };
            add(split.unwrap_or_default());
            if split.is_none() {
                placed.splits().for_each(add);
            }
        }
        Ranking(choices)
    }

    /// Those of several ways to read a problem's operands, each with the cycles that come before; `None` where there is no choice.
    pub(crate) fn of_ways(ways: impl Iterator<Item = (Ranking, f64)>) -> Option<Self> {
        let later = |(Ranking(choices), before): (Ranking, f64)| {
            choices.into_iter().map(move |(cycles, choice)| (cycles + before, choice))
        };
        let all: Vec<_> = ways.flat_map(later).collect();
        (!all.is_empty()).then_some(Ranking(all))
    }
}

impl Iterator for Ranking {
    type Item = Choice;

    fn next(&mut self) -> Option<Choice> {
        let least = (0..self.0.len()).min_by(|&a, &b| self.0[a].0.total_cmp(&self.0[b].0))?;
        Some(self.0.swap_remove(least).1)
    }
}

/// Every spec with the ways to split its tiles that may be worth it (or the one of `split`), fastest first by [`cycles`].
pub fn rank(
    specs: impl IntoIterator<Item = AnySpec>,
    shape: impl Into<Shape>,
    sms: u32,
    split: Option<Split>,
) -> Vec<Choice> {
    let rated: Vec<_> = specs.into_iter().map(AnyRated::new).collect();
    let Ranking(mut choices) = Ranking::new(&rated, shape, sms, split, None);
    choices.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    choices.into_iter().map(|(_, choice)| choice).collect()
}

/// Rows of cluster tiles to walk together: as many as make the tiles in flight a square of D, so that they share operands
/// in L2, but in groups of equal height.
pub fn raster_rows(spec: &AnySpec, m: u64, sms: u32) -> u32 {
    let (tile, cluster) = (spec.tile(), spec.cluster());
    // Extents are below 2^31, so the rows fit.
    let rows = m.div_ceil(u64::from(tile.m * cluster.m)).max(1) as u32;
    let in_flight = f64::from(sms / cluster.size());
    let aspect = f64::from(tile.n * cluster.n) / f64::from(tile.m * cluster.m);
    let square = (in_flight * aspect).sqrt().round().max(1.0) as u32;
    let groups = rows.div_ceil(square);
    rows.div_ceil(groups)
}

#[cfg(test)]
mod tests;
