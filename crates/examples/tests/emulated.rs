//! Every example on the emulator, compared with the same function in binary64.

#[path = "../../kernels/tests/common/clean.rs"]
mod clean;

use bytemuck::Pod;
use half::bf16;
use persistent_gemm::language::{Element, TensorMapArgument};
use persistent_gemm::program::{Arguments, Emulation, Program};
use pgemm_examples::gemm::{PING_PONG_TILE, TILE, gemm, ping_pong};
use pgemm_examples::histogram::{BINS, histogram};
use pgemm_examples::norm::rms_norm;
use pgemm_examples::softmax::softmax;
use pgemm_examples::top_k::top_k;
use pgemm_examples::transpose::{tile, transpose};

/// Numbers between -4 and 4.
fn numbers(count: usize) -> Vec<bf16> {
    let mut state = 1u64;
    let mut next = || {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bf16::from_f32(((state >> 40) as f32) / (1 << 21) as f32 - 4.0)
    };
    (0..count).map(|_| next()).collect()
}

/// Fails unless each number is within one unit of bf16 in the last place of the expected one.
#[track_caller]
fn assert_close(found: &[bf16], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found.to_f64() - expected).abs();
        assert!(error <= expected.abs() / 128.0, "element {at}: {found} instead of {expected}");
    }
}

/// Runs a kernel on the rows of `x`.
fn run_rows(
    program: &Program,
    x: &[bf16],
    columns: usize,
    weights: Option<(&[bf16], f32)>,
) -> Vec<bf16> {
    let rows = (x.len() / columns) as u32;
    let mut emulation = Emulation::new();
    let y = emulation.unwritten::<bf16>("y", x.len());
    let x = emulation.constant("x", x);
    let mut arguments = program.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
    if let Some((w, epsilon)) = weights {
        let w = emulation.constant("w", w);
        arguments = arguments.with("w", &w).unwrap().with("epsilon", epsilon).unwrap();
    }
    emulation.run(program, [rows, 1, 1], &arguments).unwrap();
    emulation.read(&y).unwrap()
}

/// Numbers of columns with whole and ragged loads.
const COLUMNS: [usize; 5] = [8, 1000, 1024, 2056, 4096];

#[test]
fn assemblers_take_them_without_spills() {
    let programs = COLUMNS
        .into_iter()
        .chain([8192])
        .flat_map(|columns| [softmax(columns as u32).unwrap(), rms_norm(columns as u32).unwrap()]);
    let selections = [(8, 8), (256, 8), (4096, 32), (8192, 128)];
    let selections = selections.map(|(columns, k)| top_k(columns, k).unwrap());
    let elements = [Element::U8, Element::Bf16, Element::F32];
    let transposes = elements
        .into_iter()
        .flat_map(|element| [1, 4, 16].map(|multiple| transpose(element, multiple).unwrap()));
    let kernels = programs
        .chain([histogram().unwrap()])
        .chain(selections)
        .chain(transposes)
        .chain([gemm().unwrap(), ping_pong().unwrap()])
        .map(|program| program.kernel().clone());
    clean::assert_clean(&clean::assemblers(), kernels);
}

#[test]
fn softmax_of_rows() {
    for columns in COLUMNS {
        let program = softmax(columns as u32).unwrap();
        let x = numbers(3 * columns);
        let y = run_rows(&program, &x, columns, None);
        for (x, y) in x.chunks(columns).zip(y.chunks(columns)) {
            let largest = x.iter().map(|x| x.to_f64()).fold(f64::MIN, f64::max);
            let powers: Vec<f64> = x.iter().map(|x| (x.to_f64() - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            assert_close(y, &powers.iter().map(|power| power / sum).collect::<Vec<_>>());
        }
    }
}

#[test]
fn rms_norm_of_rows() {
    for columns in COLUMNS {
        let program = rms_norm(columns as u32).unwrap();
        let (x, w) = (numbers(2 * columns), numbers(columns + 1));
        let w = &w[1..];
        let y = run_rows(&program, &x, columns, Some((w, 1e-5)));
        for (x, y) in x.chunks(columns).zip(y.chunks(columns)) {
            let mean = x.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / columns as f64;
            let scale = 1.0 / (mean + 1e-5).sqrt();
            let expected = x.iter().zip(w).map(|(x, w)| x.to_f64() * scale * w.to_f64());
            assert_close(y, &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn histogram_of_bytes() {
    let program = histogram().unwrap();
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i * i / 7) as u8).collect();
    let mut emulation = Emulation::new();
    let input = emulation.constant("bytes", &bytes);
    let bins = emulation.array("bins", &[5u32; BINS as usize]);
    let arguments = program.arguments().with("bytes", &input).unwrap();
    let arguments = arguments.with("bins", &bins).unwrap();
    let arguments = arguments.with("vectors", bytes.len() as u32 / 16).unwrap();
    emulation.run(&program, [2, 1, 1], &arguments).unwrap();
    let mut expected = [5u32; BINS as usize];
    bytes.iter().for_each(|byte| expected[*byte as usize] += 1);
    assert_eq!(emulation.read(&bins).unwrap(), expected);
}

#[test]
fn top_k_of_rows() {
    for (columns, k) in [(8, 1), (8, 8), (256, 8), (1000, 32), (2056, 128), (4096, 50)] {
        let mut x = numbers(2 * columns);
        // A row of equal elements, and one of few values with NaNs, infinities and zeros.
        x.extend(vec![bf16::from_f32(-1.5); columns]);
        let special = [f32::NAN, f32::INFINITY, 0.0, -0.0, 1.0, f32::NEG_INFINITY, -f32::NAN, 2.0];
        x.extend((0..columns).map(|i| bf16::from_f32(special[i * 5 % 8])));
        let rows = x.len() / columns;
        let program = top_k(columns as u32, k as u32).unwrap();
        let mut emulation = Emulation::new();
        let values = emulation.unwritten::<bf16>("values", rows * k);
        let indices = emulation.unwritten::<u32>("columns", rows * k);
        let input = emulation.constant("x", &x);
        let arguments = program.arguments().with("x", &input).unwrap();
        let arguments = arguments.with("values", &values).unwrap();
        let arguments = arguments.with("columns", &indices).unwrap();
        emulation.run(&program, [rows as u32, 1, 1], &arguments).unwrap();
        let (values, indices) =
            (emulation.read(&values).unwrap(), emulation.read(&indices).unwrap());
        for (row, x) in x.chunks(columns).enumerate() {
            let mut order: Vec<usize> = (0..columns).collect();
            order.sort_by(|&i, &j| x[j].total_cmp(&x[i]));
            let found = &indices[row * k..(row + 1) * k];
            assert!(found.iter().zip(&order).all(|(found, expected)| *found == *expected as u32));
            let bits = |values: &[bf16]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let expected: Vec<bf16> = order[..k].iter().map(|&at| x[at]).collect();
            assert_eq!(bits(&values[row * k..(row + 1) * k]), bits(&expected));
        }
    }
}

/// Small integers, whose products every order sums to the same.
fn integers(count: usize, seed: usize) -> Vec<bf16> {
    (0..count).map(|i| bf16::from_f32(((i * 7 + seed) % 5) as f32 - 2.0)).collect()
}

/// Runs a GEMM on an m × k and an n × k matrix of small integers.
fn run_gemm(
    program: &Program,
    grid: [u32; 3],
    [m, n, k]: [usize; 3],
    more: impl FnOnce(Arguments) -> Arguments,
) {
    let (a, b) = (integers(m * k, 0), integers(n * k, 3));
    let mut emulation = Emulation::new();
    let d = emulation.unwritten::<bf16>("d", m * n);
    let [a_array, b_array] = [("a", &a), ("b", &b)].map(|(name, x)| emulation.constant(name, x));
    let map = |address, extents: [usize; 2]| {
        TensorMapArgument::packed(address, Element::Bf16, &extents.map(|extent| extent as u64))
    };
    let arguments = program.arguments().with("a", map(a_array.address(), [k, m])).unwrap();
    let arguments = arguments.with("b", map(b_array.address(), [k, n])).unwrap();
    let arguments = arguments.with("d", map(d.address(), [n, m])).unwrap();
    let arguments = more(arguments.with("k", k as u32).unwrap());
    emulation.run(program, grid, &arguments).unwrap();
    let d = emulation.read(&d).unwrap();
    for (at, d) in d.iter().enumerate() {
        let (row, column) = (at / n, at % n);
        let [a, b] = [&a[row * k..], &b[column * k..]];
        let sum: f32 = (0..k).map(|i| a[i].to_f32() * b[i].to_f32()).sum();
        assert_eq!(*d, bf16::from_f32(sum), "row {row}, column {column}");
    }
}

#[test]
fn gemm_of_ragged_extents() {
    let program = gemm().unwrap();
    for [m, n, k] in [[128, 256, 64], [200, 264, 8], [130, 520, 456]] {
        let grid = [(m as u32).div_ceil(TILE[0]), (n as u32).div_ceil(TILE[1]), 1];
        run_gemm(&program, grid, [m, n, k], |arguments| arguments);
    }
}

#[test]
fn ping_pong_of_ragged_extents() {
    let program = ping_pong().unwrap();
    for ([m, n, k], ctas) in [([128, 128, 64], 1), ([400, 264, 136], 2), ([130, 392, 392], 3)] {
        let [rows, columns] =
            [(m as u32).div_ceil(PING_PONG_TILE[0]), (n as u32).div_ceil(PING_PONG_TILE[1])];
        run_gemm(&program, [ctas, 1, 1], [m, n, k], |arguments| {
            let arguments = arguments.with("rows", rows).unwrap();
            arguments.with("columns", columns).unwrap()
        });
    }
}

/// Transposes a matrix of numbered elements.
fn transposes<T: Pod + PartialEq + std::fmt::Debug>(element: Element, number: impl Fn(u32) -> T) {
    for (rows, columns, multiple) in
        [(1, 1, 1), (37, 91, 1), (3, 150, 1), (68, 140, 4), (128, 128, 8), (48, 144, 16)]
    {
        let program = transpose(element, multiple).unwrap();
        let values: Vec<T> = (0..rows * columns).map(&number).collect();
        let mut emulation = Emulation::new();
        let x = emulation.constant("x", &values);
        let y = emulation.unwritten::<T>("y", values.len());
        let arguments = program.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
        let arguments = arguments.with("rows", rows).unwrap().with("columns", columns).unwrap();
        let grid = [columns.div_ceil(tile(element)), rows.div_ceil(tile(element)), 1];
        emulation.run(&program, grid, &arguments).unwrap();
        let expected = (0..rows * columns).map(|i| number(i % rows * columns + i / rows));
        let expected: Vec<T> = expected.collect();
        assert_eq!(emulation.read(&y).unwrap(), expected, "{element}, {rows}×{columns}");
    }
}

#[test]
fn transposes_of_every_size() {
    transposes(Element::U8, |i| (i * 7 / 3) as u8);
    transposes(Element::Bf16, |i| (i * 3) as u16);
    transposes(Element::F32, |i| i as f32);
}

#[test]
fn elements_of_64_bits_are_refused() {
    let error = transpose(Element::F64, 2).unwrap_err().to_string();
    assert!(error.contains("fragments hold no f64"), "{error}");
}
