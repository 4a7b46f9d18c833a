//! Products on the device against the reference, and what is refused. Integers as results are
//! compared exactly, whatever the operands hold.

use persistent_gemm::driver::{DeviceBuffer, Stream};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::measure::{Elements, error_model};
use persistent_gemm::{
    Config, Dtype, Gemm, HostMatrix, Major, MatrixLayout, Operands, Pointers, Problem, Reference,
};

use crate::check::{Fill, check, matrix};
use crate::device::device;
use crate::scale::by_device;

/// alpha and beta keep all of their digits.
#[test]
fn scalars_of_doubles_are_doubles() {
    let Some(device) = device("scalars_of_doubles") else { return };
    let config = Config::new(Dtype::F64);
    let problem = Problem::new(130, 70, 50, Major::K, Major::N).with_alpha(1e-200).with_beta(0.1);
    let comparison = check(&device, &config, &problem, 1, Fill::Random);
    assert!(comparison.passed, "{comparison}");
    let alpha = 1.0 + f64::EPSILON;
    let one = HostMatrix::from_f64(MatrixLayout::row_major(1, 1), Dtype::F64, &[1.0]).unwrap();
    let problem = Problem::new(1, 1, 1, Major::K, Major::N).with_alpha(alpha);
    let inputs = Operands::new(&one, &one);
    let product = multiply(&Executor::Cuda(device.clone()), &config, &problem, inputs).unwrap();
    assert_eq!(product.d.get(0, 0), Some(alpha));
}

/// What attention multiplies: heads side by side in each row, whose batch strides are shorter than
/// the lines.
#[test]
fn heads_side_by_side_and_large_batches() {
    let Some(device) = device("heads_side_by_side_and_large_batches") else { return };
    let (heads, depth) = (12, 64);
    let (m, n) = by_device((500, 300), (50, 30));
    let many = |batch: usize| batch / by_device(1, 50);
    let problem = Problem::new(m, n, depth, Major::K, Major::K)
        .with_a_leading_dimension(heads * depth)
        .with_b_leading_dimension(heads * depth)
        .with_batch(heads)
        .with_a_batch_stride(depth)
        .with_b_batch_stride(depth);
    let side_by_side = problem.with_d_leading_dimension(heads * 304).with_d_batch_stride(304);
    for (dtype, problem) in [
        (Dtype::Bf16, problem),
        (Dtype::F16, side_by_side),
        (Dtype::Bf16, Problem::new(33, 70, 40, Major::K, Major::N).with_batch(many(1000))),
        (Dtype::F64, Problem::new(17, 9, 24, Major::M, Major::N).with_batch(many(700))),
        (Dtype::F32, Problem::new(64, 64, 64, Major::K, Major::N).with_batch(many(900))),
        (Dtype::E4m3, Problem::new(64, 80, 96, Major::M, Major::N).with_batch(many(300))),
    ] {
        let comparison = check(&device, &Config::new(dtype), &problem, 5, Fill::Random);
        assert!(comparison.passed, "{problem:?}: {comparison}");
    }
}

/// binary32 that is no tf32: rounded to the nearest one on its way.
#[test]
fn tf32_operands_are_rounded_as_they_are_loaded() {
    let Some(device) = device("tf32_operands_are_rounded") else { return };
    for ([m, n, k], a_major, b_major) in [
        ([1000, 700, 8], Major::K, Major::K),
        ([256, 264, 4100], Major::K, Major::K),
        ([1000, 700, 40], Major::M, Major::K),
        ([256, 264, 4100], Major::K, Major::N),
    ] {
        let [m, n, k] = by_device([m, n, k], [m / 4, n / 4, (k / 16 + 1) * 4]);
        let problem = Problem::new(m, n, k, a_major, b_major);
        let a = matrix(problem.a_layout(), Dtype::F32, 1, Fill::Random);
        let b = matrix(problem.b_layout(), Dtype::F32, 2, Fill::Random);
        let raw = |matrix: &HostMatrix| {
            HostMatrix::from_bytes(matrix.layout(), Dtype::Tf32, matrix.bytes()).unwrap()
        };
        let (raw_a, raw_b) = (raw(&a), raw(&b));
        let inputs = Operands::new(&raw_a, &raw_b);
        let config = Config::new(Dtype::Tf32);
        let product = multiply(&Executor::Cuda(device.clone()), &config, &problem, inputs).unwrap();
        let model = error_model(Elements::new(Dtype::Tf32, Dtype::F32));
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let comparison = reference.compare(&product.d, &model).unwrap();
        assert!(comparison.passed, "{problem:?}: {comparison}");
    }
}

#[test]
fn no_depth_gives_beta_c_and_empty_results_do_nothing() {
    let Some(device) = device("no_depth") else { return };
    let config = Config::new(Dtype::F16);
    for beta in [0.0, 2.0] {
        let problem = Problem::new(100, 72, 0, Major::K, Major::N).with_beta(beta);
        let comparison = check(&device, &config, &problem, 3, Fill::Integers);
        assert!(comparison.passed, "beta {beta}\n{comparison}");
    }
    let gemm = Gemm::create(&device, config).unwrap();
    let stream = Stream::new(&device).unwrap();
    let nowhere = Pointers::new(0, 0, 0, 0);
    for (m, n) in [(0, 8), (8, 0)] {
        let problem = Problem::new(m, n, 8, Major::K, Major::K);
        // SAFETY: an empty result touches no memory.
        unsafe { gemm.run_at(&problem, &nowhere, stream.as_ref()) }.unwrap();
    }
}

#[test]
fn beta_zero_never_reads_c() {
    let Some(device) = device("beta_zero_never_reads_c") else { return };
    let problem = Problem::new(512, 512, 128, Major::K, Major::K);
    let config = Config::new(Dtype::Bf16);
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let a = matrix(problem.a_layout(), Dtype::Bf16, 1, Fill::Integers);
    let b = matrix(problem.b_layout(), Dtype::Bf16, 2, Fill::Integers);
    let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::Bf16).unwrap();
    d.poison();
    let upload =
        |m: &HostMatrix| DeviceBuffer::from_host(&device, m.bytes(), stream.as_ref()).unwrap();
    let (da, db, dd) = (upload(&a), upload(&b), upload(&d));
    // C is the NaN-filled D itself, then no address at all.
    for c in [dd.address(), 0] {
        let pointers = Pointers::new(da.address(), db.address(), c, dd.address());
        // SAFETY: the buffers hold what the problem says and outlive the synchronisation.
        unsafe { gemm.run_at(&problem, &pointers, stream.as_ref()) }.unwrap();
        stream.synchronize().unwrap();
        dd.copy_to_host(0, d.bytes_mut(), stream.as_ref()).unwrap();
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let comparison = reference.compare_exact(&d).unwrap();
        assert!(comparison.passed, "{comparison}");
    }
}

#[test]
fn bad_arguments_are_refused_with_what_to_do() {
    let Some(device) = device("bad_arguments") else { return };
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let stream = Stream::new(&device).unwrap();
    let problem = Problem::new(64, 64, 64, Major::K, Major::K);
    let refused = |problem: &Problem, pointers: Pointers| {
        // SAFETY: refused before anything is launched.
        unsafe { gemm.run_at(problem, &pointers, stream.as_ref()) }.unwrap_err().to_string()
    };
    let fine = Pointers::new(1 << 20, 1 << 20, 0, 1 << 20);
    let text = refused(&problem, Pointers { a: 0, ..fine });
    assert!(text.contains("A is at address 0x0"), "{text}");
    let text = refused(&problem, Pointers { d: (1 << 20) + 1, ..fine });
    assert!(text.contains("multiple of 2"), "{text}");
    let text = refused(&problem.with_beta(1.0), fine);
    assert!(text.contains("C is at address"), "{text}");
    let gemm_s8 = Gemm::create(&device, Config::new(Dtype::S8)).unwrap();
    // SAFETY: refused before anything is launched.
    let text = unsafe { gemm_s8.run_at(&problem.with_alpha(0.5), &fine, stream.as_ref()) };
    let text = text.unwrap_err().to_string();
    assert!(text.contains("alpha is 0.5"), "{text}");
    let huge = Problem::new(1 << 32, 64, 64, Major::K, Major::K);
    let text = refused(&huge, fine);
    assert!(text.contains("too large"), "{text}");
    let enormous = DeviceBuffer::new(&device, 1 << 45).unwrap_err().to_string();
    assert!(enormous.contains("memory"), "{enormous}");
}

/// The second GEMM finds the kernel that the first one loaded.
#[test]
fn gemms_of_a_device_share_their_kernels() {
    let Some(device) = device("gemms_of_a_device_share_their_kernels") else { return };
    let problem = Problem::new(256, 256, 256, Major::K, Major::K);
    let config = Config::new(Dtype::Bf16);
    let first = Gemm::create(&device, config.clone()).unwrap();
    first.prepare(&problem).unwrap();
    let second = Gemm::create(&device.clone(), config).unwrap();
    let prepared = second.prepare(&problem).unwrap();
    assert_eq!(prepared.cache_outcome(), None, "loaded a second time");
}
