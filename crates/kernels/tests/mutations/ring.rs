//! Bugs of the ring between producer and consumers, of its barriers and of the cluster around it.

use pgemm_emulator::ReportKind;
use pgemm_ir::{CompareOp, Constant, Op};

use crate::mutant::{ALONE, Edit, LOADS, Mutant, PAIR, Subject, TURNS};

#[test]
fn stage_released_while_its_batch_may_still_run() {
    Subject::new(ALONE)
        .with_op(|op, _| match op {
            Op::WgmmaWait { pending: 1 } => Some(Op::WgmmaWait { pending: 2 }),
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["map.load(", "batch.mma("]);
}

/// On an H200 the copy that refilled a stage overtook the last loads from it.
#[test]
fn stage_released_after_loads_without_a_proxy_fence() {
    Subject::new(LOADS)
        .without(|inst, line| {
            matches!(inst.op, Op::FenceProxy(_)) && line.contains("ring.release_after_loads(")
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::MissingProxyFence, &["map.load(", ".load_shared::<"]);
}

#[test]
fn too_many_bytes_expected() {
    Subject::new(ALONE)
        .with_op(|op, line| match *op {
            Op::MbarrierArriveExpect { bytes } if line.contains("self.ring.fill(") => {
                Some(Op::MbarrierArriveExpect { bytes: bytes + 128 })
            }
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Deadlock, &["ring.wait_full("]);
}

#[test]
fn bytes_of_b_not_expected() {
    let subject = Subject::new(ALONE);
    let b_bytes = subject.gemm.spec().b_tile().bytes();
    subject
        .with_op(|op, line| match *op {
            Op::MbarrierArriveExpect { bytes } if line.contains("self.ring.fill(") => {
                Some(Op::MbarrierArriveExpect { bytes: bytes - b_bytes })
            }
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["map.load(", "batch.mma("]);
}

#[test]
fn producer_does_not_wait() {
    Subject::new(ALONE)
        .without(|inst, line| inst.op == Op::MbarrierWait && line.contains("self.ring.fill("))
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["map.load("]);
}

#[test]
fn producer_waits_for_the_wrong_parity() {
    Subject::new(ALONE)
        .with_other_parity("self.ring.fill(")
        .verifier_accepts()
        .emulator_reports(ReportKind::Deadlock, &["self.ring.fill(", "ring.wait_full("]);
}

#[test]
fn consumer_does_not_wait() {
    Subject::new(ALONE)
        .without(|inst, line| inst.op == Op::MbarrierWait && line.contains("ring.wait_full("))
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["map.load(", "batch.mma("]);
}

#[test]
fn consumer_waits_for_the_wrong_parity() {
    Subject::new(ALONE)
        .with_other_parity("ring.wait_full(")
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["map.load(", "batch.mma("]);
}

#[test]
fn whole_warp_produces() {
    Subject::new(ALONE)
        .with_op(|op, _| (*op == Op::Elect).then_some(Op::Const(Constant::Bool(true))))
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierMisuse, &["self.ring.fill("]);
}

#[test]
fn barrier_initialisation_not_fenced() {
    Subject::new(ALONE)
        .without(|inst, _| inst.op == Op::FenceMbarrierInit)
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierInitNotVisible, &["map.load("]);
}

#[test]
fn cta_does_not_wait_for_barrier_initialisation() {
    Subject::new(ALONE)
        .without(|inst, line| {
            matches!(inst.op, Op::BarrierSync { .. }) && line.contains("b.sync_cta()")
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierInitNotVisible, &["ring.wait_full("]);
}

#[test]
fn cluster_does_not_wait_for_barrier_initialisation() {
    Subject::new(PAIR)
        .without(|inst, _| inst.op == Op::ClusterWait)
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierInitNotVisible, &["ring.wait_full("]);
}

#[test]
fn empty_barrier_without_the_peers_consumers() {
    for name in [PAIR, TURNS] {
        Subject::new(name)
            .with_op(|op, line| match *op {
                Op::MbarrierInit { count } if line.contains("ring.init") && count > 1 => {
                    Some(Op::MbarrierInit { count: count / 2 })
                }
                _ => None,
            })
            .verifier_accepts()
            .emulator_reports(ReportKind::Race, &["map.load(", "batch.mma("]);
    }
}

#[test]
fn empty_barrier_with_a_consumer_too_many() {
    Subject::new(PAIR)
        .with_op(|op, line| match *op {
            Op::MbarrierInit { count } if line.contains("ring.init") && count > 1 => {
                Some(Op::MbarrierInit { count: count + 4 })
            }
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Deadlock, &["self.ring.fill("]);
}

#[test]
fn shared_tile_sent_to_one_cta_only() {
    Subject::new(PAIR)
        .rewrite(|inst, _| match inst.op {
            Op::TmaLoad { rank, im2col, multicast: true, policy } => {
                inst.op = Op::TmaLoad { rank, im2col, multicast: false, policy };
                inst.args.remove(inst.args.len() - 1 - usize::from(policy));
                Edit::Changed
            }
            _ => Edit::Keep,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Deadlock, &["ring.wait_full("]);
}

/// The kernel whose CTAs compare the stage's turn with their index by another comparison.
fn other_turns(compare: CompareOp) -> Mutant {
    Subject::new(TURNS).with_op(|op, line| match *op {
        Op::Compare(CompareOp::Eq) if line.contains("let my_turn") => Some(Op::Compare(compare)),
        _ => None,
    })
}

#[test]
fn two_ctas_fill_the_same_stage() {
    other_turns(CompareOp::Le)
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["map.load("]);
}

#[test]
fn a_stage_that_is_nobodys_turn() {
    other_turns(CompareOp::Lt)
        .verifier_accepts()
        .emulator_reports(ReportKind::Deadlock, &["ring.wait_full("]);
}

#[test]
fn producer_leaves_its_cluster_early() {
    Subject::new(PAIR)
        .without(|inst, line| inst.op == Op::MbarrierWait && line.contains("self.ring.drain("))
        .verifier_accepts()
        .emulator_reports(ReportKind::ExitedPeer, &["self.ring.release("]);
}
