//! The comparison of the terms of the IR with those of the PTX.
//!
//! Which register of the PTX carries a value of a loop is not fixed. The first comparison of such a
//! value with a register decides it. Then the register must begin with the value's first content,
//! and hold the next one at the end of each iteration.

use std::collections::{HashMap, HashSet};

use crate::syntax::Register;
use crate::terms::{Node, Term, Terms};

/// What is known of a loop.
struct Loop {
    /// By carried value of the IR, its first content.
    first: Vec<Term>,
    /// By register that the loop writes, what it held before.
    before: HashMap<Register, Term>,
    /// What the IR carries to the next iteration, and what the registers hold then. It is not known
    /// before the end of the loop.
    next: Option<(Vec<Term>, HashMap<Register, Term>)>,
    /// By carried value, the term of the PTX that it is.
    bound: Vec<Option<Term>>,
}

/// What a comparison decided, to be undone if it fails.
enum Decision {
    Bound(usize, usize),
    Equal(Term, Term),
}

/// Terms and what is known of the equality of those of the IR and those of the PTX.
#[derive(Default)]
pub(crate) struct Matcher {
    pub(crate) terms: Terms,
    loops: Vec<Loop>,
    equal: HashSet<(Term, Term)>,
    decisions: Vec<Decision>,
    /// The innermost terms that differed in the last comparison that failed.
    differed: Option<(Term, Term)>,
}

impl Matcher {
    /// Nothing is known yet.
    pub(crate) fn new(terms: Terms) -> Matcher {
        Matcher { terms, ..Matcher::default() }
    }

    /// Begins a loop and returns its number.
    pub(crate) fn begin_loop(
        &mut self,
        first: Vec<Term>,
        before: HashMap<Register, Term>,
    ) -> usize {
        let bound = vec![None; first.len()];
        self.loops.push(Loop { first, before, next: None, bound });
        self.terms.next_loop()
    }

    /// Ends a loop. `next` is what the IR carries to the next iteration and `registers` what the
    /// registers of the loop hold then. Returns the carried value that differs.
    pub(crate) fn end_loop(
        &mut self,
        own: usize,
        next: Vec<Term>,
        registers: HashMap<Register, Term>,
    ) -> Result<(), (usize, Term, Term)> {
        let pairs: Vec<_> = self.loops[own]
            .bound
            .iter()
            .enumerate()
            .filter_map(|(position, bound)| bound.map(|bound| (position, bound)))
            .collect();
        self.loops[own].next = Some((next.clone(), registers));
        for (position, bound) in pairs {
            let held = self.held_next(own, bound);
            if !self.matches(next[position], held) {
                return Err((position, next[position], held));
            }
        }
        Ok(())
    }

    /// Whether a term of the IR and one of the PTX are the same value.
    pub(crate) fn matches(&mut self, ir: Term, ptx: Term) -> bool {
        self.decisions.clear();
        self.differed = None;
        if self.compare(ir, ptx) {
            return true;
        }
        for decision in self.decisions.drain(..) {
            match decision {
                Decision::Bound(own, position) => self.loops[own].bound[position] = None,
                Decision::Equal(ir, ptx) => {
                    self.equal.remove(&(ir, ptx));
                }
            }
        }
        false
    }

    /// Where inside of two terms the last comparison failed, for a message.
    pub(crate) fn difference(&self, ir: Term, ptx: Term) -> String {
        match self.differed.filter(|&differed| differed != (ir, ptx)) {
            Some((ir, ptx)) => {
                let [ir, ptx] = [ir, ptx].map(|term| self.terms.show(term, 2));
                format!(" ({ptx} where {ir} is expected)")
            }
            None => String::new(),
        }
    }

    fn compare(&mut self, ir: Term, ptx: Term) -> bool {
        if ir == ptx || self.equal.contains(&(ir, ptx)) {
            return true;
        }
        let same = match (self.terms.node(ir).clone(), self.terms.node(ptx).clone()) {
            (Node::Carried(own, position, behind), _) => {
                self.compare_carried(own, position, behind, ptx)
            }
            // The IR does not say what it holds. Registers are not written, or zeroed.
            (Node::Unset, Node::Unwritten(_) | Node::Constant(0)) => true,
            (Node::Computed(opcode, ours), Node::Computed(other, theirs)) => {
                opcode == other && self.compare_all(&ours, &theirs)
            }
            (Node::Sum(bits, base, offset), Node::Sum(own, other, more)) if bits == own => {
                if offset == more {
                    self.compare(base, other)
                } else {
                    let rest = self.terms.sum(bits, other, more.wrapping_sub(offset));
                    self.compare(base, rest)
                }
            }
            // The base is a carried value that is a constant or another term here.
            (Node::Sum(bits, base, offset), _) => {
                let rest = self.terms.sum(bits, ptx, offset.wrapping_neg());
                matches!(self.terms.node(base), Node::Carried(..)) && self.compare(base, rest)
            }
            (Node::Either(predicate, yes, no), Node::Either(own, theirs, other)) => {
                self.compare_all(&[predicate, yes, no], &[own, theirs, other])
            }
            (Node::Either(_, yes, no), _) => self.compare(yes, ptx) && self.compare(no, ptx),
            _ => false,
        };
        if same {
            self.equal.insert((ir, ptx));
            self.decisions.push(Decision::Equal(ir, ptx));
        } else if self.differed.is_none() {
            self.differed = Some((ir, ptx));
        }
        same
    }

    fn compare_all(&mut self, ir: &[Term], ptx: &[Term]) -> bool {
        ir.len() == ptx.len() && ir.iter().zip(ptx).all(|(&ir, &ptx)| self.compare(ir, ptx))
    }

    fn compare_carried(&mut self, own: usize, position: usize, behind: bool, ptx: Term) -> bool {
        if let Some(bound) = self.loops[own].bound[position] {
            let known = if behind { self.behind(own, bound) } else { bound };
            return known == ptx;
        }
        let bound = match *self.terms.node(ptx) {
            Node::Begins(of, _) if of == own && !behind => ptx,
            Node::Ends(of, register) if of == own && behind => self.terms.begins(own, register),
            // A value that no iteration changes needs no register of its own.
            _ if self.terms.precedes(ptx, own) => ptx,
            _ => return false,
        };
        self.loops[own].bound[position] = Some(bound);
        self.decisions.push(Decision::Bound(own, position));
        let before = match *self.terms.node(bound) {
            Node::Begins(of, register) if of == own => self.loops[own].before.get(&register),
            _ => Some(&bound),
        };
        let (Some(&before), first) = (before, self.loops[own].first[position]) else {
            return false;
        };
        if !self.compare(first, before) {
            return false;
        }
        let Some((next, _)) = &self.loops[own].next else { return true };
        let next = next[position];
        let held = self.held_next(own, bound);
        self.compare(next, held)
    }

    /// What a term that a loop begins with is at the end of the iteration.
    fn held_next(&self, own: usize, bound: Term) -> Term {
        match (self.terms.node(bound), &self.loops[own].next) {
            (Node::Begins(of, register), Some((_, registers))) if *of == own => {
                registers.get(register).copied().unwrap_or(bound)
            }
            _ => bound,
        }
    }

    /// What a term that a loop begins with is behind the loop.
    fn behind(&mut self, own: usize, bound: Term) -> Term {
        match *self.terms.node(bound) {
            Node::Begins(of, register) if of == own => self.terms.ends(own, register),
            _ => bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two values that begin equal and are swapped by each iteration.
    fn swapped(next: [usize; 2]) -> bool {
        let mut matcher = Matcher::default();
        let zero = matcher.terms.constant(0);
        let registers = [Register(0), Register(1)];
        let before = registers.map(|register| (register, zero)).into_iter().collect();
        let own = matcher.begin_loop(vec![zero; 2], before);
        let carried = [0, 1].map(|position| matcher.terms.carried(own, position, false));
        let begins = registers.map(|register| matcher.terms.begins(own, register));
        assert!(matcher.matches(carried[0], begins[1]) && matcher.matches(carried[1], begins[0]));
        assert!(!matcher.matches(carried[0], begins[0]));
        let held = registers.into_iter().zip(next.map(|index| begins[index])).collect();
        matcher.end_loop(own, vec![carried[1], carried[0]], held).is_ok()
    }

    #[test]
    fn registers_of_carried_values_must_go_on_as_the_values_do() {
        assert!(swapped([1, 0]));
        assert!(!swapped([0, 1]));
        assert!(!swapped([1, 1]));
    }

    #[test]
    fn a_failed_comparison_decides_nothing() {
        let mut matcher = Matcher::default();
        let zero = matcher.terms.constant(0);
        let before = [Register(0), Register(1)].map(|register| (register, zero));
        let own = matcher.begin_loop(vec![zero], before.into_iter().collect());
        let carried = matcher.terms.carried(own, 0, false);
        let [first, second] = [0, 1].map(|index| matcher.terms.begins(own, Register(index)));
        let [ir, ptx] = [[carried, zero], [first, second]]
            .map(|operands| matcher.terms.computed("and.b32", &operands));
        assert!(!matcher.matches(ir, ptx));
        assert!(matcher.matches(carried, second));
    }
}
