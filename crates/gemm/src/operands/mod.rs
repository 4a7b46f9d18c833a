//! [`Operands`]: A and B of a product, and optionally C and the bias. They are host matrices,
//! device matrices, or cudarc's buffers.

mod device;
mod host;

use std::fmt;

pub use device::{DeviceOperand, DeviceResult, DeviceStream};
pub(crate) use device::{OperandFacts, OperandUse, StoredType};
pub use host::{HostBatch, HostOperand, HostOperands, HostResult};

/// A and B of a product, and optionally C and the bias.
///
/// ```
/// use persistent_gemm::{Dtype, HostMatrix, MatrixLayout, Operands};
///
/// # fn main() -> Result<(), persistent_gemm::Error> {
/// let matrix = HostMatrix::zeros(MatrixLayout::row_major(2, 2), Dtype::Bf16)?;
/// let product = Operands::new(&matrix, &matrix);
/// // What is there sometimes is given as an `Option`.
/// let sum = product.c(Some(&matrix));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub struct Operands<'a, A: ?Sized, B: ?Sized = A, C: ?Sized = NoOperand, V: ?Sized = NoOperand> {
    /// A, of the config's type.
    pub a: &'a A,
    /// B, of the config's type for B.
    pub b: &'a B,
    /// C, of the config's output type; not looked at where beta is 0.
    pub c: Option<&'a C>,
    /// The bias, if the epilogue adds one: [`Epilogue::bias_length`](crate::Epilogue::bias_length)
    /// elements of [`Config::bias_dtype`](crate::Config::bias_dtype) without gaps. A matrix is a
    /// row of these.
    pub bias: Option<&'a V>,
}

/// The type of C or the bias of operands that have none. It has no values.
#[derive(Clone, Copy, Debug)]
pub enum NoOperand {}

impl<'a, A: ?Sized, B: ?Sized> Operands<'a, A, B> {
    /// A and B.
    pub fn new(a: &'a A, b: &'a B) -> Self {
        Operands { a, b, c: None, bias: None }
    }
}

impl<'a, A: ?Sized, B: ?Sized, C: ?Sized, V: ?Sized> Operands<'a, A, B, C, V> {
    /// The same operands with this C, or with none.
    pub fn c<T: ?Sized>(self, c: impl Into<Option<&'a T>>) -> Operands<'a, A, B, T, V> {
        let Operands { a, b, bias, .. } = self;
        Operands { a, b, c: c.into(), bias }
    }

    /// The same operands with this bias, or with none.
    pub fn bias<T: ?Sized>(self, bias: impl Into<Option<&'a T>>) -> Operands<'a, A, B, C, T> {
        let Operands { a, b, c, .. } = self;
        Operands { a, b, c, bias: bias.into() }
    }
}

impl<A: ?Sized, B: ?Sized, C: ?Sized, V: ?Sized> Clone for Operands<'_, A, B, C, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: ?Sized, B: ?Sized, C: ?Sized, V: ?Sized> Copy for Operands<'_, A, B, C, V> {}

impl<A: ?Sized, B: ?Sized, C: ?Sized, V: ?Sized> fmt::Debug for Operands<'_, A, B, C, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operands")
            .field("c", &self.c.is_some())
            .field("bias", &self.bias.is_some())
            .finish_non_exhaustive()
    }
}

mod sealed {
    pub trait Sealed {}
}
pub(crate) use sealed::Sealed;

impl Sealed for NoOperand {}
