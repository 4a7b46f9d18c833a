//! GEMMs on host matrices, on any backend: what the command `pgemm run` does.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::slice;
use std::str::FromStr;
use std::time::{Duration, Instant};

use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_ir::Element as Dtype;
use pgemm_kernels::{GemmKernel, RepackKernel, Work};
use pgemm_plan::{
    Config, MatrixLayout, OperandAlignment, Plan, PlanError, PlannedProblem, Problem,
};

use crate::cache::Outcome;
use crate::cpu;
use crate::driver::{Device, DeviceBuffer, Stream};
use crate::epilogue::Applied;
use crate::error::{CpuError, Error, Result};
use crate::gemm::Gemm;
use crate::matrix::HostMatrix;
use crate::repack::RepackedOperands;
use crate::work::{Pointers, work};

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
    /// The bias where the epilogue has one: a row of [`Epilogue::bias_length`](crate::Epilogue::bias_length) elements of
    /// [`Config::bias_dtype`], without gaps.
    pub bias: Option<&'a HostMatrix>,
}

/// Inputs of a batch on the host, as [`Inputs`]: one matrix for each product, or where the batch stride is 0 one for all.
#[derive(Clone, Copy)]
pub struct BatchInputs<'a> {
    /// A of each product.
    pub a: &'a [HostMatrix],
    /// B of each product.
    pub b: &'a [HostMatrix],
    /// C of each product; not looked at where beta is 0.
    pub c: &'a [HostMatrix],
    /// The bias of all products, as [`Inputs::bias`].
    pub bias: Option<&'a HostMatrix>,
}

/// Computed products of a batch.
pub struct Products {
    /// D of each product, as [`Product::d`].
    pub d: Vec<HostMatrix>,
    /// How they were computed; `None` on the CPU.
    pub plan: Option<Plan>,
    /// Planning, compiling, loading.
    pub prepare: Duration,
    /// Computing, without copies to and from a device.
    pub compute: Duration,
    /// What happened in the kernel cache, on CUDA.
    pub cache: Option<Outcome>,
}

/// A computed product.
pub struct Product {
    /// D without gaps, row-major or column-major as the problem says.
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

/// Computes D = alpha·A·B + beta·C of host matrices, with the config's epilogue. D was filled with NaN before.
///
/// # Errors
/// The problem is impossible, a batch, or doesn't fit its matrices, which are of other types than the config's; types, majors or
/// knobs have no kernel; memory runs out; the emulator finds the kernel wrong.
pub fn multiply(
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    inputs: Inputs<'_>,
) -> Result<Product> {
    let needed = problem.batch.count;
    if needed != 1 {
        return Err(PlanError::MatrixCount { matrix: "A", found: 1, needed }.into());
    }
    let Inputs { a, b, c, bias } = inputs;
    let c = c.map_or(&[][..], slice::from_ref);
    let batch = BatchInputs { a: slice::from_ref(a), b: slice::from_ref(b), c, bias };
    let Products { mut d, plan, prepare, compute, cache } =
        multiply_batch(executor, config, problem, batch)?;
    Ok(Product { d: d.swap_remove(0), plan, prepare, compute, cache })
}

/// Like [`multiply`], for all products of a batch.
///
/// # Errors
/// As [`multiply`]; a matrix for each product is missing.
pub fn multiply_batch(
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    inputs: BatchInputs<'_>,
) -> Result<Products> {
    problem.validate()?;
    let problem = &problem.normalised();
    let inputs = BatchInputs {
        c: if problem.beta == 0.0 { &[] } else { inputs.c },
        bias: inputs.bias.filter(|_| config.epilogue.bias().is_some()),
        ..inputs
    };
    check_inputs(config, problem, inputs)?;
    config.check_precision()?;
    config.check_epilogue()?;
    let applied = Applied::new(problem, config.epilogue, inputs.bias)?;
    Plan::check_problem(problem, config)?;
    let mut d = (0..problem.batch.count)
        .map(|_| {
            let mut d = HostMatrix::zeros(problem.d_layout(), config.output_dtype())?;
            d.poison();
            Ok(d)
        })
        .collect::<Result<Vec<_>>>()?;
    let computed = match executor {
        _ if problem.is_empty() => Computed::NOTHING,
        Executor::Cpu { .. } => {
            let start = Instant::now();
            for (index, d) in d.iter_mut().enumerate() {
                let Inputs { a, b, c, .. } = inputs.of(index);
                cpu::run_applied(&problem.one(), &applied, a, b, c, d)?;
            }
            Computed { compute: start.elapsed(), ..Computed::NOTHING }
        }
        Executor::Emulator => with_buffers(config, problem, inputs, &mut d, |buffers| {
            on_emulator(config, problem, buffers)
        })?,
        Executor::Cuda(device) => with_buffers(config, problem, inputs, &mut d, |buffers| {
            on_cuda(device, config, problem, buffers)
        })?,
    };
    let tight = |d: HostMatrix| {
        let tight = MatrixLayout::tight(problem.m, problem.n, d.layout().order);
        if d.layout() == tight { Ok(d) } else { d.relayout(tight) }
    };
    let d = d.into_iter().map(tight).collect::<std::result::Result<_, _>>()?;
    let Computed { plan, prepare, compute, cache } = computed;
    Ok(Products { d, plan, prepare, compute, cache })
}

impl<'a> BatchInputs<'a> {
    /// Those of one product.
    pub fn of(&self, index: usize) -> Inputs<'a> {
        let one = |matrices: &[HostMatrix]| index.checked_rem(matrices.len());
        Inputs {
            a: &self.a[one(self.a).unwrap_or_default()],
            b: &self.b[one(self.b).unwrap_or_default()],
            c: one(self.c).map(|index| &self.c[index]),
            bias: self.bias,
        }
    }
}

/// Checks numbers, layouts and types of the matrices of a problem that validates.
fn check_inputs(config: &Config, problem: &Problem, inputs: BatchInputs<'_>) -> Result<()> {
    let BatchInputs { a, b, c, bias } = inputs;
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
    let ([a_type, b_type], output) = (config.operands(), config.output_dtype());
    let (found, needed) = (bias.map(HostMatrix::dtype), config.bias_dtype());
    if let Some(found) = found.filter(|found| *found != needed) {
        return Err(Error::MatrixType { matrix: "the bias", found, needed });
    }
    for index in 0..batch.count {
        let Inputs { a, b, c, .. } = inputs.of(index);
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

/// Matrices as they lie in one allocation, `stride` elements apart, with NaN in between. There is at least one.
pub(crate) fn laid_together(matrices: &[HostMatrix], stride: usize) -> Result<Cow<'_, HostMatrix>> {
    let (first, others) = (&matrices[0], matrices.len() - 1);
    if others == 0 {
        return Ok(Cow::Borrowed(first));
    }
    let mut all = room_for(first.layout(), first.dtype(), matrices.len(), stride)?;
    let bytes = all.bytes_mut();
    for (index, matrix) in matrices.iter().enumerate() {
        for (line, at) in lines(matrix, index * stride) {
            bytes[at..at + line.len()].copy_from_slice(&matrix.bytes()[line]);
        }
    }
    Ok(Cow::Owned(all))
}

/// Reads matrices that lie `stride` elements apart.
pub(crate) fn take_apart(all: &[u8], stride: usize, matrices: &mut [HostMatrix]) {
    for (index, matrix) in matrices.iter_mut().enumerate() {
        for (line, at) in lines(matrix, index * stride).collect::<Vec<_>>() {
            let bytes = &all[at..at + line.len()];
            matrix.bytes_mut()[line].copy_from_slice(bytes);
        }
    }
}

/// One line of NaN with room for so many matrices.
pub(crate) fn room_for(
    layout: MatrixLayout,
    element: Dtype,
    count: usize,
    stride: usize,
) -> Result<HostMatrix> {
    let elements = count.saturating_sub(1).saturating_mul(stride);
    let elements = elements.saturating_add(layout.span(element)?);
    let mut all = HostMatrix::zeros(MatrixLayout::row_major(1, elements), element)?;
    all.poison();
    Ok(all)
}

/// The bytes of each line of a matrix, and where they begin where the matrix begins `first` elements behind the start.
fn lines(matrix: &HostMatrix, first: usize) -> impl Iterator<Item = (Range<usize>, usize)> + use<> {
    let (layout, size) = (matrix.layout(), matrix.dtype().bytes() as usize);
    let lines = if layout.is_empty() { 0 } else { layout.lines() };
    (0..lines).map(move |line| {
        let start = line * layout.leading_dimension;
        (start * size..(start + layout.line_length()) * size, (first + start) * size)
    })
}

/// How something was computed.
#[derive(Clone, Debug)]
pub struct Computed {
    /// The plan; `None` on the CPU, and where D is empty.
    pub plan: Option<Plan>,
    /// Planning, compiling, loading.
    pub prepare: Duration,
    /// Computing, without copies to and from a device.
    pub compute: Duration,
    /// What happened in the kernel cache, on CUDA.
    pub cache: Option<Outcome>,
}

impl Computed {
    /// Nothing was to be done.
    const NOTHING: Computed =
        Computed { plan: None, prepare: Duration::ZERO, compute: Duration::ZERO, cache: None };
}

/// Bytes of allocations on the host that hold the matrices of a problem, each from an offset on.
pub struct Allocations<'a> {
    /// A.
    pub a: &'a [u8],
    /// B.
    pub b: &'a [u8],
    /// C; `None` where beta is 0, or C is D.
    pub c: Option<&'a [u8]>,
    /// D.
    pub d: &'a mut [u8],
    /// The bias; `None` where the epilogue adds none.
    pub bias: Option<&'a [u8]>,
    /// Bytes before the first element of A, B, C, D and the bias. Allocations begin at multiples of 256.
    pub offsets: [u64; 5],
}

/// Computes D = alpha·A·B + beta·C, with the config's epilogue, of matrices inside of larger allocations, on a device or in the
/// emulator. The allocations are copied there as a whole, and D's is copied back.
///
/// # Errors
/// The problem is impossible; types, majors or knobs have no kernel; [`Error::BufferLength`] for an allocation that ends before
/// its matrix does; memory runs out; the emulator finds the kernel wrong; [`CpuError::Allocations`] for the CPU backend, which
/// takes matrices only.
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
    match executor {
        _ if problem.is_empty() => Ok(Computed::NOTHING),
        Executor::Cpu { .. } => Err(CpuError::Allocations.into()),
        Executor::Emulator => on_emulator(config, problem, allocations),
        Executor::Cuda(device) => on_cuda(device, config, problem, allocations),
    }
}

impl Allocations<'_> {
    /// Checks that every matrix ends inside of its allocation, and that there is a bias where the epilogue adds one.
    fn check(&self, config: &Config, problem: &Problem) -> Result<()> {
        config.check_bias_given(problem, self.bias.is_some())?;
        let ([a, b], output) = (config.operands(), config.output_dtype());
        let spans = problem.spans();
        // Where there is no C, D stands in its place.
        let d = if self.c.is_none() { spans.d.max(spans.c) } else { spans.d };
        let bias = config.bias_length(problem).unwrap_or_default();
        for (index, (matrix, bytes, element, needed)) in [
            ("A", Some(self.a.len()), a, spans.a),
            ("B", Some(self.b.len()), b, spans.b),
            ("C", self.c.map(<[u8]>::len), output, spans.c),
            ("D", Some(self.d.len()), output, d),
            ("the bias", self.bias.map(<[u8]>::len), config.bias_dtype(), bias),
        ]
        .into_iter()
        .enumerate()
        {
            let Some(bytes) = bytes else { continue };
            let offset = usize::try_from(self.offsets[index]).unwrap_or(usize::MAX);
            let found = bytes.saturating_sub(offset) / element.bytes() as usize;
            if found < needed {
                return Err(Error::BufferLength { matrix, found, needed });
            }
        }
        Ok(())
    }

    /// The matrices in allocations at these addresses.
    fn pointers(&self, [a, b, c, d, bias]: [u64; 5]) -> Pointers {
        let offsets = self.offsets;
        let c = if self.c.is_some() { c } else { d };
        let at = |address, i: usize| address + offsets[i];
        Pointers::new(at(a, 0), at(b, 1), at(c, 2), at(d, 3)).with_bias(at(bias, 4))
    }
}

/// Computes with each matrix of the batch in its place in one allocation.
fn with_buffers(
    config: &Config,
    problem: &Problem,
    inputs: BatchInputs<'_>,
    d: &mut [HostMatrix],
    compute: impl FnOnce(Allocations<'_>) -> Result<Computed>,
) -> Result<Computed> {
    let batch = problem.batch;
    let (a, b) = (laid_together(inputs.a, batch.a)?, laid_together(inputs.b, batch.b)?);
    let c = match inputs.c {
        [] => None,
        c => Some(laid_together(c, batch.c)?),
    };
    let mut all_d = room_for(problem.d_layout(), config.output_dtype(), d.len(), batch.d)?;
    let computed = compute(Allocations {
        a: a.bytes(),
        b: b.bytes(),
        c: c.as_ref().map(|c| c.bytes()),
        d: all_d.bytes_mut(),
        bias: inputs.bias.map(HostMatrix::bytes),
        offsets: [0; 5],
    })?;
    take_apart(all_d.bytes(), batch.d, d);
    Ok(computed)
}

fn on_cuda(
    device: &Device,
    config: &Config,
    problem: &Problem,
    buffers: Allocations<'_>,
) -> Result<Computed> {
    let start = Instant::now();
    let gemm = Gemm::create(device, config.clone())?;
    let created = start.elapsed();
    let stream = Stream::new(device)?;
    let upload = |bytes: &[u8]| DeviceBuffer::from_host(device, bytes, stream.as_ref());
    let (a, b) = (upload(buffers.a)?, upload(buffers.b)?);
    let c = buffers.c.map(upload).transpose()?;
    let d = upload(buffers.d)?;
    let bias = buffers.bias.map(upload).transpose()?;
    let [c_address, bias_address] =
        [&c, &bias].map(|buffer| buffer.as_ref().map_or(0, DeviceBuffer::address));
    let addresses = [a.address(), b.address(), c_address, d.address(), bias_address];
    let pointers = buffers.pointers(addresses);

    let start = Instant::now();
    let prepared = gemm.prepare_at(problem, &pointers)?;
    let prepare = created + start.elapsed();
    let start = Instant::now();
    // SAFETY: the buffers hold the matrices as the problem describes them and live until the stream has been waited for.
    unsafe {
        gemm.run_prepared(&prepared, problem.alpha, problem.beta, &pointers, stream.as_ref())
    }?;
    stream.synchronize()?;
    let compute = start.elapsed();
    d.copy_to_host(0, buffers.d, stream.as_ref())?;
    let (plan, cache) = (Some(prepared.plan().clone()), prepared.cache_outcome());
    Ok(Computed { plan, prepare, compute, cache })
}

/// SMs that the emulator pretends to have: a few, so that CTAs walk several tiles.
const EMULATED_SMS: u32 = 4;

fn on_emulator(config: &Config, problem: &Problem, buffers: Allocations<'_>) -> Result<Computed> {
    let mut memory = Memory::new();
    let mut upload = |name: &str, bytes: Option<&[u8]>, permission| {
        bytes.map_or(0, |bytes| memory.upload(name, bytes, permission))
    };
    let addresses = [
        upload("A", Some(buffers.a), Permission::ReadOnly),
        upload("B", Some(buffers.b), Permission::ReadOnly),
        upload("C", buffers.c, Permission::ReadOnly),
        upload("D", Some(buffers.d), Permission::ReadWrite),
        upload("the bias", buffers.bias, Permission::ReadOnly),
    ];
    let pointers = buffers.pointers(addresses);
    let computed = emulate(config, problem, &mut memory, &pointers)?;
    buffers.d.copy_from_slice(memory.read_raw(addresses[3], buffers.d.len())?);
    Ok(computed)
}

/// Computes a problem that validates on matrices in the emulator's memory, with the first plan for such addresses.
fn emulate(
    config: &Config,
    problem: &Problem,
    memory: &mut Memory,
    pointers: &Pointers,
) -> Result<Computed> {
    let start = Instant::now();
    let alignment = OperandAlignment::of(problem, config, [pointers.a, pointers.b]);
    let mut plans = Plan::candidates_with(problem, config, EMULATED_SMS, &(), alignment)?;
    // There is one, or an error said why not.
    let Some(plan) = plans.next() else { return Err(Error::NoCleanKernel { dtype: config.dtype }) };
    let planned = PlannedProblem::with_accesses(problem, config, plan.accesses);
    let gemm = GemmKernel::build(&plan.spec)?;
    let prepare = start.elapsed();

    let mut sources = planned.in_order([pointers.a, pointers.b]);
    if problem.k == 0 {
        // Operands without depth are read as one row of zeros.
        sources = [memory.upload("zeros", &[0; 16], Permission::ReadOnly); 2];
    }
    let repacks = planned.repacks();
    let copies = memory.allocate("operands", repacks.bytes as usize);
    let start = Instant::now();
    let matrices: Vec<_> = repacks
        .operands
        .iter()
        .zip(sources)
        .filter_map(|(repack, source)| Some(repack.as_ref()?.at(source, copies)))
        .collect();
    for spec in repacks.kernels(config.dtype.bytes()) {
        let kernel = RepackKernel::build(spec)?;
        let launch = kernel.bind(&matrices[0], matrices.get(1))?;
        Emulator::new(&kernel.kernel, &launch, memory, Options::default())?.run()?;
    }
    let RepackedOperands { operands: [a, b], scales } =
        RepackedOperands::new(&repacks, sources, copies);
    let pointers = Pointers { a, b, ..*pointers };
    let scales = scales.map(|[a, b]| if plan.swapped() { [b, a] } else { [a, b] });
    let work = Work { scales, ..work(&planned.problem, &plan, &pointers, 0) };
    let size = gemm.workspace(&work);
    let workspace = memory.allocate("workspace", size.bytes as usize);
    memory.write(workspace, &vec![0; size.zeroed as usize])?;
    let launch = gemm.bind(&Work { workspace, ..work });
    Emulator::new(&gemm.kernel, &launch, memory, Options::default())?.run()?;
    Ok(Computed { plan: Some(plan), prepare, compute: start.elapsed(), cache: None })
}

#[cfg(test)]
mod tests;
