//! The kernel language: typed IR, builder, verifier, passes and text form.

mod element;
mod kernel;
mod launch;
mod op;
mod types;

pub use element::{Element, UnknownElement};
pub use kernel::{
    Accumulator, Block, Inst, Kernel, Location, MAX_SMEM_BYTES, Param, ParamKind, Region,
    RegionKind, Role, SM_REGISTERS, WARPGROUP_THREADS,
};
pub use launch::{Argument, Launch, SwizzleMode, TensorMapArgument, TensorMapSpec};
pub use op::{
    ASource, Access, BinaryOp, CompareOp, Convergence, DescriptorLayout, Half, Op, OperandMajor,
    Order, ProxyFence, Scope, Space, Special, UnaryOp, Wgmma,
};
pub use types::{AccId, Constant, LocId, ParamId, RegionId, RoleId, Type, ValueId};
