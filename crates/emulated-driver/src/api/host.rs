//! Pinned memory of the host: `cuMemHost…`, and what pointers point to.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute};

use crate::codes::Code;
use crate::state::{in_context, put, report};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemHostAlloc(
    start: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> c_uint {
    report(|| {
        in_context(|state| {
            state.unsafe_in_captures()?;
            let allocated = state.host.allocate(bytes)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(start, allocated.cast()) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemFreeHost(start: *mut c_void) -> c_uint {
    report(|| {
        in_context(|state| {
            state.unsafe_in_captures()?;
            state.host.free(start.addr(), &mut state.memory.memory)
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    device: *mut u64,
    start: *mut c_void,
    _flags: c_uint,
) -> c_uint {
    report(|| {
        in_context(|state| {
            let address = state.host.map(start.addr(), &mut state.memory.memory)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(device, address) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemHostRegister_v2(
    start: *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> c_uint {
    report(|| {
        in_context(|state| {
            state.unsafe_in_captures()?;
            state.host.register(start.addr(), bytes)
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemHostUnregister(start: *mut c_void) -> c_uint {
    report(|| {
        in_context(|state| {
            state.unsafe_in_captures()?;
            state.host.unregister(start.addr(), &mut state.memory.memory)
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuPointerGetAttribute(
    value: *mut c_void,
    attribute: c_uint,
    address: u64,
) -> c_uint {
    report(|| {
        in_context(|state| {
            if attribute != CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32 {
                return Err(Code::NOT_SUPPORTED);
            }
            let kind = if state.memory.holds(address, 1) {
                CUmemorytype::CU_MEMORYTYPE_DEVICE
            } else if state.host.holds(address as usize) || state.host.behind(address).is_some() {
                CUmemorytype::CU_MEMORYTYPE_HOST
            } else {
                return Err(Code::INVALID_VALUE);
            };
            // SAFETY: the caller passes a place for a value of this attribute.
            unsafe { put(value.cast::<u32>(), kind as u32) }
        })
    })
}
