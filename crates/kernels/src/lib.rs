//! The GEMM kernels, written in the kernel language: [`KernelSpec`] → [`GemmKernel`] → [`pgemm_ir::Launch`], and
//! [`DmmaSpec`] → [`DmmaKernel`] for f64, [`FfmaSpec`] → [`FfmaKernel`] for f32 on CUDA cores; [`AnySpec`] → [`AnyKernel`] is
//! one of these. [`RelayoutKernel`] lays operands out anew where TMA or wgmma cannot read them as they lie,
//! [`SplitKernel`] splits f32 into the terms that kernels of [`Terms`] multiply. And a probe of the
//! memory's bandwidth, [`ProbeKernel`].

mod activation;
mod arithmetic;
mod batch;
mod bias;
mod bytes;
pub mod catalogue;
mod direct;
mod divisor;
mod dmma;
mod empty;
mod epilogue;
mod family;
mod ffma;
mod fragment;
mod fusion;
mod gemm;
mod lanes;
mod launch;
mod mainloop;
mod names;
mod operand;
mod probe;
mod promotion;
mod reduction;
mod relayout;
pub mod resident;
mod scales;
mod scheduler;
mod shared;
mod spec;
mod staging;
mod sums;
mod walk;

pub use arithmetic::{Arithmetic, Terms};
pub use dmma::{DmmaError, DmmaKernel, DmmaSpec, DmmaSpecError, Warps};
pub use empty::empty_kernel;
pub use family::{AnyKernel, AnyKernelError, AnySpec, AnySpecError};
pub use ffma::{FfmaError, FfmaKernel, FfmaSpec, FfmaSpecError, ThreadTile};
pub use fusion::{Activation, BiasAlong, Epilogue, EpilogueError};
pub use gemm::{GemmKernel, KernelError, build, describe};
pub use launch::{L2Policies, L2Policy, MatrixArgument, TMA_ALIGN_BYTES, Work, Workspace};
pub use operand::{BoxPlace, OperandTile};
pub use probe::{PROBE_ROW_BYTES, ProbeError, ProbeKernel, ProbeSpec, ProbeWork};
pub use relayout::{
    MatrixRelayout, MatrixSplit, RELAYOUT_CHUNK_BYTES, RelayoutError, RelayoutKernel, RelayoutKind,
    RelayoutSpec, ScalesKernel, SplitKernel, SplitSpec,
};
pub use spec::{Cluster, KernelSpec, OutputMajor, RegisterBudget, Schedule, SpecError, Tile};
pub use staging::{STAGING_ROWS, Staging};
