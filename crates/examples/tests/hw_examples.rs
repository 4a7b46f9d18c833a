//! Every example on a GPU: right, and how fast. Without a Hopper GPU each test says `SKIPPED` and
//! passes; with `PGEMM_REQUIRE_GPU=1` that is a failure.

#[path = "common/attention.rs"]
mod attention;
#[path = "common/hardware.rs"]
mod hardware;

use attention::random::Random;
use bytemuck::Pod;
use half::bf16;
use hardware::{LIMIT, compare, device, poisoned, time, upload};
use persistent_gemm::driver::{Device, Stream};
use persistent_gemm::language::{Element, TensorMapArgument};
use persistent_gemm::program::{Arguments, DeviceArray, PreparedLaunch, Program};
use pgemm_examples::attention::{Attention, Gradients, Of, statistics, statistics_length};
use pgemm_examples::gemm::{PING_PONG_TILE, TILE, gemm, ping_pong};
use pgemm_examples::histogram::{BINS, histogram};
use pgemm_examples::norm::rms_norm;
use pgemm_examples::softmax::softmax;
use pgemm_examples::top_k::top_k;
use pgemm_examples::transpose::{tile, transpose};

/// Rows and columns of the matrices that are timed: half a gibibyte of bf16.
const ROWS: usize = 65536;
const COLUMNS: usize = 4096;

/// Numbers between -4 and 4 that differ from row to row.
fn numbers(count: usize) -> Vec<bf16> {
    let number = |i: usize| {
        let bits = (i as u32).wrapping_mul(0x9e37_79b9) ^ (i >> 12) as u32;
        bf16::from_f32((bits.wrapping_mul(0x85eb_ca6b) >> 16) as f32 / 8192.0 - 4.0)
    };
    (0..count).map(number).collect()
}

/// Times a launch that reads and writes `bytes` bytes in turn with copies of as many, and prints
/// both. Returns the speed of the launch by that of the copies.
fn compare_with_copy(
    name: &str,
    stream: &Stream,
    bytes: usize,
    launch: &PreparedLaunch<'_>,
) -> f64 {
    let device = stream.device();
    let source = DeviceArray::<u8>::zeroed(device, bytes / 2, stream.as_ref()).unwrap();
    let target = std::cell::RefCell::new(DeviceArray::<u8>::new(device, bytes / 2).unwrap());
    let copy = || target.borrow_mut().copy_from(&source, stream.as_ref()).unwrap();
    // SAFETY: the arrays of the launch outlive this function, which waits for the stream.
    let kernel = || unsafe { launch.enqueue(stream.as_ref()).unwrap() };
    let [copy, kernel] =
        compare(stream, [&copy, &kernel]).map(|seconds| bytes as f64 / seconds / 1e12);
    eprintln!("{name}: {kernel:.3} TB/s; copies {copy:.3} TB/s; {:.3} of it", kernel / copy);
    kernel / copy
}

#[track_caller]
fn assert_close(row: usize, found: &[bf16], expected: impl Iterator<Item = f64>) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found.to_f64() - expected).abs();
        assert!(
            error <= expected.abs() / 128.0,
            "row {row}, element {at}: {found} instead of {expected}"
        );
    }
}

/// Rows whose results are compared.
fn sample() -> impl Iterator<Item = usize> {
    (0..ROWS).step_by(1021).chain([ROWS - 1])
}

#[test]
fn softmax_runs_at_the_speed_of_memory() {
    let Some(device) = device("softmax_runs_at_the_speed_of_memory") else { return };
    let stream = Stream::new(&device).unwrap();
    let values = numbers(ROWS * COLUMNS);
    let x = DeviceArray::from_slice(&device, &values, stream.as_ref()).unwrap();
    let y = poisoned::<bf16>(&stream, values.len());
    let loaded = softmax(COLUMNS as u32).unwrap().load(&device).unwrap();
    let arguments = loaded.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
    let launch = loaded.prepare([ROWS as u32, 1, 1], &arguments).unwrap();
    let speed = compare_with_copy("softmax 65536×4096 bf16", &stream, 4 * values.len(), &launch);
    assert!(speed >= 0.9, "softmax has {speed:.3} of the speed of copies");
    let found = y.to_vec(stream.as_ref()).unwrap();
    for row in sample() {
        let at = row * COLUMNS..(row + 1) * COLUMNS;
        let x: Vec<f64> = values[at.clone()].iter().map(|x| x.to_f64()).collect();
        let largest = x.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = x.iter().map(|x| (x - largest).exp()).sum();
        assert_close(row, &found[at], x.iter().map(|x| (x - largest).exp() / sum));
    }
}

#[test]
fn rms_norm_runs_at_the_speed_of_memory() {
    let Some(device) = device("rms_norm_runs_at_the_speed_of_memory") else { return };
    let stream = Stream::new(&device).unwrap();
    let (values, weights) = (numbers(ROWS * COLUMNS), numbers(COLUMNS));
    let x = DeviceArray::from_slice(&device, &values, stream.as_ref()).unwrap();
    let w = DeviceArray::from_slice(&device, &weights, stream.as_ref()).unwrap();
    let y = poisoned::<bf16>(&stream, values.len());
    let loaded = rms_norm(COLUMNS as u32).unwrap().load(&device).unwrap();
    let arguments = loaded.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
    let arguments = arguments.with("w", &w).unwrap().with("epsilon", 1e-5f32).unwrap();
    let launch = loaded.prepare([ROWS as u32, 1, 1], &arguments).unwrap();
    let speed = compare_with_copy("RMSNorm 65536×4096 bf16", &stream, 4 * values.len(), &launch);
    assert!(speed >= 0.9, "RMSNorm has {speed:.3} of the speed of copies");
    let found = y.to_vec(stream.as_ref()).unwrap();
    for row in sample() {
        let at = row * COLUMNS..(row + 1) * COLUMNS;
        let x: Vec<f64> = values[at.clone()].iter().map(|x| x.to_f64()).collect();
        let mean = x.iter().map(|x| x * x).sum::<f64>() / COLUMNS as f64;
        let scale = 1.0 / (mean + 1e-5).sqrt();
        let expected = x.iter().zip(&weights).map(|(x, w)| x * scale * w.to_f64());
        assert_close(row, &found[at], expected);
    }
}

#[test]
fn histograms_count_every_byte() {
    let Some(device) = device("histograms_count_every_byte") else { return };
    let stream = Stream::new(&device).unwrap();
    let bytes: Vec<u8> =
        (0..1u32 << 28).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let input = DeviceArray::from_slice(&device, &bytes, stream.as_ref()).unwrap();
    let bins = DeviceArray::<u32>::zeroed(&device, BINS as usize, stream.as_ref()).unwrap();
    let loaded = histogram().unwrap().load(&device).unwrap();
    let arguments = loaded.arguments().with("bytes", &input).unwrap().with("bins", &bins).unwrap();
    let arguments = arguments.with("vectors", bytes.len() as u32 / 16).unwrap();
    let ctas = device.properties().sm_count * 4;
    let launch = loaded.prepare([ctas, 1, 1], &arguments).unwrap();
    // SAFETY: the arrays outlive the launch, which has their sizes.
    unsafe { launch.enqueue(stream.as_ref()).unwrap() };
    stream.as_ref().synchronize_within(LIMIT).unwrap();
    let mut expected = [0u32; BINS as usize];
    bytes.iter().for_each(|byte| expected[*byte as usize] += 1);
    assert_eq!(bins.to_vec(stream.as_ref()).unwrap(), expected);
    // SAFETY: as above.
    let seconds = time(&stream, || unsafe { launch.enqueue(stream.as_ref()).unwrap() });
    eprintln!("histogram of 2^28 bytes: {:.3} TB/s", bytes.len() as f64 / seconds / 1e12);
}

/// The arrays of a problem of attention.
struct OnDevice {
    inputs: [Vec<bf16>; 3],
    q: DeviceArray<bf16>,
    k: DeviceArray<bf16>,
    v: DeviceArray<bf16>,
    o: DeviceArray<bf16>,
    lse: DeviceArray<f32>,
}

impl OnDevice {
    fn new(stream: &Stream, problem: &attention::Problem) -> Self {
        let inputs = problem.inputs();
        let [q, k, v] = inputs.each_ref().map(|values| upload(stream, values));
        let o = poisoned(stream, q.len());
        let lse = poisoned(stream, q.len() / problem.head_dim);
        OnDevice { inputs, q, k, v, o, lse }
    }

    /// Launches the kernel that computes the outputs, and returns seconds of a launch.
    fn forward(&self, stream: &Stream, spec: Attention, problem: &attention::Problem) -> f64 {
        let loaded = spec.program().unwrap().load(stream.device()).unwrap();
        let arguments = problem.scalars(loaded.arguments()).with("lse", &self.lse).unwrap();
        let of_queries = [("q", self.q.address()), ("o", self.o.address())];
        let of_keys = [("k", self.k.address()), ("v", self.v.address())];
        let arguments = problem.maps(arguments, &of_queries, &of_keys);
        let [queries, heads, sequences] =
            [problem.queries, problem.heads, problem.sequences].map(|count| count as u32);
        let launch = loaded.prepare(spec.grid(queries, heads, sequences), &arguments).unwrap();
        // SAFETY: the arrays outlive the launches, which end before this function.
        best_of_three(stream, || unsafe { launch.enqueue(stream.as_ref()).unwrap() })
    }
}

fn best_of_three(stream: &Stream, call: impl Fn()) -> f64 {
    (0..3).map(|_| time(stream, &call)).fold(f64::INFINITY, f64::min)
}

/// The place of a row in the order (sequence, head, position).
fn place(row: usize, heads: usize, positions: usize) -> [usize; 3] {
    let (head, position) = (row / positions, row % positions);
    [head / heads, head % heads, position]
}

/// The time of a launch of attention on a GPU in seconds, and a check of some rows.
fn time_attention(device: &Device, spec: Attention, problem: &attention::Problem) -> f64 {
    let stream = Stream::new(device).unwrap();
    let arrays = OnDevice::new(&stream, problem);
    let seconds = arrays.forward(&stream, spec, problem);
    let o = arrays.o.to_vec(stream.as_ref()).unwrap();
    let lse = arrays.lse.to_vec(stream.as_ref()).unwrap();
    for row in (0..lse.len()).step_by(lse.len() / 40 + 1).chain([lse.len() - 1]) {
        let place = place(row, problem.heads, problem.queries);
        let inputs = arrays.inputs.each_ref().map(Vec::as_slice);
        let expected = attention::row(problem, inputs, place);
        let output = &o[row * problem.head_dim..(row + 1) * problem.head_dim];
        attention::check_row(&expected, problem.keys, output, lse[row], place);
    }
    seconds
}

/// The time of the three kernels of the gradients on a GPU in seconds, and a check of some rows.
fn time_gradients(device: &Device, problem: &attention::Problem) -> [f64; 3] {
    let stream = Stream::new(device).unwrap();
    let attention::Problem { head_dim, causal, sequences, heads, kv_heads, queries, keys } =
        *problem;
    let arrays = OnDevice::new(&stream, problem);
    arrays.forward(&stream, Attention::new(head_dim as u32, causal), problem);
    let d_o = Random::new(2).normals(arrays.q.len());
    let on_d_o = upload(&stream, &d_o);
    let numbers = poisoned::<f32>(&stream, statistics_length(queries, heads, sequences));
    let loaded = statistics(head_dim as u32).unwrap().load(device).unwrap();
    let addresses = [
        ("o", arrays.o.address()),
        ("d_o", on_d_o.address()),
        ("lse", arrays.lse.address()),
        ("statistics", numbers.address()),
    ];
    let arguments = problem.statistics(loaded.arguments(), addresses);
    let launch = loaded.prepare(problem.grid_of_statistics(), &arguments).unwrap();
    // SAFETY: the arrays outlive the launches, which end before this function.
    let first = best_of_three(&stream, || unsafe { launch.enqueue(stream.as_ref()).unwrap() });

    let d_q = poisoned::<bf16>(&stream, arrays.q.len());
    let [d_k, d_v] = [(); 2].map(|()| poisoned::<bf16>(&stream, arrays.k.len()));
    let [second, third] = [Of::KeysAndValues, Of::Queries].map(|of| {
        let kernel = Gradients::new(of, head_dim as u32, causal);
        let loaded = kernel.program().unwrap().load(device).unwrap();
        let arguments = problem.scalars(loaded.arguments());
        let arguments = arguments.with("statistics", numbers.address()).unwrap();
        let mut of_queries = vec![("q", arrays.q.address()), ("d_o", on_d_o.address())];
        let mut of_keys = vec![("k", arrays.k.address()), ("v", arrays.v.address())];
        match of {
            Of::KeysAndValues => of_keys.extend([("d_k", d_k.address()), ("d_v", d_v.address())]),
            Of::Queries => of_queries.push(("d_q", d_q.address())),
        }
        let arguments = problem.maps(arguments, &of_queries, &of_keys);
        let launch = loaded.prepare(problem.grid_of(&kernel), &arguments).unwrap();
        // SAFETY: as above.
        best_of_three(&stream, || unsafe { launch.enqueue(stream.as_ref()).unwrap() })
    });

    let [q, k, v] = arrays.inputs.each_ref().map(Vec::as_slice);
    let read = |array: &DeviceArray<bf16>| array.to_vec(stream.as_ref()).unwrap();
    let o = read(&arrays.o);
    let lse = arrays.lse.to_vec(stream.as_ref()).unwrap();
    let inputs = attention::Inputs { q, k, v, o: &o, d_o: &d_o, lse: &lse };
    let (d_q, d_k, d_v) = (read(&d_q), read(&d_k), read(&d_v));
    let scale = f64::from(problem.scale());
    let row = |array: &'_ [bf16], row: usize| array[row * head_dim..(row + 1) * head_dim].to_vec();
    let some = |rows: usize| (0..rows).step_by(rows / 12 + 1).chain([rows - 1]);
    for at in some(lse.len()) {
        let place = place(at, heads, queries);
        problem.gradient_of_query(&inputs, place).check(scale, &row(&d_q, at), "query", place);
    }
    for at in some(d_k.len() / head_dim) {
        let place = place(at, kv_heads, keys);
        let [of_key, of_value] = problem.gradients_of_key(&inputs, place);
        of_key.check(scale, &row(&d_k, at), "key", place);
        of_value.check(1.0, &row(&d_v, at), "value", place);
    }
    [first, second, third]
}

/// Sixteen heads of 16 384 positions.
fn long_sequence(head_dim: usize, causal: bool) -> attention::Problem {
    attention::Problem {
        head_dim,
        causal,
        sequences: 1,
        heads: 16,
        kv_heads: 16,
        queries: 16384,
        keys: 16384,
    }
}

/// Prints a line that `bench/attention_torch.py` reads. `what` has so many products of matrices.
fn print_attention(what: &str, products: f64, problem: &attention::Problem, seconds: f64) {
    let attention::Problem { head_dim, causal, sequences, heads, kv_heads, queries, keys } =
        *problem;
    let product = 2.0 * (sequences * heads * head_dim * queries) as f64 * keys as f64;
    let flops = products * product / if causal { 2.0 } else { 1.0 };
    eprintln!(
        "{what} head_dim={head_dim} causal={causal} sequences={sequences} heads={heads} \
         kv_heads={kv_heads} positions={queries}: {:.1} us, {:.0} TFLOP/s",
        seconds * 1e6,
        flops / seconds / 1e12
    );
}

fn measure_attention(device: &Device, spec: Attention, problem: &attention::Problem) {
    print_attention("attention", 2.0, problem, time_attention(device, spec, problem));
}

fn measure_gradients(device: &Device, problem: &attention::Problem) {
    let parts = time_gradients(device, problem);
    let [statistics, keys, queries] = parts.map(|seconds| seconds * 1e6);
    eprintln!(
        "of keys and values {keys:.1} us, of queries {queries:.1} us, statistics {statistics:.1} us"
    );
    // As others count them: without the products that one of the kernels computes again.
    print_attention("gradients", 5.0, problem, parts.iter().sum());
}

/// What the tiles were chosen for.
const LONG: [(u32, bool); 4] = [(64, false), (64, true), (128, false), (128, true)];

#[test]
fn attention_of_long_sequences() {
    let Some(device) = device("attention_of_long_sequences") else { return };
    for (head_dim, causal) in LONG {
        let problem = long_sequence(head_dim as usize, causal);
        measure_attention(&device, Attention::new(head_dim, causal), &problem);
    }
}

#[test]
fn gradients_of_long_sequences() {
    let Some(device) = device("gradients_of_long_sequences") else { return };
    for (head_dim, causal) in LONG {
        measure_gradients(&device, &long_sequence(head_dim as usize, causal));
    }
}

/// Problems that no tile was chosen for: both sizes of heads, shared or not, and any number of
/// positions. `PGEMM_SEED` draws others.
fn drawn_problems() -> impl Iterator<Item = attention::Problem> {
    let seed = std::env::var("PGEMM_SEED").map_or(20_261_130, |seed| seed.parse().unwrap());
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    (0..12).map(move |_| {
        let mut draw = |most: usize| (random.uniform() * most as f32) as usize;
        let (head_dim, causal) = (64 << draw(2), draw(2) == 1);
        let kv_heads = 1 + draw(8);
        let heads = kv_heads << draw(3);
        // Every octave from 256 to 16383 alike.
        let octave = 256 << draw(6);
        let positions = octave + draw(octave);
        let sequences = ((1 << 18) / (heads * positions)).clamp(1, 16);
        let (queries, keys) = (positions, positions);
        attention::Problem { head_dim, causal, sequences, heads, kv_heads, queries, keys }
    })
}

#[test]
fn attention_of_drawn_problems() {
    let Some(device) = device("attention_of_drawn_problems") else { return };
    for problem in drawn_problems() {
        let spec = Attention::new(problem.head_dim as u32, problem.causal);
        measure_attention(&device, spec, &problem);
    }
}

#[test]
fn gradients_of_drawn_problems() {
    let Some(device) = device("gradients_of_drawn_problems") else { return };
    for problem in drawn_problems() {
        measure_gradients(&device, &problem);
    }
}

#[test]
#[ignore = "a search for the fastest tiles"]
fn attention_tiles() {
    let Some(device) = device("attention_tiles") else { return };
    for (head_dim, tiles) in [
        (64, vec![(2, 128), (2, 160), (2, 192), (2, 224), (3, 96), (3, 112), (3, 128)]),
        (128, vec![(2, 96), (2, 112), (2, 128), (2, 144), (2, 160), (2, 176), (3, 64), (3, 80)]),
    ] {
        for causal in [false, true] {
            for &(warpgroups, keys) in &tiles {
                let spec = Attention { head_dim, causal, warpgroups, keys };
                let problem = long_sequence(head_dim as usize, causal);
                eprintln!("{warpgroups} warpgroups, {keys} keys:");
                measure_attention(&device, spec, &problem);
            }
        }
    }
}

#[test]
fn top_k_selects_the_largest() {
    let Some(device) = device("top_k_selects_the_largest") else { return };
    const K: usize = 32;
    let stream = Stream::new(&device).unwrap();
    let x = numbers(ROWS * COLUMNS);
    let input = DeviceArray::from_slice(&device, &x, stream.as_ref()).unwrap();
    let values = poisoned::<bf16>(&stream, ROWS * K);
    let indices = poisoned::<u32>(&stream, ROWS * K);
    let loaded = top_k(COLUMNS as u32, K as u32).unwrap().load(&device).unwrap();
    let arguments = loaded.arguments().with("x", &input).unwrap();
    let arguments = arguments.with("values", &values).unwrap().with("columns", &indices).unwrap();
    let launch = loaded.prepare([ROWS as u32, 1, 1], &arguments).unwrap();
    // SAFETY: the arrays outlive the launches, which end before this function.
    let seconds = time(&stream, || unsafe { launch.enqueue(stream.as_ref()).unwrap() });
    eprintln!(
        "top-{K} of 65536×4096 bf16: {:.1} µs, {:.3} TB/s",
        seconds * 1e6,
        (2 * x.len()) as f64 / seconds / 1e12
    );
    let values = values.to_vec(stream.as_ref()).unwrap();
    let indices = indices.to_vec(stream.as_ref()).unwrap();
    for row in sample() {
        let x = &x[row * COLUMNS..(row + 1) * COLUMNS];
        let mut order: Vec<u32> = (0..COLUMNS as u32).collect();
        order.sort_by(|&i, &j| x[j as usize].total_cmp(&x[i as usize]));
        assert_eq!(indices[row * K..(row + 1) * K], order[..K], "row {row}");
        for (place, value) in values[row * K..(row + 1) * K].iter().enumerate() {
            assert_eq!(value.to_bits(), x[order[place] as usize].to_bits(), "row {row}");
        }
    }
}

/// Runs a GEMM of 8192³ and checks it on small integers, and prints its speed on normal numbers.
fn run_gemm(
    device: &Device,
    program: &Program,
    grid: [u32; 3],
    more: impl Fn(Arguments) -> Arguments,
) {
    const EXTENT: usize = 8192;
    let stream = Stream::new(device).unwrap();
    let integers: Vec<bf16> = (0..EXTENT * EXTENT)
        .map(|i| bf16::from_f32((i.wrapping_mul(0x9e37_79b9) >> 7 & 3) as f32 - 1.0))
        .collect();
    let mut seconds = 0.0;
    for values in [&integers, &Random::new(1).normals(EXTENT * EXTENT)] {
        let a = DeviceArray::from_slice(device, values, stream.as_ref()).unwrap();
        let reversed: Vec<bf16> = values.iter().rev().copied().collect();
        let b = DeviceArray::from_slice(device, &reversed, stream.as_ref()).unwrap();
        let d = poisoned::<bf16>(&stream, EXTENT * EXTENT);
        let map = |array: &DeviceArray<bf16>| {
            TensorMapArgument::packed(array.address(), Element::Bf16, &[EXTENT as u64; 2])
        };
        let loaded = program.load(device).unwrap();
        let arguments = loaded.arguments().with("a", map(&a)).unwrap();
        let arguments = arguments.with("b", map(&b)).unwrap().with("d", map(&d)).unwrap();
        let arguments = more(arguments.with("k", EXTENT as u32).unwrap());
        let launch = loaded.prepare(grid, &arguments).unwrap();
        // SAFETY: the arrays outlive the launches, which end before they are freed.
        seconds = time(&stream, || unsafe { launch.enqueue(stream.as_ref()).unwrap() });
        if std::ptr::eq(values, &integers) {
            let d = d.to_vec(stream.as_ref()).unwrap();
            for at in (0..d.len()).step_by(99_991).chain([d.len() - 1]) {
                let (row, column) = (at / EXTENT * EXTENT, at % EXTENT * EXTENT);
                let products = values[row..row + EXTENT].iter().zip(&reversed[column..]);
                let sum: f32 = products.map(|(a, b)| a.to_f32() * b.to_f32()).sum();
                assert_eq!(d[at], bf16::from_f32(sum), "element {at}");
            }
        }
    }
    let name = &program.kernel().name;
    let flops = 2.0 * (EXTENT as f64).powi(3);
    eprintln!("{name} of 8192³: {:.1} µs, {:.0} TFLOP/s", seconds * 1e6, flops / seconds / 1e12);
}

#[test]
fn gemms_of_the_guide() {
    let Some(device) = device("gemms_of_the_guide") else { return };
    let tiles = |[m, n]: [u32; 2]| [8192 / m, 8192 / n];
    let [rows, columns] = tiles(TILE);
    run_gemm(&device, &gemm().unwrap(), [rows, columns, 1], |arguments| arguments);
    let [rows, columns] = tiles(PING_PONG_TILE);
    let ctas = device.properties().sm_count;
    run_gemm(&device, &ping_pong().unwrap(), [ctas, 1, 1], |arguments| {
        arguments.with("rows", rows).unwrap().with("columns", columns).unwrap()
    });
}

/// Transposes a matrix of numbered elements, compares samples of it, and times it if it is large.
fn transposes<T: Pod + Send + Sync + PartialEq + std::fmt::Debug>(
    device: &Device,
    element: Element,
    [rows, columns, multiple]: [u32; 3],
    number: impl Fn(u32) -> T,
) {
    let stream = Stream::new(device).unwrap();
    let values: Vec<T> = (0..rows * columns).map(&number).collect();
    let x = DeviceArray::from_slice(device, &values, stream.as_ref()).unwrap();
    let y = poisoned::<T>(&stream, values.len());
    let loaded = transpose(element, multiple).unwrap().load(device).unwrap();
    let arguments = loaded.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
    let arguments = arguments.with("rows", rows).unwrap().with("columns", columns).unwrap();
    let grid = [columns.div_ceil(tile(element)), rows.div_ceil(tile(element)), 1];
    let launch = loaded.prepare(grid, &arguments).unwrap();
    // SAFETY: the arrays outlive the launch, which has their sizes.
    unsafe { launch.enqueue(stream.as_ref()).unwrap() };
    stream.as_ref().synchronize_within(LIMIT).unwrap();
    if values.len() > 1 << 24 {
        let name = format!("transpose {rows}×{columns} {element}");
        compare_with_copy(&name, &stream, 2 * size_of_val(&values[..]), &launch);
    }
    let found = y.to_vec(stream.as_ref()).unwrap();
    for column in (0..columns).step_by(columns.div_ceil(200) as usize).chain([columns - 1]) {
        for row in 0..rows {
            let at = (column * rows + row) as usize;
            assert_eq!(found[at], number(row * columns + column), "row {row}, column {column}");
        }
    }
}

#[test]
fn transposes_of_every_size() {
    let Some(device) = device("transposes_of_every_size") else { return };
    let half = |i: u32| (i.wrapping_mul(0x9e37_79b9) >> 16) as u16;
    let float = |i: u32| f32::from_bits(0x3f00_0000 | i.wrapping_mul(0x9e37_79b9) >> 9);
    for extents in [[1, 1, 1], [1003, 777, 1], [520, 264, 8], [16384, 16384, 8], [16383, 16001, 1]]
    {
        transposes(&device, Element::Bf16, extents, half);
    }
    for extents in [[65, 300, 1], [300, 68, 4], [16384, 8192, 4], [16380, 8001, 1]] {
        transposes(&device, Element::F32, extents, float);
    }
}
