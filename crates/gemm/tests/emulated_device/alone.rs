//! Tests in processes of their own: a fault makes the device unusable for all of a process, and
//! what is free changes with every test.

use std::env;
use std::process::Command;

/// Says to a process that it is to run the test's body.
const VARIABLE: &str = "PGEMM_TEST_ALONE";

/// Runs the body of the test of this name, which runs no other one beside it. What it writes to
/// stderr is returned to the test's own process, which has `None` for it.
pub fn alone(test: &str, body: impl FnOnce()) -> Option<String> {
    if env::var_os(VARIABLE).is_some() {
        body();
        return None;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, "1")
        .output()
        .unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let is_run = output.status.success() && stdout.contains("1 passed");
    assert!(is_run, "{test}: {}\n{stdout}\n{stderr}", output.status);
    Some(stderr.into_owned())
}
