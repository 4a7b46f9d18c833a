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

/// Steps between heights and between widths of tiles, and one more than the most steps of either.
const ROW_STEP: u32 = 64;
const COLUMN_STEP: u32 = 8;
const STEPS: usize = 33;

/// Cycles of the reduction of a tile that is split along k, for the bound.
const REDUCTION_CYCLES: f64 = 4000.0;

/// Types of A, B and D, precision, and majors and loaders of A and B.
pub(crate) type Key = ([Element; 3], Precision, [OperandMajor; 2], [Loader; 2]);

/// A tile with its warpgroups, schedule and depth, on one side of a swap.
struct Tile {
    /// Rows and columns, in steps of [`ROW_STEP`] and [`COLUMN_STEP`], and depth.
    m: usize,
    n: usize,
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
        tables.entry(key).or_insert_with(|| Box::leak(Box::new(Table::new(key))))
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
        &'static self,
        extents: [u64; 3],
        batch: u64,
        sms: u32,
        swapped: Option<bool>,
    ) -> Vec<&'static RatedSpec> {
        let [m, n, k] = extents;
        let sides = [([m, n, k], false), ([n, m, k], true)];
        let mut bounded: Vec<(f64, [u64; 2], &'static Tile)> = Vec::with_capacity(1024);
        for (tiles, (extents, is_swapped)) in self.0.iter().zip(sides) {
            if swapped.is_none_or(|wanted| wanted == is_swapped) {
                let bounds = Bounds::new(extents, batch, sms);
                let bound = |tile| (bounds.of(tile), bounds.tiles(tile), tile);
                bounded.extend(tiles.iter().map(bound));
            }
        }
        if bounded.len() > TILES {
            bounded.select_nth_unstable_by(TILES - 1, |a, b| a.0.total_cmp(&b.0));
            bounded.truncate(TILES);
        }
        // A cluster of twice as many CTAs as there are tiles would be half idle.
        let fits = |[rows, columns]: [u64; 2], rated: &RatedSpec| {
            let Cluster { m, n } = rated.spec.cluster;
            u64::from(m) < 2 * rows.max(1) && u64::from(n) < 2 * columns.max(1)
        };
        let specs = |(_, tiles, tile): (f64, [u64; 2], &'static Tile)| {
            tile.specs.iter().filter(move |rated| fits(tiles, rated))
        };
        bounded.into_iter().flat_map(specs).collect()
    }
}

impl Tile {
    fn new(rated: RatedSpec) -> Tile {
        let tile = rated.spec.tile;
        let (stage, epilogue) = rated.least_cycles();
        Tile {
            m: (tile.m / ROW_STEP) as usize,
            n: (tile.n / COLUMN_STEP) as usize,
            k: tile.k.into(),
            stage,
            epilogue,
            specs: vec![rated],
        }
    }

    /// Whether a spec differs from this tile's by its cluster and ring only.
    fn has(&self, spec: &Spec) -> bool {
        self.specs.first().is_some_and(|RatedSpec { spec: own, .. }| {
            let alone = Cluster::NONE;
            Spec { cluster: alone, stages: 0, ..*own }
                == Spec { cluster: alone, stages: 0, ..*spec }
        })
    }
}

/// Bounds on the cycles of a problem in any tile.
struct Bounds {
    /// Tiles along m of each height, and along n of each width, by the number of steps.
    rows: [u64; STEPS],
    columns: [u64; STEPS],
    depth: u64,
    batch: u64,
    sms: f64,
}

impl Bounds {
    fn new([m, n, k]: [u64; 3], batch: u64, sms: u32) -> Bounds {
        let tiles = |extent: u64, step: u32| {
            std::array::from_fn(|steps| extent.div_ceil(u64::from(step) * steps.max(1) as u64))
        };
        let (rows, columns) = (tiles(m, ROW_STEP), tiles(n, COLUMN_STEP));
        Bounds { rows, columns, depth: k, batch, sms: sms.into() }
    }

    /// Rows and columns of D in these tiles.
    fn tiles(&self, tile: &Tile) -> [u64; 2] {
        [self.rows[tile.m], self.columns[tile.n]]
    }

    /// The bound of a tile: all tiles in waves, or their stages divided evenly over all SMs with a
    /// reduction.
    fn of(&self, tile: &Tile) -> f64 {
        let [rows, columns] = self.tiles(tile);
        let tiles = rows * columns;
        let stages = self.depth.div_ceil(tile.k).max(1) as f64;
        let even = tiles.saturating_mul(self.batch) as f64 / self.sms;
        // The number of waves, which is never below 1.
        let full = even as u64;
        let waves = full + u64::from(even > full as f64);
        let whole = waves as f64 * (stages * tile.stage + tile.epilogue);
        let divided = (even * stages).max(1.0) * tile.stage + tile.epilogue * even.max(1.0);
        whole.min(divided + REDUCTION_CYCLES)
    }
}
