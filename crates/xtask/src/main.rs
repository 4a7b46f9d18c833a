//! Tasks of the repository that need more than a shell script. `cargo xtask dist` makes the release
//! package, `cargo xtask check-elf` checks which systems can load a program or a library, and
//! `cargo xtask mutants` judges the tests by planted faults.

mod archive;
mod build;
mod commands;
mod dist;
mod elf;
mod error;
mod files;
mod inventory;
mod licences;
mod mutants;
mod package;
mod release;
mod sbom;
mod target;
mod templates;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::Error;
use target::Target;

/// Tasks of the repository persistent-gemm.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make the release package persistent_dense_gemm_hopper-linux-….tar.gz.
    Dist(dist::Args),
    /// Plant faults in the crates, and say which of them the tests notice.
    Mutants(mutants::Args),
    /// Check that programs and shared libraries can be loaded on the systems that a package is for.
    CheckElf {
        /// Machine that the files are for.
        #[arg(long, value_enum, default_value_t)]
        target: Target,
        /// Programs and shared libraries.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Dist(args) => dist::make(&args),
        Task::Mutants(args) => mutants::judge(&args),
        Task::CheckElf { target, files } => check_elf(target, &files),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check_elf(target: Target, files: &[PathBuf]) -> Result<(), Error> {
    for file in files {
        let glibc = build::check_elf(file, target)?;
        println!("{}: {glibc}", file.display());
    }
    Ok(())
}
