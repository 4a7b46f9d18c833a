//! [`Batch`]: products of one shape that are computed together, and where the matrices of each lie.

use serde::{Deserialize, Serialize};

/// How many products a problem has, each with extents, layouts and scalars as the problem says, and
/// the elements from the matrix of one product to that of the next. Of A, B and C 0 says that all
/// products have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Batch {
    /// Products. Where there are none, nothing is done.
    pub count: usize,
    /// From one A to the next.
    pub a: usize,
    /// From one B to the next.
    pub b: usize,
    /// From one C to the next.
    pub c: usize,
    /// From one D to the next.
    pub d: usize,
}

impl Batch {
    /// A single product, whose matrices have none behind them.
    pub const ONE: Batch = Batch { count: 1, a: 0, b: 0, c: 0, d: 0 };

    /// With strides of 0 where there is nothing to step to.
    pub fn normalised(self) -> Batch {
        if self.count > 1 { self } else { Batch { count: self.count, ..Batch::ONE } }
    }

    /// Whether it is a single product.
    pub fn is_one(&self) -> bool {
        self.count == 1
    }

    /// Matrices that lie `stride` elements apart: as many as there are products, or one that they
    /// share.
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
