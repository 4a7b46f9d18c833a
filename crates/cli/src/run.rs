//! `pgemm run`: multiplies random or given matrices and, if asked, verifies the product.

use std::borrow::Cow;

use persistent_gemm::host::{Backend, Executor, Inputs, Product, multiply};
use persistent_gemm::{
    Accumulation, Comparison, Config, Dtype, ErrorModel, HostMatrix, Major, MatrixLayout, Problem,
    Reference,
};
use serde_json::json;

use crate::io::{self, Location};
use crate::memory;
use crate::output;
use crate::parse::{self, Knobs};
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// What is multiplied, where and how.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm run --m 4096 --n 4096 --k 4096 --dtype bf16 --verify
  pgemm run --a A.npy --b B.npy --out D.npy --dtype f16
  pgemm run --a weights.safetensors:w1 --b X.npy --out D.safetensors:y")]
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
    /// A from a file: A.npy, or FILE.safetensors:TENSOR.
    #[arg(long, value_name = "FILE", requires = "b")]
    a: Option<Location>,
    /// B from a file.
    #[arg(long, value_name = "FILE", requires = "a")]
    b: Option<Location>,
    /// C from a file; beta is then 1 unless given.
    #[arg(long, value_name = "FILE", requires = "a")]
    c: Option<Location>,
    /// Where D goes: D.npy, or FILE.safetensors:TENSOR.
    #[arg(long, value_name = "FILE")]
    out: Option<Location>,
    /// Element type to compute with: bf16 or f16 [default: A's, where it is one of them, else bf16].
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype)]
    dtype: Option<Dtype>,
    /// Element type of C and D: the operands' or f32 [default: the operands'; f32 where a file can't hold that].
    #[arg(long, value_name = "TYPE", value_parser = parse::dtype)]
    output_dtype: Option<Dtype>,
    /// Contiguous dimension of random A: k or m.
    #[arg(long, value_name = "MAJOR", value_parser = parse::a_major, default_value = "k", conflicts_with = "a")]
    a_major: Major,
    /// Contiguous dimension of random B: k or n.
    #[arg(long, value_name = "MAJOR", value_parser = parse::b_major, default_value = "n", conflicts_with = "a")]
    b_major: Major,
    /// Factor of A·B.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    alpha: f32,
    /// Factor of C; where it is 0, C is not read [default: 0, or 1 with --c].
    #[arg(long, allow_negative_numbers = true)]
    beta: Option<f32>,
    /// auto, cuda, emulator or cpu. auto is cuda on a Hopper device, else cpu.
    #[arg(long, default_value = "auto")]
    backend: Backend,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
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

/// The matrices as they came, before any conversion.
struct Given {
    a: HostMatrix,
    b: HostMatrix,
    c: Option<HostMatrix>,
    problem: Problem,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let given_dtype = args.dtype.or(args.knobs.spec.map(|spec| spec.operand));
    let given_output = args.output_dtype.or(args.knobs.spec.map(|spec| spec.output));
    if let Some(out) = &args.out {
        io::check_writable(out)?;
    }
    let source = Source::of(args)?;
    let executor = args.backend.find(args.device)?;
    if let Executor::Cpu { because: Some(reason) } = &executor {
        output::note(format_args!("using the cpu backend: {reason}"));
    }
    let given = match source {
        Source::Files { a, b } => read(args, a, b)?,
        Source::Random { extents } => {
            let dtype = given_dtype.unwrap_or(Dtype::Bf16);
            generate(args, extents, dtype, given_output.unwrap_or(dtype))?
        }
    };
    let dtype = given_dtype.unwrap_or(match given.a.dtype() {
        own @ (Dtype::Bf16 | Dtype::F16) => own,
        _ => Dtype::Bf16,
    });
    let output = output_dtype(args.out.as_ref(), dtype, given_output)?;
    let config = args.knobs.config(dtype, output);
    if let Executor::Cpu { .. } = executor {
        args.knobs.check_without_kernel(&given.problem, &config)?;
    }

    let a = converted(&given.a, dtype, "A")?;
    let b = converted(&given.b, dtype, "B")?;
    let c = given.c.as_ref().map(|c| converted(c, output, "C")).transpose()?;
    let inputs = Inputs { a: &a, b: &b, c: c.as_deref() };
    let product = output::while_showing(format!("multiplying on {executor}"), || {
        multiply(&executor, &config, &given.problem, inputs)
    })?;
    if let Some(out) = &args.out {
        io::write(out, &product.d)?;
    }
    let comparison = match args.verify {
        true => {
            Some(output::while_showing("verifying", || verify(&given, &product, dtype, &executor))?)
        }
        false => None,
    };
    report(args, &executor, &config, &given.problem, &product, comparison.as_ref())?;
    Ok(match comparison {
        Some(comparison) if !comparison.passed => Verdict::Wrong,
        _ => Verdict::Fine,
    })
}

/// Where A and B come from.
enum Source<'a> {
    Files { a: &'a Location, b: &'a Location },
    Random { extents: [usize; 3] },
}

impl Source<'_> {
    fn of(args: &Args) -> Result<Source<'_>, UsageError> {
        match (&args.a, &args.b, args.m, args.n, args.k) {
            (Some(_), Some(_), ..) if args.out.is_none() && !args.verify => {
                Err(UsageError::ResultUnused)
            }
            (Some(a), Some(b), ..) => Ok(Source::Files { a, b }),
            (_, _, Some(m), Some(n), Some(k)) => Ok(Source::Random { extents: [m, n, k] }),
            _ => Err(UsageError::NothingToMultiply),
        }
    }
}

/// The type of D: the one asked for, else that of the operands, else f32 where a file cannot hold that.
fn output_dtype(
    out: Option<&Location>,
    dtype: Dtype,
    asked: Option<Dtype>,
) -> Result<Dtype, io::IoError> {
    let Some(out) = out else { return Ok(asked.unwrap_or(dtype)) };
    match asked {
        Some(asked) => out.check_holds(asked).map(|()| asked),
        None if out.check_holds(dtype).is_ok() => Ok(dtype),
        None => {
            output::note(format_args!("D is written as f32: a .npy file has no {dtype}"));
            Ok(Dtype::F32)
        }
    }
}

fn converted<'a>(
    matrix: &'a HostMatrix,
    dtype: Dtype,
    name: &str,
) -> Result<Cow<'a, HostMatrix>, io::IoError> {
    if matrix.dtype() == dtype {
        return Ok(Cow::Borrowed(matrix));
    }
    io::convert_with_notice(matrix, dtype, name).map(Cow::Owned)
}

fn generate(
    args: &Args,
    [m, n, k]: [usize; 3],
    dtype: Dtype,
    output: Dtype,
) -> Result<Given, Failure> {
    let problem = Problem::new(m, n, k, args.a_major, args.b_major)
        .with_alpha(args.alpha)
        .with_beta(args.beta.unwrap_or(0.0));
    problem.validate()?;
    memory::check(&problem, dtype, output, args.verify)?;
    let random = |layout: MatrixLayout, dtype, stream: u64| -> Result<HostMatrix, Failure> {
        let mut matrix = HostMatrix::zeros(layout, dtype)?;
        matrix.fill_normal(args.seed.wrapping_mul(3).wrapping_add(stream));
        Ok(matrix)
    };
    output::while_showing("filling matrices with N(0,1)", || {
        Ok(Given {
            a: random(problem.a_layout(), dtype, 0)?,
            b: random(problem.b_layout(), dtype, 1)?,
            c: match problem.beta != 0.0 {
                true => Some(random(problem.c_layout(), output, 2)?),
                false => None,
            },
            problem,
        })
    })
}

fn read(args: &Args, a: &Location, b: &Location) -> Result<Given, Failure> {
    let (a, b) = (io::read(a)?, io::read(b)?);
    let c = args.c.as_ref().map(io::read).transpose()?;
    let beta = args.beta.unwrap_or(if c.is_some() { 1.0 } else { 0.0 });
    let mut problem = Problem::of(&a.layout(), &b.layout())?.with_alpha(args.alpha).with_beta(beta);
    let c = match c {
        // The kernels take C as D lies: row-major.
        Some(c) => Some(c.relayout(MatrixLayout::row_major(c.rows(), c.columns()))?),
        None => None,
    };
    if let Some(c) = &c {
        problem = problem.with_c_leading_dimension(c.layout().leading_dimension);
    }
    problem.check_layouts(a.layout(), b.layout(), c.as_ref().map(HostMatrix::layout))?;
    Ok(Given { a, b, c, problem })
}

/// Against the matrices as they came: the rounding of a conversion is part of the bound.
fn verify(
    given: &Given,
    product: &Product,
    dtype: Dtype,
    executor: &Executor,
) -> Result<Comparison, Failure> {
    let accumulation = match executor {
        Executor::Cuda(_) => Accumulation::TensorCore,
        Executor::Emulator | Executor::Cpu { .. } => Accumulation::Nearest,
    };
    let model = ErrorModel { accumulation, input: dtype };
    let reference = Reference::new(&given.problem, &given.a, &given.b, given.c.as_ref())?;
    Ok(reference.compare(&product.d, &model)?)
}

fn report(
    args: &Args,
    executor: &Executor,
    config: &Config,
    problem: &Problem,
    product: &Product,
    comparison: Option<&Comparison>,
) -> Result<(), Failure> {
    let Problem { m, n, k, .. } = *problem;
    let chosen = match (args.backend, executor) {
        (Backend::Auto, Executor::Cpu { because: Some(reason) }) => reason.to_string(),
        (Backend::Auto, _) => "a Hopper device is there".to_owned(),
        _ => "as asked".to_owned(),
    };
    if args.json {
        return output::json(&json!({
            "backend": executor.to_string(),
            "backend_reason": chosen,
            "problem": problem,
            "dtype": config.dtype,
            "output_dtype": config.output_dtype(),
            "plan": product.plan,
            "kernel_cache": product.cache.map(|outcome| format!("{outcome:?}").to_lowercase()),
            "prepare_seconds": product.prepare.as_secs_f64(),
            "compute_seconds": product.compute.as_secs_f64(),
            "out": args.out.as_ref().map(ToString::to_string),
            "verification": comparison,
        }));
    }
    let mut rows = vec![
        ("backend", format!("{executor}: {chosen}")),
        (
            "problem",
            format!(
                "{m}x{n}x{k}, {} -> {}, A {}-major, B {}-major",
                config.dtype,
                config.output_dtype(),
                problem.a.major,
                problem.b.major
            ),
        ),
    ];
    if let Some(plan) = &product.plan {
        rows.push(("kernel", plan.spec.to_string()));
        rows.push(("plan", parse::describe(plan)));
        let cache = product.cache.map_or_else(String::new, |outcome| {
            format!(", kernel cache {outcome:?}").to_lowercase()
        });
        rows.push(("prepared in", format!("{}{cache}", output::seconds(product.prepare))));
    }
    let mut computed = output::seconds(product.compute);
    if let Some(rate) = output::rate([m, n, k], product.compute) {
        computed = format!("{computed}, {rate}");
    }
    if let Executor::Cuda(_) = executor {
        computed += " (one cold run; `pgemm bench` measures)";
    }
    rows.push(("computed in", computed));
    if let Some(out) = &args.out {
        rows.push(("written to", out.to_string()));
    }
    if let Some(comparison) = comparison {
        rows.push(("verification", comparison.to_string()));
    }
    output::properties(&rows)
}
