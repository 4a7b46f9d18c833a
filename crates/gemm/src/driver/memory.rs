//! Device memory: allocation, copies and fills.

use std::ffi::c_void;
use std::fmt;

use cudarc::driver::sys;

use super::device::Device;
use super::stream::StreamRef;
use super::stream_waits;
use crate::error::{Error, Result};

/// Device memory, freed on drop. While a stream waits for a job of a resident engine, the memory is
/// freed later. The address is a multiple of 256.
///
/// Kernels access the bytes without Rust's knowledge. Copies are ordered only within the stream
/// that they are given; the caller must wait for work on other streams.
pub struct DeviceBuffer {
    device: Device,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates `bytes` bytes, with undefined content. Zero bytes allocate nothing and have the
    /// address 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the free bytes, [`Error::StreamWaits`] if a stream waits for a
    /// job of a resident engine, or [`Error::Driver`] if the call fails otherwise.
    pub fn new(device: &Device, bytes: usize) -> Result<Self> {
        let mut address: sys::CUdeviceptr = 0;
        if bytes > 0 {
            let driver = device.driver();
            let _current = device.enter()?;
            let code = stream_waits::alone(device, "cuMemAlloc", || {
                // SAFETY: `address` is a valid place, and the context is current.
                unsafe { (driver.api().cuMemAlloc_v2)(&mut address, bytes) }
            })?;
            driver.check_memory("cuMemAlloc", bytes as u64, code)?;
        }
        Ok(DeviceBuffer { device: device.clone(), address, bytes })
    }

    /// Allocates and copies `data` there before it returns.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new) and [`copy_from_host`](Self::copy_from_host).
    pub fn from_host(device: &Device, data: &[u8], stream: StreamRef<'_>) -> Result<Self> {
        let mut buffer = Self::new(device, data.len())?;
        buffer.copy_from_host(0, data, stream)?;
        Ok(buffer)
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Copies `source` to byte `offset`, after the work on `stream`, and waits until it is there.
    ///
    /// # Errors
    /// [`Error::DeviceRange`] if it does not fit, [`Error::Driver`] if the copy or earlier work on
    /// the stream failed.
    pub fn copy_from_host(
        &mut self,
        offset: usize,
        source: &[u8],
        stream: StreamRef<'_>,
    ) -> Result<()> {
        // SAFETY: the source is borrowed until the stream has been waited for, error or not.
        let enqueued = unsafe { self.copy_from_host_async(offset, source, stream) };
        stream.synchronize().and(enqueued)
    }

    /// Copies `target.len()` bytes from byte `offset`, after the work on `stream`, and waits until
    /// they are there.
    ///
    /// # Errors
    /// [`Error::DeviceRange`] if there are fewer, [`Error::Driver`] if the copy or earlier work on
    /// the stream failed.
    pub fn copy_to_host(
        &self,
        offset: usize,
        target: &mut [u8],
        stream: StreamRef<'_>,
    ) -> Result<()> {
        // SAFETY: the target is borrowed until the stream has been waited for, error or not.
        let enqueued = unsafe { self.copy_to_host_async(offset, target, stream) };
        stream.synchronize().and(enqueued)
    }

    /// Enqueues a copy of `source` to byte `offset`. If the source is pageable memory, the driver
    /// may wait for earlier work on the stream. If it is pinned memory, the call returns at once.
    ///
    /// # Safety
    /// `source` must stay alive and unchanged, and this buffer alive, until the stream has passed
    /// the copy.
    ///
    /// # Errors
    /// [`Error::DeviceRange`] if it does not fit, [`Error::Driver`] if the call fails.
    pub unsafe fn copy_from_host_async(
        &mut self,
        offset: usize,
        source: &[u8],
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let target = self.range(offset, source.len())?;
        if source.is_empty() {
            return Ok(());
        }
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: the device range lies inside the buffer; the caller keeps the host memory.
        driver.check("cuMemcpyHtoDAsync", unsafe {
            (driver.api().cuMemcpyHtoDAsync_v2)(
                target,
                source.as_ptr().cast::<c_void>(),
                source.len(),
                stream.handle(),
            )
        })
    }

    /// Enqueues a copy of `target.len()` bytes from byte `offset`. If the target is pageable
    /// memory, the driver may wait for the copy. If it is pinned memory, the call returns at once.
    ///
    /// # Safety
    /// `target` must stay alive and untouched, and this buffer alive, until the stream has passed
    /// the copy.
    ///
    /// # Errors
    /// [`Error::DeviceRange`] if there are fewer bytes, [`Error::Driver`] if the call fails.
    pub unsafe fn copy_to_host_async(
        &self,
        offset: usize,
        target: &mut [u8],
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let source = self.range(offset, target.len())?;
        if target.is_empty() {
            return Ok(());
        }
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: the device range lies inside the buffer; the caller keeps the host memory.
        driver.check("cuMemcpyDtoHAsync", unsafe {
            (driver.api().cuMemcpyDtoHAsync_v2)(
                target.as_mut_ptr().cast::<c_void>(),
                source,
                target.len(),
                stream.handle(),
            )
        })
    }

    /// Enqueues a copy of `bytes` bytes from byte `source_offset` of `source` to byte `offset`.
    /// Both buffers must live until the stream has passed the copy; dropping one waits for it.
    ///
    /// # Errors
    /// [`Error::DeviceRange`] if either buffer is too small, [`Error::Driver`] if the call fails.
    pub fn copy_from_device(
        &mut self,
        offset: usize,
        source: &DeviceBuffer,
        source_offset: usize,
        bytes: usize,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let target = self.range(offset, bytes)?;
        let source = source.range(source_offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: both ranges lie inside live buffers; cuMemFree waits for work in flight.
        driver.check("cuMemcpyDtoDAsync", unsafe {
            (driver.api().cuMemcpyDtoDAsync_v2)(target, source, bytes, stream.handle())
        })
    }

    /// Enqueues a fill of `bytes` bytes from byte `offset` with `value`.
    ///
    /// # Errors
    /// [`Error::DeviceRange`] if the buffer is smaller, [`Error::Driver`] if the call fails.
    pub fn fill_u8(
        &mut self,
        offset: usize,
        bytes: usize,
        value: u8,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let address = self.range(offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: the range lies inside the buffer.
        driver.check("cuMemsetD8Async", unsafe {
            (driver.api().cuMemsetD8Async)(address, value, bytes, stream.handle())
        })
    }

    /// Enqueues a fill of `words` 32-bit words from word `first` with `value`: a NaN pattern to
    /// poison an output, for example.
    ///
    /// # Errors
    /// [`Error::DeviceRange`] if the buffer is smaller, [`Error::Driver`] if the call fails.
    pub fn fill_u32(
        &mut self,
        first: usize,
        words: usize,
        value: u32,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let address = self.range(first.saturating_mul(4), words.saturating_mul(4))?;
        if words == 0 {
            return Ok(());
        }
        let driver = self.device.driver();
        let _current = self.device.enter()?;
        // SAFETY: the range lies inside the buffer, and the address is a multiple of 4.
        driver.check("cuMemsetD32Async", unsafe {
            (driver.api().cuMemsetD32Async)(address, value, words, stream.handle())
        })
    }

    /// The address of byte `offset`, if `bytes` bytes from there lie inside the buffer.
    fn range(&self, offset: usize, bytes: usize) -> Result<sys::CUdeviceptr> {
        if in_range(offset, bytes, self.bytes) {
            Ok(self.address + offset as u64)
        } else {
            Err(Error::DeviceRange {
                offset: offset as u64,
                bytes: bytes as u64,
                capacity: self.bytes as u64,
            })
        }
    }
}

/// Enqueues a fill of `bytes` bytes from `address` with zeros.
///
/// # Errors
/// [`Error::Driver`] if the call fails.
///
/// # Safety
/// They must be memory of the stream's device that nobody else uses until the stream has passed the
/// fill.
pub(crate) unsafe fn zero(address: u64, bytes: u64, stream: StreamRef<'_>) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let driver = stream.device().driver();
    let _current = stream.device().enter()?;
    // SAFETY: as the caller vouches.
    driver.check("cuMemsetD8Async", unsafe {
        (driver.api().cuMemsetD8Async)(address, 0, bytes as usize, stream.handle())
    })
}

fn in_range(offset: usize, bytes: usize, capacity: usize) -> bool {
    offset.checked_add(bytes).is_some_and(|end| end <= capacity)
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({:#x}, {} bytes)", self.address, self.bytes)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        let (device, address) = (self.device.clone(), self.address);
        stream_waits::release(&self.device, move || free(&device, address));
    }
}

/// Frees the allocation at an address. Must be called once.
fn free(device: &Device, address: sys::CUdeviceptr) {
    let driver = device.driver();
    match device.enter() {
        Ok(_current) => {
            // SAFETY: freed once; cuMemFree waits for work that may still use the memory.
            let code = unsafe { (driver.api().cuMemFree_v2)(address) };
            driver.check_in_drop("cuMemFree", code);
        }
        Err(error) => tracing::warn!(%error, "device memory could not be freed"),
    }
}

#[cfg(test)]
mod tests {
    use super::in_range;

    #[test]
    fn ranges_do_not_wrap() {
        assert!(in_range(0, 0, 0));
        assert!(in_range(4, 12, 16));
        assert!(!in_range(4, 13, 16));
        assert!(!in_range(17, 0, 16));
        assert!(!in_range(usize::MAX, 2, 16));
    }
}
