//! Special values on the device: what the emulator takes for granted of tensor cores.

use persistent_gemm::driver::{DeviceBuffer, Stream};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{
    Accumulation, Config, Dtype, ErrorModel, Gemm, HostMatrix, Major, Operands, Pointers,
    Precision, Problem, Reference, Split,
};

use crate::device::device;
use crate::special_values as specials;

/// A test of each name on the device.
macro_rules! on_device {
    ($($check:ident),* $(,)?) => {$(
        #[test]
        fn $check() {
            if let Some(device) = device(stringify!($check)) {
                specials::$check(&Executor::Cuda(device));
            }
        }
    )*};
}

specials::every_check!(on_device);

/// A C in device memory, full of NaN, is not read where beta is 0.
#[test]
fn c_on_the_device_is_not_read_where_beta_is_zero() {
    let Some(device) = device("c_on_the_device") else { return };
    let stream = Stream::new(&device).unwrap();
    for dtype in [Dtype::F16, Dtype::Tf32, Dtype::E4m3, Dtype::F64] {
        let config = Config::new(dtype);
        let problem = Problem::new(80, 96, 128, Major::K, Major::K);
        let matrix = |layout, seed| {
            let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
            matrix.fill_integers(seed, 2);
            matrix
        };
        let (a, b) = (matrix(problem.a_layout(), 1), matrix(problem.b_layout(), 2));
        let mut d = HostMatrix::zeros(problem.d_layout(), config.output_dtype()).unwrap();
        d.poison();
        let gemm = Gemm::create(&device, config).unwrap();
        let upload = |matrix: &HostMatrix| {
            DeviceBuffer::from_host(&device, matrix.bytes(), stream.as_ref()).unwrap()
        };
        let [da, db, dc, dd] = [&a, &b, &d, &d].map(upload);
        let (c, d_address) = (dc.address(), dd.address());
        let pointers = Pointers::new(da.address(), db.address(), c, d_address);
        // SAFETY: the buffers hold what the problem says and outlive the synchronisation.
        unsafe { gemm.run_at(&problem, &pointers, stream.as_ref()) }.unwrap();
        stream.synchronize().unwrap();
        dd.copy_to_host(0, d.bytes_mut(), stream.as_ref()).unwrap();
        let comparison = Reference::new(&problem, &a, &b, None).unwrap().compare_exact(&d).unwrap();
        assert!(comparison.passed, "{dtype}: {comparison}");
    }
}

/// How the tensor core rounds sums in f16 is nowhere documented. This says how often it agrees with
/// the emulator, which rounds once an instruction to the nearest, and whether its sums are too
/// small on the whole, as truncated ones would be.
#[test]
fn sums_in_f16_beside_the_emulators() {
    let Some(device) = device("sums_in_f16_beside_the_emulators") else { return };
    let problem = Problem::new(64, 96, 1024, Major::K, Major::K);
    let config = Config::new(Dtype::F16).with_output(Dtype::F32).with_precision(Precision::F16);
    let config = config.with_split(Split::Whole);
    let normal = |layout, seed| {
        let mut matrix = HostMatrix::zeros(layout, Dtype::F16).unwrap();
        matrix.fill_normal(seed);
        matrix
    };
    let (a, b) = (normal(problem.a_layout(), 1), normal(problem.b_layout(), 2));
    let inputs = Operands::new(&a, &b);
    let compute = |executor: &Executor| multiply(executor, &config, &problem, inputs).unwrap().d;
    let found = compute(&Executor::Cuda(device));
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let model = ErrorModel::new(Accumulation::TensorCore16Random, Dtype::F16);
    let comparison = reference.compare(&found, &model).unwrap();
    let emulated = compute(&Executor::Emulator).to_f64_vec();
    let values = found.to_f64_vec();
    let same = values.iter().zip(&emulated).filter(|(found, emulated)| found == emulated).count();
    let bias = |values: &[f64]| -> f64 {
        let sum = |values: &[f64]| values.iter().map(|value| value.abs()).sum::<f64>();
        sum(values) / sum(reference.values()) - 1.0
    };
    println!(
        "{same} of {} sums are the emulator's; Σ|d|/Σ|r| - 1: {:.1e}, the emulator's {:.1e}; \
         {comparison}",
        values.len(),
        bias(&values),
        bias(&emulated)
    );
    assert!(comparison.passed, "{comparison}");
}
