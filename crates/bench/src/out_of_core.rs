//! Benchmark of out-of-core products: the rates of the link, the times of the parts one after
//! another, and the achieved time.

use std::path::Path;
use std::time::Instant;

use persistent_gemm::driver::Device;
use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind};
use persistent_gemm::host::HostOperands;
use persistent_gemm::outofcore::{Budget, LinkSpeed, Rates, Report};
use persistent_gemm::{Error, Gemm, HostMatrix, Operands, Result};
use pgemm_ir::Format;
use pgemm_plan::{Config, Problem};
use serde::Serialize;

use crate::machine::Machine;

/// One product by blocks.
#[derive(Clone, Debug, Serialize)]
pub struct OutOfCoreRow {
    /// Extents, majors, scalars.
    pub problem: Problem,
    /// Element types of A, B and D, as they print.
    pub elements: [String; 3],
    /// The budget of device memory, in bytes.
    pub budget_bytes: u64,
    /// The used device memory, in bytes.
    pub device_bytes: u64,
    /// Blocks, order and slots.
    pub blocking: String,
    /// Products of blocks.
    pub products: usize,
    /// Bytes up and down.
    pub moved_bytes: [u64; 2],
    /// Seconds to pin A, B and D.
    pub pin_seconds: f64,
    /// Seconds of uploads, products and downloads, with each step run alone.
    pub part_seconds: [f64; 3],
    /// Seconds with all of it at the same time, pinned, each run.
    pub pinned_seconds: Vec<f64>,
    /// Seconds of the steps up, of the products and of the steps down of the fastest of these.
    pub busy_seconds: [f64; 3],
    /// Seconds with matrices that are not pinned, each run.
    pub pageable_seconds: Vec<f64>,
    /// Seconds by the model.
    pub expected_seconds: f64,
    /// Elements of D that were compared with dot products in binary64.
    pub sampled: usize,
    /// The largest error among them, without what rounding to D's type explains, as a part of the
    /// sum of the products' magnitudes.
    pub worst_error: f64,
}

impl OutOfCoreRow {
    /// Seconds of the fastest run with pinned matrices.
    pub fn achieved_seconds(&self) -> f64 {
        self.pinned_seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The time of the slowest part alone, divided by the achieved time.
    pub fn fraction(&self) -> f64 {
        self.part_seconds.iter().copied().fold(0.0, f64::max) / self.achieved_seconds()
    }
}

/// The measurements and the machine.
#[derive(Clone, Debug, Serialize)]
pub struct OutOfCoreReport {
    /// The run.
    #[serde(flatten)]
    pub head: Head,
    /// The machine.
    pub machine: Machine,
    /// The link.
    pub link: LinkSpeed,
    /// One row for each problem.
    pub rows: Vec<OutOfCoreRow>,
}

impl OutOfCoreReport {
    /// A report without rows.
    pub fn new(machine: Machine, link: LinkSpeed) -> Self {
        let head = Head::now(ResultsKind::OutOfCore);
        OutOfCoreReport { head, machine, link, rows: vec![] }
    }

    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        files::write_json(path, self)
    }
}

/// Measures an out-of-core product with pageable matrices, with pinned matrices, and with its steps
/// one after another.
///
/// # Errors
/// The same as for [`Gemm::multiply_host`]; [`Error::NotByBlocks`] for an epilogue.
pub fn out_of_core(
    device: &Device,
    config: &Config,
    problem: &Problem,
    budget_bytes: u64,
    link: &LinkSpeed,
    runs: usize,
) -> Result<OutOfCoreRow> {
    if !config.epilogue.is_none() {
        return Err(Error::NotByBlocks {
            what: "an epilogue, which is not measured",
            instead: "measure it without; Gemm::multiply_host applies it",
        });
    }
    let gemm = Gemm::create(device, config.clone())?;
    let [a_type, b_type] = config.operands();
    let output = config.output_dtype();
    let random = |layout, element, seed| {
        let mut matrix = HostMatrix::zeros(layout, element)?;
        matrix.fill_random(seed);
        Ok::<_, Error>(matrix)
    };
    let mut a = random(problem.a_layout(), a_type, 1)?;
    let mut b = random(problem.b_layout(), b_type, 2)?;
    let mut c =
        if problem.beta == 0.0 { None } else { Some(random(problem.c_layout(), output, 3)?) };
    let mut d = HostMatrix::zeros(problem.d_layout(), output)?;
    d.poison();

    let budget = Budget::new(budget_bytes);
    let mut pageable_seconds = vec![];
    for run in 0..runs + 1 {
        let operands = Operands::new(&a, &b).c(c.as_ref());
        let report = gemm.multiply_host(problem, operands, &mut d, &budget, &mut |_| {})?;
        // The first has compiled kernels.
        if run > 0 {
            pageable_seconds.push(report.seconds);
        }
    }
    let start = Instant::now();
    for matrix in [Some(&mut a), Some(&mut b), c.as_mut(), Some(&mut d)].into_iter().flatten() {
        matrix.pin(device)?;
    }
    let pin_seconds = start.elapsed().as_secs_f64();
    d.poison();
    let operands = Operands::new(&a, &b).c(c.as_ref());
    let mut run =
        |budget: &Budget| gemm.multiply_host(problem, operands, &mut d, budget, &mut |_| {});
    let serial = run(&budget.clone().with_one_at_a_time(true))?;
    let computing = serial.busy_seconds[1].max(1e-9);
    let rates = Rates {
        up_bytes_per_second: link.up_with_down,
        down_bytes_per_second: link.down_with_up,
        operations_per_second: problem.operations()? as f64 / computing,
    };
    let budget = budget.with_rates(rates);
    let mut fastest: Option<Report> = None;
    let mut pinned_seconds = vec![];
    for _ in 0..runs {
        let report = run(&budget)?;
        pinned_seconds.push(report.seconds);
        if fastest.as_ref().is_none_or(|fastest| report.seconds < fastest.seconds) {
            fastest = Some(report);
        }
    }
    // The parts of the blocking that the measured rates chose.
    let parts = run(&budget.with_one_at_a_time(true))?;
    let fastest = fastest.unwrap_or_else(|| parts.clone());
    let (sampled, worst_error) = sample(problem, operands.of(0), &d);
    Ok(OutOfCoreRow {
        problem: *problem,
        elements: [a_type, b_type, output].map(|element| element.to_string()),
        budget_bytes,
        device_bytes: fastest.device_bytes,
        blocking: fastest.blocking.to_string(),
        products: fastest.products,
        moved_bytes: fastest.moved_bytes,
        pin_seconds,
        part_seconds: parts.busy_seconds,
        pinned_seconds,
        busy_seconds: fastest.busy_seconds,
        pageable_seconds,
        expected_seconds: fastest.expected_seconds,
        sampled,
        worst_error,
    })
}

/// Compares some elements of D, from all parts of it, with dot products in binary64. Where sums are
/// short, D's rounding is most of the error, so half the distance of its neighbours is no error.
fn sample(problem: &Problem, operands: HostOperands<'_>, d: &HostMatrix) -> (usize, f64) {
    const SAMPLES: usize = 64;
    let Problem { m, n, k, alpha, beta, .. } = *problem;
    let Operands { a, b, c, .. } = operands;
    let value = |matrix: &HostMatrix, row, column| matrix.get(row, column).unwrap_or(f64::NAN);
    let rounding = match d.dtype().format() {
        Format::Float(format) => 0.5f64.powi(format.mantissa_bits as i32 + 1),
        Format::Integer { .. } => 0.0,
    };
    let mut worst = 0f64;
    for sample in 0..SAMPLES {
        // Strides that share no factor with usual extents.
        let (row, column) = (sample * 6841 % m, sample * 7919 % n);
        let (mut sum, mut magnitudes) = (0.0, f64::MIN_POSITIVE);
        for depth in 0..k {
            let product = value(a, row, depth) * value(b, depth, column);
            sum += product;
            magnitudes += product.abs();
        }
        let of_c = c.map_or(0.0, |c| beta * value(c, row, column));
        let exact = alpha * sum + of_c;
        let error = (value(d, row, column) - exact).abs() - rounding * exact.abs();
        let part = error / (alpha.abs() * magnitudes + of_c.abs());
        worst = if part.is_nan() { f64::INFINITY } else { worst.max(part) };
    }
    (SAMPLES, worst)
}

#[cfg(test)]
mod tests {
    use persistent_gemm::{Dtype, Major};

    use super::*;

    /// This is a regression test. Right products of a small depth were called wrong, since D's
    /// rounding was taken for an error of the sums.
    #[test]
    fn only_errors_beyond_the_rounding_of_d_count() {
        let problem = Problem::new(40, 50, 16, Major::K, Major::N);
        let normal = |layout, seed| {
            let mut matrix = HostMatrix::zeros(layout, Dtype::Bf16).unwrap();
            matrix.fill_normal(seed);
            matrix
        };
        let (a, b) = (normal(problem.a_layout(), 1), normal(problem.b_layout(), 2));
        let product = |row, column| -> f64 {
            (0..16).map(|k| a.get(row, k).unwrap() * b.get(k, column).unwrap()).sum()
        };
        for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
            let sampled = |factor: f64| {
                let mut d = HostMatrix::zeros(problem.d_layout(), dtype).unwrap();
                d.fill_with(|row, column| factor * product(row, column));
                sample(&problem, Operands::new(&a, &b).of(0), &d)
            };
            assert_eq!(sampled(1.0), (64, 0.0), "{dtype}");
            assert!(sampled(1.02).1 > 1e-3, "{dtype}");
            assert!(sampled(f64::NAN).1 == f64::INFINITY, "{dtype}");
        }
    }
}
