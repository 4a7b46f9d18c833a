//! Symbolic values. Equal terms have equal numbers, so values are compared by their numbers. The
//! terms of computations are those of the PTX instructions that do them; what they leave open, such
//! as moves and offsets that are added in steps, has one normal form.

use std::collections::HashMap;
use std::rc::Rc;

use crate::syntax::Register;

/// A symbolic value, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Term(u32);

/// What a term is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// A constant, by its bits.
    Constant(u64),
    /// A variable, a parameter or a special register, by its name.
    Name(Rc<str>),
    /// What a register holds that was never written.
    Unwritten(Register),
    /// What an accumulator register holds before the kernel writes it.
    Unset,
    /// A result of an instruction that has a place in the order of the program.
    Result(u32),
    /// What a register holds at the beginning of an iteration of a loop.
    Begins(usize, Register),
    /// What a register holds behind a loop with its test at the end.
    Ends(usize, Register),
    /// A value that a loop of the IR carries: its position, and whether behind the loop.
    Carried(usize, usize, bool),
    /// A computation.
    Computed(Rc<str>, Box<[Term]>),
    /// A sum of this many bits: a term and a constant.
    Sum(u32, Term, u64),
    /// The second term where the first holds, else the third.
    Either(Term, Term, Term),
}

/// All terms of one comparison.
#[derive(Default)]
pub(crate) struct Terms {
    nodes: Vec<Node>,
    numbers: HashMap<Node, Term>,
    /// By term, the latest moment that it depends on, and whether it holds a choice.
    facts: Vec<(u32, bool)>,
    assumed: HashMap<(Term, Term, bool), Term>,
    /// The moments that results and loops have: a counter of both.
    now: u32,
    loops: Vec<u32>,
    /// The names of registers, for messages.
    registers: Vec<String>,
}

impl Terms {
    /// No terms. The names of registers are for messages.
    pub(crate) fn new(registers: Vec<String>) -> Terms {
        Terms { registers, ..Terms::default() }
    }

    /// What a term is.
    pub(crate) fn node(&self, term: Term) -> &Node {
        &self.nodes[term.0 as usize]
    }

    fn intern(&mut self, node: Node) -> Term {
        if let Some(term) = self.numbers.get(&node) {
            return *term;
        }
        let term = Term(self.nodes.len() as u32);
        let facts = match &node {
            Node::Constant(_) | Node::Name(_) | Node::Unwritten(_) | Node::Unset => (0, false),
            Node::Result(moment) => (*moment, false),
            Node::Begins(own, _) | Node::Ends(own, _) | Node::Carried(own, ..) => {
                (self.loops[*own], false)
            }
            Node::Computed(_, operands) => operands
                .iter()
                .map(|operand| self.facts[operand.0 as usize])
                .fold((0, false), |all, one| (all.0.max(one.0), all.1 | one.1)),
            Node::Sum(_, base, _) => self.facts[base.0 as usize],
            Node::Either(predicate, yes, no) => {
                let moments = [predicate, yes, no].map(|term| self.facts[term.0 as usize].0);
                (moments.into_iter().max().unwrap_or_default(), true)
            }
        };
        self.facts.push(facts);
        self.nodes.push(node.clone());
        self.numbers.insert(node, term);
        term
    }

    pub(crate) fn constant(&mut self, bits: u64) -> Term {
        self.intern(Node::Constant(bits))
    }

    pub(crate) fn name(&mut self, name: &str) -> Term {
        self.intern(Node::Name(name.into()))
    }

    pub(crate) fn unwritten(&mut self, register: Register) -> Term {
        self.intern(Node::Unwritten(register))
    }

    pub(crate) fn unset(&mut self) -> Term {
        self.intern(Node::Unset)
    }

    /// A value that nothing before equals.
    pub(crate) fn result(&mut self) -> Term {
        self.now += 1;
        self.intern(Node::Result(self.now))
    }

    /// A number for the next loop.
    pub(crate) fn next_loop(&mut self) -> usize {
        self.now += 1;
        self.loops.push(self.now);
        self.loops.len() - 1
    }

    pub(crate) fn begins(&mut self, own: usize, register: Register) -> Term {
        self.intern(Node::Begins(own, register))
    }

    pub(crate) fn ends(&mut self, own: usize, register: Register) -> Term {
        self.intern(Node::Ends(own, register))
    }

    pub(crate) fn carried(&mut self, own: usize, position: usize, behind: bool) -> Term {
        self.intern(Node::Carried(own, position, behind))
    }

    /// Whether a term was known before a loop began.
    pub(crate) fn precedes(&self, term: Term, own: usize) -> bool {
        self.facts[term.0 as usize].0 < self.loops[own]
    }

    pub(crate) fn bits_of(&self, term: Term) -> Option<u64> {
        match self.node(term) {
            Node::Constant(bits) => Some(*bits),
            _ => None,
        }
    }

    /// The result of an instruction that only computes, in normal form.
    pub(crate) fn computed(&mut self, opcode: &str, operands: &[Term]) -> Term {
        match (opcode, operands) {
            // Signed and unsigned sums have the same bits.
            ("add.u32" | "add.s32", &[a, b]) => self.add(32, a, b),
            ("add.u64" | "add.s64", &[a, b]) => self.add(64, a, b),
            ("not.pred", &[a]) => self.not(a),
            ("or.b32", &[a, b]) if self.bits_of(b) == Some(0) => a,
            ("cvt.u16.u32", &[a]) if self.bits_of(a).is_some() => {
                let bits = self.bits_of(a).unwrap_or_default();
                self.constant(bits & 0xffff)
            }
            _ => self.intern(Node::Computed(opcode.into(), operands.into())),
        }
    }

    fn add(&mut self, bits: u32, a: Term, b: Term) -> Term {
        match (self.bits_of(a), self.bits_of(b)) {
            (_, Some(offset)) => self.sum(bits, a, offset),
            (Some(offset), _) => self.sum(bits, b, offset),
            (None, None) => {
                let opcode = if bits == 64 { "add.u64" } else { "add.u32" };
                self.intern(Node::Computed(opcode.into(), [a, b].into()))
            }
        }
    }

    /// The sum of a term and a constant, which wraps.
    pub(crate) fn sum(&mut self, bits: u32, base: Term, offset: u64) -> Term {
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let (base, offset) = match *self.node(base) {
            Node::Constant(constant) => return self.constant(constant.wrapping_add(offset) & mask),
            Node::Sum(own, inner, before) if own == bits => (inner, before.wrapping_add(offset)),
            _ => (base, offset),
        };
        if offset & mask == 0 { base } else { self.intern(Node::Sum(bits, base, offset & mask)) }
    }

    pub(crate) fn not(&mut self, predicate: Term) -> Term {
        match self.node(predicate) {
            Node::Computed(opcode, operands) if &**opcode == "not.pred" => operands[0],
            Node::Constant(bits) => {
                let bits = 1 - *bits;
                self.constant(bits)
            }
            _ => self.intern(Node::Computed("not.pred".into(), [predicate].into())),
        }
    }

    /// A choice by a predicate.
    pub(crate) fn either(&mut self, predicate: Term, yes: Term, no: Term) -> Term {
        match self.node(predicate) {
            Node::Constant(bits) => return if *bits == 0 { no } else { yes },
            Node::Computed(opcode, operands) if &**opcode == "not.pred" => {
                return self.either(operands[0], no, yes);
            }
            _ => {}
        }
        let yes = self.assume(yes, predicate, true);
        let no = self.assume(no, predicate, false);
        if yes == no { yes } else { self.intern(Node::Either(predicate, yes, no)) }
    }

    /// What a term is where a predicate holds or does not.
    pub(crate) fn assume(&mut self, term: Term, predicate: Term, holds: bool) -> Term {
        if !self.facts[term.0 as usize].1 {
            return term;
        }
        if let Node::Computed(opcode, operands) = self.node(predicate)
            && &**opcode == "not.pred"
        {
            return self.assume(term, operands[0], !holds);
        }
        if let Some(known) = self.assumed.get(&(term, predicate, holds)) {
            return *known;
        }
        let simple = match self.node(term).clone() {
            Node::Either(own, yes, no) if own == predicate => {
                self.assume(if holds { yes } else { no }, predicate, holds)
            }
            Node::Either(own, yes, no) => {
                let [own, yes, no] = [own, yes, no].map(|t| self.assume(t, predicate, holds));
                self.either(own, yes, no)
            }
            Node::Computed(opcode, operands) => {
                let operands: Vec<Term> = operands
                    .iter()
                    .map(|operand| self.assume(*operand, predicate, holds))
                    .collect();
                self.computed(&opcode, &operands)
            }
            Node::Sum(bits, base, offset) => {
                let base = self.assume(base, predicate, holds);
                self.sum(bits, base, offset)
            }
            _ => term,
        };
        self.assumed.insert((term, predicate, holds), simple);
        simple
    }

    /// A term for a message, to a depth.
    pub(crate) fn show(&self, term: Term, depth: u32) -> String {
        let inner = |term: &Term| match depth {
            0 => "…".to_owned(),
            _ => self.show(*term, depth - 1),
        };
        let register = |register: &Register| {
            self.registers.get(register.0 as usize).map_or("a register", String::as_str)
        };
        match self.node(term) {
            Node::Constant(bits) => bits.to_string(),
            Node::Name(name) => name.to_string(),
            Node::Unwritten(own) => format!("{} before any write", register(own)),
            Node::Unset => "an accumulator before any write".to_owned(),
            Node::Result(moment) => format!("result#{moment}"),
            Node::Begins(own, of) => format!("{} in loop#{own}", register(of)),
            Node::Ends(own, of) => format!("{} behind loop#{own}", register(of)),
            Node::Carried(own, position, behind) => {
                let place = if *behind { "behind" } else { "in" };
                format!("carried#{position} {place} loop#{own}")
            }
            Node::Computed(opcode, operands) => {
                let operands: Vec<String> = operands.iter().map(inner).collect();
                format!("{opcode}({})", operands.join(", "))
            }
            Node::Sum(_, base, offset) => format!("{} + {offset}", inner(base)),
            Node::Either(predicate, yes, no) => {
                format!("({} ? {} : {})", inner(predicate), inner(yes), inner(no))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_are_added_in_steps_are_one() {
        let mut terms = Terms::default();
        let base = terms.name("base");
        let [first, second] = [8, u64::from(u32::MAX - 7)].map(|offset| terms.constant(offset));
        let sum = terms.computed("add.u32", &[base, first]);
        assert_ne!(sum, base);
        assert_eq!(terms.computed("add.s32", &[second, sum]), base);
    }

    #[test]
    fn choices_under_a_known_predicate_are_decided() {
        let mut terms = Terms::default();
        let [p, a, b] = ["p", "a", "b"].map(|name| terms.name(name));
        let choice = terms.either(p, a, b);
        let shifted = terms.computed("shl.b32", &[choice, b]);
        let not = terms.not(p);
        let expected = terms.computed("shl.b32", &[b, b]);
        assert_eq!(terms.assume(shifted, not, true), expected);
        assert_eq!(terms.either(not, b, a), choice);
    }
}
