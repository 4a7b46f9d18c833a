//! The state of one emission: the text so far, what stands for each value, and the counters of registers and labels.

use std::collections::HashMap;
use std::fmt;

use pgemm_ir::{AccId, Block, Inst, Kernel, LocId, Location, Op, Type, ValueId};

use crate::EmitError;
use crate::operand::{Class, Operand, Register, immediate, smem_symbol};
use crate::tensor_core;

/// Emits the body of a kernel, instruction by instruction.
pub(crate) struct Emitter<'k> {
    pub(crate) kernel: &'k Kernel,
    /// Warp index, made uniform at entry, where all threads are converged.
    pub(crate) warp: Option<Register>,
    /// Warpgroup index, likewise.
    pub(crate) warpgroup: Option<Register>,
    /// The accumulator groups to initialise before an instruction.
    pub(crate) first_uses: HashMap<*const Inst, Vec<AccId>>,
    text: String,
    annotate: bool,
    operands: Vec<Option<Operand>>,
    registers: [u32; Class::ALL.len()],
    labels: u32,
    location: Option<LocId>,
    annotated: Option<LocId>,
}

/// One line of PTX, indented.
macro_rules! ptx {
    ($emitter:expr, $($format:tt)*) => {
        $emitter.line(format_args!($($format)*))
    };
}
pub(crate) use ptx;

impl<'k> Emitter<'k> {
    pub(crate) fn new(kernel: &'k Kernel, annotate: bool) -> Self {
        Emitter {
            kernel,
            warp: None,
            warpgroup: None,
            first_uses: tensor_core::first_uses(kernel),
            text: String::new(),
            annotate,
            operands: vec![None; kernel.values.len()],
            registers: [0; Class::ALL.len()],
            labels: 0,
            location: None,
            annotated: None,
        }
    }

    /// The text, and how many registers of each class it uses.
    pub(crate) fn finish(self) -> (String, [u32; Class::ALL.len()]) {
        (self.text, self.registers)
    }

    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) {
        self.annotation();
        self.text.push_str(&format!("    {line};\n"));
    }

    fn annotation(&mut self) {
        if !self.annotate || self.annotated == self.location {
            return;
        }
        self.annotated = self.location;
        let Some(place) = self.location.and_then(|id| self.kernel.locations.get(id.index())) else {
            return;
        };
        self.text.push_str(&format!("    // {}:{}", place.file, place.line));
        if !place.scopes.is_empty() {
            self.text.push_str(&format!(" ({})", place.scopes.join(" > ")));
        }
        self.text.push('\n');
    }

    pub(crate) fn label(&mut self, label: &str) {
        self.text.push_str(&format!("{label}:\n"));
    }

    /// A number for the labels of one operation.
    pub(crate) fn next_label(&mut self) -> u32 {
        self.labels += 1;
        self.labels - 1
    }

    /// A register that stands for no value.
    pub(crate) fn scratch(&mut self, class: Class) -> Register {
        let count = &mut self.registers[class as usize];
        *count += 1;
        Register { class, index: *count - 1 }
    }

    pub(crate) fn at(&self, inst: &Inst) -> Location {
        self.kernel.locations.get(inst.loc.index()).cloned().unwrap_or(Location {
            file: "unknown".to_owned(),
            line: 0,
            column: 0,
            scopes: Vec::new(),
        })
    }

    pub(crate) fn out_of_range(
        &self,
        inst: &Inst,
        what: &'static str,
        value: u32,
        limit: &'static str,
    ) -> EmitError {
        EmitError::OutOfRange { op: op_name(&inst.op), what, value, limit, at: self.at(inst) }
    }

    pub(crate) fn unsupported_type(&self, inst: &Inst, ty: Type) -> EmitError {
        let op = match &inst.op {
            Op::Unary(op) => format!("{op:?}"),
            Op::Binary(op) => format!("{op:?}"),
            Op::Compare(op) => format!("Compare {op:?}"),
            op => op_name(op),
        };
        EmitError::UnsupportedType { op, ty, at: self.at(inst) }
    }

    pub(crate) fn arity(
        &self,
        inst: &Inst,
        what: &'static str,
        expected: usize,
        found: usize,
    ) -> EmitError {
        EmitError::Arity { op: op_name(&inst.op), what, expected, found, at: self.at(inst) }
    }

    /// The operands, exactly `N`.
    pub(crate) fn args<const N: usize>(&self, inst: &Inst) -> Result<[ValueId; N], EmitError> {
        inst.args[..].try_into().map_err(|_| self.arity(inst, "operands", N, inst.args.len()))
    }

    /// The one result.
    pub(crate) fn result(&self, inst: &Inst) -> Result<ValueId, EmitError> {
        match inst.results[..] {
            [result] => Ok(result),
            _ => Err(self.arity(inst, "results", 1, inst.results.len())),
        }
    }

    /// The nested blocks, exactly `N`.
    pub(crate) fn blocks<'i, const N: usize>(
        &self,
        inst: &'i Inst,
    ) -> Result<&'i [Block; N], EmitError> {
        inst.blocks[..].try_into().map_err(|_| self.arity(inst, "blocks", N, inst.blocks.len()))
    }

    pub(crate) fn ty(&self, inst: &Inst, value: ValueId) -> Result<Type, EmitError> {
        self.kernel.values.get(value.index()).copied().ok_or_else(|| self.undefined(inst, value))
    }

    fn undefined(&self, inst: &Inst, value: ValueId) -> EmitError {
        EmitError::UndefinedValue { value, op: op_name(&inst.op), at: self.at(inst) }
    }

    pub(crate) fn operand(&self, inst: &Inst, value: ValueId) -> Result<Operand, EmitError> {
        self.operands
            .get(value.index())
            .copied()
            .flatten()
            .ok_or_else(|| self.undefined(inst, value))
    }

    /// Lets `operand` stand for a value.
    pub(crate) fn bind(
        &mut self,
        inst: &Inst,
        value: ValueId,
        operand: Operand,
    ) -> Result<(), EmitError> {
        let redefined =
            EmitError::RedefinedValue { value, op: op_name(&inst.op), at: self.at(inst) };
        let undefined = self.undefined(inst, value);
        match self.operands.get_mut(value.index()) {
            None => Err(undefined),
            Some(Some(_)) => Err(redefined),
            Some(slot) => {
                *slot = Some(operand);
                Ok(())
            }
        }
    }

    /// A new register for a value.
    pub(crate) fn define(&mut self, inst: &Inst, value: ValueId) -> Result<Register, EmitError> {
        let register = self.scratch(Class::of(self.ty(inst, value)?));
        self.bind(inst, value, Operand::Register(register))?;
        Ok(register)
    }

    /// A value as a source operand: a register, or an immediate where it is constant.
    pub(crate) fn read(&mut self, inst: &Inst, value: ValueId) -> Result<String, EmitError> {
        match self.operand(inst, value)? {
            Operand::Immediate(bits) => Ok(immediate(self.ty(inst, value)?, bits)),
            _ => Ok(self.register(inst, value)?.to_string()),
        }
    }

    /// Several values as source operands, separated by commas.
    pub(crate) fn read_list(
        &mut self,
        inst: &Inst,
        values: &[ValueId],
    ) -> Result<String, EmitError> {
        let operands: Result<Vec<String>, EmitError> =
            values.iter().map(|&value| self.read(inst, value)).collect();
        Ok(operands?.join(", "))
    }

    /// A value in a register, for operands that cannot be immediate.
    pub(crate) fn register(&mut self, inst: &Inst, value: ValueId) -> Result<Register, EmitError> {
        let operand = self.operand(inst, value)?;
        if let Operand::Register(register) = operand {
            return Ok(register);
        }
        let ty = self.ty(inst, value)?;
        let register = self.scratch(Class::of(ty));
        self.copy(register, ty, operand);
        Ok(register)
    }

    /// A value as the address of a memory operand, without the brackets.
    pub(crate) fn address(&mut self, inst: &Inst, value: ValueId) -> Result<String, EmitError> {
        match self.operand(inst, value)? {
            Operand::Smem(offset) => Ok(smem_symbol(offset)),
            _ => Ok(self.register(inst, value)?.to_string()),
        }
    }

    /// Moves an operand of a type into a register.
    pub(crate) fn copy(&mut self, to: Register, ty: Type, from: Operand) {
        let suffix = to.class.suffix();
        match from {
            Operand::Register(from) => ptx!(self, "mov.{suffix} {to}, {from}"),
            Operand::Immediate(bits) => ptx!(self, "mov.{suffix} {to}, {}", immediate(ty, bits)),
            Operand::Smem(offset) => ptx!(self, "mov.u32 {to}, {}", smem_symbol(offset)),
        }
    }

    /// Emits instructions in order; nested blocks without their `Yield`.
    pub(crate) fn insts(&mut self, insts: &[Inst]) -> Result<(), EmitError> {
        for inst in insts {
            self.location = Some(inst.loc);
            self.initialise_accumulators(inst);
            self.inst(inst)?;
        }
        Ok(())
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), EmitError> {
        match &inst.op {
            Op::Const(_)
            | Op::Param(_)
            | Op::MapParam(_)
            | Op::MapAt
            | Op::Special(_)
            | Op::Clock
            | Op::SmemAddress(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Fma
            | Op::Compare(_)
            | Op::Select
            | Op::Convert(_)
            | Op::Bitcast(_)
            | Op::Pack(_)
            | Op::Unpack(..)
            | Op::PermuteBytes
            | Op::SmemOffset
            | Op::MapShared
            | Op::Elect
            | Op::ShuffleFirst
            | Op::AssumeUniform => self.value(inst),
            Op::Descriptor(_)
            | Op::DescriptorAdvance(_)
            | Op::AccGet(..)
            | Op::WgmmaFence
            | Op::Wgmma(_)
            | Op::WgmmaCommit
            | Op::WgmmaWait { .. }
            | Op::SetMaxRegisters { .. } => self.tensor_core(inst),
            Op::WarpMma(mma) => self.warp_mma(inst, mma),
            Op::Load(_)
            | Op::Store(_)
            | Op::Atomic { .. }
            | Op::Reduce { .. }
            | Op::LoadElement(_)
            | Op::StoreElement(_)
            | Op::LoadNarrow { .. }
            | Op::StoreNarrow { .. }
            | Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. }
            | Op::MbarrierInit { .. }
            | Op::MbarrierArrive
            | Op::MbarrierArriveExpect { .. }
            | Op::MbarrierArriveCluster
            | Op::MbarrierWait
            | Op::FenceMbarrierInit
            | Op::FenceProxy(_)
            | Op::Fence(..)
            | Op::FenceMapRelease(_)
            | Op::FenceMapAcquire(_)
            | Op::Sleep
            | Op::BarrierSync { .. }
            | Op::BarrierArrive { .. }
            | Op::ClusterArrive { .. }
            | Op::ClusterWait
            | Op::WarpSync
            | Op::GridDependencyWait
            | Op::GridDependencyLaunch
            | Op::PrefetchLine
            | Op::PrefetchMap
            | Op::TmaLoad { .. }
            | Op::TmaStore { .. }
            | Op::TmaPrefetch { .. }
            | Op::BulkCommit
            | Op::BulkWait { .. } => self.memory(inst),
            Op::For | Op::While | Op::If | Op::Roles(_) | Op::Yield => self.control(inst),
        }
    }
}

/// The name of an operation, without its attributes.
pub(crate) fn op_name(op: &Op) -> String {
    let debug = format!("{op:?}");
    debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}
