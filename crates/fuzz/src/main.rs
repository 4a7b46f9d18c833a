//! `pgemm-fuzz`: runs targets on mutated inputs.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use pgemm_fuzz::targets::{TARGETS, Target};

/// Feed parsers with mutated inputs. An input that makes one fail is printed; keep it in the
/// target's folder of crates/fuzz/corpus.
#[derive(Parser)]
struct Args {
    /// Targets by name [default: all].
    targets: Vec<String>,
    /// Mutated inputs for each target.
    #[arg(long, default_value_t = 1_000_000)]
    executions: u64,
    /// Seed of the mutations.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let wanted = |target: &&Target| {
        args.targets.is_empty() || args.targets.iter().any(|name| name == target.name)
    };
    for name in &args.targets {
        if !TARGETS.iter().any(|target| target.name == name) {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("pgemm-fuzz: there is no target '{name}': use {}", names.join(", "));
            return ExitCode::from(2);
        }
    }
    let is_seen = io::stderr().is_terminal();
    for target in TARGETS.iter().filter(wanted) {
        let begin = Instant::now();
        pgemm_fuzz::run(target, args.seed, args.executions, |done| {
            if is_seen && done % 100_000 == 0 {
                // Nobody has to see it.
                let _ = write!(io::stderr(), "\r{}: {done} of {} ", target.name, args.executions);
            }
        });
        if is_seen {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{}: {} executions with seed {}, {seconds:.1} s",
            target.name, args.executions, args.seed
        );
    }
    ExitCode::SUCCESS
}
