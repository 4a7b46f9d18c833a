//! Epilogues on the device: what is special; one kernel for all bounds of a clamp, and one prepared
//! problem for any bias.

use persistent_gemm::driver::{DeviceBuffer, Stream};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{
    Config, Dtype, Epilogue, Gemm, HostMatrix, Major, Operands, Pointers, Problem, RunRequest,
};

use crate::device::device;

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
