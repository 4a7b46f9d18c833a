//! The probes of bandwidth and arithmetic, in the emulator and through every installed assembler.

#[path = "common/clean.rs"]
mod clean;

use std::collections::HashMap;

use clean::{assemblers, assert_clean};
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule, Statistics};
use pgemm_ir::{Element, WarpMma};
use pgemm_kernels::{
    ArithmeticProbe, ArithmeticWork, L2Policy, LoadProbe, PROBE_ROW_BYTES, ProbeKernel, ProbeSpec,
    ProbeWork,
};

/// The smallest and largest boxes and rings.
fn specs(checksums: bool) -> [ProbeSpec; 4] {
    [(2 << 10, 64), (8 << 10, 28), (16 << 10, 2), (64 << 10, 3)]
        .map(|(box_bytes, stages)| ProbeSpec { box_bytes, stages, checksums })
}

/// Pseudo-random words, and their sum for each box.
fn words(rows: u64, spec: &ProbeSpec) -> (Vec<u8>, Vec<u32>) {
    let mut state = 7u64;
    let words: Vec<u32> = (0..rows * u64::from(PROBE_ROW_BYTES / 4))
        .map(|_| {
            // This is Knuth's MMIX generator.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 32) as u32
        })
        .collect();
    let boxes = words.chunks(spec.box_bytes as usize / 4);
    let sums = boxes.map(|words| words.iter().fold(0u32, |sum, word| sum.wrapping_add(*word)));
    let sums = sums.collect();
    (words.iter().flat_map(|word| word.to_le_bytes()).collect(), sums)
}

/// Reads `bytes` in so many passes with `ctas` CTAs. Returns the statistics of the run, and the
/// sums of the boxes.
fn read(
    probe: &ProbeKernel,
    bytes: &[u8],
    passes: u32,
    ctas: u32,
    schedule: Schedule,
) -> (Statistics, Vec<u32>) {
    let mut memory = Memory::new();
    let address = memory.upload("buffer", bytes, Permission::ReadOnly);
    let boxes = probe.spec.boxes(bytes.len() as u64) as usize;
    let sums = memory.upload("sums", &vec![0; boxes * 4], Permission::ReadWrite);
    let bytes = bytes.len() as u64;
    let policy = L2Policy::EvictFirst;
    let launch = probe.bind(&ProbeWork { address, bytes, policy, passes, ctas, sums });
    let options = Options { schedule, ..Options::default() };
    let emulator = Emulator::new(&probe.kernel, &launch, &mut memory, options).unwrap();
    let statistics = emulator.run().unwrap_or_else(|report| panic!("{report}"));
    let sums = memory.read_raw(sums, boxes * 4).unwrap();
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    (statistics, sums.chunks(4).map(word).collect())
}

/// A box that is read twice has twice its sum, and a box that is not read has sum zero.
#[test]
fn every_byte_is_read_once() {
    for spec in specs(true) {
        let probe = ProbeKernel::build(spec).unwrap();
        let rows = u64::from(spec.box_bytes / PROBE_ROW_BYTES);
        // Rings that wrap, more CTAs than boxes, and a partial last box.
        for (rows, ctas) in [(rows * 11, 3), (rows * 3, 8), (rows * 5 - 1, 2), (1, 1)] {
            let (bytes, sums) = words(rows, &spec);
            for schedule in [Schedule::round_robin(), Schedule::async_late(1), Schedule::seeded(2)]
            {
                let (statistics, found) = read(&probe, &bytes, 1, ctas, schedule);
                assert_eq!(found, sums, "{spec:?}, {rows} rows, {ctas} CTAs");
                assert_eq!(statistics.tma_loads, sums.len() as u64);
            }
        }
    }
}

#[test]
fn every_pass_reads_the_whole_buffer() {
    let spec = specs(true)[1];
    let probe = ProbeKernel::build(spec).unwrap();
    let rows = u64::from(spec.box_bytes / PROBE_ROW_BYTES) * 5 - 1;
    let (bytes, sums) = words(rows, &spec);
    let (statistics, found) = read(&probe, &bytes, 7, 3, Schedule::seeded(4));
    let sums: Vec<u32> = sums.iter().map(|sum| sum.wrapping_mul(7)).collect();
    assert_eq!((found, statistics.tma_loads), (sums, 7 * 5));
}

#[test]
fn the_probe_that_is_timed_reads_as_much() {
    for spec in specs(false) {
        let probe = ProbeKernel::build(spec).unwrap();
        let rows = u64::from(spec.box_bytes / PROBE_ROW_BYTES) * 13;
        let (bytes, sums) = words(rows, &spec);
        let (statistics, found) = read(&probe, &bytes, 1, 4, Schedule::seeded(3));
        assert_eq!(statistics.tma_load_bytes, bytes.len() as u64);
        assert_eq!(statistics.tma_loads, sums.len() as u64);
        assert!(found.iter().all(|&sum| sum == 0), "nothing is written");
    }
}

#[test]
fn assemblers_take_it_without_spills() {
    let specs = specs(false).into_iter().chain(specs(true));
    let kernels = specs.map(|spec| ProbeKernel::build(spec).unwrap().kernel);
    assert_clean(&assemblers(), kernels.chain([LoadProbe::build().unwrap().kernel]));
}

/// Every pass reads all blocks, and a CTA other ones each time.
#[test]
fn plain_loads_read_the_whole_buffer_in_every_pass() {
    let probe = LoadProbe::build().unwrap();
    for (blocks, passes, ctas) in [(5, 3, 2), (2, 1, 8), (1, 4, 1)] {
        let rows = u64::from(blocks * LoadProbe::BLOCK_BYTES / PROBE_ROW_BYTES);
        let spec = ProbeSpec { box_bytes: LoadProbe::BLOCK_BYTES, stages: 2, checksums: false };
        let (bytes, sums) = words(rows, &spec);
        let mut memory = Memory::new();
        let address = memory.upload("buffer", &bytes, Permission::ReadOnly);
        let threads = (ctas.min(blocks) * LoadProbe::THREADS) as usize;
        let places = memory.upload("sums", &vec![0xff; threads * 4], Permission::ReadWrite);
        let (policy, bytes) = (L2Policy::Normal, bytes.len() as u64);
        let work = ProbeWork { address, bytes, policy, passes, ctas, sums: places };
        let launch = probe.bind(&work);
        let options = Options { schedule: Schedule::seeded(5), ..Options::default() };
        let emulator = Emulator::new(&probe.kernel, &launch, &mut memory, options).unwrap();
        emulator.run().unwrap_or_else(|report| panic!("{report}"));
        let found = memory.read_raw(places, threads * 4).unwrap().chunks(4);
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let found: Vec<u32> = found.map(word).collect();
        let all = |words: &[u32]| words.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
        assert_eq!(all(&found), all(&sums).wrapping_mul(passes), "{blocks} {passes} {ctas}");
    }
}

/// Small integers, whose products and sums are exact in every type.
fn small(index: usize) -> i32 {
    let mixed = (index as u32).wrapping_mul(2_654_435_761) >> 16;
    (mixed % 5) as i32 - 2
}

/// A value in bytes of a type.
fn encoded(element: Element, value: i32) -> Vec<u8> {
    match element {
        Element::F64 => f64::from(value).to_le_bytes().to_vec(),
        Element::Tf32 => (value as f32).to_le_bytes().to_vec(),
        Element::S8 => vec![value as i8 as u8],
        // The exponents of 1 and 2 are 7 and 8, above 3 bits of mantissa.
        Element::E4m3 => {
            let magnitude = [0u8, 0x38, 0x40][value.unsigned_abs() as usize];
            vec![if value < 0 { magnitude | 0x80 } else { magnitude }]
        }
        Element::F16 => half::f16::from_f32(value as f32).to_le_bytes().to_vec(),
        _ => half::bf16::from_f32(value as f32).to_le_bytes().to_vec(),
    }
}

/// The sum of all elements of D after a round: of each depth, the sum of A's column times that of
/// B's row.
fn sum_of_products(probe: &ArithmeticProbe) -> i64 {
    let element = probe.element;
    let mut columns: HashMap<(u32, u32), [i64; 2]> = HashMap::new();
    if element == Element::F64 {
        // Blocks of A and of B, each lane's values in order. All pairs of blocks are multiplied.
        let mma = WarpMma::f64(16);
        let fragments = mma.fragments().unwrap();
        let of_a = 2 * mma.a_values();
        for value in 0..of_a + 4 * mma.b_values() {
            let (operand, layout, lines, within) = match value.checked_sub(of_a) {
                None => (0, fragments.a.layout(), mma.m, value % mma.a_values()),
                Some(value) => (1, fragments.b.layout(), mma.n, value % mma.b_values()),
            };
            for lane in 0..32 {
                let place = layout.index([i64::from(lane), i64::from(within)]).unwrap() as u32;
                let index = (value * 32 + lane) as usize;
                columns.entry((0, place / lines)).or_default()[operand] += i64::from(small(index));
            }
        }
        let warps = i64::from(ArithmeticProbe::THREADS / 32);
        return columns.values().map(|[a, b]| a * b).sum::<i64>() * warps;
    }
    let k = 128 / element.bytes();
    for index in 0..probe.operand_bytes() / element.bytes() {
        let (line, depth) = (index / k, index % k);
        // Four stages of 128 rows, then four of 256 columns.
        let (operand, stage) = if line < 512 { (0, line / 128) } else { (1, (line - 512) / 256) };
        columns.entry((stage, depth)).or_default()[operand] += i64::from(small(index as usize));
    }
    columns.values().map(|[a, b]| a * b).sum()
}

#[test]
fn arithmetic_probes_multiply_all_operands_in_every_round() {
    for element in ArithmeticProbe::ELEMENTS {
        let probe = ArithmeticProbe::build(element).unwrap();
        let count = probe.operand_bytes() / element.bytes();
        let operands: Vec<u8> =
            (0..count as usize).flat_map(|index| encoded(element, small(index))).collect();
        let sum_bytes = if element == Element::F64 { 8 } else { 4 };
        for (rounds, ctas, schedule) in
            [(1, 2, Schedule::round_robin()), (3, 1, Schedule::async_late(1))]
        {
            let mut memory = Memory::new();
            let address = memory.upload("operands", &operands, Permission::ReadOnly);
            let threads = (ctas * ArithmeticProbe::THREADS) as usize;
            let sums = vec![0xff; threads * sum_bytes];
            let sums = memory.upload("sums", &sums, Permission::ReadWrite);
            let launch = probe.bind(&ArithmeticWork { operands: address, sums, rounds, ctas });
            let options = Options { schedule, ..Options::default() };
            let emulator = Emulator::new(&probe.kernel, &launch, &mut memory, options).unwrap();
            emulator.run().unwrap_or_else(|report| panic!("{element}: {report}"));
            let bytes = memory.read_raw(sums, threads * sum_bytes).unwrap();
            let sums: Vec<i64> = bytes
                .chunks(sum_bytes)
                .map(|bytes| match element {
                    Element::F64 => f64::from_le_bytes(bytes.try_into().unwrap()) as i64,
                    Element::S8 => i64::from(i32::from_le_bytes(bytes.try_into().unwrap())),
                    _ => f32::from_le_bytes(bytes.try_into().unwrap()) as i64,
                })
                .collect();
            for sums in sums.chunks(ArithmeticProbe::THREADS as usize) {
                let sum: i64 = sums.iter().sum();
                assert_eq!(sum, sum_of_products(&probe) * i64::from(rounds), "{element}");
            }
        }
    }
    assert_eq!(
        ArithmeticProbe::build(Element::F32).unwrap_err().to_string(),
        "tensor cores do not multiply f32"
    );
}

#[test]
fn assemblers_take_arithmetic_probes_without_spills() {
    // ptxas 12.4 takes more than half a minute for some of them.
    let all = assemblers();
    let newer = &all[all.len().saturating_sub(2)..];
    let kernel = |element| ArithmeticProbe::build(element).unwrap().kernel;
    assert_clean(newer, ArithmeticProbe::ELEMENTS.into_iter().map(kernel));
}
