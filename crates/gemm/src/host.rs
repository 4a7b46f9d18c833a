//! GEMMs on host matrices, on any backend. The command `pgemm run` uses this module.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pgemm_plan::{Config, MatrixLayout, Plan, PlanError, Problem};

#[cfg(feature = "cpu")]
use crate::backend::Cpu;
#[cfg(feature = "emulator")]
use crate::backend::Emulated;
use crate::backend::{Backend, Cuda, HostProducts};
use crate::cache::Outcome;
use crate::driver::Device;
use crate::epilogue::check_bias;
use crate::error::{Error, MatrixError, Result};
use crate::matrix::HostMatrix;
use crate::matrix::batch::agree;
use crate::operands::Operands;
use crate::threads;

pub use crate::backend::{Allocations, Computed};
pub use crate::operands::{HostBatch, HostOperand, HostOperands, HostResult};

/// The kinds of backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendKind {
    /// CUDA on a Hopper device, else the CPU.
    Auto,
    /// CUDA on a Hopper device.
    Cuda,
    /// The kernel's own code, emulated: for small problems.
    Emulator,
    /// A CPU library.
    Cpu,
}

/// A name that is not a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown backend '{requested}': use auto, cuda, emulator or cpu")]
pub struct UnknownBackend {
    /// The name given.
    pub requested: String,
}

impl BackendKind {
    /// The name that users type.
    pub const fn name(self) -> &'static str {
        match self {
            BackendKind::Auto => "auto",
            BackendKind::Cuda => "cuda",
            BackendKind::Emulator => "emulator",
            BackendKind::Cpu => "cpu",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        [BackendKind::Auto, BackendKind::Cuda, BackendKind::Emulator, BackendKind::Cpu]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownBackend { requested: text.to_owned() })
    }
}

/// A backend that is there.
#[non_exhaustive]
pub enum Executor {
    /// This device.
    Cuda(Device),
    /// The emulator.
    Emulator,
    /// The CPU; `because` says why not CUDA where that was preferred.
    Cpu {
        /// Why CUDA was not used.
        because: Option<Box<Error>>,
    },
}

impl BackendKind {
    /// Finds the backend. Without a Hopper device `Auto` takes the CPU and keeps the reason.
    ///
    /// # Errors
    /// `Cuda` without driver or Hopper device, and so `Auto` in a program without the CPU backend;
    /// [`Error::NoBackend`] for a backend that this program was built without.
    pub fn find(self, ordinal: u32) -> Result<Executor> {
        let executor = match self {
            BackendKind::Cuda => Executor::Cuda(Device::new(ordinal)?),
            BackendKind::Emulator => Executor::Emulator,
            BackendKind::Cpu => Executor::Cpu { because: None },
            BackendKind::Auto => match Device::new(ordinal) {
                Ok(device) => Executor::Cuda(device),
                Err(error) if cfg!(feature = "cpu") => {
                    Executor::Cpu { because: Some(Box::new(error)) }
                }
                Err(error) => return Err(error),
            },
        };
        executor.backend()?;
        Ok(executor)
    }
}

impl Executor {
    /// Which backend it is.
    pub fn kind(&self) -> BackendKind {
        match self {
            Executor::Cuda(_) => BackendKind::Cuda,
            Executor::Emulator => BackendKind::Emulator,
            Executor::Cpu { .. } => BackendKind::Cpu,
        }
    }

    /// The backend.
    ///
    /// # Errors
    /// [`Error::NoBackend`].
    fn backend(&self) -> Result<Box<dyn Backend + '_>> {
        match self {
            Executor::Cuda(device) => Ok(Box::new(Cuda(device))),
            #[cfg(feature = "emulator")]
            Executor::Emulator => Ok(Box::new(Emulated)),
            #[cfg(feature = "cpu")]
            Executor::Cpu { .. } => Ok(Box::new(Cpu)),
            #[cfg(not(all(feature = "cpu", feature = "emulator")))]
            absent => Err(Error::NoBackend { backend: absent.kind().name() }),
        }
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Executor::Cuda(device) => write!(f, "cuda ({})", device.properties().name),
            other => other.kind().fmt(f),
        }
    }
}

/// A computed product, or those of a batch.
pub struct Product<D = HostMatrix> {
    /// D without gaps, row-major or column-major as the problem says. For a batch, one D for each
    /// product.
    pub d: D,
    /// How it was computed; `None` on the CPU.
    pub plan: Option<Plan>,
    /// Planning, compiling, loading.
    pub prepare: Duration,
    /// Computing, without copies to and from a device.
    pub compute: Duration,
    /// The outcome of the kernel cache, on CUDA.
    pub cache: Option<Outcome>,
}

/// Computes D = alpha·A·B + beta·C of host matrices, with the config's epilogue. D is filled with
/// NaN first. Operands are matrices, or slices of matrices for a batch: one for each product, or
/// one for all if the batch stride is 0. C is ignored if beta is 0, and a bias is ignored if the
/// epilogue adds none.
///
/// # Errors
/// The problem is impossible or doesn't fit its matrices, which are of other types than the
/// config's; a matrix for each product is missing; types, majors or knobs have no kernel; memory
/// runs out; the emulator finds the kernel wrong.
pub fn multiply<A, B, C, V>(
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    operands: Operands<'_, A, B, C, V>,
) -> Result<Product<A::Results>>
where
    A: HostResult + ?Sized,
    B: HostOperand + ?Sized,
    C: HostOperand + ?Sized,
    V: HostOperand + ?Sized,
{
    let needed = problem.batch.count;
    if !A::IS_BATCH && needed != 1 {
        return Err(PlanError::MatrixCount { matrix: "A", found: 1, needed }.into());
    }
    let (d, computed) = multiply_batch(executor, config, problem, operands.batch())?;
    let Computed { plan, prepare, compute, cache } = computed;
    Ok(Product { d: A::results(d), plan, prepare, compute, cache })
}

fn multiply_batch(
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    inputs: HostBatch<'_>,
) -> Result<(Vec<HostMatrix>, Computed)> {
    problem.validate()?;
    threads::start_pool()?;
    let problem = &problem.normalised();
    let inputs = inputs
        .c(inputs.c.filter(|_| problem.beta != 0.0))
        .bias(inputs.bias.filter(|_| config.epilogue.bias().is_some()));
    check_inputs(config, problem, inputs)?;
    config.check_precision()?;
    config.check_epilogue()?;
    check_bias(problem, config.epilogue, inputs.bias)?;
    Plan::check_problem(problem, config)?;
    let mut d = (0..problem.batch.count)
        .map(|_| {
            let mut d = HostMatrix::zeros(problem.d_layout(), config.output_dtype())?;
            d.poison();
            Ok(d)
        })
        .collect::<Result<Vec<_>>>()?;
    let products = HostProducts { config, problem, inputs, d: &mut d };
    let computed = match problem.is_empty() {
        true => Computed::NOTHING,
        false => executor.backend()?.multiply(products)?,
    };
    let tight = |d: HostMatrix| {
        let tight = MatrixLayout::tight(problem.m, problem.n, d.layout().order);
        if d.layout() == tight { Ok(d) } else { d.relayout(tight) }
    };
    let d = d.into_iter().map(tight).collect::<std::result::Result<_, _>>()?;
    Ok((d, computed))
}

/// Checks numbers, layouts and types of the matrices of a problem that validates.
fn check_inputs(config: &Config, problem: &Problem, inputs: HostBatch<'_>) -> Result<()> {
    let Operands { a, b, c, bias } = inputs;
    let c = c.unwrap_or_default();
    let batch = problem.batch;
    for (matrix, found, needed) in [
        ("A", a.len(), batch.matrices(batch.a)),
        ("B", b.len(), batch.matrices(batch.b)),
        ("C", c.len(), if problem.beta == 0.0 { 0 } else { batch.matrices(batch.c) }),
    ] {
        if found == 0 && needed == 1 && matrix == "C" {
            return Err(PlanError::MissingC { beta: problem.beta }.into());
        }
        if found != needed {
            return Err(PlanError::MatrixCount { matrix, found, needed }.into());
        }
    }
    for (matrix, matrices, stride) in [("A", a, batch.a), ("B", b, batch.b), ("C", c, batch.c)] {
        if !agree(matrices, stride)? {
            return Err(MatrixError::Overlap { matrix, stride }.into());
        }
    }
    let ([a_type, b_type], output) = (config.operands(), config.output_dtype());
    let (found, needed) = (bias.map(HostMatrix::dtype), config.bias_dtype());
    if let Some(found) = found.filter(|found| *found != needed) {
        return Err(Error::MatrixType { matrix: "the bias", found, needed });
    }
    for index in 0..batch.count {
        let Operands { a, b, c, .. } = inputs.of(index);
        problem.check_layouts(a.layout(), b.layout(), c.map(HostMatrix::layout))?;
        for (matrix, found, needed) in [
            ("A", a.dtype(), a_type),
            ("B", b.dtype(), b_type),
            ("C", c.map_or(output, HostMatrix::dtype), output),
        ] {
            if found != needed {
                return Err(Error::MatrixType { matrix, found, needed });
            }
        }
    }
    Ok(())
}

/// Computes D = alpha·A·B + beta·C, with the config's epilogue, of matrices inside of larger
/// allocations, on a device or in the emulator. The allocations are copied there as a whole, and
/// D's is copied back.
///
/// # Errors
/// The problem is impossible; types, majors or knobs have no kernel; [`Error::BufferLength`] for an
/// allocation that ends before its matrix does; memory runs out; the emulator finds the kernel
/// wrong; [`CpuError::Allocations`](crate::CpuError::Allocations) for the CPU backend, which takes
/// matrices only.
pub fn multiply_allocations(
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    allocations: Allocations<'_>,
) -> Result<Computed> {
    problem.validate()?;
    let problem = &problem.normalised();
    config.check_precision()?;
    config.check_epilogue()?;
    Plan::check_problem(problem, config)?;
    allocations.check(config, problem)?;
    match problem.is_empty() {
        true => Ok(Computed::NOTHING),
        false => executor.backend()?.multiply_allocations(config, problem, allocations),
    }
}
