//! [`Decomposition`]: the tiles of a problem, and how they are distributed over the clusters that
//! run at once.

use pgemm_kernels::Spec;

use crate::split::Split;

/// More cluster tiles than any kernel counts. Larger numbers are cut to this.
const MAX_TILES: u64 = 1 << 48;

/// Stands for the SMs that clusters of more than two CTAs cannot use: one in so many. Such clusters
/// do not fill every group of SMs (GPC). On an H200 with 132 SMs, 30 of 33 clusters of four CTAs
/// ran at the same time.
const UNUSABLE_SM_DIVISOR: u32 = 11;

/// Stream-K leaves at most one cluster in so many idle to avoid tiles with three contributors.
const MAX_IDLE_DIVISOR: u64 = 10;

/// Cluster tiles of a batch, at most [`MAX_TILES`].
pub(crate) fn tiles_of(rows: u64, columns: u64, batch: u64) -> u64 {
    (rows * columns).saturating_mul(batch).min(MAX_TILES)
}

/// The work of a problem in cluster tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decomposition {
    /// Cluster tiles.
    pub tiles: u64,
    /// Stages along k of each tile.
    pub k_tiles: u64,
    /// Tiles that are split along k.
    pub split_tiles: u64,
    /// Workers that share the split tiles.
    pub workers: u64,
    /// Clusters to launch.
    pub clusters: u64,
}

impl Decomposition {
    /// The decomposition of `tiles` tiles of `k_tiles` stages each for `clusters` that run at once.
    pub(crate) fn new(tiles: u64, k_tiles: u64, clusters: u64, split: Split) -> Self {
        let (split_tiles, workers) = match split {
            Split::SplitK(splits) if splits > 1 && k_tiles > 1 => {
                (tiles, tiles * u64::from(splits).min(k_tiles))
            }
            Split::StreamK if !tiles.is_multiple_of(clusters) && k_tiles > 1 => {
                let split_tiles =
                    if tiles < 2 * clusters { tiles } else { clusters + tiles % clusters };
                let workers = stream_k_workers(split_tiles, clusters);
                (split_tiles, workers.min(split_tiles.saturating_mul(k_tiles)))
            }
            _ => (0, 0),
        };
        let units = workers + (tiles - split_tiles);
        Decomposition { tiles, k_tiles, split_tiles, workers, clusters: clusters.min(units.max(1)) }
    }

    /// The decomposition of tiles of a kernel on `sms` SMs. Direct kernels split none.
    pub(crate) fn of(spec: &Spec, tiles: u64, k_tiles: u64, sms: u32, split: Split) -> Self {
        let split = if spec.is_direct() { Split::Whole } else { split };
        let clusters = clusters_at_once(spec, spec.working_ctas_per_sm(), sms);
        Decomposition::new(tiles, k_tiles, clusters, split)
    }

    /// The largest number of workers that share one tile. 0 if no tile is split.
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
        // Unequal shares end inside of tiles, which then have one contributor more.
        workers / split_tiles
            + u64::from(!split_tiles.saturating_mul(k_tiles).is_multiple_of(workers))
    }

    /// Whether the kernel's 32-bit counters can hold the number of tiles and workers, and of
    /// k-tiles of split tiles.
    pub(crate) fn is_countable(&self) -> bool {
        let countable = |count: u64| count < 1 << 31;
        countable(self.tiles + self.workers)
            && countable(self.split_tiles.saturating_mul(self.k_tiles))
    }
}

/// Clusters of a kernel that run at the same time on `sms` SMs, each of which has so many working
/// CTAs.
pub(crate) fn clusters_at_once(spec: &Spec, ctas_per_sm: u32, sms: u32) -> u64 {
    let size = spec.cluster.size();
    let usable = if size > 2 { sms - sms / UNUSABLE_SM_DIVISOR } else { sms };
    u64::from((usable / size).max(1)) * u64::from(ctas_per_sm)
}

/// The number of stream-K workers for `tiles` tiles; usually all `clusters`. With fewer tiles than
/// clusters, but more than half as many, some tiles could get three contributors. To avoid them,
/// the number of workers beyond one per tile is made a divisor of the number of tiles. This is done
/// only if few clusters are left idle, see [`MAX_IDLE_DIVISOR`].
fn stream_k_workers(tiles: u64, clusters: u64) -> u64 {
    let fewest = clusters - clusters / MAX_IDLE_DIVISOR;
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
