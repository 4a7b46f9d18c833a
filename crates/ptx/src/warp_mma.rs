//! Warp-level MMA on registers.

use pgemm_ir::{Inst, ValueId, WarpMma};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};

impl Emitter<'_> {
    /// A and B are K-major by nature: `row.col` (PTX ISA, "mma").
    pub(crate) fn warp_mma(&mut self, inst: &Inst, mma: &WarpMma) -> Result<(), EmitError> {
        let [a, b, c] = [mma.a_values(), mma.b_values(), mma.c_values()].map(|n| n as usize);
        if inst.args.len() != a + b + c {
            return Err(self.arity(inst, "operands", a + b + c, inst.args.len()));
        }
        if inst.results.len() != c {
            return Err(self.arity(inst, "results", c, inst.results.len()));
        }
        let a_list = self.fragment(inst, &inst.args[..a])?;
        let b_list = self.fragment(inst, &inst.args[a..a + b])?;
        let c_list = self.fragment(inst, &inst.args[a + b..])?;
        let mut results = Vec::with_capacity(c);
        for &result in &inst.results {
            results.push(self.define(inst, result)?.to_string());
        }
        let (WarpMma { m, n, k, .. }, results) = (mma, results.join(", "));
        let (sum, operand) = (mma.accumulator.name(), mma.operand.name());
        ptx!(
            self,
            "mma.sync.aligned.m{m}n{n}k{k}.row.col.{sum}.{operand}.{operand}.{sum} \
             {{{results}}}, {{{a_list}}}, {{{b_list}}}, {{{c_list}}}"
        );
        Ok(())
    }

    /// Values in registers, separated by commas.
    fn fragment(&mut self, inst: &Inst, values: &[ValueId]) -> Result<String, EmitError> {
        let mut names = Vec::with_capacity(values.len());
        for &value in values {
            names.push(self.register(inst, value)?.to_string());
        }
        Ok(names.join(", "))
    }
}
