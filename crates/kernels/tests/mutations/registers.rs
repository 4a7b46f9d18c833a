//! Bugs of the warpgroup MMAs and the registers that they write.

use pgemm_emulator::ReportKind;
use pgemm_ir::{Constant, Op, RegisterChange, Rule, SwizzleMode};

use crate::mutant::{ALONE, REGISTERS, Subject};

#[test]
fn no_wgmma_fence() {
    Subject::new(ALONE)
        .without(|inst, _| inst.op == Op::WgmmaFence)
        .verifier_refuses(Rule::WgmmaFence, "batch.mma(")
        .emulator_reports(ReportKind::MissingWgmmaFence, &["batch.mma("]);
}

#[test]
fn batches_not_committed() {
    Subject::new(ALONE)
        .without(|inst, _| inst.op == Op::WgmmaCommit)
        .verifier_refuses(Rule::WgmmaCommit, "pending.wait_until(")
        .emulator_reports(ReportKind::Race, &["map.load(", "batch.mma("]);
}

#[test]
fn accumulators_read_in_flight() {
    Subject::new(ALONE)
        .with_op(|op, _| match op {
            Op::WgmmaWait { pending: 0 } => Some(Op::WgmmaWait { pending: 1 }),
            _ => None,
        })
        .verifier_refuses(Rule::InFlight, "accumulators.get(")
        .emulator_reports(ReportKind::RegistersInFlight, &["accumulators.get("]);
}

#[test]
fn fragments_loaded_while_others_are_multiplied() {
    Subject::new(REGISTERS)
        .with_op(|op, _| match op {
            Op::WgmmaWait { pending: 1 } => Some(Op::WgmmaWait { pending: 2 }),
            _ => None,
        })
        .verifier_refuses(Rule::InFlight, "self.b.load_shared::")
        // The stage is also freed too early, which shows first.
        .emulator_reports(ReportKind::Race, &["map.load(", "batch.mma_of_registers("]);
}

#[test]
fn fragments_without_a_fence() {
    Subject::new(REGISTERS)
        .without(|inst, _| inst.op == Op::WgmmaFence)
        .verifier_refuses(Rule::WgmmaFence, "batch.mma_of_registers(")
        .emulator_reports(ReportKind::MissingWgmmaFence, &["batch.mma_of_registers("]);
}

#[test]
fn accumulators_never_started() {
    Subject::new(ALONE)
        .with_op(|op, _| {
            (*op == Op::Const(Constant::Bool(false))).then_some(Op::Const(Constant::Bool(true)))
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::UninitialisedAccumulator, &["batch.mma("]);
}

#[test]
fn descriptor_without_swizzle() {
    Subject::new(ALONE)
        .with_op(|op, _| match *op {
            Op::Descriptor(mut layout) => {
                layout.swizzle = SwizzleMode::None;
                layout.leading_bytes = 128;
                Some(Op::Descriptor(layout))
            }
            _ => None,
        })
        .verifier_accepts()
        .computes_something_else();
}

#[test]
fn consumers_ask_for_more_registers_than_there_are() {
    Subject::new(ALONE)
        .with_op(|op, _| match *op {
            Op::SetMaxRegisters { change: RegisterChange::Increase, .. } => {
                Some(Op::SetMaxRegisters { count: 256, change: RegisterChange::Increase })
            }
            _ => None,
        })
        .emulator_reports(ReportKind::Deadlock, &["b.warp_roles("]);
}
