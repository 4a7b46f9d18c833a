//! Work that is enqueued: it becomes part of a capture, or is done at once.

use crate::codes::{Code, Outcome};
use crate::model::work::{HostCall, Op};
use crate::state::{State, in_context, on_own_thread};

/// Enqueues what `make` makes.
///
/// # Safety
/// The memory of the host that the work uses must be there, for nobody else, until the stream has
/// passed the work, and its functions may be called until then.
pub(crate) unsafe fn enqueue(
    stream: usize,
    make: impl FnOnce(&mut State) -> Outcome<Op>,
) -> Outcome {
    let call = in_context(|state| {
        let key = state.stream_key(stream)?;
        let capture = state.capture_for_work(key)?;
        let op = make(state)?;
        match capture {
            Some(capture) => state.record(capture, key, op).map(|()| None),
            // SAFETY: the caller's.
            None => unsafe { perform(state, &op) },
        }
    })?;
    // SAFETY: the caller's.
    unsafe { finish(call) }
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

/// Calls the function that was enqueued, without the lock: it may take its time.
///
/// # Safety
/// The function may be called now.
unsafe fn finish(call: Option<HostCall>) -> Outcome {
    match call {
        // SAFETY: the caller's.
        Some(call) => on_own_thread(move || unsafe { call.call() }),
        None => Ok(()),
    }
}

/// Does the work, apart from the call of a function, which is returned. Faults are noted, as those
/// of a device, which tells them to a later call.
///
/// # Safety
/// The memory of the host that a transfer uses must be there, for nobody else.
unsafe fn perform(state: &mut State, op: &Op) -> Outcome<Option<HostCall>> {
    match op {
        Op::Transfer(transfer) => {
            // SAFETY: the caller's.
            if let Err(code) = unsafe { state.memory.perform(transfer) } {
                state.fail(code, &format!("{transfer:x?} is of memory that was freed"));
            }
        }
        Op::Kernel(launch) => {
            if let Err(why) = launch.run(&mut state.memory.memory) {
                state.fail(Code::LAUNCH_FAILED, &why);
            }
        }
        Op::Product(product) => {
            if let Err(code) = product.run(&mut state.memory) {
                state.fail(code, &format!("{product:x?} is of memory that is not there"));
            }
        }
        Op::Host(call) => return Ok(Some(*call)),
    }
    Ok(None)
}
