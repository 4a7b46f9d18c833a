//! The comparison of one instruction that has a place.

use pgemm_ir::AccId;

use crate::error::{Mismatch, Outcome};
use crate::isa::{B32, B64, Format};
use crate::rules::{Expected, Step};
use crate::structure::{Node, results};
use crate::syntax::{Operand, Register};
use crate::terms::{Node as Meaning, Term};
use crate::walk::{Cursor, Walk};

impl Walk<'_> {
    /// Compares the next instruction that has a place. Returns the results of the operation.
    pub(crate) fn step(&mut self, step: Step, cursor: &mut Cursor<'_>) -> Outcome<Vec<Term>> {
        let Step { opcode, operands, then } = step;
        let last = self.line(cursor);
        let instruction = match self.advance(cursor)? {
            Some(Node::Step(instruction)) => instruction,
            Some(Node::Branch(branch)) => {
                return Err(Mismatch::at(branch.line, "a branch or a predicate", opcode));
            }
            Some(Node::Loop(repeated)) => {
                return Err(Mismatch::at(repeated.line, "a loop", opcode));
            }
            Some(Node::Computes(_)) | None => {
                return Err(Mismatch::at(last, "the end of the block", opcode));
            }
        };
        let line = instruction.line;
        if instruction.opcode != opcode {
            return Err(Mismatch::at(line, format!("`{}`", instruction.opcode), opcode));
        }
        let found = &instruction.operands;
        if found.len() != operands.len() {
            let expected = format!("{} operands", operands.len());
            return Err(Mismatch::at(line, format!("{} operands", found.len()), expected));
        }
        let mut outputs = vec![];
        let mut writes = vec![];
        for (number, (found, expected)) in (1..).zip(found.iter().zip(&operands)) {
            let mut compared =
                Compared { line, number, results: &mut outputs, writes: &mut writes };
            self.operand(&mut compared, found, expected)?;
        }
        let known = results(instruction);
        for (register, term) in writes {
            if !known.contains(&register) {
                let found = format!("`{opcode}` without results");
                return Err(Mismatch::at(line, found, "an opcode that `structure::results` knows"));
            }
            self.machine.set(register, term);
        }
        self.steps += 1;
        Ok(match then {
            Some(then) => then(&mut self.matcher.terms, &outputs),
            None => outputs,
        })
    }

    fn operand(
        &mut self,
        compared: &mut Compared<'_>,
        found: &Operand,
        expected: &Expected,
    ) -> Outcome<()> {
        let (line, number) = (compared.line, compared.number);
        let module = self.machine.module;
        let text = |operand: &Operand| module.text(operand);
        let refuse = |found: String, expected: &str| {
            Mismatch::at(line, format!("operand {number}, {found}"), expected)
        };
        match (expected, found) {
            (Expected::Sink, Operand::Sink) => Ok(()),
            (Expected::Result(format), Operand::Register(register)) => {
                let own = self.machine.module.format(*register);
                if !format.takes(own) {
                    let found = format!("{}, {own}", self.machine.module.name(*register));
                    return Err(refuse(found, &format!("a register of {format}")));
                }
                compared.result(self, *register);
                Ok(())
            }
            (Expected::SinkAndPredicate, Operand::SinkAndPredicate(register)) => {
                compared.result(self, *register);
                Ok(())
            }
            (Expected::Pair(first, second), Operand::Pair(one, two)) => {
                for (format, register) in [(first, one), (second, two)] {
                    self.operand(
                        compared,
                        &Operand::Register(*register),
                        &Expected::Result(*format),
                    )?;
                }
                Ok(())
            }
            (Expected::Literal(expected), found) if expected == found => Ok(()),
            (Expected::Value(term, format), found) => {
                let terms = &mut self.matcher.terms;
                let value = self.machine.source(terms, line, found, *format)?;
                self.require(line, &format!("operand {number},"), *term, value)
            }
            (Expected::Address(term, bits), Operand::Address(base, offset)) => {
                let format = if *bits == 64 { B64 } else { B32 };
                let base = self.base(line, base, format)?;
                let address = self.matcher.terms.sum(*bits, base, *offset as u64);
                self.require(line, &format!("operand {number},"), *term, address)
            }
            (Expected::Number(number), Operand::Integer(found))
                if i128::from(*number) == *found =>
            {
                Ok(())
            }
            (Expected::Number(number), found) => Err(refuse(text(found), &number.to_string())),
            (Expected::List(expected), Operand::List(found)) if expected.len() == found.len() => {
                found
                    .iter()
                    .zip(expected)
                    .try_for_each(|(found, expected)| self.operand(compared, found, expected))
            }
            (Expected::Box(map, coordinates), Operand::TensorAddress(base, found))
                if coordinates.len() == found.len() =>
            {
                let base = self.base(line, base, B64)?;
                self.require(line, "the map", *map, base)?;
                for (index, (coordinate, found)) in coordinates.iter().zip(found).enumerate() {
                    let terms = &mut self.matcher.terms;
                    let value = self.machine.source(terms, line, found, B32)?;
                    self.require(line, &format!("coordinate {index},"), *coordinate, value)?;
                }
                Ok(())
            }
            (Expected::Accumulators(acc, overwrites), Operand::List(found)) => {
                self.accumulate(compared, *acc, *overwrites, found)
            }
            (Expected::Sink, found) => Err(refuse(text(found), "`_`")),
            (Expected::SinkAndPredicate, found) => Err(refuse(text(found), "`_|` and a predicate")),
            (Expected::Result(_), found) => Err(refuse(text(found), "a register")),
            (Expected::Pair(..), found) => Err(refuse(text(found), "two registers")),
            (Expected::Literal(expected), found) => Err(refuse(text(found), &text(expected))),
            (Expected::Address(..), found) => Err(refuse(text(found), "an address")),
            (Expected::List(list), found) => {
                Err(refuse(text(found), &format!("a list of {}", list.len())))
            }
            (Expected::Box(_, coordinates), found) => {
                let expected = format!("a map and {} coordinates", coordinates.len());
                Err(refuse(text(found), &expected))
            }
            (Expected::Accumulators(acc, _), found) => {
                Err(refuse(text(found), &format!("the registers of {acc}")))
            }
        }
    }

    /// The base of an address.
    fn base(&mut self, line: usize, base: &Operand, format: Format) -> Outcome<Term> {
        self.machine.source(&mut self.matcher.terms, line, base, format)
    }

    /// The registers of an accumulator group, which a wgmma reads and writes.
    fn accumulate(
        &mut self,
        compared: &mut Compared<'_>,
        acc: AccId,
        overwrites: bool,
        found: &[Operand],
    ) -> Outcome<()> {
        let line = compared.line;
        let group = self.groups[acc.index()].clone();
        let own: Vec<Operand> = group.iter().copied().map(Operand::Register).collect();
        if let Some(index) = (0..own.len().max(found.len())).find(|&i| own.get(i) != found.get(i)) {
            let found = found.get(index).map(|operand| self.machine.module.text(operand));
            let found = format!("accumulator register {index}, {}", found.unwrap_or_default());
            return Err(Mismatch::at(line, found, format!("register {index} of {acc}")));
        }
        for (index, register) in group.into_iter().enumerate() {
            let held = self.machine.get(register);
            if !overwrites {
                let name = self.machine.module.name(register);
                // Without a value, the assembler serialises the wgmma of a loop (C7515).
                if !self.is_written(held) {
                    let found = format!("{name}, which was not written");
                    return Err(Mismatch::at(line, found, "sums to add to"));
                }
                let what = format!("in {name}");
                self.require(line, &what, self.accumulators[acc.index()][index], held)?;
            }
            let sum = self.matcher.terms.result();
            self.accumulators[acc.index()][index] = sum;
            compared.writes.push((register, sum));
        }
        Ok(())
    }

    /// Whether the content of a register comes from an instruction on every path.
    fn is_written(&self, term: Term) -> bool {
        match self.matcher.terms.node(term) {
            Meaning::Unwritten(_) => false,
            Meaning::Begins(..) => {
                self.before.get(&term).is_none_or(|before| self.is_written(*before))
            }
            Meaning::Either(_, yes, no) => self.is_written(*yes) && self.is_written(*no),
            _ => true,
        }
    }
}

/// The comparison of an instruction so far.
struct Compared<'c> {
    line: usize,
    number: usize,
    results: &'c mut Vec<Term>,
    writes: &'c mut Vec<(Register, Term)>,
}

impl Compared<'_> {
    /// Takes a register as the next result.
    fn result(&mut self, walk: &mut Walk<'_>, register: Register) {
        let term = walk.matcher.terms.result();
        self.results.push(term);
        self.writes.push((register, term));
    }
}
