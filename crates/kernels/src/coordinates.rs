//! Coordinates of a piece of work, as values of a running kernel. They are the CTA in its cluster,
//! the tile in D, and the stages of the tile along K.

use pgemm_ir::{Val, ty};

use crate::quantity::Side;

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
    /// The index of the product in the batch.
    pub(crate) batch: Val<'k, ty::U32>,
}

impl<'k> TileOrigin<'k> {
    /// The first row or column.
    pub(crate) fn along(&self, side: Side) -> Val<'k, ty::U32> {
        match side {
            Side::M => self.m,
            Side::N => self.n,
        }
    }
}

/// Some or all of the stages of an output tile.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'k> {
    /// First stage.
    pub(crate) k_first: Val<'k, ty::U32>,
    /// Number of stages, at least 1.
    pub(crate) k_count: Val<'k, ty::U32>,
    /// Whether these are all stages of the tile.
    pub(crate) whole: Val<'k, ty::Bool>,
    /// Index of the cluster tile.
    pub(crate) tile: Val<'k, ty::U32>,
    /// The unit of work that the segment belongs to. It is a worker's share of split tiles, or a
    /// whole tile.
    pub(crate) unit: Val<'k, ty::U32>,
    /// Whether this is the last work of the cluster.
    pub(crate) last: Val<'k, ty::Bool>,
}
