//! The cost model of direct kernels, each of whose warps has tiles of its own. A warp loads, adds
//! up and stores one tile after the other, and an SM has as many warps as registers allow. So the
//! tiles of an SM are bound by the instructions and lines of their loads and stores, by the latency
//! of a warp, and by the traffic of DRAM.

use pgemm_ir::{OperandMajor, WARPGROUP_WARPS};
use pgemm_kernels::{DirectSpec, Spec};

use super::SERIAL_CYCLES;
use super::estimate::Estimate;
use super::placement::{RunChoice, TilePlacement};

/// Bytes of a line of L1.
const LINE_BYTES: f64 = 128.0;

/// Lines of an operand of which the lanes of a warp load elements at once, if it is K-major, and if
/// it is not. Results are stored in as many rows as the former.
const LINES_AT_ONCE: f64 = 8.0;
const DEPTHS_AT_ONCE: f64 = 4.0;

/// The constants of the model, in cycles unless a comment says otherwise. `scripts/fit-direct.py`
/// fits them to timings of 220 drawn problems (runs `2026-11-26-direct-drawn-*` of
/// `benchmarks/results/direct.jsonl`) and checks them on 110 others (`2026-11-26-direct-held-*`).
struct DirectConstants {
    /// Issue slots of a tile, of a stage, of a load of a K-major operand, and of each line of L1
    /// that a load touches, by major.
    tile: f64,
    stage: f64,
    load: f64,
    line_of_k: f64,
    line_of_mn: f64,
    /// Issue slots of a store, and of each line that it touches.
    store: f64,
    stored_line: f64,
    /// Latency of a stage, and what each of its loads and each of the tile's stores adds.
    late_stage: f64,
    late_load: f64,
    late_store: f64,
    /// Bytes of DRAM per cycle on an H200.
    dram_bytes_per_cycle: f64,
    /// A dependent launch.
    launch: f64,
    /// The power by which the three bounds are added.
    power: f64,
}

const FITTED: DirectConstants = DirectConstants {
    tile: 202.7,
    stage: 73.2,
    load: 1.85,
    line_of_k: 1.45,
    line_of_mn: 2.22,
    store: 1.3,
    stored_line: 14.2,
    late_stage: 704.0,
    late_load: 12.0,
    late_store: 31.9,
    dram_bytes_per_cycle: 2670.0,
    launch: 2185.0,
    power: 1.49,
};

/// The terms of the model that depend on the spec alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectModel {
    /// Loads of a warp in one stage, by operand, and whether the operand is K-major.
    loads: [(f64, bool); 2],
    /// Elements of a tile, and warps of an SM.
    elements: f64,
    warps: f64,
    /// Bytes of an element of an operand, and of D.
    bytes: [f64; 2],
}

impl DirectModel {
    /// The model of a valid spec.
    pub(super) fn new(spec: &Spec, direct: &DirectSpec) -> Self {
        let [m, n, k] = [spec.tile.m, spec.tile.n, spec.tile.k].map(f64::from);
        let [of_a, of_b] = direct.widths.map(f64::from);
        let loads = |lines: f64, major, width: f64| {
            // Each lane loads an element of so many.
            (lines * k / (32.0 * width), major == OperandMajor::K)
        };
        DirectModel {
            loads: [loads(m, spec.a_major, of_a), loads(n, spec.b_major, of_b)],
            elements: m * n,
            warps: f64::from(spec.working_ctas_per_sm() * WARPGROUP_WARPS),
            bytes: [spec.a.bytes(), spec.output.bytes()].map(f64::from),
        }
    }

    /// The estimate of a choice. Only its cycles are known.
    pub(super) fn estimate(&self, placement: &TilePlacement, run: RunChoice) -> Estimate {
        let constants = FITTED;
        let [m, n, _] = placement.extents;
        let stages = placement.k_tiles as f64;
        let of_sm = (placement.tiles() as f64 / f64::from(placement.sms)).max(1.0);
        let [of_operands, of_d] = self.bytes;

        // The lines that a load or store touches: one for each line of an operand, or fewer if
        // several of these are in one line of L1.
        let touched =
            |most: f64, pitch: u64, lines: f64| (lines * pitch as f64 / LINE_BYTES).min(most);
        let mut issued = 0.0;
        let mut loads = 0.0;
        for ((count, along_k), pitch) in self.loads.into_iter().zip(placement.pitches) {
            loads += count;
            issued += match along_k {
                true => {
                    let lines = touched(LINES_AT_ONCE, pitch, LINES_AT_ONCE);
                    count * (constants.load + constants.line_of_k * lines)
                }
                false => {
                    let depths = DEPTHS_AT_ONCE * f64::from(DirectSpec::LANE_DEPTHS);
                    count * constants.line_of_mn * touched(DEPTHS_AT_ONCE, pitch, depths)
                }
            };
        }
        // Results that do not exist are not stored, and others in pairs if these are aligned.
        let of_pair = 2.0 * of_d;
        let in_pairs = n % 2.0 == 0.0 && placement.d_pitch as f64 % of_pair == 0.0;
        let at_once = if in_pairs { 2.0 } else { 1.0 };
        let exist = m * n / (placement.rows as f64 * placement.columns as f64 * self.elements);
        let stores = self.elements / (32.0 * at_once);
        let lines = touched(LINES_AT_ONCE, placement.d_pitch, LINES_AT_ONCE);
        let stored = exist * stores * (constants.store + constants.stored_line * lines);

        let slots = constants.tile + stages * (constants.stage + issued) + stored;
        let busy = of_sm * slots / f64::from(WARPGROUP_WARPS);
        let turns = (of_sm / self.warps).ceil();
        let late_stage = constants.late_stage + constants.late_load * loads;
        let late = turns * (stages * late_stage + constants.late_store * exist * stores);
        let traffic = placement.operands(of_operands).into_iter().sum::<f64>()
            + m * n * placement.batch as f64 * of_d;
        let dram = placement.memory_factor * traffic / constants.dram_bytes_per_cycle;

        let bounds = [busy, late, dram].map(|bound| bound.powf(constants.power));
        let serial = if run.dependent_launch { 0.0 } else { SERIAL_CYCLES };
        let bound = bounds.into_iter().sum::<f64>().powf(constants.power.recip());
        Estimate { cycles: bound + constants.launch + serial, ..Estimate::default() }
    }
}

/// Most lines along the shorter side of a product for which direct kernels are estimated. Of 24
/// drawn products with 33 to 64 lines, other kernels were faster in 18, by up to 2.3 times, and of
/// 41 with fewer in 4 (runs `2026-11-26-direct-*`, products of more than [`MOST_RESULTS`]).
const MOST_SHORT_LINES: u64 = 32;

/// Most results of a product for which direct kernels are estimated if both its sides are longer.
/// Such a product is bound by its launch.
const MOST_RESULTS: u64 = 1 << 16;

/// Whether direct kernels are worth estimating for products of these extents.
pub(crate) fn may_be_direct([m, n, _]: [u64; 3]) -> bool {
    m.min(n) <= MOST_SHORT_LINES || m.saturating_mul(n) <= MOST_RESULTS
}
