//! Host memory that host and device write to each other in, word by word.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::device::Device;
use super::{pinned, stream_waits};
use crate::error::Result;

/// Pinned memory that the device reads and writes by itself, zeros at first. The host touches it
/// through atomics only, since the device may at any time.
pub(crate) struct Mailbox {
    device: Device,
    start: NonNull<AtomicU64>,
    words: usize,
    address: u64,
}

// SAFETY: plain memory of its own, which is only touched through atomics.
unsafe impl Send for Mailbox {}
// SAFETY: as above.
unsafe impl Sync for Mailbox {}

impl Mailbox {
    /// `bytes` bytes, rounded up to whole 64-bit words, at a multiple of a page.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] or [`crate::Error::Driver`].
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Self> {
        // CU_MEMHOSTALLOC_PORTABLE and CU_MEMHOSTALLOC_DEVICEMAP.
        const FLAGS: u32 = 1 | 2;
        let words = bytes.div_ceil(8).max(1);
        let driver = device.driver();
        let _current = device.enter()?;
        let mut start: *mut c_void = ptr::null_mut();
        let code = stream_waits::alone(device, "cuMemHostAlloc", || {
            // SAFETY: `start` is a valid place.
            unsafe { (driver.api().cuMemHostAlloc)(&mut start, words * 8, FLAGS) }
        })?;
        driver.check_memory("cuMemHostAlloc", words as u64 * 8, code)?;
        let Some(start) = NonNull::new(start.cast::<AtomicU64>()) else {
            return Err(driver.error("cuMemHostAlloc", 2));
        };
        // SAFETY: the memory is that long and nobody else's yet.
        unsafe { start.as_ptr().cast::<u8>().write_bytes(0, words * 8) };
        let mut mailbox = Mailbox { device: device.clone(), start, words, address: 0 };
        // SAFETY: the memory was allocated to be mapped; the place is valid.
        let code = unsafe {
            (driver.api().cuMemHostGetDevicePointer_v2)(
                &mut mailbox.address,
                start.as_ptr().cast(),
                0,
            )
        };
        driver.check("cuMemHostGetDevicePointer", code)?;
        Ok(mailbox)
    }

    /// Its address on the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Its 64-bit words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words were allocated and initialised, and live as long as this.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// Its 32-bit words. The device writes words of either width; host code uses one width for
    /// each.
    pub(crate) fn halves(&self) -> &[AtomicU32] {
        // SAFETY: as above; a 64-bit word is two aligned 32-bit ones.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.words * 2) }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({:#x}, {} bytes)", self.address, self.words * 8)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        pinned::release(&self.device, self.start.cast());
    }
}
