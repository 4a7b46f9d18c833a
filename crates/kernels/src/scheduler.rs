//! The tile scheduler of launched kernels. One wave of clusters walks the tiles of a problem. The
//! tiles of all products of a batch form one list.
//!
//! Some tiles may be split, namely the first ones in raster order. Their stages are laid end to end
//! and dealt out evenly to workers. A worker may thus get the end of one tile, the start of
//! another, or any part of several tiles. One worker for each cluster is stream-K, and a multiple
//! of the split tiles is split-K. The other tiles are computed whole. Each cluster takes workers
//! first and then whole tiles, in steps of the number of clusters. In split-K, workers at the same
//! place along K follow each other. Neighbours on the device then read the same slices of A and B
//! at the same time.

use pgemm_ir::{Carried, KernelBuilder, Special, Val, carried, ty};

use crate::coordinates::{CtaPlace, Segment, TileOrigin};
use crate::divisor::Divisor;
use crate::params::Params;
use crate::quantity::{Count, DivisorPart, Quantity};
use crate::spec::{Cluster, MainloopSpec, Spec, Tile};

/// The raster: it maps the index of a tile to the tile's place in D. Each divisor comes with its
/// reciprocal.
#[derive(Clone, Copy)]
pub(crate) struct Raster<'k> {
    /// Number of tiles of one product.
    pub(crate) tiles_of_product: Divisor<'k>,
    /// Number of tiles of a full raster group.
    pub(crate) tiles_of_group: Divisor<'k>,
    /// Number of full raster groups of one product.
    pub(crate) full_groups: Val<'k, ty::U32>,
    /// Rows of a full raster group.
    pub(crate) raster_rows: Divisor<'k>,
    /// Rows of the last raster group, which is not full.
    pub(crate) last_rows: Divisor<'k>,
}

impl<'k> Raster<'k> {
    /// Product, row and column of tile `tile`, in cluster tiles. The raster order goes product by
    /// product and group by group. Each group of rows is walked column by column.
    pub(crate) fn place(&self, tile: Val<'k, ty::U32>) -> [Val<'k, ty::U32>; 3] {
        let Raster { tiles_of_product, tiles_of_group, full_groups, raster_rows, last_rows } = self;
        let (batch, index) = tiles_of_product.divide(tile);
        let (group, in_group) = tiles_of_group.divide(index);
        let rows = raster_rows.or(group.lt(*full_groups), *last_rows);
        let (column, row) = rows.divide(in_group);
        [batch, group * raster_rows.value + row, column]
    }
}

/// The distribution of the stages of split tiles over workers.
#[derive(Clone, Copy)]
struct Split<'k> {
    tiles: Val<'k, ty::U32>,
    /// Number of workers of the split tiles. It is at most the number of their stages.
    workers: Val<'k, ty::U32>,
    /// Stages of a worker. Each of the first `larger` workers has one more.
    share: Divisor<'k>,
    larger_share: Divisor<'k>,
    larger: Val<'k, ty::U32>,
    /// Number of workers of each tile if every tile has its own workers in equal number, else 1.
    splits: Val<'k, ty::U32>,
    /// `workers` divided by `splits`. This is the number of workers at one place along K.
    abreast: Divisor<'k>,
}

/// The tiles of a launch, and their distribution over clusters.
#[derive(Clone, Copy)]
pub(crate) struct Scheduler<'k> {
    b: &'k KernelBuilder,
    tile: Tile,
    cluster: Cluster,
    /// Whether the place of a CTA along N is the constant 0.
    is_first_along_n: bool,
    /// Number of units. A unit is a worker or a tile that is computed whole.
    units: Val<'k, ty::U32>,
    raster: Raster<'k>,
    /// Number of stages of a tile, at least 1.
    k_tiles: Divisor<'k>,
    split: Split<'k>,
    /// This CTA's place in its cluster, in CTA tiles.
    cta: Option<CtaPlace<'k>>,
}

carried! {
    /// The remaining part of the current worker or whole tile of a walk.
    #[derive(Clone, Copy)]
    struct RemainingStages<'k> {
        tile: Val<'k, ty::U32>,
        k_first: Val<'k, ty::U32>,
        k_count: Val<'k, ty::U32>,
    }
}

/// The workers that have a share of one tile. Their numbers are consecutive.
#[derive(Clone, Copy)]
pub(crate) struct Contributors<'k> {
    /// The first worker.
    pub(crate) first: Val<'k, ty::U32>,
    /// The number of workers.
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
        // The assembler does not know that the quotient of the rank is zero then. It keeps it in a
        // register from the first instruction to the last, and spills it where an f64 kernel has a
        // long activation. Others have it, as when they were measured.
        let is_f64 = matches!(spec.mainloop, MainloopSpec::Dmma(_));
        let is_first_along_n = cluster.n == 1 && is_f64 && spec.has_long_activation();
        Scheduler {
            b: params.b,
            tile,
            cluster,
            is_first_along_n,
            units,
            raster,
            k_tiles,
            split,
            cta: None,
        }
    }

    /// Determines this CTA's place in its cluster, if the kernel has clusters.
    pub(crate) fn placed(self) -> Self {
        let (b, cluster) = (self.b, self.cluster);
        let cta = (cluster.size() > 1).then(|| {
            let rank = b.special(Special::CtaRank);
            let m = rank % cluster.m;
            let n = if self.is_first_along_n { b.constant(0) } else { rank / cluster.m };
            CtaPlace { m, n }
        });
        Scheduler { cta, ..self }
    }

    /// This CTA's place in its cluster, if the kernel has clusters.
    pub(crate) fn in_cluster(&self) -> Option<CtaPlace<'k>> {
        self.cta
    }

    /// This CTA's rank in its cluster.
    pub(crate) fn rank(&self) -> Val<'k, ty::U32> {
        self.cta.map_or(self.b.constant(0), |cta| cta.n * self.cluster.m + cta.m)
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
            (unit, self.all_stages(unit), init),
            |(unit, _, _)| unit.lt(units),
            |(unit, remaining, carried)| {
                let segment = self.segment(unit, remaining);
                let left = remaining.k_count - segment.k_count;
                let carried = body(segment, carried);
                let (unit, remaining) = b.if_else(
                    left.eq(0),
                    || (unit + step, self.all_stages(unit + step)),
                    || {
                        let k_first = b.constant(0);
                        (unit, RemainingStages { tile: remaining.tile + 1, k_first, k_count: left })
                    },
                );
                (unit, remaining, carried)
            },
        );
        carried
    }

    /// Runs `body` for each worker and whole tile of this CTA, with its number of stages. Warps
    /// call it that need not know the places of tiles.
    #[track_caller]
    pub(crate) fn for_each_unit<C: Carried<'k>>(
        &self,
        init: C,
        body: impl FnOnce(Val<'k, ty::U32>, C) -> C,
    ) -> C {
        let b = self.b;
        let (unit, step) = (b.special(Special::Cluster), b.special(Special::ClusterCount));
        b.for_carry(unit, self.units, step, init, |unit, carried| {
            body(self.all_stages(unit).k_count, carried)
        })
    }

    /// The part of the remaining stages that lies in their first tile.
    fn segment(&self, unit: Val<'k, ty::U32>, remaining: RemainingStages<'k>) -> Segment<'k> {
        let k_count = (self.k_tiles.value - remaining.k_first).min(remaining.k_count);
        let step = self.b.special(Special::ClusterCount);
        let ends = (remaining.k_count - k_count).eq(0);
        Segment {
            k_first: remaining.k_first,
            k_count,
            whole: k_count.eq(self.k_tiles.value),
            tile: remaining.tile,
            unit,
            last: ends & (unit + step).ge(self.units),
        }
    }

    /// The worker of a unit, if the unit is a worker. Workers are numbered by the place of their
    /// share along the stages of all split tiles.
    pub(crate) fn worker(&self, unit: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        let Split { splits, abreast, .. } = self.split;
        let (at_k, beside) = abreast.divide(unit);
        beside * splits + at_k
    }

    /// All stages of a unit. This is a worker's share of the split tiles, or a whole tile.
    fn all_stages(&self, unit: Val<'k, ty::U32>) -> RemainingStages<'k> {
        let Split { tiles, workers, share, larger, .. } = self.split;
        self.b.if_else(
            unit.lt(workers),
            || {
                let worker = self.worker(unit);
                let begin = worker * share.value + worker.min(larger);
                let k_count = share.value + worker.lt(larger).select(1, 0);
                let (tile, k_first) = self.k_tiles.divide(begin);
                RemainingStages { tile, k_first, k_count }
            },
            || RemainingStages {
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

    /// Number of units: of tiles, if none is split.
    pub(crate) fn units(&self) -> Val<'k, ty::U32> {
        self.units
    }

    /// Number of split tiles.
    pub(crate) fn split_tiles(&self) -> Val<'k, ty::U32> {
        self.split.tiles
    }

    /// The place in D of this CTA's part of a cluster tile.
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
