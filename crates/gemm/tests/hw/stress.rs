//! Many threads with many streams on few `Gemm`s, and memory that must not grow.

use std::time::Instant;

use persistent_gemm::driver::{Device, DeviceBuffer, Stream};
use persistent_gemm::{
    Config, Dtype, Gemm, HostMatrix, Major, Pointers, Problem, Spec, Split, cpu,
};

use crate::device::device;

const THREADS: usize = 16;
const STREAMS: usize = 4;
/// Products of each stream.
const PRODUCTS: usize = 1000;

/// A product whose result is known.
struct Known {
    gemm: Gemm,
    problem: Problem,
    a: DeviceBuffer,
    b: DeviceBuffer,
    expected: Vec<u8>,
}

/// Types, extents and splits that differ: whole tiles, split ones with a workspace, operands that
/// are laid out anew.
fn known(device: &Device) -> Vec<Known> {
    let stream = Stream::new(device).unwrap();
    let split = Config::new(Dtype::Bf16).with_output(Dtype::F32).with_split(Split::SplitK(2));
    let configs = [
        Config::new(Dtype::Bf16).with_output(Dtype::F32),
        split,
        Config::new(Dtype::S8),
        Config::new(Dtype::F32),
    ];
    let mut known = vec![];
    for (index, config) in configs.into_iter().enumerate() {
        let gemm = Gemm::create(device, config.clone()).unwrap();
        for (m, n, k) in [(64, 64, 256), (100, 36, 300), (17, 200, 512), (128, 128, 1024)] {
            // B of s8 along n is laid out anew.
            let problem = Problem::new(m, n, k, Major::K, Major::N);
            let matrix = |layout, seed| {
                let mut matrix = HostMatrix::zeros(layout, config.dtype).unwrap();
                matrix.fill_integers(seed, 3);
                matrix
            };
            let seed = (10 * index + m) as u64;
            let (a, b) = (matrix(problem.a_layout(), seed), matrix(problem.b_layout(), seed + 1));
            let mut d = HostMatrix::zeros(problem.d_layout(), config.output_dtype()).unwrap();
            cpu::run(&problem, &a, &b, None, &mut d).unwrap();
            let upload = |matrix: &HostMatrix| {
                DeviceBuffer::from_host(device, matrix.bytes(), stream.as_ref()).unwrap()
            };
            let (a, b) = (upload(&a), upload(&b));
            let expected = d.bytes().to_vec();
            known.push(Known { gemm: gemm.clone(), problem, a, b, expected });
        }
    }
    known
}

#[test]
fn threads_and_streams_do_not_disturb_each_other() {
    let Some(device) = device("threads_and_streams_do_not_disturb_each_other") else { return };
    let known = known(&device);
    let largest = known.iter().map(|known| known.expected.len()).max().unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (device, known) = (&device, &known);
            scope.spawn(move || one_thread(device, known, largest, thread));
        }
    });
    println!(
        "{} products on {} streams of {THREADS} threads, all right, in {:.1} s",
        THREADS * STREAMS * PRODUCTS,
        THREADS * STREAMS,
        start.elapsed().as_secs_f64()
    );
}

fn one_thread(device: &Device, known: &[Known], largest: usize, thread: usize) {
    let mut lanes: Vec<(Stream, DeviceBuffer)> = (0..STREAMS)
        .map(|_| (Stream::new(device).unwrap(), DeviceBuffer::new(device, largest).unwrap()))
        .collect();
    let mut found = vec![0; largest];
    for round in 0..PRODUCTS {
        // Each stream another product, all of them enqueued before the first is looked at.
        let which = |lane: usize| &known[(thread * 7 + round * 5 + lane * 3) % known.len()];
        for (lane, (stream, d)) in lanes.iter_mut().enumerate() {
            let Known { gemm, problem, a, b, expected } = which(lane);
            d.fill_u8(0, expected.len(), 0xff, stream.as_ref()).unwrap();
            let pointers = Pointers::new(a.address(), b.address(), 0, d.address());
            // SAFETY: all buffers outlive the work, which is waited for below.
            unsafe { gemm.run_at(problem, &pointers, stream.as_ref()) }.unwrap();
        }
        for (lane, (stream, d)) in lanes.iter().enumerate() {
            let Known { problem, expected, .. } = which(lane);
            let found = &mut found[..expected.len()];
            d.copy_to_host(0, found, stream.as_ref()).unwrap();
            assert!(
                found == expected,
                "thread {thread}, round {round}, stream {lane}: {problem:?}"
            );
        }
    }
}

/// Bytes of this process in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// What many rounds take for good: the first ones load and fill what stays.
fn growth(device: &Device, what: &str, rounds: usize, mut round: impl FnMut(usize)) {
    let begin = rounds / 5;
    (0..begin).for_each(&mut round);
    let before = (device.free_memory_bytes().unwrap(), resident_bytes());
    (begin..rounds).for_each(&mut round);
    let after = (device.free_memory_bytes().unwrap(), resident_bytes());
    let on_device = before.0.saturating_sub(after.0);
    let on_host = after.1.saturating_sub(before.1);
    println!("{rounds} {what}: {on_device} bytes more on the device, {on_host} on the host");
    // The driver gives memory by pieces of 2 MiB.
    assert!(on_device <= 2 << 20, "{what}: {on_device} bytes on the device");
    // Ten bytes a round at most, beside what allocators keep.
    assert!(on_host <= (4 << 20) + 10 * rounds as u64, "{what}: {on_host} bytes on the host");
}

#[test]
fn nothing_is_kept_of_what_was_dropped() {
    let Some(device) = device("nothing_is_kept_of_what_was_dropped") else { return };
    let spec: Spec = "bf16-kk-bf16-128x128x64-s4-w2-c1x1".parse().unwrap();
    let config = Config::for_spec(spec).with_split(Split::SplitK(2));
    growth(&device, "GEMMs created and dropped", 10_000, |_| {
        Gemm::create(&device, config.clone()).unwrap();
    });

    let gemm = Gemm::create(&device, config.clone()).unwrap();
    growth(&device, "problems prepared and trimmed", 10_000, |round| {
        let problem = Problem::new(256 + round, 256, 512, Major::K, Major::K);
        gemm.prepare(&problem).unwrap();
        if round % 50 == 0 {
            gemm.trim().unwrap();
            assert_eq!(gemm.workspace_bytes(), 0);
        }
        if round % 2000 == 1999 {
            gemm.trim().unwrap();
        }
    });
    gemm.trim().unwrap();

    // With kernels loaded and unloaded, and work done.
    let stream = Stream::new(&device).unwrap();
    let problem = Problem::new(256, 256, 512, Major::K, Major::K);
    let matrix = || DeviceBuffer::new(&device, 256 * 512 * 2).unwrap();
    let (operand, d) = (matrix(), matrix());
    growth(&device, "GEMMs with a kernel", 300, |_| {
        let gemm = Gemm::create(&device, config.clone()).unwrap();
        let pointers = Pointers::new(operand.address(), operand.address(), 0, d.address());
        // SAFETY: the buffers are as large as the largest matrix, whatever they hold, and outlive
        // the work.
        unsafe { gemm.run_at(&problem, &pointers, stream.as_ref()) }.unwrap();
        stream.synchronize().unwrap();
    });
}
