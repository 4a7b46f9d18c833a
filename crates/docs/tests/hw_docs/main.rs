//! The programs of the guides to kernels (docs/kernels.md, cookbook.md and fragments.md) on a GPU.
//! `build.rs` takes them from the pages, one test for each. Their own assertions check the results.
//! Without a Hopper GPU each test says `SKIPPED` and passes; with `PGEMM_REQUIRE_GPU=1` that is a
//! failure.

mod card;

use std::io::Write;
use std::process::Command;

#[allow(clippy::all, reason = "the pages' programs are written for readers")]
mod listings {
    include!(concat!(env!("OUT_DIR"), "/hw_docs.rs"));
}

/// The tests of this program in another process, whose GPU is the emulator: so what launches the
/// listings is tested without a GPU too.
#[test]
fn listings_are_right_on_the_emulated_device() {
    if std::env::var_os(card::REQUIRE_GPU).is_some() {
        // A machine with a GPU may have this program alone.
        let line = b"SKIPPED: the listings on the emulated device, beside a GPU\n";
        let _ = std::io::stderr().write_all(line);
        return;
    }
    let (driver, kernels) =
        (pgemm_emulated_driver::folder().unwrap(), tempfile::tempdir().unwrap());
    let tests = Command::new(std::env::current_exe().unwrap())
        .args(["is_right", "--skip", "on_a_gpu", "--test-threads=1"])
        .env("LD_LIBRARY_PATH", driver.path())
        .env(card::KERNELS, kernels.path())
        .env(card::REQUIRE_GPU, "1")
        .output()
        .unwrap();
    let [output, errors] = [&tests.stdout, &tests.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(tests.status.success(), "{output}\n{errors}");
    let programs = output.lines().filter(|line| line.ends_with("::is_right ... ok")).count();
    assert!(programs > 10, "{output}");
}
