//! GEMMs on host matrices, on any backend: what the command `pgemm run` does.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_kernels::Work;

use crate::cache::Outcome;
use crate::config::Config;
use crate::cpu;
use crate::driver::{Device, DeviceBuffer, Stream};
use crate::error::{Error, Result};
use crate::gemm::{Gemm, Pointers, work};
use crate::matrix::HostMatrix;
use crate::plan::{self, Plan};
use crate::problem::{MatrixLayout, Problem};

/// Where GEMMs may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
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
#[error("unknown backend '{asked}': use auto, cuda, emulator or cpu")]
pub struct UnknownBackend {
    /// What was asked for.
    pub asked: String,
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        match text {
            "auto" => Ok(Backend::Auto),
            "cuda" => Ok(Backend::Cuda),
            "emulator" => Ok(Backend::Emulator),
            "cpu" => Ok(Backend::Cpu),
            _ => Err(UnknownBackend { asked: text.to_owned() }),
        }
    }
}

/// A backend that is there.
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

impl Backend {
    /// Finds the backend. `Auto` never fails: without a Hopper device it takes the CPU and keeps the reason.
    ///
    /// # Errors
    /// `Cuda` without driver or Hopper device.
    pub fn find(self, ordinal: u32) -> Result<Executor> {
        match self {
            Backend::Cuda => Ok(Executor::Cuda(Device::new(ordinal)?)),
            Backend::Emulator => Ok(Executor::Emulator),
            Backend::Cpu => Ok(Executor::Cpu { because: None }),
            Backend::Auto => Ok(match Device::new(ordinal) {
                Ok(device) => Executor::Cuda(device),
                Err(error) => Executor::Cpu { because: Some(Box::new(error)) },
            }),
        }
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Executor::Cuda(device) => write!(f, "cuda ({})", device.properties().name),
            Executor::Emulator => f.write_str("emulator"),
            Executor::Cpu { .. } => f.write_str("cpu"),
        }
    }
}

/// Inputs on the host. A and B are of the config's types, C of its output type.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// A.
    pub a: &'a HostMatrix,
    /// B.
    pub b: &'a HostMatrix,
    /// C, where beta isn't 0.
    pub c: Option<&'a HostMatrix>,
}

/// A computed product.
pub struct Product {
    /// D, row-major without gaps.
    pub d: HostMatrix,
    /// How it was computed; `None` on the CPU.
    pub plan: Option<Plan>,
    /// Planning, compiling, loading.
    pub prepare: Duration,
    /// Computing, without copies to and from a device.
    pub compute: Duration,
    /// What happened in the kernel cache, on CUDA.
    pub cache: Option<Outcome>,
}

/// Computes D = alpha·A·B + beta·C of host matrices. D was filled with NaN before.
///
/// # Errors
/// The problem is impossible or doesn't fit its matrices, which are of other types than the config's; types, majors or knobs
/// have no kernel; memory runs out; the emulator finds the kernel wrong.
pub fn multiply(
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    inputs: Inputs<'_>,
) -> Result<Product> {
    problem.validate()?;
    let c = inputs.c.filter(|_| problem.beta != 0.0);
    problem.check_layouts(inputs.a.layout(), inputs.b.layout(), c.map(HostMatrix::layout))?;
    let inputs = Inputs { c, ..inputs };
    let (operands, output) = (config.operands(), config.output_dtype());
    for (matrix, found, needed) in [
        ("A", inputs.a.dtype(), operands[0]),
        ("B", inputs.b.dtype(), operands[1]),
        ("C", c.map_or(output, HostMatrix::dtype), output),
    ] {
        if found != needed {
            return Err(Error::MatrixType { matrix, found, needed });
        }
    }
    config.check_precision()?;
    plan::check_types(problem, operands, output)?;
    let mut d =
        HostMatrix::zeros(MatrixLayout::row_major(problem.m, problem.n), config.output_dtype())?;
    d.poison();
    if problem.m == 0 || problem.n == 0 {
        let (prepare, compute) = (Duration::ZERO, Duration::ZERO);
        return Ok(Product { d, plan: None, prepare, compute, cache: None });
    }
    match executor {
        Executor::Cpu { .. } => {
            let start = Instant::now();
            cpu::run(problem, inputs.a, inputs.b, inputs.c, &mut d)?;
            let compute = start.elapsed();
            Ok(Product { d, plan: None, prepare: Duration::ZERO, compute, cache: None })
        }
        Executor::Emulator => on_emulator(config, &Padded::new(problem, inputs, d)?),
        Executor::Cuda(device) => on_cuda(device, config, Padded::new(problem, inputs, d)?),
    }
}

/// A problem whose rows are multiples of 16 bytes, as TMA needs them: matrices that aren't so are copied.
struct Padded {
    problem: Problem,
    a: HostMatrix,
    b: HostMatrix,
    c: Option<HostMatrix>,
    d: HostMatrix,
}

impl Padded {
    fn new(problem: &Problem, inputs: Inputs<'_>, d: HostMatrix) -> Result<Self> {
        let a = pad(inputs.a)?;
        let b = pad(inputs.b)?;
        let c = inputs.c.map(pad).transpose()?;
        let mut padded_d = pad(&d)?;
        padded_d.poison();
        let mut problem = problem
            .with_a_leading_dimension(a.layout().leading_dimension)
            .with_b_leading_dimension(b.layout().leading_dimension)
            .with_d_leading_dimension(padded_d.layout().leading_dimension);
        if let Some(c) = &c {
            problem = problem.with_c_leading_dimension(c.layout().leading_dimension);
        }
        Ok(Padded { problem, a, b, c, d: padded_d })
    }

    /// D without gaps.
    fn tight(d: &HostMatrix) -> Result<HostMatrix> {
        Ok(d.relayout(MatrixLayout::row_major(d.rows(), d.columns()))?)
    }
}

fn pad(matrix: &HostMatrix) -> Result<HostMatrix> {
    let layout = matrix.layout();
    let step = (16 / matrix.dtype().bytes() as usize).max(1);
    let padded = layout.leading_dimension.next_multiple_of(step);
    if padded == layout.leading_dimension {
        return Ok(matrix.clone());
    }
    Ok(matrix.relayout(layout.with_leading_dimension(padded))?)
}

fn on_cuda(device: &Device, config: &Config, padded: Padded) -> Result<Product> {
    let Padded { problem, a, b, c, mut d } = padded;
    let start = Instant::now();
    let gemm = Gemm::create(device, config.clone())?;
    let prepared = gemm.prepare(&problem)?;
    let prepare = start.elapsed();

    let stream = Stream::new(device)?;
    let upload =
        |matrix: &HostMatrix| DeviceBuffer::from_host(device, matrix.bytes(), stream.as_ref());
    let (a, b) = (upload(&a)?, upload(&b)?);
    let c = c.as_ref().map(upload).transpose()?;
    let device_d = upload(&d)?;
    let pointers = Pointers {
        a: a.address(),
        b: b.address(),
        c: c.as_ref().map_or(0, DeviceBuffer::address),
        d: device_d.address(),
    };
    let start = Instant::now();
    // SAFETY: the buffers hold the matrices as the problem describes them and live until the stream has been waited for.
    unsafe {
        gemm.run_prepared(&prepared, problem.alpha, problem.beta, &pointers, stream.as_ref())
    }?;
    stream.synchronize()?;
    let compute = start.elapsed();
    device_d.copy_to_host(0, d.bytes_mut(), stream.as_ref())?;
    Ok(Product {
        d: Padded::tight(&d)?,
        plan: Some(prepared.plan().clone()),
        prepare,
        compute,
        cache: prepared.cache_outcome(),
    })
}

/// SMs that the emulator pretends to have: a few, so that CTAs walk several tiles.
const EMULATED_SMS: u32 = 4;

fn on_emulator(config: &Config, padded: &Padded) -> Result<Product> {
    let Padded { problem, a, b, c, d } = padded;
    let start = Instant::now();
    let plan = Plan::candidates(problem, config, EMULATED_SMS)?.swap_remove(0);
    let gemm = plan.spec.build()?;
    let prepare = start.elapsed();

    let mut memory = Memory::new();
    let mut d = d.clone();
    let mut upload = |name: &str, matrix: Option<&HostMatrix>, permission| {
        matrix.map_or(0, |matrix| memory.upload(name, matrix.bytes(), permission))
    };
    // Operands without depth are read as one row of zeros.
    let zeros = [0; 16];
    let (mut a_address, mut b_address) =
        (upload("A", Some(a), Permission::ReadOnly), upload("B", Some(b), Permission::ReadOnly));
    let c_address = upload("C", c.as_ref(), Permission::ReadOnly);
    let d_address = upload("D", Some(&d), Permission::ReadWrite);
    if problem.k == 0 {
        a_address = memory.upload("zeros", &zeros, Permission::ReadOnly);
        b_address = a_address;
    }
    let pointers = Pointers { a: a_address, b: b_address, c: c_address, d: d_address };
    let work = work(problem, &plan, &pointers, 0);
    let size = gemm.workspace(&work);
    let workspace = memory.allocate("workspace", size.bytes as usize);
    memory.write(workspace, &vec![0; size.zeroed as usize])?;
    let launch = gemm.bind(&Work { workspace, ..work });
    let start = Instant::now();
    Emulator::new(gemm.kernel(), &launch, &mut memory, Options::default())?.run()?;
    let compute = start.elapsed();
    let bytes = d.bytes().len();
    d.bytes_mut().copy_from_slice(memory.read_raw(d_address, bytes)?);
    Ok(Product { d: Padded::tight(&d)?, plan: Some(plan), prepare, compute, cache: None })
}
