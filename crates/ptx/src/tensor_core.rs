//! Warpgroup MMA: descriptors, accumulators, the instruction itself, and register budgets.

use std::collections::{HashMap, HashSet};

use pgemm_ir::{
    ASource, AccId, Accumulator, Block, Constant, DescriptorLayout, Element, Inst, Kernel, Op,
    OperandMajor, SwizzleMode, Type, ValueId, Wgmma,
};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};
use crate::operand::Class;

impl Emitter<'_> {
    pub(crate) fn tensor_core(&mut self, inst: &Inst) -> Result<(), EmitError> {
        match &inst.op {
            Op::Descriptor(layout) => self.descriptor(inst, layout),
            Op::DescriptorAdvance(bytes) => {
                let [descriptor] = self.args(inst)?;
                if !bytes.is_multiple_of(16) {
                    let limit = "a multiple of 16, the unit of descriptor addresses";
                    return Err(self.out_of_range(inst, "bytes", *bytes, limit));
                }
                if *bytes == 0 {
                    let operand = self.operand(inst, descriptor)?;
                    let result = self.result(inst)?;
                    return self.bind(inst, result, operand);
                }
                let descriptor = self.read(inst, descriptor)?;
                let result = self.define_result(inst)?;
                ptx!(self, "add.u64 {result}, {descriptor}, {}", bytes >> 4);
                Ok(())
            }
            Op::AccGet(acc, index) => self.accumulator_register(inst, *acc, *index),
            Op::WgmmaFence => self.plain(inst, "wgmma.fence.sync.aligned"),
            Op::Wgmma(mma) => self.wgmma(inst, mma),
            Op::WgmmaCommit => self.plain(inst, "wgmma.commit_group.sync.aligned"),
            Op::WgmmaWait { pending } => {
                let limit = "0 to 7 groups can stay in flight";
                self.within(inst, "pending", *pending, 0, 7, limit)?;
                self.plain(inst, &format!("wgmma.wait_group.sync.aligned {pending}"))
            }
            Op::SetMaxRegisters { count, increase } => {
                let limit = "24 to 256 in steps of 8";
                self.within(inst, "count", *count, 24, 256, limit)?;
                if !count.is_multiple_of(8) {
                    return Err(self.out_of_range(inst, "count", *count, limit));
                }
                let direction = if *increase { "inc" } else { "dec" };
                self.plain(inst, &format!("setmaxnreg.{direction}.sync.aligned.u32 {count}"))
            }
            // The dispatcher sends nothing else here.
            _ => Ok(()),
        }
    }

    /// Bits 0–13 address, 16–29 leading offset, 32–45 stride offset, each in units of 16 bytes; 62–63 swizzle (PTX ISA,
    /// "Matrix descriptor").
    fn descriptor(&mut self, inst: &Inst, layout: &DescriptorLayout) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let limit = "a multiple of 16 up to 262128";
        for (what, bytes) in
            [("leading bytes", layout.leading_bytes), ("stride bytes", layout.stride_bytes)]
        {
            if !bytes.is_multiple_of(16) || bytes > 0x3fff0 {
                return Err(self.out_of_range(inst, what, bytes, limit));
            }
        }
        let swizzle: u32 = match layout.swizzle {
            SwizzleMode::None => 0,
            SwizzleMode::B128 => 1,
            SwizzleMode::B64 => 2,
            SwizzleMode::B32 => 3,
        };
        let leading = layout.leading_bytes >> 4 << 16;
        let high = layout.stride_bytes >> 4 | swizzle << 30;
        // Only 18 bits of the address count. In a cluster those above hold the CTA's rank, and would change the leading
        // offset, which MN-major operands read.
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
            let (suffix, zero) =
                if group.ty == Type::F32 { ("f32", "0f00000000") } else { ("b32", "0") };
            for index in 0..group.registers {
                ptx!(self, "mov.{suffix} %{acc}_{index}, {zero}");
            }
        }
    }

    fn accumulator_register(
        &mut self,
        inst: &Inst,
        acc: AccId,
        index: u32,
    ) -> Result<(), EmitError> {
        let [] = self.args(inst)?;
        let group = self.kernel.accumulators.get(acc.index());
        let registers = group.map_or(0, |group| group.registers);
        if index >= registers {
            return Err(EmitError::UnknownAccumulator { acc, index, registers, at: self.at(inst) });
        }
        let float = group.is_some_and(|group| group.ty == Type::F32);
        let result = self.define_result(inst)?;
        let suffix = if float && result.class == Class::F32 { "f32" } else { "b32" };
        ptx!(self, "mov.{suffix} {result}, %{acc}_{index}");
        Ok(())
    }

    fn wgmma(&mut self, inst: &Inst, mma: &Wgmma) -> Result<(), EmitError> {
        let acc = mma.acc;
        let Some(group) = self.kernel.accumulators.get(acc.index()) else {
            let at = self.at(inst);
            return Err(EmitError::UnknownAccumulator { acc, index: 0, registers: 0, at });
        };
        let float = check_elements(mma, group.ty).ok_or_else(|| EmitError::UnsupportedMma {
            a: mma.a,
            b: mma.b,
            acc: group.ty,
            at: self.at(inst),
        })?;
        self.check_columns(inst, mma, float)?;
        if group.registers != Accumulator::registers_for(group.ty, mma.n) {
            let limit = "the accumulator group must have n / 2 registers, n / 4 of b32";
            return Err(self.out_of_range(inst, "n", mma.n, limit));
        }
        let transposes = self.transposes(inst, mma)?;

        let (a, b, accumulate) = match (mma.a_source, &inst.args[..]) {
            (ASource::Shared(_), &[a, b, accumulate]) => {
                (self.register(inst, a)?.to_string(), b, accumulate)
            }
            (ASource::Registers, &[a0, a1, a2, a3, b, accumulate]) => {
                let mut fragment = Vec::with_capacity(4);
                for value in [a0, a1, a2, a3] {
                    fragment.push(self.register(inst, value)?.to_string());
                }
                (format!("{{{}}}", fragment.join(", ")), b, accumulate)
            }
            (source, args) => {
                let expected = if source == ASource::Registers { 6 } else { 3 };
                return Err(self.arity(inst, "operands", expected, args.len()));
            }
        };
        let b = self.register(inst, b)?;
        let accumulate = self.read(inst, accumulate)?;
        let registers: Vec<String> =
            (0..group.registers).map(|index| format!("%{acc}_{index}")).collect();
        let registers = registers.join(", ");
        // Only the float forms can negate their operands; these are not negated.
        let scales = if float { ", 1, 1" } else { "" };
        ptx!(
            self,
            "wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{} {{{registers}}}, {a}, {b}, {accumulate}{scales}{transposes}",
            mma.n,
            mma.k(),
            if group.ty == Type::B32 { "f16" } else { group.ty.name() },
            mma.a.name(),
            mma.b.name()
        );
        Ok(())
    }

    fn check_columns(&self, inst: &Inst, mma: &Wgmma, float: bool) -> Result<(), EmitError> {
        let limit = "8 to 256 in steps of 8";
        self.within(inst, "n", mma.n, 8, 256, limit)?;
        if !mma.n.is_multiple_of(8) {
            return Err(self.out_of_range(inst, "n", mma.n, limit));
        }
        if !float && mma.n > 32 && !mma.n.is_multiple_of(16) {
            let limit = "integer forms have 8, 16, 24, 32, then steps of 16 to 256";
            return Err(self.out_of_range(inst, "n", mma.n, limit));
        }
        Ok(())
    }

    /// The flags that say which operands in shared memory are MN-major; only 16-bit elements have them.
    fn transposes(&self, inst: &Inst, mma: &Wgmma) -> Result<String, EmitError> {
        let mut flags = String::new();
        let a = match mma.a_source {
            ASource::Shared(major) => Some((mma.a, major)),
            ASource::Registers => None,
        };
        for (element, major) in a.into_iter().chain([(mma.b, mma.b_major)]) {
            if element.bytes() == 2 {
                flags.push_str(if major == OperandMajor::Mn { ", 1" } else { ", 0" });
            } else if major == OperandMajor::Mn {
                return Err(EmitError::UnsupportedMajor { element, at: self.at(inst) });
            }
        }
        Ok(flags)
    }
}

/// Where accumulator groups are to be initialised: in the branch that has all uses of the group, outside of any loop,
/// before the first use and the first fence. ptxas 12 serialises the wgmma of a loop whose accumulators no instruction
/// defines before they are added to (C7515). A group whose first use is a wgmma that overwrites it needs nothing.
pub(crate) fn first_uses(kernel: &Kernel) -> HashMap<*const Inst, Vec<AccId>> {
    let mut no: HashSet<ValueId> = HashSet::new();
    kernel.visit(&mut |inst| {
        if inst.op == Op::Const(Constant::Bool(false)) {
            no.extend(&inst.results);
        }
    });
    let mut first_uses: HashMap<*const Inst, Vec<AccId>> = HashMap::new();
    for acc in (0..kernel.accumulators.len() as u32).map(AccId) {
        let uses_acc = |inst: &Inst| match &inst.op {
            Op::Wgmma(mma) => mma.acc == acc,
            Op::AccGet(read, _) => *read == acc,
            _ => false,
        };
        let starts = |inst: &Inst| inst.op == Op::WgmmaFence || uses_acc(inst);
        let mut block = &kernel.body;
        let mut before_loops = None;
        loop {
            let mut users = block.insts.iter().filter(|inst| holds(inst, &uses_acc));
            let Some(first) = users.next() else { break };
            let overwrites = matches!(first.op, Op::Wgmma(_))
                && first.args.last().is_some_and(|accumulate| no.contains(accumulate));
            if overwrites {
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

fn holds(inst: &Inst, test: &dyn Fn(&Inst) -> bool) -> bool {
    test(inst) || inst.blocks.iter().any(|block| block_holds(block, test))
}

fn block_holds(block: &Block, test: &dyn Fn(&Inst) -> bool) -> bool {
    block.insts.iter().any(|inst| holds(inst, test))
}

/// Whether the elements make a float wgmma; none where no wgmma exists for them and the accumulator type.
fn check_elements(mma: &Wgmma, acc: Type) -> Option<bool> {
    let eight_bit_float = |element| matches!(element, Element::E4m3 | Element::E5m2);
    let integer = |element| matches!(element, Element::S8 | Element::U8);
    let float = match mma.a {
        Element::F16 | Element::Bf16 | Element::Tf32 if mma.b == mma.a => true,
        a if eight_bit_float(a) && eight_bit_float(mma.b) => true,
        a if integer(a) && integer(mma.b) => false,
        _ => return None,
    };
    let of_type = acc == if float { Type::F32 } else { Type::S32 };
    // PTX ISA, "wgmma.mma_async": f16 sums of f16 products, two in a register.
    (of_type || acc == Type::B32 && mma.a == Element::F16).then_some(float)
}
