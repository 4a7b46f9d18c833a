//! Host matrices whose memory the device reads and writes by itself.

use std::ptr::NonNull;

use super::HostMatrix;
use crate::driver::{Device, Registration};
use crate::error::{MatrixError, Result};

/// Words of a page, by which memory is pinned.
const PAGE_WORDS: usize = 4096 / size_of::<u64>();
/// From this size, in bytes, allocators return memory on separate pages.
const OWN_PAGES_BYTES: usize = 64 << 20;

/// The registration of a matrix's memory. It belongs to the memory, so clones of the matrix are not
/// pinned.
#[derive(Debug, Default)]
pub(crate) struct Pinned(Option<Registration>);

impl Clone for Pinned {
    fn clone(&self) -> Self {
        Pinned(None)
    }
}

impl HostMatrix {
    /// Pins the matrix's memory until it is dropped. The device then copies it at the speed of the
    /// link, without the host. Pinning takes about as long as writing the memory once, so it pays
    /// off if a matrix is copied more than once.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] or [`crate::Error::OutOfMemory`] if the system allows no more
    /// locked memory.
    pub fn pin(&mut self, device: &Device) -> Result<()> {
        if self.pinned.0.is_some() || self.bytes == 0 {
            return Ok(());
        }
        if self.bytes < OWN_PAGES_BYTES {
            self.move_to_own_pages()?;
        }
        // SAFETY: the buffer is neither grown nor replaced from here on, stays where it is when the
        // matrix moves, and is dropped after `pinned`.
        let registration = unsafe { Registration::new(device, NonNull::from(self.bytes_mut())) }?;
        self.pinned = Pinned(Some(registration));
        Ok(())
    }

    /// Two matrices in one page could not both be pinned.
    fn move_to_own_pages(&mut self) -> Result<()> {
        let (bytes, words) = (self.bytes, self.bytes.div_ceil(size_of::<u64>()));
        let mut own: Vec<u64> = Vec::new();
        own.try_reserve_exact(words + 2 * PAGE_WORDS)
            .map_err(|_| MatrixError::OutOfMemory { bytes })?;
        let address = own.as_ptr().addr() / size_of::<u64>();
        let first = address.next_multiple_of(PAGE_WORDS) - address;
        own.resize(words + 2 * PAGE_WORDS, 0);
        own[first..first + words].copy_from_slice(&self.words[self.first_word..][..words]);
        (self.words, self.first_word) = (own, first);
        Ok(())
    }
}
