//! GEMMs on the device against the reference: every kernel of the catalogue, and what random
//! products do not have. Integers as results are compared exactly, whatever the operands hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use persistent_gemm::driver::{Device, DeviceBuffer, Stream};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::measure::{Elements, error_model};
use persistent_gemm::{
    Comparison, Config, Dtype, Gemm, HostMatrix, Major, MatrixLayout, Operands, Plan, Pointers,
    Precision, Problem, Reference, Split,
};
use pgemm_ir::OperandMajor;
use pgemm_kernels::{OutputMajor, Spec, catalogue};

use crate::device::{device, shard};

/// What the matrices hold.
#[derive(Clone, Copy)]
enum Fill {
    /// Samples of N(0, 1), or integers of the whole range of an 8-bit type.
    Random,
    /// Small enough that every sum is exact in the accumulators.
    Integers,
}

fn matrix(layout: MatrixLayout, dtype: Dtype, seed: u64, fill: Fill) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
    match fill {
        Fill::Random => matrix.fill_random(seed),
        Fill::Integers => matrix.fill_integers(seed, 3),
    }
    matrix
}

/// Runs one problem, or a batch, on the device and compares D, which was full of NaN before, with
/// the reference: the comparison of the product that fails, or has the largest error.
fn check(device: &Device, config: &Config, problem: &Problem, seed: u64, fill: Fill) -> Comparison {
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

/// Multiply-adds in binary32 in the order of k, bit for bit, whichever kernel computes them, as
/// long as tiles are whole.
#[test]
fn singles_are_added_up_along_k() {
    let Some(device) = device("singles_are_added_up_along_k") else { return };
    let problem = Problem::new(300, 520, 777, Major::M, Major::N);
    let filled = |layout, seed| {
        let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
        matrix.fill_normal(seed);
        matrix
    };
    let (a, b) = (filled(problem.a_layout(), 1), filled(problem.b_layout(), 2));
    let single = |matrix: &HostMatrix, row, column| matrix.get(row, column).unwrap() as f32;
    let sum = |row, column| {
        (0..777)
            .fold(0f32, |sum, depth| single(&a, row, depth).mul_add(single(&b, depth, column), sum))
    };
    let expected: Vec<f64> = (0..300)
        .flat_map(|row| (0..520).map(move |column| (row, column)))
        .map(|(row, column)| f64::from(sum(row, column)))
        .collect();
    for plan in Plan::candidates(&problem, &Config::new(Dtype::F32), 132).unwrap() {
        let config = Config::for_choice(plan.choice()).with_split(Split::Whole);
        let executor = Executor::Cuda(device.clone());
        let inputs = Operands::new(&a, &b);
        let product = multiply(&executor, &config, &problem, inputs).unwrap();
        assert!(product.d.to_f64_vec() == expected, "{}", plan.spec);
    }
}

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
    let problem = Problem::new(500, 300, depth, Major::K, Major::K)
        .with_a_leading_dimension(heads * depth)
        .with_b_leading_dimension(heads * depth)
        .with_batch(heads)
        .with_a_batch_stride(depth)
        .with_b_batch_stride(depth);
    let side_by_side = problem.with_d_leading_dimension(heads * 304).with_d_batch_stride(304);
    for (dtype, problem) in [
        (Dtype::Bf16, problem),
        (Dtype::F16, side_by_side),
        (Dtype::Bf16, Problem::new(33, 70, 40, Major::K, Major::N).with_batch(1000)),
        (Dtype::F64, Problem::new(17, 9, 24, Major::M, Major::N).with_batch(700)),
        (Dtype::F32, Problem::new(64, 64, 64, Major::K, Major::N).with_batch(900)),
        (Dtype::E4m3, Problem::new(64, 80, 96, Major::M, Major::N).with_batch(300)),
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
fn every_kernel_of_the_catalogue() {
    let Some(device) = device("every_kernel_of_the_catalogue") else { return };
    let count = check_kernels(&device, catalogue::all());
    println!("{count} kernels of the catalogue are correct on the device");
}

#[test]
fn every_kernel_that_is_shipped() {
    let Some(device) = device("every_kernel_that_is_shipped") else { return };
    let specs = pgemm_cubins::list().filter_map(|(name, _)| name.parse().ok());
    let count = check_kernels(&device, specs);
    println!("{count} kernels that are shipped are correct on the device");
}

/// Checks kernels with one problem each, and returns their number.
fn check_kernels(device: &Device, specs: impl Iterator<Item = Spec>) -> usize {
    let specs: Vec<(usize, Spec)> = shard(specs.filter(has_plain_operands).enumerate());
    // Compiling takes most of the time. The driver compiles on several threads at once, but better
    // in several processes.
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(index, spec)) = specs.get(index) else { return };
            let (problem, fill) = ragged_problem(&spec, index);
            let ways = [Split::Whole, Split::StreamK, Split::SplitK(2), Split::SplitK(3)];
            let split = if spec.is_direct() { Split::Whole } else { ways[index % ways.len()] };
            let unordered = index % 11 == 3;
            let config = Config::for_spec(spec).with_split(split).with_unordered(unordered);
            let comparison = check(device, &config, &problem, index as u64, fill);
            assert!(comparison.passed, "{spec} {split}: {problem:?}\n{comparison}");
        }
    };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(work);
        }
    });
    specs.len()
}

/// Whether a kernel's operands are as matrices lie; `hw_terms` has the others.
fn has_plain_operands(spec: &Spec) -> bool {
    spec.terms().is_none() && !spec.scaled
}

/// A problem of a few ragged tiles; every other one with C and exact.
fn ragged_problem(spec: &Spec, index: usize) -> (Problem, Fill) {
    let (m, n) = (spec.tile.m as usize * 2 + 24, spec.tile.n as usize * 2 + 40);
    // Lines of D that TMA moves.
    let line = 16 / spec.output.bytes() as usize;
    let (m, n) = (m.next_multiple_of(line), n.next_multiple_of(line));
    // A column-major D is that of a problem whose operands are exchanged.
    let (a_major, b_major) = spec.majors();
    let (m, n, of_a, of_b) = match spec.d_major {
        OutputMajor::N => (m, n, a_major, b_major),
        OutputMajor::M => (n, m, b_major, a_major),
    };
    let a_major = if of_a == OperandMajor::K { Major::K } else { Major::M };
    let b_major = if of_b == OperandMajor::K { Major::K } else { Major::N };
    // A few stages and a part of one, and rows of whole 16 bytes: these are of every type. Sums in
    // f16 stay exact.
    let most = if Precision::of(spec) == Precision::F16 { 3 } else { 5 };
    let k = spec.tile.k as usize * (2 + index % most) + 16;
    let problem = Problem::new(m, n, k, a_major, b_major);
    if index.is_multiple_of(2) {
        (problem, Fill::Random)
    } else {
        (problem.with_alpha(2.0).with_beta(-1.0), Fill::Integers)
    }
}

#[test]
fn several_tiles_of_each_cta_in_ragged_raster_groups() {
    let Some(device) = device("several_tiles_of_each_cta") else { return };
    for (sms, raster_rows) in [(device.properties().sm_count, 3), (5, 1), (1, 7), (16, 100)] {
        let problem = Problem::new(2000, 1816, 328, Major::K, Major::N).with_beta(1.0);
        for split in [Split::Whole, Split::StreamK] {
            let (sms, raster_rows) = (Some(sms), Some(raster_rows));
            let config = Config::new(Dtype::Bf16)
                .with_sms(sms)
                .with_raster_rows(raster_rows)
                .with_split(split);
            let comparison = check(&device, &config, &problem, 5, Fill::Integers);
            assert!(comparison.passed, "{config:?}\n{comparison}");
        }
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
