//! [`Queued`]: the streams on which a GEMM has work, so that `pgemm_sync` waits for this work only.
//! An event after each launch would be exact, but it needs another driver call and would prevent
//! launches from overlapping. So events are recorded when a caller waits.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use pgemm::driver::{Device, Event, StreamRef, Timing};

use crate::failure::Failure;

/// `CU_STREAM_PER_THREAD`: one handle for a stream of each thread's own.
const PER_THREAD: usize = 2;

/// No stream's handle.
const NONE: usize = usize::MAX;

/// Streams with work that was not waited for.
pub(super) struct Queued {
    /// A stream that is in the list, so that runs on one stream take no lock.
    last: AtomicUsize,
    streams: Mutex<Streams>,
    /// Held during a wait, so that a second caller does not treat streams taken from the list as
    /// done.
    waiting: Mutex<()>,
}

#[derive(Default)]
struct Streams {
    handles: Vec<usize>,
    /// The end of each thread's own stream, which only that thread can record.
    per_thread: Vec<(ThreadId, Event)>,
}

impl Default for Queued {
    fn default() -> Self {
        Queued {
            last: AtomicUsize::new(NONE),
            streams: Mutex::default(),
            waiting: Mutex::default(),
        }
    }
}

impl Queued {
    /// Remembers that work was put on a stream.
    pub(super) fn note(&self, stream: StreamRef<'_>) -> Result<(), Failure> {
        let handle = stream.as_raw() as usize;
        if handle == PER_THREAD {
            return self.note_own(stream);
        }
        self.note_handle(handle);
        Ok(())
    }

    fn note_handle(&self, handle: usize) {
        // Either this thread sees that the list was taken, or the waiting thread records its event
        // after the preceding launch.
        fence(Ordering::SeqCst);
        if self.last.load(Ordering::SeqCst) == handle {
            return;
        }
        let mut streams = self.lock();
        if !streams.handles.contains(&handle) {
            streams.handles.push(handle);
        }
        self.last.store(handle, Ordering::SeqCst);
    }

    /// Records an event at the end of the calling thread's default stream. Captured work has none.
    fn note_own(&self, stream: StreamRef<'_>) -> Result<(), Failure> {
        if stream.is_capturing()? {
            return Ok(());
        }
        let mut streams = self.lock();
        let own = thread::current().id();
        let known = streams.per_thread.iter().position(|(thread, _)| *thread == own);
        let (_, event) = match known {
            Some(index) => &streams.per_thread[index],
            None => {
                let event = Event::new(stream.device(), Timing::Disabled)?;
                streams.per_thread.push((own, event));
                &streams.per_thread[streams.per_thread.len() - 1]
            }
        };
        Ok(event.record(stream)?)
    }

    /// Waits for the work that was queued before. After a failure its streams are remembered still.
    ///
    /// # Safety
    /// The streams must exist.
    pub(super) unsafe fn wait(&self, device: &Device) -> Result<(), Failure> {
        let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.take();
        // SAFETY: as the caller vouches.
        let waited = unsafe { taken.wait(device) };
        if waited.is_err() {
            self.put_back(taken);
        }
        waited
    }

    /// Whether there is work that was not waited for.
    pub(super) fn is_empty(&self) -> bool {
        let streams = self.lock();
        streams.handles.is_empty() && streams.per_thread.is_empty()
    }

    fn take(&self) -> Streams {
        let mut streams = self.lock();
        self.last.store(NONE, Ordering::SeqCst);
        let taken = std::mem::take(&mut *streams);
        fence(Ordering::SeqCst);
        taken
    }

    fn put_back(&self, taken: Streams) {
        let mut streams = self.lock();
        let Streams { handles, per_thread } = &mut *streams;
        let missing = |handle: &usize| !handles.contains(handle);
        let missing: Vec<_> = taken.handles.into_iter().filter(missing).collect();
        handles.extend(missing);
        // An event recorded in the meantime is a later one of the same stream.
        for (thread, event) in taken.per_thread {
            if per_thread.iter().all(|(known, _)| *known != thread) {
                per_thread.push((thread, event));
            }
        }
    }

    /// No holder panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    /// # Safety
    /// The streams must exist.
    unsafe fn wait(&self, device: &Device) -> Result<(), Failure> {
        let mut events = Vec::with_capacity(self.handles.len());
        for &handle in &self.handles {
            // SAFETY: it exists and belongs to the device's context, as it did when it was run on.
            let stream = unsafe { StreamRef::from_raw(device, handle as *mut c_void) };
            if stream.is_capturing()? {
                return Err(Failure::state(
                    "a stream that this GEMM was run on is being captured, so its work cannot be \
                     waited for: end the capture first",
                ));
            }
            let event = Event::new(device, Timing::Disabled)?;
            event.record(stream)?;
            events.push(event);
        }
        for event in events.iter().chain(self.per_thread.iter().map(|(_, event)| event)) {
            event.synchronize()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_remembered_once_until_they_are_waited_for() {
        let queued = Queued::default();
        for handle in [0, 0, 256, 0, 256, 512] {
            queued.note_handle(handle);
        }
        let taken = queued.take();
        assert_eq!(taken.handles, [0, 256, 512]);
        assert!(queued.is_empty() && queued.take().handles.is_empty());
        // The previous latest stream counts again.
        queued.note_handle(512);
        assert!(!queued.is_empty());
        queued.put_back(taken);
        assert_eq!(queued.take().handles, [512, 0, 256]);
    }

    /// A launch increments a counter, and a recorded event stores its value.
    #[test]
    fn every_launch_comes_before_an_event() {
        const LAUNCHES: usize = 20_000;
        let queued = Queued::default();
        let launches = AtomicUsize::new(0);
        let mut waited_for = 0;
        let mut wait = || {
            if !queued.take().handles.is_empty() {
                waited_for = launches.load(Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            let launch = || {
                for _ in 0..LAUNCHES {
                    launches.fetch_add(1, Ordering::Relaxed);
                    queued.note_handle(256);
                }
            };
            let threads = [scope.spawn(launch), scope.spawn(launch)];
            while !threads.iter().all(|thread| thread.is_finished()) {
                wait();
            }
        });
        wait();
        assert_eq!(waited_for, 2 * LAUNCHES);
    }
}
