//! Epilogues on the device: every combination on products of all families, within the derived
//! bounds; what is special; one bias for all launches of a prepared problem, another for the next.

use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{
    Accumulation, Config, Dtype, ErrorModel, HostMatrix, Major, MatrixLayout, Operands, Precision,
    Problem, Reference, Split,
};

use crate::device::device;

const EPILOGUES: [&str; 10] = [
    "bias_n|relu",
    "bias_n|gelu",
    "bias_n|silu",
    "bias_n",
    "bias_m|gelu",
    "bias_m",
    "silu",
    "relu",
    "bias_n|clamp(-0.4,0.9)",
    "clamp(-inf,0.3)",
];

fn random(layout: MatrixLayout, dtype: Dtype, seed: u64) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
    matrix.fill_normal(seed);
    matrix
}

/// Computes a product with random matrices and compares it; gives the largest part of the bound
/// that was needed.
fn check(executor: &Executor, config: &Config, problem: &Problem) -> f64 {
    let [a_type, b_type] = config.operands();
    let a = random(problem.a_layout(), a_type, 1);
    let b = random(problem.b_layout(), b_type, 2);
    let c = random(problem.c_layout(), config.output_dtype(), 3);
    let c = Some(&c).filter(|_| problem.beta != 0.0);
    let length = config.epilogue.bias_length(problem.m, problem.n);
    let bias = random(MatrixLayout::row_major(1, length), config.bias_dtype(), 4);
    let bias = Some(&bias).filter(|_| length > 0);
    let inputs = Operands::new(&a, &b).c(c).bias(bias);
    let product = multiply(executor, config, problem, inputs).unwrap();
    let plan = product.plan.expect("it is not empty");
    assert_eq!(
        plan.choice().epilogue(),
        match problem.d_major {
            Major::M => config.epilogue.shape().transposed(),
            _ => config.epilogue.shape(),
        }
    );
    let accumulation = Accumulation::of(&plan.spec).of_random_signs();
    let model = ErrorModel { accumulation, a: a_type, b: b_type };
    let reference = Reference::with_epilogue(problem, (&a, &b, c), config.epilogue, bias).unwrap();
    let comparison = reference.compare(&product.d, &model).unwrap();
    assert!(comparison.passed, "{} {}: {comparison}", plan.spec, config.epilogue);
    comparison.worst.map_or(0.0, |worst| worst.ratio)
}

#[test]
fn epilogues_of_all_types_are_inside_the_bound() {
    let Some(device) = device("epilogues_of_all_types_are_inside_the_bound") else { return };
    let executor = Executor::Cuda(device);
    let mut worst = 0.0f64;
    let mut count = 0;
    for (index, (a, output, precision)) in [
        (Dtype::Bf16, Dtype::Bf16, None),
        (Dtype::Bf16, Dtype::F32, None),
        (Dtype::F16, Dtype::F16, None),
        (Dtype::F16, Dtype::F16, Some(Precision::F16)),
        (Dtype::Tf32, Dtype::F32, None),
        (Dtype::E4m3, Dtype::Bf16, None),
        (Dtype::E4m3, Dtype::E4m3, None),
        (Dtype::F32, Dtype::F32, None),
        (Dtype::F32, Dtype::F32, Some(Precision::Tf32x3)),
        (Dtype::F32, Dtype::F32, Some(Precision::F16x3)),
        (Dtype::F64, Dtype::F64, None),
    ]
    .into_iter()
    .enumerate()
    {
        // Half of them each, by turns: most of the time goes to the driver's compiler.
        for (at, text) in EPILOGUES.into_iter().enumerate().skip(index % 2).step_by(2) {
            let mut config = Config::new(a).with_output(output);
            config.precision = precision;
            let config = config.with_epilogue(text.parse().unwrap());
            let d_major = if (index + at) % 3 == 0 { Major::M } else { Major::N };
            for [m, n, k] in [[700, 520, 256], [16, 4096, 512], [333, 77, 1001]] {
                // Results near zero, where activations bend.
                let alpha = 1.5 / (k as f64).sqrt();
                let problem = Problem::new(m, n, k, Major::K, Major::K)
                    .with_d_major(d_major)
                    .with_alpha(alpha)
                    .with_beta(if at / 2 % 2 == 0 { 0.0 } else { 0.5 });
                worst = worst.max(check(&executor, &config, &problem));
                count += 1;
            }
        }
    }
    println!(
        "{count} products with epilogues inside the bound; the largest error was {worst:.3} of it"
    );
}

#[test]
fn split_tiles_and_products_without_depth_have_them_too() {
    let Some(device) = device("split_tiles_and_products_without_depth_have_them_too") else {
        return;
    };
    let executor = Executor::Cuda(device);
    for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F64] {
        for text in EPILOGUES {
            let config = Config::new(dtype).with_epilogue(text.parse().unwrap());
            for split in [Split::SplitK(2), Split::SplitK(7), Split::StreamK] {
                let config = config.clone().with_split(split);
                let problem = Problem::new(300, 200, 4096, Major::K, Major::K);
                check(&executor, &config, &problem.with_alpha(0.02).with_beta(-1.0));
            }
            for problem in [
                Problem::new(130, 70, 0, Major::K, Major::K).with_beta(0.5),
                Problem::new(130, 70, 64, Major::K, Major::K).with_alpha(0.0),
            ] {
                check(&executor, &config, &problem);
            }
        }
    }
}
