//! Instructions that their authors describe: the template, with registers in it.

use pgemm_ir::{CustomInstruction, Inst, TemplateOperand};

use crate::EmitError;
use crate::emitter::{Emitter, op_name, ptx};
use crate::operand::Register;

impl Emitter<'_> {
    pub(crate) fn custom(
        &mut self,
        inst: &Inst,
        instruction: &CustomInstruction,
    ) -> Result<(), EmitError> {
        let template = instruction.template().map_err(|error| {
            let (op, error) = (op_name(&inst.op), Box::new(error));
            EmitError::Attribute { op, error, at: self.at(inst) }
        })?;
        let counts = [
            ("operands", instruction.operands().len(), inst.args.len()),
            ("results", instruction.results().len(), inst.results.len()),
        ];
        if let Some((what, expected, found)) = counts.into_iter().find(|(_, a, b)| a != b) {
            return Err(self.arity(inst, what, expected, found));
        }
        let mut registers = [vec![], vec![]];
        for &value in &inst.args {
            registers[0].push(self.register(inst, value)?);
        }
        for &value in &inst.results {
            registers[1].push(self.define(inst, value)?);
        }
        let operands: Vec<String> =
            template.operands.iter().map(|operand| written(operand, &registers)).collect();
        let gap = if operands.is_empty() { "" } else { " " };
        ptx!(self, "{}{gap}{}", template.opcode, operands.join(", "));
        Ok(())
    }
}

/// An operand of a template whose numbers are below those of the registers.
fn written(operand: &TemplateOperand, registers: &[Vec<Register>; 2]) -> String {
    let [operands, results] = registers;
    match operand {
        TemplateOperand::Operand(index) => operands[*index].to_string(),
        TemplateOperand::Result(index) => results[*index].to_string(),
        TemplateOperand::Pair(None, second) => format!("_|{}", results[*second]),
        TemplateOperand::Pair(Some(first), second) => {
            format!("{}|{}", results[*first], results[*second])
        }
        TemplateOperand::Address(index, 0) => format!("[{}]", operands[*index]),
        TemplateOperand::Address(index, offset) => format!("[{}+{offset}]", operands[*index]),
        TemplateOperand::List(list) => {
            let list: Vec<String> = list.iter().map(|own| written(own, registers)).collect();
            format!("{{{}}}", list.join(", "))
        }
        TemplateOperand::Literal(text) | TemplateOperand::Special(text) => text.clone(),
        TemplateOperand::Sink => "_".to_owned(),
    }
}
