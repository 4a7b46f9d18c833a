//! Warpgroup MMA: descriptors, accumulators, the instruction itself, and register budgets.

use pgemm_ir::{
    ASource, AccId, Accumulator, DescriptorLayout, Inst, OperandMajor, RegisterChange, SwizzleMode,
    Type, Wgmma,
};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};
use crate::operand::{Class, Operand, Register, group_prefix};

impl Emitter<'_> {
    pub(crate) fn descriptor_advance(&mut self, inst: &Inst, bytes: u32) -> Result<(), EmitError> {
        let [descriptor] = self.args(inst)?;
        if bytes == 0 {
            let operand = self.operand(inst, descriptor)?;
            let result = self.result(inst)?;
            return self.bind(inst, result, operand);
        }
        let descriptor = self.read(inst, descriptor)?;
        let result = self.define_result(inst)?;
        ptx!(self, "add.u64 {result}, {descriptor}, {}", bytes >> 4);
        Ok(())
    }

    pub(crate) fn set_max_registers(
        &mut self,
        inst: &Inst,
        count: u32,
        change: RegisterChange,
    ) -> Result<(), EmitError> {
        let direction = match change {
            RegisterChange::Increase => "inc",
            RegisterChange::Decrease => "dec",
        };
        self.plain(inst, &format!("setmaxnreg.{direction}.sync.aligned.u32 {count}"))
    }

    /// Bits 0–13 are the address, 16–29 the leading offset, 32–45 the stride offset, each in units
    /// of 16 bytes; bits 62–63 are the swizzle (PTX ISA, "Matrix descriptor").
    pub(crate) fn descriptor(
        &mut self,
        inst: &Inst,
        layout: &DescriptorLayout,
    ) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let swizzle: u32 = match layout.swizzle {
            SwizzleMode::None => 0,
            SwizzleMode::B128 => 1,
            SwizzleMode::B64 => 2,
            SwizzleMode::B32 => 3,
        };
        let leading = layout.leading_bytes >> 4 << 16;
        let high = layout.stride_bytes >> 4 | swizzle << 30;
        // Only 18 bits of the address count. In a cluster the bits above hold the CTA's rank. They
        // would change the leading offset, which MN-major operands read.
        let address = self.register(inst, address)?;
        let mut low = self.scratch(Class::B32);
        ptx!(self, "bfe.u32 {low}, {address}, 4, 14");
        if leading != 0 {
            let shifted = low;
            low = self.scratch(Class::B32);
            ptx!(self, "or.b32 {low}, {shifted}, 0x{leading:08x}");
        }
        let result = self.define_result(inst)?;
        ptx!(self, "mov.b64 {result}, {{{low}, 0x{high:08x}}}");
        Ok(())
    }

    /// Zeroes the accumulator groups that are first used by `inst`.
    pub(crate) fn initialise_accumulators(&mut self, inst: &Inst) {
        for acc in self.first_uses.remove(&std::ptr::from_ref(inst)).unwrap_or_default() {
            let Some(group) = self.kernel.accumulators.get(acc.index()) else { continue };
            let (class, registers) = (accumulator_class(group.ty), group.registers);
            let ty = group.ty;
            for index in 0..registers {
                let register = Register { class, index, acc: Some(acc) };
                self.copy(register, ty, Operand::Immediate(0));
            }
        }
    }

    /// A register of an accumulator group.
    fn accumulator_register(
        &self,
        inst: &Inst,
        acc: AccId,
        index: u32,
    ) -> Result<Register, EmitError> {
        match self.kernel.accumulators.get(acc.index()) {
            Some(group) if index < group.registers => {
                Ok(Register { class: accumulator_class(group.ty), index, acc: Some(acc) })
            }
            group => {
                let registers = group.map_or(0, |group| group.registers);
                Err(EmitError::UnknownAccumulator { acc, index, registers, at: self.at(inst) })
            }
        }
    }

    pub(crate) fn accumulator_get(
        &mut self,
        inst: &Inst,
        acc: AccId,
        index: u32,
    ) -> Result<(), EmitError> {
        let [] = self.args(inst)?;
        let register = self.accumulator_register(inst, acc, index)?;
        let result = self.result(inst)?;
        let ty = self.ty(inst, result)?;
        if Class::of(ty) != register.class {
            return Err(self.unsupported_type(inst, ty));
        }
        let operand = Operand::Register(register);
        if self.placement.accumulator(result).is_some() {
            return self.bind(inst, result, operand);
        }
        let result = self.define(inst, result)?;
        self.copy(result, ty, operand);
        Ok(())
    }

    pub(crate) fn accumulator_set(
        &mut self,
        inst: &Inst,
        acc: AccId,
        index: u32,
    ) -> Result<(), EmitError> {
        let [value] = self.args(inst)?;
        let register = self.accumulator_register(inst, acc, index)?;
        let ty = self.ty(inst, value)?;
        if Class::of(ty) != register.class {
            return Err(self.unsupported_type(inst, ty));
        }
        let operand = self.operand(inst, value)?;
        self.copy(register, ty, operand);
        Ok(())
    }

    pub(crate) fn wgmma(&mut self, inst: &Inst, mma: &Wgmma) -> Result<(), EmitError> {
        let acc = mma.acc;
        let Some(group) = self.kernel.accumulators.get(acc.index()) else {
            let at = self.at(inst);
            return Err(EmitError::UnknownAccumulator { acc, index: 0, registers: 0, at });
        };
        if !mma.a.accumulators_with(mma.b).contains(&group.ty) {
            let (a, b, at) = (mma.a, mma.b, self.at(inst));
            return Err(EmitError::UnsupportedAccumulator { a, b, acc: group.ty, at });
        }
        if group.registers != Accumulator::registers_for(group.ty, mma.n) {
            let limit = "the accumulator group must have n / 2 registers, n / 4 of b32";
            return Err(self.out_of_range(inst, "n", mma.n, limit));
        }
        let transposes = transposes(mma);
        let prefix = group_prefix(acc);

        let registers = mma.a_registers();
        let expected = registers.max(1) + 2;
        let (a, b, accumulate) = match &inst.args[..] {
            [a @ .., b, accumulate] if inst.args.len() == expected => (a, *b, *accumulate),
            args => return Err(self.arity(inst, "operands", expected, args.len())),
        };
        let mut names = Vec::with_capacity(a.len());
        for &value in a {
            names.push(self.register(inst, value)?.to_string());
        }
        let names = names.join(", ");
        let a = if registers > 0 { format!("{{{names}}}") } else { names };
        let b = self.register(inst, b)?;
        let accumulate = self.read(inst, accumulate)?;
        let registers: Vec<String> =
            (0..group.registers).map(|index| format!("{prefix}{index}")).collect();
        let registers = registers.join(",");
        // Only the float forms can negate their operands; these are not negated.
        let scales = if mma.a.is_float() { ", 1, 1" } else { "" };
        ptx!(
            self,
            "wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{} {{{registers}}}, {a}, {b}, \
             {accumulate}{scales}{transposes}",
            mma.n,
            mma.k(),
            if group.ty == Type::B32 { "f16" } else { group.ty.name() },
            mma.a,
            mma.b
        );
        Ok(())
    }
}

/// The register class of accumulators of a type.
fn accumulator_class(ty: Type) -> Class {
    if ty == Type::F32 { Class::F32 } else { Class::B32 }
}

/// The flags that say which operands in shared memory are MN-major. Only the forms whose operands
/// can be MN-major have them.
fn transposes(mma: &Wgmma) -> String {
    let a = match mma.a_source {
        ASource::Shared(major) => Some((mma.a, major)),
        ASource::Registers => None,
    };
    let operands = a.into_iter().chain([(mma.b, mma.b_major)]);
    let flag = |(_, major)| if major == OperandMajor::Mn { ", 1" } else { ", 0" };
    operands.filter(|(element, _)| element.can_be_mn_major()).map(flag).collect()
}
