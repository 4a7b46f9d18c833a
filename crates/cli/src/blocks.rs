//! Products of host matrices by blocks: `pgemm run --device-memory` and `pgemm bench
//! --out-of-core`.

use std::path::Path;
use std::time::{Duration, Instant};

use persistent_gemm::driver::Device;
use persistent_gemm::host::{Executor, HostBatch, Product};
use persistent_gemm::outofcore::Budget;
use persistent_gemm::outofcore::LinkSpeed;
use persistent_gemm::{Config, Gemm, HostMatrix, MatrixLayout, Operands, Problem};
use pgemm_bench::{Bench, OutOfCoreReport, OutOfCoreRow, out_of_core};

use crate::failure::Failure;
use crate::output;
use crate::usage::UsageError;

/// Error of a sampled element beyond which a product is wrong, relative to the sum of the products'
/// magnitudes. It is some thousand times the rounding of bf16's sums, and about a thousandth of the
/// error of a wrong tile.
const WRONG: f64 = 2e-4;

/// Computes one out-of-core product on the device, and reports the plan and times.
pub fn multiply(
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    inputs: HostBatch<'_>,
    device_bytes: u64,
) -> Result<(Product<Vec<HostMatrix>>, String), Failure> {
    let Executor::Cuda(device) = executor else {
        return Err(UsageError::BlocksWithoutDevice { backend: executor.kind() }.into());
    };
    if problem.batch.count != 1 {
        return Err(UsageError::BlocksOfBatch.into());
    }
    let Operands { a, b, c, bias, .. } = inputs.of(0);
    let mut d = HostMatrix::zeros(problem.d_layout(), config.output_dtype())?;
    d.poison();
    let start = Instant::now();
    let gemm = Gemm::create(device, config.clone())?;
    let bar = output::progress(0);
    let operands = Operands::new(a, b).c(c).bias(bias);
    let report = gemm.multiply_host(
        problem,
        operands,
        &mut d,
        &Budget::new(device_bytes),
        &mut |progress| {
            bar.set_length(progress.products as u64);
            bar.set_position(progress.done as u64);
        },
    )?;
    bar.finish_and_clear();
    let compute = Duration::from_secs_f64(report.seconds);
    let prepare = start.elapsed().saturating_sub(compute);
    let tight = MatrixLayout::tight(problem.m, problem.n, d.layout().order);
    let d = if d.layout() == tight { d } else { d.relayout(tight)? };
    let by_blocks = report.to_string();
    Ok((Product { d: vec![d], plan: report.plan, prepare, compute, cache: None }, by_blocks))
}

/// Measures products by blocks.
pub fn bench(
    device: u32,
    config: &Config,
    problems: impl Iterator<Item = Problem>,
    device_bytes: u64,
    json: Option<&Path>,
) -> Result<bool, Failure> {
    let device = Device::new(device)?;
    let link = LinkSpeed::measure(&device)?;
    let mut report = OutOfCoreReport::new(Bench::new(&device)?.machine(None), link);
    let rate = |bytes_per_second: f64| format!("{:.1} GB/s", bytes_per_second / 1e9);
    let LinkSpeed { up, down, up_with_down, down_with_up } = link;
    output::properties(&[
        ("link, up", format!("{} ({} while as much goes down)", rate(up), rate(up_with_down))),
        ("link, down", format!("{} ({} while as much goes up)", rate(down), rate(down_with_up))),
    ])?;
    let mut right = true;
    for problem in problems {
        let row = output::while_showing("measuring", || {
            out_of_core(&device, config, &problem, device_bytes, &link, 3)
        })?;
        print(&row)?;
        right &= row.worst_error <= WRONG;
        report.rows.push(row);
        if let Some(path) = json {
            report.write(path)?;
        }
    }
    Ok(right)
}

fn print(row: &OutOfCoreRow) -> Result<(), Failure> {
    let seconds = |seconds: f64| output::seconds(Duration::from_secs_f64(seconds));
    let all = |runs: &[f64]| runs.iter().map(|&run| seconds(run)).collect::<Vec<_>>().join(", ");
    let [up, computing, down] = row.part_seconds;
    let [a, b, d] = &row.elements;
    let rate = |time: f64| {
        let operations = row.problem.operations().unwrap_or(0);
        output::rate(operations, Duration::from_secs_f64(time)).unwrap_or_default()
    };
    let achieved = row.achieved_seconds();
    let wrong = if row.worst_error <= WRONG { "" } else { ": WRONG" };
    output::text("\n")?;
    output::properties(&[
        (
            "problem",
            format!("{}x{}x{}, {a} x {b} -> {d}", row.problem.m, row.problem.n, row.problem.k),
        ),
        (
            "device memory",
            format!("{} of {}", output::bytes(row.device_bytes), output::bytes(row.budget_bytes)),
        ),
        ("blocking", format!("{}; {} products", row.blocking, row.products)),
        (
            "moved",
            format!(
                "{} up, {} down",
                output::bytes(row.moved_bytes[0]),
                output::bytes(row.moved_bytes[1])
            ),
        ),
        (
            "parts alone",
            format!(
                "up {}, computing {} ({}), down {}; together {}",
                seconds(up),
                seconds(computing),
                rate(computing),
                seconds(down),
                seconds(up + computing + down)
            ),
        ),
        (
            "achieved",
            format!(
                "{} ({}); expected {}",
                seconds(achieved),
                rate(achieved),
                seconds(row.expected_seconds)
            ),
        ),
        ("of the slowest part", format!("{:.1} %", 100.0 * row.fraction())),
        ("pinned, each run", all(&row.pinned_seconds)),
        ("busy at the fastest", all(&row.busy_seconds)),
        ("pinning", seconds(row.pin_seconds)),
        ("not pinned, each run", all(&row.pageable_seconds)),
        (
            "sampled",
            format!(
                "{} elements, worst error {:.2e} of the magnitudes{wrong}",
                row.sampled, row.worst_error
            ),
        ),
    ])
}
