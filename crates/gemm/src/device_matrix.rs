//! [`DeviceMatrix`]: a matrix in device memory, of any type, with its layout. What [`HostMatrix`]
//! is on the host.

use pgemm_ir::Element;
use pgemm_plan::MatrixLayout;

use crate::driver::{Device, DeviceBuffer, StreamRef};
use crate::error::Result;
use crate::matrix::HostMatrix;
use crate::operands::{
    DeviceOperand, DeviceResult, DeviceStream, OperandFacts, OperandUse, Sealed, StoredType,
};

/// A matrix in device memory. As with [`DeviceBuffer`], work on one stream is done in order, and
/// work on another must be waited for; dropping it waits for the work that uses it.
#[derive(Debug)]
pub struct DeviceMatrix {
    layout: MatrixLayout,
    element: Element,
    buffer: DeviceBuffer,
}

impl DeviceMatrix {
    /// A matrix of zeros, once the stream has set them.
    ///
    /// # Errors
    /// The layout is impossible, [`Error::OutOfMemory`](crate::Error::OutOfMemory), or
    /// [`Error::Driver`](crate::Error::Driver) if a call fails.
    pub fn zeros(layout: MatrixLayout, element: Element, stream: StreamRef<'_>) -> Result<Self> {
        let bytes = layout.bytes(element)?;
        let mut buffer = DeviceBuffer::new(stream.device(), bytes)?;
        buffer.fill_u8(0, bytes, 0, stream)?;
        Ok(DeviceMatrix { layout, element, buffer })
    }

    /// A copy of a matrix of the host's, which is there when this returns.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or
    /// [`Error::Driver`](crate::Error::Driver) if a call or earlier work on the stream fails.
    pub fn upload(matrix: &HostMatrix, stream: StreamRef<'_>) -> Result<Self> {
        let buffer = DeviceBuffer::from_host(stream.device(), matrix.bytes(), stream)?;
        Ok(DeviceMatrix { layout: matrix.layout(), element: matrix.dtype(), buffer })
    }

    /// A copy on the host, taken and waited for after the work on the stream.
    ///
    /// # Errors
    /// The host has no memory for it, or [`Error::Driver`](crate::Error::Driver) if a call or
    /// earlier work on the stream fails.
    pub fn download(&self, stream: StreamRef<'_>) -> Result<HostMatrix> {
        let mut matrix = HostMatrix::zeros(self.layout, self.element)?;
        self.buffer.copy_to_host(0, matrix.bytes_mut(), stream)?;
        Ok(matrix)
    }

    /// Rows, columns, order and leading dimension.
    pub fn layout(&self) -> MatrixLayout {
        self.layout
    }

    /// The element type.
    pub fn dtype(&self) -> Element {
        self.element
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }
}

impl Sealed for DeviceMatrix {}

impl<S: DeviceStream + ?Sized> DeviceOperand<S> for DeviceMatrix {
    fn facts(&self) -> OperandFacts {
        OperandFacts {
            layout: Some(self.layout),
            elements: self.buffer.bytes() / self.element.bytes() as usize,
            stored: StoredType::Element(self.element),
            context: self.device().context(),
        }
    }

    fn read<'a>(&'a self, _stream: &'a S) -> (u64, OperandUse<'a>) {
        (self.address(), OperandUse { _guard: None })
    }
}

/// Dropping the matrix waits for the work that writes it.
impl<S: DeviceStream + ?Sized> DeviceResult<S> for DeviceMatrix {
    fn write<'a>(&'a mut self, _stream: &'a S) -> (u64, OperandUse<'a>) {
        (self.address(), OperandUse { _guard: None })
    }
}
