//! Every synchronising operation of the kernels, removed or weakened, one at a time. The verifier
//! or the emulator notices, or `explained.md` says why there is nothing to notice.

#[path = "../common/mod.rs"]
mod common;
mod judge;
mod report;
#[path = "../covering/set.rs"]
mod set;
mod subject;

use report::{Judged, drawn, is_picked};
use subject::{kernel, names, subject};

/// Faults that nothing notices, with the reasons.
const EXPLAINED: &str = include_str!("explained.md");

#[test]
#[ignore = "it takes some 30 minutes: run it by name"]
fn faults_of_all_kernels_are_noticed() {
    let mut judged = Judged::default();
    for name in names().iter().filter(|name| is_picked(name)) {
        judged.add(name, &kernel(name), |_| true, || subject(name));
    }
    judged.report(EXPLAINED);
}

/// Some faults of a few small kernels, drawn by `PGEMM_SEED`.
#[test]
fn drawn_faults_are_noticed() {
    const ONE_IN: u64 = 8;
    const KERNELS: [&str; 4] = [
        "transpose_4",
        "bf16-kk-bf16-64x24x64-s3-w1-c1x1",
        "bf16-kk-bf16-64x40x64-s3-p2-c2x1",
        "f32-mk-f32-32x64x16-s4-t4x4-w2x2",
    ];
    let (mut judged, drawn) = (Judged::default(), drawn(ONE_IN));
    for name in KERNELS {
        judged.add(name, &kernel(name), &drawn, || subject(name));
    }
    judged.report(EXPLAINED);
}
