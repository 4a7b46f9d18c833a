//! f32 as sums of shorter numbers, through the library: in the emulator, and on the CPU, which
//! computes in binary32 whatever the precision. D has to stay inside of the derived bound.

use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{
    Accumulation, Comparison, Config, Dtype, ErrorModel, HostMatrix, Major, MatrixLayout, Operands,
    Precision, Problem, Reference, Split,
};

const MODES: [Precision; 4] =
    [Precision::Tf32x3, Precision::F16x3, Precision::Bf16x6, Precision::Bf16x9];

/// Normal samples, of which some are far larger than others.
fn matrix(layout: MatrixLayout, seed: u64) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
    matrix.fill_normal(seed);
    let (values, columns) = (matrix.to_f64_vec(), matrix.columns());
    matrix.fill_with(|row, column| {
        values[row * columns + column] * 2f64.powi((row * 7 + column * 13) as i32 % 9 - 4)
    });
    matrix
}

/// How far D is from the reference, by the bound of this precision.
fn compare(executor: &Executor, config: &Config, problem: &Problem, mode: Precision) -> Comparison {
    let (a, b) = (matrix(problem.a_layout(), 1), matrix(problem.b_layout(), 2));
    let c = matrix(problem.c_layout(), 3);
    let c = (problem.beta != 0.0).then_some(&c);
    let product = multiply(executor, config, problem, Operands::new(&a, &b).c(c))
        .unwrap_or_else(|error| panic!("{mode} {problem:?}: {error}"));
    if let (Some(plan), true) = (product.plan, problem.k > 0) {
        assert_eq!(Precision::of(&plan.spec), mode);
    }
    let model = ErrorModel::new(Accumulation::Emulated(mode), Dtype::F32);
    let reference = Reference::new(problem, &a, &b, c).unwrap();
    reference.compare(&product.d, &model).unwrap()
}

fn check(config: &Config, problem: &Problem, mode: Precision) {
    let comparison = compare(&Executor::Emulator, config, problem, mode);
    assert!(comparison.passed, "{mode} {problem:?}: {comparison}");
}

#[test]
fn products_stay_inside_of_their_bound_however_operands_lie() {
    for mode in MODES {
        let config = Config::new(Dtype::F32).with_precision(mode);
        for (a, b) in
            [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
        {
            let problem = Problem::new(72, 41, 140, a, b);
            check(&config, &problem, mode);
        }
        let problem = Problem::new(33, 70, 75, Major::M, Major::K).with_alpha(-0.3).with_beta(0.7);
        check(&config, &problem.with_d_major(Major::M), mode);
        let split = config.clone().with_split(Split::SplitK(2));
        check(&split, &problem, mode);
        let swapped = config.with_swapped(true);
        check(&swapped, &problem, mode);
    }
}

/// What the terms are for: errors are those of binary32, not those of tf32 or bf16.
#[test]
fn products_are_nearly_as_accurate_as_in_binary32() {
    let problem = Problem::new(64, 64, 256, Major::K, Major::K);
    for mode in MODES {
        let config = Config::new(Dtype::F32).with_precision(mode);
        let error = compare(&Executor::Emulator, &config, &problem, mode).relative_frobenius;
        assert!(error < 1e-6, "{mode}: {error:e}");
    }
}

#[test]
fn without_depth_there_is_nothing_to_split() {
    for mode in MODES {
        let config = Config::new(Dtype::F32).with_precision(mode);
        check(&config, &Problem::new(9, 5, 0, Major::K, Major::K).with_beta(2.0), mode);
    }
    let named = Config::for_spec("f16x3-kk-f32-64x64x64-s3-w1-c1x1-p64-scaled".parse().unwrap());
    check(&named, &Problem::new(9, 5, 0, Major::M, Major::K).with_beta(2.0), Precision::F16x3);
    check(&named, &Problem::new(9, 5, 70, Major::M, Major::K), Precision::F16x3);
}

#[test]
fn the_cpu_computes_in_binary32() {
    let problem = Problem::new(72, 41, 140, Major::K, Major::N);
    for mode in MODES {
        let config = Config::new(Dtype::F32).with_precision(mode);
        let cpu = Executor::Cpu { because: None };
        let comparison = compare(&cpu, &config, &problem, mode);
        assert!(comparison.passed, "{mode}: {comparison}");
    }
}

/// NaN and infinities of an operand make its row or column NaN, and reach nothing else.
#[test]
fn what_is_not_finite_makes_its_row_or_column_nan() {
    let problem = Problem::new(24, 40, 70, Major::K, Major::N);
    for mode in MODES {
        let config = Config::new(Dtype::F32).with_precision(mode);
        let (mut a, mut b) = (matrix(problem.a_layout(), 1), matrix(problem.b_layout(), 2));
        let (of_a, of_b) = (a.to_f64_vec(), b.to_f64_vec());
        a.fill_with(|row, k| if (row, k) == (3, 5) { f64::INFINITY } else { of_a[row * 70 + k] });
        b.fill_with(
            |k, column| {
                if (k, column) == (69, 7) { f64::NAN } else { of_b[k * 40 + column] }
            },
        );
        let inputs = Operands::new(&a, &b);
        let d = multiply(&Executor::Emulator, &config, &problem, inputs).unwrap().d;
        for row in 0..24 {
            for column in 0..40 {
                let found = d.get(row, column).unwrap();
                assert_eq!(
                    found.is_nan(),
                    row == 3 || column == 7,
                    "{mode}: {row}, {column}: {found}"
                );
            }
        }
    }
}
