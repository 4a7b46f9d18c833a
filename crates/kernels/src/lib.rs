//! The GEMM kernels, written in the kernel language. A [`Spec`] says which parts a kernel is
//! composed of. [`Resources`] are the registers and the shared memory that it takes of an SM.
//! [`Signature`] describes its launch, and [`GemmKernel`] holds its code. A [`Work`] becomes a
//! launch.
//!
//! Repack kernels ([`RepackKernel`]) copy operands into a layout that TMA and tensor cores can
//! read. They also split f32 into the terms that kernels of [`Terms`] multiply. [`ProbeKernel`]
//! measures the bandwidth of memory. [`parts`] has the parts of kernels, for kernels that are
//! written elsewhere.

pub mod catalogue;
mod compute;
mod control;
mod coordinates;
mod direct;
mod divisor;
mod dtype;
mod empty;
mod epilogue;
mod fixup;
mod kernel;
mod launch;
mod layout;
mod mainloop;
mod operands;
mod output;
mod params;
pub mod parts;
mod probe;
mod problem;
mod quantity;
mod queue;
mod repack;
pub mod resident;
mod scheduler;
mod shift;
mod source;
mod spec;
mod store;
mod tiles;

pub use dtype::{Instruction, Majors, PRODUCTS, Product, bias_type, compute_type};
pub use empty::empty_kernel;
pub use epilogue::{
    Activation, Arithmetic, BiasAlong, Epilogue, EpilogueError, EpilogueShape, Graph, Input,
    MOST_PARAMETERS, Numbers, ParameterError, Part, PartError,
};
pub use kernel::{GemmKernel, KernelError, describe};
pub use launch::{
    Halves, HalvesError, L2Policies, L2Policy, LEAST_BYTES_FOR_THREADS, MatrixArgument, Parameter,
    RunValue, RunValues, Signature, TMA_ALIGN_BYTES, Work, Workspace,
};
pub use probe::{
    ArithmeticProbe, ArithmeticWork, LoadProbe, PROBE_ROW_BYTES, ProbeError, ProbeKernel,
    ProbeSpec, ProbeWork, SumInstruction, SumProbe, SumWork,
};
pub use quantity::{Count, DivisorPart, Matrix, Quantity, Side};
pub use repack::{
    CopyKind, CopySpec, MatrixRepack, REPACK_CHUNK_BYTES, RepackError, RepackField, RepackKernel,
    RepackQuantity, RepackSignature, RepackSpec, SplitSpec,
};
pub use spec::{
    BiasLoads, Cluster, DirectSpec, DmmaSpec, FfmaSpec, Loader, MainloopSpec, RegisterBudget,
    RegisterUse, Resources, Schedule, SmemUse, Spec, SpecError, SpecHead, Summation, Terms,
    ThreadTile, Tile, Warps, WgmmaSpec, WorkSource,
};
pub use tiles::operand::{BoxPlace, OperandTile, StageTile};
pub use tiles::staging::{OutputMajor, STAGING_ROWS, Staging};

/// A hash of the sources of this crate, tests apart. Kernels that were assembled in advance carry
/// it, and are not used if it differs.
pub const SOURCES: &str = env!("PGEMM_SOURCES");
