//! Branches and loops of the IR, compared with those of the PTX.

use std::collections::{BTreeSet, HashMap};

use pgemm_ir::{Block, Effect, Inst, Op};

use crate::error::{Mismatch, Outcome};
use crate::structure::{Branch, Loop, Node};
use crate::syntax::Register;
use crate::terms::Term;
use crate::walk::{Cursor, Walk};

impl Walk<'_> {
    /// A branch. One without instructions that have a place is nothing but choices of values,
    /// which may stand anywhere.
    pub(crate) fn branch(&mut self, inst: &Inst, cursor: &mut Cursor<'_>) -> Outcome<()> {
        let [then, otherwise] = &inst.blocks[..] else { return Err(self.blocks(inst, cursor)) };
        let condition = self.operands(inst)?[0];
        let line = self.line(cursor);
        if !has_step(then) && !has_step(otherwise) {
            let nothing = || Cursor::new(&[], line);
            let before = self.accumulators.clone();
            let yes = self.block(then, &mut nothing())?;
            let written = std::mem::replace(&mut self.accumulators, before);
            let no = self.block(otherwise, &mut nothing())?;
            return self.join(inst, condition, (yes, written), no);
        }
        let (line, predicate, [holds, fails]) = match self.advance(cursor)? {
            Some(Node::Branch(Branch { line, predicate, holds, fails })) => {
                (*line, self.machine.get(*predicate), [holds, fails])
            }
            node => {
                let line = node.map_or(line, Node::line);
                return Err(Mismatch::at(line, "no branch", "a branch"));
            }
        };
        let mut sides = [holds, fails];
        let mut taken = predicate;
        if !self.same(condition, predicate) {
            taken = self.matcher.terms.not(predicate);
            sides = [fails, holds];
            if !self.same(condition, taken) {
                return self.require(line, "the predicate", condition, predicate);
            }
        }
        let before = (self.machine.clone(), self.accumulators.clone());
        self.path.push((condition, taken, true));
        let yes = self.block(then, &mut Cursor::new(sides[0], line))?;
        let machine = std::mem::replace(&mut self.machine, before.0);
        let written = std::mem::replace(&mut self.accumulators, before.1);
        self.path.pop();
        self.path.push((condition, taken, false));
        let no = self.block(otherwise, &mut Cursor::new(sides[1], line))?;
        self.path.pop();
        let other = std::mem::replace(&mut self.machine, machine);
        self.machine.join(&mut self.matcher.terms, taken, &other);
        self.join(inst, condition, (yes, written), no)
    }

    /// The results of a branch and the accumulators behind it. The state has those of the side on
    /// which the condition does not hold.
    fn join(
        &mut self,
        inst: &Inst,
        condition: Term,
        (yes, written): (Vec<Term>, Vec<Vec<Term>>),
        no: Vec<Term>,
    ) -> Outcome<()> {
        let terms = &mut self.matcher.terms;
        for (yes, no) in written.iter().flatten().zip(self.accumulators.iter_mut().flatten()) {
            if yes != no {
                *no = terms.either(condition, *yes, *no);
            }
        }
        let pairs = yes.into_iter().zip(no);
        let results: Vec<Term> = pairs.map(|(yes, no)| terms.either(condition, yes, no)).collect();
        self.define(&inst.results, &results)
    }

    /// A counted loop: its test is at the end, and a guard comes before it unless constants show
    /// that the body runs.
    pub(crate) fn for_loop(&mut self, inst: &Inst, cursor: &mut Cursor<'_>) -> Outcome<()> {
        let [body] = &inst.blocks[..] else { return Err(self.blocks(inst, cursor)) };
        let operands = self.operands(inst)?;
        let [begin, end, step, first @ ..] = &operands[..] else {
            return Err(self.blocks(inst, cursor));
        };
        let (begin, end, step) = (*begin, *end, *step);
        let line = self.line(cursor);
        let (repeated, runs) = match self.advance(cursor)? {
            Some(Node::Loop(repeated)) => {
                let known = [begin, end].map(|bound| self.matcher.terms.bits_of(bound));
                if !matches!(known, [Some(begin), Some(end)] if begin < end) {
                    let expected = "a test before it, since the body may not run";
                    return Err(Mismatch::at(repeated.line, "a loop", expected));
                }
                (repeated, true)
            }
            Some(Node::Branch(guard)) => {
                let (repeated, skips) = match (&guard.holds[..], &guard.fails[..]) {
                    ([], [Node::Loop(repeated)]) => (repeated, true),
                    ([Node::Loop(repeated)], []) => (repeated, false),
                    _ => {
                        return Err(Mismatch::at(guard.line, "a branch", "a branch around a loop"));
                    }
                };
                let skips = self.condition(guard.predicate, skips);
                let expected = self.matcher.terms.computed("setp.ge.u32", &[begin, end]);
                self.require(guard.line, "the predicate", expected, skips)?;
                (repeated, false)
            }
            _ => return Err(Mismatch::at(line, "no loop", "a loop")),
        };
        if repeated.after.is_some() {
            let expected = "a loop with its test at the end";
            return Err(Mismatch::at(repeated.line, "a loop that is left in between", expected));
        }
        // Kernels unroll with Rust loops; the assembler would unroll constant loops again.
        if repeated.nounroll != runs {
            let pragma = |present| if present { "\"nounroll\"" } else { "no pragma" };
            let found = pragma(repeated.nounroll);
            return Err(Mismatch::at(repeated.line, found, pragma(runs)));
        }
        let first: Vec<Term> = [begin].iter().chain(first).copied().collect();
        let (own, written) = self.begin_loop(inst, repeated, first)?;
        let carried = self.carried(own, body.params.len(), false);
        self.define(&body.params, &carried)?;
        let yielded = self.block(body, &mut Cursor::new(&repeated.before, repeated.line))?;
        let (line, predicate, goes_on) = repeated.test;
        let terms = &mut self.matcher.terms;
        let index = terms.computed("add.u32", &[carried[0], step]);
        let again = terms.computed("setp.lt.u32", &[index, end]);
        let test = self.condition(predicate, goes_on);
        self.require(line, "the predicate", again, test)?;
        let next = [index].into_iter().chain(yielded).collect();
        self.end_loop(own, line, &written, next)?;
        for &register in &written {
            let behind = self.matcher.terms.ends(own, register);
            self.machine.set(register, behind);
        }
        self.take_accumulators(&written);
        let results = self.carried(own, body.params.len(), true);
        self.define(&inst.results, &results[1..])
    }

    /// A loop with its test between two blocks.
    pub(crate) fn while_loop(&mut self, inst: &Inst, cursor: &mut Cursor<'_>) -> Outcome<()> {
        let [condition, body] = &inst.blocks[..] else { return Err(self.blocks(inst, cursor)) };
        let first = self.operands(inst)?;
        let line = self.line(cursor);
        let (repeated, after) = match self.advance(cursor)? {
            Some(Node::Loop(repeated @ Loop { after: Some(after), .. })) => (repeated, after),
            node => {
                let line = node.map_or(line, Node::line);
                return Err(Mismatch::at(line, "no such loop", "a loop that a test leaves"));
            }
        };
        let (own, written) = self.begin_loop(inst, repeated, first)?;
        let carried = self.carried(own, condition.params.len(), false);
        self.define(&condition.params, &carried)?;
        self.define(&body.params, &carried)?;
        let proceeds = self.block(condition, &mut Cursor::new(&repeated.before, repeated.line))?;
        let (line, predicate, goes_on) = repeated.test;
        let test = self.condition(predicate, goes_on);
        for proceeds in proceeds {
            self.require(line, "the predicate", proceeds, test)?;
        }
        let left = (self.machine.clone(), self.accumulators.clone());
        let next = self.block(body, &mut Cursor::new(after, line))?;
        self.end_loop(own, line, &written, next)?;
        (self.machine, self.accumulators) = left;
        self.define(&inst.results, &carried)
    }

    fn carried(&mut self, own: usize, count: usize, behind: bool) -> Vec<Term> {
        (0..count).map(|position| self.matcher.terms.carried(own, position, behind)).collect()
    }

    /// Begins a loop: from here on, the registers that it writes hold what is not known. Returns
    /// its number and these registers.
    fn begin_loop(
        &mut self,
        inst: &Inst,
        repeated: &Loop,
        first: Vec<Term>,
    ) -> Outcome<(usize, BTreeSet<Register>)> {
        let mut written = repeated.written.clone();
        // A wait, too, gives accumulators other contents.
        if inst.blocks.iter().any(has_wgmma) {
            written.extend(self.groups.iter().flatten());
        }
        self.require_accumulators(repeated.line)?;
        let before: HashMap<Register, Term> =
            written.iter().map(|&register| (register, self.machine.get(register))).collect();
        let own = self.matcher.begin_loop(first, before.clone());
        for (register, before) in before {
            let begins = self.matcher.terms.begins(own, register);
            self.before.insert(begins, before);
            self.machine.set(register, begins);
        }
        self.take_accumulators(&written);
        Ok((own, written))
    }

    /// Ends an iteration: the registers must hold what the next one begins with.
    fn end_loop(
        &mut self,
        own: usize,
        line: usize,
        written: &BTreeSet<Register>,
        next: Vec<Term>,
    ) -> Outcome<()> {
        self.require_accumulators(line)?;
        let held = written.iter().map(|&register| (register, self.machine.get(register))).collect();
        self.matcher.end_loop(own, next, held).map_err(|(position, ir, ptx)| {
            let difference = self.matcher.difference(ir, ptx);
            let [ir, ptx] = [ir, ptx].map(|term| self.matcher.terms.show(term, 3));
            let found = format!("carried value {position} of the next iteration, {ptx}");
            Mismatch::at(line, found + &difference, ir)
        })
    }

    /// Lets the accumulators of the IR have the contents of the registers that a loop writes.
    fn take_accumulators(&mut self, written: &BTreeSet<Register>) {
        for (terms, registers) in self.accumulators.iter_mut().zip(&self.groups) {
            for (term, register) in terms.iter_mut().zip(registers) {
                if written.contains(register) {
                    *term = self.machine.get(*register);
                }
            }
        }
    }

    fn blocks(&self, inst: &Inst, cursor: &Cursor<'_>) -> Box<Mismatch> {
        let found = format!("{} blocks, {} operands", inst.blocks.len(), inst.args.len());
        Mismatch::at(self.line(cursor), found, "the blocks and operands of this operation")
    }
}

/// Whether a block has an instruction that has a place.
fn has_step(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst.op.effect() {
        Effect::Pure | Effect::ReadsAccumulator(_) | Effect::WritesAccumulator(_) => false,
        Effect::Control(_) => match inst.op {
            Op::If => inst.blocks.iter().any(has_step),
            Op::Yield => false,
            _ => true,
        },
        Effect::Reads | Effect::Acts | Effect::Wgmma(_) | Effect::Bulk(_) => true,
    })
}

fn has_wgmma(block: &Block) -> bool {
    block.insts.iter().any(|inst| {
        matches!(inst.op.effect(), Effect::Wgmma(_)) || inst.blocks.iter().any(has_wgmma)
    })
}
