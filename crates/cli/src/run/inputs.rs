//! The matrices that `pgemm run` multiplies, from files or random, and their types.

use persistent_gemm::host::HostBatch;
use persistent_gemm::matrix::overlap;
use persistent_gemm::measure::Elements;
use persistent_gemm::{Config, Dtype, HostMatrix, Major, MatrixLayout, Operands, Problem};
use pgemm_files::{IoError, Location};
use pgemm_kernels::Product;

use super::Args;
use crate::Failure;
use crate::memory;
use crate::output;
use crate::parse;
use crate::usage::UsageError;

/// The given matrices before any conversion.
pub(super) struct InputMatrices {
    pub(super) a: Vec<HostMatrix>,
    pub(super) b: Vec<HostMatrix>,
    pub(super) c: Vec<HostMatrix>,
    pub(super) bias: Option<HostMatrix>,
    pub(super) problem: Problem,
}

impl InputMatrices {
    pub(super) fn inputs(&self) -> HostBatch<'_> {
        Operands::new(&self.a, &self.b).c(&self.c).bias(self.bias.as_ref()).batch()
    }
}

/// The source of A and B.
pub(super) enum Source<'a> {
    Files { a: &'a Location, b: &'a Location },
    Random { extents: [usize; 3] },
}

impl Source<'_> {
    pub(super) fn of(args: &Args) -> Result<Source<'_>, UsageError> {
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

/// The default operand types for files of these types: the files' types if there are kernels for
/// them, else f32 if one of them is f32.
pub(super) fn usual_operands([a, b]: [Dtype; 2]) -> [Dtype; 2] {
    use Dtype::{Bf16, F16, F32};
    match (a, b) {
        _ if Product::of(a, b).is_some() => [a, b],
        (F32, Bf16 | F16) | (Bf16 | F16, F32) => [F32, F32],
        (Bf16 | F16, _) => [a, a],
        _ => [Bf16, Bf16],
    }
}

/// The requested types, or those of the named kernel, or the defaults. D is f32 if the file format
/// lacks its type.
pub(super) fn elements(args: &Args, usual: [Dtype; 2]) -> Result<Elements, IoError> {
    let spec = args.knobs.spec.as_ref();
    let [a, b] = match (args.dtype, spec) {
        (Some(a), _) => [a, args.b_dtype.unwrap_or(a)],
        (None, Some(spec)) => parse::operands_of(spec),
        (None, None) => {
            if usual == [Dtype::F32; 2] {
                output::note(
                    "the product is computed in f32, as the files have it; --dtype tf32, bf16 or \
                     f16 is faster and rounds the operands first",
                );
            }
            usual
        }
    };
    let requested = args.output_dtype.or(spec.map(|spec| spec.output));
    let precision = parse::precision(args.precision, spec);
    let elements = parse::elements(a, Some(b), requested, precision);
    match (&args.out, requested) {
        (Some(out), Some(requested)) => out.check_holds(requested).map(|()| elements),
        (Some(out), None) if out.check_holds(elements.d).is_err() => {
            output::note(format_args!("D is written as f32: a .npy file has no {}", elements.d));
            Ok(Elements { d: Dtype::F32, ..elements })
        }
        _ => Ok(elements),
    }
}

pub(super) fn generate(
    args: &Args,
    [m, n, k]: [usize; 3],
    elements: Elements,
    purpose: memory::Purpose,
) -> Result<InputMatrices, Failure> {
    let b_major = args.b_major.unwrap_or(if any_major(elements.b) { Major::N } else { Major::K });
    let problem = Problem::new(m, n, k, args.a_major, b_major)
        .with_d_major(args.d_major)
        .with_alpha(args.alpha)
        .with_beta(args.beta.unwrap_or(0.0));
    let problem = args.strides.batch(problem, args.batch);
    problem.validate()?;
    memory::check(&problem, elements, purpose)?;
    let batch = problem.batch;
    let random = |layout: MatrixLayout, dtype, stride, stream: u64| {
        let one = |index: usize| {
            let mut matrix = HostMatrix::zeros(layout, dtype)?;
            let seed = args.seed.wrapping_add(index as u64);
            matrix.fill_random(seed.wrapping_mul(3).wrapping_add(stream));
            Ok(matrix)
        };
        let matrices = (0..batch.matrices(stride)).map(one);
        let mut matrices = matrices.collect::<Result<Vec<_>, Failure>>()?;
        overlap(&mut matrices, stride)?;
        Ok::<_, Failure>(matrices)
    };
    output::while_showing("filling matrices", || {
        Ok(InputMatrices {
            a: random(problem.a_layout(), elements.a, batch.a, 0)?,
            b: random(problem.b_layout(), elements.b, batch.b, 1)?,
            c: match problem.beta != 0.0 {
                true => random(problem.c_layout(), elements.d, batch.c, 2)?,
                false => vec![],
            },
            bias: None,
            problem,
        })
    })
}

/// Whether kernels read operands of this type in either major; else along k only.
fn any_major(dtype: Dtype) -> bool {
    dtype.bytes() == 2 || matches!(dtype, Dtype::F32 | Dtype::F64)
}

/// A and B from files, with C.
pub(super) fn read(args: &Args, a: HostMatrix, b: HostMatrix) -> Result<InputMatrices, Failure> {
    let c = args.c.as_ref().map(pgemm_files::read).transpose()?;
    let beta = args.beta.unwrap_or(if c.is_some() { 1.0 } else { 0.0 });
    let problem = Problem::of(&a.layout(), &b.layout())?.with_d_major(args.d_major);
    let mut problem = problem.with_alpha(args.alpha).with_beta(beta);
    let c = match c {
        // C has the layout of D.
        Some(c) => {
            let order = problem.d_layout().order;
            Some(c.relayout(MatrixLayout::tight(c.rows(), c.columns(), order))?)
        }
        None => None,
    };
    if let Some(c) = &c {
        problem = problem.with_c_leading_dimension(c.layout().leading_dimension);
    }
    problem.check_layouts(a.layout(), b.layout(), c.as_ref().map(HostMatrix::layout))?;
    Ok(InputMatrices { a: vec![a], b: vec![b], c: c.into_iter().collect(), bias: None, problem })
}

/// The bias of the named file, or a random one. `None` if the epilogue adds none.
pub(super) fn bias(
    args: &Args,
    config: &Config,
    problem: &Problem,
) -> Result<Option<HostMatrix>, Failure> {
    if config.epilogue.bias().is_none() {
        return match &args.bias {
            Some(_) => Err(UsageError::UnusedBias { epilogue: config.epilogue }.into()),
            None => Ok(None),
        };
    }
    let layout = MatrixLayout::row_major(1, config.epilogue.bias_length(problem.m, problem.n));
    let bias = match &args.bias {
        Some(file) => pgemm_files::read_vector(file)?,
        None => {
            let mut bias = HostMatrix::zeros(layout, config.bias_dtype())?;
            bias.fill_random(args.seed.wrapping_mul(3).wrapping_add(3));
            bias
        }
    };
    // A column without gaps has the same bytes as a row.
    let turned = MatrixLayout::row_major(bias.columns(), bias.rows());
    Ok(Some(match turned == layout && bias.layout() != layout {
        true => HostMatrix::from_f64(layout, bias.dtype(), &bias.to_f64_vec())?,
        false => bias,
    }))
}
