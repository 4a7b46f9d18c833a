//! Views of arrays, and the products that they make. This module does not depend on Python.

pub mod overlap;
mod product;

use std::fmt;
use std::ops::Deref;

use pgemm::Dtype;

pub use product::{Launches, Operands, launches, result_shape, without_gaps};

/// An address that no array has, so that an array that is yet to be made overlaps none.
pub const NOWHERE: u64 = 1 << 63;

/// The largest number of dimensions of an array.
pub const MAX_DIMENSIONS: usize = 16;

/// Extents, or strides in elements: one number for each dimension of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dims {
    length: usize,
    values: [i64; MAX_DIMENSIONS],
}

impl Dims {
    /// Puts a number behind the others. An array that has too many dimensions is refused before.
    pub fn push(&mut self, value: i64) {
        if let Some(place) = self.values.get_mut(self.length) {
            *place = value;
            self.length += 1;
        }
    }

    /// Strides of an array of these extents without gaps, the last dimension contiguous.
    pub fn tight_strides(&self) -> Dims {
        let mut strides = *self;
        let mut next = 1i64;
        for (stride, extent) in strides.values[..self.length].iter_mut().zip(self.iter()).rev() {
            *stride = next;
            next = next.saturating_mul((*extent).max(1));
        }
        strides
    }

    /// The last two dimensions, and the leading ones.
    fn split_matrix(&self) -> Option<(&[i64], [i64; 2])> {
        let (before, last) = self.split_last_chunk::<2>()?;
        Some((before, *last))
    }
}

impl Deref for Dims {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.values[..self.length]
    }
}

impl FromIterator<i64> for Dims {
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Dims {
        let mut dims = Dims::default();
        values.into_iter().for_each(|value| dims.push(value));
        dims
    }
}

/// Formats the dimensions as Python prints a tuple.
impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self[..] {
            [only] => write!(f, "({only},)"),
            _ => {
                let words: Vec<_> = self.iter().map(i64::to_string).collect();
                write!(f, "({})", words.join(", "))
            }
        }
    }
}

/// The memory that an array is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The host's.
    Cpu,
    /// A CUDA device's, by its ordinal.
    Cuda(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Cpu => f.write_str("the CPU"),
            Place::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// A view of an array of any library: address, shape and strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Address of the first element.
    pub address: u64,
    /// Extents.
    pub shape: Dims,
    /// Elements from one index of a dimension to the next.
    pub strides: Dims,
    /// Element type; that of products may differ, as tf32 is binary32 in memory.
    pub dtype: Dtype,
    /// The device or host memory that holds it.
    pub place: Place,
    /// Whether the array must not be written, according to its library.
    pub read_only: bool,
}

impl View {
    /// The same array with its last two dimensions exchanged. Arrays with fewer than two dimensions
    /// are unchanged.
    pub fn transposed(mut self) -> View {
        for dims in [&mut self.shape, &mut self.strides] {
            let length = dims.length;
            if length >= 2 {
                dims.values.swap(length - 2, length - 1);
            }
        }
        self
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// Why arrays do not make a product.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// An operand without dimensions.
    #[error("{array} has no dimensions, and products need one or more: reshape it")]
    Scalar {
        /// `a`, `b`, …
        array: &'static str,
    },

    /// The operands do not multiply.
    #[error(
        "a is of shape {a} and b of shape {b}: the last extent of a must equal the last but one of \
         b (or its only one). Transpose or slice one of them"
    )]
    Inner {
        /// Shape of a.
        a: Box<Dims>,
        /// Shape of b.
        b: Box<Dims>,
    },

    /// Batches that do not go together.
    #[error(
        "a is of shape {a} and b of shape {b}: leading extents must be equal, or 1, or lacking. \
         Reshape one of them"
    )]
    Batches {
        /// Shape of a.
        a: Box<Dims>,
        /// Shape of b.
        b: Box<Dims>,
    },

    /// An array of another shape than the result.
    #[error("{array} is of shape {found}, and the result is of shape {needed}: {what_to_do}")]
    Shape {
        /// `out` or `c`.
        array: &'static str,
        /// Its shape.
        found: Box<Dims>,
        /// The result's.
        needed: Box<Dims>,
        /// Advice for the user.
        what_to_do: &'static str,
    },

    /// A shape that no array has.
    #[error("{array} is of shape {shape}, and no extent may be negative")]
    NegativeExtent {
        /// `a` or `b`.
        array: &'static str,
        /// Its shape.
        shape: Box<Dims>,
    },

    /// A dimension that is walked backwards.
    #[error(
        "{array} has strides {strides}, and none may be negative: call .copy() (numpy: \
         ascontiguousarray) first"
    )]
    Backwards {
        /// `a`, `b`, …
        array: &'static str,
        /// Its strides.
        strides: Box<Dims>,
    },

    /// Rows or columns that overlap in a way that kernels cannot read.
    #[error(
        "the matrices of {array} are of shape {shape} with strides {strides}, and their lines \
         overlap: call .contiguous() first"
    )]
    Lines {
        /// `a` or `b`.
        array: &'static str,
        /// Its shape.
        shape: Box<Dims>,
        /// Its strides.
        strides: Box<Dims>,
    },

    /// A result or an addend whose elements are contiguous in neither direction.
    #[error(
        "the matrices of {array} have strides {strides}: one of the last two must be 1{of_out}. \
         Call .contiguous() first, and copy the result back where it is needed as it lies"
    )]
    Steps {
        /// `out` or `c`.
        array: &'static str,
        /// Its strides.
        strides: Box<Dims>,
        /// An additional requirement for `c`.
        of_out: &'static str,
    },

    /// A result with elements that share memory.
    #[error(
        "out is of shape {shape} with strides {strides}, so that elements of it share memory: give \
         an array that is not broadcast"
    )]
    OutOverlapsItself {
        /// Its shape.
        shape: Box<Dims>,
        /// Its strides.
        strides: Box<Dims>,
    },

    /// A result in the memory of an operand.
    #[error(
        "out shares memory with {array}, which would be overwritten while it is read: give another \
         out, or leave it out"
    )]
    OutOverlaps {
        /// `a`, `b`, `c` or `bias`.
        array: &'static str,
    },

    /// A bias that is no vector of the result's columns.
    #[error(
        "bias is of shape {found} with strides {strides}, and {needed} is needed, without gaps: \
         reshape it, or call .contiguous()"
    )]
    Bias {
        /// Its shape.
        found: Box<Dims>,
        /// Its strides.
        strides: Box<Dims>,
        /// The needed shape.
        needed: Box<Dims>,
    },
}
