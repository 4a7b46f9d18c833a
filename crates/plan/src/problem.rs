//! [`Problem`]: what is to be computed. The extents, layouts and scalars of `D = alpha * A·B + beta
//! * C`.

mod checks;
mod scalars;
mod spans;

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::error::PlanError;
use crate::layout::{Major, MatrixLayout, OperandLayout, Order};

pub use spans::Spans;

/// The product `D = alpha * A·B + beta * C`, or a batch of such products. A is m×k, B is k×n, C and
/// D are m×n.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// Rows of A, C and D.
    pub m: usize,
    /// Columns of B, C and D.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Layout of A: k-major (row-major) or m-major (column-major).
    pub a: OperandLayout,
    /// Layout of B: k-major (column-major) or n-major (row-major).
    pub b: OperandLayout,
    /// Contiguous dimension of C and D: n (row-major) or m (column-major).
    #[serde(default = "row_major")]
    pub d_major: Major,
    /// Elements from one line of C (a row or a column, as `d_major` says) to the next. 0 if all
    /// lines are the same one.
    pub c_leading_dimension: usize,
    /// Elements from one line of D to the next.
    pub d_leading_dimension: usize,
    /// Factor of A·B. Products of other types than f64 round it to the nearest binary32.
    pub alpha: f64,
    /// Factor of C, rounded as alpha is. If it is 0, C is not read.
    pub beta: f64,
    /// The number of products, and the strides between their matrices.
    #[serde(default, skip_serializing_if = "Batch::is_one")]
    pub batch: Batch,
}

/// Default used when a file omits the field.
fn row_major() -> Major {
    Major::N
}

impl Problem {
    /// A problem whose matrices have no gaps, with alpha = 1 and beta = 0.
    pub fn new(m: usize, n: usize, k: usize, a_major: Major, b_major: Major) -> Problem {
        let tight = |major| {
            let extent: usize = match major {
                Major::K => k,
                Major::M => m,
                Major::N => n,
            };
            OperandLayout::new(major, extent.max(1))
        };
        Problem {
            m,
            n,
            k,
            a: tight(a_major),
            b: tight(b_major),
            d_major: Major::N,
            c_leading_dimension: n.max(1),
            d_leading_dimension: n.max(1),
            alpha: 1.0,
            beta: 0.0,
            batch: Batch::ONE,
        }
    }

    /// The problem that multiplies two matrices of these layouts into a row-major D without gaps.
    ///
    /// # Errors
    /// The number of columns of A is not the number of rows of B, or [`validate`](Self::validate)
    /// fails.
    pub fn of(a: &MatrixLayout, b: &MatrixLayout) -> Result<Problem, PlanError> {
        if a.columns != b.rows {
            return Err(PlanError::InnerDimensions {
                a_rows: a.rows,
                a_columns: a.columns,
                b_rows: b.rows,
                b_columns: b.columns,
            });
        }
        let a_major = match a.order {
            Order::RowMajor => Major::K,
            Order::ColumnMajor => Major::M,
        };
        let b_major = match b.order {
            Order::RowMajor => Major::N,
            Order::ColumnMajor => Major::K,
        };
        let problem = Problem::new(a.rows, b.columns, a.columns, a_major, b_major)
            .with_a_leading_dimension(a.leading_dimension)
            .with_b_leading_dimension(b.leading_dimension);
        problem.validate()?;
        Ok(problem)
    }

    /// Sets the leading dimension of A, in elements.
    pub fn with_a_leading_dimension(mut self, elements: usize) -> Problem {
        self.a.leading_dimension = elements;
        self
    }

    /// Sets the leading dimension of B, in elements.
    pub fn with_b_leading_dimension(mut self, elements: usize) -> Problem {
        self.b.leading_dimension = elements;
        self
    }

    /// Sets the leading dimension of C, in elements.
    pub fn with_c_leading_dimension(mut self, elements: usize) -> Problem {
        self.c_leading_dimension = elements;
        self
    }

    /// Sets the leading dimension of D, in elements.
    pub fn with_d_leading_dimension(mut self, elements: usize) -> Problem {
        self.d_leading_dimension = elements;
        self
    }

    /// Sets the contiguous dimension of C and D, which then have no gaps between lines.
    pub fn with_d_major(mut self, major: Major) -> Problem {
        let line = if major == Major::M { self.m } else { self.n }.max(1);
        self.d_major = major;
        (self.c_leading_dimension, self.d_leading_dimension) = (line, line);
        self
    }

    /// Sets the elements from one element of a line of A to the next.
    pub fn with_a_step(mut self, elements: usize) -> Problem {
        self.a.step = elements;
        self
    }

    /// Sets the elements from one element of a line of B to the next.
    pub fn with_b_step(mut self, elements: usize) -> Problem {
        self.b.step = elements;
        self
    }

    /// Makes the problem a batch of `count` products. Their matrices follow one another without
    /// gaps, apart from gaps between lines. Later changes of layouts do not change the batch
    /// strides.
    pub fn with_batch(mut self, count: usize) -> Problem {
        let apart = |(lines, length): (usize, usize), leading_dimension: usize, step: usize| {
            lines.saturating_mul(leading_dimension).max(length.saturating_mul(step)).max(1)
        };
        let of_operand =
            |operand: OperandLayout, lines| apart(lines, operand.leading_dimension, operand.step);
        let d = self.d_layout();
        let lines = (d.lines(), d.line_length());
        self.batch = Batch {
            count,
            a: of_operand(self.a, self.a_lines()),
            b: of_operand(self.b, self.b_lines()),
            c: apart(lines, self.c_leading_dimension, 1),
            d: apart(lines, self.d_leading_dimension, 1),
        }
        .normalised();
        self
    }

    /// Sets the elements from one A of a batch to the next. 0 if all products have the same A.
    pub fn with_a_batch_stride(mut self, elements: usize) -> Problem {
        self.batch.a = elements;
        self
    }

    /// Sets the elements from one B of a batch to the next. 0 if all products have the same B.
    pub fn with_b_batch_stride(mut self, elements: usize) -> Problem {
        self.batch.b = elements;
        self
    }

    /// Sets the elements from one C of a batch to the next. 0 if all products have the same C.
    pub fn with_c_batch_stride(mut self, elements: usize) -> Problem {
        self.batch.c = elements;
        self
    }

    /// Sets the elements from one D of a batch to the next.
    pub fn with_d_batch_stride(mut self, elements: usize) -> Problem {
        self.batch.d = elements;
        self
    }

    /// The same problem, with batch strides of 0 if it has at most one product.
    pub fn normalised(&self) -> Problem {
        Problem { batch: self.batch.normalised(), ..*self }
    }

    /// The problem of a single product of the batch.
    pub fn one(&self) -> Problem {
        Problem { batch: Batch::ONE, ..*self }
    }

    /// Whether D has no elements.
    pub fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch.count == 0
    }

    /// The problem on the same bytes that computes Dᵀ = Bᵀ·Aᵀ: A and B, and m and n, are exchanged.
    pub fn transposed(&self) -> Problem {
        let transposed = |operand: OperandLayout| {
            let major = match operand.major {
                Major::K => Major::K,
                Major::M => Major::N,
                Major::N => Major::M,
            };
            OperandLayout { major, ..operand }
        };
        Problem {
            m: self.n,
            n: self.m,
            a: transposed(self.b),
            b: transposed(self.a),
            d_major: if self.d_major == Major::M { Major::N } else { Major::M },
            batch: Batch { a: self.batch.b, b: self.batch.a, ..self.batch },
            ..*self
        }
    }

    /// Sets the factor of A·B.
    pub fn with_alpha(mut self, alpha: f64) -> Problem {
        self.alpha = alpha;
        self
    }

    /// Sets the factor of C.
    pub fn with_beta(mut self, beta: f64) -> Problem {
        self.beta = beta;
        self
    }

    /// The layout of A (m×k) if its `step` is 1.
    pub fn a_layout(&self) -> MatrixLayout {
        let order = if self.a.major == Major::M { Order::ColumnMajor } else { Order::RowMajor };
        MatrixLayout {
            rows: self.m,
            columns: self.k,
            order,
            leading_dimension: self.a.leading_dimension,
        }
    }

    /// The layout of B (k×n) if its `step` is 1.
    pub fn b_layout(&self) -> MatrixLayout {
        let order = if self.b.major == Major::N { Order::RowMajor } else { Order::ColumnMajor };
        MatrixLayout {
            rows: self.k,
            columns: self.n,
            order,
            leading_dimension: self.b.leading_dimension,
        }
    }

    /// The layout of C (m×n).
    pub fn c_layout(&self) -> MatrixLayout {
        self.d_layout().with_leading_dimension(self.c_leading_dimension)
    }

    /// The layout of D (m×n).
    pub fn d_layout(&self) -> MatrixLayout {
        let order = match self.d_major {
            Major::M => Order::ColumnMajor,
            Major::K | Major::N => Order::RowMajor,
        };
        MatrixLayout {
            rows: self.m,
            columns: self.n,
            order,
            leading_dimension: self.d_leading_dimension,
        }
    }

    /// The number of lines of A, and the elements of each line.
    pub fn a_lines(&self) -> (usize, usize) {
        if self.a.major == Major::M { (self.k, self.m) } else { (self.m, self.k) }
    }

    /// The number of lines of B, and the elements of each line.
    pub fn b_lines(&self) -> (usize, usize) {
        if self.b.major == Major::N { (self.k, self.n) } else { (self.n, self.k) }
    }

    /// Multiplications and additions of all products, 2·m·n·k each.
    ///
    /// # Errors
    /// The count does not fit into 64 bits.
    pub fn operations(&self) -> Result<u64, PlanError> {
        let Problem { m, n, k, batch: Batch { count, .. }, .. } = *self;
        [m, n, k, count]
            .into_iter()
            .try_fold(2u64, |product, extent| product.checked_mul(u64::try_from(extent).ok()?))
            .ok_or(PlanError::TooManyOperations { m, n, k, batch: count })
    }
}

#[cfg(test)]
mod tests;
