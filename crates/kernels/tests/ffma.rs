//! The f32 kernel in the emulator, on problems whose tiles are partial on every side, and through
//! the assemblers.

#[path = "common/clean.rs"]
mod clean;
#[path = "common/matrix.rs"]
mod matrix;

use std::ops::{Add, Range};

use clean::{assemblers, assert_clean};
use matrix::{C, MAJORS, Matrix, PARAMETERS, bias_of};
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule};
use pgemm_ir::{Element, Kernel, Op, OperandMajor, Space, Type};
use pgemm_kernels::{Activation, BiasAlong, GemmKernel, MainloopSpec, Spec, Work, catalogue};

/// All depths of stages, shapes of warp grids and orders of lanes. Their rings wrap in the problems
/// below.
const SHAPES: [&str; 7] = [
    "128x256x16-s3-t8x16-w2x4",
    "256x128x8-s3-t16x8-w4x2",
    "192x192x16-s2-t12x12-w4x2",
    "128x128x16-s4-t8x16-w4x1",
    "128x128x32-s2-t8x8-w2x4",
    "64x128x16-s3-t8x8-w2x2",
    "64x64x8-s5-t8x4-w2x2",
];

fn kernel(majors: &str, shape: &str) -> GemmKernel {
    let spec: Spec = format!("f32-{majors}-f32-{shape}").parse().unwrap();
    GemmKernel::build(&spec).unwrap_or_else(|error| panic!("{error}"))
}

#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    alpha: f32,
    beta: f32,
    c: C,
    /// Number of matrices of A, B and C. It is one, or the number of products.
    matrices: [usize; 3],
    /// Whether C and D can be accessed four elements at once.
    quads: bool,
    ctas: u32,
    /// Number of split tiles, and number of workers that share them.
    split: (u32, u32),
}

/// The parts of k that are added up separately, which are those of the workers of the only tile.
/// With several tiles they are not used, since the values are then such that sums are exact.
fn parts(case: &Case, tile_k: usize) -> Vec<Range<usize>> {
    let workers = if case.split.0 == 1 { case.split.1 } else { 1 };
    let (tiles, workers) = (case.k.div_ceil(tile_k), workers as usize);
    let end = |worker: usize| {
        let tiles = tiles / workers * worker + worker.min(tiles % workers);
        case.k.min(tiles * tile_k)
    };
    (0..workers).map(|worker| end(worker)..end(worker + 1)).collect()
}

/// A pseudo-random number from -1 to 1 with all bits of the significand, by element.
fn real(seed: u64, index: usize) -> f32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
    for _ in 0..3 {
        // This is Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^= state >> 29;
    }
    (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
}

/// Runs a case. Every element of D is compared bit for bit with multiply-adds in the order of k.
/// Elements behind the rows of D must not change.
fn run(ffma: &GemmKernel, case: Case, schedule: Schedule) -> Result<(), String> {
    let Case { m, n, k, alpha, beta, matrices, .. } = case;
    let batch = matrices.into_iter().max().unwrap_or(1);
    // The index is product, row and column, or product, line and depth.
    let [a_count, b_count, c_count] = matrices;
    let value = |seed, index| match case.split {
        (0 | 1, _) => real(seed, index),
        _ => (real(seed, index) * 8.0).round(),
    };
    let a = |at, row: usize, i: usize| value(1, (at % a_count * m + row) * k + i);
    let b = |at, column: usize, i: usize| value(2, (at % b_count * n + column) * k + i);
    let c = |at, row: usize, column: usize| value(3, (at % c_count * m + row) * n + column);
    let operand = |major, count, lines, value: &dyn Fn(usize, usize, usize) -> f32| match major {
        OperandMajor::K => Matrix::new(count, [lines, k], true, value),
        OperandMajor::Mn => Matrix::new(count, [k, lines], true, |at, i, line| value(at, line, i)),
    };
    let mut memory = Memory::new();
    let (a_matrix, b_matrix) = (
        operand(ffma.spec().a_major, a_count, m, &a),
        operand(ffma.spec().b_major, b_count, n, &b),
    );
    let mut a_argument = a_matrix.upload(&mut memory, "A", Permission::ReadOnly);
    let mut b_argument = b_matrix.upload(&mut memory, "B", Permission::ReadOnly);
    if k == 0 {
        a_argument.address = memory.upload("zeros", &[0; 16], Permission::ReadOnly);
        b_argument.address = a_argument.address;
    }
    let c_matrix = Matrix::new(c_count, [m, n], case.quads, c);
    let d_matrix = if case.c == C::InPlace {
        &c_matrix
    } else {
        &Matrix::new(batch, [m, n], case.quads, |_, _, _| f32::NAN)
    };
    let d = d_matrix.upload(&mut memory, "D", Permission::ReadWrite);
    let c_argument = match case.c {
        C::Apart => c_matrix.upload(&mut memory, "C", Permission::ReadOnly),
        _ => d,
    };
    // An address one element away from what vector accesses need.
    let added = bias_of(&ffma.spec().epilogue, m, n, |index| value(4, index));
    let values = [&[f32::NAN], &added[..]].concat();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let bias = memory.upload("the bias", &bytes, Permission::ReadOnly) + 4;
    let work = Work {
        m: m as u32,
        n: n as u32,
        k: k as u32,
        batch: batch as u32,
        alpha: alpha.into(),
        beta: beta.into(),
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
    let size = ffma.workspace(&work);
    let workspace = memory.allocate("workspace", size.bytes as usize);
    memory.write(workspace, &vec![0; size.zeroed as usize]).unwrap();
    let work = Work { workspace, ..work };
    let launch = ffma.bind(&work);
    let options = Options { schedule, ..Options::default() };
    let emulator = Emulator::new(&ffma.kernel, &launch, &mut memory, options).unwrap();
    emulator.run().map_err(|report| format!("{} {case:?}: {report}", ffma.spec()))?;
    let counters = memory.read_raw(workspace, size.zeroed as usize).unwrap();
    if counters.iter().any(|byte| *byte != 0) {
        return Err(format!("{} {case:?}: counters are left behind", ffma.spec()));
    }

    let bytes = memory.read_raw(d.address, d_matrix.values.len() * 4).unwrap();
    let found = bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
    for (at, found) in found.enumerate() {
        let (row, column) = (at / d_matrix.leading_dimension, at % d_matrix.leading_dimension);
        let (at, row) = (row / m, row % m);
        if column >= n {
            if !found.is_nan() {
                return Err(format!(
                    "{} {case:?}: row {row} of D {at} is written beyond its end",
                    ffma.spec()
                ));
            }
            continue;
        }
        let sum_of = |part: Range<usize>| {
            part.fold(0.0, |sum, i| a(at, row, i).mul_add(b(at, column, i), sum))
        };
        let sum =
            parts(&case, ffma.spec().tile.k as usize).into_iter().map(sum_of).fold(0.0, Add::add);
        let product = match ffma.spec().epilogue.bias() {
            None => alpha * sum,
            Some(BiasAlong::N) => alpha.mul_add(sum, added[column]),
            Some(BiasAlong::M) => alpha.mul_add(sum, added[row]),
        };
        let expected =
            if beta == 0.0 { product } else { c(at, row, column).mul_add(beta, product) };
        let expected = match ffma.spec().epilogue.activation() {
            None => expected,
            Some(Activation::Relu) => expected.max(0.0),
            Some(other) => {
                assert_eq!(other.error(Element::F32), [0.0; 2], "{other} is not exact");
                other.reference(expected.into(), &PARAMETERS) as f32
            }
        };
        if found != expected {
            return Err(format!(
                "{} {case:?}: D {at} is {found} at row {row}, column {column}, and not {expected}",
                ffma.spec()
            ));
        }
    }
    Ok(())
}

/// Bias and relu, for whole and partial tiles, whole and split, with C and without.
#[test]
fn epilogues_are_applied_once() {
    for (majors, shape, epilogue) in [
        ("kk", "128x256x16-s3-t8x16-w2x4", "bias_n.relu"),
        ("mn", "192x192x16-s2-t12x12-w4x2", "bias_m"),
        ("kn", "64x128x16-s3-t8x8-w2x2", "bias_m.relu"),
        ("mk", "64x64x8-s5-t8x4-w2x2", "bias_n"),
        ("kk", "64x64x8-s5-t8x4-w2x2", "relu"),
        ("mk", "64x64x8-s5-t8x4-w2x2", "bias_n.clamp"),
    ] {
        let ffma = kernel(majors, &format!("{shape}-e{epilogue}"));
        let tile = ffma.spec().tile;
        let (m, n) = (tile.m as usize + 13, tile.n as usize + 5);
        check(&ffma, Case { alpha: 0.7, ..product(m, n, 20) }, Schedule::seeded(31));
        let with_c =
            Case { alpha: 0.7, beta: -0.3, c: C::InPlace, quads: false, ..product(m, n, 9) };
        check(&ffma, with_c, Schedule::seeded(32));
        let split =
            Case { split: (1, 3), ctas: 3, ..product(tile.m as usize, tile.n as usize, 50) };
        check(&ffma, split, Schedule::seeded(33));
        check(&ffma, Case { k: 0, ..product(m, n, 0) }, Schedule::seeded(34));
    }
}

#[track_caller]
fn check(ffma: &GemmKernel, case: Case, schedule: Schedule) {
    run(ffma, case, schedule).unwrap_or_else(|error| panic!("{error}"));
}

fn product(m: usize, n: usize, k: usize) -> Case {
    let (c, matrices) = (C::None, [1; 3]);
    Case { m, n, k, alpha: 1.0, beta: 0.0, c, matrices, quads: true, ctas: 2, split: (0, 0) }
}

#[test]
fn sums_are_those_of_multiply_adds_along_k() {
    for majors in MAJORS {
        for shape in SHAPES {
            let ffma = kernel(majors, shape);
            let tile = ffma.spec().tile;
            // One tile is whole, and the others are partial.
            let (m, n) = (tile.m as usize + 13, tile.n as usize + 5);
            let case = Case { alpha: 1.0 / 3.0, ..product(m, n, 35) };
            check(&ffma, case, Schedule::seeded((m * n + majors.len()) as u64));
        }
    }
}

#[test]
fn every_kernel_of_the_catalogue_is_right() {
    let specs = catalogue::all().filter(|spec| matches!(spec.mainloop, MainloopSpec::Ffma(_)));
    for (index, spec) in specs.enumerate() {
        let ffma = GemmKernel::build(&spec).unwrap_or_else(|error| panic!("{error}"));
        let (m, n) = (spec.tile.m as usize + 3, spec.tile.n as usize - 5);
        let k = (spec.stages as usize / 2 + 1) * spec.tile.k as usize - 9;
        let c = [C::None, C::Apart, C::InPlace][index % 3];
        let beta = if c == C::None { 0.0 } else { 3.0 };
        let case = Case { alpha: -2.0, beta, c, ctas: 1, ..product(m, n, k) };
        check(&ffma, case, Schedule::seeded(index as u64));
    }
}

#[test]
fn every_edge_is_cut_where_it_should_be() {
    for majors in MAJORS {
        let ffma = kernel(majors, "64x64x8-s5-t8x4-w2x2");
        for (m, n, k) in
            [(1, 1, 1), (64, 64, 16), (65, 63, 17), (3, 130, 7), (130, 2, 64), (9, 9, 0)]
        {
            for schedule in [Schedule::round_robin(), Schedule::async_late(1), Schedule::seeded(7)]
            {
                check(&ffma, product(m, n, k), schedule);
            }
        }
    }
}

#[test]
fn c_is_added_from_wherever_it_is() {
    for majors in ["kk", "mn"] {
        let ffma = kernel(majors, "64x64x8-s5-t8x4-w2x2");
        for c in [C::None, C::Apart, C::InPlace] {
            let beta = if c == C::None { 0.0 } else { -0.7 };
            for (ctas, quads) in [(1, true), (3, false)] {
                let case = Case { alpha: 0.3, beta, c, quads, ctas, ..product(70, 150, 40) };
                check(&ffma, case, Schedule::seeded(u64::from(ctas)));
            }
        }
    }
}

#[test]
fn batches_share_what_they_have_one_of() {
    for (majors, matrices) in [("kk", [3, 1, 3]), ("mn", [1, 2, 1]), ("kn", [2, 2, 2])] {
        let ffma = kernel(majors, "64x64x8-s5-t8x4-w2x2");
        let c = if matrices[2] == 1 { C::Apart } else { C::InPlace };
        let case = Case { alpha: 0.3, beta: -0.7, c, matrices, ..product(66, 31, 40) };
        for quads in [true, false] {
            check(&ffma, Case { quads, ..case }, Schedule::seeded(8));
        }
        check(&ffma, Case { k: 0, ..case }, Schedule::round_robin());
    }
}

#[test]
fn split_tiles_are_added_up_along_k() {
    for (majors, shape) in [("kk", SHAPES[5]), ("mn", SHAPES[6]), ("kn", SHAPES[0])] {
        let ffma = kernel(majors, shape);
        let tile = ffma.spec().tile;
        // The shares of the only tile, some of them longer.
        let (m, n, k) = (tile.m as usize - 5, tile.n as usize - 1, 7 * tile.k as usize - 3);
        for (workers, ctas) in [(2, 2), (3, 1), (7, 4)] {
            let case = Case { alpha: 0.3, beta: -0.7, c: C::InPlace, ctas, ..product(m, n, k) };
            check(&ffma, Case { split: (1, workers), ..case }, Schedule::seeded(9));
        }
        // Workers that cross tiles, followed by whole tiles.
        let (m, n) = (tile.m as usize + 1, tile.n as usize + 1);
        for (split, ctas) in [((3, 4), 3), ((4, 8), 2)] {
            let case = Case { ctas, split, ..product(m, n, 5 * tile.k as usize) };
            check(&ffma, case, Schedule::async_late(3));
        }
    }
}

/// Without one of its synchronisations, a kernel fails.
#[test]
fn kernels_without_their_synchronisation_fail() {
    type Removed = fn(&Op) -> bool;
    let kinds: [(&str, Removed); 6] = [
        ("waits", |op| *op == Op::MbarrierWait),
        ("arrivals", |op| *op == Op::MbarrierArrive),
        ("announced bytes", |op| matches!(op, Op::MbarrierArriveExpect { .. })),
        ("the fence behind initialisation", |op| *op == Op::FenceMbarrierInit),
        ("the barrier behind initialisation", |op| matches!(op, Op::BarrierSync { .. })),
        ("the fence behind transposition", |op| matches!(op, Op::FenceProxy(_))),
    ];
    let whole = kernel("mk", "64x64x8-s2-t8x4-w2x2");
    let fails = |ffma: &GemmKernel| {
        let schedules = [Schedule::round_robin(), Schedule::async_late(1), Schedule::seeded(4)];
        schedules.into_iter().any(|schedule| run(ffma, product(70, 80, 100), schedule).is_err())
    };
    assert!(!fails(&whole));
    for (name, removed) in kinds {
        let mut mutant = whole.clone();
        mutant.kernel.visit_blocks_mut(&mut |block| block.insts.retain(|inst| !removed(&inst.op)));
        assert!(fails(&mutant), "{name}");
    }
}

/// Multiply-adds of a thread in one stage, and the loads of their operands.
fn stage_operations(kernel: &Kernel) -> (u32, u32) {
    let (mut multiplied, mut loaded) = (0, 0);
    kernel.visit(&mut |inst| {
        for block in inst.blocks.iter().filter(|_| inst.op == Op::For) {
            // The transposing warps load too.
            if !block.insts.iter().any(|inst| inst.op == Op::Fma) {
                continue;
            }
            for inst in &block.insts {
                match &inst.op {
                    Op::Fma => multiplied += 1,
                    Op::Load(access) if access.space == Space::Shared => {
                        assert_eq!((access.ty, access.vector), (Type::F32, 4));
                        loaded += 1;
                    }
                    _ => {}
                }
            }
        }
    });
    (multiplied, loaded)
}

#[test]
fn a_stage_is_multiplied_with_the_fewest_loads() {
    for majors in MAJORS {
        for shape in SHAPES {
            let ffma = kernel(majors, shape);
            let MainloopSpec::Ffma(mainloop) = ffma.spec().mainloop else { panic!() };
            let (thread, k) = (mainloop.thread, ffma.spec().tile.k);
            let expected = (thread.m * thread.n * k, (thread.m + thread.n) / 4 * k);
            assert_eq!(stage_operations(&ffma.kernel), expected, "{}", ffma.spec());
        }
    }
}

#[test]
fn assemblers_take_it_without_spills() {
    let of = |majors| SHAPES.into_iter().map(move |shape| kernel(majors, shape).kernel);
    assert_clean(&assemblers(), ["kk", "mn"].into_iter().flat_map(of));
}
