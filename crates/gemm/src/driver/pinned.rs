//! Host memory that the device reads and writes by itself: allocated so ([`PinnedBuffer`]), or
//! registered ([`Registration`]); and copies of lines between the host and the device.

use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;

use cudarc::driver::sys;

use super::device::Device;
use super::stream::StreamRef;
use super::stream_waits;
use crate::error::Result;

/// Host memory of the driver's, which copies need not wait for.
pub(crate) struct PinnedBuffer {
    device: Device,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory, owned by this buffer alone.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// Zeros.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] or [`crate::Error::Driver`].
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Self> {
        let driver = device.driver();
        let _current = device.enter()?;
        let mut start: *mut c_void = ptr::null_mut();
        let code = stream_waits::alone(device, "cuMemHostAlloc", || {
            // SAFETY: `start` is a valid place; the flags ask for memory that all contexts may use.
            unsafe { (driver.api().cuMemHostAlloc)(&mut start, bytes.max(1), 1) }
        })?;
        driver.check_memory("cuMemHostAlloc", bytes as u64, code)?;
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(driver.error("cuMemHostAlloc", 2));
        };
        // SAFETY: the memory is `bytes` long and nobody else's.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        Ok(PinnedBuffer { device: device.clone(), start, bytes })
    }

    /// The bytes. No copy to or from them may be under way.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: all bytes are initialised, and live as long as the buffer.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The bytes. No copy to or from them may be under way.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        release(&self.device, self.start);
    }
}

/// Frees memory from cuMemHostAlloc that is no longer used. Must be called once.
pub(super) fn release(device: &Device, start: NonNull<u8>) {
    let (own, address) = (device.clone(), start.as_ptr() as usize);
    stream_waits::release(device, move || {
        let driver = own.driver();
        let Ok(_current) = own.enter() else { return };
        // SAFETY: it was allocated by cuMemHostAlloc, whose memory is the driver's to follow, and
        // is freed once.
        let code = unsafe { (driver.api().cuMemFreeHost)(address as *mut c_void) };
        driver.check_in_drop("cuMemFreeHost", code);
    });
}

/// Pins pages of host memory while it lives, so that the device can read and write them directly.
pub(crate) struct Registration {
    device: Device,
    start: NonNull<c_void>,
}

// SAFETY: the address is only handed back to the driver, which may be called from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above; nothing can be done with a shared one.
unsafe impl Sync for Registration {}

impl Registration {
    /// # Errors
    /// [`crate::Error::Driver`] if the driver refuses: memory is registered already, or the system
    /// lets no more be locked.
    ///
    /// # Safety
    /// The memory must stay allocated until this is dropped.
    pub(crate) unsafe fn new(device: &Device, memory: NonNull<[u8]>) -> Result<Self> {
        let driver = device.driver();
        let _current = device.enter()?;
        let start = memory.cast::<c_void>();
        let code = stream_waits::alone(device, "cuMemHostRegister", || {
            // SAFETY: the range is allocated, as the caller vouches; the flags ask for memory that
            // all contexts may use.
            unsafe { (driver.api().cuMemHostRegister_v2)(start.as_ptr(), memory.len(), 1) }
        })?;
        driver.check_memory("cuMemHostRegister", memory.len() as u64, code)?;
        Ok(Registration { device: device.clone(), start })
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.start).finish()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let driver = self.device.driver();
        // This cannot be deferred, because the memory is freed next. So it waits for pending jobs.
        stream_waits::settle(&self.device);
        let Ok(_current) = self.device.enter() else { return };
        // SAFETY: unregistered once, while the memory is still there.
        let code = unsafe { (driver.api().cuMemHostUnregister)(self.start.as_ptr()) };
        driver.check_in_drop("cuMemHostUnregister", code);
    }
}

/// Whether both ends of this memory are pinned, by anybody: the device then copies it by itself.
pub(crate) fn is_pinned(device: &Device, memory: &[u8]) -> bool {
    let driver = device.driver();
    let Ok(_current) = device.enter() else { return false };
    let pinned = |byte: &u8| {
        // CU_MEMORYTYPE_HOST. The driver reports nothing for pageable memory.
        const HOST: u32 = 1;
        let mut kind = MaybeUninit::<u32>::zeroed();
        // SAFETY: the attribute is a C enum, for which `kind` is a place; the address is only
        // looked up.
        let code = unsafe {
            (driver.api().cuPointerGetAttribute)(
                kind.as_mut_ptr().cast(),
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                ptr::from_ref(byte) as u64,
            )
        };
        // SAFETY: it was zeroed, whatever the driver wrote.
        code == 0 && unsafe { kind.assume_init() } == HOST
    };
    memory.first().is_none_or(pinned) && memory.last().is_none_or(pinned)
}

/// Lines of equal length at a constant distance in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    pub lines: usize,
    pub line_bytes: usize,
    pub device_pitch: usize,
    pub host_pitch: usize,
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDevice,
    ToHost,
}

/// Enqueues a copy of lines between `host` and `device_address`.
///
/// # Errors
/// [`crate::Error::Driver`] if the call fails.
///
/// # Safety
/// Both must have these lines, and be used by nobody else, or only be read where they are copied
/// from, until the stream has passed the copy.
pub(crate) unsafe fn copy_lines(
    direction: Direction,
    device_address: u64,
    host: *mut u8,
    lines: Lines,
    stream: StreamRef<'_>,
) -> Result<()> {
    let Lines { lines, line_bytes, device_pitch, host_pitch } = lines;
    if lines == 0 || line_bytes == 0 {
        return Ok(());
    }
    let driver = stream.device().driver();
    let _current = stream.device().enter()?;
    let api = driver.api();
    if lines == 1 || line_bytes == device_pitch && line_bytes == host_pitch {
        let bytes = lines * line_bytes;
        return match direction {
            // SAFETY: as the caller vouches; the lines have no gaps.
            Direction::ToDevice => driver.check("cuMemcpyHtoDAsync", unsafe {
                (api.cuMemcpyHtoDAsync_v2)(device_address, host.cast(), bytes, stream.handle())
            }),
            // SAFETY: as above.
            Direction::ToHost => driver.check("cuMemcpyDtoHAsync", unsafe {
                (api.cuMemcpyDtoHAsync_v2)(host.cast(), device_address, bytes, stream.handle())
            }),
        };
    }
    let (on_host, on_device) =
        (sys::CUmemorytype::CU_MEMORYTYPE_HOST, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
    let to_device = direction == Direction::ToDevice;
    let [source, target] = if to_device { [on_host, on_device] } else { [on_device, on_host] };
    let [source_pitch, target_pitch] =
        if to_device { [host_pitch, device_pitch] } else { [device_pitch, host_pitch] };
    let copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: source,
        srcHost: host.cast(),
        srcDevice: device_address,
        srcArray: ptr::null_mut(),
        srcPitch: source_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: target,
        dstHost: host.cast(),
        dstDevice: device_address,
        dstArray: ptr::null_mut(),
        dstPitch: target_pitch,
        WidthInBytes: line_bytes,
        Height: lines,
    };
    // SAFETY: as the caller vouches.
    driver.check("cuMemcpy2DAsync", unsafe { (api.cuMemcpy2DAsync_v2)(&copy, stream.handle()) })
}
