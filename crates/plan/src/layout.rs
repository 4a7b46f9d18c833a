//! Layouts of matrices in memory: the contiguous dimension, and the distance from one line to the
//! next.

use std::fmt;

use serde::{Deserialize, Serialize};

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

/// The layout of a two-dimensional matrix in memory. It consists of *lines* of contiguous elements:
/// the rows of a row-major matrix, or the columns of a column-major one. Lines begin
/// `leading_dimension` elements apart.
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
    /// A matrix without gaps between its lines.
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

    /// The offset of an element from the first one, in elements. `None` outside the matrix.
    pub fn offset(&self, row: usize, column: usize) -> Option<usize> {
        if row >= self.rows || column >= self.columns {
            return None;
        }
        match self.order {
            Order::RowMajor => row.checked_mul(self.leading_dimension)?.checked_add(column),
            Order::ColumnMajor => column.checked_mul(self.leading_dimension)?.checked_add(row),
        }
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

/// The layout of an operand in memory: lines along its major, of elements that lie `step` elements
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OperandLayout {
    /// The dimension along which lines run. It is contiguous if `step` is 1.
    pub major: Major,
    /// Elements from one line to the next. 0 if all lines are the same one (a broadcast vector).
    pub leading_dimension: usize,
    /// Elements from one element of a line to the next. Usually 1; 0 if all are the same element.
    #[serde(default = "contiguous_step")]
    pub step: usize,
}

/// Default used when a file omits the field.
fn contiguous_step() -> usize {
    1
}

impl OperandLayout {
    /// An operand whose lines are contiguous (`step` is 1).
    pub fn new(major: Major, leading_dimension: usize) -> OperandLayout {
        OperandLayout { major, leading_dimension, step: 1 }
    }
}
