//! Gated kernels compute two products P and Q at once, and
//! D = `activation(alpha·P) · (alpha·Q) + beta·C`. The second operand is on either side, in the
//! second half of a matrix or between the lines of the first operand. Results have to keep within
//! the bound that follows from the bounds of both products, and results from integers have to be
//! exact. The tests run in the emulator, and on the device where there is one.

use persistent_gemm::driver::{Device, DeviceBuffer, Stream};
use persistent_gemm::{
    Accumulation, Dtype, ErrorModel, HostMatrix, Major, MatrixLayout, Order, Problem, Reference,
};
use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{
    GemmKernel, Halves, HalvesError, MatrixArgument, OutputMajor, Side, Spec, Work,
};

use crate::device::device;
use crate::run::run_kernel;

/// Kernels of both sides, schedules, majors and majors of D, with and without clusters.
const SPECS: [(&str, Halves); 10] = [
    ("bf16-kk-bf16-128x64x64-s4-w2-c1x1-gated_n-esilu", Halves::Split),
    ("bf16-kk-bf16-128x64x64-s4-w2-c1x1-gated_n-esilu", Halves::Interleaved),
    ("bf16-kk-f32-128x64x64-s4-p2-c2x1-gated_n-egelu", Halves::Interleaved),
    ("f16-kn-f16-128x96x64-s4-w2-c1x2-gated_n-esilu", Halves::Split),
    ("bf16-kkm-bf16-128x128x64-s3-w2-c1x1-gated_m-esilu", Halves::Interleaved),
    ("bf16-mk-bf16-128x128x64-s3-w2-c2x1-gated_m-esilu", Halves::Split),
    ("e4m3-kk-bf16-64x128x128-s4-w1-c1x2-gated_m-egelu", Halves::Split),
    ("tf32-kk-f32-128x128x32-s4-w2-c1x1-gated_n-erelu", Halves::Interleaved),
    ("bf16-kk-f32-128x64x64-s3-p2-c1x1-gated_m-erelu", Halves::Split),
    ("f16-kk-f32-128x128x64-s3-w2-c1x1-gated_n", Halves::Split),
];

/// Half the distance between neighbouring numbers of a type, as a part of their size.
fn roundoff(element: Element) -> f64 {
    match element {
        Element::Bf16 => 2f64.powi(-8),
        Element::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

/// Two products that share an operand.
struct Case {
    spec: Spec,
    problem: Problem,
    /// The operands of both products, A and B.
    products: [[HostMatrix; 2]; 2],
    /// What memory holds in place of the gated side's operands.
    both: HostMatrix,
    halves: Halves,
    c: HostMatrix,
}

fn major(major: OperandMajor, along_mn: Major) -> Major {
    if major == OperandMajor::K { Major::K } else { along_mn }
}

fn side(spec: &Spec) -> Side {
    spec.wgmma().and_then(|wgmma| wgmma.gated).unwrap()
}

impl Case {
    fn new(name: &str, halves: Halves, [m, n, k]: [usize; 3], integers: bool) -> Case {
        let spec: Spec = name.parse().unwrap();
        let majors = (major(spec.a_major, Major::M), major(spec.b_major, Major::N));
        let d_major = if spec.d_major == OutputMajor::M { Major::M } else { Major::N };
        let problem = Problem::new(m, n, k, majors.0, majors.1).with_d_major(d_major);
        let problem = match integers {
            true => problem,
            false => problem.with_alpha(0.75).with_beta(-0.5),
        };
        let matrix = |layout: MatrixLayout, element, seed: u64| {
            let mut matrix = HostMatrix::zeros(layout, element).unwrap();
            match integers {
                true => matrix.fill_with(|row, column| {
                    ((row * 7 + column * 11 + seed as usize) % 5) as f64 - 2.0
                }),
                false => matrix.fill_normal(seed),
            }
            matrix
        };
        let a = |seed| matrix(problem.a_layout(), spec.a, seed);
        let b = |seed| matrix(problem.b_layout(), spec.b, seed);
        let (products, (rows, columns)) = match side(&spec) {
            Side::M => ([[a(1), b(2)], [a(3), b(2)]], (2 * m, k)),
            Side::N => ([[a(1), b(2)], [a(1), b(3)]], (k, 2 * n)),
        };
        let gated = usize::from(side(&spec) == Side::N);
        let layout = match products[0][gated].layout().order {
            Order::RowMajor => MatrixLayout::row_major(rows, columns),
            Order::ColumnMajor => MatrixLayout::column_major(rows, columns),
        };
        let mut both = HostMatrix::zeros(layout, products[0][gated].dtype()).unwrap();
        both.fill_with(|row, column| {
            let (line, lines) = if gated == 0 { (row, m) } else { (column, n) };
            let (half, line) = match halves {
                Halves::Split => (line / lines, line % lines),
                Halves::Interleaved => (line % 2, line / 2),
            };
            let operand = &products[half][gated];
            match gated {
                0 => operand.get(line, column),
                _ => operand.get(row, line),
            }
            .unwrap()
        });
        let c = matrix(problem.c_layout(), spec.output, 4);
        Case { spec, problem, products, both, halves, c }
    }

    /// What memory holds: A, B and C.
    fn matrices(&self) -> [&HostMatrix; 3] {
        let [[a, b], _] = &self.products;
        match side(&self.spec) {
            Side::M => [&self.both, b, &self.c],
            Side::N => [a, &self.both, &self.c],
        }
    }

    fn d_bytes(&self) -> usize {
        self.c.bytes().len()
    }

    /// The work on matrices at these addresses: A, B and C, and D.
    fn work(&self, addresses: [u64; 3], d: u64) -> Work {
        let Problem { m, n, k, alpha, beta, .. } = self.problem;
        let argument = |address, matrix: &HostMatrix| MatrixArgument {
            address,
            leading_dimension: matrix.layout().leading_dimension as u64,
            batch_stride: 0,
        };
        let [mut a, mut b, c] = std::array::from_fn(|i| argument(addresses[i], self.matrices()[i]));
        let (gated, lines, major, element) = match side(&self.spec) {
            Side::M => (&mut a, m, self.spec.a_major, self.spec.a),
            Side::N => (&mut b, n, self.spec.b_major, self.spec.b),
        };
        let [first, second] = gated.halves(self.halves, lines as u64, major, element).unwrap();
        *gated = first;
        let d = MatrixArgument { address: d, ..c };
        let tiles = self.spec.cluster_tiles(m as u32, n as u32) as u32;
        Work {
            m: m as u32,
            n: n as u32,
            k: k as u32,
            alpha,
            beta,
            a,
            b,
            second,
            c: if beta == 0.0 { d } else { c },
            d,
            raster_rows: 2,
            clusters: tiles.min(12),
            ..Work::default()
        }
    }

    /// The largest error of D as a part of its bound.
    fn worst(&self, bytes: &[u8]) -> f64 {
        let Problem { m, n, alpha, beta, .. } = self.problem;
        let layout = self.c.layout();
        let d = HostMatrix::from_bytes(layout, self.spec.output, bytes).unwrap();
        let plain = self.problem.with_alpha(1.0).with_beta(0.0);
        let model = ErrorModel::new(Accumulation::of(&self.spec), Dtype::F32);
        let products = self.products.each_ref().map(|[a, b]| {
            let reference = Reference::new(&plain, a, b, None).unwrap();
            let bounds = reference.bounds(&model, Dtype::F32).unwrap();
            (reference.values().to_vec(), bounds)
        });
        let activation = self.spec.epilogue.activation();
        let unit = roundoff(Element::F32);
        let mut worst: f64 = 0.0;
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            // Each product and its error, both times alpha.
            let [(p, of_p), (q, of_q)] = products.each_ref().map(|(values, bounds)| {
                let index = row * n + column;
                let value = alpha * values[index];
                (value, alpha.abs() * bounds[index] + unit * value.abs())
            });
            let (gate, of_gate) = activation.map_or((p, of_p), |activation| {
                let [relative, absolute] = activation.error(self.spec.output);
                let (gate, slope) = (activation.reference(p, &[]), activation.slope());
                (gate, slope * of_p + relative * (gate.abs() + slope * of_p) + absolute)
            });
            let (product, added) = (gate * q, beta * self.c.get(row, column).unwrap());
            let of_product = gate.abs() * of_q + q.abs() * of_gate + of_gate * of_q;
            let expected = product + added;
            let before = of_product + 2.0 * unit * (product.abs() + added.abs());
            let bound = before + roundoff(self.spec.output) * (expected.abs() + before) + 1e-7;
            let error = (d.get(row, column).unwrap() - expected).abs();
            assert!(error.is_finite(), "{} at {row}, {column}", self.spec);
            worst = worst.max(error / bound);
        }
        worst
    }

    /// Whether D is what the integers give, which binary32 holds exactly.
    fn is_exact(&self, bytes: &[u8]) -> bool {
        let d = HostMatrix::from_bytes(self.c.layout(), self.spec.output, bytes).unwrap();
        let products = self
            .products
            .each_ref()
            .map(|[a, b]| Reference::new(&self.problem, a, b, None).unwrap().values().to_vec());
        let gate = |p: f64| self.spec.epilogue.activation().map_or(p, |f| f.reference(p, &[]));
        (0..self.problem.m).all(|row| {
            (0..self.problem.n).all(|column| {
                let index = row * self.problem.n + column;
                d.get(row, column) == Some(gate(products[0][index]) * products[1][index])
            })
        })
    }
}

/// What the emulator makes of a D that was poisoned before.
fn emulate(gemm: &GemmKernel, case: &Case) -> Vec<u8> {
    let mut memory = Memory::new();
    let addresses =
        case.matrices().map(|matrix| memory.upload("matrix", matrix.bytes(), Permission::ReadOnly));
    let d = memory.upload("D", &vec![0xff; case.d_bytes()], Permission::ReadWrite);
    let launch = gemm.bind(&case.work(addresses, d));
    let emulator = Emulator::new(&gemm.kernel, &launch, &mut memory, Options::default()).unwrap();
    emulator.run().unwrap_or_else(|report| panic!("{}: {report}", gemm.spec()));
    memory.read_raw(d, case.d_bytes()).unwrap().to_vec()
}

fn run(device: &Device, gemm: &GemmKernel, case: &Case) -> Vec<u8> {
    let stream = Stream::new(device).unwrap();
    let upload = |bytes: &[u8]| DeviceBuffer::from_host(device, bytes, stream.as_ref()).unwrap();
    let matrices = case.matrices().map(|matrix| upload(matrix.bytes()));
    let d = upload(&vec![0xff; case.d_bytes()]);
    let bound = gemm.bind(&case.work(matrices.each_ref().map(DeviceBuffer::address), d.address()));
    // SAFETY: the arguments name buffers of the kernel's sizes and types, which outlive the work
    // that is waited for below.
    unsafe { run_kernel(device, gemm, &bound, &stream) };
    let mut found = vec![0; case.d_bytes()];
    d.copy_to_host(0, &mut found, stream.as_ref()).unwrap();
    found
}

/// Runs every kernel on problems of these extents: normal samples and, where results are binary32
/// and no activation makes fractions, integers.
fn check(extents: &[[usize; 3]], run: impl Fn(&GemmKernel, &Case) -> Vec<u8>) {
    for (name, halves) in SPECS {
        let gemm = GemmKernel::build(&name.parse().unwrap()).unwrap();
        for extents in extents {
            let case = Case::new(name, halves, *extents, false);
            let worst = case.worst(&run(&gemm, &case));
            println!("{name} {halves:?} {extents:?}: largest error {worst:.3} of its bound");
            assert!(worst <= 1.0, "{name} {halves:?} {extents:?}: {worst} of the bound");
            let fractions =
                gemm.spec().epilogue.activation().is_some_and(|found| found.makes_fractions());
            if gemm.spec().output == Element::F32 && !fractions {
                let case = Case::new(name, halves, *extents, true);
                assert!(case.is_exact(&run(&gemm, &case)), "{name} {halves:?} {extents:?}");
            }
        }
    }
}

#[test]
fn gated_kernels_are_right_in_the_emulator() {
    check(&[[136, 72, 208]], emulate);
}

#[test]
fn gated_kernels_are_right_on_the_device() {
    let Some(device) = device("gated_kernels_are_right") else { return };
    check(&[[136, 72, 208], [1000, 1304, 2064], [4096, 1024, 16]], |gemm, case| {
        run(&device, gemm, case)
    });
}

#[test]
fn halves_that_tma_cannot_read_are_refused() {
    let matrix = MatrixArgument { address: 256, leading_dimension: 72, batch_stride: 0 };
    let halves = |halves, lines, major| matrix.halves(halves, lines, major, Element::Bf16);
    let [first, second] = halves(Halves::Interleaved, 5, OperandMajor::K).unwrap();
    assert_eq!([first.leading_dimension, second.leading_dimension], [144; 2]);
    assert_eq!(second.address - first.address, 144);
    let [_, second] = halves(Halves::Split, 24, OperandMajor::Mn).unwrap();
    assert_eq!((second.address, second.leading_dimension), (256 + 48, 72));
    assert_eq!(halves(Halves::Interleaved, 24, OperandMajor::Mn), Err(HalvesError::Interleaved));
    let unaligned = halves(Halves::Split, 20, OperandMajor::Mn);
    assert_eq!(unaligned, Err(HalvesError::Unaligned { bytes: 40 }));
}
