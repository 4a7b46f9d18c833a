//! The bandwidth probe, in the emulator and through every installed assembler.

#[path = "common/assemblers.rs"]
mod assemblers;

use assemblers::assemblers;
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule, Statistics};
use pgemm_kernels::{L2Policy, PROBE_ROW_BYTES, ProbeKernel, ProbeSpec, ProbeWork};

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

/// Reads `bytes` with `ctas` CTAs. Returns the statistics of the run, and the sums of the boxes.
fn read(
    probe: &ProbeKernel,
    bytes: &[u8],
    ctas: u32,
    schedule: Schedule,
) -> (Statistics, Vec<u32>) {
    let mut memory = Memory::new();
    let address = memory.upload("buffer", bytes, Permission::ReadOnly);
    let boxes = probe.spec.boxes(bytes.len() as u64) as usize;
    let sums = memory.upload("sums", &vec![0; boxes * 4], Permission::ReadWrite);
    let bytes = bytes.len() as u64;
    let launch =
        probe.bind(&ProbeWork { address, bytes, policy: L2Policy::EvictFirst, ctas, sums });
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
                let (statistics, found) = read(&probe, &bytes, ctas, schedule);
                assert_eq!(found, sums, "{spec:?}, {rows} rows, {ctas} CTAs");
                assert_eq!(statistics.tma_loads, sums.len() as u64);
            }
        }
    }
}

#[test]
fn the_probe_that_is_timed_reads_as_much() {
    for spec in specs(false) {
        let probe = ProbeKernel::build(spec).unwrap();
        let rows = u64::from(spec.box_bytes / PROBE_ROW_BYTES) * 13;
        let (bytes, sums) = words(rows, &spec);
        let (statistics, found) = read(&probe, &bytes, 4, Schedule::seeded(3));
        assert_eq!(statistics.tma_load_bytes, bytes.len() as u64);
        assert_eq!(statistics.tma_loads, sums.len() as u64);
        assert!(found.iter().all(|&sum| sum == 0), "nothing is written");
    }
}

#[test]
fn assemblers_take_it_without_spills() {
    let assemblers = assemblers();
    if assemblers.is_empty() {
        return;
    }
    for spec in specs(false).into_iter().chain(specs(true)) {
        let ptx = pgemm_ptx::emit(&ProbeKernel::build(spec).unwrap().kernel).unwrap();
        for ptxas in &assemblers {
            let report = ptxas.assemble(&ptx).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
            assert!(report.is_clean(), "{spec:?}: {report:?}");
        }
    }
}
