//! Host matrices whose memory the device reads and writes by itself.

use std::ptr::NonNull;

use super::HostMatrix;
use crate::driver::{Device, Registration};
use crate::error::Result;

/// The registration of a matrix's memory. It belongs to the memory, not to what that holds: clones have none, and are equal.
#[derive(Debug, Default)]
pub(crate) struct Pinned(Option<Registration>);

impl Clone for Pinned {
    fn clone(&self) -> Self {
        Pinned(None)
    }
}

impl PartialEq for Pinned {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Pinned {}

impl HostMatrix {
    /// Pins the matrix's memory, until it is dropped, so that the device copies it at the speed of the link, and without the host.
    /// That takes about as long as writing the memory once, so it pays where a matrix is copied more than once.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] or [`crate::Error::OutOfMemory`] where the system lets no more memory be locked.
    pub fn pin(&mut self, device: &Device) -> Result<()> {
        if self.pinned.0.is_some() || self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the buffer is never grown or replaced, stays where it is when the matrix moves, and is dropped after `pinned`.
        let registration = unsafe { Registration::new(device, NonNull::from(self.bytes_mut())) }?;
        self.pinned = Pinned(Some(registration));
        Ok(())
    }
}
