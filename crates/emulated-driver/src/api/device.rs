//! The driver, its one device, and the device's primary context.

use std::ffi::{c_char, c_int, c_uint};

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use pgemm_ir::MAX_SMEM_BYTES;

use crate::codes::{Code, Outcome};
use crate::model::memory::TOTAL_BYTES;
use crate::model::{NAME, SMS};
use crate::state::{CONTEXT, contexts, in_context, initialised, put, report, with_state};

/// The CUDA version that the driver says it has: 12.8.
const VERSION: c_int = 12_080;
/// The only device.
const DEVICE: c_int = 0;
const UUID: [u8; 16] = *b"emulated hopper0";

/// The UUID as NVML writes it.
pub(super) fn uuid_text() -> String {
    let digits = UUID.map(|byte| format!("{byte:02x}")).concat();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    format!("GPU-{}", parts.join("-"))
}

fn check_device(device: c_int) -> Outcome {
    if device == DEVICE { Ok(()) } else { Err(Code::INVALID_DEVICE) }
}

/// The value of an attribute, for those that the library and `cudarc` ask for.
fn attribute(number: u32) -> Option<c_int> {
    Some(match number {
        n if n == Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as u32 => 9,
        n if n == Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as u32 => 0,
        n if n == Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as u32 => SMS as c_int,
        // Measurements use several times as much memory.
        n if n == Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE as u32 => 1 << 16,
        n if n == Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as u32 => {
            MAX_SMEM_BYTES as c_int
        }
        n if n == Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE as u32 => 2_619_000,
        n if n == Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH as u32 => 5120,
        n if n == Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as u32 => 0,
        _ => return None,
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    // SAFETY: the caller passes a place for the result.
    report(|| unsafe { put(version, VERSION) })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuInit(flags: c_uint) -> c_uint {
    report(|| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        with_state(|state| state.initialised = true);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGetErrorName(code: c_uint, name: *mut *const c_char) -> c_uint {
    report(|| {
        let found = Code::name(code);
        let text = found.map_or(std::ptr::null(), |text| text.as_ptr());
        // SAFETY: the caller passes a place for the result.
        unsafe { put(name, text) }?;
        found.map(drop).ok_or(Code::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGetErrorString(code: c_uint, text: *mut *const c_char) -> c_uint {
    // SAFETY: the same.
    unsafe { cuGetErrorName(code, text) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    // SAFETY: the caller passes a place for the result.
    report(|| initialised(|_| unsafe { put(count, 1) }))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_uint {
    report(|| {
        initialised(|_| {
            check_device(ordinal)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(device, DEVICE) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    number: c_uint,
    device: c_int,
) -> c_uint {
    report(|| {
        initialised(|_| {
            check_device(device)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(value, attribute(number).ok_or(Code::INVALID_VALUE)?) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetName(
    name: *mut c_char,
    length: c_int,
    device: c_int,
) -> c_uint {
    report(|| {
        initialised(|_| {
            check_device(device)?;
            let length = usize::try_from(length).map_err(|_| Code::INVALID_VALUE)?;
            if name.is_null() || length == 0 {
                return Err(Code::INVALID_VALUE);
            }
            let text = NAME.as_bytes();
            let copied = text.len().min(length - 1);
            // SAFETY: the caller's buffer has `length` bytes, which these and the zero are at most.
            unsafe {
                name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), copied);
                name.add(copied).write(0);
            }
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_uint {
    report(|| {
        initialised(|_| {
            check_device(device)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(uuid, UUID) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_uint {
    report(|| {
        initialised(|_| {
            check_device(device)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(bytes, TOTAL_BYTES) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut usize,
    device: c_int,
) -> c_uint {
    report(|| {
        initialised(|state| {
            check_device(device)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(context, CONTEXT) }?;
            state.retained += 1;
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_uint {
    report(|| {
        initialised(|state| {
            check_device(device)?;
            state.retained = state.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
            if state.retained == 0 {
                state.destroy_context();
            }
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_uint {
    report(|| {
        initialised(|_| {
            let current = contexts(|all| all.last().copied());
            // SAFETY: the caller passes a place for the result.
            unsafe { put(context, current.unwrap_or(0)) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSetCurrent(context: usize) -> c_uint {
    report(|| {
        initialised(|_| {
            if context != 0 && context != CONTEXT {
                return Err(Code::INVALID_CONTEXT);
            }
            contexts(|all| {
                all.pop();
                all.extend((context != 0).then_some(context));
            });
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_uint {
    report(|| {
        initialised(|state| {
            if context != CONTEXT || state.retained == 0 {
                return Err(Code::INVALID_CONTEXT);
            }
            contexts(|all| all.push(context));
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> c_uint {
    report(|| {
        initialised(|_| {
            let popped = contexts(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
            // SAFETY: the caller passes a place for the result.
            unsafe { put(context, popped) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_uint {
    // SAFETY: the caller passes a place for the result.
    report(|| in_context(|_| unsafe { put(device, DEVICE) }))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> c_uint {
    report(|| {
        in_context(|_| {
            // SAFETY: the caller passes places for the results.
            unsafe {
                put(least, 0)?;
                put(greatest, -5)
            }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSynchronize() -> c_uint {
    // Work is done when it is enqueued. Captures forbid to wait for all streams.
    report(|| in_context(|state| state.unsafe_in_captures()))
}
