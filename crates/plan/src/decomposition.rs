//! [`Decomposition`]: the tiles of a problem, and how they are shared among the clusters that run
//! at once.

use pgemm_kernels::Spec;

use crate::split::Split;

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

/// Clusters of a kernel that run at once on `sms` SMs. Those of four do not fill every group of SMs
/// (GPC): 30 of 33 were seen on an H200.
pub(crate) fn clusters_at_once(spec: &Spec, sms: u32) -> u64 {
    let size = spec.cluster.size();
    let usable = if size > 2 { sms - sms / 11 } else { sms };
    u64::from((usable / size).max(1)) * u64::from(spec.working_ctas_per_sm())
}

/// Workers of stream-K for so many tiles: where these are more than half of the clusters, those
/// workers beyond one a tile that divide the tiles, so that shares end at the same places in every
/// few tiles and no tile has three contributors, as far as that leaves few clusters without work;
/// else all clusters.
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
