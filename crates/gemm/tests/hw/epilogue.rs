//! Epilogues on the device: every combination on products of all families, within the derived
//! bounds; what is special; one bias for all launches of a prepared problem, another for the next.

use persistent_gemm::driver::{DeviceBuffer, Stream};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{
    Accumulation, Config, Dtype, Epilogue, ErrorModel, Gemm, HostMatrix, Major, MatrixLayout,
    Operands, Pointers, Precision, Problem, Reference, RunRequest, Split,
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

/// What comes out of NaN, infinities and zeros, which C brings past an empty product.
#[test]
fn specials_are_kept() {
    let Some(device) = device("specials_are_kept") else { return };
    let executor = Executor::Cuda(device);
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 3e38, -3e38, 1.0];
    for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F64] {
        for text in ["relu", "gelu", "silu"] {
            let config = Config::new(dtype).with_epilogue(text.parse().unwrap());
            let problem = Problem::new(1, 8, 0, Major::K, Major::K).with_beta(1.0);
            let empty = |layout| HostMatrix::zeros(layout, dtype).unwrap();
            let (a, b) = (empty(problem.a_layout()), empty(problem.b_layout()));
            let c = HostMatrix::from_f64(problem.c_layout(), dtype, &values).unwrap();
            let inputs = Operands::new(&a, &b).c(&c);
            let d = multiply(&executor, &config, &problem, inputs).unwrap().d.to_f64_vec();
            assert!(d[0].is_nan(), "{dtype} {text}: {d:?}");
            assert_eq!(
                (d[1], d[2], d[3], d[4], d[6]),
                (f64::INFINITY, 0.0, 0.0, 0.0, 0.0),
                "{dtype} {text}"
            );
            assert!(d[5] > 2.9e38 && d[7] > 0.7, "{dtype} {text}: {d:?}");
        }
    }
}

/// The bounds of a clamp are arguments: one kernel has any.
#[test]
fn a_kernel_takes_any_bounds() {
    let Some(device) = device("a_kernel_takes_any_bounds") else { return };
    let executor = Executor::Cuda(device);
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.5, 3e38, -3e38, 1.0];
    for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F64] {
        let mut specs = vec![];
        let bounds = [(-1.0, 2.0), (0.25, 0.25), (f64::NEG_INFINITY, 0.0), (0.5, f64::INFINITY)];
        for (lower, upper) in bounds {
            let epilogue: Epilogue = format!("clamp({lower},{upper})").parse().unwrap();
            let config = Config::new(dtype).with_epilogue(epilogue);
            let problem = Problem::new(1, 8, 0, Major::K, Major::K).with_beta(1.0);
            let empty = |layout| HostMatrix::zeros(layout, dtype).unwrap();
            let (a, b) = (empty(problem.a_layout()), empty(problem.b_layout()));
            let c = HostMatrix::from_f64(problem.c_layout(), dtype, &values).unwrap();
            let inputs = Operands::new(&a, &b).c(&c);
            let product = multiply(&executor, &config, &problem, inputs).unwrap();
            specs.push(product.plan.unwrap().spec);
            let (d, c) = (product.d.to_f64_vec(), c.to_f64_vec());
            assert!(d[0].is_nan(), "{dtype} {epilogue}: {d:?}");
            for (x, found) in c.iter().zip(&d).skip(1) {
                assert_eq!(*found, x.clamp(lower, upper), "{dtype} {epilogue} of {x}: {d:?}");
            }
        }
        assert!(specs.iter().all(|spec| *spec == specs[0]), "{specs:?}");
    }
}

/// The bias is an argument: one prepared problem runs with any, at any address.
#[test]
fn a_prepared_problem_takes_another_bias() {
    let Some(device) = device("a_prepared_problem_takes_another_bias") else { return };
    let epilogue: Epilogue = "bias_n".parse().unwrap();
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16).with_epilogue(epilogue)).unwrap();
    let problem = Problem::new(64, 72, 64, Major::K, Major::K).with_alpha(0.0);
    let stream = Stream::new(&device).unwrap();
    let zeros = DeviceBuffer::from_host(&device, &[0u8; 2 * 72 * 64], stream.as_ref()).unwrap();
    let d = DeviceBuffer::from_host(&device, &[0u8; 2 * 72 * 64], stream.as_ref()).unwrap();
    let biases: Vec<u8> =
        (0..200).flat_map(|i| ((i as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec()).collect();
    let bias = DeviceBuffer::from_host(&device, &biases, stream.as_ref()).unwrap();
    let prepared = gemm.prepare(&problem).unwrap();
    for first in [0u64, 1, 64, 101] {
        let pointers = Pointers::new(zeros.address(), zeros.address(), 0, d.address());
        let pointers = pointers.with_bias(bias.address() + 2 * first);
        // SAFETY: all buffers are as large as the problem says, and live until the stream has been
        // waited for.
        unsafe {
            gemm.run_at(RunRequest::prepared(&prepared, 0.0, 0.0), &pointers, stream.as_ref())
        }
        .unwrap();
        let mut found = vec![0u8; 2 * 72 * 64];
        d.copy_to_host(0, &mut found, stream.as_ref()).unwrap();
        stream.synchronize().unwrap();
        for (at, bytes) in found.chunks(2).enumerate() {
            let value = f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16);
            assert_eq!(value, (first as usize + at % 72) as f32, "{first} {at}");
        }
    }
    let pointers = Pointers::new(zeros.address(), zeros.address(), 0, d.address());
    // SAFETY: nothing is launched.
    let refused = unsafe {
        gemm.run_at(RunRequest::prepared(&prepared, 0.0, 0.0), &pointers, stream.as_ref())
    };
    assert!(refused.unwrap_err().to_string().contains("the bias"));
}
