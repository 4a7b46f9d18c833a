//! The command `pgemm`: multiply, measure, look into kernels and layouts.

mod ahead;
mod atlas;
mod autotune;
mod bench;
mod blocks;
mod compare;
mod cubins;
mod doctor;
mod failure;
mod interrupt;
mod kernel;
mod layers;
mod layout;
mod memory;
mod numbers;
mod output;
mod pack;
mod parse;
mod plot;
mod regression;
mod report;
mod roofline;
mod run;
mod shell;
mod startup;
mod stream;
mod suite;
mod usage;
mod warm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{Failure, exit_status};

/// Persistent dense GEMM for NVIDIA Hopper: D = alpha·A·B + beta·C.
#[derive(Parser)]
#[command(name = "pgemm", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pgemm run --m 4096 --n 4096 --k 4096 --dtype bf16 --verify
  pgemm run --a A.npy --b B.npy --out D.npy
  pgemm bench --size 8192 --dtype bf16 --against cublaslt
  pgemm atlas --population eights --count 100 --seed 5 --against cublaslt
  pgemm report suite.json -o report.html
  pgemm compare old.json new.json
  pgemm plot suite.json -o throughput.svg
  pgemm numbers --dtype bf16 --against cublaslt
  pgemm autotune --problem 16384x16384x4096 --dtype bf16
  pgemm warm --model shapes.json
  pgemm pack --model shapes.json --out shapes.pgemm
  pgemm kernel list
  pgemm layout '((2,4),8):((1,2),16)' --coalesce
  pgemm doctor

Exit status: 0 all well; 1 a verification failed; 2 wrong usage, or an input that cannot be used;
130 interrupted.";

#[derive(Subcommand)]
enum Command {
    /// Multiply random or given matrices on the GPU, the emulator or the CPU.
    ///
    /// D = alpha·A·B + beta·C with fp32 accumulation, or exactly with integers. A is M×K, B is K×N,
    /// C and D are M×N.
    Run(Box<run::Args>),
    /// Measure speed and energy, optionally against cuBLASLt.
    ///
    /// Inputs are N(0,1), or integers of the full range. Every contestant is verified first.
    /// Contestants alternate A B B A at steady power, and the ratio of their times is the result.
    /// With --bandwidth, times are also compared with the time to read the memory. See
    /// docs/benchmarking.md.
    Bench(Box<bench::Args>),
    /// Measure whole populations of problems: drawn ones, and those of published models.
    ///
    /// Each problem is verified and timed briefly beside cuBLASLt and torch. Results are geometric
    /// means by population and by what bounds a problem: launch, memory or arithmetic.
    Atlas(Box<atlas::Args>),
    /// Show results as a page for a browser: ratios, throughput, roofline, energy, errors.
    ///
    /// The page is one file that loads nothing.
    Report(report::Args),
    /// Compare two files of results, and tell what has become slower.
    Compare(compare::Args),
    /// Measure the ceilings of this card, and tell what bounds problems and what to try.
    ///
    /// Memory, L2, and the tensor cores of each type. Problems are placed under the ceilings, with
    /// the planner's kernel and advice on its knobs.
    Roofline(Box<roofline::Args>),
    /// Draw results: throughput over size, or microseconds per job over the work of a job.
    ///
    /// Results of `bench --stream` alone give the second.
    Plot(plot::Args),
    /// Measure the errors of results against a reference of higher precision, optionally next to
    /// cuBLASLt's.
    ///
    /// Every type and mode, on N(0,1), uniform [0,1), values of wide range, and integers, over
    /// short and long sums. The exit status is 1 if a result of pgemm is outside of its derived
    /// bound. See docs/numbers.md.
    Numbers(numbers::Args),
    /// Measure a release against an older one on the frozen regression sample.
    ///
    /// Both are given as shared libraries of the C interface. They run in pairs in one process, on
    /// the same operands, and are verified before they are timed. A pair that seems slower is
    /// measured again.
    Regression(regression::Args),
    /// Find the fastest kernels by measuring, and use them from now on.
    ///
    /// Candidates are raced against the heuristic's pick, the better half continues, and fresh
    /// rounds decide. A candidate is taken only if it is significantly faster. Results are written
    /// after each problem. See docs/autotuning.md.
    Autotune(autotune::Args),
    /// Look into the kernels, also one's own in files: list, plan, show, explain, PTX, check, load,
    /// emulate.
    #[command(subcommand)]
    Kernel(kernel::Command),
    /// Choose and assemble the kernels that are shipped with a release.
    ///
    /// For people who make releases. See docs/architecture.md.
    #[command(subcommand)]
    Cubins(cubins::Command),
    /// Prepare problems in advance, so that their kernels are compiled when a program needs them.
    ///
    /// Kernels that were assembled in advance need nothing. All others are compiled in several
    /// processes and stay in the driver's cache on this machine.
    Warm(warm::Args),
    /// Write what the tuner found, and kernels for given problems, assembled, into one file.
    ///
    /// Processes that load the file compile none of these kernels: set the environment variable
    /// PGEMM_PACKS to its path, or load it in the program. It is for devices of the same kind, and
    /// for versions of the library that generate the same kernels. Kernels that this version is not
    /// shipped with are assembled by ptxas: set PGEMM_PTXAS to its path (scripts/ptxas.sh installs
    /// one).
    Pack(pack::Args),
    /// Measure how long new processes take until their products are ready.
    ///
    /// Both kernel caches are empty. The first product, new values of m in a linear layer, and the
    /// layers of four language models are prepared with the kernels that were assembled in advance,
    /// and without them.
    Startup(startup::Args),
    /// Compute with CuTe layouts and draw them.
    ///
    /// The last line printed is the resulting layout in CuTe's notation.
    Layout(layout::Args),
    /// Show what pgemm would use on this machine, and why.
    Doctor(doctor::Args),
    /// Print a script by which a shell completes commands and options.
    Completions(shell::CompletionArgs),
    /// Write manual pages, one for each command.
    Man(shell::ManArgs),
}

/// The result of a command.
enum Verdict {
    Fine,
    /// Something was computed and found wrong.
    Wrong,
    /// The user pressed Ctrl-C.
    Interrupted,
}

fn main() -> ExitCode {
    interrupt::watch();
    // Where kernels are compiled ahead, processes of this command do it.
    if let Ok(program) = std::env::current_exe() {
        persistent_gemm::ahead::set_program(program);
    }
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PGEMM_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .with_ansi(output::has_colours())
        .without_time()
        .with_target(false)
        .init();
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Atlas(args) => atlas::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Roofline(args) => roofline::run(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Numbers(args) => numbers::run(&args),
        Command::Regression(args) => regression::run(&args),
        Command::Autotune(args) => autotune::run(&args),
        Command::Kernel(command) => kernel::run(&command),
        Command::Cubins(command) => cubins::run(&command),
        Command::Pack(args) => pack::run(&args),
        Command::Startup(args) => startup::run(&args),
        Command::Warm(args) => warm::run(&args),
        Command::Layout(args) => layout::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    };
    match result {
        Ok(Verdict::Fine) => ExitCode::SUCCESS,
        Ok(Verdict::Wrong) => ExitCode::from(1),
        Ok(Verdict::Interrupted) => ExitCode::from(interrupt::STATUS),
        Err(error) => {
            output::note(&error);
            ExitCode::from(exit_status(&*error))
        }
    }
}
