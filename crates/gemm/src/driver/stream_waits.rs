//! Coordination between streams that wait for jobs of a resident engine and driver calls that wait
//! for all streams.
//!
//! If the engine's kernel has left the device, such a job needs a new launch. The driver blocks
//! this launch while another thread allocates or frees memory, and that thread waits for the
//! stream: a deadlock. So our own allocating and freeing calls first wait, for a limited time,
//! until no stream waits for a job. After that time they fail; memory freed in a drop is freed
//! later.
//!
//! If the process has no engine, the whole check is one load.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::device::Device;
use crate::error::{Error, Result};

/// The longest time that a call waits for pending jobs of streams.
const LIMIT: Duration = Duration::from_secs(1);

/// The pause between two checks of the pending jobs.
const PAUSE: Duration = Duration::from_micros(50);

/// Engines of this process.
static ENGINES: AtomicUsize = AtomicUsize::new(0);

/// The gates of contexts that have engines.
static GATES: Mutex<Vec<Member>> = Mutex::new(Vec::new());

/// An engine's report about its jobs.
pub(crate) trait StreamJobs: Send + Sync {
    /// The number of a job that a stream waits for, and that is not done but will be.
    fn waited_for(&self) -> Option<u32>;
}

struct Member {
    context: usize,
    engines: usize,
    gate: Arc<Gate>,
}

/// State of a context: it excludes streams that begin to wait for jobs from calls that wait for all
/// streams.
#[derive(Default)]
struct Gate {
    /// Locked for reading by calls that let streams wait, and for writing by calls that wait for
    /// all streams.
    streams: RwLock<()>,
    engines: Mutex<Vec<Weak<dyn StreamJobs>>>,
    /// Deferred frees, requested while a stream waited.
    deferred: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

/// Calls the driver when no stream of the context waits for a job. No stream can begin to wait
/// during the call.
///
/// # Errors
/// [`Error::StreamWaits`] if one still does after a second: `call` is not called then.
pub(super) fn alone<R>(device: &Device, name: &'static str, call: impl FnOnce() -> R) -> Result<R> {
    match gate_of(device) {
        None => Ok(call()),
        Some(gate) => gate.alone(name, LIMIT, call),
    }
}

/// Frees something now. While a stream waits for a job, the free is deferred to a later call of
/// this kind or to the end of the engine.
pub(super) fn release(device: &Device, free: impl FnOnce() + Send + 'static) {
    match gate_of(device) {
        None => free(),
        Some(gate) => gate.release(free),
    }
}

/// Waits until no stream of the context waits for a job.
pub(super) fn settle(device: &Device) {
    if let Some(gate) = gate_of(device) {
        while gate.waited_for().is_some() {
            thread::sleep(PAUSE);
        }
    }
}

impl Device {
    /// Waits for all work in the context, on every stream: first for jobs of resident engines that
    /// streams wait for.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of any earlier asynchronous work.
    pub fn synchronize(&self) -> Result<()> {
        settle(self);
        let _current = self.enter()?;
        let driver = self.driver();
        // SAFETY: the context is current.
        driver.check("cuCtxSynchronize", unsafe { (driver.api().cuCtxSynchronize)() })
    }
}

fn gate_of(device: &Device) -> Option<Arc<Gate>> {
    if ENGINES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let context = device.context().as_raw() as usize;
    let gates = lock(&GATES);
    gates.iter().find(|member| member.context == context).map(|member| member.gate.clone())
}

/// An engine's part in this: as long as it lives, calls of its context ask whether streams wait for
/// its jobs. To be dropped after all else that the engine has.
pub(crate) struct StreamWaits {
    context: usize,
    gate: Arc<Gate>,
}

impl StreamWaits {
    /// Registers an engine in the device's context. Must be created before the engine's other
    /// objects.
    pub(crate) fn new(device: &Device) -> Self {
        ENGINES.fetch_add(1, Ordering::Relaxed);
        let context = device.context().as_raw() as usize;
        let mut gates = lock(&GATES);
        let gate = match gates.iter_mut().find(|member| member.context == context) {
            Some(member) => {
                member.engines += 1;
                member.gate.clone()
            }
            None => {
                let gate = Arc::<Gate>::default();
                gates.push(Member { context, engines: 1, gate: gate.clone() });
                gate
            }
        };
        StreamWaits { context, gate }
    }

    /// Whom to ask.
    pub(crate) fn ask(&self, engine: Weak<dyn StreamJobs>) {
        lock(&self.gate.engines).push(engine);
    }

    /// Lets a stream wait for a job, at a time when no call waits for all streams.
    pub(crate) fn enqueue<R>(&self, enqueue: impl FnOnce() -> R) -> R {
        let _shared = self.gate.streams.read().unwrap_or_else(PoisonError::into_inner);
        enqueue()
    }

    /// Runs `action` while no stream can begin to wait for a job.
    pub(crate) fn hold_up<R>(&self, action: impl FnOnce() -> R) -> R {
        let _alone = self.gate.streams.write().unwrap_or_else(PoisonError::into_inner);
        action()
    }
}

impl Drop for StreamWaits {
    fn drop(&mut self) {
        self.gate.free_deferred();
        let mut gates = lock(&GATES);
        if let Some(at) = gates.iter().position(|member| member.context == self.context) {
            gates[at].engines -= 1;
            if gates[at].engines == 0 {
                gates.swap_remove(at);
            }
        }
        drop(gates);
        ENGINES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    fn alone<R>(&self, name: &'static str, limit: Duration, call: impl FnOnce() -> R) -> Result<R> {
        let begin = Instant::now();
        let mut call = Some(call);
        loop {
            let tried = self.with_waits(|waited_for| match waited_for {
                None => Ok(call.take().map(|call| call())),
                Some(job) => Err(job),
            });
            match tried {
                Ok(Some(result)) => return Ok(result),
                Err(job) if begin.elapsed() >= limit => {
                    return Err(Error::StreamWaits { call: name, job, waited: limit });
                }
                _ => thread::sleep(PAUSE),
            }
        }
    }

    fn release(&self, free: impl FnOnce() + Send + 'static) {
        self.with_waits(|waited_for| match waited_for {
            None => free(),
            // The engine that has the job is alive, and frees it at its end.
            Some(_) => lock(&self.deferred).push(Box::new(free)),
        });
    }

    /// Performs the deferred frees, unless a stream waits for a job of another engine.
    fn free_deferred(&self) {
        self.with_waits(|_| ());
    }

    /// Calls with the job that a stream waits for; where there is none, after freeing what was
    /// kept. No stream begins to wait meanwhile.
    fn with_waits<R>(&self, call: impl FnOnce(Option<u32>) -> R) -> R {
        // An upgraded reference may be the last one of its engine, and dropping it frees memory. So
        // it is dropped after the lock.
        let engines: Vec<_>;
        let _alone = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        engines = self.alive();
        let waited_for = engines.iter().find_map(|engine| engine.waited_for());
        if waited_for.is_none() {
            let deferred = std::mem::take(&mut *lock(&self.deferred));
            deferred.into_iter().for_each(|free| free());
        }
        call(waited_for)
    }

    fn waited_for(&self) -> Option<u32> {
        self.alive().iter().find_map(|engine| engine.waited_for())
    }

    fn alive(&self) -> Vec<Arc<dyn StreamJobs>> {
        let mut engines = lock(&self.engines);
        engines.retain(|engine| engine.strong_count() > 0);
        engines.iter().filter_map(Weak::upgrade).collect()
    }
}

/// No holder panics between two changes that belong together.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// The job that the stream waits for, or 0 for none.
    #[derive(Default)]
    struct Jobs(AtomicU32);

    impl StreamJobs for Jobs {
        fn waited_for(&self) -> Option<u32> {
            Some(self.0.load(Ordering::SeqCst)).filter(|job| *job != 0)
        }
    }

    fn gate(jobs: &Arc<Jobs>) -> Arc<Gate> {
        let gate = Arc::<Gate>::default();
        let weak = Arc::downgrade(jobs);
        lock(&gate.engines).push(weak);
        gate
    }

    #[test]
    fn a_call_waits_for_jobs_and_is_refused_in_the_end() {
        let jobs = Arc::<Jobs>::default();
        let gate = gate(&jobs);
        assert_eq!(gate.alone("cuMemAlloc", Duration::ZERO, || 3).unwrap(), 3);
        jobs.0.store(7, Ordering::SeqCst);
        let mut called = false;
        let limit = Duration::from_millis(20);
        let refused = gate.alone("cuMemAlloc", limit, || called = true).unwrap_err().to_string();
        assert!(
            !called && refused.contains("cuMemAlloc") && refused.contains("job 7"),
            "{refused}"
        );
        let ends = jobs.clone();
        let ender = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            ends.0.store(0, Ordering::SeqCst);
        });
        let long = Duration::from_secs(60);
        let seen = gate.alone("cuMemAlloc", long, || jobs.0.load(Ordering::SeqCst));
        assert_eq!(seen.unwrap(), 0);
        ender.join().unwrap();
    }

    #[test]
    fn what_is_freed_meanwhile_is_freed_before_the_next_call() {
        let jobs = Arc::<Jobs>::default();
        let gate = gate(&jobs);
        let order = Arc::<Mutex<Vec<u32>>>::default();
        let note = |number| {
            let order = order.clone();
            move || lock(&order).push(number)
        };
        gate.release(note(1));
        jobs.0.store(7, Ordering::SeqCst);
        gate.release(note(2));
        gate.free_deferred();
        assert_eq!(*lock(&order), [1], "a stream waits");
        jobs.0.store(0, Ordering::SeqCst);
        gate.alone("cuMemAlloc", Duration::ZERO, note(3)).unwrap();
        assert_eq!(*lock(&order), [1, 2, 3]);
        jobs.0.store(7, Ordering::SeqCst);
        gate.release(note(4));
        // The engine ends.
        drop(jobs);
        gate.free_deferred();
        assert_eq!(*lock(&order), [1, 2, 3, 4]);
    }

    #[test]
    fn no_stream_begins_to_wait_during_a_call() {
        let jobs = Arc::<Jobs>::default();
        let waits = StreamWaits { context: 0, gate: gate(&jobs) };
        // The end of `waits` counts it out.
        ENGINES.fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        waits.enqueue(|| jobs.0.fetch_add(1, Ordering::SeqCst));
                        jobs.0.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..500 {
                let seen = waits.gate.alone("cuMemAlloc", Duration::from_secs(60), || {
                    std::hint::spin_loop();
                    jobs.0.load(Ordering::SeqCst)
                });
                assert_eq!(seen.unwrap(), 0);
            }
        });
    }

    /// An engine whose last handle goes while it is asked, and which frees something at its end.
    struct Last {
        own: Mutex<Option<Arc<Last>>>,
        gate: Arc<Gate>,
        freed: Arc<AtomicU32>,
    }

    impl StreamJobs for Last {
        fn waited_for(&self) -> Option<u32> {
            drop(lock(&self.own).take());
            None
        }
    }

    impl Drop for Last {
        fn drop(&mut self) {
            let freed = self.freed.clone();
            self.gate.release(move || freed.store(1, Ordering::SeqCst));
        }
    }

    #[test]
    fn an_engine_may_end_while_it_is_asked() {
        let (gate, freed) = (Arc::<Gate>::default(), Arc::<AtomicU32>::default());
        let last = Last { own: Mutex::default(), gate: gate.clone(), freed: freed.clone() };
        let last = Arc::new(last);
        *lock(&last.own) = Some(last.clone());
        let weak = Arc::downgrade(&last);
        lock(&gate.engines).push(weak);
        drop(last);
        gate.alone("cuMemAlloc", Duration::ZERO, || ()).unwrap();
        assert_eq!(freed.load(Ordering::SeqCst), 1);
    }
}
