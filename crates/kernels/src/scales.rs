//! Scale vectors: row i and column j of A·B, each multiplied by a binary32 of its own before alpha.

use pgemm_ir::{KernelBuilder, Val, ty};

use crate::batch::BatchMap;
use crate::sums::Sum;

/// Where the scales are.
#[derive(Clone, Copy)]
pub struct Scales<'k> {
    b: &'k KernelBuilder,
    /// Addresses of those of D's rows and of its columns.
    addresses: [Val<'k, ty::U64>; 2],
    /// From those of one product to those of the next.
    apart: [Val<'k, ty::U32>; 2],
    /// Rows and columns of D.
    extents: [Val<'k, ty::U32>; 2],
}

impl<'k> Scales<'k> {
    /// Declares the addresses, for a D of `[m, n]` in each product. Those of A's matrices, and of B's, lie one behind the
    /// other, each as often as `maps` have the operand.
    pub fn new(
        b: &'k KernelBuilder,
        extents: [Val<'k, ty::U32>; 2],
        maps: [&BatchMap<'k>; 2],
    ) -> Self {
        let apart = std::array::from_fn(|i| maps[i].place(extents[i]));
        let addresses = ["a_scales", "b_scales"].map(|name| b.param(name));
        Scales { b, addresses, apart, extents }
    }

    /// The scale of row or column `at` of a product; of the last one where `at` lies outside of D.
    fn load<S: Sum>(
        &self,
        which: usize,
        at: Val<'k, ty::U32>,
        batch: Val<'k, ty::U32>,
    ) -> Val<'k, S> {
        let at = at.min(self.extents[which] - 1);
        let first = batch.widen() * self.apart[which].widen() * 4;
        let [scale] = self.b.load_global((self.addresses[which] + first).byte_offset(at * 4));
        scale
    }

    /// Those of a thread's rows: `first`, and eight further on.
    pub fn rows<S: Sum>(
        &self,
        first: Val<'k, ty::U32>,
        batch: Val<'k, ty::U32>,
    ) -> [Val<'k, S>; 2] {
        [0, 8].map(|further| self.load(0, first + further, batch))
    }

    /// A thread's quad scaled: its rows have the scales `rows`, its columns are `first` and the next. The product of the scales
    /// comes first, for it is a power of two where both are, and the sum is rounded once.
    pub fn apply<S: Sum>(
        &self,
        quad: [Val<'k, S>; 4],
        rows: [Val<'k, S>; 2],
        first: Val<'k, ty::U32>,
        batch: Val<'k, ty::U32>,
    ) -> [Val<'k, S>; 4] {
        let columns = [0, 1].map(|further| self.load::<S>(1, first + further, batch));
        std::array::from_fn(|i| quad[i] * (rows[i / 2] * columns[i % 2]))
    }
}
