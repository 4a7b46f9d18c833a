//! Products of host matrices by blocks: exact where sums are, the same bit for bit as with all
//! matrices on the device, within the budget, with matrices that are pinned and others.

use persistent_gemm::driver::{Device, Stream};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::outofcore::Budget;
use persistent_gemm::{
    Config, DeviceMatrix, Dtype, Error, Gemm, HostMatrix, Major, MatrixLayout, Operands, Problem,
    Split, cpu,
};

use crate::device::device;
use crate::scale::by_device;

pub fn integers(layout: MatrixLayout, dtype: Dtype, seed: u64) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
    matrix.fill_integers(seed, 2);
    matrix
}

/// Computes by blocks and compares with the CPU.
fn check(device: &Device, config: &Config, problem: &Problem, budget: &Budget, pin: [bool; 4]) {
    let [a_type, b_type] = config.operands();
    let output = config.output_dtype();
    let mut a = integers(problem.a_layout(), a_type, 1);
    let mut b = integers(problem.b_layout(), b_type, 2);
    let mut c = integers(problem.c_layout(), output, 3);
    let mut expected = HostMatrix::zeros(problem.d_layout(), output).unwrap();
    expected.poison();
    let mut d = expected.clone();
    cpu::run(problem, &a, &b, Some(&c), &mut expected).unwrap();
    for (matrix, pin) in [&mut a, &mut b, &mut c, &mut d].into_iter().zip(pin) {
        if pin {
            matrix.pin(device).unwrap();
        }
    }
    let gemm = Gemm::create(device, config.clone()).unwrap();
    let mut done = 0;
    let operands = Operands::new(&a, &b).c(&c);
    let report = gemm
        .multiply_host(problem, operands, &mut d, budget, &mut |progress| {
            assert_eq!(progress.done, done + 1);
            done = progress.done;
        })
        .unwrap();
    assert_eq!(done, report.products);
    assert!(report.device_bytes <= budget.device_bytes);
    let reads_c = problem.beta != 0.0;
    assert_eq!(report.pinned, [pin[0], pin[1], pin[2] || !reads_c, pin[3]]);
    assert_eq!(d.to_f64_vec(), expected.to_f64_vec(), "{config:?} {problem:?} {report}");
    assert_eq!(d, expected, "gaps between lines are as they were");
}

#[test]
fn products_by_blocks_are_exact_in_every_type_and_layout() {
    let Some(device) = device("products_by_blocks_are_exact") else { return };
    let types = [
        (Dtype::Bf16, Dtype::Bf16),
        (Dtype::Bf16, Dtype::F32),
        (Dtype::F16, Dtype::F16),
        (Dtype::Tf32, Dtype::F32),
        (Dtype::F32, Dtype::F32),
        (Dtype::F64, Dtype::F64),
        (Dtype::S8, Dtype::S32),
        (Dtype::E4m3, Dtype::Bf16),
    ];
    for (index, (a, d)) in types.into_iter().enumerate() {
        let config = Config::new(a).with_output(d);
        // Sums of bf16 must not exceed 256.
        let k = if d.bytes() == 2 { 60 } else { by_device(1300, 520) };
        for layout in 0..4 {
            let a_major = if layout & 1 == 0 { Major::K } else { Major::M };
            let b_major = if layout & 2 == 0 { Major::K } else { Major::N };
            let d_major = if layout == 3 { Major::M } else { Major::N };
            if by_device(false, layout != index % 4) {
                continue;
            }
            let (m, n) = by_device((1000, 777), (400, 310));
            let mut problem = Problem::new(m, n, k, a_major, b_major).with_d_major(d_major);
            problem.a.leading_dimension += layout;
            problem.d_leading_dimension += 5;
            let problem = problem.with_beta([0.0, 1.0][(index + layout) % 2]);
            let pin = [layout != 1, layout != 2, layout != 1, layout != 3];
            let budget = by_device(
                Budget::new(4 << 20).with_staging_bytes(1 << 20),
                Budget::new(if k == 60 { 400 << 10 } else { u64::from(d.bytes()) * (400 << 10) })
                    .with_staging_bytes(1 << 16),
            );
            check(&device, &config, &problem, &budget, pin);
            check(&device, &config, &problem, &Budget::new(1 << 30), [false; 4]);
            let serial = budget.with_one_at_a_time(true);
            check(&device, &config, &problem, &serial, [true; 4]);
        }
    }
}

#[test]
fn blocks_all_along_k_are_the_same_bit_for_bit_as_with_all_on_the_device() {
    let Some(device) = device("blocks_all_along_k_are_the_same") else { return };
    let config = Config::new(Dtype::Bf16);
    let problem = by_device(
        Problem::new(3000, 2500, 4000, Major::K, Major::N),
        Problem::new(900, 700, 400, Major::K, Major::N),
    );
    let normal = |layout, seed| {
        let mut matrix = HostMatrix::zeros(layout, Dtype::Bf16).unwrap();
        matrix.fill_normal(seed);
        matrix
    };
    let (a, b) = (normal(problem.a_layout(), 1), normal(problem.b_layout(), 2));
    let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::Bf16).unwrap();
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    let operands = Operands::new(&a, &b);
    let report = gemm
        .multiply_host(
            &problem,
            operands,
            &mut d,
            &Budget::new(by_device(24 << 20, 1100 << 10)),
            &mut |_| {},
        )
        .unwrap();
    assert!(report.products >= 4, "{report}");

    let gemm = Gemm::create(&device, config.with_split(Split::Whole)).unwrap();
    let stream = gemm.stream();
    let (a, b) =
        (DeviceMatrix::upload(&a, stream).unwrap(), DeviceMatrix::upload(&b, stream).unwrap());
    let mut whole = DeviceMatrix::zeros(problem.d_layout(), Dtype::Bf16, stream).unwrap();
    gemm.run(&problem, Operands::new(&a, &b), &mut whole, &stream).unwrap();
    gemm.sync().unwrap();
    assert_eq!(d, whole.download(stream).unwrap());
}

/// Blocks are the parts of D that an epilogue belongs to, with the parts of a bias along either
/// side; sums are whole in them.
#[test]
fn epilogues_are_applied_to_blocks() {
    let Some(device) = device("epilogues_are_applied_to_blocks") else { return };
    for (dtype, output, text, d_major) in [
        (Dtype::Bf16, Dtype::Bf16, "bias_n|relu", Major::N),
        (Dtype::Bf16, Dtype::F32, "bias_m|relu", Major::N),
        (Dtype::F32, Dtype::F32, "bias_n", Major::M),
        (Dtype::F64, Dtype::F64, "bias_m", Major::M),
        (Dtype::F16, Dtype::F16, "relu", Major::N),
    ] {
        let config = Config::new(dtype).with_output(output).with_epilogue(text.parse().unwrap());
        let (m, n) = by_device((1000, 777), (512, 400));
        let problem = Problem::new(m, n, 60, Major::K, Major::N).with_d_major(d_major);
        let problem = problem.with_beta(-1.0);
        let a = integers(problem.a_layout(), dtype, 1);
        let b = integers(problem.b_layout(), dtype, 2);
        let c = integers(problem.c_layout(), output, 3);
        let row = MatrixLayout::row_major(1, config.epilogue.bias_length(m, n));
        let bias = integers(row, config.bias_dtype(), 4);
        let inputs = Operands::new(&a, &b).c(&c).bias(&bias);
        let expected =
            multiply(&Executor::Cpu { because: None }, &config, &problem, inputs).unwrap();
        let gemm = Gemm::create(&device, config.clone()).unwrap();
        let mut d = HostMatrix::zeros(problem.d_layout(), output).unwrap();
        let operands = Operands::new(&a, &b).c(&c).bias(&bias);
        for bytes in [by_device(3 << 19, u64::from(output.bytes()) * (200 << 10)), 1 << 30] {
            d.poison();
            let budget = Budget::new(bytes);
            let report =
                gemm.multiply_host(&problem, operands, &mut d, &budget, &mut |_| {}).unwrap();
            assert!(
                report.device_bytes <= bytes && (bytes == 1 << 30 || report.products > 1),
                "{report}"
            );
            assert_eq!(d.to_f64_vec(), expected.d.to_f64_vec(), "{config:?} {report}");
        }
        if config.epilogue.bias().is_some() {
            let without = operands.bias(None::<&HostMatrix>);
            let refused =
                gemm.multiply_host(&problem, without, &mut d, &Budget::new(1 << 30), &mut |_| {});
            assert!(refused.unwrap_err().to_string().contains("a bias of"));
        }
    }
}

#[test]
fn what_cannot_be_done_by_blocks_is_said() {
    let Some(device) = device("what_cannot_be_done_by_blocks") else { return };
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let problem = Problem::new(300, 300, 5000, Major::K, Major::K);
    let (a, b) = (
        integers(problem.a_layout(), Dtype::Bf16, 1),
        integers(problem.b_layout(), Dtype::Bf16, 2),
    );
    let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::Bf16).unwrap();
    let operands = Operands::new(&a, &b);
    let mut refused = |problem: &Problem, bytes| {
        gemm.multiply_host(problem, operands, &mut d, &Budget::new(bytes), &mut |_| {}).unwrap_err()
    };
    let error = refused(&problem, 1 << 20);
    assert!(matches!(error, Error::DeviceBudget { whole_k: true, .. }), "{error}");
    let error = refused(&problem.with_batch(2), 1 << 30);
    assert!(matches!(error, Error::NotByBlocks { what: "a batch", .. }), "{error}");
    assert!(refused(&problem.with_beta(1.0), 1 << 30).to_string().contains("no C"));
    // All is as before.
    let stream = Stream::new(&device).unwrap();
    stream.synchronize().unwrap();
    gemm.multiply_host(&problem, operands, &mut d, &Budget::new(1 << 30), &mut |_| {}).unwrap();
}
