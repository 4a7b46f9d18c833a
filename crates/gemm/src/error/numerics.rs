//! Errors of comparisons with a reference.

use std::fmt;

use pgemm_ir::Element;
use pgemm_kernels::Activation;
use pgemm_plan::{MatrixLayout, PlanError};

use super::matrix::MatrixError;

/// Why a result cannot be compared with a reference.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NumericsError {
    /// The problem is impossible or does not fit its matrices.
    #[error(transparent)]
    Problem(#[from] PlanError),

    /// A matrix could not be made.
    #[error(transparent)]
    Matrix(#[from] MatrixError),

    /// D is of another shape than the reference.
    #[error("D is {found}, and the reference has {rows} rows and {columns} columns")]
    Shape {
        /// The layout of D.
        found: MatrixLayout,
        /// Rows of the reference.
        rows: usize,
        /// Columns of the reference.
        columns: usize,
    },

    /// No bound is derived for multiplications in this type.
    #[error(
        "there is no error bound for products of {input}: use f16, bf16, tf32, f32, e4m3, e5m2 or \
         f64 inputs, or any two of s8 and u8"
    )]
    NoBound {
        /// The type that A and B are multiplied in.
        input: Element,
    },

    /// No bound is derived for results of this type.
    #[error(
        "there is no error bound for a D of {output}: use f16, bf16, f32, e4m3, e5m2 or s8, f64 \
         where A and B are f64, or s32 where they are integers"
    )]
    NoOutputBound {
        /// The type of D.
        output: Element,
    },

    /// k is so large that γ is not defined.
    #[error(
        "no error bound holds for k = {k}: k times the unit roundoff must stay below 1/2. Split k"
    )]
    DepthTooLarge {
        /// The requested k.
        k: usize,
    },

    /// The result of these inputs depends on rounding.
    #[error(
        "the result is not exact for these inputs: they must be integers, and the magnitudes of \
         the products of any element must sum up to at most {limit} ({reached}). Use smaller \
         integers or a smaller k, or compare with an error bound"
    )]
    NotExact {
        /// The largest sum that is exact.
        limit: u64,
        /// Why the result is not exact.
        reached: Inexact,
    },
}

/// Why a result is not exact.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Inexact {
    /// An input is not an integer.
    Fraction,
    /// The activation makes fractions of integers.
    Activation(Activation),
    /// The magnitudes of an element's products sum up to this.
    Sum(f64),
}

impl fmt::Display for Inexact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inexact::Fraction => f.write_str("there is a fraction among them"),
            Inexact::Activation(activation) => write!(f, "{activation} makes fractions of them"),
            Inexact::Sum(sum) => write!(f, "they reach {sum}"),
        }
    }
}
