//! Device memory, with what copies and fills it.

use std::collections::BTreeMap;
use std::{ptr, slice};

use pgemm_emulator::{Memory, Permission};

use crate::codes::{Code, Outcome};

/// Bytes of device memory.
pub(crate) const TOTAL_BYTES: usize = 1 << 30;

/// What memory holds that nothing has written: NaN, in the types that have it. To read it is no
/// fault, as on a device, since kernels read the gaps between lines and do not use them.
const UNWRITTEN: u8 = 0xff;

/// The memory of the device.
#[derive(Default)]
pub(crate) struct DeviceMemory {
    pub(crate) memory: Memory,
    /// The bytes of each allocation, by its address.
    allocations: BTreeMap<u64, usize>,
    used: usize,
}

impl DeviceMemory {
    pub(crate) fn allocate(&mut self, bytes: usize) -> Outcome<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if bytes > self.free_bytes() {
            return Err(Code::OUT_OF_MEMORY);
        }
        let garbage = vec![UNWRITTEN; bytes];
        let address = self.memory.upload("cuMemAlloc", &garbage, Permission::ReadWrite);
        self.allocations.insert(address, bytes);
        self.used += bytes;
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Outcome {
        if address == 0 {
            return Ok(());
        }
        let bytes = self.allocations.remove(&address).ok_or(Code::INVALID_VALUE)?;
        self.used -= bytes;
        self.memory.free(address).map_err(|_| Code::INVALID_VALUE)
    }

    /// Frees what is left at the end of a context.
    pub(crate) fn free_all(&mut self) {
        while let Some((&address, _)) = self.allocations.first_key_value() {
            // The address is in the list, so it can be freed.
            let _ = self.free(address);
        }
    }

    pub(crate) fn free_bytes(&self) -> usize {
        TOTAL_BYTES - self.used
    }

    /// Whether an allocation holds all of these bytes.
    pub(crate) fn holds(&self, address: u64, bytes: usize) -> bool {
        let before = self.allocations.range(..=address).next_back();
        before.is_some_and(|(start, size)| {
            usize::try_from(address - start)
                .is_ok_and(|offset| offset < *size && bytes <= *size - offset)
        })
    }

    fn check(&self, address: u64, bytes: usize) -> Outcome {
        if self.holds(address, bytes) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    pub(crate) fn bytes(&self, address: u64, bytes: usize) -> Outcome<&[u8]> {
        self.memory.read_raw(address, bytes).map_err(|_| Code::ILLEGAL_ADDRESS)
    }

    pub(crate) fn write(&mut self, address: u64, data: &[u8]) -> Outcome {
        self.memory.write(address, data).map_err(|_| Code::ILLEGAL_ADDRESS)
    }
}

/// A place in the memory of the host, as its address: only [`DeviceMemory::perform`] follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPlace(usize);

impl HostPlace {
    /// The place of a pointer.
    pub(crate) fn of<T>(pointer: *const T) -> HostPlace {
        HostPlace(pointer.expose_provenance())
    }

    fn line<T>(self, offset: usize) -> *mut T {
        ptr::with_exposed_provenance_mut(self.0.wrapping_add(offset))
    }
}

/// A copy or a fill. What is copied between host and device has lines, each of which begins so many
/// bytes after the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transfer {
    /// From the host to the device.
    ToDevice { host: HostPlace, device: u64, lines: Lines },
    /// From the device to the host.
    ToHost { host: HostPlace, device: u64, lines: Lines },
    /// Between two places of the device.
    OnDevice { target: u64, source: u64, bytes: usize },
    /// Repeats 1 or 4 bytes.
    Fill { target: u64, pattern: [u8; 4], bytes: usize },
}

/// The lines of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) host_pitch: usize,
    pub(crate) device_pitch: usize,
}

impl Lines {
    /// A single line.
    pub(crate) fn one(bytes: usize) -> Lines {
        Lines { count: 1, bytes, host_pitch: bytes, device_pitch: bytes }
    }

    /// Bytes from the first one of the first line to the last one of the last line, on the device.
    fn extent(&self) -> Outcome<usize> {
        let before =
            self.count.checked_sub(1).and_then(|lines| lines.checked_mul(self.device_pitch));
        before.and_then(|before| before.checked_add(self.bytes)).ok_or(Code::INVALID_VALUE)
    }
}

impl DeviceMemory {
    /// Refuses a transfer whose places on the device are no memory of the device's.
    pub(crate) fn check_transfer(&self, transfer: &Transfer) -> Outcome {
        match *transfer {
            Transfer::ToDevice { device, lines, .. } | Transfer::ToHost { device, lines, .. } => {
                self.check(device, lines.extent()?)
            }
            Transfer::OnDevice { target, source, bytes } => {
                self.check(target, bytes).and(self.check(source, bytes))
            }
            Transfer::Fill { target, bytes, .. } => self.check(target, bytes),
        }
    }

    /// Copies or fills.
    ///
    /// # Safety
    /// The memory of the host must be there, and nobody else may use it.
    pub(crate) unsafe fn perform(&mut self, transfer: &Transfer) -> Outcome {
        match *transfer {
            Transfer::ToDevice { host, device, lines } => {
                for line in 0..lines.count {
                    let source = host.line::<u8>(line * lines.host_pitch);
                    // SAFETY: the caller vouches for all lines of the host's.
                    let source = unsafe { slice::from_raw_parts(source, lines.bytes) };
                    self.write(device + (line * lines.device_pitch) as u64, source)?;
                }
                Ok(())
            }
            Transfer::ToHost { host, device, lines } => {
                for line in 0..lines.count {
                    let place = device + (line * lines.device_pitch) as u64;
                    let source = self.bytes(place, lines.bytes)?;
                    let target = host.line::<u8>(line * lines.host_pitch);
                    // SAFETY: the caller vouches for all lines of the host's, which are no memory
                    // of the emulator.
                    unsafe { target.copy_from_nonoverlapping(source.as_ptr(), lines.bytes) };
                }
                Ok(())
            }
            Transfer::OnDevice { target, source, bytes } => {
                let copied = self.bytes(source, bytes)?.to_vec();
                self.write(target, &copied)
            }
            Transfer::Fill { target, pattern, bytes } => {
                let data: Vec<u8> = pattern.into_iter().cycle().take(bytes).collect();
                self.write(target, &data)
            }
        }
    }
}
