//! Kernel parameters that are declared with their meaning. A kernel declares each parameter as a
//! quantity. A launch walks the same list and computes the value of each quantity. So parameters
//! are found by their position in the list and never by name.

use std::cell::RefCell;
use std::fmt;

use pgemm_ir::{KernelBuilder, Scalar, TensorMap, TensorMapSpec, Val};

/// The parameters of a kernel that is being built. Each is a quantity of type `Q`, and the text of
/// the quantity is the name of the parameter.
pub(crate) struct Params<'k, Q> {
    pub(crate) b: &'k KernelBuilder,
    quantities: RefCell<Vec<Q>>,
}

impl<'k, Q: Copy + fmt::Display> Params<'k, Q> {
    /// An empty list of parameters.
    pub(crate) fn new(b: &'k KernelBuilder) -> Self {
        Params { b, quantities: RefCell::default() }
    }

    /// Declares a scalar parameter.
    pub(crate) fn scalar<T: Scalar>(&self, quantity: Q) -> Val<'k, T> {
        self.quantities.borrow_mut().push(quantity);
        self.b.param(&quantity.to_string())
    }

    /// Declares a tensor map.
    pub(crate) fn tensor_map(&self, quantity: Q, spec: TensorMapSpec) -> TensorMap<'k> {
        self.quantities.borrow_mut().push(quantity);
        self.b.tensor_map(&quantity.to_string(), spec)
    }

    /// The declared quantities, in the order of the kernel's parameters.
    pub(crate) fn into_quantities(self) -> Vec<Q> {
        self.quantities.into_inner()
    }
}
