//! Bugs between the accumulators and D.

use std::mem;

use pgemm_emulator::ReportKind;
use pgemm_ir::{CompareOp, Constant, Inst, Op, Rule, Special};

use crate::common::{CPlace, Case};
use crate::mutant::{ALONE, Edit, ODD, Subject, WIDE};

/// The wait before a CTA ends. Its stores must have read shared memory by then.
const DRAIN: &str = "self.b.bulk_wait_read(0);";

#[test]
fn no_proxy_fence_before_the_store() {
    Subject::new(ALONE)
        .without(|inst, _| matches!(inst.op, Op::FenceProxy(_)))
        .verifier_accepts()
        .emulator_reports(ReportKind::MissingProxyFence, &["map.store(", "b.store_matrix("]);
}

#[test]
fn proxy_fence_before_the_writes() {
    Subject::new(ALONE)
        .declare(|kernel| {
            kernel.visit_blocks_mut(&mut |block| {
                let place = |op: fn(&Op) -> bool| block.insts.iter().position(|i| op(&i.op));
                let fence = place(|op| matches!(op, Op::FenceProxy(_)));
                let sync = place(|op| matches!(op, Op::BarrierSync { .. }));
                if let (Some(fence), Some(sync)) = (fence, sync) {
                    assert!(sync < fence);
                    block.insts[sync..=fence].rotate_right(1);
                }
            });
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::MissingProxyFence, &["map.store(", "b.store_matrix("]);
}

#[test]
fn no_barrier_between_staging_and_its_store() {
    let mut fenced = false;
    Subject::new(ALONE)
        .rewrite(|inst, _| {
            let after_fence = mem::replace(&mut fenced, matches!(inst.op, Op::FenceProxy(_)));
            let remove = after_fence && matches!(inst.op, Op::BarrierSync { .. });
            if remove { Edit::Remove } else { Edit::Keep }
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "map.store("]);
}

#[test]
fn barrier_in_the_branch_of_one_thread() {
    Subject::new(ALONE)
        .declare(|kernel| {
            kernel.visit_blocks_mut(&mut |block| {
                let fence =
                    block.insts.iter().position(|inst| matches!(inst.op, Op::FenceProxy(_)));
                if let Some(fence) = fence {
                    // The barrier after the fence is moved, and so is the branch after it. That
                    // branch is on the second side, the branch of one thread.
                    let sync = block.insts.remove(fence + 1);
                    assert!(matches!(sync.op, Op::BarrierSync { .. }));
                    let by_tma = &mut block.insts[fence + 1].blocks[1];
                    let branch = by_tma.insts.iter_mut().find(|inst| inst.op == Op::If);
                    branch.unwrap().blocks[0].insts.insert(0, sync);
                }
            });
        })
        .verifier_refuses(Rule::Uniformity, "self.barrier.sync(")
        .emulator_reports(ReportKind::Divergence, &["self.barrier.sync("]);
}

#[test]
fn no_barrier_between_the_wait_for_staging_and_its_writes() {
    let mut fenced = false;
    Subject::new(ALONE)
        .rewrite(|inst, line| {
            let after_fence = mem::replace(&mut fenced, matches!(inst.op, Op::FenceProxy(_)));
            let sync =
                matches!(inst.op, Op::BarrierSync { .. }) && line.contains("self.barrier.sync(");
            if sync && !after_fence { Edit::Remove } else { Edit::Keep }
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "map.store("]);
}

#[test]
fn staging_written_while_it_is_stored() {
    Subject::new(ALONE)
        .without(|inst, line| matches!(inst.op, Op::BulkWait { .. }) && line != DRAIN)
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "map.store("]);
}

#[test]
fn first_buffer_written_while_the_tile_before_is_stored_from_it() {
    Subject::with(ODD, |case| Case { clusters: 1, ..case })
        .without(|inst, line| matches!(inst.op, Op::BulkWait { .. }) && line.contains("if_(waits"))
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "map.store("]);
}

#[test]
fn exit_while_staging_is_stored() {
    Subject::new(WIDE)
        .without(|inst, _| matches!(inst.op, Op::BulkWait { pending: 0, .. }))
        .verifier_refuses(Rule::BulkGroups, "map.store(")
        .emulator_reports(ReportKind::ExitWithTmaInFlight, &["map.store("]);
}

#[test]
fn stores_not_committed() {
    Subject::new(ALONE)
        .without(|inst, _| inst.op == Op::BulkCommit)
        .verifier_refuses(Rule::BulkGroups, "map.store(")
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "map.store("]);
}

#[test]
fn staging_lies_over_the_ring() {
    Subject::new(ALONE)
        .declare(|kernel| {
            let ring = kernel.regions.iter().find(|region| region.name == "b").unwrap().offset;
            let staging = kernel.regions.iter_mut().find(|region| region.name == "staging");
            staging.unwrap().offset = ring;
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.store_matrix("]);
}

#[test]
fn c_read_before_it_is_there() {
    Subject::with(ALONE, |case| case.scaled(1.0, 1.0, CPlace::Apart))
        .without(|inst, line| inst.op == Op::MbarrierWait && line.contains(".c_full"))
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.load_matrix", "map.load(copies, buffer"]);
}

#[test]
fn c_read_where_beta_is_0() {
    Subject::new(ALONE)
        .with_op(|op, line| match op {
            Op::Compare(CompareOp::Ne) if line.contains("factors[1].ne(") => {
                Some(Op::Compare(CompareOp::Eq))
            }
            _ => None,
        })
        .verifier_accepts()
        .computes_something_else();
}

#[test]
fn barrier_not_initialised() {
    Subject::with(ALONE, |case| case.scaled(1.0, 1.0, CPlace::InPlace))
        .without(|inst, line| {
            matches!(inst.op, Op::MbarrierInit { .. }) && line.contains(".c_full")
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierMisuse, &[".c_full.mbarrier_expect_copies("]);
}

#[test]
fn rows_and_columns_swapped_in_the_store() {
    Subject::new(ALONE)
        .rewrite(|inst, _| match inst.op {
            Op::TmaStore { .. } => {
                inst.args.swap(2, 3);
                Edit::Changed
            }
            _ => Edit::Keep,
        })
        .verifier_accepts()
        .computes_something_else();
}

#[test]
fn every_cluster_starts_at_the_first_tile() {
    Subject::with(ALONE, |case| Case { clusters: 2, ..case })
        .with_op(|op, _| match op {
            Op::Special(Special::Cta) => Some(Op::Const(Constant::U32(0))),
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["map.store("]);
}

#[test]
fn memory_touched_before_the_grids_that_it_depends_on_have_ended() {
    Subject::new(ALONE)
        .declare(|kernel| {
            kernel.visit_blocks_mut(&mut |block| {
                let is_wait = |inst: &Inst| inst.op == Op::GridDependencyWait;
                if let Some(place) = block.insts.iter().position(is_wait) {
                    let wait = block.insts.remove(place);
                    let end = block.insts.len() - 1;
                    assert_eq!(block.insts[end].op, Op::Yield);
                    block.insts.insert(end, wait);
                }
            });
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::MissingGridDependencyWait, &["map.load("]);
}
