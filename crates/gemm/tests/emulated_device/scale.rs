//! The size of tests that run on the hardware too.

/// What a test takes on the hardware, or less of it on the emulated device.
pub fn by_device<T>(_hardware: T, emulated: T) -> T {
    emulated
}
