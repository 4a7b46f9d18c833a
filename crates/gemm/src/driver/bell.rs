//! Word from a stream to the host: words in memory that a stream writes or waits for, and a bell
//! that it rings.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::stream::StreamRef;
use crate::error::Result;

/// A bell that streams ring, and a thread of the host hears.
#[derive(Default)]
pub(crate) struct Bell {
    heard: Mutex<Heard>,
    rings: Condvar,
}

#[derive(Default)]
struct Heard {
    rings: u64,
    ends: bool,
}

impl Bell {
    /// Rings it.
    pub(crate) fn ring(&self) {
        self.lock().rings += 1;
        self.rings.notify_one();
    }

    /// Ends the waiting for good.
    pub(crate) fn end(&self) {
        self.lock().ends = true;
        self.rings.notify_one();
    }

    /// Waits for more rings than these: how many there are, or `None` where waiting has ended.
    pub(crate) fn wait(&self, seen: u64) -> Option<u64> {
        let quiet = |heard: &mut Heard| heard.rings == seen && !heard.ends;
        let heard = self.rings.wait_while(self.lock(), quiet);
        let heard = heard.unwrap_or_else(PoisonError::into_inner);
        (!heard.ends).then_some(heard.rings)
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The function that the driver calls on one of its threads. No CUDA call is allowed there.
unsafe extern "C" fn rung(bell: *mut c_void) {
    // SAFETY: `ring_bell` gave the driver one reference for this one call.
    unsafe { Arc::from_raw(bell.cast_const().cast::<Bell>()) }.ring();
}

impl StreamRef<'_> {
    /// Enqueues a host function that notifies `bell`. The stream continues after it.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub(crate) fn ring_bell(self, bell: &Arc<Bell>) -> Result<()> {
        let driver = self.device().driver();
        let _current = self.device().enter()?;
        let data = Arc::into_raw(bell.clone());
        // SAFETY: the stream is alive; the function takes the reference that it is given.
        let code = unsafe {
            (driver.api().cuLaunchHostFunc)(self.handle(), Some(rung), data.cast_mut().cast())
        };
        let outcome = driver.check("cuLaunchHostFunc", code);
        if outcome.is_err() {
            // SAFETY: the driver has not taken it.
            drop(unsafe { Arc::from_raw(data) });
        }
        outcome
    }

    /// Enqueues the write of a word. All earlier work of the stream is visible to device and host
    /// before the write.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    ///
    /// # Safety
    /// The address must be that of a word, a multiple of 4, that the device can write and that
    /// lives until the stream has passed this.
    pub(crate) unsafe fn write_word(self, address: u64, word: u32) -> Result<()> {
        let driver = self.device().driver();
        let _current = self.device().enter()?;
        // SAFETY: as the caller vouches; the flags are CU_STREAM_WRITE_VALUE_DEFAULT.
        driver.check("cuStreamWriteValue32", unsafe {
            (driver.api().cuStreamWriteValue32_v2)(self.handle(), address, word, 0)
        })
    }

    /// Lets the stream wait until a word is at least `value`, as a number that wraps.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    ///
    /// # Safety
    /// The address must be that of a word, a multiple of 4, that the device can read and that lives
    /// until the stream has passed this.
    pub(crate) unsafe fn wait_word(self, address: u64, value: u32) -> Result<()> {
        let driver = self.device().driver();
        let _current = self.device().enter()?;
        // SAFETY: as the caller vouches; the flags are CU_STREAM_WAIT_VALUE_GEQ.
        driver.check("cuStreamWaitValue32", unsafe {
            (driver.api().cuStreamWaitValue32_v2)(self.handle(), address, value, 0)
        })
    }
}
