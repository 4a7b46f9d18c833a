//! The tile scheduler of launched kernels. One wave of clusters walks the tiles of a problem, those
//! of all products of a batch as one list.
//!
//! Some tiles, the first in raster order, may be split: their stages, laid end to end, are dealt
//! out evenly to workers, so that a worker has the end of one tile, the start of another, or any
//! part of a few. One worker for each cluster is stream-K, a multiple of the tiles split-K. The
//! other tiles are computed whole. Clusters take workers first and then whole tiles, in turn. Of
//! split-K's workers those at the same place along K follow each other, so that neighbours on the
//! device read the same slices of A and B at the same time.

use pgemm_ir::{Carried, KernelBuilder, Special, Type, Val, ValueId, ty};

use crate::coordinates::{CtaPlace, Segment, TileOrigin};
use crate::divisor::Divisor;
use crate::params::Params;
use crate::quantity::{Count, DivisorPart, Quantity};
use crate::spec::{Cluster, Spec, Tile};

/// How the index of a tile becomes its place in D. What the device divides by comes with its
/// reciprocal.
#[derive(Clone, Copy)]
pub(crate) struct Raster<'k> {
    /// Tiles of one product.
    pub(crate) tiles_of_product: Divisor<'k>,
    /// Tiles of a raster group that has all of its rows.
    pub(crate) tiles_of_group: Divisor<'k>,
    /// Raster groups of one product that have all of their rows.
    pub(crate) full_groups: Val<'k, ty::U32>,
    /// Rows of such a group.
    pub(crate) raster_rows: Divisor<'k>,
    /// Rows of the group behind them.
    pub(crate) last_rows: Divisor<'k>,
}

impl<'k> Raster<'k> {
    /// Product, row and column of tile `tile`, in cluster tiles. Raster order: product by product,
    /// groups of rows, each walked column by column.
    pub(crate) fn place(&self, tile: Val<'k, ty::U32>) -> [Val<'k, ty::U32>; 3] {
        let Raster { tiles_of_product, tiles_of_group, full_groups, raster_rows, last_rows } = self;
        let (batch, index) = tiles_of_product.divide(tile);
        let (group, in_group) = tiles_of_group.divide(index);
        let rows = raster_rows.or(group.lt(*full_groups), *last_rows);
        let (column, row) = rows.divide(in_group);
        [batch, group * raster_rows.value + row, column]
    }
}

/// How the stages of the split tiles are shared out.
#[derive(Clone, Copy)]
struct Split<'k> {
    tiles: Val<'k, ty::U32>,
    /// Workers that share them: at most as many as there are stages in them.
    workers: Val<'k, ty::U32>,
    /// Stages of a worker: so many, and one more of each of the first `larger`.
    share: Divisor<'k>,
    larger_share: Divisor<'k>,
    larger: Val<'k, ty::U32>,
    /// Workers of each tile where every tile has as many to itself, else 1.
    splits: Val<'k, ty::U32>,
    /// Workers over `splits`: those at one place along K.
    abreast: Divisor<'k>,
}

/// The tiles of a launch and who computes them.
#[derive(Clone, Copy)]
pub(crate) struct Scheduler<'k> {
    b: &'k KernelBuilder,
    tile: Tile,
    cluster: Cluster,
    /// Workers, and tiles that are computed whole.
    units: Val<'k, ty::U32>,
    raster: Raster<'k>,
    /// Stages of a tile, at least 1.
    k_tiles: Divisor<'k>,
    split: Split<'k>,
    /// This CTA's place in its cluster, in CTA tiles.
    cta: Option<CtaPlace<'k>>,
}

/// What is left of the present worker or whole tile of a walk.
#[derive(Clone, Copy)]
struct Stretch<'k> {
    tile: Val<'k, ty::U32>,
    k_first: Val<'k, ty::U32>,
    k_count: Val<'k, ty::U32>,
}

/// The workers with a share of one tile, first to last.
#[derive(Clone, Copy)]
pub(crate) struct Contributors<'k> {
    /// First worker.
    pub(crate) first: Val<'k, ty::U32>,
    /// How many.
    pub(crate) count: Val<'k, ty::U32>,
}

impl<'k> Scheduler<'k> {
    /// Declares the parameters of the tiling.
    pub(crate) fn declare(params: &Params<'k, Quantity>, spec: &Spec) -> Self {
        let count = |count| params.scalar::<ty::U32>(Quantity::count(count));
        let divisor = |count| {
            let parts = [DivisorPart::Value, DivisorPart::Multiplier, DivisorPart::Shift];
            Divisor::new(parts.map(|part| params.scalar(Quantity::Count(count, part))))
        };
        let units = count(Count::Units);
        let raster = Raster {
            tiles_of_product: divisor(Count::TilesOfProduct),
            tiles_of_group: divisor(Count::TilesOfGroup),
            full_groups: count(Count::FullGroups),
            raster_rows: divisor(Count::RasterRows),
            last_rows: divisor(Count::LastRows),
        };
        let k_tiles = divisor(Count::KTiles);
        let split = Split {
            tiles: count(Count::SplitTiles),
            workers: count(Count::Workers),
            share: divisor(Count::Share),
            larger_share: divisor(Count::LargerShare),
            larger: count(Count::Larger),
            splits: count(Count::Splits),
            abreast: divisor(Count::Abreast),
        };
        let (tile, cluster) = (spec.tile, spec.cluster);
        Scheduler { b: params.b, tile, cluster, units, raster, k_tiles, split, cta: None }
    }

    /// Finds this CTA's place in its cluster, where there is one.
    pub(crate) fn placed(self) -> Self {
        let (b, cluster) = (self.b, self.cluster);
        let cta = (cluster.size() > 1).then(|| {
            let rank = b.special(Special::CtaRank);
            CtaPlace { m: rank % cluster.m, n: rank / cluster.m }
        });
        Scheduler { cta, ..self }
    }

    /// This CTA's place in its cluster, where there is one.
    pub(crate) fn in_cluster(&self) -> Option<CtaPlace<'k>> {
        self.cta
    }

    /// Runs `body` for each segment of this CTA.
    #[track_caller]
    pub(crate) fn for_each_segment<C: Carried<'k>>(
        &self,
        init: C,
        body: impl FnOnce(Segment<'k>, C) -> C,
    ) -> C {
        let b = self.b;
        let (units, step) = (self.units, b.special(Special::ClusterCount));
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

    /// Runs `body` for each worker and whole tile of this CTA, with the number of its stages. For
    /// warps that need not know where their tiles lie.
    #[track_caller]
    pub(crate) fn for_each_unit<C: Carried<'k>>(
        &self,
        init: C,
        body: impl FnOnce(Val<'k, ty::U32>, C) -> C,
    ) -> C {
        let b = self.b;
        let (unit, step) = (b.special(Special::Cluster), b.special(Special::ClusterCount));
        b.for_carry(unit, self.units, step, init, |unit, carried| {
            body(self.stretch(unit).k_count, carried)
        })
    }

    /// The part of a stretch that lies in its first tile.
    fn segment(&self, unit: Val<'k, ty::U32>, stretch: Stretch<'k>) -> Segment<'k> {
        let k_count = (self.k_tiles.value - stretch.k_first).min(stretch.k_count);
        let step = self.b.special(Special::ClusterCount);
        let ends = (stretch.k_count - k_count).eq(0);
        Segment {
            k_first: stretch.k_first,
            k_count,
            whole: k_count.eq(self.k_tiles.value),
            tile: stretch.tile,
            unit,
            last: ends & (unit + step).ge(self.units),
        }
    }

    /// The worker that a unit is, where it is one: the place of its share along the stages of all
    /// split tiles.
    pub(crate) fn worker(&self, unit: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        let Split { splits, abreast, .. } = self.split;
        let (at_k, beside) = abreast.divide(unit);
        beside * splits + at_k
    }

    /// The whole stretch of a unit: a worker's share of the split tiles, or a whole tile.
    fn stretch(&self, unit: Val<'k, ty::U32>) -> Stretch<'k> {
        let Split { tiles, workers, share, larger, .. } = self.split;
        self.b.if_else(
            unit.lt(workers),
            || {
                let worker = self.worker(unit);
                let begin = worker * share.value + worker.min(larger);
                let k_count = share.value + worker.lt(larger).select(1, 0);
                let (tile, k_first) = self.k_tiles.divide(begin);
                Stretch { tile, k_first, k_count }
            },
            || Stretch {
                tile: tiles + (unit - workers),
                k_first: self.b.constant(0),
                k_count: self.k_tiles.value,
            },
        )
    }

    /// The workers that compute parts of a split tile.
    pub(crate) fn contributors(&self, tile: Val<'k, ty::U32>) -> Contributors<'k> {
        let Split { share, larger_share, larger, .. } = self.split;
        let worker = |k_tile: Val<'k, ty::U32>| {
            let in_larger = larger * larger_share.value;
            let (among_larger, _) = larger_share.divide(k_tile);
            let (among_others, _) = share.divide(k_tile - in_larger);
            k_tile.lt(in_larger).select(among_larger, larger + among_others)
        };
        let begin = tile * self.k_tiles.value;
        let first = worker(begin);
        Contributors { first, count: worker(begin + (self.k_tiles.value - 1)) - first + 1 }
    }

    /// Tiles that are split.
    pub(crate) fn split_tiles(&self) -> Val<'k, ty::U32> {
        self.split.tiles
    }

    /// Where this CTA's part of a cluster tile lies.
    pub(crate) fn origin(&self, tile: Val<'k, ty::U32>) -> TileOrigin<'k> {
        self.b.scope("raster", || {
            let [batch, row, column] = self.raster.place(tile);
            let (row, column) = match self.cta {
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
