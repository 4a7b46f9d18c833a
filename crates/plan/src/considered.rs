//! The kernels that the planner considers for a problem. Of the thousands that the catalogue's rule
//! allows, a bound on the time that is computed in a few nanoseconds leaves some dozen tiles; their
//! clusters are then estimated by the whole model.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{Cluster, Loader, OutputMajor, Spec, catalogue};

use crate::heuristic::{LeastCycles, RatedSpec, Shape, fourth_power};
use crate::precision::Precision;
use crate::split::Split;

/// Tiles whose clusters are estimated: of the only way to access the operands, and of each of
/// several.
const TILES: usize = 6;
const TILES_OF_SEVERAL: usize = 5;

/// Steps between heights and between widths of tiles, and one more than the most steps of either.
const ROW_STEP: u32 = 64;
const COLUMN_STEP: u32 = 8;
const STEPS: usize = 33;

/// The power of 2 that is the steps between widths in a line of 64 columns.
const LINE_STEPS: u32 = 3;

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

    /// The kernels worth estimating for a problem on `sms` SMs. `swapped` says whether operands are
    /// exchanged, and `split` how tiles are split, if that is not left open. `alone` says whether
    /// there is no other way to access the operands.
    pub(crate) fn considered(
        &'static self,
        shape: Shape,
        sms: u32,
        swapped: Option<bool>,
        split: Option<Split>,
        alone: bool,
    ) -> Vec<&'static RatedSpec> {
        let most_tiles = if alone { TILES } else { TILES_OF_SEVERAL };
        let [m, n, k] = shape.extents;
        let sides = [([m, n, k], false), ([n, m, k], true)];
        // The tiles with the least bounds so far, the least first.
        let mut least: Vec<(f64, [u64; 2], &'static Tile)> = Vec::with_capacity(most_tiles + 1);
        for (tiles, (extents, is_swapped)) in self.0.iter().zip(sides) {
            if swapped.is_some_and(|wanted| wanted != is_swapped) {
                continue;
            }
            let bounds = Bounds::new(extents, shape, sms, split);
            for tile in tiles {
                let is_full = least.len() == most_tiles;
                let most = if is_full { least[most_tiles - 1].0 } else { f64::INFINITY };
                let Some(bound) = bounds.below(most, tile) else { continue };
                least.truncate(most_tiles - 1);
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
    /// Widths with as many tiles along n as a narrower one whose lines are cut as well.
    wide: [bool; STEPS],
    /// Stages of each depth, by the power of 2.
    stages: [f64; DEPTHS],
    batch: f64,
    /// Elements of all operands, and of all results.
    elements: [f64; 2],
    activated: bool,
    sms: f64,
    /// How tiles are split, if that is not left open.
    split: Option<Split>,
}

impl Bounds {
    fn new([m, n, k]: [u64; 3], shape: Shape, sms: u32, split: Option<Split>) -> Bounds {
        let tiles = |extent: u64, step: u32| {
            std::array::from_fn(|steps| extent.div_ceil(u64::from(step) * steps.max(1) as u64))
        };
        let (rows, columns) = (tiles(m, ROW_STEP), tiles(n, COLUMN_STEP));
        let wide = wide(&columns);
        let stages = std::array::from_fn(|power| k.div_ceil(1 << power).max(1) as f64);
        let (batch, elements) = (shape.batch as f64, shape.elements());
        let (activated, sms) = (shape.is_activated(), sms.into());
        Bounds { rows, columns, wide, stages, batch, elements, activated, sms, split }
    }

    /// Rows and columns of D in these tiles.
    fn tiles(&self, tile: &Tile) -> [u64; 2] {
        [self.rows[tile.m], self.columns[tile.n]]
    }

    /// The bound of a tile if it is below `most`.
    fn below(&self, most: f64, tile: &Tile) -> Option<f64> {
        if self.wide[tile.n] {
            return None;
        }
        let [rows, columns] = self.tiles(tile);
        let tiles = rows as f64 * columns as f64 * self.batch;
        let stages = self.stages[tile.k];
        // However tiles are split, their stages take some SM this long. Most tiles fail here.
        if tiles * stages * tile.least.stage >= most * self.sms {
            return None;
        }
        let even = tiles / self.sms;
        let least = tile.least.when_activated(self.activated);
        let LeastCycles { reduction, of_part, worker, sent, .. } = least;
        // Either all tiles in waves, or their stages divided over all SMs with a reduction.
        let in_waves = |tiles_per_sm: f64, stages: f64| {
            let waves = ceil(tiles_per_sm);
            least.busy(waves * stages, waves)
        };
        let reduced = |parts: f64, turns: f64| {
            reduction + turns * of_part + (parts.min(stages) - 2.0).max(0.0) * worker
        };
        let whole = || in_waves(even, stages);
        let divided = || {
            let busy = least.busy((even * stages).max(1.0), even.max(1.0));
            (busy, reduced(1.0 / even, 1.0))
        };
        const NEVER: (f64, f64) = (f64::INFINITY, 0.0);
        let (whole, (divided, reduction)) = match self.split {
            Some(Split::Whole) => (whole(), NEVER),
            // With some cluster, stream-K may have only whole tiles.
            None | Some(Split::StreamK) if even == ceil(even) => (whole(), NEVER),
            None | Some(Split::StreamK) => (whole(), divided()),
            Some(Split::SplitK(parts)) => {
                let parts = f64::from(parts).min(stages);
                let busy = in_waves(even * parts, ceil(stages / parts));
                let turns = if parts > 1.0 { ceil(even * parts) } else { 0.0 };
                (f64::INFINITY, (busy, reduced(parts, turns)))
            }
        };
        if whole.min(divided + reduction) >= most {
            return None;
        }
        let [operands, results] = self.elements;
        let dram = operands * least.element + results * least.result;
        let memory = fourth_power(tiles * stages * sent) + fourth_power(dram);
        let all = |busy: f64| (fourth_power(busy) + memory).sqrt().sqrt();
        Some(all(whole).min(all(divided) + reduction)).filter(|bound| *bound < most)
    }
}

/// The widths that only add padding, from the number of tiles of each width. A narrower one has as
/// many tiles, and divides lines of 64 columns into pieces that are as long or longer.
fn wide(tiles: &[u64; STEPS]) -> [bool; STEPS] {
    // The length of pieces, as a power of 2: the most of the narrower widths with as many tiles.
    let mut pieces = None;
    std::array::from_fn(|steps| {
        if steps < 2 {
            return false;
        }
        if tiles[steps] < tiles[steps - 1] {
            pieces = None;
        }
        let own = Some(steps.trailing_zeros().min(LINE_STEPS));
        let is_wide = pieces >= own;
        pieces = pieces.max(own);
        is_wide
    })
}

/// The least whole number that is not below a number of 0 or more. The standard library's function
/// takes longer without SSE 4.1.
fn ceil(number: f64) -> f64 {
    let whole = number as u64 as f64;
    if number > whole { whole + 1.0 } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heuristic::{self, Ranking};

    /// SMs of an H100 and of an H200.
    const SMS: u32 = 132;

    /// Problems of each case.
    const PROBLEMS: usize = 60;

    /// Whole numbers that look random.
    struct Numbers(u64);

    impl Numbers {
        /// A log-uniform multiple of 8 from 16 to 20000.
        fn extent(&mut self) -> u64 {
            // Knuth's MMIX generator; its high bits are good enough.
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let uniform = (self.0 >> 33) as f64 / 2f64.powi(31);
            (2.0 * 1250f64.powf(uniform)).round() as u64 * 8
        }
    }

    /// The time of the pick among the kernels that are considered, over that of the best of all,
    /// both as the trees correct them.
    fn lost(table: &'static Table, extents: [u64; 3], split: Option<Split>) -> f64 {
        let cycles = |choice| heuristic::cycles(&choice, Shape::from(extents), SMS);
        let considered = table.considered(Shape::from(extents), SMS, None, split, true);
        let pick = Ranking::new(considered, extents, SMS, split, None).next().unwrap();
        let all = table.0.iter().flatten().flat_map(|tile| &tile.specs);
        let best = heuristic::rank(all.map(|rated| rated.spec), extents, SMS, split)[0];
        cycles(pick) / cycles(best)
    }

    #[test]
    fn widths_that_only_add_padding_are_left_out() {
        let widths = |n: u64| {
            let Bounds { wide, .. } =
                Bounds::new([512, n, 512], Shape::from([512, n, 512]), SMS, None);
            (1..STEPS).filter(|steps| !wide[*steps]).map(|steps| 8 * steps).collect::<Vec<_>>()
        };
        // Six tiles of 96 columns are as many as of 104 or 112; four of 144 are as many as of 152.
        let of_576 = widths(576);
        assert!([64, 72, 96, 144, 192].iter().all(|width| of_576.contains(width)), "{of_576:?}");
        assert!([104, 112, 152, 200].iter().all(|width| !of_576.contains(width)), "{of_576:?}");
        // Tiles of 112 columns have longer pieces than those of 104.
        let of_624 = widths(624);
        assert!([104, 112].iter().all(|width| of_624.contains(width)), "{of_624:?}");
        // One column of tiles.
        assert_eq!(widths(24), [8, 16, 24, 32, 64]);
        assert_eq!(widths(16), [8, 16, 32, 64]);
    }

    #[test]
    fn little_is_lost_by_the_kernels_that_are_not_considered() {
        let k = OperandMajor::K;
        let splits = [None, Some(Split::Whole), Some(Split::SplitK(4))];
        for (element, output, split) in
            [(Element::Bf16, Element::Bf16), (Element::E4m3, Element::Bf16)]
                .into_iter()
                .flat_map(|(element, output)| splits.map(|split| (element, output, split)))
        {
            let types = ([element, element, output], Precision::Full, [k; 2], [Loader::Tma; 2]);
            let (table, mut numbers) = (Table::of(types), Numbers(7));
            let mut losses: Vec<f64> = Vec::new();
            while losses.len() < PROBLEMS {
                let extents = [numbers.extent(), numbers.extent(), numbers.extent()];
                let products: f64 = extents.map(|extent| extent as f64).iter().product();
                if (2.5e7..3e11).contains(&products) {
                    losses.push(lost(table, extents, split));
                }
            }
            losses.sort_by(f64::total_cmp);
            let mean = (losses.iter().map(|loss| loss.ln()).sum::<f64>() / PROBLEMS as f64).exp();
            let most = losses[PROBLEMS * 19 / 20 - 1];
            println!("{element} {split:?}: mean {mean:.4}, 95 % {most:.4}");
            assert!(mean < 1.01, "{element} {split:?}: {mean}");
            assert!(most < 1.05, "{element} {split:?}: {most}");
        }
    }
}
