//! The state of the driver, behind one lock, and how the functions of its interface begin and end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use crate::codes::{Code, Outcome, SUCCESS};
use crate::model::host::HostMemory;
use crate::model::kernels::{Function, Kernels, Module};
use crate::model::memory::DeviceMemory;
use crate::model::streams::{Capture, Event, Mode, Stream};
use crate::model::work::{Graph, HeldObject};

/// The handle of the only context: the primary context of device 0.
pub(crate) const CONTEXT: usize = 0xc0;

/// Everything that the driver knows.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) initialised: bool,
    /// How often the primary context is retained. Without that there is none.
    pub(crate) retained: u32,
    /// The fault of a kernel. Every later call returns it.
    pub(crate) failed: Option<Code>,
    pub(crate) memory: DeviceMemory,
    pub(crate) host: HostMemory,
    pub(crate) kernels: Kernels,
    pub(crate) modules: BTreeMap<usize, Module>,
    pub(crate) functions: BTreeMap<usize, Function>,
    pub(crate) streams: BTreeMap<usize, Stream>,
    /// The per-thread default streams.
    pub(crate) of_threads: Vec<(ThreadId, usize)>,
    pub(crate) events: BTreeMap<usize, Event>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeMap<usize, Graph>,
    /// Instantiated graphs.
    pub(crate) launchable: BTreeMap<usize, Arc<Graph>>,
    pub(crate) objects: BTreeMap<usize, HeldObject>,
    /// Handles, streams and captures that were ever numbered.
    numbered: usize,
}

impl State {
    /// A handle, which is unique in the life of the process.
    pub(crate) fn new_handle(&mut self) -> usize {
        self.numbered += 1;
        0x1_0000 + 0x10 * self.numbered
    }

    /// Destroys the context with all that was made in it.
    pub(crate) fn destroy_context(&mut self) {
        self.memory.free_all();
        self.modules.clear();
        self.functions.clear();
        self.streams.clear();
        self.of_threads.clear();
        self.events.clear();
        self.captures.clear();
        self.graphs.clear();
        self.launchable.clear();
        self.objects.clear();
    }

    /// Notes a fault, which makes the context unusable, and says why.
    pub(crate) fn fail(&mut self, code: Code, why: &str) {
        eprintln!("emulated device: {why}");
        self.failed.get_or_insert(code);
    }
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The contexts of this thread, the current one last.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Calls with this thread's contexts. At the end of a thread there are none any more.
pub(crate) fn contexts<R: Default>(call: impl FnOnce(&mut Vec<usize>) -> R) -> R {
    CURRENT.try_with(|current| call(&mut current.borrow_mut())).unwrap_or_default()
}

/// Sets this thread's capture mode, and returns the one before.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    MODE.try_with(|held| held.replace(mode)).unwrap_or(Mode::Global)
}

/// This thread's capture mode.
pub(crate) fn thread_mode() -> Mode {
    MODE.try_with(Cell::get).unwrap_or(Mode::Global)
}

/// The result of a function, as C has it. A panic does not leave the library.
pub(crate) fn report(call: impl FnOnce() -> Outcome) -> u32 {
    match panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(Code(code))) => code,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// Calls with the state, whatever has happened before.
pub(crate) fn with_state<R>(call: impl FnOnce(&mut State) -> R) -> R {
    call(&mut STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Calls with the state once `cuInit` was called.
pub(crate) fn initialised<R>(call: impl FnOnce(&mut State) -> Outcome<R>) -> Outcome<R> {
    with_state(|state| if state.initialised { call(state) } else { Err(Code::NOT_INITIALIZED) })
}

/// Calls with the state if this thread's current context is alive and no kernel has failed.
pub(crate) fn in_context<R>(call: impl FnOnce(&mut State) -> Outcome<R>) -> Outcome<R> {
    let current = contexts(|stack| stack.last().copied());
    initialised(|state| match state.failed {
        _ if current != Some(CONTEXT) || state.retained == 0 => Err(Code::INVALID_CONTEXT),
        Some(code) => Err(code),
        None => call(state),
    })
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `place` must be null or valid for a write.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller vouches for it. It need not be aligned.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Calls a function of the caller's on a thread of the driver's, which has no context, and waits
/// for it.
pub(crate) fn on_own_thread(call: impl FnOnce() + Send) -> Outcome {
    thread::scope(|scope| scope.spawn(call).join().map_err(|_| Code::UNKNOWN))
}
