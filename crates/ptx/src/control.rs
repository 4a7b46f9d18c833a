//! Structured control flow as labels and branches. Carried values and results live in registers of
//! their own, which every `Yield` writes.

use pgemm_ir::{Block, Inst, Op, Type, ValueId};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};
use crate::operand::{Class, Operand, Register};

/// One move of a parallel copy.
type Move = (Register, Type, Operand);

impl Emitter<'_> {
    /// The test is at the loop's end. A guard at entry comes before it, unless constants show that
    /// the body runs.
    pub(crate) fn for_loop(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [body] = self.blocks(inst)?;
        let [begin, end, step, init @ ..] = &inst.args[..] else {
            return Err(self.arity(inst, "operands", 3, inst.args.len()));
        };
        let [index, params @ ..] = &body.params[..] else {
            return Err(self.arity(inst, "block parameters", 1, 0));
        };
        let number = self.next_label();
        let runs = match (self.operand(inst, *begin)?, self.operand(inst, *end)?) {
            (Operand::Immediate(begin), Operand::Immediate(end)) => begin < end,
            _ => false,
        };
        let last = self.read(inst, *end)?;
        let step = self.read(inst, *step)?;
        let lists = [params, &inst.results[..]];
        let carried = self.carry(inst, init, &lists)?;
        let first = self.operand(inst, *begin)?;
        let index = self.define(inst, *index)?;
        self.copy(index, Type::U32, first);
        if !runs {
            let done = self.scratch(Class::Predicate);
            ptx!(self, "setp.ge.u32 {done}, {index}, {last}");
            ptx!(self, "@{done} bra $end{number}");
        }
        self.text.label(format_args!("$for{number}"));
        if runs {
            // Kernels unroll with Rust loops; the assembler must not unroll further.
            ptx!(self, ".pragma \"nounroll\"");
        }
        self.place_yields(inst, body, &carried, &[params])?;
        self.block(inst, body, &carried)?;
        ptx!(self, "add.u32 {index}, {index}, {step}");
        let again = self.scratch(Class::Predicate);
        ptx!(self, "setp.lt.u32 {again}, {index}, {last}");
        ptx!(self, "@{again} bra $for{number}");
        if !runs {
            self.text.label(format_args!("$end{number}"));
        }
        Ok(())
    }

    pub(crate) fn while_loop(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [condition, body] = self.blocks(inst)?;
        let number = self.next_label();
        let lists = [&condition.params[..], &body.params, &inst.results];
        let carried = self.carry(inst, &inst.args, &lists)?;
        self.text.label(format_args!("$while{number}"));
        let (test, yielded) = self.split(inst, condition)?;
        self.insts(test)?;
        let [proceed] = yielded.args[..] else {
            return Err(self.arity(inst, "yielded values", 1, yielded.args.len()));
        };
        let proceed = self.register(yielded, proceed)?;
        ptx!(self, "@!{proceed} bra $end{number}");
        self.place_yields(inst, body, &carried, &[&condition.params, &body.params])?;
        self.block(inst, body, &carried)?;
        ptx!(self, "bra $while{number}");
        self.text.label(format_args!("$end{number}"));
        Ok(())
    }

    pub(crate) fn branch(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [then, otherwise] = self.blocks(inst)?;
        let [condition] = self.args(inst)?;
        let condition = self.register(inst, condition)?;
        let number = self.next_label();
        let mut results = Vec::with_capacity(inst.results.len());
        for &result in &inst.results {
            results.push((self.define(inst, result)?, self.ty(inst, result)?));
        }
        for block in [then, otherwise] {
            self.place_yields(inst, block, &results, &[])?;
        }
        // The registers take what one block yields, and then, under the condition, what the one
        // instruction of the other block computes.
        for (short, other, holds) in [(then, otherwise, true), (otherwise, then, false)] {
            if self.is_one_instruction(short) && self.instructions(other).next().is_none() {
                self.block(inst, other, &results)?;
                self.text.guard = Some((condition, holds));
                let emitted = self.block(inst, short, &results);
                self.text.guard = None;
                return emitted;
            }
        }
        let empty = |block: &Block| block.insts.len() <= 1 && results.is_empty();
        if empty(then) {
            self.block(inst, then, &results)?;
            ptx!(self, "@{condition} bra $end{number}");
            self.block(inst, otherwise, &results)?;
        } else if empty(otherwise) {
            ptx!(self, "@!{condition} bra $end{number}");
            self.block(inst, then, &results)?;
            self.block(inst, otherwise, &results)?;
        } else {
            ptx!(self, "@!{condition} bra $else{number}");
            self.block(inst, then, &results)?;
            ptx!(self, "bra $end{number}");
            self.text.label(format_args!("$else{number}"));
            self.block(inst, otherwise, &results)?;
        }
        self.text.label(format_args!("$end{number}"));
        Ok(())
    }

    /// Registers for carried values, initialised; each list of values in `lists` names them.
    fn carry(
        &mut self,
        inst: &Inst,
        init: &[ValueId],
        lists: &[&[ValueId]],
    ) -> Result<Vec<(Register, Type)>, EmitError> {
        for list in lists {
            if list.len() != init.len() {
                return Err(self.arity(inst, "carried values", init.len(), list.len()));
            }
        }
        let mut carried = Vec::with_capacity(init.len());
        for (position, &value) in init.iter().enumerate() {
            let ty = self.ty(inst, value)?;
            let operand = self.operand(inst, value)?;
            let register = match operand {
                Operand::Register(own) if self.placement.can_be_carried_on(value) => own,
                _ => self.scratch(Class::of(ty)),
            };
            self.copy(register, ty, operand);
            for name in lists.iter().filter_map(|list| list.get(position)) {
                self.bind(inst, *name, Operand::Register(register))?;
            }
            carried.push((register, ty));
        }
        Ok(carried)
    }

    /// Has what a block yields computed in the registers that take it, where these do not hold
    /// values of `held` any more.
    fn place_yields(
        &mut self,
        inst: &Inst,
        block: &Block,
        registers: &[(Register, Type)],
        held: &[&[ValueId]],
    ) -> Result<(), EmitError> {
        let (_, yielded) = self.split(inst, block)?;
        for (position, (&value, &(register, _))) in yielded.args.iter().zip(registers).enumerate() {
            let held: Vec<ValueId> =
                held.iter().filter_map(|list| list.get(position)).copied().collect();
            if self.placement.can_be_computed_in_place(value, &held) {
                self.targets.insert(value, register);
            }
        }
        Ok(())
    }

    /// A nested block without its `Yield`, and the `Yield`.
    fn split<'b>(
        &self,
        inst: &Inst,
        block: &'b Block,
    ) -> Result<(&'b [Inst], &'b Inst), EmitError> {
        match block.insts.split_last() {
            Some((yielded, insts)) if yielded.op == Op::Yield => Ok((insts, yielded)),
            _ => Err(EmitError::MisplacedYield { at: self.at(inst) }),
        }
    }

    /// Emits a nested block and moves what it yields into `targets`.
    fn block(
        &mut self,
        inst: &Inst,
        block: &Block,
        targets: &[(Register, Type)],
    ) -> Result<(), EmitError> {
        let (insts, yielded) = self.split(inst, block)?;
        self.insts(insts)?;
        if yielded.args.len() != targets.len() {
            return Err(self.arity(inst, "yielded values", targets.len(), yielded.args.len()));
        }
        let mut moves = Vec::with_capacity(targets.len());
        for (&(register, ty), &value) in targets.iter().zip(&yielded.args) {
            moves.push((register, ty, self.operand(yielded, value)?));
        }
        self.parallel_copy(moves);
        Ok(())
    }

    /// Does all moves as if at once: a register is written only after the moves that read it.
    /// Cycles go through a scratch register.
    fn parallel_copy(&mut self, mut moves: Vec<Move>) {
        moves.retain(|&(to, _, from)| from != Operand::Register(to));
        while !moves.is_empty() {
            let free = moves.iter().position(|&(to, ..)| {
                moves.iter().all(|&(_, _, from)| from != Operand::Register(to))
            });
            if let Some(position) = free {
                let (to, ty, from) = moves.remove(position);
                self.copy(to, ty, from);
                continue;
            }
            let (to, ty, _) = moves[0];
            let saved = self.scratch(to.class);
            self.copy(saved, ty, Operand::Register(to));
            for (_, _, from) in &mut moves {
                if *from == Operand::Register(to) {
                    *from = Operand::Register(saved);
                }
            }
        }
    }

    /// The operations of a nested block that are more than operands.
    fn instructions<'b>(&self, block: &'b Block) -> impl Iterator<Item = &'b Inst> {
        let is_operand = |inst: &Inst| match (&inst.op, &inst.results[..]) {
            (Op::Const(_) | Op::SmemAddress(_) | Op::Yield, _) => true,
            (_, &[result]) => self.placement.is_offset(result),
            _ => false,
        };
        block.insts.iter().filter(move |inst| !is_operand(inst))
    }

    /// Whether a nested block is one access of memory or one computation, so that a predicate
    /// replaces the branch around it. Longer code under predicates makes the assembler keep more
    /// registers.
    fn is_one_instruction(&self, block: &Block) -> bool {
        let mut own = self.instructions(block);
        let (first, second) = (own.next(), own.next());
        let is_guardable = |inst: &Inst| match inst.op {
            Op::Load(_)
            | Op::Store(_)
            | Op::LoadElement(_)
            | Op::StoreElement(_)
            | Op::LoadNarrow { .. }
            | Op::StoreNarrow { .. }
            | Op::Reduce { .. }
            | Op::MbarrierArrive
            | Op::MbarrierArriveExpect { .. }
            | Op::MbarrierArriveCluster
            | Op::PrefetchLine => true,
            _ => inst.op.is_pure(),
        };
        first.is_some_and(is_guardable) && second.is_none()
    }
}
