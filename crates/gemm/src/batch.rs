//! [`Batch`]: products of one shape that are computed together, and where the matrices of each lie.

use serde::{Deserialize, Serialize};

use crate::problem::ProblemError;

/// How many products a problem has, each with extents, layouts and scalars as the problem says, and the elements from the
/// matrix of one product to that of the next. Of A, B and C 0 says that all products have the same one.
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
    pub(crate) fn normalised(self) -> Batch {
        if self.count > 1 { self } else { Batch { count: self.count, ..Batch::ONE } }
    }

    /// Whether it is a single product.
    pub fn is_one(&self) -> bool {
        self.count == 1
    }

    /// Matrices that lie `stride` elements apart: as many as there are products, or one that they share.
    pub fn matrices(&self, stride: usize) -> usize {
        if stride == 0 { self.count.min(1) } else { self.count }
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::ONE
    }
}

/// Elements from the first of `count` matrices to one past the last, each of `span` elements.
///
/// # Errors
/// They exceed what one allocation may have, be elements as narrow as they may.
pub(crate) fn span(
    matrix: &'static str,
    count: usize,
    stride: usize,
    span: u128,
) -> Result<u128, ProblemError> {
    let first_to_last = (count.max(1) as u128 - 1) * stride as u128;
    match first_to_last.checked_add(span) {
        Some(elements) if elements <= isize::MAX as u128 => Ok(elements),
        _ => Err(ProblemError::TooManyMatrices { matrix, count, stride }),
    }
}

/// Checks that no two of `count` matrices of `lines` lines of `length` elements, `leading_dimension` apart, have an element
/// together: they lie one behind the other, or side by side between the lines of the first.
///
/// # Errors
/// [`ProblemError::BatchOverlap`] with the least strides that work.
pub(crate) fn check_apart(
    count: usize,
    stride: usize,
    (lines, length): (usize, usize),
    leading_dimension: usize,
) -> Result<(), ProblemError> {
    if count <= 1 || lines == 0 || length == 0 {
        return Ok(());
    }
    let behind = (lines as u128 - 1) * leading_dimension as u128 + length as u128;
    let stride_wide = stride as u128;
    let last_ends = (count as u128 - 1) * stride_wide + length as u128;
    let side_by_side = stride >= length && last_ends <= leading_dimension as u128;
    if stride_wide >= behind || side_by_side {
        return Ok(());
    }
    Err(ProblemError::BatchOverlap {
        asked: stride,
        least: behind.try_into().unwrap_or(usize::MAX),
        length,
        count,
        leading_dimension,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_lie_one_behind_the_other_or_side_by_side() {
        // Three of 4 lines of 5 elements.
        let apart = |stride, leading_dimension| check_apart(3, stride, (4, 5), leading_dimension);
        for (stride, leading_dimension) in [(20, 5), (23, 6), (1000, 5), (5, 15), (7, 19)] {
            assert_eq!(apart(stride, leading_dimension), Ok(()), "{stride} {leading_dimension}");
        }
        for (stride, leading_dimension) in [(0, 5), (19, 5), (22, 6), (4, 15), (5, 14), (7, 18)] {
            assert!(apart(stride, leading_dimension).is_err(), "{stride} {leading_dimension}");
        }
        let message = apart(19, 5).unwrap_err().to_string();
        assert!(message.contains("at least 20"), "{message}");
        assert_eq!(check_apart(1, 0, (4, 5), 5), Ok(()));
        assert_eq!(check_apart(9, 0, (4, 0), 5), Ok(()));
        assert!(check_apart(usize::MAX, usize::MAX, (usize::MAX, 1), usize::MAX).is_err());
    }

    #[test]
    fn the_same_rule_by_looking_at_every_element() {
        for (count, lines, length) in [(2, 3, 2), (3, 2, 2), (4, 3, 1), (2, 1, 3)] {
            for leading_dimension in length..9 {
                for stride in 0..30 {
                    let mut seen = std::collections::HashSet::new();
                    let place = |at, line, i| at * stride + line * leading_dimension + i;
                    let distinct = (0..count).all(|at| {
                        (0..lines).all(|line| (0..length).all(|i| seen.insert(place(at, line, i))))
                    });
                    let checked = check_apart(count, stride, (lines, length), leading_dimension);
                    // What is allowed is distinct; some rare ways to lie that are not allowed are too.
                    assert!(distinct || checked.is_err(), "{count} {lines} {length} {stride}");
                }
            }
        }
    }

    #[test]
    fn spans_do_not_overflow() {
        assert_eq!(span("A", 3, 10, 4), Ok(24));
        assert_eq!(span("A", 0, usize::MAX, 0), Ok(0));
        assert!(span("A", usize::MAX, usize::MAX, u128::from(u64::MAX)).is_err());
    }

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
