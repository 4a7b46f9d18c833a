//! Host matrices as operands of one product or of a batch.

use super::{NoOperand, Operands, Sealed};
use crate::matrix::HostMatrix;

/// A matrix on the host, or the matrices of a batch: one for each product, or where the batch
/// stride is 0 one for all.
pub trait HostOperand: Sealed {
    /// The matrices.
    fn matrices(&self) -> &[HostMatrix];
}

/// The type of operand A, which determines whether the result is one D or one for each product of a
/// batch.
pub trait HostResult: HostOperand {
    /// D, or the D of each product of a batch.
    type Results;

    /// Whether a batch is computed, of any number of products.
    #[doc(hidden)]
    const IS_BATCH: bool;

    /// The results of as many products as there were.
    #[doc(hidden)]
    fn results(results: Vec<HostMatrix>) -> Self::Results;
}

impl Sealed for HostMatrix {}
impl Sealed for [HostMatrix] {}
impl Sealed for Vec<HostMatrix> {}
impl<const N: usize> Sealed for [HostMatrix; N] {}

impl HostOperand for HostMatrix {
    fn matrices(&self) -> &[HostMatrix] {
        std::slice::from_ref(self)
    }
}

impl HostOperand for [HostMatrix] {
    fn matrices(&self) -> &[HostMatrix] {
        self
    }
}

impl HostOperand for Vec<HostMatrix> {
    fn matrices(&self) -> &[HostMatrix] {
        self
    }
}

impl<const N: usize> HostOperand for [HostMatrix; N] {
    fn matrices(&self) -> &[HostMatrix] {
        self
    }
}

impl HostOperand for NoOperand {
    fn matrices(&self) -> &[HostMatrix] {
        match *self {}
    }
}

impl HostResult for HostMatrix {
    type Results = HostMatrix;
    const IS_BATCH: bool = false;

    fn results(mut results: Vec<HostMatrix>) -> HostMatrix {
        results.swap_remove(0)
    }
}

impl HostResult for [HostMatrix] {
    type Results = Vec<HostMatrix>;
    const IS_BATCH: bool = true;

    fn results(results: Vec<HostMatrix>) -> Vec<HostMatrix> {
        results
    }
}

impl HostResult for Vec<HostMatrix> {
    type Results = Vec<HostMatrix>;
    const IS_BATCH: bool = true;

    fn results(results: Vec<HostMatrix>) -> Vec<HostMatrix> {
        results
    }
}

impl<const N: usize> HostResult for [HostMatrix; N] {
    type Results = Vec<HostMatrix>;
    const IS_BATCH: bool = true;

    fn results(results: Vec<HostMatrix>) -> Vec<HostMatrix> {
        results
    }
}

/// Operands of one product on the host.
pub type HostOperands<'a> = Operands<'a, HostMatrix, HostMatrix, HostMatrix, HostMatrix>;

/// Operands of a batch on the host. All products share the bias.
pub type HostBatch<'a> = Operands<'a, [HostMatrix], [HostMatrix], [HostMatrix], HostMatrix>;

impl<'a, A, B, C, V> Operands<'a, A, B, C, V>
where
    A: HostOperand + ?Sized,
    B: HostOperand + ?Sized,
    C: HostOperand + ?Sized,
    V: HostOperand + ?Sized,
{
    /// The operands as those of a batch, which may have only one product.
    pub fn batch(self) -> HostBatch<'a> {
        Operands {
            a: self.a.matrices(),
            b: self.b.matrices(),
            c: self.c.map(C::matrices),
            bias: self.bias.and_then(|bias| bias.matrices().first()),
        }
    }

    /// The operands of one product of the batch.
    pub fn of(self, product: usize) -> HostOperands<'a> {
        let HostBatch { a, b, c, bias } = self.batch();
        let one = |matrices: &'a [HostMatrix]| &matrices[product % matrices.len().max(1)];
        Operands { a: one(a), b: one(b), c: c.filter(|c| !c.is_empty()).map(one), bias }
    }
}
