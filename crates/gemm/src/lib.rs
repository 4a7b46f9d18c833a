//! Persistent dense GEMM for NVIDIA Hopper: `D = alpha·A·B + beta·C`, planned, compiled by the driver's JIT, and run.
//!
//! A [`Config`] has types and knobs, a [`Problem`] extents, layouts and scalars. A [`Gemm`] is made for a [`Device`](driver::Device)
//! and a config; it prepares problems and enqueues them on streams.
//!
//! ```
//! use persistent_gemm::host::{Backend, Inputs, multiply};
//! use persistent_gemm::{Config, Dtype, HostMatrix, MatrixLayout, Problem};
//!
//! # fn main() -> Result<(), persistent_gemm::Error> {
//! let layout = MatrixLayout::row_major(2, 2);
//! let a = HostMatrix::from_f64(layout, Dtype::Bf16, &[1.0, 2.0, 3.0, 4.0])?;
//! let b = HostMatrix::from_f64(layout, Dtype::Bf16, &[5.0, 6.0, 7.0, 8.0])?;
//! let problem = Problem::of(&a.layout(), &b.layout())?;
//! // A Hopper GPU where there is one, else the CPU.
//! let executor = Backend::Auto.find(0)?;
//! let inputs = Inputs { a: &a, b: &b, c: None, bias: None };
//! let product = multiply(&executor, &Config::new(Dtype::Bf16), &problem, inputs)?;
//! assert_eq!(product.d.to_f64_vec(), [19.0, 22.0, 43.0, 50.0]);
//! # Ok(())
//! # }
//! ```
//!
//! | matrices | how they are multiplied |
//! |---|---|
//! | on the host, on any backend | [`host::multiply`] |
//! | on the device, with their layouts | [`DeviceMatrix`], [`Gemm::multiply`] |
//! | in cudarc's buffers | [`interop`], [`Gemm::matmul`] |
//! | at addresses, on anybody's stream | [`Gemm::run`], [`Gemm::run_prepared`] |
//! | many small ones on the device, without launches | [`engine`] |
//! | on the host, beyond device memory | [`outofcore`], [`Gemm::multiply_host`] |

mod batch;
pub mod bench;
pub mod cache;
pub mod cases;
mod choice;
mod config;
pub mod cpu;
mod device_matrix;
pub mod driver;
pub mod engine;
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
pub use device_matrix::{DeviceInputs, DeviceMatrix};
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

/// As above.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustGuide;
