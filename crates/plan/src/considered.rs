//! The kernels that the planner considers for a problem. Of the thousands that the catalogue's rule
//! allows, a bound on the time that is computed in a few nanoseconds leaves some dozen tiles; their
//! clusters are then estimated by the whole model.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{Cluster, Loader, OutputMajor, Spec, catalogue};

use crate::heuristic::{LeastCycles, RatedSpec, fourth_power};
use crate::precision::Precision;

/// Tiles whose clusters are estimated.
const TILES: usize = 8;

/// Steps between heights and between widths of tiles, and one more than the most steps of either.
const ROW_STEP: u32 = 64;
const COLUMN_STEP: u32 = 8;
const STEPS: usize = 33;

/// Powers of 2 up to the greatest depth of a tile, 256 elements.
const DEPTHS: usize = 9;

/// Types of A, B and D, precision, and majors and loaders of A and B.
pub(crate) type Key = ([Element; 3], Precision, [OperandMajor; 2], [Loader; 2]);

/// A tile with its warpgroups, schedule and depth, on one side of a swap.
struct Tile {
    /// Rows and columns, in steps of [`ROW_STEP`] and [`COLUMN_STEP`], and the power of 2 that is
    /// the depth.
    m: usize,
    n: usize,
    k: usize,
    least: LeastCycles,
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
        // The tiles with the least bounds so far, the least first.
        let mut least: Vec<(f64, [u64; 2], &'static Tile)> = Vec::with_capacity(TILES + 1);
        for (tiles, (extents, is_swapped)) in self.0.iter().zip(sides) {
            if swapped.is_some_and(|wanted| wanted != is_swapped) {
                continue;
            }
            let bounds = Bounds::new(extents, batch, sms);
            for tile in tiles {
                let most = if least.len() < TILES { f64::INFINITY } else { least[TILES - 1].0 };
                let Some(bound) = bounds.below(most, tile) else { continue };
                least.truncate(TILES - 1);
                let place = least.partition_point(|other| other.0 <= bound);
                least.insert(place, (bound, bounds.tiles(tile), tile));
            }
        }
        // A cluster of twice as many CTAs as there are tiles would be half idle.
        let fits = |[rows, columns]: [u64; 2], rated: &RatedSpec| {
            let Cluster { m, n } = rated.spec.cluster;
            u64::from(m) < 2 * rows.max(1) && u64::from(n) < 2 * columns.max(1)
        };
        let specs = |(_, tiles, tile): (f64, [u64; 2], &'static Tile)| {
            tile.specs.iter().filter(move |rated| fits(tiles, rated))
        };
        least.into_iter().flat_map(specs).collect()
    }
}

impl Tile {
    fn new(rated: RatedSpec) -> Tile {
        let tile = rated.spec.tile;
        Tile {
            m: (tile.m / ROW_STEP) as usize,
            n: (tile.n / COLUMN_STEP) as usize,
            k: tile.k.trailing_zeros() as usize,
            least: rated.least_cycles(),
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
    /// Stages of each depth, by the power of 2.
    stages: [f64; DEPTHS],
    batch: f64,
    sms: f64,
}

impl Bounds {
    fn new([m, n, k]: [u64; 3], batch: u64, sms: u32) -> Bounds {
        let tiles = |extent: u64, step: u32| {
            std::array::from_fn(|steps| extent.div_ceil(u64::from(step) * steps.max(1) as u64))
        };
        let (rows, columns) = (tiles(m, ROW_STEP), tiles(n, COLUMN_STEP));
        let stages = std::array::from_fn(|power| k.div_ceil(1 << power).max(1) as f64);
        Bounds { rows, columns, stages, batch: batch as f64, sms: sms.into() }
    }

    /// Rows and columns of D in these tiles.
    fn tiles(&self, tile: &Tile) -> [u64; 2] {
        [self.rows[tile.m], self.columns[tile.n]]
    }

    /// The bound of a tile if it is below `most`: all tiles in waves, or their stages divided
    /// evenly over all SMs with a reduction.
    fn below(&self, most: f64, tile: &Tile) -> Option<f64> {
        let [rows, columns] = self.tiles(tile);
        let tiles = rows as f64 * columns as f64 * self.batch;
        let stages = self.stages[tile.k];
        let even = tiles / self.sms;
        // The rounding function of the standard library is slower without SSE 4.1.
        let full = even as u64 as f64;
        let waves = if even > full { full + 1.0 } else { full };
        let LeastCycles { reduction, worker, sent, .. } = tile.least;
        let whole = tile.least.busy(waves * stages, waves);
        let (divided, reduction) = if even == waves {
            (f64::INFINITY, 0.0)
        } else {
            let workers = (1.0 / even).max(2.0).min(stages);
            let busy = tile.least.busy((even * stages).max(1.0), even.max(1.0));
            (busy, reduction + (workers - 2.0) * worker)
        };
        if whole.min(divided + reduction) >= most {
            return None;
        }
        let l2 = fourth_power(tiles * stages * sent);
        let all = |busy: f64| (fourth_power(busy) + l2).sqrt().sqrt();
        Some(all(whole).min(all(divided) + reduction)).filter(|bound| *bound < most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heuristic::{self, Ranking, Shape};

    /// What a pick loses, by its estimate, because not all kernels of the rule are estimated.
    fn lost(key: Key, extents: [u64; 3]) -> f64 {
        let (table, shape) = (Table::of(key), Shape::from(extents));
        let pick = |specs: Vec<&'static RatedSpec>| {
            let choice = Ranking::new(specs, shape, 132, None, None).next().unwrap();
            (heuristic::cycles(&choice, shape, 132), choice)
        };
        let all = table.0.iter().flatten().flat_map(|tile| &tile.specs).collect();
        let (best, of_all) = pick(all);
        let considered = table.considered(extents, 1, 132, None);
        let number = considered.len();
        let (least, pick) = pick(considered);
        if std::env::var("SHOW").is_ok() && least > 1.03 * best {
            println!("{extents:?}: {number} {:.3} {}:{} {:.0} instead of {}:{} {:.0}", least / best, pick.spec, pick.split, least, of_all.spec, of_all.split, best);
        }
        least / best
    }

    #[test]
    fn little_is_lost_by_the_kernels_that_are_not_considered() {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        for (element, output) in [(Element::Bf16, Element::Bf16), (Element::E4m3, Element::Bf16)] {
            let key = (
                [element, element, output],
                Precision::Full,
                [OperandMajor::K, OperandMajor::K],
                [Loader::Tma, Loader::Tma],
            );
            let mut losses: Vec<f64> = Vec::new();
            while losses.len() < 150 {
                let mut extent = || ((16.0 * (1250.0f64).powf(next()) / 8.0) as u64).max(1) * 8;
                let extents = [extent(), extent(), extent()];
                let flops = 2.0 * extents.map(|extent| extent as f64).iter().product::<f64>();
                if (0.05e9..600e9).contains(&flops) {
                    losses.push(lost(key, extents).ln());
                }
            }
            losses.sort_by(f64::total_cmp);
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            println!("{element}: mean {:.4}, 90 % {:.4}, 95 % {:.4}, worst {:.4}", mean.exp(), losses[losses.len() * 9 / 10].exp(), losses[losses.len() * 19 / 20].exp(), losses[losses.len() - 1].exp());
        }
    }
}
