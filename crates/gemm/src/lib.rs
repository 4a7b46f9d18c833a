//! Persistent dense GEMM for NVIDIA Hopper: `D = alpha·A·B + beta·C`, planned, compiled by the
//! driver's JIT, and run.
//!
//! A [`Config`] has types and knobs, a [`Problem`] extents, layouts and scalars. A [`Gemm`] is made
//! for a [`Device`](driver::Device) and a config; it prepares problems and enqueues them on
//! streams.
//!
//! ```
//! use persistent_gemm::host::{BackendKind, multiply};
//! use persistent_gemm::{Config, Dtype, HostMatrix, MatrixLayout, Operands, Problem};
//!
//! # fn main() -> Result<(), persistent_gemm::Error> {
//! let layout = MatrixLayout::row_major(2, 2);
//! let a = HostMatrix::from_f64(layout, Dtype::Bf16, &[1.0, 2.0, 3.0, 4.0])?;
//! let b = HostMatrix::from_f64(layout, Dtype::Bf16, &[5.0, 6.0, 7.0, 8.0])?;
//! let problem = Problem::of(&a.layout(), &b.layout())?;
//! // A Hopper GPU where there is one, else the CPU.
//! let executor = BackendKind::Auto.find(0)?;
//! let product = multiply(&executor, &Config::new(Dtype::Bf16), &problem, Operands::new(&a, &b))?;
//! assert_eq!(product.d.to_f64_vec(), [19.0, 22.0, 43.0, 50.0]);
//! # Ok(())
//! # }
//! ```
//!
//! [`Operands`] say what a product is computed from, at any address:
//!
//! | matrices | how they are multiplied |
//! |---|---|
//! | on the host, on any backend | [`host::multiply`] |
//! | on the device, with their layouts ([`DeviceMatrix`]), or in cudarc's buffers ([`interop`]) | [`Gemm::run`] |
//! | at addresses, on anybody's stream | [`Gemm::run_at`] |
//! | many small ones on the device, without launches | [`engine`] |
//! | on the host, beyond device memory | [`outofcore`], [`Gemm::multiply_host`] |
//!
//! Features, all of them on by default:
//!
//! | feature | what it adds |
//! |---|---|
//! | `cubins` | kernels that were assembled in advance, which need no compilation |
//! | `cpu` | the CPU backend, the reference in higher precision, and error bounds |
//! | `emulator` | the emulator backend |
//! | `power` | readings of clocks, power and energy |
//! | `tuner` | the autotuner and its measurements; it needs `cpu` |

pub mod ahead;
pub mod assembled;
mod backend;
pub mod behind;
pub mod cache;
#[cfg(feature = "cpu")]
pub mod cpu;
mod device_matrix;
pub mod driver;
pub mod engine;
mod epilogue;
pub mod error;
pub mod files;
mod gemm;
pub mod head;
pub mod host;
pub mod interop;
pub mod matrix;
#[cfg(feature = "tuner")]
pub mod measure;
#[cfg(feature = "cpu")]
pub mod numerics;
mod operands;
pub mod outofcore;
pub mod packs;
mod plans;
pub mod power;
pub mod program;
mod recent;
#[cfg(test)]
mod recorded;
mod sequence;
mod shipped;
pub mod stats;
mod store;
pub mod threads;
pub mod tune;
mod tuned;
mod work;
mod workspace;

pub use behind::Compile;
pub use device_matrix::DeviceMatrix;
pub use error::{CpuError, Error, MatrixError, NumericsError, Result};
pub use gemm::{CallerWorkspace, Gemm, Preparation, Prepared, RunRequest, WarmUp, warm_up};
pub use matrix::HostMatrix;
#[cfg(feature = "cpu")]
pub use numerics::{Accumulation, Check, Comparison, ErrorModel, Reference, WorstElement};
pub use operands::{DeviceOperand, DeviceResult, DeviceStream, NoOperand, Operands};
/// The language of kernels: see [`program`].
pub use pgemm_ir as language;
pub use pgemm_ir::Element as Dtype;
pub use pgemm_kernels::parts;
pub use pgemm_kernels::{
    Activation, BiasAlong, Epilogue, EpilogueError, EpilogueShape, ParameterError, PartError,
};
pub use pgemm_kernels::{Cluster, L2Policies, L2Policy, Schedule, Spec};
pub use pgemm_plan::{
    Batch, Candidates, Choice, Config, Decomposition, DeviceFacts, MAX_SPLITS, Major, MatrixLayout,
    OperandAccess, OperandAccesses, OperandAlignment, OperandLayout, Order, Plan, PlanError,
    Precision, Problem, Spans, Split, SummationClass, TunedChoices, USUAL_SMS, UnknownPrecision,
    UnknownSplit, heuristic,
};
pub use plans::{first_plan, plans};
pub use store::KernelStore;
pub use work::Pointers;

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
