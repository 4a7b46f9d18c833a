//! Products beside the reference.

use persistent_gemm::driver::Device;
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::measure::{Elements, error_model};
use persistent_gemm::{
    Comparison, Config, Dtype, HostMatrix, MatrixLayout, Operands, Precision, Problem, Reference,
};

/// What the matrices hold.
#[derive(Clone, Copy)]
pub enum Fill {
    /// Samples of N(0, 1), or integers of the whole range of an 8-bit type.
    Random,
    /// Small enough that every sum is exact in the accumulators.
    Integers,
}

pub fn matrix(layout: MatrixLayout, dtype: Dtype, seed: u64, fill: Fill) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
    match fill {
        Fill::Random => matrix.fill_random(seed),
        Fill::Integers => matrix.fill_integers(seed, 3),
    }
    matrix
}

/// Runs one problem, or a batch, on the device and compares D, which was full of NaN before, with
/// the reference: the comparison of the product that fails, or has the largest error.
pub fn check(
    device: &Device,
    config: &Config,
    problem: &Problem,
    seed: u64,
    fill: Fill,
) -> Comparison {
    let batch = problem.batch;
    let matrices = |layout, dtype, stride, seed: u64| -> Vec<HostMatrix> {
        let seeds = (0..batch.matrices(stride) as u64).map(|index| seed + 1000 * index);
        seeds.map(|seed| matrix(layout, dtype, seed, fill)).collect()
    };
    let a = matrices(problem.a_layout(), config.dtype, batch.a, seed);
    let b = matrices(problem.b_layout(), config.b_dtype(), batch.b, seed + 1);
    let c = matrices(problem.c_layout(), config.output_dtype(), batch.c, seed + 2);
    let inputs = Operands::new(&a, &b).c((problem.beta != 0.0).then_some(&c));
    let products = multiply(&Executor::Cuda(device.clone()), config, problem, inputs)
        .unwrap_or_else(|error| panic!("{problem:?}: {error}"));
    let compare = |(index, d): (usize, &HostMatrix)| {
        let Operands { a, b, c, .. } = inputs.of(index);
        let reference = Reference::new(&problem.one(), a, b, c).unwrap();
        match fill {
            Fill::Integers if config.precision() == Precision::F16 => {
                reference.compare_exact_f16(d).unwrap()
            }
            Fill::Integers => reference.compare_exact(d).unwrap(),
            Fill::Random => {
                let elements = Elements {
                    b: config.b_dtype(),
                    precision: config.precision(),
                    ..Elements::new(config.dtype, config.output_dtype())
                };
                let model = error_model(elements);
                reference.compare(d, &model).unwrap()
            }
        }
    };
    let ratio =
        |comparison: &Comparison| comparison.worst.as_ref().map_or(0.0, |worst| worst.ratio);
    let comparisons = products.d.iter().enumerate().map(compare);
    comparisons
        .reduce(|worst, other| match (worst.passed, other.passed) {
            (true, true) if ratio(&other) > ratio(&worst) => other,
            (true, false) => other,
            _ => worst,
        })
        .expect("there is a product")
}
