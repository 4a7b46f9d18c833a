//! The kernel language: typed IR, builder, verifier, passes and text form.

mod accumulators;
mod barriers;
mod builder;
mod carried;
mod control;
mod copies;
mod debug;
mod declare;
mod element;
mod error;
mod im2col;
mod instruction;
mod kernel;
mod launch;
mod memory;
mod mma;
mod mma_queue;
mod named;
mod numbers;
mod op;
mod operators;
pub mod passes;
mod quoted;
mod ring;
mod roles;
mod smem;
mod sync;
mod tensor;
pub mod text;
mod tma;
mod types;
mod value;
pub mod verify;
mod warp;
mod warp_mma;

pub use accumulators::{Accumulators, MmaAtom};
pub use barriers::{NamedBarrier, NamedBarriers};
pub use builder::KernelBuilder;
pub use carried::Carried;
pub use copies::Copies;
pub use declare::TensorMap;
pub use element::{Element, FloatFormat, Format, UnknownElement};
pub use error::BuildError;
pub use im2col::{Im2colAxis, Im2colError, im2col_offset_limit};
pub use instruction::{CustomValues, HostScalar, Instruction};
pub use kernel::{
    Accumulator, Block, CtaShape, Inst, Kernel, Location, MAX_SMEM_BYTES, MBARRIER_BYTES,
    NAMED_BARRIERS, Param, ParamKind, Region, RegionKind, Role, SM_REGISTERS, SM_SMEM_BYTES,
    SM_THREADS, SYSTEM_SMEM_BYTES, WARPGROUP_THREADS, WARPGROUP_WARPS,
};
pub use launch::{Argument, Launch, SwizzleMode, TensorMapArgument, TensorMapSpec};
pub use memory::Address;
pub use mma::{Fragments, WarpMma};
pub use mma_queue::{
    Batch, BatchSource, FragmentOfA, MmaQueue, Pending, QueueBatch, QueueState, Resident, Retired,
    RunningAccumulators,
};
pub use op::{
    ASource, Access, AtomicOp, AttributeError, BinaryOp, BulkEffect, CompareOp, Control,
    CustomEffect, CustomEmulation, CustomInstruction, DescriptorLayout, Effect, EmulateLane,
    EmulateWarp, Entity, Half, Op, OperandMajor, Order, ProxyFence, ReductionOp, RegisterChange,
    Scope, Shuffle, Space, Special, Template, TemplateOperand, Threads, UnaryOp, Uniformity, Vote,
    Wgmma, WgmmaEffect,
};
pub use passes::{PassError, legalise, optimise};
pub use ring::{LoadSlot, ReadSlot, Relay, Release, Ring, RingCursor, StoreSlot};
pub use roles::{Occupancy, Roles};
pub use smem::SmemRequest;
pub use tensor::{Fragment, Int, IntoInts, MemorySpace, Partition, Pointer, Tensor, TensorLayout};
pub use types::{AccId, Constant, LocId, ParamId, RegionId, RoleId, Type, ValueId};
pub use value::{IntoVal, Scalar, Val, ty};
pub use verify::{Rule, VerifyError, Violation, verify};

/// The layout algebra of constants: shapes, strides, swizzles and thread–value layouts.
pub use pgemm_cute as layout;

/// A hash of the sources of this crate, tests apart. Kernels that were assembled in advance carry
/// it, and are not used if it differs.
pub const SOURCES: &str = env!("PGEMM_SOURCES");

#[cfg(doctest)]
#[doc = include_str!("../../../docs/language.md")]
struct LanguageGuide;
