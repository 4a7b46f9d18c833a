//! The repack of operands, in the emulator and through every installed assembler. The emulator
//! reports every byte that is read outside of a matrix.

#[path = "common/clean.rs"]
mod clean;

use clean::{assemblers, assert_clean};
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule};
use pgemm_kernels::{CopyKind, CopySpec, MatrixRepack, RepackKernel, RepackSpec};

const SIZES: [u32; 4] = [1, 2, 4, 8];

const KINDS: [CopyKind; 3] = [CopyKind::Transposes, CopyKind::Keeps, CopyKind::KeepsSmall];

fn kernel(element_bytes: u32, kind: CopyKind) -> RepackKernel {
    let spec = RepackSpec::Copy(CopySpec { element_bytes, kind });
    RepackKernel::build(spec).unwrap_or_else(|error| panic!("{error}"))
}

/// A matrix that begins `before` elements after the start of an allocation and ends with the
/// allocation.
#[derive(Clone, Copy, Debug)]
struct Case {
    lines: u32,
    length: u32,
    line_stride: u64,
    step: u64,
    before: u64,
    transposed: bool,
    /// Bytes of the result's lines beyond the minimum.
    gap: u64,
    /// Number of matrices, and elements from one matrix to the next.
    batch: u32,
    apart: u64,
}

impl Case {
    fn of(lines: u32, length: u32) -> Case {
        let line_stride = length.into();
        let (before, transposed, gap, batch, apart) = (0, false, 0, 1, 0);
        Case { lines, length, line_stride, step: 1, before, transposed, gap, batch, apart }
    }

    fn span(&self) -> u64 {
        let matrices = u64::from(self.batch - 1) * self.apart;
        let line = u64::from(self.length - 1) * self.step + 1;
        matrices + u64::from(self.lines - 1) * self.line_stride + line
    }

    fn repack(&self, size: u32, source: u64, destination: u64) -> MatrixRepack {
        let Case { lines, length, line_stride, step, transposed, batch, apart, .. } = *self;
        let matrix = MatrixRepack {
            source: source + self.before * u64::from(size),
            lines,
            length,
            line_stride,
            step,
            destination,
            pitch: 0,
            transposed,
            batch,
            batch_stride: apart,
            result_batch_stride: 0,
            scales: 0,
        };
        let pitch = matrix.least_pitch(size) + self.gap;
        // There is a gap between results too.
        let result_batch_stride = u64::from(matrix.result().0) * pitch + 32;
        MatrixRepack { pitch, result_batch_stride, ..matrix }
    }
}

/// Pseudo-random bytes.
fn noise(count: u64, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            // This is Knuth's MMIX generator.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as u8
        })
        .collect()
}

const UNTOUCHED: u8 = 0x5a;

/// A matrix in the emulator's memory.
struct Copied {
    case: Case,
    bytes: Vec<u8>,
    repack: MatrixRepack,
}

impl Copied {
    fn new(memory: &mut Memory, case: Case, size: u32, seed: u64) -> Copied {
        let bytes = noise((case.before + case.span()) * u64::from(size), seed);
        let source = memory.upload("source", &bytes, Permission::ReadOnly);
        let repack = case.repack(size, source, 0);
        let room = u64::from(repack.batch) * repack.result_batch_stride;
        let result = vec![UNTOUCHED; room as usize];
        let destination = memory.upload("result", &result, Permission::ReadWrite);
        Copied { case, bytes, repack: MatrixRepack { destination, ..repack } }
    }

    /// Compares the elements of the result, and the zeros up to a whole chunk. Bytes behind these
    /// must not change.
    fn check(&self, memory: &Memory, size: u32) {
        let Copied { case, bytes, repack } = self;
        let (lines, length) = repack.result();
        let apart = repack.result_batch_stride as usize;
        let room = repack.batch as usize * apart;
        let found = memory.read_raw(repack.destination, room).unwrap();
        let size = size as usize;
        let matrices = found.chunks(apart).zip((case.before..).step_by(case.apart.max(1) as usize));
        let lines = matrices.flat_map(|(found, first)| {
            let (found, gap) = found.split_at(lines as usize * repack.pitch as usize);
            assert!(gap.iter().all(|byte| *byte == UNTOUCHED), "{size} bytes, {case:?}");
            found.chunks(repack.pitch as usize).enumerate().map(move |line| (first, line))
        });
        for (first, (line, found)) in lines {
            let mut expected = vec![];
            for i in 0..length as usize {
                let (line, i) = if case.transposed { (i, line) } else { (line, i) };
                let element = first + line as u64 * case.line_stride + i as u64 * case.step;
                expected.extend(&bytes[element as usize * size..][..size]);
            }
            expected.resize(expected.len().next_multiple_of(16), 0);
            expected.resize(found.len(), UNTOUCHED);
            assert_eq!(found, expected, "{size} bytes, {case:?}: line {line}");
        }
    }
}

/// Checks the cases with the kernel that transposes. If no case transposes, it also checks them
/// with the other kernels.
fn check(size: u32, cases: &[Case], schedule: Schedule) {
    let transposed = cases.iter().any(|case| case.transposed);
    let kinds = KINDS.into_iter().filter(|kind| *kind == CopyKind::Transposes || !transposed);
    kinds.for_each(|kind| check_by(&kernel(size, kind), size, cases, schedule.clone()));
}

fn check_by(kernel: &RepackKernel, size: u32, cases: &[Case], schedule: Schedule) {
    let mut memory = Memory::new();
    let placed: Vec<_> =
        (1..).zip(cases).map(|(seed, case)| Copied::new(&mut memory, *case, size, seed)).collect();
    let second = placed.get(1).map(|placed| &placed.repack);
    let launch = kernel.signature.bind(&placed[0].repack, second).unwrap();
    let options = Options { schedule, ..Options::default() };
    let emulator = Emulator::new(&kernel.kernel, &launch, &mut memory, options).unwrap();
    emulator.run().unwrap_or_else(|report| panic!("{size} bytes, {cases:?}: {report}"));
    for placed in &placed {
        placed.check(&memory, size);
    }
}

#[test]
fn lines_of_any_length_and_address_move_in_both_directions() {
    for size in SIZES {
        for transposed in [false, true] {
            for (lines, length) in [(1, 1), (3, 200), (150, 7), (131, 129), (5, 1100)] {
                for before in [0, 1, 3] {
                    let case = Case { before, transposed, ..Case::of(lines, length) };
                    check(size, &[case], Schedule::round_robin());
                }
            }
        }
    }
}

/// Lines at any address are copied to whole lines of L2.
#[test]
fn results_may_begin_at_whole_lines_of_l2() {
    for size in SIZES {
        for transposed in [false, true] {
            let case = Case { before: 1, transposed, ..Case::of(131, 205) };
            let least = case.repack(size, 0, 0).pitch;
            let gap = least.next_multiple_of(128) - least;
            assert!(gap > 0);
            check(size, &[Case { gap, ..case }], Schedule::seeded(6));
        }
    }
}

#[test]
fn aligned_lines_move_in_both_directions() {
    for size in SIZES {
        for transposed in [false, true] {
            let line_stride = 320;
            let case = Case { line_stride, transposed, gap: 32, ..Case::of(140, 256) };
            check(size, &[case], Schedule::seeded(1));
            // The lines end inside of a chunk.
            check(size, &[Case { length: 251, ..case }], Schedule::seeded(2));
        }
    }
}

#[test]
fn lines_and_elements_may_be_the_same_or_far_apart() {
    for size in SIZES {
        for transposed in [false, true] {
            for (line_stride, step) in [(0, 1), (0, 0), (1, 0), (2, 77), (300, 3)] {
                let case = Case { line_stride, step, before: 1, transposed, ..Case::of(70, 90) };
                check(size, &[case], Schedule::seeded(3));
            }
        }
    }
}

#[test]
fn batches_of_matrices_however_far_apart() {
    for size in SIZES {
        let copied = Case { before: 1, batch: 3, apart: 37 * 301 + 5, ..Case::of(37, 301) };
        // The matrices lie between the lines of others.
        let transposed =
            Case { transposed: true, line_stride: 3 * 43, batch: 2, apart: 43, ..Case::of(65, 43) };
        check(size, &[copied, transposed], Schedule::seeded(7));
        check(size, &[transposed, Case::of(5, 5)], Schedule::async_late(2));
    }
}

#[test]
fn two_matrices_in_one_launch() {
    for size in SIZES {
        let copied = Case { before: 1, ..Case::of(37, 301) };
        let transposed = Case { transposed: true, ..Case::of(65, 43) };
        check(size, &[copied, transposed], Schedule::seeded(4));
        check(size, &[transposed, copied], Schedule::async_late(1));
        check(size, &[transposed, transposed], Schedule::seeded(5));
    }
}

/// Without the barrier, the tile is read before it is written.
#[test]
fn a_turn_without_its_barrier_fails() {
    let mut kernel = kernel(2, CopyKind::Transposes);
    let is_barrier = |op: &pgemm_ir::Op| matches!(op, pgemm_ir::Op::BarrierSync { .. });
    kernel.kernel.visit_blocks_mut(&mut |block| block.insts.retain(|inst| !is_barrier(&inst.op)));
    let mut memory = Memory::new();
    let case = Case { transposed: true, ..Case::of(64, 64) };
    let placed = Copied::new(&mut memory, case, 2, 1);
    let launch = kernel.signature.bind(&placed.repack, None).unwrap();
    let emulator = Emulator::new(&kernel.kernel, &launch, &mut memory, Options::default()).unwrap();
    assert!(emulator.run().is_err());
}

#[test]
fn a_kernel_that_keeps_the_direction_transposes_no_matrix() {
    let [kept, transposed] =
        [false, true].map(|transposed| Case { transposed, ..Case::of(5, 7) }.repack(2, 0, 0));
    let kernel = kernel(2, CopyKind::Keeps);
    assert!(kernel.signature.bind(&kept, Some(&kept)).is_ok());
    for (first, second) in [(&transposed, None), (&kept, Some(&transposed))] {
        let error = kernel.signature.bind(first, second).unwrap_err();
        assert!(error.to_string().contains("build one that transposes"), "{error}");
    }
}

#[test]
fn assemblers_take_it_without_spills() {
    let of = |size| KINDS.map(|kind| kernel(size, kind).kernel);
    assert_clean(&assemblers(), SIZES.into_iter().flat_map(of));
}
