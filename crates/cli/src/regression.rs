//! `pgemm regression`: the frozen sample, measured in pairs against an older release.

use std::path::PathBuf;

use persistent_gemm::driver::Device;
use persistent_gemm::files;
use pgemm_bench::{
    Bench, LEAST_MEAN, LEAST_RATIO, Machine, Regression, RegressionRow, regression_sample,
};
use serde::Serialize;

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

/// The content of the JSON file.
#[derive(Serialize)]
struct Report<'a> {
    machine: Machine,
    versions: [String; 2],
    geometric_mean: Option<f64>,
    rows: &'a [RegressionRow],
    failed: Vec<String>,
}

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
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    let progress = output::progress(sample.len());
    for problem in &sample {
        progress.set_message(problem.to_string());
        match regression.compare(problem) {
            Ok(row) => {
                if progress.is_hidden() {
                    output::note(format!("{}: {:.4}", row.problem, row.ratio.median));
                }
                rows.push(row);
            }
            Err(error) => {
                let left_out =
                    UnmeasuredProblem { what: problem.to_string(), why: error.to_string() };
                progress.suspend(|| output::note(&left_out));
                failed.push(left_out);
            }
        }
        progress.inc(1);
        if let Some(path) = &args.json {
            let report = Report {
                machine: bench.machine(None),
                versions: regression.versions(),
                geometric_mean: geometric_mean(&rows),
                rows: &rows,
                failed: failed.iter().map(ToString::to_string).collect(),
            };
            files::write_json(path, &report)?;
        }
    }
    progress.finish_and_clear();
    print(&regression, &rows, &failed)?;
    let slower = rows.iter().any(|row| row.ratio.median < LEAST_RATIO);
    let fine = geometric_mean(&rows).is_some_and(|mean| mean >= LEAST_MEAN);
    Ok(if fine && !slower && failed.is_empty() { Verdict::Fine } else { Verdict::Wrong })
}

fn geometric_mean(rows: &[RegressionRow]) -> Option<f64> {
    let logarithms: f64 = rows.iter().map(|row| row.ratio.median.ln()).sum();
    (!rows.is_empty()).then(|| (logarithms / rows.len() as f64).exp())
}

fn print(
    regression: &Regression<'_>,
    rows: &[RegressionRow],
    failed: &[UnmeasuredProblem],
) -> Result<(), Failure> {
    let header = ["problem", "old µs", "new µs", "old / new", "spread", "first try"];
    let mut table = output::table(header, &header[1..]);
    for row in rows {
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
    for left_out in failed {
        output::text(&format!("failed: {left_out}\n"))?;
    }
    if let Some(mean) = geometric_mean(rows) {
        let [old, new] = regression.versions();
        let worst = rows.iter().min_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median));
        let worst = worst.map_or_else(String::new, |row| {
            format!("; worst {:.4}, {}", row.ratio.median, row.problem)
        });
        output::text(&format!(
            "{} problems, {old} against {new}: geometric mean {mean:.4}{worst}\n",
            rows.len()
        ))?;
    }
    Ok(())
}
