//! What the hardware tests share.

use std::io::Write;

use persistent_gemm::driver::Device;

/// Device 0, if it is there and a Hopper. Otherwise the test is to return: this says so on stderr,
/// past the test harness's capture, or fails where `PGEMM_REQUIRE_GPU=1` asks for the hardware.
pub fn device(test: &str) -> Option<Device> {
    match Device::new(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("PGEMM_REQUIRE_GPU").is_some_and(|value| value == "1") => {
            panic!("{test} needs a Hopper GPU: {error}")
        }
        Err(error) => {
            // In one piece, since other tests write too. Where stderr is closed there is nobody to
            // tell.
            let line = format!("SKIPPED: {test}: {error}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            None
        }
    }
}
