//! Rules of the driver that the library's own tests do not come across. Tests share the context.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::device::*;
use super::graphs::*;
use super::host::*;
use super::memory::*;
use super::modules::*;
use super::streams::*;
use crate::codes::{Code, SUCCESS};
use crate::model::host::shared_word;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL` and `…_RELAXED`.
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

/// Makes the context current on this thread.
fn enter() {
    let mut context = 0;
    assert_eq!(cuInit(0), SUCCESS);
    // SAFETY: the place is valid.
    let retained = unsafe { cuDevicePrimaryCtxRetain(&mut context, 0) };
    assert_eq!((retained, cuCtxSetCurrent(context)), (SUCCESS, SUCCESS));
}

/// The result that a function writes to its first argument.
fn made<T: Default>(make: impl FnOnce(*mut T) -> u32) -> T {
    let mut value = T::default();
    assert_eq!(make(&mut value), SUCCESS);
    value
}

fn stream(flags: u32) -> usize {
    // SAFETY: `made` has a valid place.
    made(|place| unsafe { cuStreamCreate(place, flags) })
}

fn allocate(bytes: usize) -> u64 {
    // SAFETY: `made` has a valid place.
    made(|place| unsafe { cuMemAlloc_v2(place, bytes) })
}

#[test]
fn threads_without_a_context_are_refused() {
    enter();
    let other = thread::spawn(|| {
        let mut place = 0;
        // SAFETY: the places are valid.
        unsafe { (cuMemAlloc_v2(&mut place, 16), cuCtxPopCurrent_v2(&mut 0)) }
    });
    let invalid = Code::INVALID_CONTEXT.0;
    assert_eq!(other.join().unwrap(), (invalid, invalid));
    assert_eq!(cuCtxPushCurrent_v2(5), invalid);
    assert_eq!(cuCtxSetCurrent(5), invalid);
    assert_eq!(cuInit(1), Code::INVALID_VALUE.0);
    let mut device = 0;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuDeviceGet(&mut device, 1) }, Code::INVALID_DEVICE.0);
    // SAFETY: a missing place is noticed.
    assert_eq!(unsafe { cuDeviceGetCount(null_mut()) }, Code::INVALID_VALUE.0);
}

#[test]
fn memory_is_known_and_freed_once() {
    enter();
    let address = allocate(100);
    assert!(address.is_multiple_of(256));
    let invalid = Code::INVALID_VALUE.0;
    assert_eq!(cuMemsetD8Async(address, 7, 100, 0), SUCCESS);
    for (start, bytes) in [(address, 101), (address + 100, 1), (address - 1, 1), (0, 1), (5, 1)] {
        assert_eq!(cuMemsetD8Async(start, 7, bytes, 0), invalid, "{start:#x} {bytes}");
    }
    assert_eq!(cuMemsetD32Async(address + 2, 7, 1, 0), invalid, "off its alignment");
    assert_eq!(cuMemcpyDtoDAsync_v2(address, address + 50, 51, 0), invalid);
    let mut bytes = [0u8; 4];
    // SAFETY: the host's memory is as long as is said.
    assert_eq!(unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, 4) }, SUCCESS);
    assert_eq!(bytes, [7; 4]);
    // SAFETY: the same.
    let copied = unsafe { cuMemcpyHtoD_v2(address + 96, [1u8, 2, 3, 4].as_ptr().cast(), 4) };
    assert_eq!(copied, SUCCESS);
    assert_eq!(cuMemcpyDtoDAsync_v2(address, address + 97, 2, 0), SUCCESS);
    // SAFETY: the same.
    assert_eq!(unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, 4) }, SUCCESS);
    assert_eq!(bytes, [2, 3, 7, 7]);
    assert_eq!(cuMemFree_v2(address + 1), invalid);
    assert_eq!((cuMemFree_v2(address), cuMemFree_v2(address)), (SUCCESS, invalid));
    assert_eq!(cuMemFree_v2(0), SUCCESS);
    let mut place = 0;
    // SAFETY: the place is valid.
    let refused = [0, 2 << 30].map(|bytes| unsafe { cuMemAlloc_v2(&mut place, bytes) });
    assert_eq!(refused, [invalid, Code::OUT_OF_MEMORY.0]);
}

#[test]
fn pinned_memory_is_known() {
    enter();
    let kind = |address: usize| {
        let mut kind = 0u32;
        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE.
        // SAFETY: the place is valid.
        let code = unsafe { cuPointerGetAttribute((&raw mut kind).cast(), 2, address as u64) };
        (code, kind)
    };
    let mut memory = vec![0u8; 10_000];
    let (start, invalid) = (memory.as_mut_ptr(), Code::INVALID_VALUE.0);
    let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
    assert_eq!(kind(start.addr()), (invalid, 0));
    assert_eq!(cuMemHostRegister_v2(at(0), 8000, 1), SUCCESS);
    assert_eq!((kind(start.addr()), kind(start.addr() + 7999)), ((0, 1), (0, 1)));
    assert_eq!(kind(start.addr() + 8000), (invalid, 0));
    for overlap in [at(0), at(7999)] {
        let refused = cuMemHostRegister_v2(overlap, 1, 1);
        assert_eq!(refused, Code::HOST_MEMORY_ALREADY_REGISTERED.0);
    }
    assert_eq!(cuMemHostRegister_v2(at(8000), 100, 1), SUCCESS);
    let unknown = Code::HOST_MEMORY_NOT_REGISTERED.0;
    assert_eq!(cuMemHostUnregister(at(1)), unknown);
    let ended = [at(0), at(8000), at(0)].map(|start| cuMemHostUnregister(start));
    assert_eq!(ended, [SUCCESS, SUCCESS, unknown]);
    let mut pinned = null_mut();
    // SAFETY: the place is valid.
    assert_eq!(unsafe { cuMemHostAlloc(&mut pinned, 100, 1) }, SUCCESS);
    assert_eq!((kind(pinned.addr()), kind(pinned.addr() + 100)), ((0, 1), (invalid, 0)));
    let mut device = 0;
    // SAFETY: the place is valid.
    let map =
        |place: *mut u64, at: *mut c_void| unsafe { cuMemHostGetDevicePointer_v2(place, at, 0) };
    assert_eq!(map(&mut device, pinned), SUCCESS);
    assert_eq!((kind(device as usize), kind(device as usize + 100)), ((0, 1), (invalid, 0)));
    let mut inside = 0;
    assert_eq!(map(&mut inside, pinned.wrapping_byte_add(96)), SUCCESS);
    assert_eq!((inside, map(&mut inside, pinned.wrapping_byte_add(100))), (device + 96, invalid));
    // A stream writes a word, and waits for words that are large enough, as numbers that wrap.
    let word = pinned.wrapping_byte_add(96).cast::<u32>();
    assert_eq!(cuStreamWriteValue32_v2(0, inside, 3, 0), SUCCESS);
    // SAFETY: nobody else uses the memory.
    assert_eq!(unsafe { word.read() }, 3);
    for reached in [3, 2, 3u32.wrapping_sub((1 << 31) - 1)] {
        assert_eq!(cuStreamWaitValue32_v2(0, inside, reached, 0), SUCCESS);
    }
    for (address, flags, refused) in
        [(inside + 2, 0, invalid), (inside + 4, 0, invalid), (inside, 1, Code::NOT_SUPPORTED.0)]
    {
        assert_eq!(cuStreamWriteValue32_v2(0, address, 3, flags), refused);
        assert_eq!(cuStreamWaitValue32_v2(0, address, 3, flags), refused);
    }
    let later = word.expose_provenance();
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        // SAFETY: the memory is freed when this thread has ended.
        unsafe { shared_word(later) }.store(4, Ordering::Release);
    });
    assert_eq!(cuStreamWaitValue32_v2(0, inside, 4, 0), SUCCESS);
    assert!(writer.join().is_ok());
    // SAFETY: nobody uses the memory.
    let freed = [0, 1].map(|_| unsafe { cuMemFreeHost(pinned) });
    assert_eq!(freed, [SUCCESS, invalid]);
    assert_eq!(kind(device as usize), (invalid, 0));
    let address = allocate(16);
    assert_eq!(kind(address as usize), (0, 2));
    assert_eq!(cuMemFree_v2(address), SUCCESS);
}

#[test]
fn streams_have_ids_and_threads_have_their_own() {
    enter();
    let id = |stream| {
        // SAFETY: `made` has a valid place.
        made(|place: *mut u64| unsafe { cuStreamGetId(stream, place) })
    };
    // Null and 1 are the legacy stream, 2 is the thread's own.
    assert_eq!(id(0), id(1));
    assert_eq!(id(2), id(2));
    let own = stream(1);
    let other = thread::spawn(move || {
        enter();
        (id(0), id(2), id(own))
    });
    let (legacy, of_thread, of_stream) = other.join().unwrap();
    assert!(legacy == id(0) && of_stream == id(own));
    assert!(of_thread != id(2) && id(0) != id(2) && id(own) != id(2));
    assert_eq!(cuStreamDestroy_v2(own), SUCCESS);
    assert_eq!(cuStreamDestroy_v2(own), Code::INVALID_HANDLE.0);
    assert_eq!(cuStreamSynchronize(own), Code::INVALID_HANDLE.0);
    assert_eq!(cuEventRecord(own, 0), Code::INVALID_HANDLE.0);
}

#[test]
fn the_legacy_stream_would_wait_for_captures_of_blocking_streams() {
    enter();
    let end = |stream| {
        let mut graph = 7;
        // SAFETY: the place is valid.
        let code = unsafe { cuStreamEndCapture(stream, &mut graph) };
        (code, graph)
    };
    // 0 stands for a stream that waits for the legacy one.
    let (blocking, apart) = (stream(0), stream(1));
    assert_eq!(cuStreamBeginCapture_v2(apart, THREAD_LOCAL), SUCCESS);
    assert_eq!(cuStreamSynchronize(0), SUCCESS);
    let (code, graph) = end(apart);
    assert_eq!((code, cuGraphDestroy(graph)), (SUCCESS, SUCCESS));
    assert_eq!(cuStreamBeginCapture_v2(blocking, THREAD_LOCAL), SUCCESS);
    assert_eq!(cuStreamSynchronize(0), Code::STREAM_CAPTURE_IMPLICIT.0);
    assert_eq!(end(blocking), (Code::STREAM_CAPTURE_INVALIDATED.0, 0));
    assert_eq!(cuStreamSynchronize(0), SUCCESS);
    assert_eq!(cuStreamBeginCapture_v2(0, THREAD_LOCAL), Code::STREAM_CAPTURE_UNSUPPORTED.0);
    assert_eq!(end(blocking).0, Code::INVALID_VALUE.0, "no capture");
}

#[test]
fn captures_are_of_their_thread_unless_they_are_relaxed() {
    enter();
    let own = stream(1);
    let end = move || {
        // SAFETY: the place is valid.
        unsafe { cuStreamEndCapture(own, &mut 0) }
    };
    let elsewhere = move || {
        thread::spawn(move || {
            enter();
            end()
        })
        .join()
        .unwrap()
    };
    assert_eq!(cuStreamBeginCapture_v2(own, THREAD_LOCAL), SUCCESS);
    assert_eq!(cuStreamBeginCapture_v2(own, THREAD_LOCAL), Code::INVALID_VALUE.0);
    assert_eq!(elsewhere(), Code::STREAM_CAPTURE_WRONG_THREAD.0);
    assert_eq!(end(), SUCCESS);
    assert_eq!(cuStreamBeginCapture_v2(own, RELAXED), SUCCESS);
    assert_eq!(cuMemFree_v2(allocate(16)), SUCCESS, "allowed meanwhile");
    assert_eq!(elsewhere(), SUCCESS);
    // Modules cannot be unloaded meanwhile.
    assert_eq!(cuStreamBeginCapture_v2(own, THREAD_LOCAL), SUCCESS);
    assert_eq!(cuModuleUnload(7), Code::STREAM_CAPTURE_UNSUPPORTED.0);
    assert_eq!(end(), Code::STREAM_CAPTURE_INVALIDATED.0);
    assert_eq!(cuModuleUnload(7), Code::INVALID_HANDLE.0);
    // A thread may allow itself what captures forbid.
    assert_eq!(cuStreamBeginCapture_v2(own, THREAD_LOCAL), SUCCESS);
    let mut mode = RELAXED;
    // SAFETY: the place is valid.
    assert_eq!((unsafe { cuThreadExchangeStreamCaptureMode(&mut mode) }, mode), (SUCCESS, 0));
    assert_eq!(cuMemFree_v2(allocate(16)), SUCCESS);
    // SAFETY: the place is valid.
    assert_eq!((unsafe { cuThreadExchangeStreamCaptureMode(&mut mode) }, mode), (SUCCESS, RELAXED));
    assert_eq!(end(), SUCCESS);
}

/// Events of other captures, or of none, end a capture that waits for them.
#[test]
fn captures_do_not_wait_for_work_outside() {
    enter();
    let streams = [stream(1), stream(1)];
    // SAFETY: `made` has a valid place.
    let event = made(|place| unsafe { cuEventCreate(place, 2) });
    let end = |stream| {
        // SAFETY: the place is valid.
        unsafe { cuStreamEndCapture(stream, &mut 0) }
    };
    assert_eq!(cuEventRecord(event, streams[1]), SUCCESS);
    assert_eq!(cuStreamBeginCapture_v2(streams[0], THREAD_LOCAL), SUCCESS);
    assert_eq!(cuStreamWaitEvent(streams[0], event, 0), Code::STREAM_CAPTURE_ISOLATION.0);
    assert_eq!(end(streams[0]), Code::STREAM_CAPTURE_INVALIDATED.0);
    for stream in streams {
        assert_eq!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL), SUCCESS);
    }
    assert_eq!(cuEventRecord(event, streams[1]), SUCCESS);
    assert_eq!(cuStreamWaitEvent(streams[0], event, 0), Code::STREAM_CAPTURE_MERGE.0);
    assert_eq!(streams.map(end), [Code::STREAM_CAPTURE_INVALIDATED.0; 2]);
    // A stream that joined a capture cannot end it.
    assert_eq!(cuStreamBeginCapture_v2(streams[0], THREAD_LOCAL), SUCCESS);
    assert_eq!(cuEventRecord(event, streams[0]), SUCCESS);
    assert_eq!(cuStreamWaitEvent(streams[1], event, 0), SUCCESS);
    assert_eq!(end(streams[1]), Code::STREAM_CAPTURE_UNMATCHED.0);
    assert_eq!(end(streams[0]), Code::STREAM_CAPTURE_INVALIDATED.0);
    assert_eq!(cuEventDestroy_v2(event), SUCCESS);
}

unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the test passes a counter that is never freed.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

/// Waits until a destructor was called, and returns how often.
fn calls(counter: &AtomicU32) -> u32 {
    for _ in 0..500 {
        if counter.load(Ordering::SeqCst) > 0 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    counter.load(Ordering::SeqCst)
}

#[test]
fn objects_live_as_long_as_graphs_and_references() {
    static RELEASED: AtomicU32 = AtomicU32::new(0);
    static KEPT: AtomicU32 = AtomicU32::new(0);
    enter();
    let object = |counter: &'static AtomicU32, references| {
        let argument = std::ptr::from_ref(counter).cast_mut().cast();
        // SAFETY: the destructor may be called at any time.
        made(|place| unsafe { cuUserObjectCreate(place, argument, Some(count), references, 1) })
    };
    let invalid = Code::INVALID_VALUE.0;
    let mut place = 0usize;
    // SAFETY: the place is valid, and what is missing is noticed.
    unsafe {
        assert_eq!(cuUserObjectCreate(&mut place, null_mut(), Some(count), 0, 1), invalid);
        assert_eq!(cuUserObjectCreate(null_mut(), null_mut(), Some(count), 1, 1), invalid);
        assert_eq!(cuUserObjectCreate(&mut place, null_mut(), None, 1, 1), invalid);
    }
    let released = object(&RELEASED, 2);
    assert_eq!(cuUserObjectRelease(released, 3), invalid);
    assert_eq!(cuUserObjectRelease(released, 1), SUCCESS);
    assert_eq!(RELEASED.load(Ordering::SeqCst), 0);
    assert_eq!(cuUserObjectRelease(released, 1), SUCCESS);
    assert_eq!((calls(&RELEASED), cuUserObjectRelease(released, 1)), (1, invalid));

    let (own, kept) = (stream(1), object(&KEPT, 1));
    assert_eq!(cuStreamBeginCapture_v2(own, THREAD_LOCAL), SUCCESS);
    // SAFETY: `made` has a valid place.
    let graph: usize = made(|place| unsafe { cuStreamEndCapture(own, place) });
    // 1 gives the caller's reference to the graph.
    assert_eq!(cuGraphRetainUserObject(graph, kept, 1, 1), SUCCESS);
    assert_eq!(cuUserObjectRelease(kept, 1), invalid);
    // SAFETY: `made` has a valid place.
    let launchable = made(|place| unsafe { cuGraphInstantiateWithFlags(place, graph, 0) });
    assert_eq!(cuGraphDestroy(graph), SUCCESS);
    // SAFETY: the graph is empty.
    assert_eq!(unsafe { cuGraphLaunch(launchable, own) }, SUCCESS);
    assert_eq!(KEPT.load(Ordering::SeqCst), 0);
    assert_eq!((cuGraphExecDestroy(launchable), calls(&KEPT)), (SUCCESS, 1));
    // SAFETY: the graph is gone.
    assert_eq!(unsafe { cuGraphLaunch(launchable, own) }, invalid);
}

#[test]
fn the_name_is_cut_off_at_the_end_of_its_place() {
    enter();
    let name = |length: i32| {
        let mut place = [b'?'; 32];
        // SAFETY: the place has more bytes than is said.
        let code = unsafe { cuDeviceGetName(place.as_mut_ptr().cast(), length, 0) };
        (code, String::from_utf8(place.to_vec()).unwrap())
    };
    assert_eq!(name(9), (SUCCESS, "Emulated\0".to_owned() + &"?".repeat(23)));
    assert_eq!(name(32), (SUCCESS, "Emulated Hopper\0".to_owned() + &"?".repeat(16)));
    assert_eq!((name(0).0, name(-1).0), (Code::INVALID_VALUE.0, Code::INVALID_VALUE.0));
}
