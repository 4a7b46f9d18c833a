//! The kernel language: typed IR, builder, verifier, passes and text form.

mod builder;
mod carried;
mod element;
mod kernel;
mod launch;
mod memory;
mod mma;
mod op;
pub mod passes;
mod pipeline;
mod smem;
mod sync;
pub mod text;
mod types;
mod value;
pub mod verify;
mod warpgroup;

pub use builder::{BuildError, KernelBuilder, Roles, TensorMap};
pub use carried::Carried;
pub use element::{Element, UnknownElement};
pub use kernel::{
    Accumulator, Block, Inst, Kernel, Location, MAX_SMEM_BYTES, Param, ParamKind, Region,
    RegionKind, Role, SM_REGISTERS, SM_SMEM_BYTES, SM_THREADS, SYSTEM_SMEM_BYTES,
    WARPGROUP_THREADS,
};
pub use launch::{Argument, Launch, SwizzleMode, TensorMapArgument, TensorMapSpec};
pub use mma::{Fragments, WarpMma};
pub use op::{
    ASource, Access, AtomicOp, BinaryOp, CompareOp, Convergence, DescriptorLayout, Half, Op,
    OperandMajor, Order, ProxyFence, Scope, Space, Special, UnaryOp, Wgmma,
};
pub use passes::{PassError, legalise, optimise};
pub use pipeline::{ReadSlot, Relay, Release, Ring, RingCursor, WriteSlot};
pub use smem::SmemRequest;
pub use types::{AccId, Constant, LocId, ParamId, RegionId, RoleId, Type, ValueId};
pub use value::{IntoVal, Scalar, Val, ty};
pub use verify::{Rule, VerifyError, Violation, verify};
pub use warpgroup::{Accumulators, Batch, FragmentOfA, MmaAtom, Pending, Retired};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/language.md")]
struct LanguageGuide;
