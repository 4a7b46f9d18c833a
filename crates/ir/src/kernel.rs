//! A kernel: its parameters, shared memory, accumulators, roles and body.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    AccId, Element, Im2colAxis, LocId, Op, ParamId, RegionId, RoleId, TensorMapSpec, Type, ValueId,
};

/// Dynamic shared memory that one CTA can use on sm_90, in bytes (227 KiB).
pub const MAX_SMEM_BYTES: u32 = 232_448;

/// Shared memory of one SM for all CTAs on it, in bytes (228 KiB).
pub const SM_SMEM_BYTES: u32 = 233_472;

/// Bytes of an mbarrier in shared memory.
pub const MBARRIER_BYTES: u32 = 8;

/// Shared memory that the system takes for itself beside each CTA's, in bytes.
pub const SYSTEM_SMEM_BYTES: u32 = 1024;

/// Threads that one SM can hold.
pub const SM_THREADS: u32 = 2048;

/// Registers of one SM.
pub const SM_REGISTERS: u32 = 65_536;

/// Threads of a warpgroup.
pub const WARPGROUP_THREADS: u32 = 128;

/// Warps of a warpgroup.
pub const WARPGROUP_WARPS: u32 = 4;

/// Named barriers of a CTA (PTX ISA, "barrier"). They have the numbers from 0 on.
pub const NAMED_BARRIERS: u32 = 16;

/// A kernel in the language: what the verifier checks, the passes rewrite, and PTX and the emulator
/// consume.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Entry name: a PTX identifier.
    pub name: String,
    /// Parameters in launch order.
    pub params: Vec<Param>,
    /// CTAs of a cluster along x. Clusters are one-dimensional in the grid; kernels map ranks to
    /// tiles.
    pub cluster: u32,
    /// CTAs whose registers and threads must fit on one SM at once: 1 to 8.
    pub ctas_per_sm: u32,
    /// Roles in warpgroup order; their warpgroups add up to the CTA.
    pub roles: Vec<Role>,
    /// Shared-memory regions with their offsets.
    pub regions: Vec<Region>,
    /// Accumulator register groups.
    pub accumulators: Vec<Accumulator>,
    /// Type of each value.
    pub values: Vec<Type>,
    /// The code.
    pub body: Block,
    /// Sources of instructions.
    pub locations: Vec<Location>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name, a PTX identifier.
    pub name: String,
    /// Its kind.
    pub kind: ParamKind,
}

/// The kind of a kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamKind {
    /// A scalar: `U32`, `U64`, `F32` or `F64`.
    Scalar(Type),
    /// A tensor map passed by value (128 bytes, 64-byte aligned).
    TensorMap(TensorMapSpec),
}

/// The text form, such as `u32` or `tensor_map bf16 [64, 128] b128`, behind which the axes of an
/// im2col map follow: `im2col [-1 to -1 by 1]`.
impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamKind::Scalar(ty) => ty.fmt(f),
            ParamKind::TensorMap(spec) => {
                let extents: Vec<String> = spec.box_extents.iter().map(u32::to_string).collect();
                let (extents, swizzle) = (extents.join(", "), spec.swizzle.name());
                write!(f, "tensor_map {} [{extents}] {swizzle}", spec.element)?;
                let Some(axes) = &spec.im2col else { return Ok(()) };
                let axis = |axis: &Im2colAxis| {
                    let Im2colAxis { lower, upper, stride } = axis;
                    format!("{lower} to {upper} by {stride}")
                };
                let axes: Vec<String> = axes.iter().map(axis).collect();
                write!(f, " im2col [{}]", axes.join(", "))
            }
        }
    }
}

/// A contiguous range of warpgroups that run one block, with their register budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// `producer`, `consumer`, …
    pub name: String,
    /// Warpgroups of 128 threads.
    pub warpgroups: u32,
    /// Registers per thread after `setmaxnreg`: 24 to 256 in steps of 8.
    pub registers: u32,
}

/// What a shared-memory region holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Matrix elements.
    Data(Element),
    /// 8-byte mbarriers.
    Mbarrier,
}

/// A piece of shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Name, for reports.
    pub name: String,
    /// What it holds.
    pub kind: RegionKind,
    /// First byte, from the start of the CTA's dynamic shared memory, which is aligned to 1024.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
    /// Alignment in bytes, a power of two up to 1024.
    pub align: u32,
}

/// A group of accumulator registers, the same number in each thread of a warpgroup; one instance
/// per warpgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct Accumulator {
    /// Register type: `F32`, `S32`, or `B32` for two f16 each.
    pub ty: Type,
    /// Registers per thread.
    pub registers: u32,
}

impl Accumulator {
    /// Registers of this type that a thread needs for 64 × n sums.
    pub fn registers_for(ty: Type, n: u32) -> u32 {
        n / 2 / Accumulator::packed(ty)
    }

    /// Columns of the 64 × n sums that they hold.
    pub fn columns(&self) -> u32 {
        self.registers.saturating_mul(2 * Accumulator::packed(self.ty))
    }

    /// Sums in a register of this type.
    fn packed(ty: Type) -> u32 {
        1 + u32::from(ty == Type::B32)
    }
}

/// A list of instructions with parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Values defined on entry: loop index, carried values.
    pub params: Vec<ValueId>,
    /// The code; nested blocks end in `Yield`.
    pub insts: Vec<Inst>,
}

/// One operation with its operands, results and nested blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// Operation and attributes.
    pub op: Op,
    /// Operands.
    pub args: Vec<ValueId>,
    /// Defined values.
    pub results: Vec<ValueId>,
    /// Nested blocks of control operations.
    pub blocks: Vec<Block>,
    /// Its source.
    pub loc: LocId,
}

impl Inst {
    /// The registers that a wgmma reads A from, which belong to it while it is in flight; none for
    /// other operations.
    pub fn fragments(&self) -> &[ValueId] {
        match &self.op {
            Op::Wgmma(wgmma) => self.args.get(..wgmma.a_registers()).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// A place in the Rust source of a kernel, with the named builder scopes around it, outermost
/// first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// Source file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Builder scopes: `consumer`, `mainloop`, …
    pub scopes: Vec<String>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)?;
        if !self.scopes.is_empty() {
            write!(f, " (in {})", self.scopes.join(" > "))?;
        }
        Ok(())
    }
}

/// What a launch must know of a kernel's CTAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CtaShape {
    /// CTAs of a cluster, along x.
    pub cluster: u32,
    /// Threads of a CTA, along x.
    pub threads: u32,
    /// Dynamic shared memory of a CTA, in bytes.
    pub smem_bytes: u32,
}

impl Kernel {
    /// What a launch must know of its CTAs.
    pub fn cta_shape(&self) -> CtaShape {
        CtaShape { cluster: self.cluster, threads: self.threads(), smem_bytes: self.smem_bytes() }
    }

    /// Warpgroups of a CTA.
    pub fn warpgroups(&self) -> u32 {
        self.roles.iter().map(|role| role.warpgroups).sum()
    }

    /// Threads of a CTA.
    pub fn threads(&self) -> u32 {
        self.warpgroups() * WARPGROUP_THREADS
    }

    /// Dynamic shared memory of a CTA, in bytes.
    pub fn smem_bytes(&self) -> u32 {
        self.regions.iter().map(|region| region.offset + region.bytes).max().unwrap_or(0)
    }

    /// Registers that each thread has before `setmaxnreg`, if as many CTAs are on an SM as the
    /// kernel declares: a multiple of 8, at most 248 (255, rounded down to the granularity).
    pub fn entry_registers(&self) -> u32 {
        let threads = self.threads().saturating_mul(self.ctas_per_sm).max(1);
        (SM_REGISTERS / threads / 8 * 8).min(248)
    }

    /// The first warpgroup of a role.
    pub fn first_warpgroup(&self, role: RoleId) -> u32 {
        self.roles.iter().take(role.index()).map(|role| role.warpgroups).sum()
    }

    /// A parameter's position by name.
    pub fn param(&self, name: &str) -> Option<ParamId> {
        self.params.iter().position(|param| param.name == name).map(|i| ParamId(i as u32))
    }

    /// The specs of parameters that are tensor maps, in launch order.
    pub fn tensor_maps(&self) -> impl Iterator<Item = &TensorMapSpec> {
        self.params.iter().filter_map(|param| match &param.kind {
            ParamKind::TensorMap(spec) => Some(spec),
            ParamKind::Scalar(_) => None,
        })
    }

    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> Type {
        self.values[value.index()]
    }

    /// A region.
    pub fn region(&self, id: RegionId) -> &Region {
        &self.regions[id.index()]
    }

    /// An accumulator group.
    pub fn accumulator(&self, id: AccId) -> &Accumulator {
        &self.accumulators[id.index()]
    }

    /// A source location.
    pub fn location(&self, id: LocId) -> &Location {
        &self.locations[id.index()]
    }

    /// Calls `visit` for every instruction, outer before inner, in program order.
    pub fn visit(&self, visit: &mut dyn FnMut(&Inst)) {
        fn walk(block: &Block, visit: &mut dyn FnMut(&Inst)) {
            for inst in &block.insts {
                visit(inst);
                for nested in &inst.blocks {
                    walk(nested, visit);
                }
            }
        }
        walk(&self.body, visit);
    }

    /// Calls `visit` for every block, outer before inner. The callback may rewrite its
    /// instructions, as passes and the mutation tests do.
    pub fn visit_blocks_mut(&mut self, visit: &mut dyn FnMut(&mut Block)) {
        fn walk(block: &mut Block, visit: &mut dyn FnMut(&mut Block)) {
            visit(block);
            for inst in &mut block.insts {
                for nested in &mut inst.blocks {
                    walk(nested, visit);
                }
            }
        }
        walk(&mut self.body, visit);
    }
}
