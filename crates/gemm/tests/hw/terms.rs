//! Products of binary32 as those of shorter terms: operands are split here as the kernels expect
//! them, in turns along k, and D has to stay inside of the derived bound. In the emulator, and on
//! the device where there is one.

use persistent_gemm::driver::{Device, DeviceBuffer, Stream};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{
    Accumulation, Comparison, Config, Dtype, ErrorModel, HostMatrix, Major, MatrixLayout, Operands,
    Precision, Problem, Reference,
};
use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_kernels::{GemmKernel, MatrixArgument, OutputMajor, Spec, Terms, Work, catalogue};

use crate::device::device;
use crate::run::run_kernel;

/// What a kernel reads of an operand: lines along k, in the form that its terms take, and a scale
/// for each line.
struct Split {
    bytes: Vec<u8>,
    stored_k: usize,
    scales: Vec<f32>,
}

/// Splits the lines of `values`, `k` long. Scales of f16 bring the largest of each line to 2^13 at
/// least.
fn split(spec: &Spec, values: &[f64], k: usize) -> Split {
    let terms = spec.terms().unwrap();
    let (count, element) = (terms.count() as usize, spec.a);
    let lines = values.len() / k;
    let (span, stored_k) =
        ((Terms::SPAN_BYTES / element.bytes()) as usize, spec.stored_k(k as u32));
    let stored_k = stored_k as usize;
    let exponent = |line: &[f64]| {
        let largest = line.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        if spec.scaled { largest.log2().floor() as i32 - 13 } else { 0 }
    };
    let scales: Vec<f64> = values.chunks(k).map(|line| 2f64.powi(exponent(line))).collect();
    let mut rest: Vec<f64> = values.iter().enumerate().map(|(i, v)| v / scales[i / k]).collect();
    let mut stored = vec![0.0; lines * stored_k];
    for term in 0..count {
        let layout = MatrixLayout::row_major(lines, k);
        let rounded = HostMatrix::from_f64(layout, element, &rest).unwrap().to_f64_vec();
        for (i, (rest, rounded)) in rest.iter_mut().zip(rounded).enumerate() {
            let (line, place) = (i / k, i % k);
            let turn = place / span * count + term;
            stored[line * stored_k + turn * span + place % span] = rounded;
            *rest -= rounded;
        }
    }
    let layout = MatrixLayout::row_major(lines, stored_k);
    let matrix = HostMatrix::from_f64(layout, element, &stored).unwrap();
    let scales = scales.iter().map(|scale| *scale as f32).collect();
    Split { bytes: matrix.bytes().to_vec(), stored_k, scales }
}

/// A product of normal samples, of which some are far larger than others.
struct Case {
    problem: Problem,
    a: HostMatrix,
    b: HostMatrix,
    operands: [Split; 2],
}

impl Case {
    /// For a kernel as it sees the problem: D column-major where its is.
    fn new(spec: &Spec, [m, n, k]: [usize; 3]) -> Case {
        let problem = Problem::new(m, n, k, Major::K, Major::K);
        let matrix = |layout: MatrixLayout, seed| {
            let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
            matrix.fill_normal(seed);
            let values = matrix.to_f64_vec();
            let columns = matrix.columns();
            matrix.fill_with(|row, column| {
                values[row * columns + column] * 2f64.powi((row * 7 + column * 13) as i32 % 9 - 4)
            });
            matrix
        };
        let (a, b) = (matrix(problem.a_layout(), 1), matrix(problem.b_layout(), 2));
        let columns = (0..n).flat_map(|column| (0..k).map(move |k| (k, column)));
        let b_lines: Vec<f64> = columns.map(|(k, column)| b.get(k, column).unwrap()).collect();
        let operands = [split(spec, &a.to_f64_vec(), k), split(spec, &b_lines, k)];
        Case { problem, a, b, operands }
    }

    /// How D lies.
    fn d_layout(&self, spec: &Spec) -> MatrixLayout {
        let Problem { m, n, .. } = self.problem;
        match spec.d_major {
            OutputMajor::N => MatrixLayout::row_major(m, n),
            OutputMajor::M => MatrixLayout::column_major(m, n),
        }
    }

    /// The work on operands and scales at these addresses, D and the workspace.
    fn work(&self, gemm: &GemmKernel, parts: [u64; 4], d: u64, workspace: u64) -> Work {
        let [a, b, a_scales, b_scales] = parts;
        let Problem { m, n, k, .. } = self.problem;
        let tiles = gemm.spec().cluster_tiles(m as u32, n as u32) as u32;
        let operand = |address, split: &Split| MatrixArgument {
            address,
            leading_dimension: split.stored_k as u64,
            batch_stride: 0,
        };
        let d = MatrixArgument {
            address: d,
            leading_dimension: self.d_layout(gemm.spec()).leading_dimension as u64,
            batch_stride: 0,
        };
        // The first tile is split in two where k has as many stages.
        let split_tiles = u32::from(k as u32 > gemm.spec().tile.k);
        Work {
            m: m as u32,
            n: n as u32,
            k: k as u32,
            a: operand(a, &self.operands[0]),
            b: operand(b, &self.operands[1]),
            c: d,
            d,
            raster_rows: 2,
            clusters: tiles.min(16),
            split_tiles,
            workers: 2 * split_tiles,
            workspace,
            scales: Some([a_scales, b_scales]),
            ..Work::default()
        }
    }

    /// Operands and scales as bytes.
    fn parts(&self) -> [Vec<u8>; 4] {
        let [a, b] = &self.operands;
        let bytes = |scales: &[f32]| scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        [a.bytes.clone(), b.bytes.clone(), bytes(&a.scales), bytes(&b.scales)]
    }

    fn compare(&self, spec: &Spec, bytes: &[u8]) -> Comparison {
        let d = HostMatrix::from_bytes(self.d_layout(spec), Dtype::F32, bytes).unwrap();
        let Problem { m, n, .. } = self.problem;
        let d = d.relayout(MatrixLayout::row_major(m, n)).unwrap();
        let reference = Reference::new(&self.problem, &self.a, &self.b, None).unwrap();
        let model = ErrorModel::new(Accumulation::of(spec), Dtype::F32);
        reference.compare(&d, &model).unwrap()
    }

    fn d_bytes(&self) -> usize {
        self.problem.m * self.problem.n * 4
    }
}

fn emulate(gemm: &GemmKernel, case: &Case) -> Comparison {
    let mut memory = Memory::new();
    let parts = case.parts().map(|bytes| memory.upload("operand", &bytes, Permission::ReadOnly));
    let d = memory.upload("D", &vec![0xff; case.d_bytes()], Permission::ReadWrite);
    let size = gemm.workspace(&case.work(gemm, parts, d, 0));
    let workspace = memory.allocate("workspace", size.bytes as usize);
    memory.write(workspace, &vec![0; size.zeroed as usize]).unwrap();
    let launch = gemm.bind(&case.work(gemm, parts, d, workspace));
    let emulator = Emulator::new(&gemm.kernel, &launch, &mut memory, Options::default()).unwrap();
    emulator.run().unwrap_or_else(|report| panic!("{}: {report}", gemm.spec()));
    case.compare(gemm.spec(), memory.read_raw(d, case.d_bytes()).unwrap())
}

fn run(device: &Device, gemm: &GemmKernel, case: &Case) -> Comparison {
    let stream = Stream::new(device).unwrap();
    let upload = |bytes: &[u8]| DeviceBuffer::from_host(device, bytes, stream.as_ref()).unwrap();
    let parts = case.parts().map(|bytes| upload(&bytes));
    let addresses = parts.each_ref().map(DeviceBuffer::address);
    let d = upload(&vec![0xff; case.d_bytes()]);
    let size = gemm.workspace(&case.work(gemm, addresses, d.address(), 0));
    let workspace = upload(&vec![0; size.bytes as usize]);
    let bound = gemm.bind(&case.work(gemm, addresses, d.address(), workspace.address()));

    // SAFETY: the arguments name buffers of the kernel's sizes and types, which outlive the work
    // that is waited for below.
    unsafe { run_kernel(device, gemm, &bound, &stream) };
    let mut found = vec![0; case.d_bytes()];
    d.copy_to_host(0, &mut found, stream.as_ref()).unwrap();
    case.compare(gemm.spec(), &found)
}

/// Every kernel of the catalogue for operands of terms.
fn kernels() -> impl Iterator<Item = GemmKernel> {
    let specs = catalogue::specs().filter(|spec| spec.terms().is_some());
    specs.map(|spec| GemmKernel::build(&spec).unwrap())
}

#[test]
fn terms_stay_inside_of_their_bound_in_the_emulator() {
    for gemm in kernels().filter(|gemm| gemm.spec().tile.m == 64) {
        let case = Case::new(gemm.spec(), [72, 24, 140]);
        let comparison = emulate(&gemm, &case);
        assert!(comparison.passed, "{}: {comparison}", gemm.spec());
    }
}

#[test]
fn terms_stay_inside_of_their_bound_on_the_device() {
    let Some(device) = device("terms_stay_inside") else { return };
    for gemm in kernels() {
        for extents in [[300, 404, 4100], [1000, 200, 1], [64, 8, 64]] {
            let case = Case::new(gemm.spec(), extents);
            let comparison = run(&device, &gemm, &case);
            assert!(comparison.passed, "{} {extents:?}: {comparison}", gemm.spec());
            let (error, precision) = (comparison.relative_frobenius, Precision::of(gemm.spec()));
            println!("{precision} {} {extents:?}: relative error {error:.3e}", gemm.spec());
        }
    }
}

/// The whole way: split by the passes, wherever operands lie.
#[test]
fn f32_is_split_on_the_device() {
    let Some(device) = device("f32_is_split_on_the_device") else { return };
    let executor = Executor::Cuda(device);
    let (k, m, n) = (Major::K, Major::M, Major::N);
    for mode in [Precision::Tf32x3, Precision::F16x3, Precision::Bf16x6, Precision::Bf16x9] {
        let config = Config::new(Dtype::F32).with_precision(mode);
        for problem in [
            Problem::new(1000, 1048, 4100, k, n),
            Problem::new(300, 77, 1001, m, k).with_alpha(-0.3).with_beta(0.7),
            Problem::new(517, 2001, 333, m, n).with_d_major(Major::M),
            Problem::new(8, 4096, 8192, k, k).with_a_leading_dimension(8195),
            Problem::new(40, 50, 0, k, n).with_beta(2.0),
        ] {
            let matrix = |layout: MatrixLayout, seed| {
                let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
                matrix.fill_normal(seed);
                matrix
            };
            let (a, b) = (matrix(problem.a_layout(), 1), matrix(problem.b_layout(), 2));
            let c = matrix(problem.c_layout(), 3);
            let inputs = Operands::new(&a, &b).c((problem.beta != 0.0).then_some(&c));
            let product = multiply(&executor, &config, &problem, inputs).unwrap();
            let reference = Reference::new(&problem, &a, &b, inputs.c).unwrap();
            let model = ErrorModel::new(Accumulation::Emulated(mode), Dtype::F32);
            let comparison = reference.compare(&product.d, &model).unwrap();
            assert!(comparison.passed, "{mode} {problem:?}: {comparison}");
            let error = comparison.relative_frobenius;
            assert!(error < 1e-6, "{mode} {problem:?}: relative error {error:e}");
        }
    }
}
