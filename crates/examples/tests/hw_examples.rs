//! Every example on a GPU: right, and how fast. Without a Hopper GPU each test says `SKIPPED` and
//! passes; with `PGEMM_REQUIRE_GPU=1` that is a failure.

use std::time::Duration;

use bytemuck::Pod;
use half::bf16;
use persistent_gemm::driver::{Device, Event, Stream, Timing};
use persistent_gemm::language::Element;
use persistent_gemm::program::{DeviceArray, PreparedLaunch};
use pgemm_examples::histogram::{BINS, histogram};
use pgemm_examples::norm::rms_norm;
use pgemm_examples::softmax::softmax;
use pgemm_examples::transpose::{tile, transpose};

/// Rows and columns of the matrices that are timed: half a gibibyte of bf16.
const ROWS: usize = 65536;
const COLUMNS: usize = 4096;
/// Launches that are timed together.
const LAUNCHES: u32 = 10;
/// How long a test waits for its launches.
const LIMIT: Duration = Duration::from_secs(20);

fn device(test: &str) -> Option<Device> {
    match Device::new(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("PGEMM_REQUIRE_GPU").is_some_and(|value| value == "1") => {
            panic!("{test} needs a Hopper GPU: {error}")
        }
        Err(error) => {
            eprintln!("SKIPPED: {test}: {error}");
            None
        }
    }
}

/// Numbers between -4 and 4 that differ from row to row.
fn numbers(count: usize) -> Vec<bf16> {
    let number = |i: usize| {
        let bits = (i as u32).wrapping_mul(0x9e37_79b9) ^ (i >> 12) as u32;
        bf16::from_f32((bits.wrapping_mul(0x85eb_ca6b) >> 16) as f32 / 8192.0 - 4.0)
    };
    (0..count).map(number).collect()
}

/// Seconds of one of `LAUNCHES` calls, of which one before does not count.
fn time(stream: &Stream, call: impl Fn()) -> f64 {
    let device = stream.device();
    let [start, end] = [(); 2].map(|()| Event::new(device, Timing::Enabled).unwrap());
    call();
    start.record(stream.as_ref()).unwrap();
    (0..LAUNCHES).for_each(|_| call());
    end.record(stream.as_ref()).unwrap();
    stream.as_ref().synchronize_within(LIMIT).unwrap();
    f64::from(end.elapsed_ms(&start).unwrap()) / 1e3 / f64::from(LAUNCHES)
}

/// Times a launch that reads and writes `bytes` bytes in turn with copies of as many, and prints
/// both.
fn compare_with_copy(name: &str, stream: &Stream, bytes: usize, launch: &PreparedLaunch<'_>) {
    let device = stream.device();
    let source = DeviceArray::<u8>::zeroed(device, bytes / 2, stream.as_ref()).unwrap();
    let target = std::cell::RefCell::new(DeviceArray::<u8>::new(device, bytes / 2).unwrap());
    let copy = || target.borrow_mut().copy_from(&source, stream.as_ref()).unwrap();
    // SAFETY: the arrays of the launch outlive this function, which waits for the stream.
    let kernel = || unsafe { launch.enqueue(stream.as_ref()).unwrap() };
    let mut seconds = [vec![], vec![]];
    for _ in 0..3 {
        // Copy, kernel, kernel, copy.
        let [first, second, third, fourth] =
            [time(stream, copy), time(stream, kernel), time(stream, kernel), time(stream, copy)];
        seconds[0].extend([first, fourth]);
        seconds[1].extend([second, third]);
    }
    let [copy, kernel] = seconds.map(|mut all| {
        all.sort_by(f64::total_cmp);
        bytes as f64 / all[all.len() / 2] / 1e12
    });
    eprintln!("{name}: {kernel:.3} TB/s; copies {copy:.3} TB/s; {:.3} of it", kernel / copy);
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
    let y = DeviceArray::<bf16>::new(&device, values.len()).unwrap();
    let loaded = softmax(COLUMNS as u32).unwrap().load(&device).unwrap();
    let arguments = loaded.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
    let launch = loaded.prepare([ROWS as u32, 1, 1], &arguments).unwrap();
    compare_with_copy("softmax 65536×4096 bf16", &stream, 4 * values.len(), &launch);
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
    let y = DeviceArray::<bf16>::new(&device, values.len()).unwrap();
    let loaded = rms_norm(COLUMNS as u32).unwrap().load(&device).unwrap();
    let arguments = loaded.arguments().with("x", &x).unwrap().with("y", &y).unwrap();
    let arguments = arguments.with("w", &w).unwrap().with("epsilon", 1e-5f32).unwrap();
    let launch = loaded.prepare([ROWS as u32, 1, 1], &arguments).unwrap();
    compare_with_copy("RMSNorm 65536×4096 bf16", &stream, 4 * values.len(), &launch);
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
    let y = DeviceArray::<T>::new(device, values.len()).unwrap();
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
fn transposes_run_near_the_speed_of_memory() {
    let Some(device) = device("transposes_run_near_the_speed_of_memory") else { return };
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
