//! Memory of the host that the driver gives out, or that is registered with it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;

use crate::codes::{Code, Outcome};

/// Alignment of allocations: a page.
const PAGE_BYTES: usize = 4096;

/// An allocation of [`HostMemory`].
struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: memory that this alone frees.
unsafe impl Send for Allocation {}

/// Pinned memory, by its address.
#[derive(Default)]
pub(crate) struct HostMemory {
    allocated: BTreeMap<usize, Allocation>,
    /// Bytes of each registered range.
    registered: BTreeMap<usize, usize>,
}

impl HostMemory {
    pub(crate) fn allocate(&mut self, bytes: usize) -> Outcome<*mut u8> {
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| Code::OUT_OF_MEMORY)?;
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Code::OUT_OF_MEMORY)?;
        self.allocated.insert(start.addr().get(), Allocation { start, layout });
        Ok(start.as_ptr())
    }

    /// Frees an allocation, which nobody may use any more.
    pub(crate) fn free(&mut self, address: usize) -> Outcome {
        let allocation = self.allocated.remove(&address).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: it was allocated with this layout, and is no longer in the list.
        unsafe { dealloc(allocation.start.as_ptr(), allocation.layout) };
        Ok(())
    }

    pub(crate) fn register(&mut self, address: usize, bytes: usize) -> Outcome {
        let end = address.checked_add(bytes).filter(|_| address != 0 && bytes != 0);
        let end = end.ok_or(Code::INVALID_VALUE)?;
        if self.ranges().any(|(start, other)| start < end && address < start + other) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.registered.insert(address, bytes);
        Ok(())
    }

    pub(crate) fn unregister(&mut self, address: usize) -> Outcome {
        let found = self.registered.remove(&address);
        found.map(drop).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
    }

    /// Whether the byte at this address is pinned.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.ranges().any(|(start, bytes)| (start..start + bytes).contains(&address))
    }

    fn ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        let allocated = self.allocated.iter().map(|(start, held)| (*start, held.layout.size()));
        allocated.chain(self.registered.iter().map(|(start, bytes)| (*start, *bytes)))
    }
}
