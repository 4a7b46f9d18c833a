//! Mutants: changed kernels, and the findings of verifier and emulator about them.

use std::fs;
use std::mem;
use std::path::Path;

use pgemm_emulator::{Options, Report, ReportKind, Schedule};
use pgemm_ir::{BinaryOp, Constant, Inst, Kernel, Location, Op, Rule, Type, ValueId, verify};
use pgemm_kernels::{GemmKernel, Spec};

use crate::common::{Case, Failure, Problem};

/// A kernel with everything that can go wrong in one CTA.
pub const ALONE: &str = "bf16-kk-bf16-128x64x64-s3-w2-c1x1";

/// A kernel whose tiles are stored in an even number of steps.
pub const WIDE: &str = "bf16-kk-f32-128x128x64-s3-w2-c1x1";

/// A kernel whose tiles are stored in three steps through two buffers.
pub const ODD: &str = "bf16-kk-bf16-128x168x64-s5-w2-c1x1";

/// A kernel whose CTAs load parts of each other's B tiles.
pub const PAIR: &str = "bf16-kk-bf16-128x64x64-s3-w2-c2x1";

/// The same kernel with B tiles that cannot be sliced, so that the CTAs load their boxes in turn.
pub const TURNS: &str = "bf16-kk-bf16-128x24x64-s3-w2-c2x1";

/// A kernel that loads A to registers.
pub const REGISTERS: &str = "tf32-mk-f32-128x16x32-s3-w2-c1x1";

/// A kernel whose consumers read stages with loads.
pub const LOADS: &str = "f32-kn-f32-64x64x8-s5-t8x4-w2x2";

/// A kernel to break, and a problem that the unchanged kernel solves.
pub struct Subject {
    pub gemm: GemmKernel,
    problem: Problem,
}

impl Subject {
    pub fn new(name: &str) -> Subject {
        Subject::with(name, |case| case)
    }

    pub fn with(name: &str, change: impl FnOnce(Case) -> Case) -> Subject {
        let spec: Spec = name.parse().unwrap();
        let gemm = GemmKernel::build(&spec).unwrap();
        let problem = Problem::new(&spec, change(Case::ragged(&spec, [2, 2], spec.stages + 2)));
        for schedule in schedules() {
            let options = Options { schedule, ..Options::default() };
            problem.run(&gemm, options).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
        Subject { gemm, problem }
    }

    /// The kernel with a change in its declarations.
    pub fn declare(self, change: impl FnOnce(&mut Kernel)) -> Mutant {
        let mut gemm = self.gemm;
        change(&mut gemm.kernel);
        Mutant { gemm, problem: self.problem }
    }

    /// The kernel without the instructions that `remove` picks.
    pub fn without(self, remove: impl Fn(&Inst, &str) -> bool) -> Mutant {
        self.rewrite(|inst, line| if remove(inst, line) { Edit::Remove } else { Edit::Keep })
    }

    /// The kernel with some operations replaced.
    pub fn with_op(self, replace: impl Fn(&Op, &str) -> Option<Op>) -> Mutant {
        self.rewrite(|inst, line| match replace(&inst.op, line) {
            None => Edit::Keep,
            Some(op) => {
                inst.op = op;
                Edit::Changed
            }
        })
    }

    /// The kernel with the other parity in the mbarrier waits of a source line.
    pub fn with_other_parity(self, line: &str) -> Mutant {
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

    /// The kernel after `edit` of each instruction. `edit` also gets the instruction's source line.
    pub fn rewrite(self, mut edit: impl FnMut(&mut Inst, &str) -> Edit) -> Mutant {
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

/// The result of editing an instruction.
pub enum Edit {
    Keep,
    Changed,
    Remove,
}

/// A broken kernel.
pub struct Mutant {
    gemm: GemmKernel,
    problem: Problem,
}

impl Mutant {
    /// The verifier accepts it, since the error depends on values that only a run has.
    pub fn verifier_accepts(self) -> Mutant {
        verify(&self.gemm.kernel).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// The verifier refuses it by `rule` at a line of the kernels' source that contains `line`.
    pub fn verifier_refuses(self, rule: Rule, line: &str) -> Mutant {
        let error = verify(&self.gemm.kernel).expect_err("the verifier accepts it");
        let found = error.violations.iter().any(|violation| {
            let location = violation.location.as_ref();
            violation.rule == rule && location.is_some_and(|at| source_line(at).contains(line))
        });
        assert!(found, "no violation of {rule} at '{line}': {error}");
        self
    }

    /// The failures under each schedule, computed on demand.
    fn failures(&self) -> impl Iterator<Item = Failure> {
        schedules().into_iter().filter_map(|schedule| {
            let options = Options { schedule, max_steps: 1_000_000, ..Options::default() };
            self.problem.run(&self.gemm, options).err()
        })
    }

    /// A failure without the many sites of a deadlock.
    fn brief(failure: &Failure) -> String {
        failure.to_string().lines().take(5).collect::<Vec<_>>().join("\n")
    }

    /// The kernel runs without reports, and D is wrong.
    pub fn computes_something_else(&self) {
        let failures: Vec<Failure> = self.failures().collect();
        assert_eq!(failures.len(), schedules().len());
        for failure in &failures {
            assert!(matches!(failure, Failure::Wrong { .. }), "{}", Mutant::brief(failure));
        }
    }

    /// The emulator reports `kind` under one of the schedules. The sites of the report are at lines
    /// of the kernels' source that contain `lines`. The report's own schedule leads to the same
    /// report.
    pub fn emulator_reports(&self, kind: ReportKind, lines: &[&str]) {
        let names = |report: &Report| {
            let at: Vec<String> =
                report.sites.iter().map(|site| source_line(&site.location)).collect();
            report.kind == kind && lines.iter().all(|line| at.iter().any(|at| at.contains(line)))
        };
        let mut others = Vec::new();
        let report = self.failures().find_map(|failure| match failure {
            Failure::Report(report) if names(&report) => Some(report),
            failure => {
                others.push(Mutant::brief(&failure));
                None
            }
        });
        let Some(report) = report else {
            panic!("no report of {kind:?} at {lines:?}, but:\n{}", others.join("\n"))
        };
        let options = Options { schedule: report.schedule.clone(), ..Options::default() };
        match self.problem.run(&self.gemm, options) {
            Err(Failure::Report(again)) => {
                assert_eq!(again.under, report.schedule);
                assert_eq!(Report { under: report.under.clone(), ..*again }, *report);
            }
            other => panic!("the replay ended otherwise: {other:?}"),
        }
    }
}

/// The schedules. A bug has to show under at least one of them.
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
