//! Global memory: named allocations at distant emulated addresses, which keep track of the bytes
//! that were written.

use std::fmt;

/// Allocation `i` starts at `(i + 1) << ADDRESS_BITS`, so an address beyond one allocation is in no
/// other.
const ADDRESS_BITS: u32 = 36;

/// Whether a kernel may write an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Kernels may read it.
    ReadOnly,
    /// Kernels may read and write it.
    ReadWrite,
}

/// A faulty access of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No allocation holds the range.
    #[error("no allocation holds the {bytes} bytes at {address:#x}: use an address from Memory")]
    OutOfBounds {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// The range was never written.
    #[error("the byte at {address:#x} was never written")]
    Uninitialised {
        /// The first byte that was never written.
        address: u64,
    },
    /// No allocation begins there, or it was freed.
    #[error("no allocation begins at {address:#x}: free an address of Memory, and only once")]
    NoAllocation {
        /// The address.
        address: u64,
    },
}

struct Allocation {
    name: String,
    data: Vec<u8>,
    /// One bit per byte.
    initialised: Vec<u64>,
    permission: Permission,
    freed: bool,
}

/// The global memory that a launch works on.
#[derive(Default)]
pub struct Memory {
    allocations: Vec<Allocation>,
}

/// The place of a range of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) allocation: usize,
    pub(crate) offset: usize,
}

impl Memory {
    /// Memory without allocations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates `bytes` unwritten bytes and returns their address, a multiple of 256.
    pub fn allocate(&mut self, name: &str, bytes: usize) -> u64 {
        self.push(name, vec![0; bytes], false, Permission::ReadWrite)
    }

    /// Allocates a copy of `data` and returns its address, a multiple of 256.
    pub fn upload(&mut self, name: &str, data: &[u8], permission: Permission) -> u64 {
        self.push(name, data.to_vec(), true, permission)
    }

    fn push(
        &mut self,
        name: &str,
        data: Vec<u8>,
        initialised: bool,
        permission: Permission,
    ) -> u64 {
        let words = data.len().div_ceil(64);
        self.allocations.push(Allocation {
            name: name.to_owned(),
            initialised: vec![if initialised { u64::MAX } else { 0 }; words],
            data,
            permission,
            freed: false,
        });
        (self.allocations.len() as u64) << ADDRESS_BITS
    }

    /// Frees an allocation. No other one will have its addresses, so that later accesses are found
    /// to be out of bounds.
    ///
    /// # Errors
    /// [`MemoryError::NoAllocation`] if none begins at this address, or it was freed.
    pub fn free(&mut self, address: u64) -> Result<(), MemoryError> {
        let begins = address.is_multiple_of(1 << ADDRESS_BITS);
        let index = (address >> ADDRESS_BITS).checked_sub(1).filter(|_| begins);
        let allocation = index.and_then(|index| self.allocations.get_mut(index as usize));
        let Some(allocation) = allocation.filter(|allocation| !allocation.freed) else {
            return Err(MemoryError::NoAllocation { address });
        };
        allocation.freed = true;
        allocation.data = Vec::new();
        allocation.initialised = Vec::new();
        Ok(())
    }

    /// Reads `bytes` bytes; all of them must have been written.
    pub fn read(&self, address: u64, bytes: usize) -> Result<&[u8], MemoryError> {
        let place = self.host_place(address, bytes)?;
        if let Some(at) = self.first_uninitialised(place, bytes) {
            return Err(MemoryError::Uninitialised { address: address + at as u64 });
        }
        Ok(self.bytes(place, bytes))
    }

    /// Reads `bytes` bytes. Unwritten bytes are zero.
    pub fn read_raw(&self, address: u64, bytes: usize) -> Result<&[u8], MemoryError> {
        Ok(self.bytes(self.host_place(address, bytes)?, bytes))
    }

    /// Writes `data`, whatever the permission of the allocation.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let place = self.host_place(address, data.len())?;
        self.store(place, data);
        Ok(())
    }

    fn host_place(&self, address: u64, bytes: usize) -> Result<Place, MemoryError> {
        self.locate(address, bytes).ok_or(MemoryError::OutOfBounds { address, bytes: bytes as u64 })
    }

    /// The place of a range, if one allocation holds all of it.
    pub(crate) fn locate(&self, address: u64, bytes: usize) -> Option<Place> {
        let allocation = usize::try_from((address >> ADDRESS_BITS).checked_sub(1)?).ok()?;
        let offset = (address & ((1 << ADDRESS_BITS) - 1)) as usize;
        let size = self.allocations.get(allocation)?.data.len();
        (offset.checked_add(bytes)? <= size).then_some(Place { allocation, offset })
    }

    /// An address in words.
    pub(crate) fn describe(&self, address: u64) -> Description<'_> {
        Description { memory: self, address }
    }

    pub(crate) fn bytes(&self, place: Place, bytes: usize) -> &[u8] {
        &self.allocations[place.allocation].data[place.offset..place.offset + bytes]
    }

    pub(crate) fn store(&mut self, place: Place, data: &[u8]) {
        let allocation = &mut self.allocations[place.allocation];
        allocation.data[place.offset..place.offset + data.len()].copy_from_slice(data);
        let (mut at, end) = (place.offset, place.offset + data.len());
        while at < end {
            let bit = at % 64;
            let count = (64 - bit).min(end - at);
            allocation.initialised[at / 64] |= (u64::MAX >> (64 - count)) << bit;
            at += count;
        }
    }

    /// The offset from `place` of the first byte in the range that was never written.
    pub(crate) fn first_uninitialised(&self, place: Place, bytes: usize) -> Option<usize> {
        let bits = &self.allocations[place.allocation].initialised;
        let (mut at, end) = (place.offset, place.offset + bytes);
        while at < end {
            let bit = at % 64;
            let count = (64 - bit).min(end - at);
            let missing = (!bits[at / 64] >> bit) & (u64::MAX >> (64 - count));
            if missing != 0 {
                return Some(at + missing.trailing_zeros() as usize - place.offset);
            }
            at += count;
        }
        None
    }

    pub(crate) fn writable(&self, place: Place) -> bool {
        self.allocations[place.allocation].permission == Permission::ReadWrite
    }

    pub(crate) fn size(&self, allocation: usize) -> usize {
        self.allocations[allocation].data.len()
    }
}

/// An address with the allocation around it.
pub(crate) struct Description<'a> {
    memory: &'a Memory,
    address: u64,
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address)?;
        let index = (self.address >> ADDRESS_BITS).checked_sub(1).map(|index| index as usize);
        match index.and_then(|index| self.memory.allocations.get(index)) {
            Some(allocation) if allocation.freed => {
                write!(f, " (in '{}', which was freed)", allocation.name)
            }
            Some(allocation) => write!(
                f,
                " ('{}' + {}, of {} bytes)",
                allocation.name,
                self.address & ((1 << ADDRESS_BITS) - 1),
                allocation.data.len()
            ),
            None => write!(f, " (in no allocation)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialised_bytes_are_known_one_by_one() {
        let mut memory = Memory::new();
        let address = memory.allocate("d", 200);
        memory.write(address + 3, &[7; 130]).unwrap();
        assert_eq!(memory.read(address + 3, 130).unwrap(), &[7; 130]);
        assert_eq!(
            memory.read(address + 2, 2),
            Err(MemoryError::Uninitialised { address: address + 2 })
        );
        assert_eq!(
            memory.read(address + 100, 50),
            Err(MemoryError::Uninitialised { address: address + 133 })
        );
    }

    #[test]
    fn memory_is_freed_once_and_its_addresses_are_not_used_again() {
        let mut memory = Memory::new();
        let (a, b) = (memory.allocate("a", 64), memory.allocate("b", 64));
        let refused = |address| Err(MemoryError::NoAllocation { address });
        for address in [0, a + 1, a + (8 << ADDRESS_BITS), u64::MAX] {
            assert_eq!(memory.free(address), refused(address));
        }
        assert_eq!(memory.free(a), Ok(()));
        assert_eq!(memory.free(a), refused(a));
        assert!(memory.read_raw(a, 1).is_err() && memory.write(a, &[1]).is_err());
        assert!(memory.describe(a + 5).to_string().ends_with("(in 'a', which was freed)"));
        let c = memory.allocate("c", 64);
        assert!(c != a && c != b);
        memory.write(b, &[1; 64]).unwrap();
    }

    #[test]
    fn allocations_do_not_touch() {
        let mut memory = Memory::new();
        let a = memory.upload("a", &[1; 16], Permission::ReadOnly);
        let b = memory.allocate("b", 16);
        assert!(memory.read_raw(a, 17).is_err());
        assert!(memory.read_raw(b - 1, 1).is_err());
        assert!(memory.read_raw(0, 1).is_err());
        assert!(memory.read_raw(u64::MAX, 1).is_err());
        assert!(memory.describe(a + 5).to_string().contains("'a' + 5"));
    }
}
