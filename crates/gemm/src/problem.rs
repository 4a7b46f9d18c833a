//! What is to be computed: the extents, layouts and scalars of `D = alpha * A·B + beta * C`.

mod spans;

use std::fmt;

use pgemm_ir::Element;
use serde::{Deserialize, Serialize};

use crate::batch::{self, Batch};

pub use spans::Spans;

/// The contiguous dimension of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Major {
    /// Along k: a row-major A, a column-major B.
    K,
    /// Along m: a column-major A. B has no such dimension.
    M,
    /// Along n: a row-major B. A has no such dimension.
    N,
}

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Major::K => "k",
            Major::M => "m",
            Major::N => "n",
        })
    }
}

/// Which dimension of a stored matrix is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The elements of a row lie next to each other (C order).
    RowMajor,
    /// The elements of a column lie next to each other (Fortran order).
    ColumnMajor,
}

/// A request that no GEMM can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    /// The operand has no dimension of that name.
    #[error(
        "{operand} cannot be {major}-major: it has the dimensions {dimensions}; use one of them"
    )]
    NoSuchMajor {
        /// `A` or `B`.
        operand: &'static str,
        /// The major asked for.
        major: Major,
        /// The dimensions that the operand has.
        dimensions: &'static str,
    },

    /// Lines of the matrix would overlap.
    #[error(
        "the leading dimension of {matrix} is {asked}, and its contiguous dimension has {extent} elements: it must be at \
         least {least}"
    )]
    LeadingDimension {
        /// `A`, `B`, `C` or `D`, or `the matrix`.
        matrix: &'static str,
        /// The leading dimension asked for, in elements.
        asked: usize,
        /// Elements along the contiguous dimension.
        extent: usize,
        /// The smallest leading dimension that works, in elements.
        least: usize,
    },

    /// The number of operations is not a 64-bit integer.
    #[error("2 × {m} × {n} × {k}{} operations exceed 2^64: split the problem", times(*batch))]
    TooManyOperations {
        /// Rows of A and D.
        m: usize,
        /// Columns of B and D.
        n: usize,
        /// Columns of A, rows of B.
        k: usize,
        /// Products.
        batch: usize,
    },

    /// The matrix does not fit an address space.
    #[error(
        "{lines} lines of {leading_dimension} elements of {element_bytes} byte(s) or more exceed the {} bytes that one allocation may \
         have: split the problem",
        isize::MAX
    )]
    TooManyBytes {
        /// Rows of a row-major matrix, columns of a column-major one.
        lines: usize,
        /// Elements from one line to the next.
        leading_dimension: usize,
        /// Bytes per element.
        element_bytes: u32,
    },

    /// The matrices of a batch do not fit an address space.
    #[error(
        "{count} matrices {matrix}, {stride} elements apart, exceed the {} bytes that one allocation may have: split the batch",
        isize::MAX
    )]
    TooManyMatrices {
        /// `A`, `B`, `C` or `D`.
        matrix: &'static str,
        /// How many.
        count: usize,
        /// Elements from one to the next.
        stride: usize,
    },

    /// The results of a batch would overlap.
    #[error(
        "the matrices D of a batch lie {asked} elements apart and would overlap: the batch stride must be at least {least}, so that \
         they lie one behind the other, or at least {length}, with all {count} between two lines, which are {leading_dimension} \
         elements apart"
    )]
    BatchOverlap {
        /// The batch stride asked for, in elements.
        asked: usize,
        /// The least that puts them one behind the other.
        least: usize,
        /// Elements of a line.
        length: usize,
        /// Matrices.
        count: usize,
        /// Elements from one line to the next.
        leading_dimension: usize,
    },

    /// The operands do not multiply.
    #[error(
        "A is {a_rows}×{a_columns} and B is {b_rows}×{b_columns}: the columns of A must equal the rows of B. Transpose or \
         slice one of them"
    )]
    InnerDimensions {
        /// Rows of A.
        a_rows: usize,
        /// Columns of A.
        a_columns: usize,
        /// Rows of B.
        b_rows: usize,
        /// Columns of B.
        b_columns: usize,
    },

    /// A matrix does not lie as the problem says.
    #[error("{matrix} is {found}, and the problem needs {needed}")]
    LayoutMismatch {
        /// `A`, `B`, `C`, `D` or `the bias`.
        matrix: &'static str,
        /// How the matrix lies.
        found: MatrixLayout,
        /// How the problem says that it lies.
        needed: MatrixLayout,
    },

    /// An epilogue adds a bias, and there is none.
    #[error(
        "the epilogue {epilogue} adds a bias of {length} elements, and none is given: give it, or leave the bias out"
    )]
    MissingBias {
        /// The epilogue, as it prints.
        epilogue: String,
        /// How many elements it has.
        length: usize,
    },

    /// A scalar of a product of integers with a D of s32 is none.
    #[error(
        "{scalar} is {value}, and products of integers with a D of s32 take integers from -2147483648 to 2147483647: round it, \
         or have a D of f32, f16, bf16 or s8"
    )]
    FractionalScalar {
        /// `alpha` or `beta`.
        scalar: &'static str,
        /// Its value, as it prints.
        value: String,
    },

    /// A scalar that binary32 does not hold.
    #[error(
        "{scalar} is {value}, and products that are not of f64 take a binary32, from 1.2e-38 to 3.4e38: scale A, B or C, or \
         use f64"
    )]
    ScalarRange {
        /// `alpha` or `beta`.
        scalar: &'static str,
        /// Its value, as it prints.
        value: String,
    },

    /// A batch does not have as many matrices as it needs.
    #[error(
        "{found} matrices {matrix} were given, and the batch needs {needed}: one for each product, or where its batch stride is 0 \
         one for all"
    )]
    MatrixCount {
        /// `A`, `B` or `C`.
        matrix: &'static str,
        /// How many were given.
        found: usize,
        /// How many are needed.
        needed: usize,
    },

    /// beta is not zero and there is no C.
    #[error("beta is {beta} and no C was given: give C, or set beta to 0")]
    MissingC {
        /// beta, as it prints.
        beta: String,
    },
}

/// A further factor, where there is a batch.
fn times(batch: usize) -> String {
    if batch == 1 { String::new() } else { format!(" × {batch}") }
}

/// How a two-dimensional matrix lies in memory: *lines* (the rows of a row-major matrix, the columns of a column-major
/// one) of contiguous elements, `leading_dimension` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatrixLayout {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// The contiguous dimension.
    pub order: Order,
    /// Elements from the start of one line to the start of the next.
    pub leading_dimension: usize,
}

impl MatrixLayout {
    /// Lines without gaps.
    pub fn tight(rows: usize, columns: usize, order: Order) -> MatrixLayout {
        let line = match order {
            Order::RowMajor => columns,
            Order::ColumnMajor => rows,
        };
        MatrixLayout { rows, columns, order, leading_dimension: line.max(1) }
    }

    /// A row-major matrix without gaps.
    pub fn row_major(rows: usize, columns: usize) -> MatrixLayout {
        MatrixLayout::tight(rows, columns, Order::RowMajor)
    }

    /// A column-major matrix without gaps.
    pub fn column_major(rows: usize, columns: usize) -> MatrixLayout {
        MatrixLayout::tight(rows, columns, Order::ColumnMajor)
    }

    /// The same matrix with lines `leading_dimension` elements apart.
    pub fn with_leading_dimension(self, leading_dimension: usize) -> MatrixLayout {
        MatrixLayout { leading_dimension, ..self }
    }

    /// Number of lines: rows of a row-major matrix, columns of a column-major one.
    pub fn lines(&self) -> usize {
        match self.order {
            Order::RowMajor => self.rows,
            Order::ColumnMajor => self.columns,
        }
    }

    /// Elements in one line.
    pub fn line_length(&self) -> usize {
        match self.order {
            Order::RowMajor => self.columns,
            Order::ColumnMajor => self.rows,
        }
    }

    /// Whether the matrix has no elements.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// Elements from the first to one past the last, gaps between lines included. The last line has no gap after it.
    ///
    /// # Errors
    /// The leading dimension is shorter than a line, or the bytes at `element` exceed what one allocation may have.
    pub fn span(&self, element: Element) -> Result<usize, ProblemError> {
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
            .ok_or(ProblemError::TooManyBytes {
                lines: self.lines(),
                leading_dimension: self.leading_dimension,
                element_bytes: element.bytes(),
            })
    }

    /// Bytes that the matrix takes: its [`span`](Self::span) times the bytes of an element.
    ///
    /// # Errors
    /// As [`span`](Self::span).
    pub fn bytes(&self, element: Element) -> Result<usize, ProblemError> {
        Ok(self.span(element)? * element.bytes() as usize)
    }

    /// Where an element lies, in elements from the first one; `None` outside the matrix.
    pub fn offset(&self, row: usize, column: usize) -> Option<usize> {
        if row >= self.rows || column >= self.columns {
            return None;
        }
        match self.order {
            Order::RowMajor => row.checked_mul(self.leading_dimension)?.checked_add(column),
            Order::ColumnMajor => column.checked_mul(self.leading_dimension)?.checked_add(row),
        }
    }

    fn check(&self, matrix: &'static str) -> Result<(), ProblemError> {
        let least = self.line_length().max(1);
        if self.leading_dimension < least {
            return Err(ProblemError::LeadingDimension {
                matrix,
                asked: self.leading_dimension,
                extent: self.line_length(),
                least,
            });
        }
        Ok(())
    }
}

impl fmt::Display for MatrixLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            Order::RowMajor => "row-major",
            Order::ColumnMajor => "column-major",
        };
        write!(
            f,
            "{}×{} {order} with leading dimension {}",
            self.rows, self.columns, self.leading_dimension
        )
    }
}

/// How an operand lies in memory: lines along its major, each of elements `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OperandLayout {
    /// The dimension along which lines run: the contiguous one where `step` is 1.
    pub major: Major,
    /// Elements from one line to the next; 0 where all lines are the same one (a vector that is broadcast).
    pub leading_dimension: usize,
    /// Elements from one element of a line to the next: usually 1; 0 where all are the same one.
    #[serde(default = "neighbours")]
    pub step: usize,
}

/// What files said by saying nothing.
fn neighbours() -> usize {
    1
}

impl OperandLayout {
    /// Lines of neighbouring elements.
    pub fn new(major: Major, leading_dimension: usize) -> OperandLayout {
        OperandLayout { major, leading_dimension, step: 1 }
    }

    /// Checks an operand of `lines` lines of `length` elements.
    fn check(&self, matrix: &'static str, lines: usize, length: usize) -> Result<(), ProblemError> {
        let OperandLayout { leading_dimension, step, .. } = *self;
        if step == 1 && leading_dimension != 0 {
            let least = length.max(1);
            if leading_dimension < least {
                return Err(ProblemError::LeadingDimension {
                    matrix,
                    asked: leading_dimension,
                    extent: length,
                    least,
                });
            }
        }
        let last = |count: usize, apart: usize| (count.max(1) as u128 - 1) * apart as u128;
        // The narrowest elements: wider ones are checked where the matrix is made.
        if last(lines, leading_dimension) + last(length, step) >= isize::MAX as u128 {
            return Err(ProblemError::TooManyBytes {
                lines,
                leading_dimension,
                element_bytes: Element::U8.bytes(),
            });
        }
        Ok(())
    }
}

/// `D = alpha * A·B + beta * C`: A is m×k, B is k×n, C and D are m×n. Or a batch of such products.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Elements from one line (row or column, as `d_major` says) of C to the next; 0 where all lines are the same one.
    pub c_leading_dimension: usize,
    /// Elements from one line of D to the next.
    pub d_leading_dimension: usize,
    /// Factor of A·B. Products that are not of f64 take it as the nearest binary32.
    pub alpha: f64,
    /// Factor of C, as alpha is one. Where it is 0, C is never read.
    pub beta: f64,
    /// How many products there are, and where the matrices of each lie.
    #[serde(default, skip_serializing_if = "Batch::is_one")]
    pub batch: Batch,
}

/// What files said by saying nothing.
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

    /// The problem that multiplies two matrices as they lie, with a D without gaps.
    ///
    /// # Errors
    /// The columns of A are not the rows of B, or [`validate`](Self::validate) fails.
    pub fn of(a: &MatrixLayout, b: &MatrixLayout) -> Result<Problem, ProblemError> {
        if a.columns != b.rows {
            return Err(ProblemError::InnerDimensions {
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

    /// Makes it a batch of `count` products, whose matrices lie one behind the other, without gaps, as far as lines have none.
    /// Layouts that change later do not change the batch.
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

    /// Sets the elements from one A of a batch to the next; 0 where all products have the same one.
    pub fn with_a_batch_stride(mut self, elements: usize) -> Problem {
        self.batch.a = elements;
        self
    }

    /// Sets the elements from one B of a batch to the next; 0 where all products have the same one.
    pub fn with_b_batch_stride(mut self, elements: usize) -> Problem {
        self.batch.b = elements;
        self
    }

    /// Sets the elements from one C of a batch to the next; 0 where all products have the same one.
    pub fn with_c_batch_stride(mut self, elements: usize) -> Problem {
        self.batch.c = elements;
        self
    }

    /// Sets the elements from one D of a batch to the next.
    pub fn with_d_batch_stride(mut self, elements: usize) -> Problem {
        self.batch.d = elements;
        self
    }

    /// Bytes from the first matrix of this layout to the end of the last, where each lies `stride` elements behind the one before.
    ///
    /// # Errors
    /// A leading dimension is too short, or they exceed what one allocation may have.
    pub(crate) fn all_bytes(
        &self,
        matrix: &'static str,
        layout: MatrixLayout,
        stride: usize,
        element: Element,
    ) -> Result<usize, ProblemError> {
        let count = self.batch.matrices(stride);
        let of_one = layout.span(element)?;
        if count == 0 {
            return Ok(0);
        }
        let elements = (count - 1).checked_mul(stride).and_then(|first| first.checked_add(of_one));
        elements
            .and_then(|elements| elements.checked_mul(element.bytes() as usize))
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or(ProblemError::TooManyMatrices { matrix, count, stride })
    }

    /// The same with no strides where there is one product.
    pub(crate) fn normalised(&self) -> Problem {
        Problem { batch: self.batch.normalised(), ..*self }
    }

    /// One product of the batch.
    pub fn one(&self) -> Problem {
        Problem { batch: Batch::ONE, ..*self }
    }

    /// Whether there is no element of D.
    pub fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch.count == 0
    }

    /// The problem on the same bytes that computes Dᵀ = Bᵀ·Aᵀ: A and B, and m and n, change places.
    pub fn transposed(&self) -> Problem {
        let turned = |operand: OperandLayout| {
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
            a: turned(self.b),
            b: turned(self.a),
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

    /// alpha and beta as products of integers with a D of s32 take them.
    ///
    /// # Errors
    /// One of them is no 32-bit integer.
    pub fn integer_scalars(&self) -> Result<[i32; 2], ProblemError> {
        Ok([integer_scalar("alpha", self.alpha)?, integer_scalar("beta", self.beta)?])
    }

    /// alpha and beta as other products that are not of f64 take them: rounded to the nearest binary32.
    ///
    /// # Errors
    /// One of them is beyond its range, or too small to be rounded to 24 bits.
    pub fn single_scalars(&self) -> Result<[f32; 2], ProblemError> {
        Ok([single_scalar("alpha", self.alpha)?, single_scalar("beta", self.beta)?])
    }

    /// Checks alpha and beta for a product with results of this type.
    ///
    /// # Errors
    /// Those of [`integer_scalars`](Self::integer_scalars) for s32, none for f64, else those of
    /// [`single_scalars`](Self::single_scalars).
    pub fn check_scalars(&self, output: Element) -> Result<(), ProblemError> {
        match output {
            Element::S32 => self.integer_scalars().map(|_| ()),
            Element::F64 => Ok(()),
            _ => self.single_scalars().map(|_| ()),
        }
    }

    /// How A lies, where its elements are neighbours: m×k.
    pub fn a_layout(&self) -> MatrixLayout {
        let order = if self.a.major == Major::M { Order::ColumnMajor } else { Order::RowMajor };
        MatrixLayout {
            rows: self.m,
            columns: self.k,
            order,
            leading_dimension: self.a.leading_dimension,
        }
    }

    /// How B lies, where its elements are neighbours: k×n.
    pub fn b_layout(&self) -> MatrixLayout {
        let order = if self.b.major == Major::N { Order::RowMajor } else { Order::ColumnMajor };
        MatrixLayout {
            rows: self.k,
            columns: self.n,
            order,
            leading_dimension: self.b.leading_dimension,
        }
    }

    /// How C lies: m×n.
    pub fn c_layout(&self) -> MatrixLayout {
        self.d_layout().with_leading_dimension(self.c_leading_dimension)
    }

    /// How D lies: m×n.
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

    /// Lines of A, and elements of each.
    pub(crate) fn a_lines(&self) -> (usize, usize) {
        if self.a.major == Major::M { (self.k, self.m) } else { (self.m, self.k) }
    }

    /// Lines of B, and elements of each.
    pub(crate) fn b_lines(&self) -> (usize, usize) {
        if self.b.major == Major::N { (self.k, self.n) } else { (self.n, self.k) }
    }

    /// Multiplications and additions of all products, 2·m·n·k each.
    ///
    /// # Errors
    /// The count is not a 64-bit integer.
    pub fn operations(&self) -> Result<u64, ProblemError> {
        let Problem { m, n, k, batch: Batch { count, .. }, .. } = *self;
        [m, n, k, count]
            .into_iter()
            .try_fold(2u64, |product, extent| product.checked_mul(u64::try_from(extent).ok()?))
            .ok_or(ProblemError::TooManyOperations { m, n, k, batch: count })
    }

    /// Checks everything that does not depend on element types: majors, leading dimensions, that the results of a batch do not
    /// overlap, and that neither the operation count nor the span of any matrix overflows.
    ///
    /// # Errors
    /// The first of these that fails.
    pub fn validate(&self) -> Result<(), ProblemError> {
        if self.a.major == Major::N {
            return Err(ProblemError::NoSuchMajor {
                operand: "A",
                major: self.a.major,
                dimensions: "m and k",
            });
        }
        if self.b.major == Major::M {
            return Err(ProblemError::NoSuchMajor {
                operand: "B",
                major: self.b.major,
                dimensions: "k and n",
            });
        }
        if self.d_major == Major::K {
            return Err(ProblemError::NoSuchMajor {
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

    /// Checks a batch whose single matrices are fine.
    fn check_batch(&self) -> Result<(), ProblemError> {
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
            batch::span(matrix, count, stride, span)?;
        }
        batch::check_apart(count, d, of_d, self.d_leading_dimension)
    }

    /// Checks that matrices, of each product, lie as the problem says. Where beta is 0, C may be absent or lie otherwise.
    ///
    /// # Errors
    /// The first matrix that lies otherwise, or a beta that is not 0 without a C.
    pub fn check_layouts(
        &self,
        a: MatrixLayout,
        b: MatrixLayout,
        c: Option<MatrixLayout>,
    ) -> Result<(), ProblemError> {
        let c = if self.beta == 0.0 {
            self.c_layout()
        } else {
            c.ok_or_else(|| ProblemError::MissingC { beta: self.beta.to_string() })?
        };
        for (matrix, found, needed) in
            [("A", a, self.a_layout()), ("B", b, self.b_layout()), ("C", c, self.c_layout())]
        {
            if found != needed {
                return Err(ProblemError::LayoutMismatch { matrix, found, needed });
            }
        }
        Ok(())
    }
}

/// A scalar of a product of integers with a D of s32.
fn integer_scalar(scalar: &'static str, value: f64) -> Result<i32, ProblemError> {
    let fits = value.fract() == 0.0 && (-2_147_483_648.0..2_147_483_648.0).contains(&value);
    if fits {
        Ok(value as i32)
    } else {
        Err(ProblemError::FractionalScalar { scalar, value: value.to_string() })
    }
}

/// A scalar of a product that is not of f64. What is no number or infinite stays so.
fn single_scalar(scalar: &'static str, value: f64) -> Result<f32, ProblemError> {
    let single = value as f32;
    let rounded = single.is_normal() || f64::from(single) == value || !value.is_finite();
    if rounded {
        Ok(single)
    } else {
        Err(ProblemError::ScalarRange { scalar, value: value.to_string() })
    }
}

#[cfg(test)]
mod tests;
