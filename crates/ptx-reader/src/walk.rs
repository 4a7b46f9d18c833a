//! The walk over the blocks of a kernel and the tree of its PTX, in step.

use std::collections::HashMap;

use pgemm_ir::{AccId, Block, Control, Effect, Inst, Kernel, Op, Special, ValueId, WgmmaEffect};

use crate::error::{Mismatch, Outcome};
use crate::machine::Machine;
use crate::rules::{Context, Rule, rule};
use crate::structure::{Loop, Node};
use crate::syntax::{Module, Register};
use crate::terms::{Node as Meaning, Term, Terms};
use crate::unify::Matcher;

/// The state of a comparison.
pub(crate) struct Walk<'m> {
    pub(crate) kernel: &'m Kernel,
    pub(crate) matcher: Matcher,
    pub(crate) machine: Machine<'m>,
    /// The indices of warp and warpgroup, if the kernel uses them.
    pub(crate) uniform: Vec<(Special, Term)>,
    /// What each value of the IR is, once it is defined.
    values: Vec<Option<Term>>,
    /// What each accumulator register of the IR holds.
    pub(crate) accumulators: Vec<Vec<Term>>,
    /// The registers of the PTX that are accumulators, by group.
    pub(crate) groups: Vec<Vec<Register>>,
    /// The conditions of the branches around, in the IR and in the PTX, and their value here.
    pub(crate) path: Vec<(Term, Term, bool)>,
    /// By register that was written by a loop, what it held before: to find registers without a
    /// content.
    pub(crate) before: HashMap<Term, Term>,
    /// The number of instructions with a place that were compared.
    pub(crate) steps: usize,
}

/// A place in a list of nodes.
pub(crate) struct Cursor<'n> {
    nodes: &'n [Node],
    next: usize,
    /// The line of what the list belongs to.
    line: usize,
}

impl<'n> Cursor<'n> {
    pub(crate) fn new(nodes: &'n [Node], line: usize) -> Cursor<'n> {
        Cursor { nodes, next: 0, line }
    }
}

impl<'m> Walk<'m> {
    pub(crate) fn new(kernel: &'m Kernel, module: &'m Module) -> Walk<'m> {
        let names = module.registers.iter().map(|(name, _)| name.clone()).collect();
        let mut matcher = Matcher::new(Terms::new(names));
        let machine = Machine::new(module, &mut matcher.terms);
        let unset = matcher.terms.unset();
        let groups = kernel.accumulators.iter().enumerate().map(|(number, group)| {
            (0..group.registers)
                .filter_map(|index| module.register_names.get(&format!("%a{number}_{index}")))
                .copied()
                .collect()
        });
        Walk {
            kernel,
            matcher,
            machine,
            uniform: vec![],
            values: vec![None; kernel.values.len()],
            accumulators: kernel
                .accumulators
                .iter()
                .map(|group| vec![unset; group.registers as usize])
                .collect(),
            groups: groups.collect(),
            path: vec![],
            before: HashMap::new(),
            steps: 0,
        }
    }

    /// Compares the whole body.
    pub(crate) fn body(&mut self, nodes: &[Node]) -> Outcome<()> {
        let mut cursor = Cursor::new(nodes, self.machine.module.entry.0);
        self.uniform_indices(&mut cursor)?;
        self.block(&self.kernel.body, &mut cursor)?;
        Ok(())
    }

    /// Compares a block with the nodes of a cursor, up to their end. Returns what it yields.
    pub(crate) fn block(&mut self, block: &Block, cursor: &mut Cursor<'_>) -> Outcome<Vec<Term>> {
        let mut yielded = vec![];
        for inst in &block.insts {
            let compared = if inst.op == Op::Yield {
                self.operands(inst).map(|values| yielded = values)
            } else {
                self.inst(inst, cursor)
            };
            compared.map_err(|error| self.of(inst, error))?;
        }
        match self.advance(cursor)? {
            None => Ok(yielded),
            Some(node) => {
                Err(Mismatch::at(node.line(), "more instructions", "the end of the block"))
            }
        }
    }

    /// Adds the operation to an error of its own.
    fn of(&self, inst: &Inst, mut error: Box<Mismatch>) -> Box<Mismatch> {
        if error.operation.is_none() {
            let place = self.kernel.locations.get(inst.loc.index());
            let place = place.map_or(String::new(), |place| format!(" of {place}"));
            error.operation = Some(format!("`{}`{place}", inst.op.name()));
        }
        error
    }

    /// Does all computations before the next node that has a place, and returns that.
    pub(crate) fn peek<'n>(&mut self, cursor: &mut Cursor<'n>) -> Outcome<Option<&'n Node>> {
        while let Some(node) = cursor.nodes.get(cursor.next) {
            if !node.computes() {
                return Ok(Some(node));
            }
            self.machine.compute(&mut self.matcher.terms, node)?;
            cursor.next += 1;
        }
        Ok(None)
    }

    /// The same, and goes on behind that node.
    pub(crate) fn advance<'n>(&mut self, cursor: &mut Cursor<'n>) -> Outcome<Option<&'n Node>> {
        let node = self.peek(cursor)?;
        cursor.next += usize::from(node.is_some());
        Ok(node)
    }

    /// The line of the next node, or of the last one.
    pub(crate) fn line(&self, cursor: &Cursor<'_>) -> usize {
        let node = cursor.nodes.get(cursor.next).or(cursor.nodes.last());
        node.map_or(cursor.line, Node::line)
    }

    /// Whether a term of the IR and one of the PTX are the same value here.
    pub(crate) fn same(&mut self, ir: Term, ptx: Term) -> bool {
        let (mut ir, mut ptx) = (ir, ptx);
        for &(condition, predicate, holds) in &self.path {
            ir = self.matcher.terms.assume(ir, condition, holds);
            ptx = self.matcher.terms.assume(ptx, predicate, holds);
        }
        self.matcher.matches(ir, ptx)
    }

    /// Fails where a term of the PTX is not one of the IR.
    pub(crate) fn require(&mut self, line: usize, what: &str, ir: Term, ptx: Term) -> Outcome<()> {
        if self.same(ir, ptx) {
            return Ok(());
        }
        let difference = self.matcher.difference(ir, ptx);
        let [ir, ptx] = [ir, ptx].map(|term| self.matcher.terms.show(term, 3));
        Err(Mismatch::at(line, format!("{what} {ptx}{difference}"), ir))
    }

    pub(crate) fn value(&self, value: ValueId) -> Outcome<Term> {
        self.values.get(value.index()).copied().flatten().ok_or_else(|| {
            Mismatch::at(self.machine.module.entry.0, format!("{value} undefined"), "a value")
        })
    }

    pub(crate) fn operands(&self, inst: &Inst) -> Outcome<Vec<Term>> {
        inst.args.iter().map(|&value| self.value(value)).collect()
    }

    /// Says what values are.
    pub(crate) fn define(&mut self, values: &[ValueId], terms: &[Term]) -> Outcome<()> {
        if values.len() != terms.len() {
            let found = format!("{} values", terms.len());
            let line = self.machine.module.entry.0;
            return Err(Mismatch::at(line, found, format!("{} results", values.len())));
        }
        for (value, term) in values.iter().zip(terms) {
            self.values[value.index()] = Some(*term);
        }
        Ok(())
    }

    fn inst(&mut self, inst: &Inst, cursor: &mut Cursor<'_>) -> Outcome<()> {
        let operands = self.operands(inst)?;
        let types = inst.args.iter().map(|&value| self.kernel.ty(value)).collect();
        let mut context = Context {
            terms: &mut self.matcher.terms,
            kernel: self.kernel,
            uniform: &self.uniform,
            operands,
            types,
        };
        let results = match rule(&inst.op, &mut context) {
            Rule::Values(values) => values,
            Rule::Step(step) => {
                let results = self.step(step, cursor)?;
                self.order_accumulators(inst, cursor)?;
                results
            }
            Rule::Wait(step) => {
                self.wait(step, cursor)?;
                vec![]
            }
            Rule::ReadAccumulator(acc, index) => vec![self.accumulator(acc, index)],
            Rule::WriteAccumulator(acc, index) => {
                let value = self.operands(inst)?[0];
                self.accumulators[acc.index()][index as usize] = value;
                vec![]
            }
            Rule::Control => return self.control(inst, cursor),
        };
        self.define(&inst.results, &results)
    }

    fn accumulator(&self, acc: AccId, index: u32) -> Term {
        self.accumulators[acc.index()][index as usize]
    }

    fn control(&mut self, inst: &Inst, cursor: &mut Cursor<'_>) -> Outcome<()> {
        match inst.op.effect() {
            Effect::Control(Control::If) => self.branch(inst, cursor),
            Effect::Control(Control::For) => self.for_loop(inst, cursor),
            Effect::Control(Control::While) => self.while_loop(inst, cursor),
            _ => Err(Mismatch::at(self.line(cursor), "nothing", "an operation that has PTX")),
        }
    }

    /// Accesses of accumulators stay on their side of a fence and of a wait. A wait makes the sums
    /// available: before it, nobody knows them.
    fn order_accumulators(&mut self, inst: &Inst, cursor: &Cursor<'_>) -> Outcome<()> {
        let waits = match inst.op.effect() {
            Effect::Wgmma(WgmmaEffect::Fence) => false,
            Effect::Wgmma(WgmmaEffect::Wait(_)) => true,
            _ => return Ok(()),
        };
        self.require_accumulators(self.line(cursor))?;
        if !waits {
            return Ok(());
        }
        for group in 0..self.groups.len() {
            for index in 0..self.groups[group].len() {
                let unset = matches!(
                    self.matcher.terms.node(self.accumulators[group][index]),
                    Meaning::Unset
                );
                if !unset {
                    let sum = self.matcher.terms.result();
                    self.accumulators[group][index] = sum;
                    self.machine.set(self.groups[group][index], sum);
                }
            }
        }
        Ok(())
    }

    /// The registers of all accumulators hold what the IR says.
    pub(crate) fn require_accumulators(&mut self, line: usize) -> Outcome<()> {
        for group in 0..self.groups.len() {
            for index in 0..self.groups[group].len() {
                let register = self.groups[group][index];
                let (ir, ptx) = (self.accumulators[group][index], self.machine.get(register));
                let what = format!("in {}", self.machine.module.name(register));
                self.require(line, &what, ir, ptx)?;
            }
        }
        Ok(())
    }

    /// A loop around one instruction until its result holds.
    fn wait(&mut self, step: crate::rules::Step, cursor: &mut Cursor<'_>) -> Outcome<()> {
        let line = self.line(cursor);
        let Some(Node::Loop(Loop { test, before, after: None, written, .. })) =
            self.advance(cursor)?
        else {
            return Err(Mismatch::at(
                line,
                "another instruction",
                format!("a loop around `{}`", step.opcode),
            ));
        };
        let mut inner = Cursor::new(before, line);
        let done = self.step(step, &mut inner)?;
        if let Some(node) = self.advance(&mut inner)? {
            return Err(Mismatch::at(node.line(), "more instructions", "the end of the loop"));
        }
        let &(line, predicate, goes_on) = test;
        let is_result = done == [self.machine.get(predicate)] && !goes_on;
        if !is_result || written.iter().any(|register| *register != predicate) {
            let expected = "a loop until the result of its instruction holds";
            return Err(Mismatch::at(line, "another loop", expected));
        }
        Ok(())
    }

    /// The condition with which a loop goes on, or a side of a branch runs.
    pub(crate) fn condition(&mut self, predicate: Register, holds: bool) -> Term {
        let predicate = self.machine.get(predicate);
        if holds { predicate } else { self.matcher.terms.not(predicate) }
    }
}
