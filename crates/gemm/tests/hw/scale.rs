//! The size of tests that run on the emulated device too.

/// What a test takes on the hardware, or less of it on the emulated device.
pub fn by_device<T>(hardware: T, _emulated: T) -> T {
    hardware
}
