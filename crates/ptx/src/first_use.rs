//! Where accumulator groups are initialised.

use std::collections::{HashMap, HashSet};

use pgemm_ir::{AccId, Block, Constant, Entity, Inst, Kernel, Op, ValueId};

/// By instruction, the accumulator groups to initialise before it. The place is in the branch that
/// has all uses of the group, outside of any loop, before the first use and the first fence. ptxas
/// 12 serialises the wgmma of a loop whose accumulators no instruction defines before they are
/// added to (C7515). A group needs no initialisation if its first use is a wgmma that overwrites
/// it, or if straight-line code first writes all of its registers.
pub(crate) fn first_uses(kernel: &Kernel) -> HashMap<*const Inst, Vec<AccId>> {
    let mut no: HashSet<ValueId> = HashSet::new();
    kernel.visit(&mut |inst| {
        if inst.op == Op::Const(Constant::Bool(false)) {
            no.extend(&inst.results);
        }
    });
    let mut first_uses: HashMap<*const Inst, Vec<AccId>> = HashMap::new();
    for acc in (0..kernel.accumulators.len() as u32).map(AccId) {
        let uses_acc = |inst: &Inst| inst.op.entities().contains(&Entity::Accumulator(acc));
        let starts = |inst: &Inst| inst.op == Op::WgmmaFence || uses_acc(inst);
        let mut block = &kernel.body;
        let mut before_loops = None;
        loop {
            let uses = |inst: &&Inst| holds(inst, &uses_acc);
            let mut users = block.insts.iter().filter(uses);
            let Some(first) = users.next() else { break };
            let overwrites = matches!(first.op, Op::Wgmma(_))
                && first.args.last().is_some_and(|accumulate| no.contains(accumulate));
            if overwrites || writes_all(kernel, acc, block.insts.iter().filter(uses)) {
                break;
            }
            let place = block.insts.iter().find(|inst| holds(inst, &starts));
            let mut nested = first.blocks.iter().filter(|block| block_holds(block, &uses_acc));
            match (users.next(), nested.next(), nested.next()) {
                (None, Some(only), None) => {
                    if first.op != Op::If {
                        before_loops = before_loops.or(place);
                    }
                    block = only;
                }
                _ => {
                    if let Some(place) = before_loops.or(place) {
                        first_uses.entry(std::ptr::from_ref(place)).or_default().push(acc);
                    }
                    break;
                }
            }
        }
    }
    first_uses
}

/// Whether the users of a group in a block write all of its registers before anything else.
fn writes_all<'k>(kernel: &Kernel, acc: AccId, users: impl Iterator<Item = &'k Inst>) -> bool {
    let written: HashSet<u32> = users
        .map_while(|inst| match inst.op {
            Op::AccSet(_, index) => Some(index),
            _ => None,
        })
        .collect();
    let group = kernel.accumulators.get(acc.index());
    group.is_some_and(|group| (0..group.registers).all(|index| written.contains(&index)))
}

fn holds(inst: &Inst, test: &dyn Fn(&Inst) -> bool) -> bool {
    test(inst) || inst.blocks.iter().any(|block| block_holds(block, test))
}

fn block_holds(block: &Block, test: &dyn Fn(&Inst) -> bool) -> bool {
    block.insts.iter().any(|inst| holds(inst, test))
}
