//! A stand-in for NVML: the functions that read the sensors, with the numbers of NVIDIA's `nvml.h`.
//! The card always draws the same power.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulonglong};
use std::sync::OnceLock;
use std::time::Instant;

use super::device::uuid_text;

/// What the sensors say.
const SM_MHZ: c_uint = 1980;
const MEMORY_MHZ: c_uint = 2619;
const MILLIWATTS: c_uint = 321_500;
const LIMIT_MILLIWATTS: c_uint = 700_000;
const CELSIUS: c_uint = 41;
/// `nvmlClocksEventReasonSwPowerCap` and `nvmlClocksEventReasonGpuIdle`.
const THROTTLE_REASONS: c_ulonglong = 4 | 1;
/// How far the counter of energy lags behind.
const STEP_MILLISECONDS: u128 = 10;

/// `NVML_FI_DEV_POWER_INSTANT`.
const POWER_INSTANT: c_uint = 186;

/// An `nvmlReturn_t`.
type Return = c_uint;

const SUCCESS: Return = 0;
const INVALID_ARGUMENT: Return = 2;
const NOT_SUPPORTED: Return = 3;
const NOT_FOUND: Return = 6;

/// The handle of the only device.
const DEVICE: usize = 0xd0;

/// An `nvmlFieldValue_t`.
#[repr(C)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency: c_longlong,
    value_type: c_uint,
    result: Return,
    value: c_ulonglong,
}

/// Writes what a sensor of a device says.
///
/// # Safety
/// `place` must be valid for a write.
unsafe fn read<T>(device: usize, place: *mut T, value: T) -> Return {
    if device != DEVICE || place.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller's.
    unsafe { place.write(value) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Return {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Return {
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) -> Return {
    let version = c"570.0.0".to_bytes_with_nul();
    if (length as usize) < version.len() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller passes a place of so many bytes.
    unsafe { text.cast::<u8>().copy_from_nonoverlapping(version.as_ptr(), version.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut usize) -> Return {
    // SAFETY: the caller passes a text that ends with a zero, and a place for the result.
    unsafe {
        if CStr::from_ptr(uuid).to_bytes() != uuid_text().as_bytes() {
            return NOT_FOUND;
        }
        read(DEVICE, device, DEVICE)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: usize,
    kind: c_uint,
    megahertz: *mut c_uint,
) -> Return {
    let found = match kind {
        1 => SM_MHZ,
        2 => MEMORY_MHZ,
        _ => return NOT_SUPPORTED,
    };
    // SAFETY: the caller passes a place for the result.
    unsafe { read(device, megahertz, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: usize,
    _sensor: c_uint,
    celsius: *mut c_uint,
) -> Return {
    // SAFETY: the caller passes a place for the result.
    unsafe { read(device, celsius, CELSIUS) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: usize,
    reasons: *mut c_ulonglong,
) -> Return {
    // SAFETY: the caller passes a place for the result.
    unsafe { read(device, reasons, THROTTLE_REASONS) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(
    device: usize,
    milliwatts: *mut c_uint,
) -> Return {
    // SAFETY: the caller passes a place for the result.
    unsafe { read(device, milliwatts, LIMIT_MILLIWATTS) }
}

/// The average, which is above what is drawn now, so that readers of the one and of the other can
/// be told apart.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: usize, milliwatts: *mut c_uint) -> Return {
    // SAFETY: the caller passes a place for the result.
    unsafe { read(device, milliwatts, MILLIWATTS + 100_000) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(
    device: usize,
    millijoules: *mut c_ulonglong,
) -> Return {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    let steps = BEGUN.get_or_init(Instant::now).elapsed().as_millis() / STEP_MILLISECONDS;
    let drawn = steps * STEP_MILLISECONDS * u128::from(MILLIWATTS) / 1000;
    // SAFETY: the caller passes a place for the result.
    unsafe { read(device, millijoules, drawn as c_ulonglong) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: usize,
    count: c_int,
    values: *mut FieldValue,
) -> Return {
    if device != DEVICE || values.is_null() {
        return INVALID_ARGUMENT;
    }
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller passes so many values.
        let value = unsafe { &mut *values.add(index) };
        let is_power = value.field == POWER_INSTANT;
        value.result = if is_power { SUCCESS } else { NOT_SUPPORTED };
        // NVML_VALUE_TYPE_UNSIGNED_INT.
        value.value_type = 1;
        value.value = c_ulonglong::from(MILLIWATTS);
    }
    SUCCESS
}
