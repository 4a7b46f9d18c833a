//! Every synchronising operation of the examples, removed or weakened, one at a time. The verifier
//! or the emulator notices, or `explained.md` says why there is nothing to notice.

#[path = "../../../kernels/tests/synchronisation/judge.rs"]
mod judge;
mod programs;
#[path = "../../../kernels/tests/synchronisation/report.rs"]
mod report;

use programs::{Example, all};
use report::{Judged, drawn, is_picked};

/// Faults that nothing notices, with the reasons.
const EXPLAINED: &str = include_str!("explained.md");

fn judge(examples: impl IntoIterator<Item = Example>, picked: impl Fn(&str) -> bool) {
    let mut judged = Judged::default();
    for example in examples {
        let (name, kernel) = (example.name, example.program.kernel().clone());
        judged.add(name, &kernel, &picked, || example.subject());
    }
    judged.report(EXPLAINED);
}

#[test]
#[ignore = "it takes minutes: run it by name"]
fn faults_of_all_examples_are_noticed() {
    judge(all().into_iter().filter(|example| is_picked(example.name)), |_| true);
}

/// Some faults of two small examples, drawn by `PGEMM_SEED`.
#[test]
fn drawn_faults_are_noticed() {
    let few = |example: &Example| ["transpose", "ping_pong"].contains(&example.name);
    judge(all().into_iter().filter(few), drawn(16));
}
