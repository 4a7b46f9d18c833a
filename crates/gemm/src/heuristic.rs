//! The first heuristic: estimates the cycles of a problem for each spec of the catalogue from waves, tensor-core rate,
//! shared-memory fill and epilogue, and takes the fewest.

use pgemm_ir::SM_REGISTERS;
use pgemm_kernels::KernelSpec;

/// Multiply-adds of 16-bit elements that an SM's tensor cores do per cycle.
const MACS_PER_CYCLE: f64 = 2048.0;

/// Bytes that reach an SM's shared memory from L2 per cycle.
const L2_BYTES_PER_CYCLE: f64 = 64.0;

/// Bytes from DRAM per SM and cycle, at 132 SMs.
const DRAM_BYTES_PER_CYCLE: f64 = 19.0;

/// Cycles from the first load to the first multiplication, and from the last one to the end of the kernel.
const FILL_CYCLES: f64 = 2500.0;

/// Cycles of the epilogue for each accumulator register of a thread, and for its start.
const EPILOGUE_CYCLES: (f64, f64) = (400.0, 6.0);

/// Extra time for each byte that comes from L2, as a power-bound clock falls: 15 % at 128 × 256.
const POWER_PER_INGEST: f64 = 12.8;

/// Work, in multiply-adds per SM, from which power binds.
const POWER_BOUND_MACS: f64 = 1e8;

/// The estimated cycles of an `m × n × k` problem on `sms` SMs.
pub fn cycles(spec: &KernelSpec, (m, n, k): (u64, u64, u64), sms: u32) -> f64 {
    let (tile, cluster) = (spec.tile, spec.cluster);
    let cluster_tiles =
        m.div_ceil(u64::from(tile.m * cluster.m)) * n.div_ceil(u64::from(tile.n * cluster.n));
    let clusters = u64::from((sms / cluster.size()).max(1));
    let waves = cluster_tiles.div_ceil(clusters) as f64;
    let k_tiles = k.div_ceil(u64::from(tile.k)).max(1) as f64;

    let [tm, tn, tk] = [tile.m, tile.n, tile.k].map(f64::from);
    let math = tm * tn * tk / MACS_PER_CYCLE;
    let fill = f64::from(spec.stage_bytes()) / L2_BYTES_PER_CYCLE;
    let (start, each) = EPILOGUE_CYCLES;
    let epilogue = start + each * f64::from(spec.accumulator_registers());
    let busy = waves * (k_tiles * math.max(fill) + epilogue);

    let bytes = f64::from(spec.operand.bytes()) * (m * k + k * n) as f64
        + f64::from(spec.output.bytes()) * (m * n) as f64;
    let dram = bytes / (DRAM_BYTES_PER_CYCLE * f64::from(sms));
    let macs = (m * n) as f64 * k as f64 / f64::from(sms);
    let power =
        if macs > POWER_BOUND_MACS { 1.0 + POWER_PER_INGEST * (1.0 / tm + 1.0 / tn) } else { 1.0 };
    (busy * power).max(dram) + FILL_CYCLES
}

/// The specs, fastest first by [`cycles`].
pub fn rank(
    specs: impl IntoIterator<Item = KernelSpec>,
    problem: (u64, u64, u64),
    sms: u32,
) -> Vec<KernelSpec> {
    let mut ranked: Vec<_> =
        specs.into_iter().map(|spec| (cycles(&spec, problem, sms), spec)).collect();
    ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    ranked.into_iter().map(|(_, spec)| spec).collect()
}

/// Rows of cluster tiles to walk together: as many as make the tiles in flight a square of D, so that they share operands
/// in L2, but in groups of equal height.
pub fn raster_rows(spec: &KernelSpec, m: u64, sms: u32) -> u32 {
    let (tile, cluster) = (spec.tile, spec.cluster);
    let rows = m.div_ceil(u64::from(tile.m * cluster.m)).clamp(1, u64::from(SM_REGISTERS)) as u32;
    let in_flight = f64::from(sms / cluster.size());
    let aspect = f64::from(tile.n * cluster.n) / f64::from(tile.m * cluster.m);
    let square = (in_flight * aspect).sqrt().round().max(1.0) as u32;
    let groups = rows.div_ceil(square);
    rows.div_ceil(groups)
}
