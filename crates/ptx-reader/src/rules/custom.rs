//! Instructions that their authors describe: the template is what the text must be.

use pgemm_ir::{CustomInstruction, Template, TemplateOperand};

use super::Expected::{self, List, Literal, Pair, Result, Sink, SinkAndPredicate};
use super::{Context, Rule, format_of, instruction as step};
use crate::isa::signature;
use crate::parse::literal;
use crate::structure::is_clock;
use crate::syntax::Operand;
use crate::terms::Term;

pub(super) fn rule(x: &mut Context<'_>, instruction: &CustomInstruction) -> Rule {
    let Ok(template) = instruction.template() else {
        unreachable!("the verifier refuses a text that is no instruction");
    };
    if let Some(computed) = computation(x, &template) {
        return Rule::Values(vec![computed]);
    }
    let mut order = vec![];
    let operands =
        template.operands.iter().map(|own| operand(x, instruction, own, &mut order)).collect();
    // Results are numbered by the author, and found in the order of the text.
    let place = move |index: usize| order.iter().position(|found| *found == index);
    let places: Vec<Option<usize>> = (0..instruction.results().len()).map(place).collect();
    Rule::Step(step(template.opcode, operands).then(move |_, found| {
        places.iter().flatten().filter_map(|place| found.get(*place).copied()).collect()
    }))
}

/// The result of an instruction that only computes, which may stand anywhere.
fn computation(x: &mut Context<'_>, template: &Template) -> Option<Term> {
    let [TemplateOperand::Result(0), sources @ ..] = &template.operands[..] else { return None };
    let (_, formats) = signature(&template.opcode)?;
    if formats.len() != sources.len() {
        return None;
    }
    let mut terms = Vec::with_capacity(sources.len());
    for (source, format) in sources.iter().zip(formats) {
        terms.push(match (source, constant(source)) {
            (TemplateOperand::Operand(index), _) => x.operand(*index),
            (_, Some(Operand::Integer(value))) => {
                let bits = format.truncate(value)?;
                x.constant(bits)
            }
            (_, Some(Operand::Float(bits, _))) => x.constant(bits),
            (_, Some(Operand::Special(name))) if !is_clock(&name) => x.terms.name(&name),
            _ => return None,
        });
    }
    match (template.opcode.starts_with("mov."), &terms[..]) {
        (true, &[moved]) => Some(moved),
        _ => Some(x.computed(&template.opcode, &terms)),
    }
}

/// What is the same in every use.
fn constant(operand: &TemplateOperand) -> Option<Operand> {
    match operand {
        TemplateOperand::Literal(text) => literal(text),
        TemplateOperand::Special(name) => Some(Operand::Special(name.clone())),
        _ => None,
    }
}

/// An operand of the text. `order` takes the results in their order.
fn operand(
    x: &mut Context<'_>,
    instruction: &CustomInstruction,
    template: &TemplateOperand,
    order: &mut Vec<usize>,
) -> Expected {
    let format = |index: usize| format_of(instruction.results()[index]);
    match template {
        TemplateOperand::Operand(index) => x.value(*index),
        TemplateOperand::Result(index) => {
            order.push(*index);
            Result(format(*index))
        }
        TemplateOperand::Pair(first, second) => {
            order.extend(first.iter().chain([second]));
            match first {
                Some(first) => Pair(format(*first), format(*second)),
                None => SinkAndPredicate,
            }
        }
        TemplateOperand::Address(index, offset) => {
            let (base, bits) = (x.operand(*index), format_of(x.ty(*index)).bits);
            Expected::Address(x.terms.sum(bits, base, (*offset).into()), bits)
        }
        TemplateOperand::List(list) => {
            List(list.iter().map(|own| operand(x, instruction, own, order)).collect())
        }
        TemplateOperand::Literal(_) | TemplateOperand::Special(_) => {
            constant(template).map_or(Sink, Literal)
        }
        TemplateOperand::Sink => Sink,
    }
}
