//! Removes unused pure operations, and branches and counted loops that hold nothing else.

use std::collections::{HashMap, HashSet};

use crate::{Block, Control, Effect, Inst, Kernel, ValueId};

/// Removes unused pure operations. Expects a verified kernel.
pub fn dce(kernel: &mut Kernel) {
    sweep(&mut kernel.body, &mut HashSet::new());
}

/// Uses come after definitions, so one walk from the back sees every use first; yields keep carried
/// values alive.
fn sweep(block: &mut Block, used: &mut HashSet<ValueId>) {
    let mut kept = Vec::with_capacity(block.insts.len());
    for mut inst in std::mem::take(&mut block.insts).into_iter().rev() {
        let unused = inst.results.iter().all(|result| !used.contains(result));
        if unused && removable(&inst) {
            continue;
        }
        for nested in &mut inst.blocks {
            sweep(nested, used);
        }
        used.extend(&inst.args);
        kept.push(inst);
    }
    kept.reverse();
    block.insts = kept;
}

fn removable(inst: &Inst) -> bool {
    match inst.op.effect() {
        Effect::Pure => true,
        Effect::Control(Control::If | Control::For) => {
            let mut insts = inst.blocks.iter().flat_map(|block| &block.insts);
            insts.all(|inst| inst.op.effect() == Effect::Control(Control::Yield) || removable(inst))
        }
        // A `While` may run forever.
        Effect::Control(Control::While | Control::Roles | Control::Yield)
        | Effect::Reads
        | Effect::Acts
        | Effect::ReadsAccumulator(_)
        | Effect::WritesAccumulator(_)
        | Effect::Wgmma(_)
        | Effect::Bulk(_) => false,
    }
}

/// Numbers values in program order and drops those without a definition. Expects a verified kernel.
pub fn renumber(kernel: &mut Kernel) {
    let mut numbers = HashMap::new();
    let mut types = Vec::new();
    let mut body = std::mem::take(&mut kernel.body);
    let mut number = |value: &mut ValueId| {
        let next = ValueId(types.len() as u32);
        let id = *numbers.entry(*value).or_insert(next);
        if id == next
            && let Some(ty) = kernel.values.get(value.index())
        {
            types.push(*ty);
        }
        *value = id;
    };
    walk(&mut body, &mut number);
    kernel.body = body;
    kernel.values = types;
}

fn walk(block: &mut Block, number: &mut impl FnMut(&mut ValueId)) {
    block.params.iter_mut().for_each(&mut *number);
    for inst in &mut block.insts {
        inst.args.iter_mut().for_each(&mut *number);
        for nested in &mut inst.blocks {
            walk(nested, number);
        }
        inst.results.iter_mut().for_each(&mut *number);
    }
}
