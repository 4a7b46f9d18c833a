//! The kernels that the planner considers for a problem. The catalogue's rule allows thousands, in
//! hundreds of tiles. A bound on the time of each tile, which is computed in a few nanoseconds,
//! leaves some dozen tiles. Boosted trees correct the bounds of these, and the clusters of the best
//! tiles are estimated by the whole model.

mod bounds;

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{iter, thread};

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{Cluster, Loader, OutputMajor, Spec, WgmmaSpec, catalogue};

use self::bounds::{Bound, Bounds, COLUMN_STEP, ROW_STEP};
use crate::device::DeviceFacts;
use crate::heuristic::{
    LeastCycles, RatedSpec, Shape, Short, SpecGroup, TILE_FEATURES, TileFeatures, TileTerms, Trees,
    corrections, keep_least, least_corrected,
};
use crate::precision::Precision;
use crate::split::Split;

/// Tiles whose bounds the trees correct at once.
const LANES: usize = 32;

/// Most threads that make a table.
const MOST_THREADS: usize = 8;

/// Tiles that are considered.
struct Numbers {
    /// Tiles whose bounds the trees correct, those with the least bounds.
    bounded: usize,
    /// Tiles whose clusters are estimated, those with the least corrected bounds.
    estimated: usize,
}

/// The usual numbers for each way to access the operands, and those of problems that need more.
const USUAL: Numbers = Numbers { bounded: LANES, estimated: 8 };
const MORE: Numbers = Numbers { bounded: 2 * LANES, estimated: 24 };

/// Tiles of which all kernels are looked at, if those near the best are looked for.
const MANY: usize = 96;

/// The features of no tile.
static NOTHING: [Short; TILE_FEATURES] = [Short::ZERO; TILE_FEATURES];

/// Tiles of a problem in a sample, to which the trees are fitted.
const SAMPLED: usize = 64;

/// Types of A, B and D, precision, and majors and loaders of A and B.
pub(crate) type Key = ([Element; 3], Precision, [OperandMajor; 2], [Loader; 2]);

/// Specs to estimate. Those of a tile are found when it is estimated.
pub(crate) type Specs<'t> = Box<dyn Iterator<Item = &'t RatedSpec> + 't>;

/// What rules out most tiles. It is kept apart from the tiles, since all of these are looked at.
#[derive(Clone, Copy)]
struct TileSize {
    /// Rows and columns, in steps of [`ROW_STEP`] and [`COLUMN_STEP`], and the power of 2 that is
    /// the depth.
    m: u8,
    n: u8,
    k: u8,
    /// The least cycles of a stage.
    stage: f64,
}

/// A tile with its warpgroups, schedule and depth, on one side of a swap.
struct Tile {
    size: TileSize,
    least: LeastCycles,
    features: TileFeatures,
    /// The spec that the bound and the features are of: one without clusters, or the first one, and
    /// of these one of which the most CTAs work on an SM.
    bounded: RatedSpec,
    /// The tile in every cluster that is legal, and with every ring, when it has been estimated.
    specs: OnceLock<Vec<RatedSpec>>,
}

/// All kernels of the rule for one [`Key`]: those that compute D, and those that compute its
/// transpose from exchanged operands.
pub(crate) struct Table([Tiles; 2]);

/// The tiles of one side of a swap, and their sizes.
struct Tiles {
    sizes: Vec<TileSize>,
    tiles: Vec<Tile>,
}

impl Table {
    /// The table of a key. It is made once and kept, as there are few keys.
    pub(crate) fn of(key: Key) -> &'static Table {
        static TABLES: Mutex<Option<HashMap<Key, &'static Table>>> = Mutex::new(None);
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = tables.get_or_insert_default();
        tables.entry(key).or_insert_with(|| Box::leak(Box::new(Table::new(key))))
    }

    fn new(([a_type, b_type, output], precision, [a, b], [of_a, of_b]): Key) -> Table {
        let rows = |operands, majors, loaders, d_major| {
            let rows = catalogue::rule_rows(operands, majors, loaders, d_major, output);
            rows.filter(|spec| Precision::of(spec) == precision).collect::<Vec<Spec>>()
        };
        let plain = rows([a_type, b_type], (a, b), [of_a, of_b], OutputMajor::N);
        let swapped = rows([b_type, a_type], (b, a), [of_b, of_a], OutputMajor::M);
        let sides = [plain.len(), swapped.len()];
        let all = [plain, swapped].concat();
        let tiles = in_parallel(&all, |rows| {
            let rated =
                catalogue::in_widths(rows).map(|tile| (most_on_an_sm(tile), OnceLock::new()));
            tiles(rated)
        });
        Table::of_parts(tiles, sides)
    }

    /// The table of some kernels of a key: of those that compute D, and of the others.
    pub(crate) fn of_specs(sides: [Vec<Spec>; 2]) -> Table {
        let sides = sides.map(|mut specs| {
            // Those of one tile side by side.
            specs.sort_by_cached_key(|spec| (tile_of(spec).to_string(), spec.to_string()));
            let tiles = specs.chunk_by(|one, next| tile_of(one) == tile_of(next));
            let tiles: Vec<Vec<Spec>> = tiles.map(<[Spec]>::to_vec).collect();
            tiles.chunks(LANES).map(<[_]>::to_vec).collect::<Vec<_>>()
        });
        let parts = [sides[0].len(), sides[1].len()];
        let tiles = in_parallel(&sides.concat(), |part| {
            let rated = part.iter().filter_map(|specs| {
                let rated: Vec<_> = specs.iter().copied().map(RatedSpec::new).collect();
                let most = |most: RatedSpec, rated| more_on_an_sm(most, rated);
                Some((rated.iter().copied().reduce(most)?, OnceLock::from(rated)))
            });
            tiles(rated)
        });
        Table::of_parts(tiles, parts)
    }

    /// The table of parts, so many of the one side and of the other.
    fn of_parts(parts: Vec<Vec<Tile>>, [plain, swapped]: [usize; 2]) -> Table {
        let mut parts = parts.into_iter();
        Table([plain, swapped].map(|count| {
            let tiles: Vec<Tile> = parts.by_ref().take(count).flatten().collect();
            Tiles { sizes: tiles.iter().map(|tile| tile.size).collect(), tiles }
        }))
    }

    /// The kernels worth estimating for a problem on a device, by their tiles. `swapped` says
    /// whether operands are exchanged, and `split` how tiles are split, if that is not left open.
    pub(crate) fn considered(
        &self,
        shape: Shape,
        device: DeviceFacts,
        swapped: Option<bool>,
        split: Option<Split>,
    ) -> Vec<SpecGroup<Specs<'_>>> {
        let Numbers { bounded, estimated } = if shape.needs_more(split) { MORE } else { USUAL };
        let bounded = self.bounded(shape, device, swapped, split, bounded);
        let mut tiles: Vec<(f64, &BoundedTile)> = Vec::with_capacity(bounded.len());
        for bounded in bounded.chunks(LANES) {
            // If there are fewer tiles, features of no tile stand for the others.
            let of =
                |index| bounded.get(index).map_or(&NOTHING, |tile: &BoundedTile| &tile.features);
            let corrections: [f64; LANES] =
                corrections::<_, LANES, LANES>(Trees::of_tiles(), std::array::from_fn(of));
            let corrected = bounded.iter().zip(corrections);
            tiles.extend(corrected.map(|(tile, by)| (tile.bound.cycles * by.exp(), tile)));
        }
        keep_least(&mut tiles, estimated, |(cycles, _)| *cycles);
        tiles.into_iter().map(|(least, tile)| tile.group(Some(least))).collect()
    }

    /// The kernels of many tiles for a problem on a device.
    pub(crate) fn many(&self, shape: Shape, device: DeviceFacts) -> Vec<SpecGroup<Specs<'_>>> {
        let tiles = self.bounded(shape, device, None, None, MANY);
        tiles.iter().map(|tile| tile.group(None)).collect()
    }

    /// The tiles with the least bounds, so many if there are.
    fn bounded<'t>(
        &'t self,
        shape: Shape,
        device: DeviceFacts,
        swapped: Option<bool>,
        split: Option<Split>,
        count: usize,
    ) -> Vec<BoundedTile<'t>> {
        let sides = [(shape, false), (shape.swapped(), true)];
        let bounds = sides.map(|(shape, _)| Bounds::new(shape.extents, shape, device, split));
        let cycles = |(bound, _, _): &(Bound, bool, &Tile)| bound.cycles;
        // Tiles with bounds below `most`, large ones first. From time to time only the least are
        // kept.
        let most_found = count + count / 2;
        let mut found: Vec<(Bound, bool, &Tile)> = Vec::with_capacity(most_found);
        let mut most = f64::INFINITY;
        for ((tiles, bounds), (_, is_swapped)) in self.0.iter().zip(&bounds).zip(sides) {
            if swapped.is_some_and(|wanted| wanted != is_swapped) {
                continue;
            }
            for (size, tile) in tiles.sizes.iter().zip(&tiles.tiles).rev() {
                if bounds.exceed(most, size) {
                    continue;
                }
                let Some(bound) = bounds.below(most, tile) else { continue };
                found.push((bound, is_swapped, tile));
                if found.len() == most_found {
                    keep_least(&mut found, count, cycles);
                    most = found.iter().map(cycles).fold(0.0, f64::max);
                }
            }
        }
        keep_least(&mut found, count, cycles);
        let with_features = |(bound, is_swapped, tile): (Bound, bool, &'t Tile)| {
            let side = usize::from(is_swapped);
            let ((shape, _), bounds) = (&sides[side], &bounds[side]);
            let tiles = bounds.tiles(&tile.size);
            let terms = TileTerms {
                bound: bound.cycles,
                busy: bound.busy,
                reduction: bound.reduction,
                tiles,
                stages: bounds.stages(&tile.size),
                waves: tiles[0] as f64 * tiles[1] as f64 * shape.batch as f64
                    / f64::from(device.sm_count),
            };
            BoundedTile { bound, tile, tiles, features: tile.features.of(shape, &terms) }
        };
        found.into_iter().map(with_features).collect()
    }

    /// The tiles with the least bounds, with the least corrected estimate of their kernels. Repack
    /// kernels take the cycles `before`.
    pub(crate) fn samples(
        &self,
        shape: Shape,
        before: f64,
        device: DeviceFacts,
    ) -> Vec<TileSample> {
        let sample = |tile: BoundedTile| TileSample {
            features: tile.features.map(f32::from),
            bound: tile.bound.cycles,
            cycles: least_corrected(tile.specs(), shape, device),
            before,
        };
        self.bounded(shape, device, None, None, SAMPLED).into_iter().map(sample).collect()
    }
}

/// Tiles with these specs for their bounds, and with all specs if these are known.
fn tiles(tiles: impl Iterator<Item = (RatedSpec, OnceLock<Vec<RatedSpec>>)>) -> Vec<Tile> {
    let (bounded, specs): (Vec<RatedSpec>, Vec<_>) = tiles.unzip();
    let least = RatedSpec::least_cycles(&bounded);
    let tiles = bounded.into_iter().zip(least).zip(specs);
    tiles.map(|((bounded, least), specs)| Tile::new(bounded, least, specs)).collect()
}

/// A tile with the deepest ring, or with another one of which more CTAs work on an SM.
fn most_on_an_sm(tile: Spec) -> RatedSpec {
    let deepest = RatedSpec::new(tile);
    // With operands that TMA loads, one CTA works on an SM, whatever its ring.
    if !tile.wgmma().is_some_and(WgmmaSpec::threads_load) {
        return deepest;
    }
    catalogue::with_rings(tile).map(RatedSpec::new).fold(deepest, more_on_an_sm)
}

/// The first spec, or the other if more CTAs of it work on an SM.
fn more_on_an_sm(first: RatedSpec, other: RatedSpec) -> RatedSpec {
    if other.ctas_per_sm > first.ctas_per_sm { other } else { first }
}

/// The results for all items, in their order. A program waits for its first plan, so some threads
/// share the work.
fn in_parallel<T: Sync, R: Send>(items: &[T], compute: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let next = || next.fetch_add(1, Ordering::Relaxed);
        let items = iter::from_fn(|| {
            let index = next();
            Some((index, items.get(index)?))
        });
        items.map(|(index, item)| (index, compute(item))).collect::<Vec<_>>()
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(MOST_THREADS).min(items.len());
    let mut all = thread::scope(|scope| {
        // Those that the operating system refuses are done without.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mut all = work();
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        all
    });
    all.sort_unstable_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

/// A tile for a problem, with the features from which the trees correct its bound.
struct BoundedTile<'t> {
    bound: Bound,
    tile: &'t Tile,
    /// Tiles of one D along m and n.
    tiles: [u64; 2],
    features: [Short; TILE_FEATURES],
}

impl<'t> BoundedTile<'t> {
    /// Its specs, and about the least of their corrected estimates if it is known.
    fn group(&self, least: Option<f64>) -> SpecGroup<Specs<'t>> {
        SpecGroup { specs: Box::new(self.specs()), least }
    }

    /// The tile in the clusters that are worth estimating. A cluster of twice as many CTAs as there
    /// are tiles would be half idle.
    fn specs(&self) -> impl Iterator<Item = &'t RatedSpec> + use<'t> {
        let [rows, columns] = self.tiles.map(|tiles| 2 * tiles.max(1));
        self.tile.specs().iter().filter(move |rated| {
            let Cluster { m, n } = rated.spec.cluster;
            u64::from(m) < rows && u64::from(n) < columns
        })
    }
}

/// What the trees that correct bounds are fitted to: a tile for a problem.
#[derive(Clone, Debug)]
pub struct TileSample {
    /// The features from which the trees correct the bound.
    pub features: [f32; TILE_FEATURES],
    /// The bound, in cycles.
    pub bound: f64,
    /// The least estimate of the tile's kernels, corrected by all trees and the network, in
    /// cycles.
    pub cycles: f64,
    /// Cycles of the repack kernels before.
    pub before: f64,
}

impl Tile {
    fn new(bounded: RatedSpec, least: LeastCycles, specs: OnceLock<Vec<RatedSpec>>) -> Tile {
        let tile = bounded.spec.tile;
        // Tiles have at most 256 rows, columns and elements along k.
        let size = TileSize {
            m: (tile.m / ROW_STEP) as u8,
            n: (tile.n / COLUMN_STEP) as u8,
            k: tile.k.trailing_zeros() as u8,
            stage: least.stage,
        };
        let features = TileFeatures::new(&bounded.spec, &least);
        Tile { size, least, features, bounded, specs }
    }

    /// All specs of the tile.
    fn specs(&self) -> &[RatedSpec] {
        let rated = || catalogue::in_clusters(&self.bounded.spec).map(RatedSpec::new).collect();
        self.specs.get_or_init(rated)
    }
}

/// The spec without its cluster and its ring. Specs that differ by these only are of one tile.
fn tile_of(spec: &Spec) -> Spec {
    Spec { cluster: Cluster::NONE, stages: 0, ..*spec }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heuristic;
    use crate::operands::PlannedProblem;
    use crate::{Config, Major, Plan, Problem, ProblemKey};

    /// SMs of an H100 and of an H200.
    const SMS: u32 = 132;

    /// Problems of each case.
    const PROBLEMS: usize = 60;

    /// What problems are drawn.
    #[derive(Clone, Copy, Debug)]
    enum Drawn {
        /// Single products whose extents are multiples of this number.
        Products(usize),
        /// Batches of smaller products, whose extents are multiples of 8.
        Batches,
    }

    /// Whole numbers that look random.
    struct Random(u64);

    impl Random {
        /// A log-uniform multiple of this number between these limits, about.
        fn between(&mut self, [least, most]: [f64; 2], multiple: usize) -> usize {
            // Knuth's MMIX generator; its high bits are good enough.
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let uniform = (self.0 >> 33) as f64 / 2f64.powi(31);
            (least * (most / least).powf(uniform) / multiple as f64).round() as usize * multiple
        }

        /// The extents of a problem, and its number of products.
        fn problem(&mut self, drawn: Drawn) -> ([usize; 3], usize) {
            let (limits, multiple, count) = match drawn {
                Drawn::Products(multiple) => ([16.0, 20_000.0], multiple, 1),
                Drawn::Batches => ([16.0, 2048.0], 8, self.between([2.0, 256.0], 1)),
            };
            ([(); 3].map(|()| self.between(limits, multiple)), count)
        }
    }

    /// The time of the pick over that of the best of all kernels, with any way to access the
    /// operands, both corrected.
    fn lost(problem: &Problem, config: &Config) -> f64 {
        let key = ProblemKey::of(problem, config);
        let pick = Plan::best(problem, config, SMS).unwrap().choice();
        let of_way = |(planned, specs): (PlannedProblem, Vec<Spec>)| {
            let shape = Shape::of_planned(&planned);
            let best = heuristic::rank(specs, shape, SMS, config.split)[0];
            heuristic::cycles(&best, shape, SMS) + planned.repack_cycles()
        };
        let best = key.rule().into_iter().map(of_way).fold(f64::INFINITY, f64::min);
        key.cycles(&pick, SMS).unwrap() / best
    }

    /// Checks what is lost in drawn problems with these types and majors of A and B. The mean and
    /// the 95th percentile must be below the last numbers.
    fn check(
        element: Element,
        [a, b]: [Major; 2],
        drawn: Drawn,
        split: Option<Split>,
        [most_of_mean, most_of_part]: [f64; 2],
    ) {
        let config = Config { split, ..Config::new(element) };
        let mut numbers = Random(7);
        let mut losses: Vec<f64> = Vec::new();
        while losses.len() < PROBLEMS {
            let ([m, n, k], count) = numbers.problem(drawn);
            if (2.5e7..3e11).contains(&(m as f64 * n as f64 * (k * count) as f64)) {
                let problem = Problem::new(m, n, k, a, b).with_batch(count);
                losses.push(lost(&problem, &config));
            }
        }
        losses.sort_by(f64::total_cmp);
        let mean = (losses.iter().map(|loss| loss.ln()).sum::<f64>() / PROBLEMS as f64).exp();
        let part = losses[PROBLEMS * 19 / 20 - 1];
        let case = format!("{element} {a}{b} {drawn:?} {split:?}");
        println!("{case}: mean {mean:.4}, 95 % {part:.4}");
        assert!(mean < most_of_mean, "{case}: {mean}");
        assert!(part < most_of_part, "{case}: {part}");
    }

    #[test]
    fn little_is_lost_by_the_kernels_that_are_not_considered() {
        let (k, m, n) = (Major::K, Major::M, Major::N);
        let (usual, of_batches) = ([1.01, 1.045], [1.006, 1.03]);
        let eights = Drawn::Products(8);
        // It takes the time of many thousands of estimates, so the cases run side by side.
        std::thread::scope(|scope| {
            for (element, majors, drawn, split, most) in [
                (Element::Bf16, [k, k], eights, None, usual),
                (Element::Bf16, [k, k], eights, Some(Split::Whole), usual),
                (Element::Bf16, [k, k], eights, Some(Split::SplitK(4)), usual),
                (Element::Bf16, [m, n], eights, None, usual),
                // Operands can be accessed in several ways, and threads store D.
                (Element::Bf16, [k, n], Drawn::Products(1), None, usual),
                (Element::S8, [m, n], eights, None, [1.012, 1.045]),
                (Element::E4m3, [k, k], eights, None, usual),
                (Element::Bf16, [k, k], Drawn::Batches, None, of_batches),
                (Element::Bf16, [m, n], Drawn::Batches, None, of_batches),
                (Element::E4m3, [k, k], Drawn::Batches, None, of_batches),
            ] {
                scope.spawn(move || check(element, majors, drawn, split, most));
            }
        });
    }
}
