//! Rule 11: which values are the same in all threads of a CTA, warpgroup or warp, and what may stand under a condition.

use std::collections::HashMap;

use super::{Facts, Report, Rule};
use crate::text::operation_name;
use crate::{BinaryOp, Block, CompareOp, Convergence, Inst, Kernel, LocId, Op, Special, ValueId};

/// The largest set of threads in which a value (or the decision to get here) is the same; later is weaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Cta,
    Warpgroup,
    Warp,
    Thread,
}

pub(super) fn check(report: &mut Report<'_>, facts: &Facts) {
    let kernel = report.kernel;
    let mut analysis = Analysis {
        facts,
        units: HashMap::new(),
        levels: vec![Level::Cta; kernel.values.len()],
        changed: true,
        refused: Vec::new(),
    };
    kernel.visit(&mut |inst| analysis.learn_unit(inst));
    // Levels only weaken, so this ends; the last round sees the fixpoint.
    while analysis.changed {
        analysis.changed = false;
        analysis.refused.clear();
        analysis.block(kernel, &kernel.body, Level::Cta);
    }
    for (name, loc, control, needed) in analysis.refused {
        let set = if needed == Level::Warp { "warp" } else { "warpgroup" };
        let found = if control == Level::Thread { "thread" } else { "warp" };
        report.at(
            Rule::Uniformity,
            loc,
            format!(
                "all threads of a {set} execute {name} together, and it stands under a condition or \
                 loop bound that can differ from {found} to {found}: move it out, or compute the \
                 condition from {set}-uniform values"
            ),
        );
    }
}

struct Analysis<'a> {
    facts: &'a Facts,
    /// For values that count threads in program order (thread, warp and warpgroup index, and quotients of them): the
    /// number of threads for each step.
    units: HashMap<ValueId, u64>,
    levels: Vec<Level>,
    changed: bool,
    /// Operation, level of its control flow, level that it needs.
    refused: Vec<(String, LocId, Level, Level)>,
}

/// The level of a value that changes only every `threads` threads.
fn every(threads: u64) -> Level {
    if threads == 0 || threads.is_multiple_of(128) {
        Level::Warpgroup
    } else if threads.is_multiple_of(32) {
        Level::Warp
    } else {
        Level::Thread
    }
}

impl Analysis<'_> {
    fn learn_unit(&mut self, inst: &Inst) {
        let &[result] = &inst.results[..] else { return };
        let unit = match (&inst.op, &inst.args[..]) {
            (Op::Special(Special::Thread), _) => Some(1),
            (Op::Special(Special::Warp), _) => Some(32),
            (Op::Special(Special::Warpgroup), _) => Some(128),
            (Op::Binary(BinaryOp::Shr), &[value, amount]) => {
                self.scaled(value, amount, |amount| 1u64.checked_shl(amount).unwrap_or(0))
            }
            (Op::Binary(BinaryOp::Div), &[value, divisor]) => {
                self.scaled(value, divisor, u64::from)
            }
            _ => None,
        };
        if let Some(unit) = unit.filter(|unit| *unit > 0) {
            self.units.insert(result, unit);
        }
    }

    fn scaled(&self, value: ValueId, by: ValueId, factor: impl Fn(u32) -> u64) -> Option<u64> {
        self.units.get(&value)?.checked_mul(factor(self.facts.u32(by)?))
    }

    fn level(&self, value: ValueId) -> Level {
        self.levels.get(value.index()).copied().unwrap_or(Level::Cta)
    }

    fn join<'v>(&self, values: impl IntoIterator<Item = &'v ValueId>) -> Level {
        values.into_iter().map(|value| self.level(*value)).max().unwrap_or(Level::Cta)
    }

    fn weaken(&mut self, value: ValueId, level: Level) {
        if let Some(held) = self.levels.get_mut(value.index())
            && *held < level
        {
            *held = level;
            self.changed = true;
        }
    }

    fn weaken_all(&mut self, values: &[ValueId], by: &[ValueId], level: Level) {
        for (value, by) in values.iter().zip(by) {
            self.weaken(*value, self.level(*by).max(level));
        }
    }

    fn block(&mut self, kernel: &Kernel, block: &Block, control: Level) {
        for inst in &block.insts {
            let limit = match inst.op.convergence() {
                Convergence::Thread => Level::Thread,
                Convergence::Warp => Level::Warp,
                Convergence::Warpgroup => Level::Warpgroup,
            };
            if control > limit {
                self.refused.push((operation_name(&inst.op), inst.loc, control, limit));
            }
            match &inst.op {
                Op::For | Op::While | Op::If | Op::Roles(_) => self.control(kernel, inst, control),
                _ => {
                    let level = self.result(inst);
                    for &result in &inst.results {
                        self.weaken(result, level);
                    }
                }
            }
        }
    }

    fn control(&mut self, kernel: &Kernel, inst: &Inst, control: Level) {
        match (&inst.op, &inst.blocks[..]) {
            (Op::If, blocks) => {
                let condition = self.join(&inst.args);
                for block in blocks {
                    self.block(kernel, block, control.max(condition));
                    self.weaken_all(&inst.results, yields(block), condition);
                }
            }
            (Op::For, [body]) if inst.args.len() >= 3 => {
                let (bounds, init) = inst.args.split_at(3);
                let bounds = self.join(bounds);
                if let Some((index, carried)) = body.params.split_first() {
                    self.weaken(*index, bounds);
                    self.weaken_all(carried, init, Level::Cta);
                    self.block(kernel, body, control.max(bounds));
                    self.weaken_all(carried, yields(body), Level::Cta);
                }
                self.weaken_all(&inst.results, init, bounds);
                self.weaken_all(&inst.results, yields(body), bounds);
            }
            (Op::While, [condition, body]) => {
                // Threads that leave the loop in different rounds carry different values out of it.
                let leaves = self.join(yields(condition));
                let inside = control.max(leaves);
                self.weaken_all(&condition.params, &inst.args, Level::Cta);
                self.block(kernel, condition, inside);
                self.weaken_all(&body.params, &condition.params, Level::Cta);
                self.block(kernel, body, inside);
                self.weaken_all(&condition.params, yields(body), Level::Cta);
                self.weaken_all(&inst.results, &condition.params, leaves);
            }
            (Op::Roles(_), blocks) => {
                for block in blocks {
                    self.block(kernel, block, control.max(Level::Warpgroup));
                }
            }
            // The structure rule reports other shapes.
            _ => {}
        }
    }

    fn result(&self, inst: &Inst) -> Level {
        let plain = self.join(&inst.args);
        match (&inst.op, &inst.args[..]) {
            (Op::Special(special), _) => match special {
                Special::Thread | Special::Lane => Level::Thread,
                Special::Warp => Level::Warp,
                Special::Warpgroup => Level::Warpgroup,
                Special::Cta
                | Special::CtaCount
                | Special::CtaRank
                | Special::Cluster
                | Special::ClusterCount => Level::Cta,
            },
            (
                Op::Elect
                | Op::Load(_)
                | Op::LoadElement(_)
                | Op::LoadNarrow { .. }
                | Op::LoadMatrix { .. }
                | Op::Atomic { .. }
                | Op::WarpMma(_)
                | Op::AccGet(..)
                | Op::Clock,
                _,
            ) => Level::Thread,
            (Op::ShuffleFirst, _) => plain.min(Level::Warp),
            (Op::AssumeUniform, _) => plain.min(Level::Warpgroup),
            (Op::Binary(BinaryOp::Shr | BinaryOp::Div), _) => match &inst.results[..] {
                [result] => self.units.get(result).map_or(plain, |unit| plain.min(every(*unit))),
                _ => plain,
            },
            // Clearing low bits of a count leaves steps of the lowest bit kept.
            (Op::Binary(BinaryOp::And), &[left, right]) => {
                let steps = |value: ValueId, mask: ValueId| {
                    let unit = *self.units.get(&value)?;
                    unit.checked_mul(1 << self.facts.u32(mask)?.trailing_zeros())
                };
                match steps(left, right).or_else(|| steps(right, left)) {
                    Some(threads) => plain.min(every(threads)),
                    None => plain,
                }
            }
            // A count on one side of a threshold: the same within every group that the threshold does not cut.
            (Op::Compare(op), &[left, right]) => {
                let cut = |value: ValueId, limit: ValueId, inclusive: bool| {
                    let first_beyond = u64::from(self.facts.u32(limit)?) + u64::from(inclusive);
                    self.units.get(&value)?.checked_mul(first_beyond)
                };
                let cut = match op {
                    CompareOp::Lt | CompareOp::Ge => {
                        cut(left, right, false).or_else(|| cut(right, left, true))
                    }
                    CompareOp::Le | CompareOp::Gt => {
                        cut(left, right, true).or_else(|| cut(right, left, false))
                    }
                    CompareOp::Eq | CompareOp::Ne => None,
                };
                cut.map_or(plain, |threads| plain.min(every(threads)))
            }
            _ => plain,
        }
    }
}

fn yields(block: &Block) -> &[ValueId] {
    match block.insts.last() {
        Some(last) if last.op == Op::Yield => &last.args,
        _ => &[],
    }
}
