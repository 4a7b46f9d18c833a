//! Scale vectors: row i and column j of A·B are each multiplied by a binary32 of their own before
//! alpha.

use pgemm_ir::{KernelBuilder, Val, ty};

use crate::compute::Compute;
use crate::operands::BatchMap;
use crate::params::Params;
use crate::quantity::{Matrix, Quantity};

/// Where the scales are.
#[derive(Clone, Copy)]
pub(crate) struct Scales<'k> {
    b: &'k KernelBuilder,
    /// Addresses of the scales of D's rows and of its columns.
    addresses: [Val<'k, ty::U64>; 2],
    /// Elements from the scales of one product to those of the next.
    batch_strides: [Val<'k, ty::U32>; 2],
    /// Rows and columns of D.
    extents: [Val<'k, ty::U32>; 2],
}

impl<'k> Scales<'k> {
    /// Declares the addresses, for a D of `extents` in each product. The scales of A's matrices,
    /// and of B's, follow each other, each as often as `maps` have the operand.
    pub(crate) fn declare(
        params: &Params<'k, Quantity>,
        extents: [Val<'k, ty::U32>; 2],
        maps: &[BatchMap<'k>],
    ) -> Self {
        let batch_strides = std::array::from_fn(|i| maps[i].place(extents[i]));
        let addresses =
            [Matrix::A, Matrix::B].map(|matrix| params.scalar(Quantity::Scales(matrix)));
        Scales { b: params.b, addresses, batch_strides, extents }
    }

    /// The scale of row (0) or column (1) `at` of a product; of the last one where `at` lies
    /// outside of D.
    fn load<R: Compute>(
        &self,
        which: usize,
        at: Val<'k, ty::U32>,
        batch: Val<'k, ty::U32>,
    ) -> Val<'k, R> {
        let at = at.min(self.extents[which] - 1);
        let first = batch.widen() * self.batch_strides[which].widen() * 4;
        let [scale] = self.b.load_global((self.addresses[which] + first).byte_offset(at * 4));
        scale
    }

    /// The scales of a thread's two rows.
    pub(crate) fn rows<R: Compute>(
        &self,
        rows: [Val<'k, ty::U32>; 2],
        batch: Val<'k, ty::U32>,
    ) -> [Val<'k, R>; 2] {
        rows.map(|row| self.load(0, row, batch))
    }

    /// The scales of a column and of the next.
    pub(crate) fn columns<R: Compute>(
        &self,
        first: Val<'k, ty::U32>,
        batch: Val<'k, ty::U32>,
    ) -> [Val<'k, R>; 2] {
        [0, 1].map(|further| self.load(1, first + further, batch))
    }
}
