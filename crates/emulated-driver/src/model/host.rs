//! Memory of the host that the driver gives out, or that is registered with it.
//!
//! What kernels are to reach of it has a copy in the memory of the emulator, which is what they
//! read and write.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use pgemm_emulator::{Memory, Permission};

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
    /// What kernels reach, by the address of its copy.
    mapped: BTreeMap<u64, Mapped>,
}

/// A range that kernels reach.
#[derive(Clone, Debug)]
struct Mapped {
    start: usize,
    /// Its words as they were when host and kernel last had the same.
    words: Vec<u32>,
}

/// A word of the host's that other threads use meanwhile.
///
/// # Safety
/// At the place is a word of pinned memory, which everybody accesses as an atomic.
pub(crate) unsafe fn shared_word<'a>(place: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's.
    unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(place)) }
}

impl Mapped {
    fn of_host(&self) -> impl Iterator<Item = &'static AtomicU32> + use<> {
        let start = self.start;
        let words = self.words.len();
        // SAFETY: the range is mapped, and who shares its words with a kernel has them as atomics.
        (0..words).map(move |word| unsafe { shared_word(start + word * 4) })
    }
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
    pub(crate) fn free(&mut self, address: usize, memory: &mut Memory) -> Outcome {
        let allocation = self.allocated.remove(&address).ok_or(Code::INVALID_VALUE)?;
        self.unmap(address, memory);
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

    pub(crate) fn unregister(&mut self, address: usize, memory: &mut Memory) -> Outcome {
        let found = self.registered.remove(&address);
        self.unmap(address, memory);
        found.map(drop).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
    }

    /// The address by which kernels reach pinned memory.
    pub(crate) fn map(&mut self, address: usize, memory: &mut Memory) -> Outcome<u64> {
        let (start, bytes) = self
            .ranges()
            .find(|(start, bytes)| (*start..start + bytes).contains(&address))
            .ok_or(Code::INVALID_VALUE)?;
        let offset = (address - start) as u64;
        if let Some((copy, _)) = self.mapped.iter().find(|(_, mapped)| mapped.start == start) {
            return Ok(copy + offset);
        }
        if !start.is_multiple_of(4) || !bytes.is_multiple_of(4) {
            return Err(Code::NOT_SUPPORTED);
        }
        let copy = memory.upload("cuMemHostAlloc", &vec![0; bytes], Permission::ReadWrite);
        self.mapped.insert(copy, Mapped { start, words: vec![0; bytes / 4] });
        Ok(copy + offset)
    }

    fn unmap(&mut self, start: usize, memory: &mut Memory) {
        let copy = self.mapped.iter().find(|(_, mapped)| mapped.start == start);
        if let Some(copy) = copy.map(|(copy, _)| *copy) {
            self.mapped.remove(&copy);
            // It is what `map` has made.
            let _ = memory.free(copy);
        }
    }

    /// The place of the host's that a kernel reaches at this address.
    pub(crate) fn behind(&self, address: u64) -> Option<usize> {
        let (copy, mapped) = self.mapped.range(..=address).next_back()?;
        let offset = usize::try_from(address - copy).ok()?;
        (offset < mapped.words.len() * 4).then_some(mapped.start + offset)
    }

    /// Gives a kernel the words of the host.
    pub(crate) fn show(&mut self, memory: &mut Memory) -> Outcome {
        for (copy, mapped) in &mut self.mapped {
            // In this order, what is in front releases what follows it.
            mapped.words = mapped.of_host().map(|word| word.load(Ordering::SeqCst)).collect();
            let bytes: Vec<u8> = mapped.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            memory.write(*copy, &bytes).map_err(|_| Code::ILLEGAL_ADDRESS)?;
        }
        Ok(())
    }

    /// Gives the host the words that a kernel has written, the last ones first. Returns whether the
    /// host has written others since it showed its own.
    pub(crate) fn take(&mut self, memory: &Memory) -> Outcome<bool> {
        for (copy, mapped) in &mut self.mapped {
            let bytes = memory.read_raw(*copy, mapped.words.len() * 4);
            let bytes = bytes.map_err(|_| Code::ILLEGAL_ADDRESS)?;
            let found = bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes));
            let found: Vec<u32> = found.collect();
            let all = found.iter().zip(&mut mapped.words);
            let start = mapped.start;
            for (word, (found, seen)) in all.enumerate().rev() {
                if found != seen {
                    // SAFETY: as for loads.
                    unsafe { shared_word(start + word * 4) }.store(*found, Ordering::SeqCst);
                    *seen = *found;
                }
            }
        }
        fence(Ordering::SeqCst);
        let differs = |mapped: &Mapped| {
            mapped
                .of_host()
                .zip(&mapped.words)
                .any(|(now, seen)| now.load(Ordering::SeqCst) != *seen)
        };
        Ok(self.mapped.values().any(differs))
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
