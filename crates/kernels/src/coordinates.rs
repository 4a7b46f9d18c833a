//! Where a piece of work lies, as values of a running kernel: the CTA in its cluster, the tile in
//! D, and the stages of the tile along K.

use pgemm_ir::{Val, ty};

/// A CTA's place in its cluster. Ranks run along M first.
#[derive(Clone, Copy)]
pub(crate) struct CtaPlace<'k> {
    /// Along M.
    pub(crate) m: Val<'k, ty::U32>,
    /// Along N.
    pub(crate) n: Val<'k, ty::U32>,
}

/// The first element of a CTA tile in the D of a product.
#[derive(Clone, Copy)]
pub(crate) struct TileOrigin<'k> {
    /// First row.
    pub(crate) m: Val<'k, ty::U32>,
    /// First column.
    pub(crate) n: Val<'k, ty::U32>,
    /// Which product of the batch.
    pub(crate) batch: Val<'k, ty::U32>,
}

/// Some or all of the stages of an output tile.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'k> {
    /// First stage.
    pub(crate) k_first: Val<'k, ty::U32>,
    /// Stages, at least 1.
    pub(crate) k_count: Val<'k, ty::U32>,
    /// True where these are all of the tile's.
    pub(crate) whole: Val<'k, ty::Bool>,
    /// Index of the cluster tile.
    pub(crate) tile: Val<'k, ty::U32>,
    /// The unit of work that it belongs to: a worker's share of split tiles, or a whole tile.
    pub(crate) unit: Val<'k, ty::U32>,
    /// True where this cluster has no work after it.
    pub(crate) last: Val<'k, ty::Bool>,
}
