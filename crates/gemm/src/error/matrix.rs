//! Errors of host matrices.

use pgemm_ir::Element;
use pgemm_plan::{MatrixLayout, PlanError};

/// Why an operation on a host matrix failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// The layout is impossible.
    #[error(transparent)]
    Layout(#[from] PlanError),

    /// The buffer has the wrong length.
    #[error("a {layout} matrix of {element} takes {needed} {unit}, and {found} were given")]
    Length {
        /// The matrix.
        layout: MatrixLayout,
        /// Its element type.
        element: Element,
        /// The needed number.
        needed: usize,
        /// The given number.
        found: usize,
        /// `bytes` or `values`.
        unit: &'static str,
    },

    /// Matrices of a batch overlap, and differ there.
    #[error(
        "the matrices {matrix} lie {stride} elements apart, so that they overlap, and they differ \
         there: give matrices that agree, or a larger batch stride"
    )]
    Overlap {
        /// `A`, `B` or `C`.
        matrix: &'static str,
        /// The batch stride, elements.
        stride: usize,
    },

    /// The allocation failed.
    #[error("{bytes} bytes of host memory are not to be had: free memory, or use a smaller matrix")]
    OutOfMemory {
        /// The requested bytes.
        bytes: usize,
    },

    /// There is no such element.
    #[error("element ({row}, {column}) lies outside a {layout} matrix")]
    OutOfRange {
        /// The requested row.
        row: usize,
        /// The requested column.
        column: usize,
        /// The matrix.
        layout: MatrixLayout,
    },

    /// A copy must keep rows and columns.
    #[error("a {from} matrix cannot be laid out as {to}: rows and columns must stay as they are")]
    Shape {
        /// The matrix.
        from: MatrixLayout,
        /// The requested layout.
        to: MatrixLayout,
    },

    /// A random fill needs an interval.
    #[error("there are no values from {low} to {high}: give finite bounds with low ≤ high")]
    EmptyInterval {
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
}
