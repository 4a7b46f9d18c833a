//! Scale vectors. Before alpha, row i of A·B is multiplied by the scale of row i, and column j by
//! the scale of column j. Scales are binary32.

use pgemm_ir::{KernelBuilder, Val, ty};

use crate::compute::Compute;
use crate::operands::OperandMatrix;
use crate::params::Params;
use crate::quantity::{Matrix, Quantity};

/// The scale vectors of a problem.
#[derive(Clone, Copy)]
pub(crate) struct Scales<'k> {
    b: &'k KernelBuilder,
    /// Addresses of the scales of D's rows and of the scales of its columns.
    addresses: [Val<'k, ty::U64>; 2],
    /// Elements from the scales of one product to the scales of the next.
    batch_strides: [Val<'k, ty::U32>; 2],
    /// Rows and columns of D.
    extents: [Val<'k, ty::U32>; 2],
}

impl<'k> Scales<'k> {
    /// Declares the scale vectors for a D of `extents` in each product. The scales of A's matrices
    /// are stored one after the other, and so are those of B's. There are as many scale vectors of
    /// an operand as `operands` says that there are matrices.
    pub(crate) fn declare(
        params: &Params<'k, Quantity>,
        extents: [Val<'k, ty::U32>; 2],
        operands: &[OperandMatrix<'k>],
    ) -> Self {
        let batch_strides = std::array::from_fn(|i| operands[i].place(extents[i]));
        let addresses =
            [Matrix::A, Matrix::B].map(|matrix| params.scalar(Quantity::Scales(matrix)));
        Scales { b: params.b, addresses, batch_strides, extents }
    }

    /// Loads the scale of row (0) or column (1) `at` of a product. If `at` lies outside of D, it
    /// loads the last scale.
    fn load<R: Compute>(
        &self,
        which: usize,
        at: Val<'k, ty::U32>,
        batch: Val<'k, ty::U32>,
    ) -> Val<'k, R> {
        let at = at.min(self.extents[which] - 1);
        let first = batch.to_u64() * self.batch_strides[which].to_u64() * 4;
        let [scale] = self.b.load_global((self.addresses[which] + first).byte_offset(at * 4));
        scale
    }

    /// Loads the scales of a thread's two rows.
    pub(crate) fn rows<R: Compute>(
        &self,
        rows: [Val<'k, ty::U32>; 2],
        batch: Val<'k, ty::U32>,
    ) -> [Val<'k, R>; 2] {
        rows.map(|row| self.load(0, row, batch))
    }

    /// Loads the scales of a column and of the next column.
    pub(crate) fn columns<R: Compute>(
        &self,
        first: Val<'k, ty::U32>,
        batch: Val<'k, ty::U32>,
    ) -> [Val<'k, R>; 2] {
        [0, 1].map(|further| self.load(1, first + further, batch))
    }
}
