//! What host matrices cannot be, on the device: operands and results off 16-byte addresses,
//! broadcast vectors, elements that are no neighbours; on streams that run at once and in graphs,
//! whose operands that are laid out anew must not meet.

use half::bf16;
use persistent_gemm::driver::{Device, DeviceBuffer, Graph, Stream, StreamRef};
use persistent_gemm::{
    Config, Dtype, Error, Gemm, Major, OperandLayout, Pointers, Preparation, Problem,
};
use pgemm_kernels::Spec;

use crate::device::device;
use crate::scale::by_device;

/// Small integers that look random.
fn integer(seed: usize, index: usize) -> i32 {
    (seed.wrapping_mul(31).wrapping_add(index).wrapping_mul(2_654_435_761) >> 7 & 7) as i32 - 3
}

/// The bytes of an integer as an element.
fn bytes(element: Dtype, value: i32) -> Vec<u8> {
    match element {
        Dtype::S8 => vec![(value as i8).cast_unsigned()],
        Dtype::Bf16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

/// A matrix of integers from `off` elements behind the start of a buffer on.
struct Matrix {
    buffer: DeviceBuffer,
    address: u64,
    values: Vec<i32>,
    off: usize,
}

impl Matrix {
    fn new(stream: &Stream, element: Dtype, seed: usize, span: usize, off: usize) -> Matrix {
        let values: Vec<i32> = (0..off + span).map(|index| integer(seed, index)).collect();
        let data: Vec<u8> = values.iter().flat_map(|value| bytes(element, *value)).collect();
        let buffer = DeviceBuffer::from_host(stream.device(), &data, stream.as_ref()).unwrap();
        let address = buffer.address() + off as u64 * u64::from(element.bytes());
        Matrix { buffer, address, values, off }
    }
}

/// The matrices of a product of integers, whose results are exact: of s8 into s32, or of bf16 into
/// f32.
struct Case {
    output: Dtype,
    problem: Problem,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    d: Matrix,
}

fn place(operand: OperandLayout, along_k: usize, across: usize) -> usize {
    let (line, i) = if operand.major == Major::K { (across, along_k) } else { (along_k, across) };
    line * operand.leading_dimension + i * operand.step
}

impl Case {
    fn new(stream: &Stream, problem: Problem, seed: usize, off: [usize; 4]) -> Case {
        Case::of([Dtype::S8, Dtype::S32], stream, problem, seed, off)
    }

    fn of(
        [operand, output]: [Dtype; 2],
        stream: &Stream,
        problem: Problem,
        seed: usize,
        off: [usize; 4],
    ) -> Case {
        let Problem { m, n, k, a, b, .. } = problem;
        let (lines, length) = (problem.d_layout().lines(), problem.d_layout().line_length());
        let result = |leading: usize| (lines - 1) * leading + length;
        Case {
            output,
            problem,
            a: Matrix::new(stream, operand, seed, place(a, k - 1, m - 1) + 1, off[0]),
            b: Matrix::new(stream, operand, seed + 1, place(b, k - 1, n - 1) + 1, off[1]),
            c: Matrix::new(stream, output, seed + 2, result(problem.c_leading_dimension), off[2]),
            d: Matrix::new(stream, output, seed + 3, result(problem.d_leading_dimension), off[3]),
        }
    }

    fn pointers(&self) -> Pointers {
        let Case { a, b, c, d, .. } = self;
        Pointers::new(a.address, b.address, c.address, d.address)
    }

    fn run(&self, gemm: &Gemm, stream: StreamRef<'_>) -> Result<(), Error> {
        // SAFETY: the buffers hold what the problem says and outlive the check, which waits for the
        // stream.
        unsafe { gemm.run_at(&self.problem, &self.pointers(), stream) }
    }

    /// Compares D and what lies around it, after the work on the stream.
    fn check(&self, stream: &Stream) {
        let Case { output, problem, a, b, c, d } = self;
        let mut expected = d.values.clone();
        for row in 0..problem.m {
            for column in 0..problem.n {
                let of_a = |i| a.values[a.off + place(problem.a, i, row)];
                let of_b = |i| b.values[b.off + place(problem.b, i, column)];
                let sum: i32 = (0..problem.k).map(|i| of_a(i) * of_b(i)).sum();
                let (line, i) =
                    if problem.d_major == Major::M { (column, row) } else { (row, column) };
                let added = c.values[c.off + line * problem.c_leading_dimension + i];
                expected[d.off + line * problem.d_leading_dimension + i] =
                    problem.alpha as i32 * sum + problem.beta as i32 * added;
            }
        }
        let mut found = vec![0; expected.len() * 4];
        d.buffer.copy_to_host(0, &mut found, stream.as_ref()).unwrap();
        let found = found.chunks(4).zip(&expected);
        let wrong = found.into_iter().position(|(found, value)| found != bytes(*output, *value));
        assert_eq!(wrong, None, "{problem:?}, off by {} {} {} {}", a.off, b.off, c.off, d.off);
    }
}

/// Problems that lie in every way.
fn problems() -> Vec<Problem> {
    let mut problems = vec![];
    let extents = by_device(
        &[(1, 1, 1), (130, 257, 67), (300, 65, 515), (7, 129, 1000), (513, 40, 33)][..],
        &[(1, 1, 1), (66, 37, 67)],
    );
    for &(m, n, k) in extents {
        for (a, b) in
            [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
        {
            let plain = Problem::new(m, n, k, a, b).with_alpha(2.0);
            let apart = plain.with_a_step(2).with_a_leading_dimension(2 * m.max(k) + 1);
            let broadcast = plain.with_a_leading_dimension(0).with_c_leading_dimension(0);
            problems.extend([plain, plain.with_d_major(Major::M).with_beta(-1.0), apart]);
            problems.extend([broadcast.with_beta(3.0), plain.with_b_step(0)]);
        }
    }
    problems
}

/// Elements between the buffers' starts and the matrices A, B, C and D.
fn offsets() -> &'static [[usize; 4]] {
    by_device(
        &[[0; 4], [1, 0, 0, 1], [0, 5, 3, 2], [15, 16, 1, 4]],
        &[[0, 5, 3, 2], [15, 16, 1, 4]],
    )
}

fn gemm(device: &Device) -> Gemm {
    Gemm::create(device, Config::new(Dtype::S8)).unwrap()
}

#[test]
fn matrices_may_lie_anywhere() {
    let Some(device) = device("matrices_may_lie_anywhere") else { return };
    let (gemm, stream) = (gemm(&device), Stream::new(&device).unwrap());
    for (index, problem) in problems().into_iter().enumerate() {
        for &off in offsets() {
            let case = Case::new(&stream, problem, index, off);
            // What was prepared for aligned operands is prepared anew for others.
            gemm.prepare(&problem).unwrap();
            case.run(&gemm, stream.as_ref()).unwrap_or_else(|error| panic!("{problem:?}: {error}"));
            case.check(&stream);
        }
    }
}

/// Kernels whose threads load operands read them in place, whatever address and stride they have.
#[test]
fn threads_load_operands_from_anywhere() {
    let (s8, bf16) = ([Dtype::S8, Dtype::S32], [Dtype::Bf16, Dtype::F32]);
    let (k, m, n) = (Major::K, Major::M, Major::N);
    let kernels = [
        (s8, (k, k), "s8-kk-s32-64x96x128-s4-w1-c1x1-threads_ab"),
        (s8, (k, k), "s8-kk-s32-128x64x64-s6-w2-c1x1-threads_b"),
        (bf16, (k, k), "bf16-kk-f32-64x48x128-s5-w1-c1x1-threads_ab"),
        (bf16, (k, n), "bf16-kn-f32-128x64x64-s6-w2-c1x1-threads_ab"),
        (bf16, (m, k), "bf16-mk-f32-64x72x64-s6-w1-c1x1-threads_a"),
        (bf16, (m, n), "bf16-mn-f32-64x120x64-s5-w1-c1x1-threads_ab"),
        (bf16, (m, n), "bf16-mn-f32-128x40x128-s3-p2-c1x1-threads_b"),
        (bf16, (k, n), "bf16-knm-f32-64x8x128-s6-w1-c1x1-threads_ab"),
        (bf16, (m, n), "bf16-mn-f32-128x128x32-s6-w2-c1x1-threads_ab"),
        (bf16, (m, k), "bf16-mk-f32-64x24x32-s8-w1-c1x1-threads_ab"),
        (s8, (k, k), "s8-kk-s32-64x16x64-s8-w1-c1x1-threads_ab"),
        (s8, (m, n), "s8-mn-s32-64x64x64-s4-w1-c1x1-threads_ab"),
        (s8, (k, n), "s8-kn-s32-64x64x256-s3-w1-c1x1-threads_b"),
        (s8, (m, k), "s8-mk-s32-128x48x128-s4-w2-c1x1-threads_a"),
        (bf16, (k, k), "bf16-kk-f32-16x16x64-s0-direct4x4"),
        (bf16, (k, n), "bf16-kn-f32-16x40x48-s0-direct2x1"),
        (bf16, (m, k), "bf16-mk-f32-32x24x32-s0-direct1x4"),
        (bf16, (m, n), "bf16-mn-f32-64x16x16-s0-direct1x1"),
    ];
    // Without a GPU too it is noticed if one of them becomes impossible.
    let kernels = kernels.map(|(types, majors, name)| {
        let spec: Spec = name.parse().unwrap();
        spec.validate().unwrap();
        (types, majors, name, spec)
    });
    let Some(device) = device("threads_load_operands_from_anywhere") else { return };
    let stream = Stream::new(&device).unwrap();
    let extents = by_device(
        &[(1, 40, 67), (130, 257, 67), (300, 65, 515), (7, 129, 1000), (513, 40, 33)][..],
        &[(66, 70, 130)],
    );
    for (types, majors, name, spec) in kernels {
        let gemm = Gemm::create(&device, Config::for_spec(spec)).unwrap();
        for &(rows, columns, depth) in extents {
            let d_major = if name.contains("m-f32") { m } else { n };
            let problem = Problem::new(rows, columns, depth, majors.0, majors.1);
            let problem = problem.with_d_major(d_major).with_alpha(2.0).with_beta(-1.0);
            for (seed, off) in offsets().iter().enumerate() {
                let case = Case::of(types, &stream, problem, seed, *off);
                case.run(&gemm, stream.as_ref())
                    .unwrap_or_else(|error| panic!("{name} {problem:?}: {error}"));
                case.check(&stream);
            }
        }
    }
}

#[test]
fn streams_that_run_at_once_have_operands_of_their_own() {
    let Some(device) = device("streams_that_run_at_once") else { return };
    let gemm = gemm(&device);
    let problem = by_device(
        Problem::new(1000, 900, 1100, Major::M, Major::N),
        Problem::new(200, 120, 150, Major::M, Major::N),
    );
    let streams: Vec<Stream> = (0..3).map(|_| Stream::new(&device).unwrap()).collect();
    let cases: Vec<Case> = streams
        .iter()
        .enumerate()
        .map(|(index, stream)| Case::new(stream, problem, 10 * index, [0; 4]))
        .collect();
    for _ in 0..by_device(20, 2) {
        for (case, stream) in cases.iter().zip(&streams) {
            case.run(&gemm, stream.as_ref()).unwrap();
        }
    }
    for (case, stream) in cases.iter().zip(&streams) {
        stream.synchronize().unwrap();
        case.check(stream);
    }
}

#[test]
fn graphs_lay_operands_out_each_time_they_are_replayed() {
    let Some(device) = device("graphs_lay_operands_out") else { return };
    let (gemm, stream) = (gemm(&device), Stream::new(&device).unwrap());
    let problem = by_device(
        Problem::new(300, 400, 500, Major::K, Major::N),
        Problem::new(100, 140, 200, Major::K, Major::N),
    );
    let mut case = Case::new(&stream, problem, 5, [0; 4]);
    gemm.prepare(&problem).unwrap();
    let pointers = case.pointers();
    // SAFETY: matrices and Gemm outlive the last replay.
    let record = |stream: StreamRef<'_>| unsafe { gemm.run_at(&problem, &pointers, stream) };
    // SAFETY: as above.
    let mut graph = unsafe { Graph::capture(&device, stream.as_ref(), record) }.unwrap();
    for seed in [50, 60] {
        let other = Case::new(&stream, problem, seed, [0; 4]);
        let bytes: Vec<u8> = other.a.values.iter().map(|value| *value as u8).collect();
        case.a.buffer.copy_from_host(0, &bytes, stream.as_ref()).unwrap();
        case.a.values = other.a.values;
        graph.launch(stream.as_ref()).unwrap();
        stream.synchronize().unwrap();
        case.check(&stream);
    }
    // A is read in place here, and was not prepared for that address.
    let shifted = Case::new(&stream, problem.with_a_leading_dimension(512), 7, [1, 0, 0, 0]);
    gemm.prepare(&shifted.problem).unwrap();
    let record = |stream: StreamRef<'_>| shifted.run(&gemm, stream);
    // SAFETY: as above.
    let refused = unsafe { Graph::capture(&device, stream.as_ref(), record) };
    assert!(matches!(refused.err(), Some(Error::CaptureUnprepared)));
    gemm.prepare(Preparation::new(&shifted.problem).at(&shifted.pointers())).unwrap();
    // SAFETY: as above.
    let mut graph = unsafe { Graph::capture(&device, stream.as_ref(), record) }.unwrap();
    graph.launch(stream.as_ref()).unwrap();
    stream.synchronize().unwrap();
    shifted.check(&stream);
}
