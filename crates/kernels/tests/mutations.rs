//! Planted bugs: each test breaks a real kernel in one way that a person might, and asks the verifier (where the rules
//! decide it) and the emulator (always) to say so, at the source line concerned.

mod common;

use std::fs;
use std::mem;
use std::path::Path;

use common::{CPlace, Case, Failure, Problem};
use pgemm_emulator::{Options, Report, ReportKind, Schedule};
use pgemm_ir::{
    BinaryOp, Constant, Inst, Kernel, Location, Op, Rule, SwizzleMode, Type, ValueId, verify,
};
use pgemm_kernels::{GemmKernel, KernelSpec, build};

/// A kernel with everything that can go wrong in one CTA.
const ALONE: &str = "bf16-kk-bf16-128x64x64-s3-w2-c1x1";

/// A kernel whose tiles are stored in an even number of steps.
const WIDE: &str = "bf16-kk-bf16-128x128x64-s3-w2-c1x1";

/// A kernel with CTAs that fill each other's B tiles.
const PAIR: &str = "bf16-kk-bf16-128x64x64-s3-w2-c2x1";

/// A kernel to break, and a problem that it solves as it is.
struct Subject {
    gemm: GemmKernel,
    problem: Problem,
}

impl Subject {
    fn new(name: &str) -> Subject {
        Subject::with(name, |case| case)
    }

    fn with(name: &str, change: impl FnOnce(Case) -> Case) -> Subject {
        let spec: KernelSpec = name.parse().unwrap();
        let gemm = build(&spec).unwrap();
        let problem = Problem::new(&spec, change(Case::ragged(&spec, [2, 2], spec.stages + 2)));
        for schedule in schedules() {
            let options = Options { schedule, ..Options::default() };
            problem.run(&gemm, options).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
        Subject { gemm, problem }
    }

    /// The kernel with a change in its declarations.
    fn declare(self, change: impl FnOnce(&mut Kernel)) -> Mutant {
        let mut gemm = self.gemm;
        change(&mut gemm.kernel);
        Mutant { gemm, problem: self.problem }
    }

    /// The kernel without the instructions that `remove` picks.
    fn without(self, remove: impl Fn(&Inst, &str) -> bool) -> Mutant {
        self.rewrite(|inst, line| if remove(inst, line) { Edit::Remove } else { Edit::Keep })
    }

    /// The kernel with other operations in place of some.
    fn with_op(self, replace: impl Fn(&Op, &str) -> Option<Op>) -> Mutant {
        self.rewrite(|inst, line| match replace(&inst.op, line) {
            None => Edit::Keep,
            Some(op) => {
                inst.op = op;
                Edit::Changed
            }
        })
    }

    /// The kernel with the other parity in the mbarrier waits of a source line.
    fn with_other_parity(self, line: &str) -> Mutant {
        let mut gemm = self.gemm;
        let Kernel { values, locations, .. } = &gemm.kernel;
        let here: Vec<bool> =
            locations.iter().map(|location| source_line(location).contains(line)).collect();
        let mut next = values.len() as u32;
        gemm.kernel.visit_blocks_mut(&mut |block| {
            let mut insts = Vec::new();
            for mut inst in mem::take(&mut block.insts) {
                if inst.op == Op::MbarrierWait && here[inst.loc.index()] {
                    let (one, other) = (ValueId(next), ValueId(next + 1));
                    next += 2;
                    let value = |op, args, result| {
                        let (results, blocks) = (vec![result], vec![]);
                        Inst { op, args, results, blocks, loc: inst.loc }
                    };
                    insts.push(value(Op::Const(Constant::U32(1)), vec![], one));
                    insts.push(value(Op::Binary(BinaryOp::Xor), vec![inst.args[1], one], other));
                    inst.args[1] = other;
                }
                insts.push(inst);
            }
            block.insts = insts;
        });
        assert!(next as usize > gemm.kernel.values.len(), "nothing was changed");
        gemm.kernel.values.resize(next as usize, Type::U32);
        Mutant { gemm, problem: self.problem }
    }

    /// The kernel after `edit` of each instruction, which is also given its source line.
    fn rewrite(self, mut edit: impl FnMut(&mut Inst, &str) -> Edit) -> Mutant {
        let mut gemm = self.gemm;
        let lines: Vec<String> = gemm.kernel.locations.iter().map(source_line).collect();
        let mut changes = 0;
        gemm.kernel.visit_blocks_mut(&mut |block| {
            block.insts.retain_mut(|inst| {
                let line = &lines[inst.loc.index()];
                match edit(inst, line) {
                    Edit::Keep => true,
                    Edit::Changed => {
                        changes += 1;
                        true
                    }
                    Edit::Remove => {
                        changes += 1;
                        false
                    }
                }
            });
        });
        assert!(changes > 0, "nothing was changed");
        Mutant { gemm, problem: self.problem }
    }
}

enum Edit {
    Keep,
    Changed,
    Remove,
}

/// A broken kernel.
struct Mutant {
    gemm: GemmKernel,
    problem: Problem,
}

impl Mutant {
    /// The verifier accepts it: what is wrong depends on values that only a run has.
    fn verifier_accepts(self) -> Mutant {
        verify(&self.gemm.kernel).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// The verifier refuses it by `rule` at a line of the kernels' source that contains `line`.
    fn verifier_refuses(self, rule: Rule, line: &str) -> Mutant {
        let error = verify(&self.gemm.kernel).expect_err("the verifier accepts it");
        let found = error.violations.iter().any(|violation| {
            let location = violation.location.as_ref();
            violation.rule == rule && location.is_some_and(|at| source_line(at).contains(line))
        });
        assert!(found, "no violation of {rule} at '{line}': {error}");
        self
    }

    fn failures(&self) -> Vec<Failure> {
        schedules()
            .into_iter()
            .filter_map(|schedule| {
                let options = Options { schedule, max_steps: 1_000_000, ..Options::default() };
                self.problem.run(&self.gemm, options).err()
            })
            .collect()
    }

    /// A failure without the many sites of a deadlock.
    fn brief(failure: &Failure) -> String {
        failure.to_string().lines().take(5).collect::<Vec<_>>().join("\n")
    }

    /// The kernel goes through all motions as it should, and D is wrong.
    fn computes_something_else(&self) {
        let failures = self.failures();
        assert_eq!(failures.len(), schedules().len());
        for failure in &failures {
            assert!(matches!(failure, Failure::Wrong { .. }), "{}", Mutant::brief(failure));
        }
    }

    /// The emulator reports `kind` under one of the schedules, its sites at lines of the kernels' source that contain
    /// `lines`, and the report's own schedule leads to the same report.
    fn emulator_reports(&self, kind: ReportKind, lines: &[&str]) {
        let failures = self.failures();
        let names = |report: &Report| {
            let at: Vec<String> =
                report.sites.iter().map(|site| source_line(&site.location)).collect();
            report.kind == kind && lines.iter().all(|line| at.iter().any(|at| at.contains(line)))
        };
        let report = failures.iter().find_map(|failure| match failure {
            Failure::Report(report) if names(report) => Some(report),
            _ => None,
        });
        let Some(report) = report else {
            let found: Vec<String> = failures.iter().map(Mutant::brief).collect();
            panic!("no report of {kind:?} at {lines:?}, but:\n{}", found.join("\n"))
        };
        let options = Options { schedule: report.schedule.clone(), ..Options::default() };
        match self.problem.run(&self.gemm, options) {
            Err(Failure::Report(again)) => assert_eq!(&again, report),
            other => panic!("the replay ended otherwise: {other:?}"),
        }
    }
}

/// The schedules that a bug has to show under at least one of.
fn schedules() -> Vec<Schedule> {
    let mut schedules = vec![Schedule::round_robin()];
    for seed in 1..=4 {
        schedules.extend([
            Schedule::seeded(seed),
            Schedule::async_late(seed),
            Schedule::async_early(seed),
        ]);
    }
    schedules
}

/// The text of a source line, which is in this crate.
fn source_line(location: &Location) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert!(location.file.starts_with("crates/kernels/src/"), "not in the kernels: {location}");
    let text = fs::read_to_string(root.join(&location.file)).unwrap();
    text.lines().nth(location.line as usize - 1).unwrap().trim().to_owned()
}

#[test]
fn no_wgmma_fence() {
    Subject::new(ALONE)
        .without(|inst, _| inst.op == Op::WgmmaFence)
        .verifier_refuses(Rule::WgmmaFence, "batch.mma(")
        .emulator_reports(ReportKind::MissingWgmmaFence, &["batch.mma("]);
}

#[test]
fn no_proxy_fence_before_the_store() {
    Subject::new(ALONE)
        .without(|inst, _| matches!(inst.op, Op::FenceProxy(_)))
        .verifier_accepts()
        .emulator_reports(ReportKind::MissingProxyFence, &["d.store(", "b.store_matrix("]);
}

#[test]
fn stage_released_while_its_batch_may_still_run() {
    Subject::new(ALONE)
        .with_op(|op, _| match op {
            Op::WgmmaWait { pending: 1 } => Some(Op::WgmmaWait { pending: 2 }),
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["self.map.load(", "batch.mma("]);
}

#[test]
fn too_many_bytes_expected() {
    Subject::new(ALONE)
        .with_op(|op, line| match *op {
            Op::MbarrierArriveExpect { bytes } if line.contains("acquire") => {
                Some(Op::MbarrierArriveExpect { bytes: bytes + 128 })
            }
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Deadlock, &["self.ring.wait_full("]);
}

#[test]
fn bytes_of_b_not_expected() {
    let subject = Subject::new(ALONE);
    let b_bytes = subject.gemm.spec.b_tile().bytes();
    subject
        .with_op(|op, line| match *op {
            Op::MbarrierArriveExpect { bytes } if line.contains("acquire") => {
                Some(Op::MbarrierArriveExpect { bytes: bytes - b_bytes })
            }
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["self.map.load(", "batch.mma("]);
}

#[test]
fn empty_barrier_without_the_peers_consumers() {
    Subject::new(PAIR)
        .with_op(|op, line| match *op {
            Op::MbarrierInit { count } if line.contains("ring.init") && count > 1 => {
                Some(Op::MbarrierInit { count: count / 2 })
            }
            _ => None,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["self.map.load_multicast(", "batch.mma("]);
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
        .emulator_reports(ReportKind::Deadlock, &["self.ring.acquire("]);
}

#[test]
fn producer_leaves_its_cluster_early() {
    Subject::new(PAIR)
        .without(|inst, line| inst.op == Op::MbarrierWait && line.contains("self.ring.drain("))
        .verifier_accepts()
        .emulator_reports(ReportKind::ExitedPeer, &["self.ring.release("]);
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
fn staging_written_while_it_is_stored() {
    Subject::new(ALONE)
        .without(|inst, line| matches!(inst.op, Op::BulkWait { .. }) && line.contains("may_read"))
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "d.store("]);
}

#[test]
fn exit_while_staging_is_stored() {
    Subject::new(WIDE)
        .without(|inst, line| {
            matches!(inst.op, Op::BulkWait { pending: 0, .. }) && !line.contains("may_read")
        })
        .verifier_refuses(Rule::BulkGroups, "d.store(")
        .emulator_reports(ReportKind::ExitWithTmaInFlight, &["d.store("]);
}

#[test]
fn stores_not_committed() {
    Subject::new(ALONE)
        .without(|inst, _| inst.op == Op::BulkCommit)
        .verifier_refuses(Rule::BulkGroups, "d.store(")
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "d.store("]);
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
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "d.store("]);
}

#[test]
fn no_barrier_between_the_wait_for_staging_and_its_writes() {
    let mut fenced = false;
    Subject::new(ALONE)
        .rewrite(|inst, line| {
            let after_fence = mem::replace(&mut fenced, matches!(inst.op, Op::FenceProxy(_)));
            let sync = matches!(inst.op, Op::BarrierSync { .. }) && line.contains("self.barrier");
            if sync && !after_fence { Edit::Remove } else { Edit::Keep }
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.store_matrix(", "d.store("]);
}

#[test]
fn c_read_before_it_is_there() {
    Subject::with(ALONE, |case| case.scaled(1.0, 1.0, CPlace::Apart))
        .without(|inst, line| inst.op == Op::MbarrierWait && line.contains("self.c_full"))
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["b.load_matrix", "c.load("]);
}

#[test]
fn barrier_not_initialised() {
    Subject::with(ALONE, |case| case.scaled(1.0, 1.0, CPlace::InPlace))
        .without(|inst, line| {
            matches!(inst.op, Op::MbarrierInit { .. }) && line.contains("self.c_full")
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierMisuse, &["self.c_full.mbarrier_arrive_expect("]);
}

#[test]
fn barrier_initialisation_not_fenced() {
    Subject::new(ALONE)
        .without(|inst, _| inst.op == Op::FenceMbarrierInit)
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierInitNotVisible, &["self.map.load("]);
}

#[test]
fn cta_does_not_wait_for_barrier_initialisation() {
    Subject::new(ALONE)
        .without(|inst, line| {
            matches!(inst.op, Op::BarrierSync { .. }) && line.contains("barrier_sync(0,")
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierInitNotVisible, &["self.ring.wait_full("]);
}

#[test]
fn cluster_does_not_wait_for_barrier_initialisation() {
    Subject::new(PAIR)
        .without(|inst, _| inst.op == Op::ClusterWait)
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierInitNotVisible, &["self.ring.wait_full("]);
}

#[test]
fn producer_waits_for_the_wrong_parity() {
    Subject::new(ALONE)
        .with_other_parity("self.ring.acquire(")
        .verifier_accepts()
        .emulator_reports(ReportKind::Deadlock, &["self.ring.acquire(", "self.ring.wait_full("]);
}

#[test]
fn consumer_waits_for_the_wrong_parity() {
    Subject::new(ALONE)
        .with_other_parity("self.ring.wait_full(")
        .verifier_accepts()
        .emulator_reports(ReportKind::Race, &["self.map.load(", "batch.mma("]);
}

#[test]
fn whole_warp_produces() {
    Subject::new(ALONE)
        .with_op(|op, _| (*op == Op::Elect).then_some(Op::Const(Constant::Bool(true))))
        .verifier_accepts()
        .emulator_reports(ReportKind::MbarrierMisuse, &["self.ring.acquire("]);
}

#[test]
fn shared_tile_sent_to_one_cta_only() {
    Subject::new(PAIR)
        .rewrite(|inst, _| match inst.op {
            Op::TmaLoad { rank, multicast: true } => {
                inst.op = Op::TmaLoad { rank, multicast: false };
                inst.args.pop();
                Edit::Changed
            }
            _ => Edit::Keep,
        })
        .verifier_accepts()
        .emulator_reports(ReportKind::Deadlock, &["self.ring.wait_full("]);
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
fn batches_not_committed() {
    Subject::new(ALONE)
        .without(|inst, _| inst.op == Op::WgmmaCommit)
        .verifier_refuses(Rule::WgmmaCommit, "pending.wait_until(")
        .emulator_reports(ReportKind::Race, &["self.map.load(", "batch.mma("]);
}

#[test]
fn consumers_ask_for_more_registers_than_there_are() {
    Subject::new(ALONE)
        .with_op(|op, _| match *op {
            Op::SetMaxRegisters { increase: true, .. } => {
                Some(Op::SetMaxRegisters { count: 256, increase: true })
            }
            _ => None,
        })
        .emulator_reports(ReportKind::Deadlock, &["b.warp_roles("]);
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
