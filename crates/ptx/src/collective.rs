//! Operations in which the lanes of a warp exchange values. All lanes take part.

use pgemm_ir::{BinaryOp, Inst, Shuffle, Type, Vote};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};
use crate::operand::{Class, Operand};

/// The member mask of a whole warp.
const WARP: &str = "0xffffffff";

impl Emitter<'_> {
    pub(crate) fn elect(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [] = self.args(inst)?;
        let result = self.define_result(inst)?;
        ptx!(self, "elect.sync _|{result}, {WARP}");
        Ok(())
    }

    pub(crate) fn shuffle_first(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [value] = self.args(inst)?;
        let value = self.register(inst, value)?;
        let result = self.define_result(inst)?;
        ptx!(self, "shfl.sync.idx.b32 {result}, {value}, 0, 31, {WARP}");
        Ok(())
    }

    pub(crate) fn shuffle(
        &mut self,
        inst: &Inst,
        shuffle: Shuffle,
        width: u32,
    ) -> Result<(), EmitError> {
        let [value, amount] = self.args(inst)?;
        let mode = match shuffle {
            Shuffle::Index => "idx",
            Shuffle::Up => "up",
            Shuffle::Down => "down",
            Shuffle::Xor => "bfly",
        };
        // The group is in the upper byte, and the last lane of it that may be read in the lower one
        // (PTX ISA, "shfl.sync").
        let last = if shuffle == Shuffle::Up { 0 } else { 31 };
        let group = (32 - width) << 8 | last;
        let value = self.register(inst, value)?;
        let amount = match (shuffle, self.operand(inst, amount)?) {
            // The instruction would read lanes of the groups below.
            (Shuffle::Xor, Operand::Immediate(bits)) => (bits as u32 % width).to_string(),
            (Shuffle::Xor, _) if width < 32 => {
                let (amount, rest) = (self.read(inst, amount)?, self.scratch(Class::B32));
                ptx!(self, "and.b32 {rest}, {amount}, {}", width - 1);
                rest.to_string()
            }
            _ => self.read(inst, amount)?,
        };
        let result = self.define_result(inst)?;
        ptx!(self, "shfl.sync.{mode}.b32 {result}, {value}, {amount}, {group}, {WARP}");
        Ok(())
    }

    pub(crate) fn vote(&mut self, inst: &Inst, vote: Vote) -> Result<(), EmitError> {
        let [value] = self.args(inst)?;
        let value = self.register(inst, value)?;
        let result = self.define_result(inst)?;
        ptx!(self, "vote.sync.{}.pred {result}, {value}, {WARP}", vote.name());
        Ok(())
    }

    pub(crate) fn ballot(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [value] = self.args(inst)?;
        let value = self.register(inst, value)?;
        let result = self.define_result(inst)?;
        ptx!(self, "vote.sync.ballot.b32 {result}, {value}, {WARP}");
        Ok(())
    }

    pub(crate) fn match_lanes(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [value] = self.args(inst)?;
        let class = Class::of(self.ty(inst, value)?).suffix();
        let value = self.register(inst, value)?;
        let result = self.define_result(inst)?;
        ptx!(self, "match.any.sync.{class} {result}, {value}, {WARP}");
        Ok(())
    }

    pub(crate) fn warp_reduce(&mut self, inst: &Inst, op: BinaryOp) -> Result<(), EmitError> {
        let [value] = self.args(inst)?;
        let ty = self.ty(inst, value)?;
        let suffix = match (op, ty) {
            (BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, Type::U32) => "b32",
            (_, Type::U32 | Type::S32) => ty.name(),
            _ => return Err(self.unsupported_type(inst, ty)),
        };
        let value = self.register(inst, value)?;
        let result = self.define_result(inst)?;
        ptx!(self, "redux.sync.{}.{suffix} {result}, {value}, {WARP}", op.name());
        Ok(())
    }
}
