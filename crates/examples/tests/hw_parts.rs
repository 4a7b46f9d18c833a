//! The examples that consist of parts of the library, on a GPU: right, and how fast. Without a
//! Hopper GPU each test says `SKIPPED` and passes; with `PGEMM_REQUIRE_GPU=1` that is a failure.

#[path = "common/hardware.rs"]
mod hardware;
#[path = "common/random.rs"]
mod random;

use half::bf16;
use hardware::{LIMIT, compare, device, poisoned, upload};
use persistent_gemm::driver::Stream;
use persistent_gemm::program::DeviceArray;
use persistent_gemm::{Config, Dtype, Gemm, Major, Pointers, Problem};
use pgemm_examples::dual_gemm::{DualGemm, DualProblem};
use pgemm_examples::row_maxima::{MaximaProblem, RowMaxima};
use random::Random;

/// The product of two rows in binary64, and that of their absolute values.
fn product(x: &[bf16], y: &[bf16]) -> [f64; 2] {
    let products = x.iter().zip(y).map(|(x, y)| x.to_f64() * y.to_f64());
    products.fold([0.0; 2], |[sum, size], product| [sum + product, size + product.abs()])
}

/// The error of a sum of so many products in binary32: each product is added with an error of at
/// most 2⁻²² of the sum's size.
fn error_of_sum(products: usize, size: f64) -> f64 {
    products as f64 * size / f64::from(1 << 22)
}

#[test]
fn dual_gemms_beside_two_products() {
    let Some(device) = device("dual_gemms_beside_two_products") else { return };
    let stream = Stream::new(&device).unwrap();
    let mut random = Random::new(1);
    let [tokens, hidden, model] = [4096usize, 14336, 4096];
    let (x, gate) = (random.normals(tokens * model), random.normals(hidden * model));
    let up = random.normals(hidden * model);
    let (on_x, on_gate, on_up) =
        (upload(&stream, &x), upload(&stream, &gate), upload(&stream, &up));
    let [out, other] = [(); 2].map(|()| poisoned::<bf16>(&stream, tokens * hidden));
    let problem = DualProblem {
        x: on_x.address(),
        weights: [on_gate.address(), on_up.address()],
        out: out.address(),
        tokens: tokens as u32,
        hidden: hidden as u32,
        model: model as u32,
    };
    let kernel = DualGemm::new().unwrap();
    let loaded = kernel.program.load(&device).unwrap();
    let sms = device.properties().sm_count;
    let (grid, arguments) = kernel.launch(&problem, sms, loaded.arguments()).unwrap();
    let launch = loaded.prepare(grid, &arguments).unwrap();
    // SAFETY: the arrays have the extents of the problem and outlive the launches.
    let dual = || unsafe { launch.enqueue(stream.as_ref()).unwrap() };
    dual();
    stream.as_ref().synchronize_within(LIMIT).unwrap();
    let found = out.to_vec(stream.as_ref()).unwrap();
    for row in (0..tokens).step_by(409).chain([tokens - 1]) {
        for column in (row % 61..hidden).step_by(61).chain([hidden - 1]) {
            let line = |matrix: &'_ [bf16], at: usize| matrix[at * model..][..model].to_vec();
            let x = line(&x, row);
            let [gate, gate_size] = product(&x, &line(&gate, column));
            let [up, up_size] = product(&x, &line(&up, column));
            let silu = gate / (1.0 + (-gate).exp());
            let [gate_error, up_error] = [gate_size, up_size].map(|size| error_of_sum(model, size));
            // The derivative of silu is at most 1.1. The result is rounded by at most 2⁻⁹, and all
            // that is rounded before is less than that again.
            let bound = 1.1 * gate_error * (up.abs() + up_error)
                + silu.abs() * up_error
                + (silu * up).abs() / 256.0;
            let found = found[row * hidden + column].to_f64();
            let error = (found - silu * up).abs();
            assert!(error <= bound, "{row}, {column}: {found} instead of {}", silu * up);
        }
    }

    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let plain = Problem::new(tokens, hidden, model, Major::K, Major::K);
    let products = || {
        for (weights, d) in [(&on_gate, &other), (&on_up, &out)] {
            let pointers = Pointers::new(on_x.address(), weights.address(), 0, d.address());
            // SAFETY: as above.
            unsafe { gemm.run_at(&plain, &pointers, stream.as_ref()).unwrap() };
        }
    };
    let [dual, products] = compare(&stream, [&dual, &products]);
    let operations = 4.0 * (tokens * hidden * model) as f64;
    eprintln!(
        "dual GEMM {tokens}×{hidden}×{model}: {:.0} µs, {:.0} TFLOP/s; two products of the library, \
         whose silu and product are still to be computed: {:.0} µs, {:.0} TFLOP/s; ratio {:.3}",
        dual * 1e6,
        operations / dual / 1e12,
        products * 1e6,
        operations / products / 1e12,
        products / dual
    );
}

/// Rows whose largest elements are compared, and the comparison. The largest element may differ by
/// the error of a sum, and its column is one whose element is as large up to twice that error.
fn check_maxima(
    kernel: &RowMaxima,
    [a, b]: [&[bf16]; 2],
    [columns, depth]: [usize; 2],
    rows: impl Iterator<Item = usize>,
    (values, indices): (&[f32], &[u32]),
) {
    let tile = kernel.tile_columns() as usize;
    let candidates = kernel.candidates(columns as u32) as usize;
    for row in rows {
        let a = &a[row * depth..][..depth];
        for number in (row % 7..candidates).step_by(29).chain([candidates - 1]) {
            let part = number * tile..columns.min((number + 1) * tile);
            let line = |column: usize| product(a, &b[column * depth..][..depth]);
            let sums: Vec<[f64; 2]> = part.clone().map(line).collect();
            let bound = sums.iter().map(|[_, size]| error_of_sum(depth, *size)).fold(0.0, f64::max);
            let largest = sums.iter().map(|[sum, _]| *sum).fold(f64::MIN, f64::max);
            let at = row * candidates + number;
            let (value, column) = (f64::from(values[at]), indices[at] as usize);
            assert!((value - largest).abs() <= bound, "row {row}, tile {number}: {value}");
            assert!(part.contains(&column), "row {row}, tile {number}: column {column}");
            let there = sums[column - part.start][0];
            assert!(there >= largest - 2.0 * bound, "row {row}, tile {number}: column {column}");
        }
    }
}

/// Operands and results of the kernel of largest elements on a GPU.
struct Maxima {
    a: Vec<bf16>,
    b: Vec<bf16>,
    on_device: [DeviceArray<bf16>; 2],
    values: DeviceArray<f32>,
    indices: DeviceArray<u32>,
}

impl Maxima {
    fn new(stream: &Stream, kernel: &RowMaxima, [rows, columns, depth]: [usize; 3]) -> Self {
        let mut random = Random::new(1);
        let (a, b) = (random.normals(rows * depth), random.normals(columns * depth));
        let candidates = rows * kernel.candidates(columns as u32) as usize;
        Maxima {
            on_device: [upload(stream, &a), upload(stream, &b)],
            a,
            b,
            values: poisoned(stream, candidates),
            indices: poisoned(stream, candidates),
        }
    }

    fn problem(&self, [rows, columns, depth]: [usize; 3]) -> MaximaProblem {
        let [a, b] = &self.on_device;
        MaximaProblem {
            a: a.address(),
            b: b.address(),
            values: self.values.address(),
            indices: self.indices.address(),
            rows: rows as u32,
            columns: columns as u32,
            depth: depth as u32,
            ..MaximaProblem::default()
        }
    }

    fn read(&self, stream: &Stream) -> (Vec<f32>, Vec<u32>) {
        stream.as_ref().synchronize_within(LIMIT).unwrap();
        let values = self.values.to_vec(stream.as_ref()).unwrap();
        (values, self.indices.to_vec(stream.as_ref()).unwrap())
    }
}

#[test]
fn largest_elements_of_rows_need_no_product_in_memory() {
    let Some(device) = device("largest_elements_of_rows_need_no_product_in_memory") else { return };
    let stream = Stream::new(&device).unwrap();
    // The logits of a batch of tokens.
    let extents @ [rows, columns, depth] = [4096usize, 32000, 4096];
    let kernel = RowMaxima::new(RowMaxima::WIDE, false).unwrap();
    let arrays = Maxima::new(&stream, &kernel, extents);
    let loaded = kernel.program.load(&device).unwrap();
    let sms = device.properties().sm_count;
    let (grid, arguments) =
        kernel.launch(&arrays.problem(extents), sms, loaded.arguments()).unwrap();
    let launch = loaded.prepare(grid, &arguments).unwrap();
    // SAFETY: the arrays have the extents of the problem and outlive the launches.
    let maxima = || unsafe { launch.enqueue(stream.as_ref()).unwrap() };
    maxima();
    let (values, indices) = arrays.read(&stream);
    let sample = (0..rows).step_by(331).chain([rows - 1]);
    let operands = [&arrays.a[..], &arrays.b];
    check_maxima(&kernel, operands, [columns, depth], sample, (&values, &indices));

    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16)).unwrap();
    let plain = Problem::new(rows, columns, depth, Major::K, Major::K);
    let d = poisoned::<bf16>(&stream, rows * columns);
    let [a, b] = arrays.on_device.each_ref().map(DeviceArray::address);
    let pointers = Pointers::new(a, b, 0, d.address());
    // SAFETY: as above.
    let product = || unsafe { gemm.run_at(&plain, &pointers, stream.as_ref()).unwrap() };
    let [maxima, product] = compare(&stream, [&maxima, &product]);
    let operations = 2.0 * (rows * columns * depth) as f64;
    eprintln!(
        "largest elements of {rows}×{columns}×{depth}: {:.0} µs, {:.0} TFLOP/s; the product alone: \
         {:.0} µs, {:.0} TFLOP/s; ratio {:.3}",
        maxima * 1e6,
        operations / maxima / 1e12,
        product * 1e6,
        operations / product / 1e12,
        product / maxima
    );
}

#[test]
fn largest_elements_of_rows_whose_tiles_are_split() {
    let Some(device) = device("largest_elements_of_rows_whose_tiles_are_split") else { return };
    let stream = Stream::new(&device).unwrap();
    let extents @ [rows, columns, depth] = [256usize, 512, 8192];
    let kernel = RowMaxima::new(RowMaxima::SPLIT, true).unwrap();
    let arrays = Maxima::new(&stream, &kernel, extents);
    // All 16 tiles, seven workers for each two of them.
    let problem = MaximaProblem { split: [16, 56], ..arrays.problem(extents) };
    let bytes = kernel.workspace(&problem).bytes as usize;
    let workspace = DeviceArray::<u8>::zeroed(&device, bytes, stream.as_ref()).unwrap();
    let problem = MaximaProblem { workspace: workspace.address(), ..problem };
    let loaded = kernel.program.load(&device).unwrap();
    let sms = device.properties().sm_count;
    let (grid, arguments) = kernel.launch(&problem, sms, loaded.arguments()).unwrap();
    let launch = loaded.prepare(grid, &arguments).unwrap();
    let mut first = None;
    for _ in 0..20 {
        // SAFETY: the arrays have the extents of the problem and outlive the launch.
        unsafe { launch.enqueue(stream.as_ref()).unwrap() };
        let found = arrays.read(&stream);
        // The order of the sums does not depend on who comes first.
        let first = first.get_or_insert_with(|| found.clone());
        assert_eq!(*first, found);
    }
    let (values, indices) = first.unwrap();
    let operands = [&arrays.a[..], &arrays.b];
    let sample = (0..rows).step_by(5);
    check_maxima(&kernel, operands, [columns, depth], sample, (&values, &indices));
}
