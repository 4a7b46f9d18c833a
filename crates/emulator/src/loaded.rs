//! Analysis of the values that are computed from loads of shared memory. An atomic operation that
//! takes such a value waits until the loads have returned.

use pgemm_ir::{Block, Control, Effect, Inst, Kernel, Op, Space, ValueId};

use crate::uniform::yielded;

/// For each value, whether it is computed from a load of shared memory.
pub(crate) fn analyse(kernel: &Kernel) -> Vec<bool> {
    let mut analysis = Analysis { loaded: vec![false; kernel.values.len()], changed: true };
    while analysis.changed {
        analysis.changed = false;
        analysis.block(&kernel.body);
    }
    analysis.loaded
}

struct Analysis {
    loaded: Vec<bool>,
    changed: bool,
}

impl Analysis {
    fn set(&mut self, value: ValueId, loaded: bool) {
        if loaded && !self.loaded[value.index()] {
            self.loaded[value.index()] = true;
            self.changed = true;
        }
    }

    /// Passes on what values are computed from to others, one by one.
    fn pass(&mut self, from: &[ValueId], to: &[ValueId]) {
        for (&from, &to) in from.iter().zip(to) {
            self.set(to, self.loaded[from.index()]);
        }
    }

    fn block(&mut self, block: &Block) {
        block.insts.iter().for_each(|inst| self.inst(inst));
    }

    fn inst(&mut self, inst: &Inst) {
        inst.blocks.iter().for_each(|block| self.block(block));
        if let Effect::Control(kind) = inst.op.effect() {
            return self.control(inst, kind);
        }
        let loads = match &inst.op {
            Op::Load(access) => access.space == Space::Shared,
            Op::LoadNarrow { space, .. } => *space == Space::Shared,
            Op::LoadMatrix { .. } => true,
            _ => false,
        };
        let loaded = loads || inst.args.iter().any(|value| self.loaded[value.index()]);
        inst.results.iter().for_each(|&value| self.set(value, loaded));
    }

    fn control(&mut self, inst: &Inst, kind: Control) {
        match (kind, &inst.blocks[..]) {
            (Control::For, [body]) => {
                let carried = body.params.get(1..).unwrap_or_default();
                for from in [inst.args.get(3..).unwrap_or_default(), yielded(body)] {
                    self.pass(from, carried);
                    self.pass(from, &inst.results);
                }
            }
            (Control::While, [test, body]) => {
                for from in [&inst.args[..], yielded(body)] {
                    for to in [&test.params, &body.params, &inst.results] {
                        self.pass(from, to);
                    }
                }
            }
            (Control::If, blocks) => {
                for block in blocks {
                    self.pass(yielded(block), &inst.results);
                }
            }
            _ => {}
        }
    }
}
