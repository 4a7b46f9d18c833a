//! Memory of the device: `cuMem…`.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype};

use crate::codes::Code;
use crate::enqueue::enqueue;
use crate::model::memory::{HostPlace, Lines, TOTAL_BYTES, Transfer};
use crate::model::work::Op;
use crate::state::{State, in_context, put, report};

/// Enqueues a transfer.
///
/// # Safety
/// The memory of the host must be there, for nobody else, until the stream has passed it.
unsafe fn transfer(stream: usize, transfer: Transfer) -> c_uint {
    report(|| {
        let make = |state: &mut State| {
            state.memory.check_transfer(&transfer)?;
            Ok(Op::Transfer(transfer))
        };
        // SAFETY: the caller's.
        unsafe { enqueue(stream, make) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_uint {
    report(|| {
        in_context(|state| {
            // SAFETY: the caller passes places for the results.
            unsafe {
                put(free, state.memory.free_bytes())?;
                put(total, TOTAL_BYTES)
            }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_uint {
    report(|| {
        in_context(|state| {
            state.unsafe_in_captures()?;
            let allocated = state.memory.allocate(bytes)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(address, allocated) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemFree_v2(address: u64) -> c_uint {
    report(|| {
        in_context(|state| {
            state.unsafe_in_captures()?;
            state.memory.free(address)
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    device: u64,
    host: *const c_void,
    bytes: usize,
    stream: usize,
) -> c_uint {
    let (host, lines) = (HostPlace::of(host), Lines::one(bytes));
    // SAFETY: the caller keeps the memory until the stream has passed the copy.
    unsafe { transfer(stream, Transfer::ToDevice { host, device, lines }) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    host: *mut c_void,
    device: u64,
    bytes: usize,
    stream: usize,
) -> c_uint {
    let (host, lines) = (HostPlace::of(host), Lines::one(bytes));
    // SAFETY: the caller keeps the memory until the stream has passed the copy.
    unsafe { transfer(stream, Transfer::ToHost { host, device, lines }) }
}

/// The copies without a stream are of the legacy default stream.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyHtoD_v2(
    device: u64,
    host: *const c_void,
    bytes: usize,
) -> c_uint {
    // SAFETY: the caller's.
    unsafe { cuMemcpyHtoDAsync_v2(device, host, bytes, 0) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoH_v2(
    host: *mut c_void,
    device: u64,
    bytes: usize,
) -> c_uint {
    // SAFETY: the caller's.
    unsafe { cuMemcpyDtoHAsync_v2(host, device, bytes, 0) }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyDtoDAsync_v2(
    target: u64,
    source: u64,
    bytes: usize,
    stream: usize,
) -> c_uint {
    // SAFETY: no memory of the host's.
    unsafe { transfer(stream, Transfer::OnDevice { target, source, bytes }) }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemsetD8Async(
    target: u64,
    value: u8,
    bytes: usize,
    stream: usize,
) -> c_uint {
    // SAFETY: no memory of the host's.
    unsafe { transfer(stream, Transfer::Fill { target, pattern: [value; 4], bytes }) }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemsetD32Async(
    target: u64,
    value: u32,
    words: usize,
    stream: usize,
) -> c_uint {
    match words.checked_mul(4).filter(|_| target.is_multiple_of(4)) {
        Some(bytes) => {
            let fill = Transfer::Fill { target, pattern: value.to_le_bytes(), bytes };
            // SAFETY: no memory of the host's.
            unsafe { transfer(stream, fill) }
        }
        None => Code::INVALID_VALUE.0,
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpy2DAsync_v2(
    copy: *const CUDA_MEMCPY2D,
    stream: usize,
) -> c_uint {
    if copy.is_null() {
        return Code::INVALID_VALUE.0;
    }
    // SAFETY: the caller passes a description. The kinds of memory are C enums, which may have any
    // value.
    let (source, target) = unsafe {
        let source = (&raw const (*copy).srcMemoryType).cast::<u32>().read();
        (source, (&raw const (*copy).dstMemoryType).cast::<u32>().read())
    };
    let on_host = CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    let on_device = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
    let known = |kind| kind == on_host || kind == on_device;
    if !known(source) || !known(target) {
        return Code::NOT_SUPPORTED.0;
    }
    // SAFETY: the caller passes a description, whose enums have values that they know.
    let copy = unsafe { copy.read() };
    if [copy.srcXInBytes, copy.srcY, copy.dstXInBytes, copy.dstY] != [0; 4] || source == target {
        return Code::NOT_SUPPORTED.0;
    }
    let lines = |host_pitch, device_pitch| Lines {
        count: copy.Height,
        bytes: copy.WidthInBytes,
        host_pitch,
        device_pitch,
    };
    if copy.srcPitch < copy.WidthInBytes || copy.dstPitch < copy.WidthInBytes {
        return Code::INVALID_VALUE.0;
    }
    let copied = if source == on_host {
        Transfer::ToDevice {
            host: HostPlace::of(copy.srcHost),
            device: copy.dstDevice,
            lines: lines(copy.srcPitch, copy.dstPitch),
        }
    } else {
        Transfer::ToHost {
            host: HostPlace::of(copy.dstHost),
            device: copy.srcDevice,
            lines: lines(copy.dstPitch, copy.srcPitch),
        }
    };
    // SAFETY: the caller keeps the memory until the stream has passed the copy.
    unsafe { transfer(stream, copied) }
}
