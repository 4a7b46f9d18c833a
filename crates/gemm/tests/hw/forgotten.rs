//! Prepared problems that nobody holds.

use std::sync::Arc;

use persistent_gemm::driver::Stream;
use persistent_gemm::{Gemm, Major, Problem, RunRequest};

use crate::device::device;
use crate::workspaces::{set, split};

/// A server that meets ever new problems.
#[test]
fn problems_that_nobody_holds_are_forgotten() {
    let Some(device) = device("problems_that_nobody_holds_are_forgotten") else { return };
    let (config, problem) = split();
    let stream = Stream::new(&device).unwrap();
    let gemm = Gemm::create(&device, config).unwrap();
    let held = gemm.prepare(&problem).unwrap();
    for number in 0..10_000 {
        let (m, n) = (1 + number % 100, 8 * (1 + number / 100));
        gemm.prepare(&Problem::new(m, n, 256, Major::K, Major::K)).unwrap();
        assert!(gemm.prepared_problems() <= 4097, "{m}x{n}: {}", gemm.prepared_problems());
    }
    assert!(gemm.prepared_problems() > 2000);
    assert!(Arc::ptr_eq(&held, &gemm.prepare(&problem).unwrap()));
    // A problem that is held, and one that was forgotten and is prepared again.
    let operands = set(&stream, 3);
    let pointers = operands.pointers();
    // SAFETY: the operands outlive the work, which is waited for.
    unsafe { gemm.run_at(RunRequest::prepared(&held, 1.0, 0.0), &pointers, stream.as_ref()) }
        .unwrap();
    stream.synchronize().unwrap();
    operands.check(stream.as_ref());
}
