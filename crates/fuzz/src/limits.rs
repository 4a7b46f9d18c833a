//! What an execution may take: memory and time. The program ends if one takes more, and says with
//! which input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;
use std::{process, thread};

use crate::targets::Target;

/// The most memory that executions may hold, in bytes.
const MOST_BYTES: i64 = 512 << 20;

/// The longest time of an execution.
const LONGEST: Duration = Duration::from_secs(20);

/// Counts the bytes that are held, and refuses more than [`MOST_BYTES`] to executions.
struct Counted;

static HELD: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: all requests go to the system's allocator, or get the null pointer, which says that
// there is no memory.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let bytes = layout.size() as i64;
        let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held > MOST_BYTES && IS_RUNNING.load(Ordering::Relaxed) {
            HELD.fetch_sub(bytes, Ordering::Relaxed);
            if let Ok(running) = RUNNING.try_lock()
                && let Some((target, input)) = &*running
            {
                show(target, input, "asks for too much memory");
            }
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The execution that runs: its target and its input.
static RUNNING: Mutex<Option<(&'static str, Vec<u8>)>> = Mutex::new(None);

/// The number of executions that have begun, and whether the last one still runs.
static EXECUTIONS: AtomicU64 = AtomicU64::new(0);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Runs a target on an input, and returns whether the target accepts it.
///
/// # Panics
/// The target does. The input is printed first.
pub fn guarded(target: &Target, input: &[u8]) -> bool {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| drop(thread::spawn(watch)));
    {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, kept) = running.get_or_insert_default();
        *name = target.name;
        kept.clear();
        kept.extend_from_slice(input);
    }
    EXECUTIONS.fetch_add(1, Ordering::Relaxed);
    IS_RUNNING.store(true, Ordering::Relaxed);
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    IS_RUNNING.store(false, Ordering::Relaxed);
    outcome.unwrap_or_else(|panic| {
        show(target.name, input, "panics");
        resume_unwind(panic)
    })
}

fn show(target: &str, input: &[u8], what: &str) {
    let text = format!("{target} {what}: b\"{}\"\n", input.escape_ascii());
    // This bypasses the test harness's capture. If stderr is closed, the message is lost.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Ends the program if one execution goes on for too long.
fn watch() {
    let mut before = EXECUTIONS.load(Ordering::Relaxed);
    loop {
        thread::sleep(LONGEST);
        let now = EXECUTIONS.load(Ordering::Relaxed);
        let is_stuck = now == before && IS_RUNNING.load(Ordering::Relaxed);
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some((target, input))) = (is_stuck, &*running) {
            show(target, input, "does not end");
            process::exit(1);
        }
        before = now;
    }
}
