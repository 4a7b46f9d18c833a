//! `pgemm bench`: our kernel in pairs with cuBLASLt at steady power.

use std::path::PathBuf;
use std::sync::Arc;

use persistent_gemm::bench::{
    Bench, Contestant, CublasLt, CublasLtContestant, Elements, GemmContestant, Outcome, Protocol,
    Report,
};
use persistent_gemm::driver::Device;
use persistent_gemm::{Dtype, Gemm, Major, Problem};

use crate::output;
use crate::parse::{self, Knobs};
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// Measure speed and energy.
///
/// Inputs are N(0,1); every contestant is verified first; contestants alternate A B B A at
/// steady power, and the ratio of their times is the result. See docs/benchmarking.md.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm bench --size 8192 --dtype bf16 --against cublaslt
  pgemm bench --problem 128x4096x14336 --problem 64x7168x16384 --against cublaslt --json decode.json")]
pub struct Args {
    /// A cube of this size; may be given several times.
    #[arg(long, value_name = "N")]
    size: Vec<usize>,
    /// A problem size; may be given several times.
    #[arg(long, value_name = "MxNxK", value_parser = parse::problem)]
    problem: Vec<[usize; 3]>,
    /// Element type of A and B.
    #[arg(long, value_parser = parse::dtype, default_value = "bf16")]
    dtype: Dtype,
    /// Element type of C and D [default: that of A and B].
    #[arg(long, value_parser = parse::dtype)]
    output_dtype: Option<Dtype>,
    /// Contiguous dimension of A: k or m.
    #[arg(long, value_parser = parse::a_major, default_value = "k")]
    a_major: Major,
    /// Contiguous dimension of B: k or n.
    #[arg(long, value_parser = parse::b_major, default_value = "k")]
    b_major: Major,
    /// Whom to run against.
    #[arg(long, value_enum, value_name = "PEER")]
    against: Option<Peer>,
    /// Also measure this kernel beside the planner's pick; may be given several times.
    #[arg(long, value_name = "SPEC")]
    also: Vec<pgemm_kernels::KernelSpec>,
    /// Seconds of measurement for each problem.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Also write every number that was read to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    #[command(flatten)]
    knobs: Knobs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Peer {
    /// cuBLASLt's first pick, loaded at run time.
    Cublaslt,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let cubes = args.size.iter().map(|&size| [size; 3]);
    let problems: Vec<[usize; 3]> = cubes.chain(args.problem.iter().copied()).collect();
    if problems.is_empty() {
        return Err(UsageError::NothingToMeasure.into());
    }
    let device = Device::new(args.device)?;
    let bench = Bench::new(&device)?;
    let cublaslt = match args.against {
        Some(Peer::Cublaslt) => Some(CublasLt::open(&device)?),
        None => None,
    };
    let output = args.output_dtype.unwrap_or(args.dtype);
    let mut report = Report::new(bench.machine(cublaslt.as_ref()));
    let progress = output::progress(problems.len());
    for [m, n, k] in problems {
        progress.set_message(format!("{m}x{n}x{k}"));
        let problem = Problem::new(m, n, k, args.a_major, args.b_major);
        let outcome = measure(args, &bench, cublaslt.as_ref(), &problem, output)?;
        report.outcomes.push(outcome);
        // After each problem, so that an interruption loses one at most.
        if let Some(path) = &args.json {
            report.write(path)?;
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    print(&report)?;
    Ok(Verdict::Fine)
}

fn measure(
    args: &Args,
    bench: &Bench,
    cublaslt: Option<&CublasLt>,
    problem: &Problem,
    output: Dtype,
) -> Result<Outcome, Failure> {
    let elements = Elements { a: args.dtype, b: args.dtype, d: output };
    let operands = Arc::new(bench.operands(problem, elements, 1)?);
    let gemm = Gemm::create(bench.device(), args.knobs.config(args.dtype, output))?;
    let mut ours = vec![GemmContestant::new(&gemm, &operands)?];
    for spec in &args.also {
        let config = persistent_gemm::Config {
            raster_rows: args.knobs.raster_rows,
            ..persistent_gemm::Config::for_spec(*spec)
        };
        ours.push(GemmContestant::new(&Gemm::create(bench.device(), config)?, &operands)?);
    }
    let contestants = ours.len() + usize::from(cublaslt.is_some());
    let protocol = Protocol::within(args.seconds, contestants);
    let mut ours: Vec<&mut dyn Contestant> =
        ours.iter_mut().map(|contestant| contestant as &mut dyn Contestant).collect();
    Ok(match cublaslt {
        Some(library) => {
            let mut peer = CublasLtContestant::first_pick(library, &operands)?;
            bench.compare_many(&operands, &mut ours, &mut peer, &protocol)?
        }
        None => {
            let (first, rest) = ours.split_first_mut().ok_or("no kernel to measure")?;
            bench.compare_many(&operands, rest, *first, &protocol)?
        }
    })
}

fn print(report: &Report) -> Result<(), Failure> {
    let mut table = output::table(
        [
            "problem",
            "contestant",
            "µs",
            "TFLOP/s",
            "J",
            "MHz",
            "W",
            "peer's time / its own",
            "spread",
        ],
        &["µs", "TFLOP/s", "J", "MHz", "W", "peer's time / its own"],
    );
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
    };
    for outcome in &report.outcomes {
        for (index, contestant) in outcome.contestants.iter().enumerate() {
            let ratio = &contestant.ratio;
            let (ratio, spread) = if index == outcome.peer {
                ("peer".to_owned(), "–".to_owned())
            } else {
                (format!("{:.4}", ratio.median), format!("{:.3}–{:.3}", ratio.min, ratio.max))
            };
            table.add_row([
                outcome.name.clone(),
                contestant.name.clone(),
                format!("{:.2}", contestant.microseconds.median),
                format!("{:.1}", contestant.teraflops),
                number(contestant.joules.map(|joules| joules.median), 4),
                number(contestant.sm_clock_mhz, 0),
                number(contestant.watts, 0),
                ratio,
                spread,
            ]);
        }
    }
    output::print(&table)
}
