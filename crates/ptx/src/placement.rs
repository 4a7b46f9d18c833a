//! Where values are kept, so that the code has few moves: which values stay in the accumulator
//! register that they are read from, which are computed in the register that they are wanted in,
//! and which are only parts of addresses.
//!
//! A walk gives each operation a position. Two positions say whether a register can change in
//! between. A use that a loop repeats counts at the end of the loop.

use std::collections::HashMap;

use pgemm_ir::{AccId, BinaryOp, Block, Inst, Kernel, Op, Special, ValueId};

use crate::operand::{Class, Register};

/// What is known of the places of values.
pub(crate) struct Placement {
    values: Vec<Facts>,
}

/// What is known of a value.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// Position and block of the operation that defines it, and the loops around.
    defined: usize,
    block: usize,
    loops: usize,
    outcome: Outcome,
    /// Number of uses, the block of the latest one, and how many are addresses of memory operands.
    uses: usize,
    used_in: usize,
    addresses: usize,
    /// The position up to which its register must not change.
    last_use: usize,
    /// The value whose register it shares.
    shares: Option<(ValueId, Share)>,
    /// The accumulator register that it lives in.
    accumulator: Option<Register>,
}

/// How an operation writes a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outcome {
    /// To any register, after it has read its operands.
    #[default]
    Last,
    /// To any register, at the ends of its blocks.
    InBlocks,
    /// To the register that a loop carries.
    Carried,
    /// To no register of its own.
    Elsewhere,
}

/// How a value shares the register of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// It is the same bits.
    Whole,
    /// It is the register plus a constant, if only memory operands use it.
    Offset,
}

impl Placement {
    /// The places of a kernel's values. `zeroes` says before which operations accumulator groups
    /// are zeroed.
    pub(crate) fn of(kernel: &Kernel, zeroes: &dyn Fn(&Inst) -> bool) -> Placement {
        let mut walk = Walk {
            kernel,
            zeroes,
            values: vec![Facts::default(); kernel.values.len()],
            constants: vec![false; kernel.values.len()],
            position: 0,
            blocks: 0,
            loops: vec![],
            batches: vec![],
            accumulators: HashMap::new(),
        };
        walk.block(&kernel.body);
        walk.share();
        walk.place_accumulators();
        Placement { values: walk.values }
    }

    /// Whether a value is an address plus a constant that only memory operands use.
    pub(crate) fn is_offset(&self, value: ValueId) -> bool {
        self.values.get(value.index()).is_some_and(Facts::is_offset)
    }

    /// The accumulator register that a value lives in.
    pub(crate) fn accumulator(&self, value: ValueId) -> Option<Register> {
        self.values.get(value.index())?.accumulator
    }

    /// Whether a value that a block yields can be computed in the register that takes it. `held`
    /// are the values that this register holds at the beginning of the block.
    pub(crate) fn can_be_computed_in_place(&self, value: ValueId, held: &[ValueId]) -> bool {
        let Some(facts) = self.values.get(value.index()) else { return false };
        let is_free = |held: &Facts| {
            held.last_use < facts.defined
                || held.last_use == facts.defined && facts.outcome == Outcome::Last
        };
        matches!(facts.outcome, Outcome::Last | Outcome::InBlocks)
            && facts.is_used_once_beside()
            && held.iter().all(|held| self.values.get(held.index()).is_some_and(is_free))
    }

    /// Whether a loop that begins with a value can carry it in its register.
    pub(crate) fn can_be_carried_on(&self, value: ValueId) -> bool {
        let Some(facts) = self.values.get(value.index()) else { return false };
        facts.outcome != Outcome::Elsewhere && facts.is_used_once_beside()
    }
}

impl Facts {
    fn is_offset(&self) -> bool {
        matches!(self.shares, Some((_, Share::Offset))) && self.addresses == self.uses
    }

    /// Whether its only use is in the block of its definition, and its register is its own.
    fn is_used_once_beside(&self) -> bool {
        let is_whole = matches!(self.shares, Some((_, Share::Whole)));
        self.uses == 1 && self.used_in == self.block && !is_whole && self.accumulator.is_none()
    }
}

/// Positions at which a register of an accumulator group is read or written.
#[derive(Default)]
struct Accesses {
    /// Each read with the value that it defines.
    reads: Vec<(usize, ValueId)>,
    /// Each write with the value that it takes.
    writes: Vec<(usize, ValueId)>,
}

struct Walk<'k> {
    kernel: &'k Kernel,
    zeroes: &'k dyn Fn(&Inst) -> bool,
    values: Vec<Facts>,
    /// By value, whether it is a constant.
    constants: Vec<bool>,
    position: usize,
    blocks: usize,
    /// For each loop around, the values from outside that it uses.
    loops: Vec<Vec<ValueId>>,
    /// Positions of what starts or orders wgmma, and of what zeroes groups.
    batches: Vec<usize>,
    accumulators: HashMap<(AccId, u32), Accesses>,
}

impl Walk<'_> {
    fn block(&mut self, block: &Block) {
        self.blocks += 1;
        let own = self.blocks;
        for &param in &block.params {
            self.define(param, own, Outcome::Elsewhere);
        }
        for inst in &block.insts {
            self.position += 1;
            if (self.zeroes)(inst) {
                self.batches.push(self.position);
            }
            for (index, &arg) in inst.args.iter().enumerate() {
                self.read(arg, own, is_address(&inst.op, index));
            }
            // While it is in flight, a wgmma reads its fragments.
            for &fragment in inst.fragments() {
                if let Some(facts) = self.values.get_mut(fragment.index()) {
                    facts.last_use = usize::MAX;
                }
            }
            for &result in &inst.results {
                self.define(result, own, outcome(&inst.op));
            }
            self.shared(inst);
            self.accumulator(inst);
            self.nested(inst, own);
        }
    }

    fn nested(&mut self, inst: &Inst, own: usize) {
        let repeats = matches!(inst.op, Op::For | Op::While);
        if repeats {
            self.loops.push(vec![]);
        }
        for nested in &inst.blocks {
            self.block(nested);
        }
        if repeats {
            self.position += 1;
            for value in self.loops.pop().unwrap_or_default() {
                self.extend(value, self.position);
            }
        }
        if inst.op == Op::For {
            // The end and the step are read after each iteration.
            for &bound in inst.args.iter().skip(1).take(2) {
                self.read(bound, own, false);
            }
        }
    }

    fn define(&mut self, value: ValueId, block: usize, outcome: Outcome) {
        let (defined, loops) = (self.position, self.loops.len());
        if let Some(facts) = self.values.get_mut(value.index()) {
            *facts = Facts { defined, block, loops, outcome, ..Facts::default() };
        }
    }

    fn read(&mut self, value: ValueId, block: usize, is_address: bool) {
        let position = self.position;
        let Some(facts) = self.values.get_mut(value.index()) else { return };
        facts.uses += 1;
        facts.used_in = block;
        facts.addresses += usize::from(is_address);
        facts.last_use = facts.last_use.max(position);
        let repeated = facts.loops;
        if let Some(uses) = self.loops.get_mut(repeated) {
            uses.push(value);
        }
    }

    fn extend(&mut self, value: ValueId, position: usize) {
        if let Some(facts) = self.values.get_mut(value.index()) {
            facts.last_use = facts.last_use.max(position);
        }
    }

    /// Notes which register the one result shares.
    fn shared(&mut self, inst: &Inst) {
        let &[result] = &inst.results[..] else { return };
        let is_constant =
            |value: &ValueId| self.constants.get(value.index()).copied().unwrap_or_default();
        let is_constant_at = |index: usize| inst.args.get(index).is_some_and(is_constant);
        let share = match inst.op {
            Op::Const(_) => {
                if let Some(known) = self.constants.get_mut(result.index()) {
                    *known = true;
                }
                return;
            }
            Op::MapAt | Op::DescriptorAdvance(0) | Op::Bitcast(_) => Share::Whole,
            Op::SmemOffset if is_constant_at(1) => Share::Offset,
            Op::Binary(BinaryOp::Add) if is_constant_at(1) => Share::Offset,
            _ => return,
        };
        if let (Some(facts), Some(&source)) =
            (self.values.get_mut(result.index()), inst.args.first())
        {
            facts.shares = Some((source, share));
        }
    }

    fn accumulator(&mut self, inst: &Inst) {
        let position = self.position;
        match (&inst.op, &inst.args[..], &inst.results[..]) {
            (Op::Wgmma(_) | Op::WgmmaFence | Op::WgmmaWait { .. }, ..) => {
                self.batches.push(position);
            }
            (Op::AccGet(acc, index), _, &[result]) => {
                let accesses = self.accumulators.entry((*acc, *index)).or_default();
                accesses.reads.push((position, result));
            }
            (Op::AccSet(acc, index), &[value], _) => {
                let accesses = self.accumulators.entry((*acc, *index)).or_default();
                accesses.writes.push((position, value));
            }
            _ => {}
        }
    }

    /// Registers that several values share are needed for as long as any of these.
    fn share(&mut self) {
        let mut sharing: Vec<usize> =
            (0..self.values.len()).filter(|&value| self.values[value].shares.is_some()).collect();
        sharing.sort_by_key(|&value| std::cmp::Reverse(self.values[value].defined));
        for value in sharing {
            let facts = &self.values[value];
            let (last_use, is_offset) = (facts.last_use, facts.is_offset());
            let Some((source, share)) = facts.shares else { continue };
            if share == Share::Whole || is_offset {
                self.extend(source, last_use);
            }
            // An offset of an offset is part of the same addresses.
            if let Some(source) = self.values.get_mut(source.index()) {
                source.addresses += usize::from(is_offset);
            }
        }
    }

    fn place_accumulators(&mut self) {
        let starts = |positions: std::ops::RangeInclusive<usize>| {
            let next = self.batches.partition_point(|batch| batch < positions.start());
            self.batches.get(next).is_some_and(|batch| batch <= positions.end())
        };
        for (&(acc, index), accesses) in &mut self.accumulators {
            let Some(group) = self.kernel.accumulators.get(acc.index()) else { continue };
            let class = Class::of(group.ty);
            let register = Register { class, index, acc: Some(acc) };
            let is_accessed = |from: usize, to: usize, accesses: &Accesses| {
                let mut all = accesses.reads.iter().chain(&accesses.writes);
                all.any(|(position, _)| (from + 1..to).contains(position))
            };
            // A value is computed in the register that it is written to, if nothing touches the
            // register in between.
            for write in 0..accesses.writes.len() {
                let (position, value) = accesses.writes[write];
                let Some(facts) = self.values.get(value.index()) else { continue };
                let from = facts.defined;
                let is_free = facts.outcome == Outcome::Last
                    && facts.is_used_once_beside()
                    && Class::of(self.kernel.values[value.index()]) == class
                    && !starts(from + 1..=position)
                    && !is_accessed(from, position, accesses);
                if is_free {
                    self.values[value.index()].accumulator = Some(register);
                    accesses.writes[write].0 = from;
                }
            }
            // A value stays in the register that it is read from, if that keeps it long enough.
            for &(position, value) in &accesses.reads {
                let Some(facts) = self.values.get_mut(value.index()) else { continue };
                let is_kept =
                    |write: &(usize, ValueId)| write.0 <= position || write.0 >= facts.last_use;
                let has_class = Class::of(self.kernel.values[value.index()]) == class;
                let last = facts.last_use;
                if has_class
                    && last < usize::MAX
                    && !starts(position + 1..=last)
                    && accesses.writes.iter().all(is_kept)
                {
                    facts.accumulator = Some(register);
                }
            }
        }
    }
}

/// Whether an operand is the address of a memory operand.
fn is_address(op: &Op, index: usize) -> bool {
    match op {
        Op::Load(_)
        | Op::Store(_)
        | Op::Atomic { .. }
        | Op::CompareExchange { .. }
        | Op::Reduce { .. }
        | Op::LoadElement(_)
        | Op::StoreElement(_)
        | Op::LoadNarrow { .. }
        | Op::StoreNarrow { .. }
        | Op::LoadMatrix { .. }
        | Op::StoreMatrix { .. }
        | Op::MbarrierInit { .. }
        | Op::MbarrierArrive
        | Op::MbarrierArriveExpect { .. }
        | Op::MbarrierArriveCluster
        | Op::MbarrierWait
        | Op::CopyArrive
        | Op::PrefetchLine => index == 0,
        Op::TmaLoad { .. } => index == 1 || index == 2,
        Op::TmaStore { .. } | Op::TmaReduce { .. } => index == 1,
        Op::BulkLoad { .. } => index <= 2,
        Op::CopyAsync { .. } => index <= 1,
        Op::BulkStore { .. } | Op::BulkReduce { .. } => index <= 1,
        _ => false,
    }
}

fn outcome(op: &Op) -> Outcome {
    match op {
        Op::If => Outcome::InBlocks,
        Op::For | Op::While => Outcome::Carried,
        Op::Const(_)
        | Op::SmemAddress(_)
        | Op::MapAt
        | Op::AccGet(..)
        | Op::DescriptorAdvance(0)
        | Op::Special(Special::Warp | Special::Warpgroup) => Outcome::Elsewhere,
        _ => Outcome::Last,
    }
}
