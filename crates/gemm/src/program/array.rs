//! Typed arrays in device memory.

use std::marker::PhantomData;

use bytemuck::Pod;
use pgemm_ir::Argument;

use crate::driver::{Device, DeviceBuffer, StreamRef};
use crate::error::{Error, Result};

/// An array of elements in device memory, freed on drop. Its address is a multiple of 256.
#[derive(Debug)]
pub struct DeviceArray<T> {
    buffer: DeviceBuffer,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceArray<T> {
    /// An array of `len` elements with undefined values.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], also where the bytes of the array do not fit a `usize`, and the
    /// other errors of [`DeviceBuffer::new`].
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let bytes = len.saturating_mul(size_of::<T>()).min(isize::MAX as usize);
        Ok(DeviceArray { buffer: DeviceBuffer::new(device, bytes)?, len, element: PhantomData })
    }

    /// An array of zeros.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and [`Error::Driver`] if the driver refuses to fill it.
    pub fn zeroed(device: &Device, len: usize, stream: StreamRef<'_>) -> Result<Self> {
        let mut array = Self::new(device, len)?;
        let bytes = array.buffer.bytes();
        array.buffer.fill_u8(0, bytes, 0, stream)?;
        Ok(array)
    }

    /// A copy of `values`, complete when this returns.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and [`Error::Driver`] if the copy fails.
    pub fn from_slice(device: &Device, values: &[T], stream: StreamRef<'_>) -> Result<Self> {
        let buffer = DeviceBuffer::from_host(device, bytemuck::cast_slice(values), stream)?;
        Ok(DeviceArray { buffer, len: values.len(), element: PhantomData })
    }

    /// The elements, after all work given to `stream` so far.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of any earlier asynchronous work.
    pub fn to_vec(&self, stream: StreamRef<'_>) -> Result<Vec<T>, Error> {
        let mut values = vec![T::zeroed(); self.len];
        self.buffer.copy_to_host(0, bytemuck::cast_slice_mut(&mut values), stream)?;
        Ok(values)
    }

    /// Enqueues a copy of all elements of another array of the same length.
    ///
    /// # Errors
    /// [`Error::DeviceRange`] if this array is shorter, and [`Error::Driver`] if the copy fails.
    pub fn copy_from(&mut self, source: &Self, stream: StreamRef<'_>) -> Result<()> {
        self.buffer.copy_from_device(0, &source.buffer, 0, source.buffer.bytes(), stream)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// The memory that holds the elements.
    pub fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }
}

impl<T> From<&DeviceArray<T>> for Argument {
    fn from(array: &DeviceArray<T>) -> Argument {
        Argument::U64(array.buffer.address())
    }
}

impl From<&DeviceBuffer> for Argument {
    fn from(buffer: &DeviceBuffer) -> Argument {
        Argument::U64(buffer.address())
    }
}
