//! Streams and events: `cuStream…` and `cuEvent…`.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUevent_flags as EventFlags, CUstream_flags as StreamFlags,
    CUstreamWaitValue_flags as WaitFlags, CUstreamWriteValue_flags as WriteFlags,
};

use crate::codes::{Code, Outcome};
use crate::enqueue::enqueue;
use crate::model::streams::{Event, Mode, Recorded};
use crate::model::work::{Op, Word};
use crate::state::{State, exchange_mode, in_context, initialised, put, report};

/// `CU_STREAM_CAPTURE_STATUS_NONE`, `…_ACTIVE` and `…_INVALIDATED`.
const NOT_CAPTURED: c_uint = 0;
const CAPTURED: c_uint = 1;
const INVALIDATED: c_uint = 2;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamCreate(stream: *mut usize, flags: c_uint) -> c_uint {
    // SAFETY: the caller passes a place for the result.
    unsafe { cuStreamCreateWithPriority(stream, flags, 0) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut usize,
    flags: c_uint,
    _priority: c_int,
) -> c_uint {
    report(|| {
        in_context(|state| {
            if flags > StreamFlags::CU_STREAM_NON_BLOCKING as c_uint {
                return Err(Code::INVALID_VALUE);
            }
            let key = state.new_handle();
            state.make_stream(key, flags == StreamFlags::CU_STREAM_DEFAULT as c_uint);
            // SAFETY: the caller passes a place for the result.
            unsafe { put(stream, key) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_uint {
    report(|| {
        in_context(|state| {
            let found = state.streams.get(&stream).ok_or(Code::INVALID_HANDLE)?;
            if let Some(capture) = found.capture {
                state.invalidate(capture);
            }
            state.streams.remove(&stream);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamQuery(stream: usize) -> c_uint {
    cuStreamSynchronize(stream)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamSynchronize(stream: usize) -> c_uint {
    report(|| {
        in_context(|state| {
            let key = state.stream_key(stream)?;
            state.waits_for(key)
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamGetId(stream: usize, id: *mut u64) -> c_uint {
    report(|| {
        in_context(|state| {
            let key = state.stream_key(stream)?;
            let found = state.streams.get(&key).ok_or(Code::INVALID_HANDLE)?.id;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(id, found) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_uint {
    report(|| {
        in_context(|state| {
            let key = state.stream_key(stream)?;
            let recorded = find(state, event)?.recorded.clone();
            state.wait(key, recorded)
        })
    })
}

/// Enqueues an operation on a word of the host's.
fn of_word(
    stream: usize,
    word: Word,
    flags: c_uint,
    supported: c_uint,
    op: fn(Word) -> Op,
) -> c_uint {
    report(|| {
        if flags != supported {
            return Err(Code::NOT_SUPPORTED);
        }
        let make = |state: &mut State| match state.host.behind(word.address) {
            Some(_) if word.address.is_multiple_of(4) => Ok(op(word)),
            _ => Err(Code::INVALID_VALUE),
        };
        // SAFETY: the word is pinned, and the caller keeps it until the stream has passed the work.
        unsafe { enqueue(stream, make) }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamWaitValue32_v2(
    stream: usize,
    address: u64,
    value: u32,
    flags: c_uint,
) -> c_uint {
    let at_least = WaitFlags::CU_STREAM_WAIT_VALUE_GEQ as c_uint;
    of_word(stream, Word { address, value }, flags, at_least, Op::Wait)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamWriteValue32_v2(
    stream: usize,
    address: u64,
    value: u32,
    flags: c_uint,
) -> c_uint {
    let plain = WriteFlags::CU_STREAM_WRITE_VALUE_DEFAULT as c_uint;
    of_word(stream, Word { address, value }, flags, plain, Op::Write)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: c_uint) -> c_uint {
    report(|| {
        in_context(|state| {
            let mode = Mode::of(mode).ok_or(Code::INVALID_VALUE)?;
            let key = state.stream_key(stream)?;
            state.begin_capture(key, mode)
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> c_uint {
    report(|| {
        in_context(|state| {
            let key = state.stream_key(stream)?;
            let ended = state.end_capture(key);
            // SAFETY: the caller passes a place for the result.
            unsafe { put(graph, ended.unwrap_or(0)) }?;
            ended.map(drop)
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_uint) -> c_uint {
    let nowhere: *mut usize = ptr::null_mut();
    // SAFETY: the caller passes a place for the status; nothing else is asked for.
    unsafe {
        cuStreamGetCaptureInfo_v2(stream, status, nowhere.cast(), nowhere, nowhere.cast(), nowhere)
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: usize,
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut usize,
    dependencies: *mut *const c_void,
    count: *mut usize,
) -> c_uint {
    report(|| {
        in_context(|state| {
            if !dependencies.is_null() || !count.is_null() {
                return Err(Code::NOT_SUPPORTED);
            }
            let key = state.stream_key(stream)?;
            state.check_implicit(key)?;
            let capture = state.capture_of(key).and_then(|id| Some((id, state.captures.get(&id)?)));
            let found = match capture {
                None => NOT_CAPTURED,
                Some((_, capture)) if capture.is_invalid => INVALIDATED,
                Some(_) => CAPTURED,
            };
            // SAFETY: the caller passes places for the results, null for those not wanted.
            unsafe {
                put(status, found)?;
                if let Some((number, capture)) = capture.filter(|_| found == CAPTURED) {
                    if !id.is_null() {
                        put(id, number)?;
                    }
                    if !graph.is_null() {
                        put(graph, capture.graph)?;
                    }
                }
            }
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> c_uint {
    report(|| {
        initialised(|_| {
            if mode.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            // SAFETY: the caller passes a place with a mode. It is a C enum, of any value.
            let wanted = Mode::of(unsafe { mode.read() }).ok_or(Code::INVALID_VALUE)?;
            // SAFETY: the same place.
            unsafe { put(mode, exchange_mode(wanted) as c_uint) }
        })
    })
}

fn find(state: &mut State, event: usize) -> Outcome<&mut Event> {
    state.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventCreate(event: *mut usize, flags: c_uint) -> c_uint {
    report(|| {
        in_context(|state| {
            let has_time = flags & EventFlags::CU_EVENT_DISABLE_TIMING as c_uint == 0;
            let handle = state.new_handle();
            state.events.insert(handle, Event { has_time, recorded: Recorded::Never });
            // SAFETY: the caller passes a place for the result.
            unsafe { put(event, handle) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventDestroy_v2(event: usize) -> c_uint {
    report(|| in_context(|state| state.events.remove(&event).map(drop).ok_or(Code::INVALID_HANDLE)))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_uint {
    report(|| {
        in_context(|state| {
            find(state, event)?;
            let key = state.stream_key(stream)?;
            let recorded = state.mark(key)?;
            find(state, event)?.recorded = recorded;
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventQuery(event: usize) -> c_uint {
    cuEventSynchronize(event)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventSynchronize(event: usize) -> c_uint {
    report(|| {
        in_context(|state| match find(state, event)?.recorded {
            Recorded::InCapture(..) => Err(Code::CAPTURED_EVENT),
            Recorded::Never | Recorded::At(_) => Ok(()),
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: usize,
    end: usize,
) -> c_uint {
    report(|| {
        in_context(|state| {
            let mut time = |event| match find(state, event)? {
                Event { has_time: true, recorded: Recorded::At(time) } => Ok(*time),
                _ => Err(Code::INVALID_HANDLE),
            };
            let (start, end) = (time(start)?, time(end)?);
            let seconds = match end.checked_duration_since(start) {
                Some(after) => after.as_secs_f64(),
                None => -start.duration_since(end).as_secs_f64(),
            };
            // SAFETY: the caller passes a place for the result.
            unsafe { put(milliseconds, (seconds * 1e3) as f32) }
        })
    })
}
