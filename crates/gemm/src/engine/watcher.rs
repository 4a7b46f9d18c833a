//! Notifications about the end of jobs. The kernel only writes words, so one thread of the engine
//! polls the words of the registered jobs. It sleeps if there are none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lock::lock;
use super::streams::spawn;
use super::wait_progress::{PAUSE, SPIN, WaitProgress};
use crate::error::{EngineError, Result};

/// A job that a watcher observes. All jobs of a watcher belong to the same engine.
pub(super) trait WatchedJob: Send + 'static {
    /// Whether it is done.
    fn is_done(&self) -> bool;
    /// Fails if the job can no longer be done. Called from time to time.
    fn check(&self) -> Result<()>;
    /// A counter that changes when any of the engine's jobs are done.
    fn progress(&self) -> u64;
    /// Time without a change of that counter after which the job fails with [`Self::stuck`].
    fn watchdog(&self) -> Duration;
    /// The error for this time without progress.
    fn stuck(&self, waited: Duration) -> EngineError;
}

/// The callback for the end of a job.
pub(super) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// A thread that polls registered jobs. It ends after this handle is dropped and all callbacks have
/// been called.
pub(super) struct Watcher<J>(Arc<Shared<J>>);

struct Shared<J> {
    inbox: Mutex<Inbox<J>>,
    arrived: Condvar,
}

struct Inbox<J> {
    jobs: Vec<Entry<J>>,
    ends: bool,
}

struct Entry<J> {
    job: J,
    since: Instant,
    callback: Callback,
}

impl<J: WatchedJob> Watcher<J> {
    /// A watcher without jobs.
    ///
    /// # Errors
    /// [`EngineError::Thread`].
    pub(super) fn start() -> Result<Self, EngineError> {
        let inbox = Mutex::new(Inbox { jobs: vec![], ends: false });
        let shared = Arc::new(Shared { inbox, arrived: Condvar::new() });
        let own = shared.clone();
        spawn("pgemm-watcher", move || own.run())?;
        Ok(Watcher(shared))
    }

    /// Calls `callback` at the end of a job, on the watcher's thread, even if the job is done
    /// already.
    pub(super) fn register(&self, job: J, callback: Callback) {
        lock(&self.0.inbox).jobs.push(Entry { job, since: Instant::now(), callback });
        self.0.arrived.notify_one();
    }
}

impl<J> Drop for Watcher<J> {
    /// Does not wait for the thread, because the last handle may be dropped in a callback on that
    /// same thread.
    fn drop(&mut self) {
        lock(&self.0.inbox).ends = true;
        self.0.arrived.notify_one();
    }
}

impl<J: WatchedJob> Shared<J> {
    fn run(&self) {
        let mut jobs = vec![];
        while self.wait_for_jobs(&mut jobs) {
            self.watch(&mut jobs);
        }
    }

    /// Sleeps until there are jobs. Returns false if there will be none.
    fn wait_for_jobs(&self, jobs: &mut Vec<Entry<J>>) -> bool {
        let idle = |inbox: &mut Inbox<J>| inbox.jobs.is_empty() && !inbox.ends;
        let inbox = self.arrived.wait_while(lock(&self.inbox), idle);
        let mut inbox = inbox.unwrap_or_else(PoisonError::into_inner);
        jobs.append(&mut inbox.jobs);
        !jobs.is_empty()
    }

    /// Polls jobs, including newly registered ones, until all callbacks have been called.
    fn watch(&self, jobs: &mut Vec<Entry<J>>) {
        let Some(first) = jobs.first() else { return };
        let mut progress = WaitProgress::new(first.job.progress());
        let mut active = Instant::now();
        while !jobs.is_empty() {
            let mut notified = notify_done(jobs);
            if let Some(unmoved) =
                jobs.first().and_then(|entry| progress.look(|| entry.job.progress()))
            {
                notified |= notify_failed(jobs, unmoved);
            }
            if notified || self.take_arrived(jobs) {
                active = Instant::now();
            }
            if active.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                self.pause();
            }
        }
    }

    fn take_arrived(&self, jobs: &mut Vec<Entry<J>>) -> bool {
        let mut inbox = lock(&self.inbox);
        let any = !inbox.jobs.is_empty();
        jobs.append(&mut inbox.jobs);
        any
    }

    /// A short sleep that ends early when a job is registered.
    fn pause(&self) {
        let quiet = |inbox: &mut Inbox<J>| inbox.jobs.is_empty();
        drop(self.arrived.wait_timeout_while(lock(&self.inbox), PAUSE, quiet));
    }
}

/// Calls the callbacks of finished jobs in the order of registration. Returns whether there were
/// any.
fn notify_done<J: WatchedJob>(jobs: &mut Vec<Entry<J>>) -> bool {
    // All finished jobs are removed from the list first, because callbacks may take long.
    let done: Vec<_> = jobs.extract_if(.., |entry| entry.job.is_done()).collect();
    let any = !done.is_empty();
    done.into_iter().for_each(|entry| notify(entry, Ok(())));
    any
}

/// Calls the callbacks of jobs that have failed, and of all jobs after the watchdog's time without
/// progress. Returns whether there were any.
fn notify_failed<J: WatchedJob>(jobs: &mut Vec<Entry<J>>, unmoved: Duration) -> bool {
    // All jobs belong to one engine, so it is enough to check the first.
    let fails = jobs.first().is_some_and(|entry| entry.job.check().is_err());
    let (mut kept, mut any) = (vec![], false);
    for entry in jobs.drain(..) {
        let waited = unmoved.min(entry.since.elapsed());
        let outcome = if fails { entry.job.check() } else { Ok(()) };
        let outcome = outcome.and_then(|()| match waited >= entry.job.watchdog() {
            true => Err(entry.job.stuck(waited).into()),
            false => Ok(()),
        });
        match outcome {
            // A job that was done in the meantime is reported by the next poll.
            Err(error) if !entry.job.is_done() => {
                any = true;
                notify(entry, Err(error));
            }
            _ => kept.push(entry),
        }
    }
    *jobs = kept;
    any
}

/// A panic in a callback is caught and does not affect other jobs.
fn notify<J>(entry: Entry<J>, outcome: Result<()>) {
    let Entry { job, callback, .. } = entry;
    if catch_unwind(AssertUnwindSafe(move || callback(outcome))).is_err() {
        tracing::error!("a callback of an engine's ticket panicked");
    }
    drop(job);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{OnceLock, Weak};
    use std::thread;

    use super::*;

    /// Longer than any of these tests takes.
    const LONG: Duration = Duration::from_secs(60);

    /// The words that a kernel would write, and the progress of its engine.
    struct Words {
        done: [AtomicU32; 4],
        failed: AtomicBool,
        watchdog: Duration,
        looks: AtomicUsize,
    }

    impl Words {
        fn new(watchdog: Duration) -> Arc<Self> {
            let (failed, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
            Arc::new(Words { done: Default::default(), failed, watchdog, looks })
        }

        fn finish(&self, job: usize) {
            self.done[job].store(1, Ordering::Release);
        }
    }

    struct Fake(Arc<Words>, usize);

    impl WatchedJob for Fake {
        fn is_done(&self) -> bool {
            self.0.looks.fetch_add(1, Ordering::Relaxed);
            self.0.done[self.1].load(Ordering::Acquire) != 0
        }

        fn check(&self) -> Result<()> {
            match self.0.failed.load(Ordering::Acquire) {
                true => Err(EngineError::Aborted { job: self.1 as u32 }.into()),
                false => Ok(()),
            }
        }

        fn progress(&self) -> u64 {
            self.0.done.iter().map(|word| u64::from(word.load(Ordering::Acquire))).sum()
        }

        fn watchdog(&self) -> Duration {
            self.0.watchdog
        }

        fn stuck(&self, waited: Duration) -> EngineError {
            EngineError::Stuck { job: self.1 as u32, waited }
        }
    }

    type Report = (usize, Option<String>);

    /// Registers jobs whose ends arrive at the receiver.
    fn register(
        watcher: &Watcher<Fake>,
        words: &Arc<Words>,
        jobs: &[usize],
        said: &Sender<Report>,
    ) {
        for job in jobs.iter().copied() {
            let said = said.clone();
            let callback = move |outcome: Result<()>| {
                said.send((job, outcome.err().map(|error| error.to_string()))).unwrap();
            };
            watcher.register(Fake(words.clone(), job), Box::new(callback));
        }
    }

    fn started(
        watchdog: Duration,
    ) -> (Watcher<Fake>, Arc<Words>, Sender<Report>, Receiver<Report>) {
        let (sender, receiver) = channel();
        (Watcher::start().unwrap(), Words::new(watchdog), sender, receiver)
    }

    #[test]
    fn each_is_told_once_when_its_word_is_written() {
        let (watcher, words, sender, said) = started(LONG);
        register(&watcher, &words, &[0, 1, 2, 1], &sender);
        thread::sleep(Duration::from_millis(10));
        assert!(said.try_recv().is_err(), "nothing is done");
        words.finish(2);
        assert_eq!(said.recv_timeout(LONG).unwrap(), (2, None));
        words.finish(1);
        assert_eq!(said.recv_timeout(LONG).unwrap(), (1, None));
        assert_eq!(said.recv_timeout(LONG).unwrap(), (1, None));
        words.finish(0);
        assert_eq!(said.recv_timeout(LONG).unwrap(), (0, None));
        register(&watcher, &words, &[0], &sender);
        assert_eq!(said.recv_timeout(LONG).unwrap(), (0, None), "done before it was registered");
        drop(sender);
        assert!(said.recv_timeout(LONG).is_err(), "each once");
    }

    #[test]
    fn nothing_is_looked_at_where_nobody_asks() {
        let (watcher, words, sender, said) = started(LONG);
        register(&watcher, &words, &[0], &sender);
        words.finish(0);
        said.recv_timeout(LONG).unwrap();
        let looks = words.looks.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(words.looks.load(Ordering::Relaxed), looks);
        // The thread ends after its handle is dropped.
        let shared = Arc::downgrade(&watcher.0);
        drop(watcher);
        let begin = Instant::now();
        while shared.strong_count() > 0 {
            assert!(begin.elapsed() < LONG);
            thread::yield_now();
        }
    }

    #[test]
    fn all_hear_of_a_failure_and_those_that_are_done_do_not() {
        let (watcher, words, sender, said) = started(LONG);
        words.finish(1);
        words.failed.store(true, Ordering::Release);
        register(&watcher, &words, &[0, 1, 2], &sender);
        // Nobody holds the watcher any more.
        drop(watcher);
        let mut all: Vec<_> = (0..3).map(|_| said.recv_timeout(LONG).unwrap()).collect();
        all.sort();
        let errors = all.iter().map(|(_, error)| error.as_deref().unwrap_or("none"));
        let errors: Vec<_> = errors.collect();
        assert!(errors[0].contains("job 0") && errors[2].contains("job 2"), "{errors:?}");
        assert_eq!(errors[1], "none");
    }

    #[test]
    fn the_watchdog_barks_when_nothing_moves_for_its_time() {
        let watchdog = Duration::from_millis(200);
        let (watcher, words, sender, said) = started(watchdog);
        let begin = Instant::now();
        register(&watcher, &words, &[0, 1], &sender);
        thread::sleep(Duration::from_millis(100));
        words.finish(1);
        assert_eq!(said.recv_timeout(LONG).unwrap(), (1, None));
        let moved = begin.elapsed();
        let (job, error) = said.recv_timeout(LONG).unwrap();
        assert!(job == 0 && error.as_ref().unwrap().contains("no progress"), "{error:?}");
        assert!(begin.elapsed() >= moved.max(Duration::from_millis(100)) + watchdog / 2);
    }

    #[test]
    fn a_callback_that_panics_harms_no_other() {
        let (watcher, words, sender, said) = started(LONG);
        watcher.register(Fake(words.clone(), 0), Box::new(|_| panic!("in a callback")));
        register(&watcher, &words, &[0, 1], &sender);
        words.finish(0);
        assert_eq!(said.recv_timeout(LONG).unwrap(), (0, None));
        words.finish(1);
        assert_eq!(said.recv_timeout(LONG).unwrap(), (1, None));
    }

    /// A stand-in for an engine: it owns the watcher, and jobs keep it alive.
    struct Owner(OnceLock<Watcher<OwnedJob>>, Arc<Words>);

    struct OwnedJob {
        _owner: Arc<Owner>,
        fake: Fake,
    }

    impl WatchedJob for OwnedJob {
        fn is_done(&self) -> bool {
            self.fake.is_done()
        }

        fn check(&self) -> Result<()> {
            self.fake.check()
        }

        fn progress(&self) -> u64 {
            self.fake.progress()
        }

        fn watchdog(&self) -> Duration {
            self.fake.watchdog()
        }

        fn stuck(&self, waited: Duration) -> EngineError {
            self.fake.stuck(waited)
        }
    }

    impl Owner {
        fn on_done(self: &Arc<Self>, job: usize, callback: impl FnOnce() + Send + 'static) {
            let fake = Fake(self.1.clone(), job);
            let owned = OwnedJob { _owner: self.clone(), fake };
            self.0.get().unwrap().register(owned, Box::new(move |_| callback()));
        }
    }

    #[test]
    fn callbacks_register_others_and_drop_the_last_handle() {
        let words = Words::new(LONG);
        let owner = Arc::new(Owner(OnceLock::new(), words.clone()));
        assert!(owner.0.set(Watcher::start().unwrap()).is_ok());
        let watcher = Arc::downgrade(&owner.0.get().unwrap().0);
        let (sender, said) = channel();
        let weak: Weak<Owner> = Arc::downgrade(&owner);
        let last = owner.clone();
        owner.on_done(0, move || {
            let further = last.clone();
            last.on_done(1, move || {
                sender.send(Arc::strong_count(&further)).unwrap();
                drop(further);
            });
            drop(last);
        });
        drop(owner);
        words.finish(0);
        words.finish(1);
        // The callback's handle and its job's.
        assert_eq!(said.recv_timeout(LONG).unwrap(), 2);
        let begin = Instant::now();
        while weak.strong_count() > 0 || watcher.strong_count() > 0 {
            assert!(begin.elapsed() < LONG);
            thread::yield_now();
        }
    }
}
