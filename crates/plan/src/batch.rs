//! [`Batch`]: the number of products of one shape, and the strides between their matrices.

use serde::{Deserialize, Serialize};

/// The number of products of a problem, and the strides from the matrix of one product to that of
/// the next, in elements. Extents, layouts and scalars are the same for all products. A stride of 0
/// for A, B or C says that all products share that matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Batch {
    /// Number of products. With 0 products nothing is computed.
    pub count: usize,
    /// Elements from one A to the next.
    pub a: usize,
    /// Elements from one B to the next.
    pub b: usize,
    /// Elements from one C to the next.
    pub c: usize,
    /// Elements from one D to the next.
    pub d: usize,
}

impl Batch {
    /// A single product. Its strides are 0.
    pub const ONE: Batch = Batch { count: 1, a: 0, b: 0, c: 0, d: 0 };

    /// The same batch, with strides of 0 if it has at most one product.
    pub fn normalised(self) -> Batch {
        if self.count > 1 { self } else { Batch { count: self.count, ..Batch::ONE } }
    }

    /// Whether it is a single product.
    pub fn is_one(&self) -> bool {
        self.count == 1
    }

    /// The number of distinct matrices at this stride: one for each product, or one for all if the
    /// stride is 0.
    pub fn matrices(&self, stride: usize) -> usize {
        if stride == 0 { self.count.min(1) } else { self.count }
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_one_has_no_strides() {
        let one = Batch { count: 1, a: 3, b: 4, c: 5, d: 6 };
        assert_eq!(one.normalised(), Batch::ONE);
        let two = Batch { count: 2, ..one };
        assert_eq!(two.normalised(), two);
        assert_eq!((two.matrices(3), two.matrices(0)), (2, 1));
        assert_eq!(Batch { count: 0, ..one }.matrices(0), 0);
    }
}
