//! The device of these tests.

use persistent_gemm::driver::Device;

/// The emulated device. It is always there.
pub fn device(test: &str) -> Option<Device> {
    pgemm_emulated_driver::open();
    let device = Device::new(0).unwrap_or_else(|error| panic!("{test}: {error}"));
    assert_eq!(device.properties().name, pgemm_emulated_driver::NAME);
    Some(device)
}
