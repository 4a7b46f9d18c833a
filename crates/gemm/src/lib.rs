//! Persistent dense GEMM for NVIDIA Hopper: devices, plans, caches, heuristics.

mod batch;
pub mod bench;
pub mod cache;
pub mod cases;
mod choice;
mod config;
pub mod cpu;
mod device_matrix;
pub mod driver;
mod epilogue;
pub mod error;
mod files;
mod gemm;
pub mod heuristic;
pub mod host;
pub mod interop;
pub mod matrix;
pub mod numerics;
pub mod outofcore;
mod pass;
mod plan;
mod precision;
pub mod problem;
mod reading;
pub mod tune;
mod workspace;

pub use batch::Batch;
pub use choice::{Choice, Decomposition};
pub use config::{Config, MAX_SPLITS, Split};
pub use cpu::CpuError;
pub use device_matrix::DeviceMatrix;
pub use error::{Error, Result};
pub use gemm::{CallerWorkspace, Gemm, Pointers, Prepared};
pub use matrix::{HostMatrix, MatrixError};
pub use numerics::{
    Accumulation, Check, Comparison, ErrorModel, NumericsError, Reference, WorstElement,
};
pub use pgemm_ir::Element as Dtype;
pub use pgemm_kernels::{Activation, BiasAlong, Epilogue, EpilogueError};
pub use pgemm_kernels::{AnySpec, Cluster, L2Policies, L2Policy, Schedule};
pub use plan::{Candidates, Plan};
pub use precision::Precision;
pub use problem::{Major, MatrixLayout, OperandLayout, Order, Problem, ProblemError, Spans};
pub use reading::{Reading, Readings};

/// What other threads may share: the compiler refuses it otherwise.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn sent<T: Send>() {}
    shared::<Gemm>();
    shared::<Prepared>();
    shared::<DeviceMatrix>();
    shared::<HostMatrix>();
    shared::<Error>();
    shared::<driver::Device>();
    shared::<driver::DeviceBuffer>();
    shared::<driver::Stream>();
    shared::<driver::StreamRef<'static>>();
    shared::<driver::Event>();
    sent::<driver::Graph>();
};

/// The guide's examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/getting-started.md")]
struct GettingStarted;
