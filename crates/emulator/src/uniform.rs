//! Which values are the same in all lanes of a warp that define them.

use pgemm_ir::{Block, Inst, Kernel, Op, Special, ValueId};

/// For each value, whether it is uniform. Values that a loop carries are so only if all copies of them are.
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

fn yielded(block: &Block) -> &[ValueId] {
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

    /// Lets values that share a place agree.
    fn unite(&mut self, uniform: bool, values: &[ValueId]) {
        let uniform = uniform && values.iter().all(|&value| self.is(value));
        values.iter().for_each(|&value| self.set(value, uniform));
    }

    fn block(&mut self, block: &Block) {
        block.insts.iter().for_each(|inst| self.inst(inst));
    }

    fn inst(&mut self, inst: &Inst) {
        inst.blocks.iter().for_each(|block| self.block(block));
        match &inst.op {
            Op::Special(Special::Thread | Special::Lane)
            | Op::Elect
            | Op::Clock
            | Op::AccGet(..)
            | Op::Atomic { .. }
            | Op::WarpMma(_)
            | Op::LoadMatrix { .. } => inst.results.iter().for_each(|&v| self.set(v, false)),
            Op::ShuffleFirst | Op::AssumeUniform => {}
            Op::For => {
                let body = &inst.blocks[0];
                let index = self.is(inst.args[0]) && self.is(inst.args[2]);
                self.set(body.params[0], index);
                let same_trips = self.is(body.params[0]) && self.is(inst.args[1]);
                for (i, &out) in yielded(body).iter().enumerate() {
                    let uniform = same_trips && self.is(inst.args[3 + i]) && self.is(out);
                    self.unite(uniform, &[body.params[1 + i], inst.results[i]]);
                }
            }
            Op::While => {
                let (test, body) = (&inst.blocks[0], &inst.blocks[1]);
                let same_trips = yielded(test).iter().all(|&value| self.is(value));
                for (i, &out) in yielded(body).iter().enumerate() {
                    let uniform = same_trips && self.is(inst.args[i]) && self.is(out);
                    self.unite(uniform, &[test.params[i], body.params[i], inst.results[i]]);
                }
            }
            Op::If => {
                let condition = self.is(inst.args[0]);
                for (i, &result) in inst.results.iter().enumerate() {
                    let same = inst.blocks.iter().all(|block| self.is(yielded(block)[i]));
                    self.set(result, condition && same);
                }
            }
            _ => {
                let uniform = inst.args.iter().all(|&value| self.is(value));
                inst.results.iter().for_each(|&value| self.set(value, uniform));
            }
        }
    }
}
