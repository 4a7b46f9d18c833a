//! `pgemm regression`: the frozen sample, measured in pairs against an older release.

use std::path::PathBuf;

use persistent_gemm::driver::Device;
use pgemm_bench::{Bench, Regression, RegressionReport, regression_sample};

use crate::failure::Failure;
use crate::suite::UnmeasuredProblem;
use crate::usage::UsageError;
use crate::{Verdict, output};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// libpersistent_gemm.so of the older release
    #[arg(long, value_name = "FILE")]
    old: PathBuf,

    /// libpersistent_gemm.so of the newer release
    #[arg(long, value_name = "FILE")]
    new: PathBuf,

    /// Only the problems whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Seconds of measurement for each pair of launches
    #[arg(long, value_name = "SECONDS", default_value_t = 1.2)]
    seconds: f64,

    /// Also write the rows to this file, as JSON, after each problem
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Ordinal of the CUDA device
    #[arg(long, default_value_t = 0)]
    device: u32,
}

const EXAMPLES: &str = "\
Examples:
  pgemm regression --old 0.1.0/lib/libpersistent_gemm.so --new target/release/libpersistent_gemm.so
  pgemm regression --old old.so --new new.so --only f64 --seconds 3

Exit status: 0 nothing is slower; 1 a result is wrong or refused, a ratio stays below 0.98, or their
geometric mean is below 0.995.";

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let mut sample = regression_sample()?;
    if let Some(text) = &args.only {
        sample.retain(|problem| problem.to_string().contains(text));
    }
    if sample.is_empty() {
        return Err(UsageError::NothingToMeasure.into());
    }
    let device = Device::new(args.device)?;
    let bench = Bench::new(&device)?;
    let regression = Regression::open(&bench, &args.old, &args.new, args.seconds)?;
    let mut report = regression.report();
    let progress = output::progress(sample.len());
    for problem in &sample {
        progress.set_message(problem.to_string());
        match regression.compare(problem) {
            Ok(row) => {
                if progress.is_hidden() {
                    output::note(format!("{}: {:.4}", row.problem, row.ratio.median));
                }
                report.compared.push(row);
            }
            Err(error) => {
                let left_out =
                    UnmeasuredProblem { what: problem.to_string(), why: error.to_string() };
                progress.suspend(|| output::note(&left_out));
                report.failed.push(left_out.to_string());
            }
        }
        progress.inc(1);
        if let Some(path) = &args.json {
            report.write(path)?;
        }
    }
    progress.finish_and_clear();
    print(&report)?;
    Ok(if report.nothing_is_slower() { Verdict::Fine } else { Verdict::Wrong })
}

fn print(report: &RegressionReport) -> Result<(), Failure> {
    let header = ["problem", "old µs", "new µs", "old / new", "spread", "first try"];
    let mut table = output::table(header, &header[1..]);
    for row in &report.compared {
        let ratio = &row.ratio;
        table.add_row([
            row.problem.clone(),
            format!("{:.2}", row.old_microseconds),
            format!("{:.2}", row.new_microseconds),
            format!("{:.4}", ratio.median),
            format!("{:.3}–{:.3}", ratio.min, ratio.max),
            row.first_ratio.map_or_else(|| "–".to_owned(), |first| format!("{first:.4}")),
        ]);
    }
    output::print(&table)?;
    for left_out in &report.failed {
        output::text(&format!("failed: {left_out}\n"))?;
    }
    if let (Some(mean), Some(worst)) = (report.geometric_mean(), report.worst()) {
        let [old, new] = &report.versions;
        output::text(&format!(
            "{} problems, {old} against {new}: geometric mean {mean:.4}; worst {:.4}, {}\n",
            report.compared.len(),
            worst.ratio.median,
            worst.problem,
        ))?;
    }
    Ok(())
}
