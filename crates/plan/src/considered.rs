//! The kernels that the planner considers for a problem. Of the thousands that the catalogue's rule
//! allows, a bound on the time that is computed in a few nanoseconds leaves some dozen tiles; their
//! clusters are then estimated by the whole model.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{Cluster, Loader, OutputMajor, Spec, catalogue};

use crate::heuristic::RatedSpec;
use crate::precision::Precision;

/// Tiles whose clusters are estimated.
const TILES: usize = 12;

/// Cycles of the reduction of a tile that is split along k, for the bound.
const REDUCTION_CYCLES: f64 = 4000.0;

/// Types of A, B and D, precision, and majors and loaders of A and B.
pub(crate) type Key = ([Element; 3], Precision, [OperandMajor; 2], [Loader; 2]);

/// A tile with its warpgroups, schedule and depth, on one side of a swap.
struct Tile {
    /// Rows, columns and depth.
    m: u64,
    n: u64,
    k: u64,
    /// Least cycles of a stage and of an epilogue.
    stage: f64,
    epilogue: f64,
    /// The tile in every cluster that is legal.
    specs: Vec<RatedSpec>,
}

/// All kernels of the rule for one [`Key`]: those that compute D, and those that compute its
/// transpose from exchanged operands.
pub(crate) struct Table([Vec<Tile>; 2]);

impl Table {
    /// The table of a key. It is made once and kept, as there are few keys.
    pub(crate) fn of(key: Key) -> &'static Table {
        static TABLES: Mutex<Option<HashMap<Key, &'static Table>>> = Mutex::new(None);
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = tables.get_or_insert_default();
        *tables.entry(key).or_insert_with(|| Box::leak(Box::new(Table::new(key))))
    }

    fn new(([a_type, b_type, output], precision, [a, b], [of_a, of_b]): Key) -> Table {
        let tiles = |operands, majors, loaders, d_major| {
            let specs = catalogue::rule(operands, majors, loaders, d_major, output);
            let mut tiles: Vec<Tile> = Vec::new();
            for spec in specs.filter(|spec| Precision::of(spec) == precision) {
                let rated = RatedSpec::new(spec);
                match tiles.last_mut() {
                    Some(tile) if tile.has(&spec) => tile.specs.push(rated),
                    _ => tiles.push(Tile::new(rated)),
                }
            }
            tiles
        };
        Table([
            tiles([a_type, b_type], (a, b), [of_a, of_b], OutputMajor::N),
            tiles([b_type, a_type], (b, a), [of_b, of_a], OutputMajor::M),
        ])
    }

    /// The kernels worth estimating for `batch` products of these extents on `sms` SMs. `swapped`
    /// says whether operands are exchanged, if that is not left open.
    pub(crate) fn considered(
        &self,
        extents: [u64; 3],
        batch: u64,
        sms: u32,
        swapped: Option<bool>,
    ) -> Vec<&RatedSpec> {
        let [m, n, k] = extents;
        let sides = [([m, n, k], false), ([n, m, k], true)];
        let mut bounded: Vec<(f64, &Tile)> = Vec::with_capacity(1024);
        for (tiles, (extents, is_swapped)) in self.0.iter().zip(sides) {
            if swapped.is_none_or(|wanted| wanted == is_swapped) {
                let bound = |tile| (Tile::bound(tile, extents, batch, sms), tile);
                bounded.extend(tiles.iter().map(bound));
            }
        }
        if bounded.len() > TILES {
            bounded.select_nth_unstable_by(TILES - 1, |a, b| a.0.total_cmp(&b.0));
            bounded.truncate(TILES);
        }
        bounded.into_iter().flat_map(|(_, tile)| &tile.specs).collect()
    }
}

impl Tile {
    fn new(rated: RatedSpec) -> Tile {
        let [m, n, k] = [rated.spec.tile.m, rated.spec.tile.n, rated.spec.tile.k].map(u64::from);
        let (stage, epilogue) = rated.least_cycles();
        Tile { m, n, k, stage, epilogue, specs: vec![rated] }
    }

    /// Whether a spec differs from this tile's by its cluster and ring only.
    fn has(&self, spec: &Spec) -> bool {
        self.specs.first().is_some_and(|RatedSpec { spec: own, .. }| {
            let alone = Cluster::NONE;
            Spec { cluster: alone, stages: 0, ..*own }
                == Spec { cluster: alone, stages: 0, ..*spec }
        })
    }

    /// A bound on the cycles of a problem: its tiles in waves, or their stages divided evenly over
    /// all SMs with a reduction.
    fn bound(&self, [m, n, k]: [u64; 3], batch: u64, sms: u32) -> f64 {
        let tiles = (m.div_ceil(self.m) * n.div_ceil(self.n)).saturating_mul(batch);
        let stages = k.div_ceil(self.k).max(1) as f64;
        let waves = tiles.div_ceil(u64::from(sms)) as f64;
        let whole = waves * (stages * self.stage + self.epilogue);
        let even = tiles as f64 / f64::from(sms);
        let divided =
            (even * stages).max(1.0) * self.stage + self.epilogue.max(even * self.epilogue);
        whole.min(divided + REDUCTION_CYCLES)
    }
}
