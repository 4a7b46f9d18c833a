//! What host matrices cannot be: operands off 16-byte addresses, broadcast vectors, elements that
//! are no neighbours. On the emulator, with integers that every sum holds exactly.

use half::bf16;
use pgemm_ir::Element;
use pgemm_plan::{Major, OperandAccess, OperandAccesses, Precision};

use super::*;

/// Small integers that look random.
fn integer(seed: usize, index: usize) -> i32 {
    (seed.wrapping_mul(31).wrapping_add(index).wrapping_mul(2_654_435_761) >> 7 & 7) as i32 - 3
}

fn element(element: Element, value: i32) -> Vec<u8> {
    match element {
        Element::Bf16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        Element::S8 => vec![(value as i8).cast_unsigned()],
        Element::S32 => value.to_le_bytes().to_vec(),
        Element::F64 => f64::from(value).to_le_bytes().to_vec(),
        _ => (value as f32).to_le_bytes().to_vec(),
    }
}

/// Elements that a matrix of `lines` lines spans.
fn span((lines, length): (usize, usize), line: usize, step: usize) -> usize {
    (lines - 1) * line + (length - 1) * step + 1
}

/// Computes the problem with matrices so many elements behind multiples of 16 bytes, compares all
/// of D with the sums, and says how its operands were read.
fn check(problem: Problem, dtype: Element, off: [usize; 4]) -> OperandAccesses {
    check_as(&Config::new(dtype), problem, off)
}

/// The same with this config.
fn check_as(config: &Config, problem: Problem, off: [usize; 4]) -> OperandAccesses {
    let dtype = config.dtype;
    let output = config.output_dtype();
    let (sizes, outputs) = (dtype.bytes() as usize, output.bytes() as usize);
    let Problem { m, n, k, a, b, .. } = problem;
    let mut memory = Memory::new();
    let mut upload = |name: &str, kind, seed, span: usize, off: usize, permission| {
        let bytes: Vec<u8> =
            (0..off + span).flat_map(|index| element(kind, integer(seed, index))).collect();
        memory.upload(name, &bytes, permission) + (off * kind.bytes() as usize) as u64
    };
    let only = Permission::ReadOnly;
    let lines = (problem.d_layout().lines(), problem.d_layout().line_length());
    let batch = problem.batch;
    let others = |stride: usize| (batch.count - 1) * stride;
    let a_span = others(batch.a) + span(problem.a_lines(), a.leading_dimension, a.step);
    let b_span = others(batch.b) + span(problem.b_lines(), b.leading_dimension, b.step);
    let c_span = others(batch.c) + span(lines, problem.c_leading_dimension, 1);
    let d_span = others(batch.d) + span(lines, problem.d_leading_dimension, 1);
    let pointers = Pointers {
        a: upload("A", dtype, 1, a_span, off[0], only),
        b: upload("B", dtype, 2, b_span, off[1], only),
        c: upload("C", output, 3, c_span, off[2], only),
        d: upload("D", output, 4, d_span, off[3], Permission::ReadWrite),
        bias: 0,
    };
    let plan = memory.compute(config, &problem, &pointers).unwrap().plan;

    let at = |operand: crate::OperandLayout, line: usize, i: usize| {
        line * operand.leading_dimension + i * operand.step
    };
    let of_a = |product: usize, row: usize, i: usize| {
        let place = if a.major == Major::K { at(a, row, i) } else { at(a, i, row) };
        integer(1, off[0] + product * batch.a + place)
    };
    let of_b = |product: usize, i: usize, column: usize| {
        let place = if b.major == Major::K { at(b, column, i) } else { at(b, i, column) };
        integer(2, off[1] + product * batch.b + place)
    };
    let in_line =
        |row, column| if problem.d_major == Major::M { (column, row) } else { (row, column) };
    let start = pointers.d - (off[3] * outputs) as u64;
    let found = memory.read_raw(start, (off[3] + d_span) * outputs).unwrap();
    let mut expected: Vec<i32> = (0..off[3] + d_span).map(|index| integer(4, index)).collect();
    for (at, row) in (0..batch.count).flat_map(|at| (0..m).map(move |row| (at, row))) {
        for column in 0..n {
            let (line, place) = in_line(row, column);
            let product: i32 = (0..k).map(|i| of_a(at, row, i) * of_b(at, i, column)).sum();
            let c_place = at * batch.c + line * problem.c_leading_dimension + place;
            let c = integer(3, off[2] + c_place);
            let value = problem.alpha as i32 * product + problem.beta as i32 * c;
            expected[off[3] + at * batch.d + line * problem.d_leading_dimension + place] = value;
        }
    }
    for (index, value) in expected.into_iter().enumerate() {
        let found = &found[index * outputs..][..outputs];
        assert_eq!(found, element(output, value), "{problem:?} of {dtype}, {off:?}: {index}");
    }
    assert!(sizes > 0);
    plan.unwrap().accesses
}

#[test]
fn operands_at_any_address_are_read() {
    use OperandAccess::{ByThreads, InPlace, Repacked, RepackedAlongK};
    let problem = |a, b| Problem::new(40, 48, 32, a, b).with_alpha(2.0).with_beta(-1.0);
    let (k, m, n) = (Major::K, Major::M, Major::N);
    let accesses = |a, b| OperandAccesses { a, b };
    // So small a product gets a direct kernel.
    assert_eq!(check(problem(k, n), Element::Bf16, [0; 4]), accesses(ByThreads, ByThreads));
    // The name of a kernel says what loads the operands. By threads, addresses may be aligned too.
    let named = |loads: &str, problem: Problem, off| {
        let [a, b] = [(problem.a.major, 'm'), (problem.b.major, 'n')]
            .map(|(major, other)| if major == k { 'k' } else { other });
        let spec = format!("bf16-{a}{b}-bf16-64x48x64-s4-w1-c1x1{loads}");
        check_as(&Config::for_spec(spec.parse().unwrap()), problem, off)
    };
    let (row, column) = (problem(k, n), problem(m, k));
    assert_eq!(named("", row, [0; 4]), accesses(InPlace, InPlace));
    assert_eq!(named("", row, [1, 0, 0, 0]), accesses(Repacked, InPlace));
    assert_eq!(named("", column, [0, 3, 1, 2]), accesses(InPlace, Repacked));
    assert_eq!(named("-threads_a", row, [1, 0, 0, 0]), accesses(ByThreads, InPlace));
    assert_eq!(named("-threads_a", row, [0, 1, 0, 0]), accesses(ByThreads, Repacked));
    assert_eq!(named("-threads_ab", row, [0, 5, 1, 0]), accesses(ByThreads, ByThreads));
    assert_eq!(named("-threads_b", column, [0, 3, 1, 2]), accesses(InPlace, ByThreads));
    let odd = problem(m, n).with_a_leading_dimension(43).with_b_leading_dimension(49);
    assert_eq!(named("-threads_ab", odd, [1, 2, 0, 0]), accesses(ByThreads, ByThreads));
    // Operands of 8 bits are transposed by threads of the kernel, or before it.
    let of_bytes = |spec: &str, problem, off| {
        let spec = format!("s8-{spec}").parse().unwrap();
        check_as(&Config::for_spec(spec), problem, off)
    };
    assert_eq!(
        of_bytes("kk-s32-64x48x128-s4-w1-c1x1", problem(m, n), [5, 1, 1, 3]),
        accesses(RepackedAlongK, RepackedAlongK)
    );
    assert_eq!(
        of_bytes("mn-s32-64x48x128-s4-w1-c1x1-threads_ab", odd, [5, 1, 1, 3]),
        accesses(ByThreads, ByThreads)
    );
    assert_eq!(
        of_bytes("kn-s32-64x48x128-s4-w1-c1x1-threads_b", problem(m, n), [5, 7, 0, 2]),
        accesses(RepackedAlongK, ByThreads)
    );
    assert_eq!(
        check(problem(k, n), Element::Tf32, [0, 1, 0, 1]),
        accesses(InPlace, RepackedAlongK)
    );
    assert_eq!(check(problem(k, n), Element::Tf32, [1, 0, 0, 1]).a, Repacked);
    assert_eq!(check(problem(m, k), Element::Tf32, [0, 0, 3, 1]), accesses(InPlace, InPlace));
    // A kernel that computes Dᵀ reads B through registers.
    let of_b = Config::for_spec("tf32-mkm-f32-64x48x32-s4-w1-c1x1".parse().unwrap());
    assert_eq!(check_as(&of_b, problem(m, n), [0, 0, 1, 0]), accesses(RepackedAlongK, InPlace));
    check(problem(m, n).with_d_major(Major::M), Element::Tf32, [0; 4]);
    assert_eq!(check(problem(m, n), Element::F64, [1, 1, 1, 1]), accesses(Repacked, Repacked));
}

/// Packed, in the lines of others, one for all, at strides that TMA does not take.
#[test]
fn batches_are_multiplied_however_they_lie() {
    use OperandAccess::{ByThreads, InPlace, Repacked, RepackedAlongK};
    let (k, m, n) = (Major::K, Major::M, Major::N);
    let accesses = |a, b| OperandAccesses { a, b };
    let problem = |a, b| Problem::new(24, 40, 32, a, b).with_alpha(2.0).with_beta(-1.0);
    let packed = problem(k, n).with_batch(3);
    let shared = packed.with_b_batch_stride(0).with_c_batch_stride(0);
    let by_tma = Config::for_spec("bf16-kn-bf16-64x40x64-s4-w1-c1x1".parse().unwrap());
    for (problem, off) in [(packed, [0; 4]), (shared, [0, 0, 1, 0])] {
        // Such small products get direct kernels.
        assert_eq!(check(problem, Element::Bf16, off), accesses(ByThreads, ByThreads));
        assert_eq!(check_as(&by_tma, problem, off), accesses(InPlace, InPlace));
    }
    let odd = packed.with_a_batch_stride(801).with_d_batch_stride(1003);
    for (loads, access) in [("", Repacked), ("-threads_a", ByThreads)] {
        let spec = format!("bf16-kn-bf16-64x40x64-s4-w1-c1x1{loads}").parse().unwrap();
        let found = check_as(&Config::for_spec(spec), odd, [0; 4]);
        assert_eq!(found, accesses(access, InPlace));
    }
    assert_eq!(
        check(odd.with_c_batch_stride(7), Element::F64, [1; 4]),
        accesses(Repacked, Repacked)
    );
    // Heads side by side: a head's rows are parts of longer ones.
    let heads = problem(k, k)
        .with_a_leading_dimension(3 * 32)
        .with_b_leading_dimension(3 * 32)
        .with_d_leading_dimension(3 * 40)
        .with_batch(3)
        .with_a_batch_stride(32)
        .with_b_batch_stride(32)
        .with_d_batch_stride(40);
    assert_eq!(check(heads, Element::Bf16, [0; 4]), accesses(ByThreads, ByThreads));
    let by_tma = Config::for_spec("bf16-kk-bf16-64x40x64-s4-w1-c1x1".parse().unwrap());
    assert_eq!(check_as(&by_tma, heads, [0; 4]), accesses(InPlace, InPlace));
    for (spec, access) in [
        ("s8-kk-s32-64x48x128-s4-w1-c1x1", RepackedAlongK),
        ("s8-mn-s32-64x48x128-s4-w1-c1x1-threads_ab", ByThreads),
    ] {
        let config = Config::for_spec(spec.parse().unwrap());
        let found = check_as(&config, problem(m, n).with_batch(2), [0; 4]);
        assert_eq!(found, accesses(access, access));
    }
    let turned = problem(m, k).with_d_major(Major::M).with_batch(2).with_a_batch_stride(0);
    let repacked = Config::for_spec("s8-kk-s32-64x48x128-s4-w1-c1x1".parse().unwrap());
    let found = check_as(&repacked, turned, [1, 0, 0, 1]);
    assert_eq!(found, accesses(InPlace, RepackedAlongK));
    check(problem(m, k).with_batch(2).with_c_batch_stride(3), Element::F32, [0, 1, 0, 0]);
    let shared = problem(k, n).with_batch(3).with_b_batch_stride(0);
    assert_eq!(check(shared, Element::Tf32, [0; 4]), accesses(InPlace, InPlace));
    for precision in ["tf32x3", "f16x3"] {
        let precision: Precision = precision.parse().unwrap();
        let config = Config::new(Element::F32).with_precision(precision);
        check_as(&config, problem(k, n).with_batch(2), [1, 0, 0, 0]);
        check_as(&config, problem(m, k).with_batch(2).with_a_batch_stride(0), [0; 4]);
    }
}

#[test]
fn vectors_are_broadcast_and_elements_lie_apart() {
    let problem = Problem::new(33, 40, 24, Major::K, Major::N).with_beta(3.0);
    for dtype in [Element::Bf16, Element::S8, Element::F64] {
        // Each row of A, each row of B, and each row of C is the same one; then each column of A.
        let rows = problem.with_a_leading_dimension(0).with_b_leading_dimension(0);
        check(rows.with_c_leading_dimension(0), dtype, [0; 4]);
        check(problem.with_a_step(0).with_a_leading_dimension(1), dtype, [0, 0, 0, 1]);
        // One number, and every third element.
        let scalar = problem.with_a_step(0).with_a_leading_dimension(0);
        check(scalar.with_b_step(3).with_b_leading_dimension(125), dtype, [1, 2, 0, 0]);
    }
}

/// Small integers are their own first terms.
#[test]
fn operands_of_32_bits_are_split_however_they_lie() {
    use OperandAccess::{Split, SplitAlongK};
    let (k, m, n) = (Major::K, Major::M, Major::N);
    for precision in [Precision::Tf32x3, Precision::F16x3, Precision::Bf16x6, Precision::Bf16x9] {
        let config = Config::new(Element::F32).with_precision(precision);
        let problem = |a, b| Problem::new(40, 77, 101, a, b).with_alpha(2.0).with_beta(-1.0);
        let accesses = check_as(&config, problem(k, n), [1, 0, 3, 2]);
        assert_eq!((accesses.a, accesses.b), (Split, SplitAlongK));
        let wide = problem(m, k).with_a_step(2).with_a_leading_dimension(90);
        let accesses = check_as(&config, wide.with_d_major(Major::M), [0, 3, 0, 0]);
        // Of the transposed problem.
        assert_eq!((accesses.a, accesses.b), (Split, SplitAlongK));
        for swapped in [false, true] {
            let config = config.clone().with_swapped(swapped);
            let rows = problem(k, k).with_a_leading_dimension(0).with_c_leading_dimension(0);
            check_as(&config, rows, [0; 4]);
        }
    }
}

#[test]
fn column_major_results_are_written() {
    for (a, b) in [(Major::K, Major::K), (Major::M, Major::N)] {
        for dtype in [Element::Bf16, Element::S8, Element::Tf32, Element::F64] {
            let problem = Problem::new(37, 21, 50, a, b).with_d_major(Major::M);
            check(problem, dtype, [0; 4]);
            let wide = problem.with_c_leading_dimension(40).with_d_leading_dimension(45);
            check(wide.with_beta(2.0), dtype, [1, 0, 0, 1]);
        }
    }
}

/// The emulator pretends to have as many SMs as are asked for.
#[test]
fn products_take_more_sms_than_the_emulator_usually_has() {
    let config = Config::new(Element::Bf16).with_sms(3 * EMULATED_SMS);
    check_as(&config, Problem::new(600, 520, 72, Major::K, Major::K), [0; 4]);
}
