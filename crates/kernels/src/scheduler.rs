//! The static persistent scheduler: one wave of clusters walks all cluster tiles in raster order.

use pgemm_ir::{Carried, KernelBuilder, Special, Val, ty};

use crate::spec::{Cluster, Tile};

/// Where a CTA finds its tiles. Every role walks the same sequence on its own.
#[derive(Clone, Copy)]
pub struct Scheduler<'k> {
    b: &'k KernelBuilder,
    tile: Tile,
    cluster: Cluster,
    /// Extents of D in cluster tiles.
    clusters_m: Val<'k, ty::U32>,
    clusters_n: Val<'k, ty::U32>,
    /// Cluster-tile rows of a raster group.
    raster_rows: Val<'k, ty::U32>,
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

/// The first element of a CTA tile in D.
#[derive(Clone, Copy)]
pub struct TileOrigin<'k> {
    /// First row.
    pub m: Val<'k, ty::U32>,
    /// First column.
    pub n: Val<'k, ty::U32>,
}

impl<'k> Scheduler<'k> {
    /// A scheduler over the `m × n` elements of D. `raster_rows` is in cluster tiles, at least 1.
    pub fn new(
        b: &'k KernelBuilder,
        tile: Tile,
        cluster: Cluster,
        (m, n): (Val<'k, ty::U32>, Val<'k, ty::U32>),
        raster_rows: Val<'k, ty::U32>,
    ) -> Self {
        let in_cluster = (cluster.size() > 1).then(|| {
            let rank = b.special(Special::CtaRank);
            CtaPlace { m: rank % cluster.m, n: rank / cluster.m }
        });
        Scheduler {
            b,
            tile,
            cluster,
            clusters_m: m.div_ceil(tile.m * cluster.m),
            clusters_n: n.div_ceil(tile.n * cluster.n),
            raster_rows,
            in_cluster,
        }
    }

    /// This CTA's place in its cluster, where there is one.
    pub fn in_cluster(&self) -> Option<CtaPlace<'k>> {
        self.in_cluster
    }

    /// Runs `body` for each tile of this CTA.
    #[track_caller]
    pub fn for_each_tile<C: Carried<'k>>(
        &self,
        init: C,
        body: impl FnOnce(TileOrigin<'k>, C) -> C,
    ) -> C {
        let first = self.b.special(Special::Cluster);
        let step = self.b.special(Special::ClusterCount);
        let total = self.clusters_m * self.clusters_n;
        self.b
            .for_carry(first, total, step, init, |index, carried| body(self.origin(index), carried))
    }

    /// Raster order: groups of `raster_rows` rows, each walked column by column.
    fn origin(&self, index: Val<'k, ty::U32>) -> TileOrigin<'k> {
        self.b.scope("raster", || {
            let group_tiles = self.raster_rows * self.clusters_n;
            let first_row = index / group_tiles * self.raster_rows;
            let rows = (self.clusters_m - first_row).min(self.raster_rows);
            let in_group = index % group_tiles;
            let (row, column) = (first_row + in_group % rows, in_group / rows);
            let (row, column) = match self.in_cluster {
                None => (row, column),
                Some(cta) => (row * self.cluster.m + cta.m, column * self.cluster.n + cta.n),
            };
            TileOrigin { m: row * self.tile.m, n: column * self.tile.n }
        })
    }
}
