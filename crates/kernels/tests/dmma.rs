//! The f64 kernel in the emulator, on problems whose tiles are partial on every side, and through
//! the assemblers.

#[path = "common/clean.rs"]
mod clean;
#[path = "common/matrix.rs"]
mod matrix;

use clean::{assemblers, assert_clean};
use matrix::{C, MAJORS, Matrix, PARAMETERS, bias_of};
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule};
use pgemm_ir::{Element, Kernel, Op, OperandMajor};
use pgemm_kernels::{Activation, BiasAlong, GemmKernel, MainloopSpec, Spec, Work, catalogue};

/// Both depths of the MMA, and all shapes of warp grids. Their rings wrap in the problems below.
const SHAPES: [&str; 7] = [
    "128x128x16-s3-w2x4-k8",
    "128x128x16-s2-w4x2-k8",
    "128x64x16-s3-w4x2-k16",
    "64x128x16-s2-w2x4-k16",
    "64x64x16-s4-w2x2-k8",
    "64x64x16-s3-w1x4-k16",
    "128x32x16-s2-w8x1-k8",
];

fn kernel(majors: &str, shape: &str) -> GemmKernel {
    let spec: Spec = format!("f64-{majors}-f64-{shape}").parse().unwrap();
    GemmKernel::build(&spec).unwrap_or_else(|error| panic!("{error}"))
}

#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    alpha: f64,
    beta: f64,
    c: C,
    /// Number of matrices of A, B and C. It is one, or the number of products.
    matrices: [usize; 3],
    ctas: u32,
    /// Number of split tiles, and number of workers that share them.
    split: (u32, u32),
}

/// Pseudo-random numbers, by element.
fn noise(seed: u64, index: usize) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
    for _ in 0..3 {
        // This is Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^= state >> 29;
    }
    state >> 11
}

fn integer(seed: u64, index: usize) -> f64 {
    (noise(seed, index) % 2001) as f64 - 1000.0
}

/// A number from -1 to 1 with all bits of the significand.
fn real(seed: u64, index: usize) -> f64 {
    noise(seed, index) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Runs a case. Every element of D, and the elements behind its rows, are compared with a
/// reference. `bound` returns the error that is allowed for a sum of absolute values.
fn run(
    dmma: &GemmKernel,
    case: Case,
    number: fn(u64, usize) -> f64,
    bound: impl Fn(f64) -> f64,
    schedule: Schedule,
) -> Result<(), String> {
    let Case { m, n, k, alpha, beta, matrices, .. } = case;
    let batch = matrices.into_iter().max().unwrap_or(1);
    // The index is product, row and column, or product, line and depth.
    let [a_count, b_count, c_count] = matrices;
    let a = |at, row: usize, i: usize| number(1, (at % a_count * m + row) * k + i);
    let b = |at, column: usize, i: usize| number(2, (at % b_count * n + column) * k + i);
    let c = |at, row: usize, column: usize| number(3, (at % c_count * m + row) * n + column);
    let operand = |major, count, lines, value: &dyn Fn(usize, usize, usize) -> f64| match major {
        OperandMajor::K => Matrix::new(count, [lines, k], true, value),
        OperandMajor::Mn => Matrix::new(count, [k, lines], true, |at, i, line| value(at, line, i)),
    };
    let mut memory = Memory::new();
    let (a_matrix, b_matrix) = (
        operand(dmma.spec().a_major, a_count, m, &a),
        operand(dmma.spec().b_major, b_count, n, &b),
    );
    let mut a_argument = a_matrix.upload(&mut memory, "A", Permission::ReadOnly);
    let mut b_argument = b_matrix.upload(&mut memory, "B", Permission::ReadOnly);
    if k == 0 {
        a_argument.address = memory.upload("zeros", &[0; 16], Permission::ReadOnly);
        b_argument.address = a_argument.address;
    }
    let c_matrix = Matrix::new(c_count, [m, n], false, c);
    let d_matrix = if case.c == C::InPlace {
        &c_matrix
    } else {
        &Matrix::new(batch, [m, n], false, |_, _, _| f64::NAN)
    };
    let d = d_matrix.upload(&mut memory, "D", Permission::ReadWrite);
    let c_argument = match case.c {
        C::Apart => c_matrix.upload(&mut memory, "C", Permission::ReadOnly),
        _ => d,
    };
    let added = bias_of(&dmma.spec().epilogue, m, n, |index| number(4, index));
    let bytes: Vec<u8> = added.iter().flat_map(|value| value.to_le_bytes()).collect();
    let bias = memory.upload("the bias", &bytes, Permission::ReadOnly);
    let work = Work {
        m: m as u32,
        n: n as u32,
        k: k as u32,
        batch: batch as u32,
        alpha,
        beta,
        bias,
        parameters: PARAMETERS,
        a: a_argument,
        b: b_argument,
        c: c_argument,
        d,
        raster_rows: 2,
        clusters: case.ctas,
        split_tiles: case.split.0,
        workers: case.split.1,
        ..Work::default()
    };
    let size = dmma.workspace(&work);
    let workspace = memory.allocate("workspace", size.bytes as usize);
    memory.write(workspace, &vec![0; size.zeroed as usize]).unwrap();
    let work = Work { workspace, ..work };
    let launch = dmma.bind(&work);
    let options = Options { schedule, ..Options::default() };
    let emulator = Emulator::new(&dmma.kernel, &launch, &mut memory, options).unwrap();
    emulator.run().map_err(|report| format!("{} {case:?}: {report}", dmma.spec()))?;
    let counters = memory.read_raw(workspace, size.zeroed as usize).unwrap();
    if counters.iter().any(|byte| *byte != 0) {
        return Err(format!("{} {case:?}: counters are left behind", dmma.spec()));
    }

    let bytes = memory.read_raw(d.address, d_matrix.values.len() * 8).unwrap();
    let found = bytes.chunks_exact(8).map(|word| f64::from_le_bytes(word.try_into().unwrap()));
    for (at, found) in found.enumerate() {
        let (row, column) = (at / d_matrix.leading_dimension, at % d_matrix.leading_dimension);
        let (at, row) = (row / m, row % m);
        if column >= n {
            if !found.is_nan() {
                return Err(format!(
                    "{} {case:?}: row {row} of D {at} is written beyond its end",
                    dmma.spec()
                ));
            }
            continue;
        }
        let (mut sum, mut magnitude) = (0.0, 0.0);
        for i in 0..k {
            let product = a(at, row, i) * b(at, column, i);
            sum += product;
            magnitude += product.abs();
        }
        let mut expected = alpha * sum;
        magnitude *= alpha.abs();
        if beta != 0.0 {
            expected += beta * c(at, row, column);
            magnitude += (beta * c(at, row, column)).abs();
        }
        let bias = match dmma.spec().epilogue.bias() {
            None => 0.0,
            Some(BiasAlong::N) => added[column],
            Some(BiasAlong::M) => added[row],
        };
        expected += bias;
        magnitude += bias.abs();
        match dmma.spec().epilogue.activation() {
            None => {}
            Some(Activation::Relu) => expected = expected.max(0.0),
            Some(other) => {
                assert_eq!(other.error(Element::F64), [0.0; 2], "{other} has a bound of its own");
                expected = other.reference(expected, &PARAMETERS);
            }
        }
        let difference = (found - expected).abs();
        if difference.is_nan() || difference > bound(magnitude) {
            return Err(format!(
                "{} {case:?}: D {at} is {found} at row {row}, column {column}, and not {expected}",
                dmma.spec()
            ));
        }
    }
    Ok(())
}

#[track_caller]
fn check(
    dmma: &GemmKernel,
    case: Case,
    number: fn(u64, usize) -> f64,
    bound: impl Fn(f64) -> f64,
    schedule: Schedule,
) {
    run(dmma, case, number, bound, schedule).unwrap_or_else(|error| panic!("{error}"));
}

fn product(m: usize, n: usize, k: usize) -> Case {
    let (c, matrices) = (C::None, [1; 3]);
    Case { m, n, k, alpha: 1.0, beta: 0.0, c, matrices, ctas: 2, split: (0, 0) }
}

#[test]
fn products_of_integers_are_exact() {
    for majors in MAJORS {
        for shape in SHAPES {
            let dmma = kernel(majors, shape);
            let tile = dmma.spec().tile;
            let (m, n) = (tile.m as usize + 13, tile.n as usize + 5);
            let seed = (m * n + majors.len()) as u64;
            check(&dmma, product(m, n, 83), integer, |_| 0.0, Schedule::seeded(seed));
        }
    }
}

/// Bias and relu, for whole and partial tiles, whole and split, with C and without.
#[test]
fn epilogues_are_applied_once() {
    for (majors, shape, epilogue) in [
        ("kk", "128x128x16-s3-w2x4-k8", "bias_n.relu"),
        ("mn", "64x128x16-s2-w2x4-k16", "bias_m"),
        ("kn", "64x64x16-s4-w2x2-k8", "bias_m.relu"),
        ("mk", "128x32x16-s2-w8x1-k8", "bias_n"),
        ("kk", "64x64x16-s3-w1x4-k16", "relu"),
        ("mk", "128x32x16-s2-w8x1-k8", "bias_n.clamp"),
    ] {
        let dmma = kernel(majors, &format!("{shape}-e{epilogue}"));
        let tile = dmma.spec().tile;
        let (m, n) = (tile.m as usize + 13, tile.n as usize + 5);
        let exact = |case, seed| check(&dmma, case, integer, |_| 0.0, Schedule::seeded(seed));
        exact(product(m, n, 20), 31);
        exact(Case { alpha: 0.5, beta: -2.0, c: C::InPlace, ..product(m, n, 9) }, 32);
        exact(Case { split: (2, 5), ctas: 3, ..product(m, n, 50) }, 33);
        exact(product(m, n, 0), 34);
    }
}

#[test]
fn kernels_of_the_catalogue_are_exact_on_integers_if_a_is_k_major() {
    the_catalogue_is_exact_on_integers(OperandMajor::K);
}

#[test]
fn kernels_of_the_catalogue_are_exact_on_integers_if_a_is_m_major() {
    the_catalogue_is_exact_on_integers(OperandMajor::Mn);
}

fn the_catalogue_is_exact_on_integers(a_major: OperandMajor) {
    let specs = catalogue::all().filter(|spec| matches!(spec.mainloop, MainloopSpec::Dmma(_)));
    for (index, spec) in specs.enumerate().filter(|(_, spec)| spec.a_major == a_major) {
        let dmma = GemmKernel::build(&spec).unwrap_or_else(|error| panic!("{error}"));
        let [rows, columns] = [spec.tile.m * spec.cluster.m, spec.tile.n * spec.cluster.n];
        let (m, n) = (rows as usize + 3, columns as usize * 2 - 5);
        let k = (spec.stages as usize + 1) * spec.tile.k as usize - 9;
        let c = [C::None, C::Apart, C::InPlace][index % 3];
        let beta = if c == C::None { 0.0 } else { 3.0 };
        let split = if index % 2 == 0 { (4, 9) } else { (0, 0) };
        let case = Case { alpha: -2.0, beta, c, split, ..product(m, n, k) };
        check(&dmma, case, integer, |_| 0.0, Schedule::seeded(index as u64));
    }
}

#[test]
fn every_edge_is_cut_where_it_should_be() {
    for majors in MAJORS {
        let dmma = kernel(majors, "64x64x16-s4-w2x2-k8");
        for (m, n, k) in
            [(1, 1, 1), (64, 64, 16), (65, 63, 17), (3, 130, 7), (130, 2, 64), (9, 9, 0)]
        {
            for schedule in [Schedule::round_robin(), Schedule::async_late(1), Schedule::seeded(7)]
            {
                check(&dmma, product(m, n, k), integer, |_| 0.0, schedule);
            }
        }
    }
}

#[test]
fn c_is_added_from_wherever_it_is() {
    for majors in ["kk", "mn"] {
        let dmma = kernel(majors, "64x64x16-s4-w2x2-k8");
        for c in [C::None, C::Apart, C::InPlace] {
            let beta = if c == C::None { 0.0 } else { -2.0 };
            for ctas in [1, 3] {
                let case = Case { alpha: 0.5, beta, c, ctas, ..product(70, 150, 40) };
                check(&dmma, case, integer, |_| 0.0, Schedule::seeded(u64::from(ctas)));
            }
        }
    }
}

#[test]
fn batches_share_what_they_have_one_of() {
    for (majors, matrices) in [("kk", [3, 1, 3]), ("mn", [1, 2, 1]), ("kn", [2, 2, 2])] {
        let dmma = kernel(majors, "64x64x16-s4-w2x2-k8");
        let c = if matrices[2] == 1 { C::Apart } else { C::InPlace };
        let case = Case { alpha: 2.0, beta: -1.0, c, matrices, ..product(66, 31, 70) };
        for split in [(0, 0), (3, 5)] {
            check(&dmma, Case { split, ..case }, integer, |_| 0.0, Schedule::seeded(8));
        }
        check(&dmma, Case { k: 0, ..case }, integer, |_| 0.0, Schedule::round_robin());
    }
}

#[test]
fn split_tiles_are_added_up() {
    // There are six tiles of seven stages.
    let whole = Case { ctas: 3, ..product(70, 180, 103) };
    for majors in ["kn", "mk"] {
        let dmma = kernel(majors, "64x64x16-s4-w2x2-k8");
        for split in [(6, 12), (6, 18), (6, 42), (6, 3), (6, 5), (4, 7), (1, 7)] {
            let scaled = Case { alpha: -3.0, beta: 2.0, c: C::InPlace, ..whole };
            for (case, schedule) in [
                (whole, Schedule::async_late(1)),
                (scaled, Schedule::seeded(u64::from(split.1))),
                (Case { ctas: 12, ..whole }, Schedule::round_robin()),
            ] {
                check(&dmma, Case { split, ..case }, integer, |_| 0.0, schedule);
            }
        }
    }
}

#[test]
fn sums_of_reals_stay_within_their_bound() {
    for majors in MAJORS {
        for shape in ["128x128x16-s3-w2x4-k8", "64x64x16-s3-w1x4-k16"] {
            let dmma = kernel(majors, shape);
            let case = Case {
                alpha: 1.0 / 3.0,
                beta: 0.7,
                c: C::Apart,
                ..product(dmma.spec().tile.m as usize + 1, 67, 333)
            };
            // Reference and kernel round once or twice in each of k steps, and in the few steps of
            // the epilogue.
            let roundings = 2.0 * (2.0 * case.k as f64 + 4.0);
            let unit = f64::EPSILON / 2.0;
            check(&dmma, case, real, |sum| roundings * unit * sum, Schedule::seeded(3));
        }
    }
}

/// Without one of its synchronisations, a kernel fails.
#[test]
fn kernels_without_their_synchronisation_fail() {
    type Removed = fn(&Op) -> bool;
    let kinds: [(&str, Removed); 5] = [
        ("waits", |op| *op == Op::MbarrierWait),
        ("arrivals", |op| *op == Op::MbarrierArrive),
        ("announced bytes", |op| matches!(op, Op::MbarrierArriveExpect { .. })),
        ("the fence behind initialisation", |op| *op == Op::FenceMbarrierInit),
        ("the barrier behind initialisation", |op| matches!(op, Op::BarrierSync { .. })),
    ];
    let whole = kernel("mk", "64x64x16-s2-w2x2-k8");
    let fails = |dmma: &GemmKernel| {
        let schedules = [Schedule::round_robin(), Schedule::async_late(1), Schedule::seeded(4)];
        schedules
            .into_iter()
            .any(|schedule| run(dmma, product(70, 80, 100), integer, |_| 0.0, schedule).is_err())
    };
    assert!(!fails(&whole));
    for (name, removed) in kinds {
        let mut mutant = whole.clone();
        mutant.kernel.visit_blocks_mut(&mut |block| block.insts.retain(|inst| !removed(&inst.op)));
        assert!(fails(&mutant), "{name}");
    }
}

/// Multiplications of a warp in one stage, and the bytes that its lanes read for them.
fn stage_traffic(kernel: &Kernel) -> (u32, u32) {
    let (mut multiplied, mut read) = (0, 0);
    kernel.visit(&mut |inst| {
        for block in inst.blocks.iter().filter(|_| inst.op == Op::For) {
            // This skips the loop of a reduction, which multiplies nothing.
            if !block.insts.iter().any(|inst| matches!(inst.op, Op::WarpMma(_))) {
                continue;
            }
            for inst in &block.insts {
                match &inst.op {
                    Op::WarpMma(mma) => multiplied += mma.m * mma.n * mma.k,
                    Op::Load(access) => read += access.vector * 8 * 32,
                    _ => {}
                }
            }
        }
    });
    (multiplied, read)
}

/// The tensor cores of an SM do 128 multiplications in a cycle, and shared memory delivers 128
/// bytes.
#[test]
fn shared_memory_keeps_up_with_the_tensor_cores() {
    for majors in MAJORS {
        for shape in SHAPES {
            let dmma = kernel(majors, shape);
            let spec = dmma.spec();
            let (multiplied, read) = stage_traffic(&dmma.kernel);
            let MainloopSpec::Dmma(mainloop) = spec.mainloop else { panic!("{spec}") };
            let (m, n) = mainloop.warp_tile(spec.tile);
            assert_eq!((multiplied, read), (m * n * 16, (m + n) * 16 * 8), "{spec}");
        }
        let (multiplied, read) = stage_traffic(&kernel(majors, SHAPES[0]).kernel);
        assert_eq!(f64::from(read) / (f64::from(multiplied) / 128.0), 48.0, "bytes per cycle");
    }
}

#[test]
fn assemblers_take_it_without_spills() {
    let of = |majors| SHAPES.into_iter().map(move |shape| kernel(majors, shape).kernel);
    assert_clean(&assemblers(), MAJORS.into_iter().flat_map(of));
}

/// A draw of CI. The assemblers spilled four bytes: the place of a CTA along N, in a cluster that
/// has one CTA along N.
#[test]
fn assemblers_take_activations_in_clusters_without_spills() {
    let names = [
        "f64-mn-f64-64x192x16-s5-w2x4-k8-c4x1-ebias_n.gelu",
        "f64-mn-f64-64x128x16-s5-w2x4-k8-c2x1-egelu",
    ];
    let build = |name: &str| GemmKernel::build(&name.parse().expect("it is legal")).unwrap().kernel;
    assert_clean(&assemblers(), names.into_iter().map(build));
}
