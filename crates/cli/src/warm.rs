//! `pgemm warm`: prepares the problems of a program in advance.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::ArgGroup;
use persistent_gemm::driver::Device;
use persistent_gemm::{Gemm, WarmUp};

use crate::failure::Failure;
use crate::layers::{self, Layers, ProblemArgs};
use crate::{Verdict, output};

const EXAMPLES: &str = "

Examples:
  pgemm warm --model shapes.json
  pgemm warm --problem 1x4096x4096 --problem 8192x4096x4096 --dtype bf16";

#[derive(clap::Args)]
#[command(
    after_help = [layers::FORMAT, EXAMPLES].concat(),
    group = ArgGroup::new("problems").args(["problem", "model"]).required(true).multiple(true)
)]
pub struct Args {
    #[command(flatten)]
    problems: ProblemArgs,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The file cannot be read, there is no device, or a problem cannot be prepared.
pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let work = args.problems.read()?;
    let device = Device::new(args.device)?;
    let mut rows = BTreeMap::new();
    for Layers { config, elements, problems } in work {
        let begin = Instant::now();
        let gemm = Gemm::create(&device, config)?;
        let progress = output::progress(problems.len());
        let warm = gemm.warm_up(&problems, |done, all| {
            progress.set_length(all as u64);
            progress.set_position(done as u64);
        })?;
        progress.finish_and_clear();
        rows.insert(elements.a.to_string(), (warm, begin.elapsed()));
    }
    if args.json {
        let row = |(dtype, (warm, time)): (&String, &(WarmUp, Duration))| {
            serde_json::json!({
                "dtype": dtype,
                "problems": warm.problems,
                "kernels": warm.kernels,
                "assembled": warm.assembled,
                "seconds": time.as_secs_f64(),
            })
        };
        output::json(&rows.iter().map(row).collect::<Vec<_>>())?;
        return Ok(Verdict::Fine);
    }
    let mut table = output::table(
        ["type", "problems", "kernels", "assembled in advance", "time"],
        &["problems", "kernels", "assembled in advance", "time"],
    );
    for (dtype, (warm, time)) in &rows {
        table.add_row([
            dtype.clone(),
            warm.problems.to_string(),
            warm.kernels.to_string(),
            warm.assembled.to_string(),
            output::seconds(*time),
        ]);
    }
    output::print(&table)?;
    Ok(Verdict::Fine)
}
