//! Products of host matrices of any size in a given amount of device memory: copies up, products
//! and copies down at the same time.
//!
//! ```no_run
//! use persistent_gemm::driver::Device;
//! use persistent_gemm::outofcore::Budget;
//! use persistent_gemm::{Config, Dtype, Gemm, HostMatrix, Operands, Problem};
//!
//! # fn product(a: &HostMatrix, b: &HostMatrix) -> Result<(), persistent_gemm::Error> {
//! let gemm = Gemm::create(&Device::new(0)?, Config::new(Dtype::Bf16))?;
//! let problem = Problem::of(&a.layout(), &b.layout())?;
//! let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::Bf16)?;
//! let operands = Operands::new(a, b);
//! let budget = Budget::new(4 << 30);
//! let report = gemm.multiply_host(&problem, operands, &mut d, &budget, &mut |progress| {
//!     println!("{} of {}", progress.done, progress.products);
//! })?;
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//!
//! * **Blocks** ([`Blocking`]): D is cut into blocks. If D is of f64, s32 or f32 (of floats), it
//!   can hold partial sums without loss. Then k is cut too, if that is faster and there is no
//!   epilogue. Otherwise each block of D is computed along all of k. It is then the same bit for
//!   bit as with all matrices on the device and unsplit tiles ([`Split::Whole`](crate::Split)).
//! * **Order**: blocks are computed in groups that share tiles, so that few bytes are uploaded and
//!   computing starts early. The blocking is the fastest by a model of the schedule's steps at the
//!   rates of the link and the tensor cores ([`Rates`]).
//! * **Host memory** that is pinned (by [`HostMatrix::pin`] or by its owner) is copied by the
//!   device. Other memory is copied through pinned buffers by rayon's threads.
//! * There are three streams, ordered by events, and one device allocation within
//!   [`Budget::device_bytes`]. No managed memory is used.

mod blocking;
mod choose;
mod execute;
mod link;
mod rates;
mod schedule;
mod staging;
#[cfg(test)]
mod tests;
mod tile;

use std::fmt;

use crate::driver::DeviceBuffer;
use crate::epilogue::check_bias;
use crate::error::{Error, Result};
use crate::gemm::{CallerWorkspace, Gemm};
use crate::matrix::HostMatrix;
use crate::operands::{HostOperand, HostOperands, Operands};

pub use blocking::Blocking;
use blocking::{Shapes, SlotOffsets};
use choose::choose;
pub use link::LinkSpeed;
use pgemm_plan::{Config, Plan, PlanError, Problem};
pub use rates::Rates;
use schedule::Schedule;

/// The memory that a product may use, and the expected rates of the machine.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Bytes of device memory for tiles, blocks and workspace. Kernels and the driver's own memory
    /// are not included.
    pub device_bytes: u64,
    /// Bytes of pinned host memory for copies of memory that is not pinned.
    pub staging_bytes: usize,
    /// The rates by which blockings are compared. The default is [`Rates::usual`].
    pub rates: Option<Rates>,
    /// Whether each step waits for the previous one, to measure the parts.
    pub one_at_a_time: bool,
}

impl Budget {
    /// A budget of `device_bytes` bytes of device memory, and 256 MiB of pinned host memory for
    /// matrices that are not pinned.
    pub fn new(device_bytes: u64) -> Self {
        Budget { device_bytes, staging_bytes: 256 << 20, rates: None, one_at_a_time: false }
    }

    /// Sets the bytes of pinned host memory for copies of memory that is not pinned.
    pub fn with_staging_bytes(self, staging_bytes: usize) -> Self {
        Budget { staging_bytes, ..self }
    }

    /// Sets the rates by which blockings are compared, as measured.
    pub fn with_rates(self, rates: Rates) -> Self {
        Budget { rates: Some(rates), ..self }
    }

    /// Sets whether each step waits for the previous one.
    pub fn with_one_at_a_time(self, one_at_a_time: bool) -> Self {
        Budget { one_at_a_time, ..self }
    }
}

/// The progress of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Products of blocks that have been computed.
    pub done: usize,
    /// Products of blocks in all.
    pub products: usize,
}

/// How a product was computed.
#[derive(Clone, Debug)]
pub struct Report {
    /// Blocks, order and slots.
    pub blocking: Blocking,
    /// Products of blocks.
    pub products: usize,
    /// Bytes of device memory, the workspace's included.
    pub device_bytes: u64,
    /// Bytes that went up and down.
    pub moved_bytes: [u64; 2],
    /// Seconds from the first step to the last, without planning, compiling and allocating.
    pub seconds: f64,
    /// Seconds by the model.
    pub expected_seconds: f64,
    /// Seconds in which something went up, was computed, went down.
    pub busy_seconds: [f64; 3],
    /// The plan of the first block's product, or `None` if there is no block.
    pub plan: Option<Plan>,
    /// Whether A, B, C and D were pinned. A C that is not read counts as pinned.
    pub pinned: [bool; 4],
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([up, down], [up_busy, computing, down_busy]) = (self.moved_bytes, self.busy_seconds);
        write!(
            f,
            "{}: {:.3} s ({:.3} expected), {:.2} GB up in {up_busy:.3} s, computing {computing:.3} \
             s, {:.2} GB down in {down_busy:.3} s, {} MiB of device memory",
            self.blocking,
            self.seconds,
            self.expected_seconds,
            up as f64 / 1e9,
            down as f64 / 1e9,
            self.device_bytes >> 20
        )
    }
}

impl Gemm {
    /// Computes D = alpha·A·B + beta·C of host matrices of any size within the budget's device
    /// memory, and waits for the result. `progress` is called on this thread. See
    /// [`outofcore`](self).
    ///
    /// # Errors
    /// The errors of [`run_at`](Self::run_at); matrices with another layout or type than the
    /// problem and config say; [`Error::NotByBlocks`] for a batch and for operands with a step
    /// other than 1; [`Error::DeviceBudget`] if the smallest blocks need more;
    /// [`Error::OutOfMemory`] if the device or the host has less than the budget. The content of D
    /// is then undefined.
    pub fn multiply_host<C, V>(
        &self,
        problem: &Problem,
        operands: Operands<'_, HostMatrix, HostMatrix, C, V>,
        d: &mut HostMatrix,
        budget: &Budget,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Report>
    where
        C: HostOperand,
        V: HostOperand,
    {
        let operands = operands.of(0);
        check(self.config(), problem, operands, d)?;
        let operands = operands
            .c(operands.c.filter(|_| problem.beta != 0.0))
            .bias(operands.bias.filter(|_| self.config().epilogue.bias().is_some()));
        let planned = planned(self, problem, budget)?;
        if problem.is_empty() {
            return Ok(planned.report([0.0; 3], 0.0, [true; 4]));
        }
        let mut memory = DeviceBuffer::new(self.device(), planned.device_bytes() as usize)?;
        if let Some(bias) = operands.bias {
            memory.copy_from_host(planned.bias_offset() as usize, bias.bytes(), self.stream())?;
        }
        execute::execute(&planned, &memory, operands, d, budget, progress)
    }
}

/// A planned out-of-core product.
struct PlannedProduct {
    gemm: Gemm,
    shapes: Shapes,
    blocking: Blocking,
    places: SlotOffsets,
    schedule: Schedule,
    prepared: execute::PreparedProducts,
    /// Bytes of the workspace, which is behind the slots.
    workspace: u64,
    /// Bytes of the bias, which is behind the workspace.
    bias: u64,
    expected_seconds: f64,
}

impl PlannedProduct {
    fn bias_offset(&self) -> u64 {
        self.places.bytes() + self.workspace
    }

    fn device_bytes(&self) -> u64 {
        self.bias_offset() + self.bias
    }

    fn report(&self, busy_seconds: [f64; 3], seconds: f64, pinned: [bool; 4]) -> Report {
        Report {
            blocking: self.blocking,
            products: self.blocking.products(),
            device_bytes: self.device_bytes(),
            moved_bytes: self.schedule.bytes(&self.shapes, &self.blocking),
            seconds,
            expected_seconds: self.expected_seconds,
            busy_seconds,
            plan: self.prepared.first_plan(&self.blocking),
            pinned,
        }
    }
}

/// Chooses a blocking and prepares its products. Their workspace is part of the budget, but its
/// size is known only after the preparation. If it does not fit, it is reserved and another
/// blocking chosen.
fn planned(gemm: &Gemm, problem: &Problem, budget: &Budget) -> Result<PlannedProduct> {
    let config = gemm.config();
    let [a, b] = config.operands();
    let fused = !config.epilogue.is_none();
    let shapes = Shapes { problem: *problem, elements: [a, b, config.output_dtype()], fused };
    let length = config.bias_length(problem).unwrap_or(0) as u64;
    let bias = length * u64::from(config.bias_dtype().bytes());
    let rates = budget.rates.unwrap_or_else(|| Rates::usual(config.dtype));
    let gemm = gemm.by_blocks()?;
    let requested = budget.device_bytes;
    let mut aside = bias;
    loop {
        let refused = |needed: u64| {
            let needed = needed.saturating_add(aside);
            Error::DeviceBudget { requested, needed, whole_k: !fused && !shapes.may_cut_k() }
        };
        let room = requested.saturating_sub(aside);
        let (blocking, schedule) = choose(&shapes, room, &rates).map_err(refused)?;
        let prepared = execute::prepare(&gemm, &shapes, &blocking, &schedule)?;
        let workspace = prepared.workspace_bytes().next_multiple_of(CallerWorkspace::ALIGN);
        let places = SlotOffsets::new(&blocking, &shapes);
        if places.bytes().saturating_add(workspace).saturating_add(bias) <= requested {
            let expected_seconds = schedule.seconds(&shapes, &blocking, &rates);
            return Ok(PlannedProduct {
                gemm,
                shapes,
                blocking,
                places,
                schedule,
                prepared,
                workspace,
                bias,
                expected_seconds,
            });
        }
        // Smaller blocks need less; but each round must leave less to them.
        aside = aside.saturating_add(workspace.max(1));
    }
}

/// Checks types and layouts.
fn check(
    config: &Config,
    problem: &Problem,
    operands: HostOperands<'_>,
    d: &HostMatrix,
) -> Result<()> {
    problem.validate()?;
    if problem.batch.count != 1 {
        return Err(Error::NotByBlocks {
            what: "a batch",
            instead: "compute its products one after the other",
        });
    }
    if problem.a.step != 1 || problem.b.step != 1 {
        return Err(Error::NotByBlocks {
            what: "operands whose elements are no neighbours",
            instead: "copy them to matrices with a step of 1",
        });
    }
    let Operands { a, b, c, bias } = operands;
    let c = c.filter(|_| problem.beta != 0.0);
    let bias = bias.filter(|_| config.epilogue.bias().is_some());
    problem.check_layouts(a.layout(), b.layout(), c.map(HostMatrix::layout))?;
    if d.layout() != problem.d_layout() {
        let (found, needed) = (d.layout(), problem.d_layout());
        return Err(PlanError::LayoutMismatch { matrix: "D", found, needed }.into());
    }
    let ([a_type, b_type], output) = (config.operands(), config.output_dtype());
    check_bias(problem, config.epilogue, bias)?;
    let given = [
        ("A", Some(a), a_type),
        ("B", Some(b), b_type),
        ("C", c, output),
        ("D", Some(d), output),
        ("the bias", bias, config.bias_dtype()),
    ];
    for (matrix, given, needed) in given {
        match given.map(HostMatrix::dtype) {
            Some(found) if found != needed => {
                return Err(Error::MatrixType { matrix, found, needed });
            }
            _ => {}
        }
    }
    problem.check_scalars(output)?;
    Ok(())
}
