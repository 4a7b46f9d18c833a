//! Rule 11: in which threads values are the same, and what may stand under a condition on them.

use std::collections::HashMap;

use super::{Facts, Report, Rule};
use crate::{
    BinaryOp, Block, CompareOp, Control, Effect, Inst, Kernel, LocId, Op, Special, Threads,
    Uniformity, ValueId,
};

pub(super) fn check(report: &mut Report<'_>, facts: &Facts) {
    let kernel = report.kernel;
    let mut analysis = Analysis {
        facts,
        units: HashMap::new(),
        threads: vec![Threads::Cta; kernel.values.len()],
        changed: true,
        refused: Vec::new(),
    };
    kernel.visit(&mut |inst| analysis.learn_unit(inst));
    // Sets of threads only shrink, so this ends. The last round sees the fixpoint.
    while analysis.changed {
        analysis.changed = false;
        analysis.refused.clear();
        analysis.block(kernel, &kernel.body, Threads::Cta);
    }
    for (name, loc, control, needed) in analysis.refused {
        let set = if needed == Threads::Warp { "warp" } else { "warpgroup" };
        let found = if control == Threads::Thread { "thread" } else { "warp" };
        report.at(
            Rule::Uniformity,
            loc,
            format!(
                "all threads of a {set} execute {name} together, but it stands under a condition \
                 or loop bound that can differ from {found} to {found}: move it out, or compute \
                 the condition from {set}-uniform values"
            ),
        );
    }
}

struct Analysis<'a> {
    facts: &'a Facts,
    /// The number of threads between two values, for values that count threads in program order:
    /// thread, warp and warpgroup index, and quotients of them.
    units: HashMap<ValueId, u64>,
    /// By value: the largest set of threads in which it is the same.
    threads: Vec<Threads>,
    changed: bool,
    /// Operation, threads that reach it together, and threads that must.
    refused: Vec<(String, LocId, Threads, Threads)>,
}

/// The threads in which a value is the same that changes only every `threads` threads.
fn every(threads: u64) -> Threads {
    if threads == 0 || threads.is_multiple_of(128) {
        Threads::Warpgroup
    } else if threads.is_multiple_of(32) {
        Threads::Warp
    } else {
        Threads::Thread
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

    fn threads(&self, value: ValueId) -> Threads {
        self.threads.get(value.index()).copied().unwrap_or(Threads::Cta)
    }

    fn join<'v>(&self, values: impl IntoIterator<Item = &'v ValueId>) -> Threads {
        values.into_iter().map(|value| self.threads(*value)).max().unwrap_or(Threads::Cta)
    }

    fn weaken(&mut self, value: ValueId, to: Threads) {
        if let Some(held) = self.threads.get_mut(value.index())
            && *held < to
        {
            *held = to;
            self.changed = true;
        }
    }

    fn weaken_all(&mut self, values: &[ValueId], by: &[ValueId], to: Threads) {
        for (value, by) in values.iter().zip(by) {
            self.weaken(*value, self.threads(*by).max(to));
        }
    }

    fn block(&mut self, kernel: &Kernel, block: &Block, control: Threads) {
        for inst in &block.insts {
            let together = inst.op.executed_by();
            if control > together {
                self.refused.push((inst.op.name(), inst.loc, control, together));
            }
            match inst.op.effect() {
                Effect::Control(kind) => self.control(kernel, inst, kind, control),
                Effect::Pure
                | Effect::Reads
                | Effect::Acts
                | Effect::ReadsAccumulator(_)
                | Effect::WritesAccumulator(_)
                | Effect::Wgmma(_)
                | Effect::Bulk(_) => {
                    let threads = self.result(inst);
                    for &result in &inst.results {
                        self.weaken(result, threads);
                    }
                }
            }
        }
    }

    fn control(&mut self, kernel: &Kernel, inst: &Inst, kind: Control, control: Threads) {
        match (kind, &inst.blocks[..]) {
            (Control::If, blocks) => {
                let condition = self.join(&inst.args);
                for block in blocks {
                    self.block(kernel, block, control.max(condition));
                    self.weaken_all(&inst.results, yields(block), condition);
                }
            }
            (Control::For, [body]) if inst.args.len() >= 3 => {
                let (bounds, init) = inst.args.split_at(3);
                let bounds = self.join(bounds);
                if let Some((index, carried)) = body.params.split_first() {
                    self.weaken(*index, bounds);
                    self.weaken_all(carried, init, Threads::Cta);
                    self.block(kernel, body, control.max(bounds));
                    self.weaken_all(carried, yields(body), Threads::Cta);
                }
                self.weaken_all(&inst.results, init, bounds);
                self.weaken_all(&inst.results, yields(body), bounds);
            }
            (Control::While, [condition, body]) => {
                // Threads that leave the loop in different rounds carry different values out of it.
                let leaves = self.join(yields(condition));
                let inside = control.max(leaves);
                self.weaken_all(&condition.params, &inst.args, Threads::Cta);
                self.block(kernel, condition, inside);
                self.weaken_all(&body.params, &condition.params, Threads::Cta);
                self.block(kernel, body, inside);
                self.weaken_all(&condition.params, yields(body), Threads::Cta);
                self.weaken_all(&inst.results, &condition.params, leaves);
            }
            (Control::Roles, blocks) => {
                for block in blocks {
                    self.block(kernel, block, control.max(Threads::Warpgroup));
                }
            }
            // `block` reads the yielded values. The structure rule reports malformed control
            // operations.
            (Control::Yield | Control::For | Control::While, _) => {}
        }
    }

    /// The threads in which the results are the same.
    fn result(&self, inst: &Inst) -> Threads {
        let operands = self.join(&inst.args);
        let plain = match inst.op.uniformity() {
            Uniformity::AsOperands => operands,
            Uniformity::In(threads) => threads,
            Uniformity::AtLeastIn(threads) => operands.min(threads),
        };
        // Counts of threads are the same in more threads than their operands.
        match (&inst.op, &inst.args[..]) {
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
            // A count on one side of a threshold: the same within every group that the threshold
            // does not cut.
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
