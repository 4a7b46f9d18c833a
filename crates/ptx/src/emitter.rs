//! The state of one emission: the text so far, the operand that stands for each value, and the
//! counters of registers and labels.

use std::collections::HashMap;
use std::fmt;

use pgemm_ir::{AccId, Block, Inst, Kernel, Location, Op, Param, ParamId, Type, ValueId};

use crate::EmitError;
use crate::first_use::first_uses;
use crate::operand::{Class, Operand, Register, immediate, smem_symbol};
use crate::placement::Placement;
use crate::text::Text;

/// Emits the body of a kernel, instruction by instruction.
pub(crate) struct Emitter<'k> {
    pub(crate) kernel: &'k Kernel,
    /// The warp index, made uniform at entry, where all threads are converged.
    pub(crate) warp: Option<Register>,
    /// The warpgroup index, made uniform likewise.
    pub(crate) warpgroup: Option<Register>,
    /// By instruction: the accumulator groups to initialise before it.
    pub(crate) first_uses: HashMap<*const Inst, Vec<AccId>>,
    pub(crate) placement: Placement,
    /// The registers that values are to be computed in.
    pub(crate) targets: HashMap<ValueId, Register>,
    pub(crate) text: Text,
    operands: Vec<Option<Operand>>,
    registers: [u32; Class::ALL.len()],
    labels: u32,
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
        let first_uses = first_uses(kernel);
        let zeroes = |inst: &Inst| first_uses.contains_key(&std::ptr::from_ref(inst));
        let placement = Placement::of(kernel, &zeroes);
        Emitter {
            kernel,
            warp: None,
            warpgroup: None,
            first_uses,
            placement,
            targets: HashMap::new(),
            text: Text::new(annotate),
            operands: vec![None; kernel.values.len()],
            registers: [0; Class::ALL.len()],
            labels: 0,
        }
    }

    /// The code, and how many registers of each class it uses.
    pub(crate) fn finish(self) -> (String, [u32; Class::ALL.len()]) {
        (self.text.finish(), self.registers)
    }

    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) {
        self.text.instruction(self.kernel, line);
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
        Register { class, index: *count - 1, acc: None }
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

    /// Fails where an operand's constant is out of range.
    pub(crate) fn within(
        &self,
        inst: &Inst,
        what: &'static str,
        value: u32,
        least: u32,
        most: u32,
        limit: &'static str,
    ) -> Result<(), EmitError> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(self.out_of_range(inst, what, value, limit))
    }

    pub(crate) fn unsupported_type(&self, inst: &Inst, ty: Type) -> EmitError {
        EmitError::UnsupportedType { op: op_name(&inst.op), ty, at: self.at(inst) }
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

    /// A declared parameter.
    pub(crate) fn parameter(&self, inst: &Inst, param: ParamId) -> Result<&'k Param, EmitError> {
        let params = &self.kernel.params;
        params.get(param.index()).ok_or_else(|| EmitError::UnknownParameter {
            param,
            count: params.len(),
            at: self.at(inst),
        })
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

    /// The register that a value is computed in: the one that it is wanted in, or a new one.
    pub(crate) fn define(&mut self, inst: &Inst, value: ValueId) -> Result<Register, EmitError> {
        let class = Class::of(self.ty(inst, value)?);
        let wanted = self.targets.remove(&value).or(self.placement.accumulator(value));
        let register = wanted.unwrap_or_else(|| self.scratch(class));
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
            Operand::Sum(register, offset) => Ok(format!("{register}+{offset}")),
            Operand::Register(_) | Operand::Immediate(_) => {
                Ok(self.register(inst, value)?.to_string())
            }
        }
    }

    /// Lets the sum of an address and a constant be part of memory operands, where it is used for
    /// nothing else. Returns whether it is.
    pub(crate) fn sum(&mut self, inst: &Inst) -> Result<bool, EmitError> {
        let ([base, offset], result) = (self.args(inst)?, self.result(inst)?);
        let Operand::Immediate(offset) = self.operand(inst, offset)? else { return Ok(false) };
        let wraps = match self.ty(inst, result)? {
            // Addresses in shared memory have 32 bits and wrap.
            Type::Smem | Type::ClusterSmem => Some(offset as u32 as i32),
            _ => i32::try_from(offset).ok(),
        };
        let (Some(offset), true) = (wraps, self.placement.is_offset(result)) else {
            return Ok(false);
        };
        let (register, offset) = match self.operand(inst, base)? {
            Operand::Register(register) => (register, Some(offset)),
            Operand::Sum(register, before) => (register, before.checked_add(offset)),
            Operand::Smem(_) | Operand::Immediate(_) => return Ok(false),
        };
        match offset {
            Some(offset) => {
                self.bind(inst, result, Operand::Sum(register, offset))?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Moves an operand of a type into a register.
    pub(crate) fn copy(&mut self, to: Register, ty: Type, from: Operand) {
        let suffix = to.class.suffix();
        match from {
            Operand::Register(from) if from == to => {}
            Operand::Register(from) => ptx!(self, "mov.{suffix} {to}, {from}"),
            Operand::Immediate(bits) => ptx!(self, "mov.{suffix} {to}, {}", immediate(ty, bits)),
            Operand::Smem(offset) => ptx!(self, "mov.u32 {to}, {}", smem_symbol(offset)),
            Operand::Sum(register, offset) => {
                ptx!(
                    self,
                    "add.{} {to}, {register}, {offset}",
                    if to.class == Class::B64 { "s64" } else { "s32" }
                );
            }
        }
    }

    /// Emits instructions in order; nested blocks without their `Yield`.
    pub(crate) fn insts(&mut self, insts: &[Inst]) -> Result<(), EmitError> {
        for inst in insts {
            self.text.location = Some(inst.loc);
            self.initialise_accumulators(inst);
            self.inst(inst)?;
        }
        Ok(())
    }

    /// Emits one instruction. Every operation is listed: a new one does not compile until it has
    /// PTX.
    fn inst(&mut self, inst: &Inst) -> Result<(), EmitError> {
        if let Some(error) = inst.op.attribute_errors().into_iter().next() {
            let (op, error) = (op_name(&inst.op), Box::new(error));
            return Err(EmitError::Attribute { op, error, at: self.at(inst) });
        }
        match &inst.op {
            Op::Const(constant) => self.constant(inst, *constant),
            Op::Param(id) => self.scalar_parameter(inst, *id),
            Op::MapParam(id) => self.map_parameter(inst, *id),
            Op::MapAt => self.map_at(inst),
            Op::Special(special) => self.special(inst, *special),
            Op::Clock => self.clock(inst),
            Op::SmemAddress(region) => self.smem_address(inst, *region),
            Op::Unary(op) => self.unary(inst, *op),
            Op::Binary(op) => self.binary(inst, *op),
            Op::Fma => self.fma(inst),
            Op::Compare(op) => self.compare(inst, *op),
            Op::Select => self.select(inst),
            Op::Convert(to) => self.convert(inst, *to),
            Op::Bitcast(to) => self.bitcast(inst, *to),
            Op::Pack(element) => self.pack(inst, *element),
            Op::Unpack(element, half) => self.unpack(inst, *element, *half),
            Op::PermuteBytes => self.permute_bytes(inst),
            Op::SmemOffset => self.smem_offset(inst),
            Op::MapShared => self.map_shared(inst),
            Op::Descriptor(layout) => self.descriptor(inst, layout),
            Op::DescriptorAdvance(bytes) => self.descriptor_advance(inst, *bytes),
            Op::Elect => self.elect(inst),
            Op::ShuffleFirst | Op::AssumeUniform => self.shuffle_first(inst),
            Op::Shuffle { shuffle, width } => self.shuffle(inst, *shuffle, *width),
            Op::Vote(vote) => self.vote(inst, *vote),
            Op::Ballot => self.ballot(inst),
            Op::Match => self.match_lanes(inst),
            Op::WarpReduce(op) => self.warp_reduce(inst, *op),
            Op::AccGet(acc, index) => self.accumulator_get(inst, *acc, *index),
            Op::AccSet(acc, index) => self.accumulator_set(inst, *acc, *index),

            Op::Load(access) => self.load(inst, access),
            Op::Store(access) => self.store(inst, access),
            Op::Atomic { op, space, order, scope } => {
                self.atomic(inst, *op, (*space, *order, *scope))
            }
            Op::CompareExchange { space, order, scope } => {
                self.compare_exchange(inst, (*space, *order, *scope))
            }
            Op::Reduce { vector } => self.reduce(inst, *vector),
            Op::LoadElement(element) => self.load_element(inst, *element),
            Op::StoreElement(element) => self.store_element(inst, *element),
            Op::LoadNarrow { space, bytes } => self.load_narrow(inst, *space, *bytes),
            Op::StoreNarrow { space, bytes } => self.store_narrow(inst, *space, *bytes),
            Op::LoadMatrix { count, transpose } => self.load_matrix(inst, *count, *transpose),
            Op::StoreMatrix { count, transpose } => self.store_matrix(inst, *count, *transpose),

            Op::CopyAsync { bytes } => self.copy_async(inst, *bytes),
            Op::CopyCommit => self.plain(inst, "cp.async.commit_group"),
            Op::CopyWait { pending } => self.plain(inst, &format!("cp.async.wait_group {pending}")),
            Op::CopyArrive => self.copy_arrive(inst),

            Op::MbarrierInit { count } => self.mbarrier_init(inst, *count),
            Op::MbarrierArrive => self.mbarrier_arrive(inst),
            Op::MbarrierArriveExpect { bytes } => self.mbarrier_arrive_expect(inst, *bytes),
            Op::MbarrierArriveCluster => self.mbarrier_arrive_cluster(inst),
            Op::MbarrierWait => self.mbarrier_wait(inst),
            Op::FenceMbarrierInit => self.plain(inst, "fence.mbarrier_init.release.cluster"),
            Op::FenceProxy(fence) => self.fence_proxy(inst, *fence),
            Op::Fence(order, scope) => self.fence(inst, *order, *scope),
            Op::FenceMapRelease(scope) => self.fence_map_release(inst, *scope),
            Op::FenceMapAcquire(scope) => self.fence_map_acquire(inst, *scope),
            Op::Sleep => self.sleep(inst),
            Op::Custom(instruction) => self.custom(inst, instruction),
            Op::Trap => self.plain(inst, "trap"),
            // The emulator prints.
            Op::Print => Ok(()),
            Op::BarrierSync { threads } => self.named_barrier(inst, "sync", *threads),
            Op::BarrierArrive { threads } => self.named_barrier(inst, "arrive", *threads),
            Op::WarpSync => self.plain(inst, "bar.warp.sync 0xffffffff"),
            Op::ClusterArrive { relaxed } => self.cluster_arrive(inst, *relaxed),
            Op::ClusterWait => self.plain(inst, "barrier.cluster.wait.acquire.aligned"),
            Op::GridDependencyWait => self.plain(inst, "griddepcontrol.wait"),
            Op::GridDependencyLaunch => self.plain(inst, "griddepcontrol.launch_dependents"),

            Op::PrefetchLine => self.prefetch_line(inst),
            Op::PrefetchMap => self.prefetch_map(inst),
            Op::TmaLoad { rank, im2col, multicast, policy } => {
                self.tma_load(inst, (*rank, *im2col), *multicast, *policy)
            }
            Op::TmaStore { rank, policy } => self.tma_store(inst, None, *rank, *policy),
            Op::TmaReduce { op, rank, policy } => self.tma_store(inst, Some(*op), *rank, *policy),
            Op::BulkLoad { multicast, policy } => self.bulk_load(inst, *multicast, *policy),
            Op::BulkStore { policy } => self.bulk_store(inst, None, *policy),
            Op::BulkReduce { op, element, policy } => {
                self.bulk_store(inst, Some((*op, *element)), *policy)
            }
            Op::TmaPrefetch { rank, im2col, policy } => {
                self.tma_prefetch(inst, (*rank, *im2col), *policy)
            }
            Op::BulkCommit => self.plain(inst, "cp.async.bulk.commit_group"),
            Op::BulkWait { pending, read } => self.bulk_wait(inst, *pending, *read),

            Op::WgmmaFence => self.plain(inst, "wgmma.fence.sync.aligned"),
            Op::Wgmma(wgmma) => self.wgmma(inst, wgmma),
            Op::WgmmaCommit => self.plain(inst, "wgmma.commit_group.sync.aligned"),
            Op::WgmmaWait { pending } => {
                self.plain(inst, &format!("wgmma.wait_group.sync.aligned {pending}"))
            }
            Op::WarpMma(mma) => self.warp_mma(inst, mma),
            Op::SetMaxRegisters { count, change } => self.set_max_registers(inst, *count, *change),

            Op::For => self.for_loop(inst),
            Op::While => self.while_loop(inst),
            Op::If => self.branch(inst),
            Op::Roles(_) => Err(EmitError::RolesNotLowered { at: self.at(inst) }),
            // Blocks take their last instruction off before they are walked.
            Op::Yield => Err(EmitError::MisplacedYield { at: self.at(inst) }),
        }
    }
}

/// The name of an operation in errors: that of the text form.
pub(crate) fn op_name(op: &Op) -> String {
    op.name()
}
