//! A host in the emulator: threads that run the engine's code, and streams. Each access of a thread
//! to the words that host and kernel share is a turn of the emulator's host. A generator of random
//! numbers chooses whose turn it is, so that a run can be repeated.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;

use pgemm_emulator::{
    Emulator, Host, HostStep, HostView, Memory, Options, Released, Report, Statistics,
};
use pgemm_ir::Launch;
use pgemm_kernels::GemmKernel;

use super::fault::Fault;
use crate::engine::words::SharedWords;
use crate::error::Result;

/// What a thread asks for. The answer is a word.
enum Request {
    Load(usize, Ordering),
    Store(usize, u32, Ordering),
    Write(usize, Vec<u32>),
    Fence(Ordering),
    /// The next work of a stream.
    Enqueue(usize, Work),
    /// To wait until the word that the thread loaded last has changed.
    Await,
    /// To let others go on.
    Yield,
    /// To sleep for so many nanoseconds of the kernel's clock.
    Sleep(u64),
    /// To wait for more than so many bells. The answer is their number, or `u32::MAX` at the end.
    AwaitBell(u32),
    EndBells,
    Launch(u32),
    /// To wait until no launch runs or waits.
    AwaitEnd,
    /// To read a word at an address without any order.
    Read(u64),
}

/// Work of a stream.
enum Work {
    Store(usize, u32),
    Wait(usize, u32),
    Bell,
    /// Lets so many turns of the host pass.
    Delay(u32),
}

/// The ends of the channels of a host thread.
struct Port {
    requests: Sender<Request>,
    answers: Receiver<u32>,
}

thread_local! {
    static PORT: RefCell<Option<Port>> = const { RefCell::new(None) };
}

/// The payload with which threads end when the emulator has ended before them.
struct EmulatorEnded;

/// Makes a request for this thread.
fn ask(request: Request) -> u32 {
    PORT.with_borrow(|port| {
        let port = port.as_ref().expect("only threads of the emulated host make requests");
        let answer = port.requests.send(request).ok().and_then(|()| port.answers.recv().ok());
        answer.unwrap_or_else(|| resume_unwind(Box::new(EmulatorEnded)))
    })
}

/// Waits until a condition holds that depends on the word that it loads last.
pub(super) fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        ask(Request::Await);
    }
}

/// Lets others go on.
pub(super) fn pause() {
    ask(Request::Yield);
}

/// Sleeps for so many nanoseconds of the kernel's clock.
pub(super) fn sleep(nanoseconds: u64) {
    ask(Request::Sleep(nanoseconds));
}

/// Launches the kernel.
pub(super) fn launch(number: u32) {
    ask(Request::Launch(number));
}

/// Waits until all launches have ended.
pub(super) fn await_end() {
    ask(Request::AwaitEnd);
}

/// Reads a word at an address. Something must have ordered this after its write.
pub(super) fn read(address: u64) -> u32 {
    ask(Request::Read(address))
}

/// Lets a stream ring the bell when it gets there.
pub(super) fn ring_bell(stream: usize) {
    ask(Request::Enqueue(stream, Work::Bell));
}

/// Gives a stream other work, which takes so many turns of the host.
pub(super) fn delay(stream: usize, turns: u32) {
    ask(Request::Enqueue(stream, Work::Delay(turns)));
}

/// Calls `answer` whenever bells have rung, until [`end_bells`] is called.
pub(super) fn answer_bells(answer: impl Fn()) {
    let mut seen = 0;
    loop {
        match ask(Request::AwaitBell(seen)) {
            u32::MAX => return,
            rung => seen = rung,
        }
        answer();
    }
}

/// Ends the thread that answers bells.
pub(super) fn end_bells() {
    ask(Request::EndBells);
}

/// The words that host and kernel share, in the memory of the emulator.
#[derive(Default)]
pub(super) struct EmulatedWords {
    /// A rule that is broken.
    fault: Option<Fault>,
    /// Entries that are held back, if that is the fault.
    held_back: Mutex<Vec<(usize, Vec<u32>)>>,
    full: AtomicBool,
}

impl EmulatedWords {
    /// Words whose accesses break a rule.
    pub(super) fn with(fault: Option<Fault>) -> Self {
        EmulatedWords { fault, ..Self::default() }
    }

    /// Notes that a submitter has found no free slot.
    pub(super) fn find_full(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    /// Whether one has.
    pub(super) fn found_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

impl SharedWords for EmulatedWords {
    type Stream<'s> = usize;

    fn load(&self, at: usize, order: Ordering) -> u32 {
        let (at, order, add) = Fault::of_load(self.fault, at, order);
        ask(Request::Load(at, order)).wrapping_add(add)
    }

    fn store(&self, at: usize, word: u32, order: Ordering) {
        let (word, order) = Fault::of_store(self.fault, at, word, order);
        ask(Request::Store(at, word, order));
        if Fault::is_ring(at) {
            let late = std::mem::take(&mut *self.held_back.lock().unwrap());
            for (at, words) in late {
                ask(Request::Write(at, words));
            }
        }
    }

    fn write(&self, at: usize, words: &[u32]) {
        let words = Fault::of_entry(self.fault, words);
        if self.fault == Some(Fault::DoorbellFirst) {
            self.held_back.lock().unwrap().push((at, words));
        } else {
            ask(Request::Write(at, words));
        }
    }

    fn fence(&self, order: Ordering) {
        if !Fault::skips_fence(self.fault, order) {
            ask(Request::Fence(order));
        }
    }

    fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        loop {
            match mutex.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    ask(Request::Yield);
                }
            }
        }
    }

    fn store_on(&self, stream: usize, at: usize, word: u32) -> Result<()> {
        let word = Fault::of_count(self.fault, word);
        ask(Request::Enqueue(stream, Work::Store(at, word)));
        Ok(())
    }

    fn wait_on(&self, stream: usize, at: usize, word: u32) -> Result<()> {
        ask(Request::Enqueue(stream, Work::Wait(at, word)));
        Ok(())
    }
}

/// A thread as the emulator sees it.
struct Thread {
    requests: Receiver<Request>,
    answers: Sender<u32>,
    /// What it asks for; `None` if that is not known yet.
    pending: Option<Request>,
    /// The place and the value of the word that it loaded last.
    loaded: Option<(usize, u32)>,
    /// The end of its sleep.
    wakes: Option<u64>,
}

/// Whether a thread or a stream can go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// Time must pass.
    Sleeps,
    /// Others must do something.
    Waits,
}

/// The host's threads and streams, as the emulator's host.
struct Threads<'l> {
    threads: Vec<Thread>,
    streams: Vec<VecDeque<(Work, Released)>>,
    bells: u32,
    bells_end: bool,
    random: u64,
    /// The address of the words that host and kernel share.
    shared: u64,
    launch: &'l dyn Fn(u32) -> Launch,
}

impl Threads<'_> {
    fn random(&mut self, below: usize) -> usize {
        // Knuth's MMIX generator.
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % below
    }

    /// Waits until it is known what each thread asks for. Nothing else runs meanwhile.
    fn hear(&mut self) {
        self.threads.retain_mut(|thread| {
            thread.pending = thread.pending.take().or_else(|| thread.requests.recv().ok());
            thread.pending.is_some()
        });
    }

    fn state_of(&mut self, thread: usize, view: &mut HostView<'_>) -> State {
        let thread = &mut self.threads[thread];
        let waits = match thread.pending {
            Some(Request::Await) => {
                let found = |(at, word)| view.load_relaxed_u32(self.shared + at as u64) == word;
                thread.loaded.is_some_and(found)
            }
            Some(Request::AwaitBell(seen)) => self.bells == seen && !self.bells_end,
            Some(Request::AwaitEnd) => view.kernel_runs(),
            Some(Request::Sleep(time)) => {
                let now = view.nanoseconds();
                if *thread.wakes.get_or_insert(now + time) > now {
                    return State::Sleeps;
                }
                false
            }
            _ => false,
        };
        if waits { State::Waits } else { State::Ready }
    }

    fn state_of_stream(&mut self, stream: usize, view: &mut HostView<'_>) -> State {
        match self.streams[stream].front_mut() {
            None => State::Waits,
            Some((Work::Wait(at, word), _)) => {
                let found = view.load_relaxed_u32(self.shared + *at as u64);
                if found.wrapping_sub(*word) > u32::MAX / 2 { State::Waits } else { State::Ready }
            }
            Some((Work::Delay(turns), _)) if *turns > 0 => {
                *turns -= 1;
                State::Sleeps
            }
            Some(_) => State::Ready,
        }
    }

    fn advance_stream(&mut self, stream: usize, view: &mut HostView<'_>) {
        match self.streams[stream].pop_front() {
            Some((Work::Store(at, word), released)) => {
                view.store_later_u32(self.shared + at as u64, word, &released);
            }
            Some((Work::Bell, _)) => self.bells += 1,
            Some((Work::Wait(..) | Work::Delay(_), _)) | None => {}
        }
    }

    fn advance(&mut self, thread: usize, view: &mut HostView<'_>) -> HostStep {
        let Some(request) = self.threads[thread].pending.take() else { return HostStep::Ran };
        let place = |at: usize| self.shared + at as u64;
        let (mut answer, mut step) = (0, HostStep::Ran);
        match request {
            Request::Load(at, order) => {
                answer = match order {
                    Ordering::Relaxed => view.load_relaxed_u32(place(at)),
                    _ => view.load_acquire_u32(place(at)),
                };
                self.threads[thread].loaded = Some((at, answer));
            }
            Request::Store(at, word, Ordering::Relaxed) => view.store_relaxed_u32(place(at), word),
            Request::Store(at, word, _) => view.store_release_u32(place(at), word),
            Request::Write(at, words) => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                view.write(place(at), &bytes);
            }
            Request::Read(address) => {
                let word = view.read(address, 4).try_into();
                answer = u32::from_le_bytes(word.expect("a word has four bytes"));
            }
            Request::Fence(Ordering::Acquire) => view.fence_acquire(),
            Request::Fence(Ordering::Release) => view.fence_release(),
            Request::Fence(_) => view.fence_seq_cst(),
            Request::Enqueue(stream, work) => {
                let released = view.released();
                self.streams[stream].push_back((work, released));
            }
            Request::AwaitBell(_) => answer = if self.bells_end { u32::MAX } else { self.bells },
            Request::EndBells => self.bells_end = true,
            Request::Launch(number) => step = HostStep::Launch((self.launch)(number)),
            Request::Await | Request::Yield | Request::AwaitEnd => {}
            Request::Sleep(_) => self.threads[thread].wakes = None,
        }
        // A thread that has ended meanwhile is found when it is heard.
        let _ = self.threads[thread].answers.send(answer);
        step
    }
}

impl Host for Threads<'_> {
    fn step(&mut self, view: &mut HostView<'_>) -> HostStep {
        self.hear();
        if self.threads.is_empty() && self.streams.iter().all(VecDeque::is_empty) {
            return HostStep::Done;
        }
        let count = self.threads.len();
        let states: Vec<State> = (0..count + self.streams.len())
            .map(|actor| match actor.checked_sub(count) {
                None => self.state_of(actor, view),
                Some(stream) => self.state_of_stream(stream, view),
            })
            .collect();
        let ready: Vec<usize> =
            (0..states.len()).filter(|&actor| states[actor] == State::Ready).collect();
        if ready.is_empty() {
            let sleeps = states.contains(&State::Sleeps);
            return if sleeps { HostStep::Ran } else { HostStep::Waits };
        }
        let actor = ready[self.random(ready.len())];
        match actor.checked_sub(count) {
            None => self.advance(actor, view),
            Some(stream) => {
                self.advance_stream(stream, view);
                HostStep::Ran
            }
        }
    }
}

/// A thread of the host.
pub(super) type Body<'t> = Box<dyn FnOnce() + Send + 't>;

/// The kernel and its memory, and how a run goes.
pub(super) struct Run<'r> {
    pub(super) kernel: &'r GemmKernel,
    pub(super) memory: &'r mut Memory,
    /// The address of the words that host and kernel share.
    pub(super) shared: u64,
    /// A launch with this number.
    pub(super) launch: &'r dyn Fn(u32) -> Launch,
    pub(super) options: Options,
    pub(super) streams: usize,
    pub(super) seed: u64,
}

/// Runs host threads beside the kernel. Launch 0 runs already, as if the engine had been launched
/// before, and leaves when it has been idle for long enough.
///
/// # Errors
/// The first fault that the emulator finds.
pub(super) fn run(run: Run<'_>, bodies: Vec<Body<'_>>) -> Result<Statistics, Box<Report>> {
    let Run { kernel, memory, shared, launch, options, streams, seed } = run;
    let (outcome, ends) = thread::scope(|scope| {
        let (mut threads, mut handles) = (vec![], vec![]);
        for body in bodies {
            let (requests, to_emulator) = channel();
            let (answers, from_emulator) = channel();
            let port = Port { requests, answers: from_emulator };
            handles.push(scope.spawn(move || {
                PORT.set(Some(port));
                let end = catch_unwind(AssertUnwindSafe(body));
                // The emulator learns in this way that the thread has ended.
                PORT.set(None);
                end
            }));
            let requests = to_emulator;
            threads.push(Thread { requests, answers, pending: None, loaded: None, wakes: None });
        }
        let mut host = Threads {
            threads,
            streams: (0..streams).map(|_| VecDeque::new()).collect(),
            bells: 0,
            bells_end: false,
            random: seed,
            shared,
            launch,
        };
        let emulator = Emulator::new(&kernel.kernel, &launch(0), memory, options);
        let outcome = emulator.expect("the kernel can be launched").with_host(&mut host).run();
        drop(host);
        let ends: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
        (outcome, ends)
    });
    for end in ends {
        if let Err(payload) = end.and_then(|end| end)
            && !payload.is::<EmulatorEnded>()
        {
            resume_unwind(payload);
        }
    }
    outcome
}
