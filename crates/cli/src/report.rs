//! `pgemm report`: results as a page for a browser.

use std::path::PathBuf;

use pgemm_bench::Collection;

use crate::output;
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// Files of results, and which of their runs count.
#[derive(clap::Args)]
pub struct Inputs {
    /// Results of pgemm bench, atlas, numbers, regression (--json) or autotune, or lines in the
    /// format of benchmarks/results.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Of files with several runs, only those with this name, in which * stands for any text; may
    /// be given several times.
    #[arg(long, value_name = "NAME", value_parser = glob::Pattern::new)]
    run: Vec<glob::Pattern>,
}

impl Inputs {
    /// Reads the files.
    pub fn read(&self) -> Result<Collection, Failure> {
        let wanted =
            |run: &str| self.run.is_empty() || self.run.iter().any(|name| name.matches(run));
        let collection = Collection::read(&self.files, wanted)?;
        if collection.is_empty() {
            return Err(UsageError::NoResults.into());
        }
        Ok(collection)
    }
}

/// Arguments of `pgemm report`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm report suite.json atlas.jsonl -o report.html
  pgemm report benchmarks/results/atlas.jsonl --run '2026-11-28-atlas-h200-*' -o report.html")]
pub struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// The page.
    #[arg(short, long = "out", value_name = "FILE")]
    out: PathBuf,
    /// Heading of the page.
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    // Reading and drawing may take long: a page that cannot be written is refused before.
    persistent_gemm::files::check_path(&args.out)?;
    let collection = args.inputs.read()?;
    let page = collection.page(args.title.as_deref())?;
    persistent_gemm::files::write(&args.out, page.as_bytes())?;
    let rows = collection.len();
    output::note(format_args!(
        "{rows} results of {} runs are in {}, which any browser shows",
        collection.runs.len(),
        args.out.display()
    ));
    Ok(Verdict::Fine)
}
