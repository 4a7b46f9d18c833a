//! [`Tiling`] counts, groups and splits the tiles of a problem. A launch passes its numbers to the
//! kernel.

use super::Work;
use crate::divisor;
use crate::quantity::{Count, DivisorPart};
use crate::spec::Spec;

/// The tiles of a problem, in cluster tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiling {
    rows: u32,
    columns: u32,
    batch: u32,
    raster_rows: u32,
    k_tiles: u32,
    split_tiles: u32,
    workers: u32,
    /// Number of CTA tiles of all products.
    cta_tiles: u32,
}

impl Tiling {
    /// The tiles of `work` for the kernel of `spec`.
    pub(crate) fn new(spec: &Spec, work: &Work) -> Self {
        let (tile, cluster) = (spec.tile, spec.cluster);
        let [rows, columns] = [tile.m, tile.n].map(u64::from);
        let cta_tiles = u64::from(work.m).div_ceil(rows)
            * u64::from(work.n).div_ceil(columns)
            * u64::from(work.batch);
        Tiling {
            rows: work.m.div_ceil(tile.m * cluster.m),
            columns: work.n.div_ceil(tile.n * cluster.n),
            batch: work.batch,
            // More rows than there are make one block.
            raster_rows: work.raster_rows.clamp(1, divisor::LARGEST),
            k_tiles: work.k.div_ceil(tile.k).max(1),
            split_tiles: work.split_tiles,
            workers: work.workers,
            // A number beyond 32 bits is never used, since such work was refused before.
            cta_tiles: cta_tiles.min(u32::MAX.into()) as u32,
        }
    }

    /// Number of CTA tiles of all products.
    pub(crate) fn tiles(&self) -> u32 {
        self.cta_tiles
    }

    /// A count, or a part of this count as a divisor.
    pub(crate) fn part(&self, count: Count, part: DivisorPart) -> u32 {
        let value = self.count(count);
        let [multiplier, shift] = divisor::reciprocal(value.max(1));
        match part {
            DivisorPart::Value => value,
            DivisorPart::Multiplier => multiplier,
            DivisorPart::Shift => shift,
        }
    }

    fn count(&self, count: Count) -> u32 {
        let Tiling { rows, columns, raster_rows, k_tiles, split_tiles, workers, .. } = *self;
        let shared = split_tiles * k_tiles;
        let share = shared / workers.max(1);
        let splits = if split_tiles > 0 && workers.is_multiple_of(split_tiles) {
            workers / split_tiles
        } else {
            1
        };
        match count {
            Count::Units => workers + (rows * columns * self.batch - split_tiles),
            Count::TilesOfProduct => (rows * columns).max(1),
            Count::TilesOfGroup => (raster_rows.min(rows) * columns).max(1),
            Count::FullGroups => rows / raster_rows,
            Count::RasterRows => raster_rows,
            Count::LastRows => (rows % raster_rows).max(1),
            Count::KTiles => k_tiles,
            Count::SplitTiles => split_tiles,
            Count::Workers => workers,
            Count::Share => share.max(1),
            Count::LargerShare => share + 1,
            Count::Larger => shared % workers.max(1),
            Count::Splits => splits,
            Count::Abreast => (workers / splits).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 7 × 3 tiles of two products, three of them split.
    fn counted(workers: u32, counts: &[Count]) -> Vec<u32> {
        let spec: Spec = "bf16-kk-bf16-128x128x64-s4-w2-c1x1".parse().unwrap();
        let work = Work { m: 7 * 128, n: 3 * 128 - 1, k: 40 * 64, batch: 2, ..Work::default() };
        let work = Work { raster_rows: 4, split_tiles: 3, workers, ..work };
        let tiling = Tiling::new(&spec, &work);
        assert_eq!(tiling.tiles(), 42);
        counts.iter().map(|count| tiling.count(*count)).collect()
    }

    #[test]
    fn tiles_are_counted_in_groups_of_rows() {
        let counts =
            [Count::TilesOfProduct, Count::TilesOfGroup, Count::FullGroups, Count::LastRows];
        assert_eq!(counted(12, &counts), [21, 12, 1, 3]);
    }

    #[test]
    fn split_tiles_are_shared_by_their_workers() {
        use Count::{Abreast, Larger, LargerShare, Share, Splits, Units};
        let counts = [Units, Share, LargerShare, Larger, Splits, Abreast];
        // Four workers for each split tile.
        assert_eq!(counted(12, &counts), [12 + 42 - 3, 10, 11, 0, 4, 3]);
        // Seven workers cross the tiles.
        assert_eq!(counted(7, &counts), [7 + 42 - 3, 17, 18, 1, 1, 7]);
    }
}
