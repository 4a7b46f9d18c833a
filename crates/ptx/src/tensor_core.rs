//! Warpgroup MMA: descriptors, accumulators, the instruction itself, and register budgets.

use std::collections::{HashMap, HashSet};

use pgemm_ir::{
    ASource, AccId, Accumulator, Block, Constant, DescriptorLayout, Entity, Inst, Kernel, Op,
    OperandMajor, RegisterChange, SwizzleMode, Type, ValueId, Wgmma,
};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};
use crate::operand::Class;

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
            let zero = if class == Class::F32 { "0f00000000" } else { "0" };
            for index in 0..registers {
                ptx!(self, "mov.{} %{acc}_{index}, {zero}", class.suffix());
            }
        }
    }

    /// The register class of an accumulator group, one of whose registers is named.
    fn accumulator_register(
        &self,
        inst: &Inst,
        acc: AccId,
        index: u32,
    ) -> Result<Class, EmitError> {
        match self.kernel.accumulators.get(acc.index()) {
            Some(group) if index < group.registers => Ok(accumulator_class(group.ty)),
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
        let class = self.accumulator_register(inst, acc, index)?;
        let result = self.define_result(inst)?;
        if result.class != class {
            return Err(self.unsupported_type(inst, self.ty(inst, self.result(inst)?)?));
        }
        ptx!(self, "mov.{} {result}, %{acc}_{index}", class.suffix());
        Ok(())
    }

    pub(crate) fn accumulator_set(
        &mut self,
        inst: &Inst,
        acc: AccId,
        index: u32,
    ) -> Result<(), EmitError> {
        let [value] = self.args(inst)?;
        let class = self.accumulator_register(inst, acc, index)?;
        let ty = self.ty(inst, value)?;
        if Class::of(ty) != class {
            return Err(self.unsupported_type(inst, ty));
        }
        let value = self.read(inst, value)?;
        ptx!(self, "mov.{} %{acc}_{index}, {value}", class.suffix());
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
            (0..group.registers).map(|index| format!("%{acc}_{index}")).collect();
        let registers = registers.join(", ");
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

/// By instruction, the accumulator groups to initialise before it. The place is in the branch that
/// has all uses of the group, outside of any loop, before the first use and the first fence. ptxas
/// 12 serialises the wgmma of a loop whose accumulators no instruction defines before they are
/// added to (C7515). A group needs no initialisation if its first use is a wgmma that overwrites
/// it, or if straight-line code first writes all of its registers.
pub(crate) fn first_uses(kernel: &Kernel) -> HashMap<*const Inst, Vec<AccId>> {
    let mut no: HashSet<ValueId> = HashSet::new();
    kernel.visit(&mut |inst| {
        if inst.op == Op::Const(Constant::Bool(false)) {
            no.extend(&inst.results);
        }
    });
    let mut first_uses: HashMap<*const Inst, Vec<AccId>> = HashMap::new();
    for acc in (0..kernel.accumulators.len() as u32).map(AccId) {
        let uses_acc = |inst: &Inst| inst.op.entities().contains(&Entity::Accumulator(acc));
        let starts = |inst: &Inst| inst.op == Op::WgmmaFence || uses_acc(inst);
        let mut block = &kernel.body;
        let mut before_loops = None;
        loop {
            let uses = |inst: &&Inst| holds(inst, &uses_acc);
            let mut users = block.insts.iter().filter(uses);
            let Some(first) = users.next() else { break };
            let overwrites = matches!(first.op, Op::Wgmma(_))
                && first.args.last().is_some_and(|accumulate| no.contains(accumulate));
            if overwrites || writes_all(kernel, acc, block.insts.iter().filter(uses)) {
                break;
            }
            let place = block.insts.iter().find(|inst| holds(inst, &starts));
            let mut nested = first.blocks.iter().filter(|block| block_holds(block, &uses_acc));
            match (users.next(), nested.next(), nested.next()) {
                (None, Some(only), None) => {
                    if first.op != Op::If {
                        before_loops = before_loops.or(place);
                    }
                    block = only;
                }
                _ => {
                    if let Some(place) = before_loops.or(place) {
                        first_uses.entry(std::ptr::from_ref(place)).or_default().push(acc);
                    }
                    break;
                }
            }
        }
    }
    first_uses
}

/// Whether the users of a group in a block write all of its registers before anything else.
fn writes_all<'k>(kernel: &Kernel, acc: AccId, users: impl Iterator<Item = &'k Inst>) -> bool {
    let written: HashSet<u32> = users
        .map_while(|inst| match inst.op {
            Op::AccSet(_, index) => Some(index),
            _ => None,
        })
        .collect();
    let group = kernel.accumulators.get(acc.index());
    group.is_some_and(|group| (0..group.registers).all(|index| written.contains(&index)))
}

fn holds(inst: &Inst, test: &dyn Fn(&Inst) -> bool) -> bool {
    test(inst) || inst.blocks.iter().any(|block| block_holds(block, test))
}

fn block_holds(block: &Block, test: &dyn Fn(&Inst) -> bool) -> bool {
    block.insts.iter().any(|inst| holds(inst, test))
}
