//! Blocks of a matrix in working precision, and the one place that calls the `gemm` crate with
//! them.

use std::ops::Range;

use pgemm_plan::Order;
use rayon::prelude::*;

use super::HostMatrix;
use super::convert::{Scalar, with_scalar};

/// A working precision of the `gemm` crate.
pub(crate) trait WorkingElement: Copy + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;
    fn read<S: Scalar>(source: &[S], target: &mut [Self]);
    fn write<S: Scalar>(source: &[Self], target: &mut [S]);
}

impl WorkingElement for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    fn read<S: Scalar>(source: &[S], target: &mut [f32]) {
        S::slice_to_f32(source, target);
    }
    fn write<S: Scalar>(source: &[f32], target: &mut [S]) {
        S::slice_from_f32(source, target);
    }
}

impl WorkingElement for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    fn read<S: Scalar>(source: &[S], target: &mut [f64]) {
        for (target, source) in target.iter_mut().zip(source) {
            *target = source.to_double();
        }
    }
    fn write<S: Scalar>(source: &[f64], target: &mut [S]) {
        for (target, source) in target.iter_mut().zip(source) {
            *target = S::from_double(*source);
        }
    }
}

/// A block of a matrix without gaps, in the order of the matrix.
pub(crate) struct Panel<T> {
    rows: usize,
    columns: usize,
    order: Order,
    values: Vec<T>,
}

impl<T: WorkingElement> Panel<T> {
    /// An empty panel, whose memory later blocks reuse.
    pub(crate) fn new() -> Panel<T> {
        Panel { rows: 0, columns: 0, order: Order::RowMajor, values: Vec::new() }
    }

    /// Reads the block `rows` × `columns`, cut off at the edges of the matrix.
    pub(crate) fn read(&mut self, matrix: &HostMatrix, rows: Range<usize>, columns: Range<usize>) {
        let layout = matrix.layout();
        let rows = rows.start.min(layout.rows)..rows.end.min(layout.rows);
        let columns = columns.start.min(layout.columns)..columns.end.min(layout.columns);
        (self.rows, self.columns, self.order) = (rows.len(), columns.len(), layout.order);
        let (lines, along) = match layout.order {
            Order::RowMajor => (rows, columns),
            Order::ColumnMajor => (columns, rows),
        };
        self.values.resize(lines.len() * along.len(), T::ZERO);
        if self.values.is_empty() {
            return;
        }
        with_scalar!(matrix.dtype(), S => {
            let elements = matrix.elements::<S>();
            self.values.par_chunks_mut(along.len()).zip(lines).for_each(|(target, line)| {
                let start = line * layout.leading_dimension + along.start;
                T::read(&elements[start..start + along.len()], target);
            });
        });
    }

    /// The values, line after line of [`order`](Self::order).
    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }

    /// The values, line after line of [`order`](Self::order).
    pub(crate) fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// The order of the matrix that was read.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    fn strides(&self) -> (isize, isize) {
        match self.order {
            Order::RowMajor => (self.columns as isize, 1),
            Order::ColumnMajor => (1, self.rows as isize),
        }
    }
}

/// `sum += a·b`, where `sum` is row-major without gaps, of the rows of `a` and the columns of `b`.
///
/// # Panics
/// The extents do not fit: a caller in this crate is wrong.
pub(crate) fn add_product<T: WorkingElement>(sum: &mut [T], a: &Panel<T>, b: &Panel<T>) {
    assert_eq!(a.columns, b.rows);
    assert_eq!(sum.len(), a.rows * b.columns);
    if sum.is_empty() || a.columns == 0 {
        return;
    }
    let (a_row_stride, a_column_stride) = a.strides();
    let (b_row_stride, b_column_stride) = b.strides();
    // SAFETY: the lengths of the three buffers are the products of their extents (asserted above
    // for `sum`, set by `read` for the panels), so every address that extents and strides reach
    // lies inside; `sum` is exclusively borrowed; and the element type is f32 or f64, which are all
    // that `WorkingElement` is implemented for.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            sum.as_mut_ptr(),
            1,
            b.columns as isize,
            true,
            a.values.as_ptr(),
            a_column_stride,
            a_row_stride,
            b.values.as_ptr(),
            b_column_stride,
            b_row_stride,
            T::ONE,
            T::ONE,
            false,
            false,
            false,
            gemm::Parallelism::Rayon(0),
        );
    }
}
