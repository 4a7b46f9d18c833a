//! Work that is enqueued: it becomes part of a capture, or is done at once.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::codes::{Code, Outcome};
use crate::model::host::shared_word;
use crate::model::work::{HostCall, Op, Word};
use crate::state::{State, in_context, on_own_thread, with_state};

/// How long a stream waits for a word at most, and between two looks.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);

/// Enqueues what `make` makes.
///
/// # Safety
/// The memory of the host that the work uses must be there, for nobody else, until the stream has
/// passed the work, and its functions may be called until then.
pub(crate) unsafe fn enqueue(
    stream: usize,
    make: impl FnOnce(&mut State) -> Outcome<Op>,
) -> Outcome {
    let rest = in_context(|state| {
        let key = state.stream_key(stream)?;
        let capture = state.capture_for_work(key)?;
        let op = make(state)?;
        match capture {
            Some(capture) => state.record(capture, key, op).map(|()| Rest::Nothing),
            // SAFETY: the caller's.
            None => unsafe { perform(state, &op) },
        }
    })?;
    // SAFETY: the caller's.
    unsafe { finish(rest) }
}

/// Enqueues a launch of all these.
///
/// # Safety
/// The same as for [`enqueue`], for each of them.
pub(crate) unsafe fn enqueue_all(stream: usize, ops: &[Op]) -> Outcome {
    for op in ops {
        // SAFETY: the caller's.
        unsafe { enqueue(stream, |_| Ok(op.clone())) }?;
    }
    Ok(())
}

/// What is left of a piece of work, which may take its time.
enum Rest {
    Nothing,
    Call(HostCall),
    /// Until the word of the host's at this place is large enough.
    Wait(usize, u32),
}

/// Does what is left, without the lock.
///
/// # Safety
/// A function may be called now, and a word that is waited for is there.
unsafe fn finish(rest: Rest) -> Outcome {
    match rest {
        Rest::Nothing => Ok(()),
        // SAFETY: the caller's.
        Rest::Call(call) => on_own_thread(move || unsafe { call.call() }),
        Rest::Wait(place, least) => {
            let begin = Instant::now();
            // SAFETY: the caller's.
            while unsafe { shared_word(place) }.load(Ordering::Acquire).wrapping_sub(least)
                > u32::MAX / 2
            {
                if begin.elapsed() > LONGEST_WAIT {
                    let why = format!("a stream has waited for a word for {LONGEST_WAIT:?}");
                    with_state(|state| state.fail(Code::LAUNCH_FAILED, &why));
                    return Ok(());
                }
                thread::sleep(BETWEEN_LOOKS);
            }
            Ok(())
        }
    }
}

/// Does the work, apart from what may take its time, which is returned. Faults are noted, as those
/// of a device, which tells them to a later call.
///
/// # Safety
/// The memory of the host that a transfer uses must be there, for nobody else.
unsafe fn perform(state: &mut State, op: &Op) -> Outcome<Rest> {
    match op {
        Op::Transfer(transfer) => {
            // SAFETY: the caller's.
            if let Err(code) = unsafe { state.memory.perform(transfer) } {
                state.fail(code, &format!("{transfer:x?} is of memory that was freed"));
            }
        }
        Op::Kernel(launch) => {
            if let Err(why) = launch.run(&mut state.memory.memory, &mut state.host) {
                state.fail(Code::LAUNCH_FAILED, &why);
            }
        }
        Op::Product(product) => {
            if let Err(code) = product.run(&mut state.memory) {
                state.fail(code, &format!("{product:x?} is of memory that is not there"));
            }
        }
        Op::Write(Word { address, value }) => {
            let place = state.host.behind(*address).ok_or(Code::INVALID_VALUE)?;
            // SAFETY: the place is that of a word which is mapped.
            unsafe { shared_word(place) }.store(*value, Ordering::Release);
        }
        Op::Wait(Word { address, value }) => {
            let place = state.host.behind(*address).ok_or(Code::INVALID_VALUE)?;
            return Ok(Rest::Wait(place, *value));
        }
        Op::Host(call) => return Ok(Rest::Call(*call)),
    }
    Ok(Rest::Nothing)
}
