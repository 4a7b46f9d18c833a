//! [`Choice`]: what is chosen for a problem, and [`Decomposition`]: how its tiles fall out for the SMs.

use std::fmt;

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{AnySpec, Epilogue, OutputMajor};
use serde::{Deserialize, Serialize};

use crate::config::Split;
use crate::problem::Major;

/// What planner and tuner choose for a problem: a kernel, the order of its tiles, how these are split, when it may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// The kernel. Where its D is column-major, it computes Dᵀ = Bᵀ·Aᵀ.
    pub spec: AnySpec,
    /// Rows of cluster tiles that are walked together.
    pub raster_rows: u32,
    /// How tiles are split along k.
    #[serde(default)]
    pub split: Split,
    /// Whether its launch may begin while the one before it ends. That saves the time of a launch, but CTAs then start
    /// wherever an SM falls free, and neighbours in D no longer share what they read on its way from L2.
    #[serde(default = "yes")]
    pub dependent_launch: bool,
}

/// What files said by saying nothing.
fn yes() -> bool {
    true
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { spec, raster_rows, split, dependent_launch } = self;
        let launch = if *dependent_launch { "dependent" } else { "serial" };
        write!(f, "{spec} raster {raster_rows} {split} {launch}")
    }
}

impl Choice {
    /// Whole tiles, row by row.
    pub fn plain(spec: AnySpec) -> Self {
        Choice { spec, raster_rows: 1, split: Split::Whole, dependent_launch: true }
    }

    /// Whether A and B change places.
    pub fn swapped(&self) -> bool {
        self.spec.d_major() == OutputMajor::M
    }

    /// Extents along m, n and k as the kernel sees them.
    pub fn extents(&self, [m, n, k]: [u64; 3]) -> [u64; 3] {
        if self.swapped() { [n, m, k] } else { [m, n, k] }
    }

    /// Element types of A and B of the problems that it computes.
    pub fn operands(&self) -> [Element; 2] {
        let [a, b] = match self.spec {
            // Split on the way.
            AnySpec::Wgmma(spec) if spec.arithmetic.terms.is_some() => [Element::F32; 2],
            spec => spec.operands(),
        };
        if self.swapped() { [b, a] } else { [a, b] }
    }

    /// The epilogue of the problems that it computes.
    pub fn epilogue(&self) -> Epilogue {
        let epilogue = self.spec.epilogue();
        if self.swapped() { epilogue.transposed() } else { epilogue }
    }

    /// The same with the epilogue of a problem.
    pub(crate) fn with_epilogue(self, epilogue: Epilogue) -> Self {
        let own = if self.swapped() { epilogue.transposed() } else { epilogue };
        Choice { spec: self.spec.with_epilogue(own), ..self }
    }

    /// Majors of A and B of the problems that it computes.
    pub fn majors(&self) -> (Major, Major) {
        let (a_major, b_major) = self.spec.majors();
        let (a, b) = if self.swapped() { (b_major, a_major) } else { (a_major, b_major) };
        let of = |operand, along_mn| if operand == OperandMajor::K { Major::K } else { along_mn };
        (of(a, Major::M), of(b, Major::N))
    }

    /// Whether its kernel has the majors of a problem with these.
    pub fn has_majors(&self, a: Major, b: Major) -> bool {
        self.majors() == (a, b)
    }

    /// Extents of D in cluster tiles and of k in stages, for extents as the kernel sees them.
    pub(crate) fn tiles(&self, [m, n, k]: [u64; 3]) -> (u64, u64, u64) {
        let (tile, cluster) = (self.spec.tile(), self.spec.cluster());
        let rows = m.div_ceil(u64::from(tile.m * cluster.m));
        let columns = n.div_ceil(u64::from(tile.n * cluster.n));
        (rows, columns, k.div_ceil(u64::from(tile.k)).max(1))
    }

    /// How it falls out for `batch` products of these extents on `sms` SMs.
    pub fn decompose(&self, extents: [u64; 3], batch: u64, sms: u32) -> Decomposition {
        let (rows, columns, k_tiles) = self.tiles(self.extents(extents));
        let clusters = clusters_at_once(&self.spec, sms);
        Decomposition::new(tiles_of(rows, columns, batch), k_tiles, clusters, self.split)
    }
}

/// Cluster tiles of a batch: many more than kernels count where it has more.
pub(crate) fn tiles_of(rows: u64, columns: u64, batch: u64) -> u64 {
    (rows * columns).saturating_mul(batch).min(1 << 48)
}

/// The work of a problem in cluster tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decomposition {
    /// Cluster tiles.
    pub tiles: u64,
    /// Stages of each.
    pub k_tiles: u64,
    /// Tiles that are split along k.
    pub split_tiles: u64,
    /// Workers that share these.
    pub workers: u64,
    /// Clusters to launch.
    pub clusters: u64,
}

impl Decomposition {
    /// Of `tiles` with `k_tiles` stages each, on `clusters` that run at once.
    pub(crate) fn new(tiles: u64, k_tiles: u64, clusters: u64, split: Split) -> Self {
        let (split_tiles, workers) = match split {
            Split::SplitK(splits) if splits > 1 && k_tiles > 1 => {
                (tiles, tiles * u64::from(splits).min(k_tiles))
            }
            Split::StreamK if !tiles.is_multiple_of(clusters) => {
                let split_tiles =
                    if tiles < 2 * clusters { tiles } else { clusters + tiles % clusters };
                let workers = workers_in_twos(split_tiles, clusters);
                (split_tiles, workers.min(split_tiles.saturating_mul(k_tiles)))
            }
            _ => (0, 0),
        };
        let units = workers + (tiles - split_tiles);
        Decomposition { tiles, k_tiles, split_tiles, workers, clusters: clusters.min(units.max(1)) }
    }

    /// Most workers that share a tile; 0 where none is split.
    pub(crate) fn contributors(&self) -> u64 {
        let Decomposition { k_tiles, split_tiles, workers, .. } = *self;
        if workers == 0 {
            return 0;
        }
        let beyond = workers.saturating_sub(split_tiles);
        let exact = split_tiles.saturating_mul(k_tiles).is_multiple_of(workers);
        if exact && beyond > 0 && split_tiles.is_multiple_of(beyond) {
            return 2;
        }
        if !workers.is_multiple_of(split_tiles) {
            return workers / split_tiles + 2;
        }
        // Unequal shares end inside of tiles.
        workers / split_tiles
            + u64::from(!split_tiles.saturating_mul(k_tiles).is_multiple_of(workers))
    }

    /// Whether the kernel can count it: k-tiles of split tiles, tiles and workers in 32 bits.
    pub(crate) fn is_countable(&self) -> bool {
        let countable = |count: u64| count < 1 << 31;
        countable(self.tiles + self.workers)
            && countable(self.split_tiles.saturating_mul(self.k_tiles))
    }
}

/// Clusters of a kernel that run at once on `sms` SMs. Those of four do not fill every group of SMs (GPC): 30 of 33 were seen
/// on an H200.
pub(crate) fn clusters_at_once(spec: &AnySpec, sms: u32) -> u64 {
    let size = spec.cluster().size();
    let usable = if size > 2 { sms - sms / 11 } else { sms };
    u64::from((usable / size).max(1)) * u64::from(spec.ctas_at_once())
}

/// Workers of stream-K for so many tiles: where these are more than half of the clusters, those workers beyond one a tile that
/// divide the tiles, so that shares end at the same places in every few tiles and no tile has three contributors, as far as that
/// leaves few clusters without work; else all clusters.
fn workers_in_twos(tiles: u64, clusters: u64) -> u64 {
    let fewest = clusters - clusters / 10;
    (tiles < clusters && clusters < 2 * tiles)
        .then(|| (1..=clusters - tiles).rev().find(|beyond| tiles.is_multiple_of(*beyond)))
        .flatten()
        .map(|beyond| tiles + beyond)
        .filter(|workers| *workers >= fewest)
        .unwrap_or(clusters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_k_avoids_tiles_of_three() {
        let decompose = |tiles, k_tiles| Decomposition::new(tiles, k_tiles, 132, Split::StreamK);
        for (tiles, k_tiles, workers, contributors) in [
            (96, 32, 128, 2),
            (112, 64, 128, 2),
            (131, 132, 132, 2),
            (97, 64, 132, 3),
            (160, 64, 132, 2),
        ] {
            let work = decompose(tiles, k_tiles);
            assert_eq!((work.workers, work.contributors()), (workers, contributors), "{tiles}");
        }
    }
}
