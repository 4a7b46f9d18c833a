//! Analysis of the values that are the same in all lanes of a warp.

use pgemm_ir::{Block, Control, Effect, Inst, Kernel, Op, Threads, Uniformity, ValueId};

/// For each value, whether it is uniform. A value that a loop carries is uniform only if all copies
/// of it are.
pub(crate) fn analyse(kernel: &Kernel) -> Vec<bool> {
    let mut analysis = Analysis { uniform: vec![true; kernel.values.len()], changed: true };
    while analysis.changed {
        analysis.changed = false;
        analysis.block(&kernel.body);
    }
    analysis.uniform
}

struct Analysis {
    uniform: Vec<bool>,
    changed: bool,
}

/// The values that a block passes on at its end.
pub(crate) fn yielded(block: &Block) -> &[ValueId] {
    match block.insts.last() {
        Some(Inst { op: Op::Yield, args, .. }) => args,
        _ => &[],
    }
}

impl Analysis {
    fn is(&self, value: ValueId) -> bool {
        self.uniform[value.index()]
    }

    fn set(&mut self, value: ValueId, uniform: bool) {
        if !uniform && self.uniform[value.index()] {
            self.uniform[value.index()] = false;
            self.changed = true;
        }
    }

    /// Gives values that share a slot the same uniformity.
    fn unite(&mut self, uniform: bool, values: &[ValueId]) {
        let uniform = uniform && values.iter().all(|&value| self.is(value));
        values.iter().for_each(|&value| self.set(value, uniform));
    }

    fn block(&mut self, block: &Block) {
        block.insts.iter().for_each(|inst| self.inst(inst));
    }

    fn inst(&mut self, inst: &Inst) {
        inst.blocks.iter().for_each(|block| self.block(block));
        match inst.op.effect() {
            Effect::Control(kind) => self.control(inst, kind),
            Effect::Pure
            | Effect::Reads
            | Effect::Acts
            | Effect::ReadsAccumulator(_)
            | Effect::WritesAccumulator(_)
            | Effect::Wgmma(_)
            | Effect::Bulk(_) => {
                let operands = inst.args.iter().all(|&value| self.is(value));
                let uniform = match (&inst.op, inst.op.uniformity()) {
                    // The lanes of a warp load at the same moment.
                    (Op::Load(_) | Op::LoadElement(_) | Op::LoadNarrow { .. }, _) => operands,
                    (_, Uniformity::AsOperands) => operands,
                    (_, Uniformity::In(threads)) => threads <= Threads::Warp,
                    (_, Uniformity::AtLeastIn(threads)) => threads <= Threads::Warp || operands,
                };
                inst.results.iter().for_each(|&value| self.set(value, uniform));
            }
        }
    }

    fn control(&mut self, inst: &Inst, kind: Control) {
        match kind {
            Control::For => {
                let body = &inst.blocks[0];
                let index = self.is(inst.args[0]) && self.is(inst.args[2]);
                self.set(body.params[0], index);
                let same_trips = self.is(body.params[0]) && self.is(inst.args[1]);
                for (i, &out) in yielded(body).iter().enumerate() {
                    let uniform = same_trips && self.is(inst.args[3 + i]) && self.is(out);
                    self.unite(uniform, &[body.params[1 + i], inst.results[i]]);
                }
            }
            Control::While => {
                let (test, body) = (&inst.blocks[0], &inst.blocks[1]);
                let same_trips = yielded(test).iter().all(|&value| self.is(value));
                for (i, &out) in yielded(body).iter().enumerate() {
                    let uniform = same_trips && self.is(inst.args[i]) && self.is(out);
                    self.unite(uniform, &[test.params[i], body.params[i], inst.results[i]]);
                }
            }
            Control::If => {
                let condition = self.is(inst.args[0]);
                for (i, &result) in inst.results.iter().enumerate() {
                    let same = inst.blocks.iter().all(|block| self.is(yielded(block)[i]));
                    self.set(result, condition && same);
                }
            }
            // They define no values.
            Control::Roles | Control::Yield => {}
        }
    }
}
