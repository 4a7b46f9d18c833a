//! The indices of warp and warpgroup. The assembler knows that a value is the same in a warp if it
//! comes from a shuffle. All lanes must reach that together, so it stands at entry.

use pgemm_ir::{Op, Special, Type};

use crate::error::{Mismatch, Outcome};
use crate::rules::{Context, Rule, rule};
use crate::structure::Node;
use crate::syntax::Operand;
use crate::terms::Term;
use crate::walk::{Cursor, Walk};

impl Walk<'_> {
    /// Compares the shuffles of the indices that the kernel uses, in any order.
    pub(crate) fn uniform_indices(&mut self, cursor: &mut Cursor<'_>) -> Outcome<()> {
        let mut wanted = vec![];
        self.kernel.visit(&mut |inst| {
            if let Op::Special(special @ (Special::Warp | Special::Warpgroup)) = inst.op
                && !wanted.contains(&special)
            {
                wanted.push(special);
            }
        });
        while !wanted.is_empty() {
            let quotients: Vec<Term> =
                wanted.iter().map(|&special| self.quotient(special)).collect();
            let line = self.line(cursor);
            let shuffled = match self.peek(cursor)? {
                Some(Node::Step(step)) => match &step.operands[..] {
                    [_, Operand::Register(source), ..] => Some(self.machine.get(*source)),
                    _ => None,
                },
                _ => None,
            };
            let index = quotients.iter().position(|quotient| Some(*quotient) == shuffled);
            let index = index.ok_or_else(|| {
                let expected = format!("a shuffle of the {} index", wanted[0]);
                Mismatch::at(line, "another instruction", expected)
            })?;
            let mut context = Context {
                terms: &mut self.matcher.terms,
                kernel: self.kernel,
                uniform: &[],
                operands: vec![quotients[index]],
                types: vec![Type::U32],
            };
            let Rule::Step(step) = rule(&Op::ShuffleFirst, &mut context) else { continue };
            let results = self.step(step, cursor)?;
            let special = wanted.remove(index);
            self.uniform.extend(results.into_iter().map(|result| (special, result)));
        }
        Ok(())
    }

    /// The thread index, divided by the threads of a warp or a warpgroup.
    fn quotient(&mut self, special: Special) -> Term {
        let terms = &mut self.matcher.terms;
        let thread = terms.name("%tid.x");
        let shift = terms.constant(if special == Special::Warp { 5 } else { 7 });
        terms.computed("shr.u32", &[thread, shift])
    }
}
