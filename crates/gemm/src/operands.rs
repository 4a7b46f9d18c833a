//! What products of host matrices are computed from.

use crate::matrix::HostMatrix;

/// Inputs on the host. A and B are of the config's types, C of its output type.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// A.
    pub a: &'a HostMatrix,
    /// B.
    pub b: &'a HostMatrix,
    /// C, where beta isn't 0.
    pub c: Option<&'a HostMatrix>,
    /// The bias where the epilogue has one: a row of [`Epilogue::bias_length`](crate::Epilogue::bias_length) elements of
    /// [`Config::bias_dtype`], without gaps.
    pub bias: Option<&'a HostMatrix>,
}

/// Inputs of a batch on the host, as [`Inputs`]: one matrix for each product, or where the batch stride is 0 one for all.
#[derive(Clone, Copy)]
pub struct BatchInputs<'a> {
    /// A of each product.
    pub a: &'a [HostMatrix],
    /// B of each product.
    pub b: &'a [HostMatrix],
    /// C of each product; not looked at where beta is 0.
    pub c: &'a [HostMatrix],
    /// The bias of all products, as [`Inputs::bias`].
    pub bias: Option<&'a HostMatrix>,
}

impl<'a> BatchInputs<'a> {
    /// Those of one product.
    pub fn of(&self, index: usize) -> Inputs<'a> {
        let one = |matrices: &[HostMatrix]| index.checked_rem(matrices.len());
        Inputs {
            a: &self.a[one(self.a).unwrap_or_default()],
            b: &self.b[one(self.b).unwrap_or_default()],
            c: one(self.c).map(|index| &self.c[index]),
            bias: self.bias,
        }
    }
}
