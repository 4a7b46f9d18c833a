//! Products on cudarc's buffers and streams.

use std::fmt::Debug;
use std::sync::Arc;

use persistent_gemm::driver::{Device, StreamRef};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::interop::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits,
};
use persistent_gemm::interop::{DeviceElement, F8E4M3, F8E5M2, bf16, f16};
use persistent_gemm::{
    Config, DeviceMatrix, Dtype, Error, Gemm, HostMatrix, Major, MatrixLayout, Operands, PlanError,
    Problem, cpu,
};

use crate::device::device;

/// A type of cudarc's and of ours, with its conversions.
trait Value: DeviceElement + DeviceRepr + ValidAsZeroBits + Debug + PartialEq {
    fn of(value: f64) -> Self;
}

macro_rules! values {
    ($($rust:ty, $of:expr;)*) => {$(
        impl Value for $rust {
            fn of(value: f64) -> Self {
                $of(value)
            }
        }
    )*};
}

values! {
    f64, |value| value;
    f32, |value| value as f32;
    f16, f16::from_f64;
    bf16, bf16::from_f64;
    F8E4M3, F8E4M3::from_f64;
    F8E5M2, F8E5M2::from_f64;
    i8, |value| value as i8;
    u8, |value| value as u8;
    i32, |value| value as i32;
}

fn upload<T: Value>(stream: &Arc<CudaStream>, matrix: &HostMatrix) -> CudaSlice<T> {
    // Matrices without gaps: row after row of the matrix or, column-major, of its transposed.
    let mut lines = matrix.clone();
    if matrix.layout().order == persistent_gemm::Order::ColumnMajor {
        lines.transpose();
    }
    let values: Vec<T> = lines.to_f64_vec().into_iter().map(T::of).collect();
    stream.clone_htod(&values).unwrap()
}

fn small(problem: &Problem, dtypes: [Dtype; 3]) -> [HostMatrix; 3] {
    let layouts = [problem.a_layout(), problem.b_layout(), problem.c_layout()];
    let mut seed = 0;
    [0, 1, 2].map(|index| {
        seed += 1;
        let mut matrix = HostMatrix::zeros(layouts[index], dtypes[index]).unwrap();
        matrix.fill_integers(seed, 1);
        matrix
    })
}

fn check<A: Value, B: Value, D: Value>(context: &Arc<CudaContext>, config: Config) {
    let device = Device::from_cudarc(context).unwrap();
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    let (upstream, stream) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let problem = Problem::new(72, 56, 64, Major::K, Major::N).with_beta(1.0);
    let [a_type, b_type] = config.operands();
    let output = config.output_dtype();
    let [a, b, c] = small(&problem, [a_type, b_type, output]);
    let mut expected = HostMatrix::zeros(problem.d_layout(), output).unwrap();
    cpu::run(&problem, &a, &b, Some(&c), &mut expected).unwrap();
    let expected: Vec<D> = expected.to_f64_vec().into_iter().map(D::of).collect();

    // Filled on another stream: cudarc orders the two.
    let (a, b) = (upload::<A>(&upstream, &a), upload::<B>(&upstream, &b));
    let c = upload::<D>(&upstream, &c);
    let mut d = upstream.alloc_zeros::<D>(72 * 56).unwrap();
    gemm.run(&problem, Operands::new(&a, &b).c(&c), &mut d, &stream).unwrap();
    assert_eq!(upstream.clone_dtoh(&d).unwrap(), expected, "{config:?}");
    // C in D's place, and views that begin in the middle of a buffer.
    let mut long = upstream.alloc_zeros::<D>(72 * 56 + 5).unwrap();
    upstream.memcpy_dtod(&c, &mut long.slice_mut(5..)).unwrap();
    gemm.run(&problem, Operands::new(&a.as_view(), &b), &mut long.slice_mut(5..), &stream).unwrap();
    let found = upstream.clone_dtoh(&long).unwrap();
    assert_eq!(found[5..], expected, "{config:?}");
    assert_eq!(found[..5], [D::of(0.0); 5]);
}

#[test]
fn every_type_is_multiplied_in_cudarcs_buffers() {
    let Some(_device) = device("every_type_is_multiplied_in_cudarcs_buffers") else { return };
    let context = CudaContext::new(0).unwrap();
    check::<bf16, bf16, bf16>(&context, Config::new(Dtype::Bf16));
    check::<bf16, bf16, f32>(&context, Config::new(Dtype::Bf16).with_output(Dtype::F32));
    check::<f16, f16, f16>(&context, Config::new(Dtype::F16));
    check::<f32, f32, f32>(&context, Config::new(Dtype::F32));
    check::<f32, f32, f32>(&context, Config::new(Dtype::Tf32));
    check::<f64, f64, f64>(&context, Config::new(Dtype::F64));
    let mixed = Config::new(Dtype::E4m3).with_b_dtype(Dtype::E5m2).with_output(Dtype::F32);
    check::<F8E4M3, F8E5M2, f32>(&context, mixed);
    check::<i8, i8, i32>(&context, Config::new(Dtype::S8));
    check::<u8, u8, i32>(&context, Config::new(Dtype::U8));
    context.check_err().unwrap();
}

#[test]
fn buffers_that_do_not_fit_are_refused() {
    let Some(_device) = device("buffers_that_do_not_fit_are_refused") else { return };
    let context = CudaContext::new(0).unwrap();
    let device = Device::from_cudarc(&context).unwrap();
    let stream = context.default_stream();
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let problem = Problem::new(8, 8, 8, Major::K, Major::N);
    let a = stream.alloc_zeros::<bf16>(64).unwrap();
    let mut d = stream.alloc_zeros::<bf16>(64).unwrap();
    gemm.run(&problem, Operands::new(&a, &a), &mut d, &stream).unwrap();

    let short = gemm.run(&problem, Operands::new(&a.slice(1..), &a), &mut d, &stream).unwrap_err();
    assert!(matches!(short, Error::BufferLength { matrix: "A", found: 63, needed: 64 }), "{short}");
    let apart = problem.with_b_leading_dimension(9);
    let short = gemm.run(&apart, Operands::new(&a, &a), &mut d, &stream).unwrap_err();
    assert!(matches!(short, Error::BufferLength { matrix: "B", needed: 71, .. }), "{short}");
    let batch = problem.with_batch(2).with_a_batch_stride(0).with_b_batch_stride(0);
    let short = gemm.run(&batch, Operands::new(&a, &a), &mut d, &stream).unwrap_err();
    assert!(matches!(short, Error::BufferLength { matrix: "D", needed: 128, .. }), "{short}");

    let wide = stream.alloc_zeros::<f32>(64).unwrap();
    let other = gemm.run(&problem, Operands::new(&wide, &a), &mut d, &stream).unwrap_err();
    assert!(matches!(other, Error::BufferType { matrix: "A", found: "f32", .. }), "{other}");
    assert!(StreamRef::from_cudarc(&device, &stream).is_ok());
}

#[test]
fn a_device_keeps_cudarcs_context_alive() {
    let Some(_device) = device("a_device_keeps_cudarcs_context_alive") else { return };
    let device = Device::from_cudarc(&CudaContext::new(0).unwrap()).unwrap();
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    gemm.prepare(&Problem::new(64, 64, 64, Major::K, Major::K)).unwrap();
    gemm.sync().unwrap();
}

/// Products with a bias, of integers, in cudarc's buffers and in matrices.
fn check_bias<A: Value, D: Value, Bias: Value>(context: &Arc<CudaContext>, config: Config) {
    let device = Device::from_cudarc(context).unwrap();
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    let stream = context.new_stream().unwrap();
    let problem = Problem::new(72, 56, 32, Major::K, Major::N).with_beta(-1.0);
    let [operands, _] = config.operands();
    let [a, b, c] = small(&problem, [operands, operands, config.output_dtype()]);
    let length = config.epilogue.bias_length(72, 56);
    let row = MatrixLayout::row_major(1, length);
    let mut bias = HostMatrix::zeros(row, config.bias_dtype()).unwrap();
    bias.fill_integers(4, 5);
    let inputs = Operands::new(&a, &b).c(&c).bias(&bias);
    let expected = multiply(&Executor::Cpu { because: None }, &config, &problem, inputs).unwrap().d;

    let values: Vec<D> = expected.to_f64_vec().into_iter().map(D::of).collect();
    let on_device = (upload::<A>(&stream, &a), upload::<A>(&stream, &b), upload::<D>(&stream, &c));
    let row = upload::<Bias>(&stream, &bias);
    let mut d = stream.alloc_zeros::<D>(72 * 56).unwrap();
    let (a_slice, b_slice, c_slice) = &on_device;
    let operands = Operands::new(a_slice, b_slice).bias(&row);
    gemm.run(&problem, operands.c(c_slice), &mut d, &stream).unwrap();
    assert_eq!(stream.clone_dtoh(&d).unwrap(), values, "{config:?}");
    stream.memcpy_dtod(c_slice, &mut d).unwrap();
    gemm.run(&problem, operands, &mut d, &stream).unwrap();
    assert_eq!(stream.clone_dtoh(&d).unwrap(), values, "{config:?} in place");

    let short = gemm.run(&problem, operands.bias(&row.slice(1..)), &mut d, &stream);
    let short = short.unwrap_err();
    assert!(matches!(short, Error::BufferLength { matrix: "the bias", .. }), "{short}");
    let missing = gemm.run(&problem, Operands::new(a_slice, b_slice), &mut d, &stream).unwrap_err();
    assert!(matches!(missing, Error::Plan(PlanError::MissingBias { .. })), "{missing}");

    let stream = gemm.stream();
    let [a, b, c, bias] =
        [&a, &b, &c, &bias].map(|matrix| DeviceMatrix::upload(matrix, stream).unwrap());
    let mut d = DeviceMatrix::zeros(problem.d_layout(), config.output_dtype(), stream).unwrap();
    let inputs = Operands::new(&a, &b).c(&c).bias(&bias);
    gemm.run(&problem, inputs, &mut d, &stream).unwrap();
    assert_eq!(d.download(stream).unwrap(), expected, "{config:?} of matrices");
    let missing = gemm.run(&problem, Operands::new(&a, &b).c(&c), &mut d, &stream).unwrap_err();
    assert!(matches!(missing, Error::Plan(PlanError::MissingBias { .. })), "{missing}");
    let other = inputs.bias(&a);
    let other = gemm.run(&problem, other, &mut d, &stream).unwrap_err();
    assert!(other.to_string().starts_with("the bias is"), "{other}");
}

#[test]
fn a_bias_is_added_in_typed_calls() {
    let Some(_device) = device("a_bias_is_added_in_typed_calls") else { return };
    let context = CudaContext::new(0).unwrap();
    let with = |config: Config, text: &str| config.with_epilogue(text.parse().unwrap());
    check_bias::<bf16, bf16, bf16>(&context, with(Config::new(Dtype::Bf16), "bias_n|relu"));
    let wide = Config::new(Dtype::Bf16).with_output(Dtype::F32);
    check_bias::<bf16, f32, f32>(&context, with(wide, "bias_m"));
    check_bias::<f32, f32, f32>(&context, with(Config::new(Dtype::F32), "bias_n"));
    check_bias::<f64, f64, f64>(&context, with(Config::new(Dtype::F64), "bias_m|relu"));
    let narrow = Config::new(Dtype::E4m3).with_output(Dtype::E4m3);
    check_bias::<F8E4M3, F8E4M3, bf16>(&context, with(narrow, "bias_n|relu"));

    // A bias that nothing adds.
    let gemm =
        Gemm::create(&Device::from_cudarc(&context).unwrap(), Config::new(Dtype::F32)).unwrap();
    let stream = context.default_stream();
    let a = stream.alloc_zeros::<f32>(64).unwrap();
    let mut d = stream.alloc_zeros::<f32>(64).unwrap();
    let problem = Problem::new(8, 8, 8, Major::K, Major::N);
    let unused = gemm.run(&problem, Operands::new(&a, &a).bias(&a), &mut d, &stream).unwrap_err();
    assert!(matches!(unused, Error::Plan(PlanError::UnusedBias { .. })), "{unused}");
}
