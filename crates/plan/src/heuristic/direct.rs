//! The cost model of direct kernels, each of whose warps has tiles of its own. A warp loads, adds up
//! and stores one tile after the other, and an SM has as many warps as registers allow. So the
//! tiles of an SM are bound by the instructions that its warps issue, by its loads and stores, or
//! by the latency of the loads; and all tiles by the traffic of DRAM.

use pgemm_kernels::{DirectSpec, Spec};

use super::estimate::Estimate;
use super::fourth_power;
use super::placement::{RunChoice, TilePlacement};

/// Warps of a CTA.
const WARPS: f64 = 4.0;

/// What the model of direct kernels takes its cycles from. `pgemm atlas --survey` timed them.
#[derive(Clone, Copy, Debug)]
struct DirectConstants {
    /// Cycles of an SM for one load of a warp, and for one store, with all that belongs to it.
    load: f64,
    store: f64,
    /// Cycles of an SM for a tile besides these.
    tile: f64,
    /// Cycles from a load to its value, and from a tile's first instruction to its last besides its
    /// loads.
    latency: f64,
    alone: f64,
    /// Bytes of DRAM per cycle.
    dram_bytes_per_cycle: f64,
    /// Cycles of a launch, and of a serial one in addition.
    launch: f64,
    serial: f64,
}

const FITTED: DirectConstants = DirectConstants {
    load: 2.0,
    store: 4.0,
    tile: 60.0,
    latency: 900.0,
    alone: 1200.0,
    dram_bytes_per_cycle: 2300.0,
    launch: 1700.0,
    serial: 1150.0,
};

/// The terms of the model that depend on the spec alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectModel {
    /// Loads of a lane in one stage, and its stores.
    loads: f64,
    stores: f64,
    /// Warps of an SM.
    warps: f64,
    bytes: f64,
}

impl DirectModel {
    /// The model of a valid spec.
    pub(super) fn new(spec: &Spec) -> Self {
        let [m, n, k] = [spec.tile.m, spec.tile.n, spec.tile.k].map(f64::from);
        DirectModel {
            loads: (m + n) * k / 32.0,
            stores: m * n / 32.0,
            warps: f64::from(spec.working_ctas_per_sm()) * WARPS,
            bytes: f64::from(spec.a.bytes()),
        }
    }

    /// The estimate of a choice. Only its cycles are known.
    pub(super) fn estimate(&self, placement: &TilePlacement, run: RunChoice) -> Estimate {
        let constants = FITTED;
        let [m, n, _] = placement.extents;
        let tiles = placement.tiles() as f64;
        let stages = placement.k_tiles as f64;
        let of_sm = (tiles / f64::from(placement.sms)).max(1.0);
        // Results that do not exist are not stored.
        let results = m * n / (placement.rows as f64 * placement.columns as f64);
        let stores = self.stores.min(results / 8.0);
        let busy = of_sm
            * (constants.tile + stages * self.loads * constants.load + stores * constants.store);
        let turns = (of_sm / self.warps).ceil();
        let late = turns * (constants.alone + stages * constants.latency);
        let traffic = placement.operands(self.bytes).into_iter().sum::<f64>()
            + m * n * placement.batch as f64 * self.bytes;
        let dram = placement.memory_factor * traffic / constants.dram_bytes_per_cycle;
        let terms = [busy, late, dram].map(fourth_power);
        let launch = constants.launch + if run.dependent_launch { 0.0 } else { constants.serial };
        let cycles = terms.into_iter().sum::<f64>().sqrt().sqrt() + launch;
        Estimate { cycles, ..Estimate::default() }
    }
}

/// Whether direct kernels may be the fastest for products of these extents: the smaller side of D is
/// at most a tile.
pub(crate) fn may_be_direct([m, n, _]: [u64; 3]) -> bool {
    m.min(n) <= u64::from(DirectSpec::MOST_LINES)
}
