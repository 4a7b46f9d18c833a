//! The registers while the PTX runs on symbolic values.

use crate::error::{Mismatch, Outcome};
use crate::isa::{self, Format};
use crate::structure::{Branch, Node};
use crate::syntax::{Instruction, Module, Operand, Register};
use crate::terms::{Term, Terms};

/// What each register holds.
#[derive(Clone)]
pub(crate) struct Machine<'m> {
    pub(crate) module: &'m Module,
    registers: Vec<Term>,
}

impl<'m> Machine<'m> {
    pub(crate) fn new(module: &'m Module, terms: &mut Terms) -> Machine<'m> {
        let count = module.registers.len() as u32;
        let registers = (0..count).map(|index| terms.unwritten(Register(index))).collect();
        Machine { module, registers }
    }

    pub(crate) fn get(&self, register: Register) -> Term {
        self.registers[register.0 as usize]
    }

    pub(crate) fn set(&mut self, register: Register, term: Term) {
        self.registers[register.0 as usize] = term;
    }

    /// Does what only computes.
    pub(crate) fn compute(&mut self, terms: &mut Terms, node: &Node) -> Outcome<()> {
        match node {
            Node::Computes(instruction) => self.instruction(terms, instruction),
            Node::Branch(Branch { predicate, holds, fails, .. }) => {
                let predicate = self.get(*predicate);
                let mut other = self.clone();
                for node in holds {
                    self.compute(terms, node)?;
                }
                for node in fails {
                    other.compute(terms, node)?;
                }
                self.join(terms, predicate, &other);
                Ok(())
            }
            Node::Step(_) | Node::Loop(_) => {
                let expected = "only what computes";
                Err(Mismatch::at(node.line(), "an instruction that has a place", expected))
            }
        }
    }

    /// The registers behind a branch, where `other` has those of the side on which the predicate
    /// does not hold.
    pub(crate) fn join(&mut self, terms: &mut Terms, predicate: Term, other: &Machine<'_>) {
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            if own != other {
                *own = terms.either(predicate, *own, *other);
            }
        }
    }

    /// The value of a source operand.
    pub(crate) fn source(
        &self,
        terms: &mut Terms,
        line: usize,
        operand: &Operand,
        format: Format,
    ) -> Outcome<Term> {
        let refuse = |found: String| Mismatch::at(line, found, format!("an operand of {format}"));
        match operand {
            Operand::Register(register) => {
                self.check(line, *register, format.takes(self.module.format(*register)), format)?;
                Ok(self.get(*register))
            }
            Operand::Integer(value) if format.kind != isa::Kind::Float => {
                let bits = format.truncate(*value).ok_or_else(|| refuse(value.to_string()))?;
                Ok(terms.constant(bits))
            }
            Operand::Float(bits, width) if isa::Kind::Float == format.kind => {
                if *width == format.bits {
                    return Ok(terms.constant(*bits));
                }
                Err(refuse(format!("a literal of {width} bits")))
            }
            Operand::Symbol(name) | Operand::Special(name) => Ok(terms.name(name)),
            Operand::SymbolSum(name, offset) => {
                let base = terms.name(name);
                Ok(terms.sum(format.bits, base, *offset as u64))
            }
            Operand::List(list) => self.packed(terms, line, list, format),
            _ => Err(refuse(self.module.text(operand))),
        }
    }

    /// Two operands of half the width each, the low half first.
    fn packed(
        &self,
        terms: &mut Terms,
        line: usize,
        list: &[Operand],
        format: Format,
    ) -> Outcome<Term> {
        let half = Format { bits: format.bits / 2, ..format };
        let [low, high] = list else {
            return Err(Mismatch::at(line, format!("{} halves", list.len()), "two"));
        };
        let halves = [low, high].map(|operand| self.source(terms, line, operand, half));
        let [low, high] = halves;
        Ok(terms.computed("pack", &[low?, high?]))
    }

    fn check(&self, line: usize, register: Register, fits: bool, format: Format) -> Outcome<()> {
        if fits {
            return Ok(());
        }
        let (name, own) = (self.module.name(register), self.module.format(register));
        Err(Mismatch::at(line, format!("{name}, {own}"), format!("a register of {format}")))
    }

    fn instruction(&mut self, terms: &mut Terms, instruction: &Instruction) -> Outcome<()> {
        let Instruction { line, guard, opcode, operands } = instruction;
        let (line, refuse) = (*line, |expected: &str| {
            Mismatch::at(instruction.line, format!("operands of `{opcode}`"), expected)
        });
        let [to, sources @ ..] = &operands[..] else { return Err(refuse("a result")) };
        if let Some(ty) = opcode.strip_prefix("ld.param.") {
            let format = Format::named(ty).ok_or_else(|| refuse("a type"))?;
            let name = match sources {
                [Operand::Address(base, 0)] => match &**base {
                    Operand::Symbol(name) => terms.name(name),
                    _ => return Err(refuse("a parameter")),
                },
                _ => return Err(refuse("a parameter")),
            };
            let value = terms.computed(opcode, &[name]);
            return self.write(terms, line, *guard, to, value, format);
        }
        let Some((format, formats)) = isa::signature(opcode) else {
            return Err(refuse("a computation"));
        };
        if formats.len() != sources.len() {
            return Err(refuse(&format!("{} sources", formats.len())));
        }
        let mut values = Vec::with_capacity(sources.len());
        for (source, format) in sources.iter().zip(formats) {
            values.push(self.source(terms, line, source, format)?);
        }
        // A move gives the same bits.
        let value = match (opcode.strip_prefix("mov."), &values[..]) {
            (Some(_), [value]) => *value,
            _ => terms.computed(opcode, &values),
        };
        let Operand::List(halves) = to else {
            return self.write(terms, line, *guard, to, value, format);
        };
        let ([low, high], true) = (&halves[..], opcode.starts_with("mov.b")) else {
            return Err(refuse("two halves of a move"));
        };
        let half = Format { bits: format.bits / 2, ..format };
        for (part, to) in [("low half", low), ("high half", high)] {
            let value = terms.computed(part, &[value]);
            self.write(terms, line, *guard, to, value, half)?;
        }
        Ok(())
    }

    /// Writes a result. Under a predicate the register keeps its value where that does not hold.
    fn write(
        &mut self,
        terms: &mut Terms,
        line: usize,
        guard: Option<(Register, bool)>,
        to: &Operand,
        value: Term,
        format: Format,
    ) -> Outcome<()> {
        let Operand::Register(register) = to else {
            return Err(Mismatch::at(line, self.module.text(to), "a register for the result"));
        };
        self.check(line, *register, format.fills(self.module.format(*register)), format)?;
        let value = match guard {
            Some((predicate, holds)) => {
                let (predicate, old) = (self.get(predicate), self.get(*register));
                let (yes, no) = if holds { (value, old) } else { (old, value) };
                terms.either(predicate, yes, no)
            }
            None => value,
        };
        self.set(*register, value);
        Ok(())
    }
}
