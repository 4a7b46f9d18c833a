//! The number of elements of each allocation that a problem spans.

use pgemm_ir::Element;

use super::Problem;
use crate::error::PlanError;
use crate::layout::{MatrixLayout, OperandLayout};

/// Elements from the first one that a problem touches to one past the last, over the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// Elements of A. 0 if A is empty.
    pub a: usize,
    /// Elements of B. 0 if B is empty.
    pub b: usize,
    /// Elements of C. 0 if beta is 0, because C is then not read.
    pub c: usize,
    /// Elements of D. 0 if D is empty.
    pub d: usize,
}

impl Problem {
    /// Bytes from the first matrix of a batch to the end of the last. The matrices have this layout
    /// and begin `stride` elements apart.
    ///
    /// # Errors
    /// The leading dimension is too short, or the matrices exceed the largest possible allocation
    /// (`isize::MAX` bytes).
    pub fn all_bytes(
        &self,
        matrix: &'static str,
        layout: MatrixLayout,
        stride: usize,
        element: Element,
    ) -> Result<usize, PlanError> {
        let count = self.batch.matrices(stride);
        let of_one = layout.span(element)?;
        if count == 0 {
            return Ok(0);
        }
        let elements = (count - 1).checked_mul(stride).and_then(|first| first.checked_add(of_one));
        elements
            .and_then(|elements| elements.checked_mul(element.bytes() as usize))
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or(PlanError::TooManyMatrices { matrix, count, stride })
    }

    /// The least number of elements that A, B, C and D must have. Spans that do not fit into a
    /// `usize` are reported as `usize::MAX`; [`validate`](Self::validate) rejects such problems.
    ///
    /// ```
    /// use pgemm_plan::{Major, Problem};
    ///
    /// let problem = Problem::new(3, 5, 7, Major::K, Major::N).with_a_leading_dimension(8);
    /// assert_eq!(problem.spans().a, 2 * 8 + 7);
    /// assert_eq!(problem.spans().d, 3 * 5);
    /// ```
    pub fn spans(&self) -> Spans {
        let batch = self.batch;
        let span = |(lines, length): (usize, usize), layout: OperandLayout, stride: usize| {
            if batch.count == 0 || lines == 0 || length == 0 {
                return 0;
            }
            let last = |count: usize, apart: usize| (count as u128 - 1) * apart as u128;
            let elements = last(batch.count, stride)
                .saturating_add(last(lines, layout.leading_dimension))
                .saturating_add(last(length, layout.step))
                .saturating_add(1);
            usize::try_from(elements).unwrap_or(usize::MAX)
        };
        let layout = self.d_layout();
        let of_d = (layout.lines(), layout.line_length());
        let result = |leading_dimension, stride| {
            span(of_d, OperandLayout::new(self.d_major, leading_dimension), stride)
        };
        Spans {
            a: span(self.a_lines(), self.a, batch.a),
            b: span(self.b_lines(), self.b, batch.b),
            c: if self.beta == 0.0 { 0 } else { result(self.c_leading_dimension, batch.c) },
            d: result(self.d_leading_dimension, batch.d),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Major;

    #[test]
    fn a_span_ends_behind_the_last_element_that_is_touched() {
        let problem = Problem::new(3, 5, 7, Major::M, Major::K).with_beta(1.0);
        assert_eq!(problem.spans(), Spans { a: 21, b: 35, c: 15, d: 15 });
        let apart = problem.with_a_leading_dimension(4).with_b_step(2).with_b_leading_dimension(20);
        assert_eq!(apart.spans(), Spans { a: 6 * 4 + 3, b: 4 * 20 + 6 * 2 + 1, c: 15, d: 15 });
        let column_major = problem.with_d_major(Major::M).with_c_leading_dimension(10);
        assert_eq!(column_major.spans().c, 4 * 10 + 3);
        let batch = problem.with_batch(4).with_a_batch_stride(0).with_d_batch_stride(100);
        assert_eq!(batch.spans(), Spans { a: 21, b: 140, c: 60, d: 315 });
        let broadcast = problem.with_a_leading_dimension(0).with_c_leading_dimension(0);
        assert_eq!((broadcast.spans().a, broadcast.spans().c), (3, 5));
    }

    #[test]
    fn nothing_is_touched_of_what_is_empty_or_unread() {
        let problem = Problem::new(3, 5, 0, Major::K, Major::K);
        assert_eq!(problem.spans(), Spans { a: 0, b: 0, c: 0, d: 15 });
        let none = Problem::new(3, 5, 7, Major::K, Major::K).with_batch(0);
        assert_eq!(none.spans(), Spans { a: 0, b: 0, c: 0, d: 0 });
        let far = Problem::new(3, 5, 7, Major::K, Major::K).with_a_leading_dimension(usize::MAX);
        assert_eq!(far.spans().a, usize::MAX);
    }
}
