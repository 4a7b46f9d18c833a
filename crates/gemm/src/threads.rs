//! Threads, which the operating system may refuse. Work is then done by those that are there.

use std::hint::black_box;
use std::io;
use std::num::NonZero;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rayon::{ThreadBuilder, ThreadPoolBuilder};

use crate::error::{Error, Result};

/// Starts the threads that compute on the host, which are rayon's global pool, unless the program
/// has started them already. If the operating system refuses some of the threads, there are fewer.
///
/// Functions that compute on the host do this themselves if they can return an error. A program
/// calls it before others, such as [`HostMatrix::fill_normal`](crate::HostMatrix::fill_normal),
/// which panic where there are no threads.
///
/// # Errors
/// [`Error::NoThreads`] if the operating system refuses even one thread.
pub fn start_pool() -> Result<()> {
    static IS_STARTED: Mutex<bool> = Mutex::new(false);
    let mut is_started = IS_STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_started {
        let started = Started::most(usual_threads(), spawn_where_there_is_room);
        started.map_err(|source| Error::NoThreads { source })?.into_global_pool();
        *is_started = true;
    }
    Ok(())
}

/// Starts a thread, unless there is no memory left for its stack and for what it allocates when it
/// begins. The standard library ends the process if a thread has a stack and then cannot allocate
/// the small one on which it would report that the first has overflowed. Returns when the thread
/// has all that: on a busy machine, others would be started before it had.
fn spawn_where_there_is_room(work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    // Twice the standard library's stack of 2 MiB.
    const ROOM: usize = 4 << 20;
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(ROOM)?;
    // Otherwise the compiler may leave out an allocation that nothing uses.
    drop(black_box(room));
    let (begin, begun) = mpsc::channel();
    let thread = thread::Builder::new().spawn(move || {
        // Nobody waits for it if the thread that starts others has ended.
        let _ = begin.send(());
        work();
    })?;
    // It fails if the thread has ended.
    let _ = begun.recv();
    Ok(thread)
}

/// The number of threads that rayon would start.
fn usual_threads() -> usize {
    let requested = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    requested
        .filter(|threads| *threads > 0)
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Threads that wait for their work in a pool. Rayon gives up its global pool for good if one of
/// its threads is refused, so they are started before it.
struct Started {
    threads: usize,
    work: mpsc::Sender<ThreadBuilder>,
}

impl Started {
    /// Starts this many threads by `spawn`. If some are refused, all of them end, and half of the
    /// number that was granted is started, so that there is room for other threads and for memory.
    fn most(
        most: usize,
        spawn: impl Fn(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Started> {
        let mut threads = most;
        loop {
            match Started::all(threads, &spawn) {
                Err((0, refused)) => return Err(refused),
                Err((granted, refused)) => {
                    tracing::warn!(
                        "the operating system refuses {threads} threads ({refused}): trying {}. \
                         Raise the limits of processes and of memory (ulimit -u, -v), or set \
                         RAYON_NUM_THREADS",
                        granted.div_ceil(2)
                    );
                    threads = granted.div_ceil(2);
                }
                Ok(started) => return Ok(started),
            }
        }
    }

    /// Starts this many threads, each once the one before it has begun and has the memory that it
    /// begins with. If one is refused, all have ended, and the number that was granted is returned.
    fn all(
        threads: usize,
        spawn: impl Fn(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> Result<Started, (usize, io::Error)> {
        let (work, waiting) = mpsc::channel::<ThreadBuilder>();
        let waiting = Arc::new(Mutex::new(waiting));
        let mut handles = Vec::with_capacity(threads);
        for _ in 0..threads {
            let waiting = Arc::clone(&waiting);
            let (begin, begun) = mpsc::channel::<()>();
            let wait = move || {
                drop(begin);
                let work = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                // If the pool is not made, there is no work.
                if let Ok(work) = work {
                    work.run();
                }
            };
            match spawn(Box::new(wait)) {
                Ok(handle) => {
                    handles.push(handle);
                    // Nothing is sent: this returns when the thread has dropped its end.
                    let _ = begun.recv();
                }
                Err(refused) => {
                    drop(work);
                    let granted = handles.len();
                    // They only waited, so none has panicked.
                    handles.into_iter().for_each(|handle| drop(handle.join()));
                    return Err((granted, refused));
                }
            }
        }
        Ok(Started { threads, work })
    }

    /// Makes the threads rayon's global pool. If the program has made one, they end.
    fn into_global_pool(self) {
        let Started { threads, work } = self;
        let hand_out = |thread| work.send(thread).map_err(|_| io::ErrorKind::BrokenPipe.into());
        let pool = ThreadPoolBuilder::new().num_threads(threads).spawn_handler(hand_out);
        if let Err(error) = pool.build_global() {
            tracing::debug!(%error, "the threads of this program compute");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn half_of_what_is_granted_is_started_if_some_are_refused() {
        let running = Arc::new(AtomicUsize::new(0));
        let limited = |most: usize, limit: usize| {
            Started::most(most, |work| {
                if running.load(Ordering::Relaxed) >= limit {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                running.fetch_add(1, Ordering::Relaxed);
                let running = Arc::clone(&running);
                let work = move || {
                    work();
                    running.fetch_sub(1, Ordering::Relaxed);
                };
                thread::Builder::new().spawn(work)
            })
        };
        for (most, limit, threads) in [(12, 5, 3), (12, 1, 1), (3, 8, 3)] {
            let started = limited(most, limit).unwrap();
            assert_eq!(started.threads, threads);
            assert_eq!(running.load(Ordering::Relaxed), threads);
            drop(started);
            // Those without work end.
            while running.load(Ordering::Relaxed) > 0 {
                thread::yield_now();
            }
        }
        assert!(limited(5, 0).is_err());
    }

    #[test]
    fn the_pool_is_started_once() {
        start_pool().unwrap();
        let threads = rayon::current_num_threads();
        assert!(threads > 0);
        // As in a program that has a pool of its own.
        let spawn = |work| thread::Builder::new().spawn(work);
        Started::most(threads + 1, spawn).unwrap().into_global_pool();
        start_pool().unwrap();
        assert_eq!(rayon::current_num_threads(), threads);
    }
}
