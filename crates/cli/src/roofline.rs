//! `pgemm roofline`: the ceilings of a card, what bounds problems, and what to try.

mod advice;

use std::path::PathBuf;

use comfy_table::Table;
use persistent_gemm::driver::Device;
use persistent_gemm::measure::{Elements, MeasureError, operand_bytes};
use persistent_gemm::{Plan, Problem, USUAL_SMS};
use pgemm_bench::atlas::Regime;
use pgemm_bench::{Bench, CeilingProbe, Limits, Rate, RooflineReport};
use pgemm_kernels::ArithmeticProbe;

use self::advice::Placed;
use crate::output;
use crate::parse::{self, Majors, Size, Types};
use crate::{Failure, Verdict};

/// Arguments of `pgemm roofline`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm roofline --json ceilings.json
  pgemm roofline --ceilings ceilings.json --problem 4096 --problem 16x8192x28672 --dtype bf16
  pgemm roofline --nominal --problem 1536x1536x1536 --dtype e4m3
  pgemm report suite.json ceilings.json -o report.html")]
pub struct Args {
    /// A problem size to place under the ceilings; may be given several times.
    #[arg(long, value_name = "MxNxK[*BATCH]", value_parser = parse::size)]
    problem: Vec<Size>,
    #[command(flatten)]
    types: Types,
    #[command(flatten)]
    majors: Majors,
    /// Take the ceilings from this file of an earlier run.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "seconds"])]
    ceilings: Option<PathBuf>,
    /// Take the rates of an H200, which need no device.
    #[arg(long, conflicts_with_all = ["ceilings", "json", "seconds"], requires = "problem")]
    nominal: bool,
    /// Seconds of measurement for each ceiling.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Also write the ceilings to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let elements = args.types.elements(None);
    let problems = args.problem.iter().map(|&size| args.majors.problem(size));
    let problems: Vec<Problem> = problems.collect();
    // Impossible problems are refused before anything is measured.
    let config = parse::config(elements);
    for problem in &problems {
        Plan::check_problem(problem, &config)?;
        let &Problem { m, n, k, .. } = problem;
        if problem.is_empty() || k == 0 {
            return Err(MeasureError::EmptyProblem { m, n, k }.into());
        }
    }
    if let Some(path) = &args.json {
        persistent_gemm::files::check_path(path)?;
    }
    let report = match (&args.ceilings, args.nominal) {
        (Some(path), _) => Some(RooflineReport::read(path)?),
        (None, true) => None,
        (None, false) => Some(measure(args)?),
    };
    if let Some(report) = &report {
        output::text(&format!("{}, measured {}\n", report.machine.device, report.head.date))?;
        output::print(&ceilings(report))?;
    }
    let sms = report.as_ref().map_or(USUAL_SMS, |report| report.machine.sm_count);
    let limits = report.as_ref().map(|report| report.limits(elements));
    let limits = limits.unwrap_or_else(|| Limits::nominal(elements));
    for problem in &problems {
        let plan = Plan::best(problem, &config, sms)?;
        let placed = place(problem, elements, limits)?;
        output::text("\n")?;
        output::properties(&properties(problem, elements, &placed, &plan))?;
        for line in advice::advice(&placed, problem, elements, &plan, sms) {
            output::text(&format!("  - {line}\n"))?;
        }
    }
    Ok(Verdict::Fine)
}

/// Measures all ceilings.
fn measure(args: &Args) -> Result<RooflineReport, Failure> {
    let device = Device::new(args.device)?;
    let bench = Bench::new(&device)?;
    let ceilings = CeilingProbe::new(&bench, args.seconds);
    let mut report = RooflineReport::new(&bench);
    let progress = output::progress(2 + ArithmeticProbe::ELEMENTS.len());
    progress.set_message("memory");
    report.memory = ceilings.memory()?;
    progress.inc(1);
    progress.set_message("L2");
    report.l2 = ceilings.l2()?;
    progress.inc(1);
    for element in ArithmeticProbe::ELEMENTS {
        progress.set_message(element.name());
        report.arithmetic.push(ceilings.arithmetic(element)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    Ok(report)
}

fn ceilings(report: &RooflineReport) -> Table {
    let header = ["ceiling", "rate", "unit", "spread", "MHz", "W", "measured as"];
    let mut table = output::table(header, &["rate", "MHz", "W"]);
    let mut add = |name: String, unit: &str, rate: &Rate| {
        let whole =
            |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.0}"));
        table.add_row([
            name,
            format!("{:.0}", rate.rate.median),
            unit.to_owned(),
            format!("{:.0}–{:.0}", rate.rate.min, rate.rate.max),
            whole(rate.sm_clock_mhz),
            whole(rate.watts),
            rate.what.clone(),
        ]);
    };
    report.memory.iter().for_each(|rate| add("memory".into(), "GB/s", rate));
    report.l2.iter().for_each(|rate| add("L2".into(), "GB/s", rate));
    for arithmetic in &report.arithmetic {
        add(arithmetic.element.to_string(), "TFLOP/s", &arithmetic.rate);
    }
    table
}

/// Where a problem stands under the ceilings.
fn place(problem: &Problem, elements: Elements, limits: Limits) -> Result<Placed, Failure> {
    let bytes = operand_bytes(problem, elements)? as f64;
    let operations = problem.operations()? as f64;
    Ok(Placed::new(bytes, operations, limits))
}

fn properties(
    problem: &Problem,
    elements: Elements,
    placed: &Placed,
    plan: &Plan,
) -> Vec<(&'static str, String)> {
    let Placed { limits, .. } = placed;
    let source = |measured: bool| if measured { "measured" } else { "nominal, of an H200" };
    vec![
        ("problem", pgemm_bench::problem_name(problem, elements)),
        (
            "intensity",
            format!(
                "{:.0} operations a byte; memory and arithmetic take equally long at {:.0}",
                placed.intensity(),
                limits.ridge()
            ),
        ),
        (
            "memory",
            format!(
                "{:.2} µs for {:.1} MB at {:.0} GB/s ({})",
                placed.memory_seconds() * 1e6,
                placed.bytes / 1e6,
                limits.rates.bytes_per_second / 1e9,
                source(limits.memory_measured)
            ),
        ),
        (
            "arithmetic",
            format!(
                "{:.2} µs for {:.2} GFLOP at {:.0} TFLOP/s ({})",
                placed.arithmetic_seconds() * 1e6,
                placed.operations / 1e9,
                limits.rates.operations_per_second / 1e12,
                source(limits.arithmetic_measured)
            ),
        ),
        (
            "bound by",
            match placed.bound() {
                Regime::Launch => "the launch: the work itself takes less than a few launches",
                Regime::Memory => "memory",
                Regime::Compute => "arithmetic",
            }
            .to_owned(),
        ),
        ("kernel", pgemm_bench::choice_name(plan)),
        (
            "tiles",
            format!(
                "{} tiles in {:.2} waves on {} CTAs",
                plan.tiles * u64::from(plan.spec.cluster.size()),
                plan.waves,
                advice::ctas(plan)
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use persistent_gemm::Dtype;

    use super::*;

    #[test]
    fn problems_are_placed_by_their_types() {
        let elements = parse::elements(Dtype::Bf16, None, None, None);
        let limits = Limits::nominal(elements);
        let cube =
            Problem::new(4096, 4096, 4096, persistent_gemm::Major::K, persistent_gemm::Major::K);
        let placed = place(&cube, elements, limits).unwrap();
        assert_eq!(placed.bytes, 3.0 * 2.0 * 4096.0 * 4096.0);
        assert!((placed.intensity() - 4096.0 / 3.0).abs() < 1e-9);
        let plan = Plan::best(&cube, &parse::config(elements), USUAL_SMS).unwrap();
        let rows = properties(&cube, elements, &placed, &plan);
        let find = |name| &rows.iter().find(|row| row.0 == name).unwrap().1;
        assert_eq!(find("bound by"), "arithmetic");
        assert!(find("memory").contains("nominal, of an H200"), "{rows:?}");
        assert!(find("kernel").starts_with("bf16-"), "{rows:?}");
    }
}
