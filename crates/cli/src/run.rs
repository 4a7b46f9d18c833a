//! `pgemm run`: multiplies random or given matrices, and verifies the product on request.

mod conversion;
mod inputs;

use persistent_gemm::host::{BackendKind, Executor, HostBatch, Product, multiply};
use persistent_gemm::measure::Elements;
use persistent_gemm::{
    Accumulation, Comparison, Config, Dtype, Epilogue, ErrorModel, HostMatrix, Major, Operands,
    Plan, Precision, Problem, Reference, threads,
};
use pgemm_bench::{Case, CaseOutcome, CaseSize};
use pgemm_files::Location;
use serde_json::json;

use crate::blocks;
use crate::memory::{self, Purpose};
use crate::output;
use crate::parse::{self, Knobs, Strides};
use crate::{Failure, Verdict};

use conversion::converted;
use inputs::{InputMatrices, Source, bias, elements, generate, read, usual_operands};

/// Arguments of `pgemm run`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm run --m 4096 --n 4096 --k 4096 --dtype bf16 --verify
  pgemm run --m 512 --n 512 --k 512 --dtype e4m3 --b-dtype e5m2 --verify
  pgemm run --m 512 --n 512 --k 64 --batch 96 --batch-stride-b 0 --verify
  pgemm run --a A.npy --b B.npy --out D.npy --dtype f16
  pgemm run --a weights.safetensors:w1 --b X.npy --out D.safetensors:y
  pgemm run --a X.npy --b W.npy --bias b.npy --epilogue 'bias_n|gelu' --out Y.npy
  pgemm run --case 27 --backend emulator")]
pub struct Args {
    /// Rows of random A and of D.
    #[arg(long, requires = "n", requires = "k", conflicts_with = "a")]
    m: Option<usize>,
    /// Columns of random B and of D.
    #[arg(long, requires = "m", requires = "k", conflicts_with = "a")]
    n: Option<usize>,
    /// Columns of random A, rows of random B.
    #[arg(long, requires = "m", requires = "n", conflicts_with = "a")]
    k: Option<usize>,
    /// Random products of this size that are computed together.
    #[arg(long, value_name = "COUNT", requires = "m", conflicts_with_all = ["a", "out"], default_value_t = 1)]
    batch: usize,
    #[command(flatten)]
    strides: Strides,
    /// A from a file: A.npy, or FILE.safetensors:TENSOR.
    #[arg(long, value_name = "FILE", requires = "b")]
    a: Option<Location>,
    /// B from a file.
    #[arg(long, value_name = "FILE", requires = "a")]
    b: Option<Location>,
    /// C from a file; beta is then 1 unless given.
    #[arg(long, value_name = "FILE", requires = "a")]
    c: Option<Location>,
    /// The bias from a file, of shape (n,), (1, n) or (n, 1), where --epilogue has one
    /// [default: random].
    #[arg(long, value_name = "FILE", requires = "epilogue")]
    bias: Option<Location>,
    /// File for D: D.npy, or FILE.safetensors:TENSOR.
    #[arg(long, value_name = "FILE")]
    out: Option<Location>,
    /// Element type of A: bf16, f16, tf32, f32, e4m3, e5m2, s8, u8 or f64 [default: those of the
    /// files if there are kernels for them, f32 if one file is f32 and the other a 16-bit float,
    /// else bf16].
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype)]
    dtype: Option<Dtype>,
    /// Element type of B, if A's is given [default: that of A].
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype, requires = "dtype")]
    b_dtype: Option<Dtype>,
    /// Element type of C and D: the operands' or f32; f32 for tf32, bf16, f16, f32, e4m3 or e5m2
    /// for e4m3 and e5m2, s32, f32, f16, bf16 or s8 for s8 and u8, f64 for f64 [default: the first
    /// of these, or f32 if the file format lacks it].
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype)]
    output_dtype: Option<Dtype>,
    /// How 8-bit floats are added up: full, or fast (by the tensor core all along k); f16: full, or
    /// in f16; f32: exact, or split into terms for the tensor cores: tf32x3, f16x3, bf16x6 or
    /// bf16x9 [default: that of --spec, else full].
    #[arg(long, value_name = "PRECISION")]
    precision: Option<Precision>,
    /// Contiguous dimension of random A: k or m.
    #[arg(long, value_name = "MAJOR", value_parser = parse::a_major, default_value = "k", conflicts_with = "a")]
    a_major: Major,
    /// Contiguous dimension of random B: k or n [default: n for bf16, f16 and f64, k for all
    /// others].
    #[arg(long, value_name = "MAJOR", value_parser = parse::b_major, conflicts_with = "a")]
    b_major: Option<Major>,
    /// Contiguous dimension of D, and of random C: n (row-major) or m (column-major).
    #[arg(long, value_name = "MAJOR", value_parser = parse::d_major, default_value = "n")]
    d_major: Major,
    /// Factor of A·B.
    #[arg(long, default_value_t = 1.0, allow_hyphen_values = true)]
    alpha: f64,
    /// Factor of C; if it is 0, C is not read [default: 0, or 1 with --c].
    #[arg(long, allow_hyphen_values = true)]
    beta: Option<f64>,
    /// auto, cuda, emulator or cpu. auto is cuda on a Hopper device, else cpu.
    #[arg(long, default_value = "auto")]
    backend: BackendKind,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Compute out of core, in blocks within this much device memory, such as 2GiB, for matrices
    /// that do not fit on the device.
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    device_memory: Option<u64>,
    /// A random product instead, which a seed describes in all, as the tests draw them: types,
    /// majors, strides, addresses, extents, alpha and beta, knobs. It is always verified.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["m", "a", "out", "dtype", "output_dtype", "precision", "alpha", "beta",
        "a_major", "b_major", "d_major", "device_memory", "seed", "verify", "json", "Knobs"])]
    case: Option<u64>,
    /// Size of the random case of --case: small (a few tiles) or large [default: large on a GPU,
    /// else small].
    #[arg(long, value_name = "SIZE", requires = "case")]
    case_size: Option<CaseSize>,
    /// Seed of random matrices.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Compare D with a double-precision reference, element by element, within derived bounds.
    #[arg(long)]
    verify: bool,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    knobs: Knobs,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    if let Some(seed) = args.case {
        return run_case(args, seed);
    }
    if let Some(out) = &args.out {
        pgemm_files::check_writable(out)?;
    }
    let source = Source::of(args)?;
    let executor = args.backend.find(args.device)?;
    if let Executor::Cpu { because: Some(reason) } = &executor {
        output::note(format_args!("using the cpu backend: {reason}"));
    }
    threads::start_pool()?;
    let emulated = matches!(executor, Executor::Emulator);
    let purpose = Purpose { verify: args.verify, emulated, ..Purpose::default() };
    let (matrices, elements) = match source {
        Source::Files { a, b } => {
            let (a, b) = (pgemm_files::read(a)?, pgemm_files::read(b)?);
            let elements = elements(args, usual_operands([a.dtype(), b.dtype()]))?;
            let matrices = read(args, a, b)?;
            let holds = |matrices: &[HostMatrix], dtype| {
                matrices.iter().all(|matrix| matrix.dtype() == dtype)
            };
            let InputMatrices { a, b, c, .. } = &matrices;
            let loaded = [holds(a, elements.a), holds(b, elements.b), holds(c, elements.d)];
            memory::check(&matrices.problem, elements, Purpose { loaded, ..purpose })?;
            (matrices, elements)
        }
        Source::Random { extents } => {
            let elements = elements(args, [Dtype::Bf16; 2])?;
            (generate(args, extents, elements, purpose)?, elements)
        }
    };
    let config = args.knobs.config(elements);
    let matrices = InputMatrices { bias: bias(args, &config, &matrices.problem)?, ..matrices };
    if let Executor::Cpu { .. } = executor {
        args.knobs.check_without_kernel(&matrices.problem, &config)?;
    }

    let a = converted(&matrices.a, elements.a, "A")?;
    let b = converted(&matrices.b, elements.b, "B")?;
    let c = converted(&matrices.c, elements.d, "C")?;
    let converted_bias = matrices.bias.iter().cloned().collect::<Vec<_>>();
    let bias = converted(&converted_bias, config.bias_dtype(), "the bias")?;
    let inputs = Operands::new(&a[..], &b[..]).c(&c[..]).bias(bias.first());
    let (product, by_blocks) = match args.device_memory {
        Some(bytes) => {
            let computed = blocks::multiply(&executor, &config, &matrices.problem, inputs, bytes)?;
            (computed.0, Some(computed.1))
        }
        None => {
            let product = output::while_showing(format!("multiplying on {executor}"), || {
                multiply(&executor, &config, &matrices.problem, inputs)
            })?;
            (product, None)
        }
    };
    if let (Some(out), Some(d)) = (&args.out, product.d.first()) {
        pgemm_files::write(out, d)?;
    }
    let comparison = match args.verify {
        true => {
            let plan = product.plan.as_ref();
            let model = error_model(elements, &executor, plan, args.a.is_none());
            // Sums of integers have no errors, so the reference is computed from the converted
            // matrices.
            let inputs = match elements.a {
                Dtype::S8 | Dtype::U8 => inputs,
                _ => matrices.inputs().bias(inputs.bias),
            };
            let verify = || verify(&matrices.problem, config.epilogue, inputs, &product, &model);
            output::while_showing("verifying", verify)?
        }
        false => None,
    };
    let how = (&product, by_blocks.as_deref());
    report(args, &executor, &config, &matrices.problem, how, comparison.as_ref())?;
    Ok(match comparison {
        Some(Verified { comparison, .. }) if !comparison.passed => Verdict::Wrong,
        _ => Verdict::Fine,
    })
}

/// Computes and verifies the product of a seed.
fn run_case(args: &Args, seed: u64) -> Result<Verdict, Failure> {
    let executor = args.backend.find(args.device)?;
    if let Executor::Cpu { because: Some(reason) } = &executor {
        output::note(format_args!("using the cpu backend: {reason}"));
    }
    let usual =
        if matches!(executor, Executor::Cuda(_)) { CaseSize::Large } else { CaseSize::Small };
    let case = Case::new(seed, args.case_size.unwrap_or(usual));
    let outcome =
        output::while_showing(format!("multiplying on {executor}"), || case.run(&executor))?;
    let mut rows = vec![("backend", executor.to_string()), ("problem", case.to_string())];
    if let Some(plan) = &outcome.plan {
        rows.push(("kernel", plan.spec.to_string()));
        rows.push(("plan", plan.to_string()));
    }
    rows.extend(outcome.worst().map(|worst| ("verification", worst.to_string())));
    let around = if outcome.untouched { "as it was" } else { "WRITTEN TO" };
    rows.push(("memory around D", around.to_owned()));
    output::properties(&rows)?;
    Ok(verdict_of_case(&outcome))
}

fn verdict_of_case(outcome: &CaseOutcome) -> Verdict {
    if outcome.passed() { Verdict::Fine } else { Verdict::Wrong }
}

/// The arithmetic whose errors are allowed. Random matrices have random signs.
fn error_model(
    elements: Elements,
    executor: &Executor,
    plan: Option<&Plan>,
    random: bool,
) -> ErrorModel {
    let Elements { a, b, .. } = elements;
    let accumulation = match (executor, plan) {
        (Executor::Cpu { .. }, _) | (_, None) => Accumulation::Nearest,
        (_, Some(plan)) => match Accumulation::of(&plan.spec) {
            accumulation if random => accumulation.of_random_signs(),
            accumulation => accumulation,
        },
    };
    ErrorModel { accumulation, a, b }
}

/// Compares with the product of the given matrices; the rounding of a conversion is part of the
/// bound. For a batch it returns the product with the largest error and its number, or `None` for
/// an empty batch.
fn verify(
    problem: &Problem,
    epilogue: Epilogue,
    inputs: HostBatch<'_>,
    product: &Product<Vec<HostMatrix>>,
    model: &ErrorModel,
) -> Result<Option<Verified>, Failure> {
    let mut worst: Option<Verified> = None;
    let ratio = |comparison: &Comparison| {
        let ratio = comparison.worst.as_ref().map_or(0.0, |worst| worst.ratio);
        (!comparison.passed, if ratio.is_nan() { f64::INFINITY } else { ratio })
    };
    for (index, d) in product.d.iter().enumerate() {
        let Operands { a, b, c, bias, .. } = inputs.of(index);
        let reference = Reference::with_epilogue(&problem.one(), (a, b, c), epilogue, bias)?;
        let comparison = reference.compare(d, model)?;
        if worst.as_ref().is_none_or(|worst| ratio(&worst.comparison) < ratio(&comparison)) {
            worst = Some(Verified { index, comparison });
        }
    }
    Ok(worst)
}

/// The comparison of the product with the largest error.
struct Verified {
    index: usize,
    comparison: Comparison,
}

fn report(
    args: &Args,
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    (product, by_blocks): (&Product<Vec<HostMatrix>>, Option<&str>),
    verified: Option<&Verified>,
) -> Result<(), Failure> {
    let chosen = match (args.backend, executor) {
        (BackendKind::Auto, Executor::Cpu { because: Some(reason) }) => reason.to_string(),
        (BackendKind::Auto, _) => "a Hopper device is there".to_owned(),
        _ => "as asked".to_owned(),
    };
    if args.json {
        return output::json(&json!({
            "backend": executor.to_string(),
            "backend_reason": chosen,
            "problem": problem,
            "dtype": config.dtype,
            "b_dtype": config.b_dtype(),
            "output_dtype": config.output_dtype(),
            "epilogue": config.epilogue,
            "plan": product.plan,
            "by_blocks": by_blocks,
            "kernel_cache": product.cache.map(|outcome| format!("{outcome:?}").to_lowercase()),
            "prepare_seconds": product.prepare.as_secs_f64(),
            "compute_seconds": product.compute.as_secs_f64(),
            "out": args.out.as_ref().map(ToString::to_string),
            "verification": verified.map(|verified| &verified.comparison),
            "verified_products": verified.map(|_| problem.batch.count),
        }));
    }
    // A note on stderr has said why before the work began.
    let chosen = match (args.backend, executor) {
        (BackendKind::Auto, Executor::Cpu { .. }) => "no Hopper GPU can be used".to_owned(),
        _ => chosen,
    };
    let mut rows = vec![("backend", format!("{executor}: {chosen}")), {
        let (types, majors) = (parse::types(config), parse::majors(problem));
        ("problem", format!("{}, {types}, {majors}", parse::extents(problem)))
    }];
    if let Some(plan) = &product.plan {
        rows.push(("kernel", plan.spec.to_string()));
        rows.push(("plan", plan.to_string()));
        let cache = product.cache.map_or_else(String::new, |outcome| {
            format!(", kernel cache {outcome:?}").to_lowercase()
        });
        rows.push(("prepared in", format!("{}{cache}", output::seconds(product.prepare))));
    }
    rows.extend(by_blocks.map(|blocks| ("by blocks", blocks.to_owned())));
    let mut computed = output::seconds(product.compute);
    if let Some(rate) = output::rate(problem.operations()?, product.compute) {
        computed = format!("{computed}, {rate}");
    }
    if let Executor::Cuda(_) = executor {
        computed += " (one cold run; `pgemm bench` measures)";
    }
    rows.push(("computed in", computed));
    if let Some(out) = &args.out {
        rows.push(("written to", out.to_string()));
    }
    if let Some(Verified { index, comparison }) = verified {
        let which = match problem.batch.count {
            1 => String::new(),
            count => format!(" ({count} products; of number {index}, the furthest off)"),
        };
        rows.push(("verification", format!("{comparison}{which}")));
    }
    output::properties(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit status tells programs of a wrong case. No case is wrong in a test, so an outcome is
    /// made so.
    #[test]
    fn a_wrong_case_has_its_verdict() {
        let case = Case::new(27, CaseSize::Small);
        let mut outcome = case.run(&Executor::Cpu { because: None }).unwrap();
        assert!(matches!(verdict_of_case(&outcome), Verdict::Fine));
        outcome.untouched = false;
        assert!(matches!(verdict_of_case(&outcome), Verdict::Wrong));
        outcome.untouched = true;
        outcome.comparisons.last_mut().expect("a product").passed = false;
        assert!(matches!(verdict_of_case(&outcome), Verdict::Wrong));
    }
}
