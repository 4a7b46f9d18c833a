//! `pgemm numbers`: the errors of results against a reference of higher precision, by type, mode,
//! values and size.

mod bits;

use std::path::PathBuf;

use comfy_table::Table;
use persistent_gemm::host::{BackendKind, Executor};
use persistent_gemm::measure::Elements;
use persistent_gemm::{Dtype, Major, Problem, threads};
use pgemm_bench::{Errors, KINDS, Kind, NumbersBackend, NumbersReport, Sample, Values};

use crate::memory;
use crate::output;
use crate::parse;
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// Arguments of `pgemm numbers`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm numbers --against cublaslt --json numbers.json
  pgemm numbers --dtype bf16,f16 --problem 1024x1024x16384 --against cublaslt
  pgemm numbers --dtype e4m3 --values uniform --backend emulator
  pgemm numbers --bits --dtype bf16,e4m3")]
pub struct Args {
    /// Only products with an A of these element types, separated by commas.
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype, value_delimiter = ',')]
    dtype: Vec<Dtype>,
    /// Only these values, separated by commas: normal, uniform, wide or integers.
    #[arg(long, value_name = "VALUES", value_parser = values, value_delimiter = ',')]
    values: Vec<Values>,
    /// A problem size; may be given several times [default: 1024x1024x1024, 1024x1024x16384 and
    /// 1024x1024x131072, or 128x128x256 and 128x128x4096 without a GPU].
    #[arg(long, value_name = "MxNxK", value_parser = parse::problem)]
    problem: Vec<[usize; 3]>,
    /// Also show the errors of this library, on the same operands.
    #[arg(long, value_enum, value_name = "PEER")]
    against: Option<Peer>,
    /// auto, cuda, emulator or cpu. auto is cuda on a Hopper device, else cpu.
    #[arg(long, default_value = "auto")]
    backend: BackendKind,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Instead, show which properties of kernels change the bits of results: kernels that differ by
    /// one property each compute the same product of normal samples, or of integers.
    #[arg(long, conflicts_with_all = ["against", "values"])]
    bits: bool,
    /// Seed of the values.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Also write every figure to this file, as JSON, after each product.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Peer {
    /// cuBLASLt's first pick, loaded at run time.
    Cublaslt,
}

/// Default sizes on a GPU, with long sums.
const ON_DEVICE: [[usize; 3]; 3] =
    [[1024, 1024, 1024], [1024, 1024, 16_384], [1024, 1024, 131_072]];
const ON_HOST: [[usize; 3]; 2] = [[128, 128, 256], [128, 128, 4096]];

fn values(text: &str) -> Result<Values, String> {
    Values::ALL.into_iter().find(|values| values.name() == text).ok_or_else(|| {
        let names = Values::ALL.map(Values::name).join(", ");
        format!("'{text}' is no kind of values: use {names}")
    })
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    threads::start_pool()?;
    if args.bits {
        return bits::run(args);
    }
    let work = args.work();
    if work.is_empty() {
        return Err(UsageError::NoSuchNumbers.into());
    }
    let mut backend = NumbersBackend::find(args.backend, args.device, args.against.is_some())?;
    if let NumbersBackend::Host(Executor::Cpu { because: Some(reason) }) = &backend {
        output::note(format_args!("using the cpu backend: {reason}"));
    }
    let problems = match (&args.problem[..], &backend) {
        ([], NumbersBackend::Device { .. }) => &ON_DEVICE[..],
        ([], NumbersBackend::Host(_)) => &ON_HOST[..],
        (given, _) => given,
    };
    let mut report = NumbersReport::new(&backend, args.seed);
    let progress = output::progress(work.len() * problems.len());
    for &(kind, values) in &work {
        for &problem in problems {
            let [m, n, k] = problem;
            progress.set_message(format!("{}*{} {} {m}x{n}x{k}", kind.a, kind.b, values.name()));
            measure(args, &mut backend, kind, values, problem, &mut report)?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    for reason in left_out(&report) {
        output::note(reason);
    }
    output::print(&table(&report))?;
    Ok(if all_ours_within(&report) { Verdict::Fine } else { Verdict::Wrong })
}

impl Args {
    /// Types and the values of their matrices.
    fn work(&self) -> Vec<(&'static Kind, Values)> {
        let kinds =
            KINDS.iter().filter(|kind| self.dtype.is_empty() || self.dtype.contains(&kind.a));
        let requested = |values: &Values| self.values.is_empty() || self.values.contains(values);
        let pairs =
            kinds.flat_map(|kind| Values::ALL.into_iter().map(move |values| (kind, values)));
        pairs.filter(|(kind, values)| requested(values) && values.suit(kind.a)).collect()
    }
}

/// Measures all variants of a kind, on the same matrices.
fn measure(
    args: &Args,
    backend: &mut NumbersBackend,
    kind: &Kind,
    values: Values,
    extents: [usize; 3],
    report: &mut NumbersReport,
) -> Result<(), Failure> {
    let [m, n, k] = extents;
    let problem = Problem::new(m, n, k, Major::K, Major::K);
    problem.validate()?;
    let largest = kind.outputs.first().copied().unwrap_or(kind.a);
    let elements = Elements { b: kind.b, ..Elements::new(kind.a, largest) };
    memory::check(&problem, elements, memory::Purpose { verify: true, ..Default::default() })?;
    let sample = Sample::new(kind, values, extents, args.seed)?;
    let modes = backend.has_modes();
    for variant in kind.variants().iter().filter(|variant| modes || variant.mode().is_none()) {
        report.entries.push(sample.measure(backend, variant)?);
        if let Some(path) = &args.json {
            report.write(path)?;
        }
    }
    Ok(())
}

/// Why cuBLASLt is missing, each reason once.
fn left_out(report: &NumbersReport) -> Vec<&str> {
    let mut reasons: Vec<&str> =
        report.entries.iter().filter_map(|entry| entry.left_out.as_deref()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    reasons
}

/// Whether each of our results is within its bound, as far as there is one.
fn all_ours_within(report: &NumbersReport) -> bool {
    let ours = report.entries.iter().filter_map(|entry| entry.results.first());
    ours.into_iter().all(|ours| ours.errors.within_bound != Some(false))
}

fn table(report: &NumbersReport) -> Table {
    let mut table = output::table(
        ["product", "values", "by", "normwise", "elementwise", "bias", "of bound", "not finite"],
        &["normwise", "elementwise", "bias", "of bound", "not finite"],
    );
    for entry in &report.entries {
        for measured in &entry.results {
            let errors = &measured.errors;
            table.add_row([
                entry.name.clone(),
                entry.values.name().to_owned(),
                measured.name.clone(),
                figure(errors.normwise),
                figure(errors.elementwise),
                figure(errors.bias),
                of_bound(errors),
                (errors.overflowed + errors.not_a_number).to_string(),
            ]);
        }
    }
    table
}

/// The part of the bound that was used, for people.
fn of_bound(errors: &Errors) -> String {
    let part = errors.of_bound.map_or_else(|| "infinite".to_owned(), figure);
    match errors.within_bound {
        None => "–".to_owned(),
        Some(true) => part,
        Some(false) => format!("{part}, WRONG"),
    }
}

/// Two digits of a number that may be of any size.
fn figure(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}
