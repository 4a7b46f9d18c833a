//! Matrices on the device as operands, and the streams on which they are multiplied.

use cudarc::driver::SyncOnDrop;
use pgemm_ir::Element;
use pgemm_plan::MatrixLayout;

use super::{NoOperand, Sealed};
use crate::driver::{ContextRef, Device, Stream, StreamRef};
use crate::error::{Error, Result};

/// The properties of a device operand that are checked before its use.
pub struct OperandFacts {
    /// The layout of a matrix. `None` for a buffer, which has the layout of the problem.
    pub(crate) layout: Option<MatrixLayout>,
    /// Elements from the first on.
    pub(crate) elements: usize,
    pub(crate) stored: StoredType,
    pub(crate) context: ContextRef,
}

/// The type of the elements.
pub(crate) enum StoredType {
    /// This one.
    Element(Element),
    /// A Rust type that may hold several.
    Rust { name: &'static str, holds: &'static [Element] },
}

/// An operand in use. The use ends when it is dropped, after the product was enqueued.
pub struct OperandUse<'a> {
    pub(crate) _guard: Option<SyncOnDrop<'a>>,
}

/// A matrix or vector on the device that a product reads: a [`DeviceMatrix`](crate::DeviceMatrix),
/// or on a stream of cudarc's a `CudaSlice`, a `CudaView` or a `CudaViewMut`.
pub trait DeviceOperand<S: ?Sized>: Sealed {
    #[doc(hidden)]
    fn facts(&self) -> OperandFacts;

    /// The address for reads on the stream.
    #[doc(hidden)]
    fn read<'a>(&'a self, stream: &'a S) -> (u64, OperandUse<'a>);
}

/// A matrix on the device that a product writes.
pub trait DeviceResult<S: ?Sized>: DeviceOperand<S> {
    /// The address for writes on the stream.
    #[doc(hidden)]
    fn write<'a>(&'a mut self, stream: &'a S) -> (u64, OperandUse<'a>);
}

/// A stream to multiply on: ours, anybody's by a [`StreamRef`], or cudarc's.
pub trait DeviceStream: Sealed {
    /// The stream, as one of the device's context.
    ///
    /// # Errors
    /// [`Error::OtherContext`](crate::Error::OtherContext) if the operand belongs to another
    /// context.
    #[doc(hidden)]
    fn of_device<'a>(&'a self, device: &'a Device) -> Result<StreamRef<'a>>;
}

/// A stream, unless it is of another context than the device's.
fn in_context<'a>(stream: StreamRef<'a>, device: &Device) -> Result<StreamRef<'a>> {
    if stream.device().same_context(device) {
        return Ok(stream);
    }
    Err(Error::OtherContext { what: "the stream" })
}

impl Sealed for Stream {}
impl Sealed for StreamRef<'_> {}

impl DeviceStream for Stream {
    fn of_device<'a>(&'a self, device: &'a Device) -> Result<StreamRef<'a>> {
        in_context(self.as_ref(), device)
    }
}

impl DeviceStream for StreamRef<'_> {
    fn of_device<'a>(&'a self, device: &'a Device) -> Result<StreamRef<'a>> {
        in_context(*self, device)
    }
}

impl<S: ?Sized> DeviceOperand<S> for NoOperand {
    fn facts(&self) -> OperandFacts {
        match *self {}
    }

    fn read<'a>(&'a self, _stream: &'a S) -> (u64, OperandUse<'a>) {
        match *self {}
    }
}
