//! Checks of problems and layouts: majors, leading dimensions, overlap and overflow.

use pgemm_ir::Element;

use super::Problem;
use crate::batch::Batch;
use crate::error::PlanError;
use crate::layout::{Major, MatrixLayout, OperandLayout};

impl MatrixLayout {
    /// Elements from the first to one past the last, including gaps between lines. There is no gap
    /// after the last line.
    ///
    /// # Errors
    /// The leading dimension is shorter than a line, or the matrix of this element type exceeds the
    /// largest possible allocation (`isize::MAX` bytes).
    pub fn span(&self, element: Element) -> Result<usize, PlanError> {
        self.check("the matrix")?;
        if self.is_empty() {
            return Ok(0);
        }
        (self.lines() - 1)
            .checked_mul(self.leading_dimension)
            .and_then(|gaps_and_lines| gaps_and_lines.checked_add(self.line_length()))
            .filter(|span| {
                span.checked_mul(element.bytes() as usize)
                    .is_some_and(|bytes| bytes <= isize::MAX as usize)
            })
            .ok_or(PlanError::TooManyBytes {
                lines: self.lines(),
                leading_dimension: self.leading_dimension,
                element_bytes: element.bytes(),
            })
    }

    /// Bytes of the matrix: its [`span`](Self::span) times the bytes of an element.
    ///
    /// # Errors
    /// The same as for [`span`](Self::span).
    pub fn bytes(&self, element: Element) -> Result<usize, PlanError> {
        Ok(self.span(element)? * element.bytes() as usize)
    }

    fn check(&self, matrix: &'static str) -> Result<(), PlanError> {
        let least = self.line_length().max(1);
        if self.leading_dimension < least {
            return Err(PlanError::LeadingDimension {
                matrix,
                requested: self.leading_dimension,
                extent: self.line_length(),
                least,
            });
        }
        Ok(())
    }
}

impl OperandLayout {
    /// Checks an operand of `lines` lines of `length` elements.
    fn check(&self, matrix: &'static str, lines: usize, length: usize) -> Result<(), PlanError> {
        let OperandLayout { leading_dimension, step, .. } = *self;
        if step == 1 && leading_dimension != 0 {
            let least = length.max(1);
            if leading_dimension < least {
                return Err(PlanError::LeadingDimension {
                    matrix,
                    requested: leading_dimension,
                    extent: length,
                    least,
                });
            }
        }
        let last = |count: usize, apart: usize| (count.max(1) as u128 - 1) * apart as u128;
        // Checked for elements of one byte. The constructors of matrices check wider elements.
        if last(lines, leading_dimension) + last(length, step) >= isize::MAX as u128 {
            return Err(PlanError::TooManyBytes {
                lines,
                leading_dimension,
                element_bytes: Element::U8.bytes(),
            });
        }
        Ok(())
    }
}

impl Problem {
    /// Checks everything that does not depend on element types: majors, leading dimensions, that
    /// the results of a batch do not overlap, and that neither the operation count nor the span of
    /// any matrix overflows.
    ///
    /// # Errors
    /// The first of these that fails.
    pub fn validate(&self) -> Result<(), PlanError> {
        if self.a.major == Major::N {
            return Err(PlanError::NoSuchMajor {
                operand: "A",
                major: self.a.major,
                dimensions: "m and k",
            });
        }
        if self.b.major == Major::M {
            return Err(PlanError::NoSuchMajor {
                operand: "B",
                major: self.b.major,
                dimensions: "k and n",
            });
        }
        if self.d_major == Major::K {
            return Err(PlanError::NoSuchMajor {
                operand: "D",
                major: self.d_major,
                dimensions: "m and n",
            });
        }
        for (matrix, operand, (lines, length)) in
            [("A", self.a, self.a_lines()), ("B", self.b, self.b_lines())]
        {
            operand.check(matrix, lines, length)?;
        }
        let c = OperandLayout::new(self.d_major, self.c_leading_dimension);
        c.check("C", self.d_layout().lines(), self.d_layout().line_length())?;
        self.d_layout().check("D")?;
        self.d_layout().span(Element::U8)?;
        self.check_batch()?;
        self.operations()?;
        Ok(())
    }

    /// Checks the strides of a batch whose single matrices are valid.
    fn check_batch(&self) -> Result<(), PlanError> {
        let Batch { count, a, b, c, d } = self.batch;
        let span = |(lines, length): (usize, usize), leading_dimension: usize, step: usize| {
            let last = |count: usize, apart: usize| (count.max(1) as u128 - 1) * apart as u128;
            last(lines, leading_dimension) + last(length, step) + 1
        };
        let layout = self.d_layout();
        let of_d = (layout.lines(), layout.line_length());
        for (matrix, stride, span) in [
            ("A", a, span(self.a_lines(), self.a.leading_dimension, self.a.step)),
            ("B", b, span(self.b_lines(), self.b.leading_dimension, self.b.step)),
            ("C", c, span(of_d, self.c_leading_dimension, 1)),
            ("D", d, span(of_d, self.d_leading_dimension, 1)),
        ] {
            batch_span(matrix, count, stride, span)?;
        }
        check_apart(count, d, of_d, self.d_leading_dimension)
    }

    /// Checks that the matrices of each product have the layouts of the problem. If beta is 0, C
    /// may be absent or have another layout.
    ///
    /// # Errors
    /// The first matrix with another layout, or a missing C although beta is not 0.
    pub fn check_layouts(
        &self,
        a: MatrixLayout,
        b: MatrixLayout,
        c: Option<MatrixLayout>,
    ) -> Result<(), PlanError> {
        let c = if self.beta == 0.0 {
            self.c_layout()
        } else {
            c.ok_or(PlanError::MissingC { beta: self.beta })?
        };
        for (matrix, found, needed) in
            [("A", a, self.a_layout()), ("B", b, self.b_layout()), ("C", c, self.c_layout())]
        {
            if found != needed {
                return Err(PlanError::LayoutMismatch { matrix, found, needed });
            }
        }
        Ok(())
    }
}

/// Elements from the first of `count` matrices to one past the last, each of `span` elements.
///
/// # Errors
/// The matrices exceed the largest possible allocation (`isize::MAX` bytes), even with elements of
/// one byte.
fn batch_span(
    matrix: &'static str,
    count: usize,
    stride: usize,
    span: u128,
) -> Result<u128, PlanError> {
    let first_to_last = (count.max(1) as u128 - 1) * stride as u128;
    match first_to_last.checked_add(span) {
        Some(elements) if elements <= isize::MAX as u128 => Ok(elements),
        _ => Err(PlanError::TooManyMatrices { matrix, count, stride }),
    }
}

/// Checks that the `count` matrices of a batch do not overlap. Each has `lines` lines of `length`
/// elements, `leading_dimension` elements apart. They must follow one another, or lie side by side
/// between the lines of the first.
///
/// # Errors
/// [`PlanError::BatchOverlap`] with the least strides that work.
fn check_apart(
    count: usize,
    stride: usize,
    (lines, length): (usize, usize),
    leading_dimension: usize,
) -> Result<(), PlanError> {
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
    Err(PlanError::BatchOverlap {
        requested: stride,
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
                    // Everything that the check accepts is free of overlap. It also rejects some
                    // rare layouts without overlap.
                    assert!(distinct || checked.is_err(), "{count} {lines} {length} {stride}");
                }
            }
        }
    }

    #[test]
    fn spans_do_not_overflow() {
        assert_eq!(batch_span("A", 3, 10, 4), Ok(24));
        assert_eq!(batch_span("A", 0, usize::MAX, 0), Ok(0));
        assert!(batch_span("A", usize::MAX, usize::MAX, u128::from(u64::MAX)).is_err());
    }
}
