//! The persistent scheduler: one wave of clusters walks the work of a problem, the tiles of all products of a batch as one
//! list. Some tiles, the first in raster order, may be
//! split: their k-tiles, laid end to end, are dealt out evenly to workers, so that a worker has the end of one tile, the
//! start of another, or any part of a few. One worker for each cluster is stream-K, a multiple of the tiles split-K. The
//! other tiles are computed whole. Clusters take workers first, then whole tiles, in turn. Of split-K's workers those at the
//! same place along k follow each other: neighbours on the device then read the same slices of A and B at the same time.

use pgemm_ir::{Carried, KernelBuilder, Special, Type, Val, ValueId, ty};

use crate::spec::{Cluster, Tile};
use crate::walk::{SplitArguments, Walk};

/// Where a CTA finds its work. Every role walks the same sequence on its own.
#[derive(Clone, Copy)]
pub struct Scheduler<'k> {
    b: &'k KernelBuilder,
    tile: Tile,
    cluster: Cluster,
    walk: Walk<'k>,
    /// This CTA's place in its cluster, in CTA tiles.
    in_cluster: Option<CtaPlace<'k>>,
}

/// A CTA's place in its cluster: ranks run along m first.
#[derive(Clone, Copy)]
pub struct CtaPlace<'k> {
    /// Along m.
    pub m: Val<'k, ty::U32>,
    /// Along n.
    pub n: Val<'k, ty::U32>,
}

/// Some or all of the k-tiles of an output tile.
#[derive(Clone, Copy)]
pub struct Segment<'k> {
    /// First k-tile.
    pub k_first: Val<'k, ty::U32>,
    /// K-tiles, at least 1.
    pub k_count: Val<'k, ty::U32>,
    /// True where these are all of the tile's.
    pub whole: Val<'k, ty::Bool>,
    /// Index of the cluster tile, whose place [`Scheduler::origin`] gives.
    pub tile: Val<'k, ty::U32>,
    /// The unit of work that it belongs to: see [`Scheduler::worker`].
    pub unit: Val<'k, ty::U32>,
    /// True where this cluster has no work after it.
    pub last: Val<'k, ty::Bool>,
}

/// Where a walk stands: what is left of the present worker or whole tile.
#[derive(Clone, Copy)]
struct Stretch<'k> {
    tile: Val<'k, ty::U32>,
    k_first: Val<'k, ty::U32>,
    k_count: Val<'k, ty::U32>,
}

/// The workers with a share of one tile, first to last.
#[derive(Clone, Copy)]
pub struct Contributors<'k> {
    /// First worker.
    pub first: Val<'k, ty::U32>,
    /// How many.
    pub count: Val<'k, ty::U32>,
}

/// The first element of a CTA tile in the D of a product.
#[derive(Clone, Copy)]
pub struct TileOrigin<'k> {
    /// First row.
    pub m: Val<'k, ty::U32>,
    /// First column.
    pub n: Val<'k, ty::U32>,
    /// Which product of the batch.
    pub batch: Val<'k, ty::U32>,
}

impl<'k> Scheduler<'k> {
    /// A scheduler over the tiles of `walk`.
    pub fn new(b: &'k KernelBuilder, tile: Tile, cluster: Cluster, walk: Walk<'k>) -> Self {
        let in_cluster = (cluster.size() > 1).then(|| {
            let rank = b.special(Special::CtaRank);
            CtaPlace { m: rank % cluster.m, n: rank / cluster.m }
        });
        Scheduler { b, tile, cluster, walk, in_cluster }
    }

    /// This CTA's place in its cluster, where there is one.
    pub fn in_cluster(&self) -> Option<CtaPlace<'k>> {
        self.in_cluster
    }

    /// Runs `body` for each segment of this CTA.
    #[track_caller]
    pub fn for_each_segment<C: Carried<'k>>(
        &self,
        init: C,
        body: impl FnOnce(Segment<'k>, C) -> C,
    ) -> C {
        let b = self.b;
        let (units, step) = (self.walk.units, b.special(Special::ClusterCount));
        let unit = b.special(Special::Cluster);
        let (_, _, carried) = b.while_(
            (unit, self.stretch(unit), init),
            |(unit, _, _)| unit.lt(units),
            |(unit, stretch, carried)| {
                let segment = self.segment(unit, stretch);
                let left = stretch.k_count - segment.k_count;
                let carried = body(segment, carried);
                let (unit, stretch) = b.if_else(
                    left.eq(0),
                    || (unit + step, self.stretch(unit + step)),
                    || {
                        let k_first = b.constant(0);
                        (unit, Stretch { tile: stretch.tile + 1, k_first, k_count: left })
                    },
                );
                (unit, stretch, carried)
            },
        );
        carried
    }

    /// Runs `body` for each worker and whole tile of this CTA, with the number of its k-tiles: what those need who do not
    /// ask where these lie.
    #[track_caller]
    pub fn for_each_unit<C: Carried<'k>>(
        &self,
        init: C,
        body: impl FnOnce(Val<'k, ty::U32>, C) -> C,
    ) -> C {
        let b = self.b;
        let (unit, step) = (b.special(Special::Cluster), b.special(Special::ClusterCount));
        b.for_carry(unit, self.walk.units, step, init, |unit, carried| {
            body(self.stretch(unit).k_count, carried)
        })
    }

    /// Stages of a tile.
    fn k_tiles(&self) -> Val<'k, ty::U32> {
        self.walk.k_tiles.value
    }

    /// What of a stretch lies in its first tile.
    fn segment(&self, unit: Val<'k, ty::U32>, stretch: Stretch<'k>) -> Segment<'k> {
        let k_count = (self.k_tiles() - stretch.k_first).min(stretch.k_count);
        let step = self.b.special(Special::ClusterCount);
        let ends = (stretch.k_count - k_count).eq(0);
        Segment {
            k_first: stretch.k_first,
            k_count,
            whole: k_count.eq(self.k_tiles()),
            tile: stretch.tile,
            unit,
            last: ends & (unit + step).ge(self.walk.units),
        }
    }

    /// The worker that a unit is, where it is one: the place of its share along the k-tiles of all split tiles.
    pub fn worker(&self, unit: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        let SplitArguments { splits, abreast, .. } = self.walk.split;
        let (at_k, beside) = abreast.divide(unit);
        beside * splits + at_k
    }

    /// The whole stretch of a unit: a worker's share of the split tiles, or a whole tile.
    fn stretch(&self, unit: Val<'k, ty::U32>) -> Stretch<'k> {
        let SplitArguments { tiles, workers, share, larger, .. } = self.walk.split;
        self.b.if_else(
            unit.lt(workers),
            || {
                let worker = self.worker(unit);
                let begin = worker * share.value + worker.min(larger);
                let k_count = share.value + worker.lt(larger).select(1, 0);
                let (tile, k_first) = self.walk.k_tiles.divide(begin);
                Stretch { tile, k_first, k_count }
            },
            || Stretch {
                tile: tiles + (unit - workers),
                k_first: self.b.constant(0),
                k_count: self.k_tiles(),
            },
        )
    }

    /// Who computes parts of a split tile.
    pub fn contributors(&self, tile: Val<'k, ty::U32>) -> Contributors<'k> {
        let SplitArguments { share, larger_share, larger, .. } = self.walk.split;
        let worker = |k_tile: Val<'k, ty::U32>| {
            let in_larger = larger * larger_share.value;
            let (among_larger, _) = larger_share.divide(k_tile);
            let (among_others, _) = share.divide(k_tile - in_larger);
            k_tile.lt(in_larger).select(among_larger, larger + among_others)
        };
        let begin = tile * self.k_tiles();
        let first = worker(begin);
        Contributors { first, count: worker(begin + (self.k_tiles() - 1)) - first + 1 }
    }

    /// Split tiles, and workers that share them.
    pub fn split(&self) -> SplitArguments<'k> {
        self.walk.split
    }

    /// Where this CTA's part of a cluster tile lies. Raster order: product by product, groups of `raster_rows` rows, each walked column by column.
    pub fn origin(&self, tile: Val<'k, ty::U32>) -> TileOrigin<'k> {
        self.b.scope("raster", || {
            let Walk { of_one, of_group, full_groups, raster_rows, last_rows, .. } = self.walk;
            let (batch, index) = of_one.divide(tile);
            let (group, in_group) = of_group.divide(index);
            let (column, row) = raster_rows.or(group.lt(full_groups), last_rows).divide(in_group);
            let row = group * raster_rows.value + row;
            let (row, column) = match self.in_cluster {
                None => (row, column),
                Some(cta) => (row * self.cluster.m + cta.m, column * self.cluster.n + cta.n),
            };
            TileOrigin { m: row * self.tile.m, n: column * self.tile.n, batch }
        })
    }
}

impl<'k> Carried<'k> for Stretch<'k> {
    type Static = ();

    fn split(self, values: &mut Vec<ValueId>) {
        values.extend([self.tile, self.k_first, self.k_count].map(Val::id));
    }

    fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        let [tile, k_first, k_count] = std::array::from_fn(|_| Val::join(b, values, Type::U32));
        Stretch { tile, k_first, k_count }
    }
}
