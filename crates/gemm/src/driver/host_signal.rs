//! Signals between streams and the host: words in memory that a stream writes or waits for, and a
//! signal that a host thread waits for.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::stream::StreamRef;
use crate::error::Result;

/// A signal that streams raise and a host thread waits for.
#[derive(Default)]
pub(crate) struct HostSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    count: u64,
    ends: bool,
}

impl HostSignal {
    /// Raises the signal.
    pub(crate) fn raise(&self) {
        self.lock().count += 1;
        self.changed.notify_one();
    }

    /// Ends the waiting for good.
    pub(crate) fn end(&self) {
        self.lock().ends = true;
        self.changed.notify_one();
    }

    /// Waits until the signal was raised more than `seen` times. Returns the number, or `None`
    /// after [`end`](Self::end).
    pub(crate) fn wait(&self, seen: u64) -> Option<u64> {
        let quiet = |state: &mut SignalState| state.count == seen && !state.ends;
        let state = self.changed.wait_while(self.lock(), quiet);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        (!state.ends).then_some(state.count)
    }

    fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The function that the driver calls on one of its threads. No CUDA call is allowed there.
unsafe extern "C" fn notify(signal: *mut c_void) {
    // SAFETY: `signal_host` gave the driver one reference for this one call.
    unsafe { Arc::from_raw(signal.cast_const().cast::<HostSignal>()) }.raise();
}

impl StreamRef<'_> {
    /// Enqueues a host function that notifies `signal`. The stream continues after it.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the call fails.
    pub(crate) fn signal_host(self, signal: &Arc<HostSignal>) -> Result<()> {
        let driver = self.device().driver();
        let _current = self.device().enter()?;
        let data = Arc::into_raw(signal.clone());
        // SAFETY: the stream is alive; the function takes the reference that it is given.
        let code = unsafe {
            (driver.api().cuLaunchHostFunc)(self.handle(), Some(notify), data.cast_mut().cast())
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
