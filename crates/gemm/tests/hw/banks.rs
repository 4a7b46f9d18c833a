//! The emulator's model of bank conflicts beside the cycles of a GPU: one warp repeats an access to
//! shared memory, and a wavefront must take as long in every pattern of addresses.

use std::fmt;
use std::time::Duration;

use persistent_gemm::driver::{Device, Stream};
use persistent_gemm::language::{
    AtomicOp, Element, Instruction, Kernel, KernelBuilder, Launch, Occupancy, Order, RegionKind,
    Scope, SmemRequest, Special, Val, optimise, ty,
};
use persistent_gemm::program::{DeviceArray, Program};
use pgemm_emulator::{Checks, Emulator, Memory, Options, Permission};

use crate::device::device;

const LANES: usize = 32;
/// Accesses in an iteration of the loop. Each is in another row of all banks, so that the assembler
/// cannot merge them.
const UNROLLED: u32 = 32;
const ROW_BYTES: u32 = 128;
/// So many bytes that no other CTA is on the SM.
const TILE_BYTES: u32 = 128 << 10;
/// Iterations of two launches. The difference of their times is that of accesses alone.
const ITERATIONS: [u32; 2] = [16, 80];
/// Launches of which the fastest counts.
const REPEATS: usize = 5;

/// How far a time may be from the model, as a part of it, and the cycles between accesses that do
/// not hide each other's wavefronts. On an H200 the largest difference was 1.3 cycles.
const NOISE: f64 = 0.03;
const GAP: f64 = 1.5;

/// What the warp repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Load { bytes: u32 },
    Store { bytes: u32 },
    LoadMatrices { count: u32 },
    StoreMatrices { count: u32 },
    Atomic,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Load { bytes } => write!(f, "load of {bytes} bytes"),
            Access::Store { bytes } => write!(f, "store of {bytes} bytes"),
            Access::LoadMatrices { count } => write!(f, "ldmatrix x{count}"),
            Access::StoreMatrices { count } => write!(f, "stmatrix x{count}"),
            Access::Atomic => f.write_str("atomic add of 4 bytes"),
        }
    }
}

impl Access {
    fn all() -> Vec<Access> {
        let mut all = vec![Access::Atomic];
        for bytes in [1, 2, 4, 8, 16] {
            all.extend([Access::Load { bytes }, Access::Store { bytes }]);
        }
        for count in [1, 2, 4] {
            all.extend([Access::LoadMatrices { count }, Access::StoreMatrices { count }]);
        }
        all
    }

    /// Bytes of a lane, which its addresses are multiples of.
    fn bytes(self) -> u32 {
        match self {
            Access::Load { bytes } | Access::Store { bytes } => bytes,
            Access::LoadMatrices { .. } | Access::StoreMatrices { .. } => 16,
            Access::Atomic => 4,
        }
    }

    /// One access. Returns what it reads.
    fn emit<'k>(
        self,
        b: &'k KernelBuilder,
        at: Val<'k, ty::Smem>,
        value: Val<'k, ty::U32>,
    ) -> Vec<Val<'k, ty::U32>> {
        fn words<'k, const N: usize>(list: [Val<'k, ty::B32>; N]) -> Vec<Val<'k, ty::U32>> {
            list.map(|word| word.bits()).to_vec()
        }
        match self {
            Access::Load { bytes: bytes @ (1 | 2) } => vec![b.load_narrow_shared(at, bytes)],
            Access::Load { bytes: 4 } => b.load_shared::<ty::U32, 1>(at).to_vec(),
            Access::Load { bytes: 8 } => b.load_shared::<ty::U32, 2>(at).to_vec(),
            Access::Load { .. } => b.load_shared::<ty::U32, 4>(at).to_vec(),
            Access::LoadMatrices { count: 1 } => words(b.load_matrix::<1>(at, false)),
            Access::LoadMatrices { count: 2 } => words(b.load_matrix::<2>(at, false)),
            Access::LoadMatrices { .. } => words(b.load_matrix::<4>(at, false)),
            Access::Atomic => vec![b.atomic(AtomicOp::Add, at, value, Order::Relaxed, Scope::Cta)],
            Access::Store { bytes } => {
                match bytes {
                    1 | 2 => b.store_narrow_shared(at, bytes, value),
                    4 => b.store_shared(at, [value]),
                    8 => b.store_shared(at, [value; 2]),
                    _ => b.store_shared(at, [value; 4]),
                }
                vec![]
            }
            Access::StoreMatrices { count } => {
                let value = value.as_b32();
                match count {
                    1 => b.store_matrix(at, [value], false),
                    2 => b.store_matrix(at, [value; 2], false),
                    _ => b.store_matrix(at, [value; 4], false),
                }
                vec![]
            }
        }
    }

    /// The first warp of each CTA repeats the access, each lane at its offset in the table, and
    /// every lane stores how many cycles that took.
    fn kernel(self) -> Kernel {
        // PTX ISA, "Special Registers: %clock64".
        let cycles: Instruction<(), ty::U64> =
            Instruction::new("cycles", "mov.u64 $r0, %clock64").reads().emulated(|()| 0);
        let b = KernelBuilder::new("banks", 1);
        let [table, output] = ["table", "output"].map(|name| b.param::<ty::U64>(name));
        // The step is 0. That the assembler does not know, or it would access memory once.
        let [iterations, step] = ["iterations", "step"].map(|name| b.param::<ty::U32>(name));
        let kind = RegionKind::Data(Element::S32);
        let tile = b.smem_address(b.region("tile", kind, SmemRequest::whole(TILE_BYTES, 1024)));
        b.warp_roles(Occupancy::ONE_CTA, |roles| {
            roles.role("all", 1, 232, |_| {
                let lane = b.special(Special::Lane);
                b.if_(b.special(Special::Warp).eq(0), || {
                    let own = b.special(Special::Cta) * LANES as u32 + lane;
                    let [offset] = b.load_global::<ty::U32, 1>(table.byte_offset(own * 4));
                    let first = tile.offset(offset);
                    let begin = b.instruction(&cycles, ());
                    // Several sums, so that no access waits for the sum before.
                    let sums = [lane; 4];
                    let sums = b.for_carry(0, iterations, 1, sums, |index, mut sums| {
                        let at = first.offset(index * step);
                        for row in 0..UNROLLED {
                            let read = self.emit(&b, at.offset(row * ROW_BYTES), lane);
                            for (word, sum) in read.into_iter().enumerate() {
                                let to = &mut sums[(row as usize + word) % 4];
                                *to = *to ^ sum;
                            }
                        }
                        sums
                    });
                    let taken = b.instruction(&cycles, ()) - begin;
                    let sum = sums.into_iter().reduce(|a, b| a ^ b).unwrap_or(lane);
                    let output = output.byte_offset(own * 16);
                    b.store_global(output, [taken]);
                    b.store_global(output.byte_offset(8), [sum.to_u64()]);
                });
            });
        });
        optimise(b.finish().unwrap()).unwrap()
    }
}

/// The offsets of the lanes in shared memory.
struct Pattern {
    name: String,
    offsets: [u32; LANES],
}

fn patterns(access: Access) -> Vec<Pattern> {
    let bytes = access.bytes();
    let pattern = |name: String, at: &dyn Fn(u32) -> u32| Pattern {
        name,
        offsets: std::array::from_fn(|lane| at(lane as u32) * bytes),
    };
    let strides = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33];
    let mut all: Vec<Pattern> =
        strides.map(|stride| pattern(format!("stride {stride}"), &|lane| lane * stride)).into();
    all.push(pattern("pairs of lanes".into(), &|lane| lane / 2));
    all.push(pattern("scattered".into(), &|lane| lane * 29 % 64 + lane / 5 * 32));
    // Addresses in rows of all banks.
    let in_row = ROW_BYTES / bytes;
    all.push(pattern("one column".into(), &|lane| lane * in_row));
    all.push(pattern("a column of four rows".into(), &|lane| lane % 4 * in_row));
    all.push(pattern("halves of a column".into(), &|lane| lane / 16 + lane % 16 * in_row));
    all.push(pattern("swizzled column".into(), &|lane| lane * in_row + lane % in_row));
    all
}

/// Wavefronts of an access by the emulator, and without conflicts.
fn counted(kernel: &Kernel, pattern: &Pattern) -> (f64, f64) {
    let mut memory = Memory::new();
    let table: Vec<u8> = pattern.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
    let table = memory.upload("table", &table, Permission::ReadOnly);
    let output = memory.allocate("output", 16 * LANES);
    // Lanes store to the same places, and read what nothing has written.
    let options = Options { checks: Checks::none(), ..Options::default() };
    let arguments = vec![table.into(), output.into(), 1u32.into(), 0u32.into()];
    let launch = Launch { grid: [1, 1, 1], arguments };
    let run = Emulator::new(kernel, &launch, &mut memory, options).unwrap().run().unwrap();
    let lines = &run.shared_accesses;
    let accesses: u64 = lines.iter().map(|line| line.accesses).sum();
    assert_eq!(accesses, u64::from(UNROLLED), "the kernel has no other accesses");
    let mean = |sum: u64| sum as f64 / accesses as f64;
    (
        mean(lines.iter().map(|line| line.wavefronts).sum()),
        mean(lines.iter().map(|line| line.ideal).sum()),
    )
}

/// Cycles of an access in each pattern, one of which each CTA repeats.
fn measured(device: &Device, stream: &Stream, kernel: &Kernel, patterns: &[Pattern]) -> Vec<f64> {
    let stream = stream.as_ref();
    let offsets: Vec<u32> = patterns.iter().flat_map(|pattern| pattern.offsets).collect();
    let table = DeviceArray::from_slice(device, &offsets, stream).unwrap();
    let output = DeviceArray::from_slice(device, &vec![0u64; 2 * offsets.len()], stream).unwrap();
    let loaded = Program::new(kernel.clone()).unwrap().load(device).unwrap();
    let run = |iterations: u32| {
        let arguments = loaded.arguments().with("table", &table).unwrap();
        let arguments = arguments.with("output", &output).unwrap();
        let arguments = arguments.with("iterations", iterations).unwrap();
        let arguments = arguments.with("step", 0u32).unwrap();
        let launch = loaded.prepare([patterns.len() as u32, 1, 1], &arguments).unwrap();
        // SAFETY: the table and the output have an entry for each lane of each CTA, and outlive the
        // launch.
        unsafe { launch.enqueue(stream).unwrap() };
        stream.synchronize_within(Duration::from_secs(10)).unwrap();
        let found = output.to_vec(stream).unwrap();
        // Two words for each lane; that of lane 0 counts.
        found.chunks_exact(2 * LANES).map(|cta| cta[0] as f64).collect::<Vec<f64>>()
    };
    let mut fastest = ITERATIONS.map(|_| vec![f64::INFINITY; patterns.len()]);
    for _ in 0..REPEATS {
        for (fastest, iterations) in fastest.iter_mut().zip(ITERATIONS) {
            let found = run(iterations);
            fastest.iter_mut().zip(found).for_each(|(own, found)| *own = own.min(found));
        }
    }
    let accesses = f64::from((ITERATIONS[1] - ITERATIONS[0]) * UNROLLED);
    let [short, long] = fastest;
    short.into_iter().zip(long).map(|(short, long)| (long - short) / accesses).collect()
}

/// What an access takes in a pattern.
struct Row {
    name: String,
    wavefronts: f64,
    ideal: f64,
    cycles: f64,
}

/// What of the rows of one access is not as the model says. An access takes the cycles of its
/// wavefronts, and at least those that the fastest pattern takes: the warp cannot issue faster.
fn judge(access: Access, rows: &[Row]) -> Vec<String> {
    let floor = rows.iter().map(|row| row.cycles).fold(f64::INFINITY, f64::min);
    let most = |a: &&Row, b: &&Row| a.wavefronts.total_cmp(&b.wavefronts);
    let Some(worst) = rows.iter().max_by(most) else { return vec![] };
    let unit = worst.cycles / worst.wavefronts;
    let mut wrong = vec![];
    if unit < 0.9 {
        wrong.push(format!("{access}: a wavefront takes {unit:.2} cycles, not at least one"));
    }
    for row in rows {
        let Row { name, wavefronts, cycles, .. } = row;
        let model = floor.max(unit * wavefronts);
        if !(model * (1.0 - NOISE)..=model * (1.0 + NOISE) + GAP).contains(cycles) {
            wrong.push(format!(
                "{access}, {name}: {wavefronts} wavefronts take {cycles:.1} cycles, not about \
                 {model:.1}"
            ));
        }
        // Twice the wavefronts take clearly longer, where they are not hidden behind the issue.
        for other in rows {
            if other.wavefronts <= 0.5 * wavefronts
                && unit * wavefronts >= 2.0 * floor
                && *cycles < 1.5 * other.cycles
            {
                wrong.push(format!(
                    "{access}: {wavefronts} wavefronts of {name} take {cycles:.1} cycles, and {} \
                     of {} take {:.1}",
                    other.wavefronts, other.name, other.cycles
                ));
            }
        }
    }
    wrong
}

#[test]
fn wavefronts_take_the_cycles_that_the_emulator_says() {
    let device = device("wavefronts_take_the_cycles_that_the_emulator_says");
    let stream = device.as_ref().map(|device| Stream::new(device).unwrap());
    let mut wrong = vec![];
    println!("{:24} {:24} {:>10} {:>6} {:>8}", "access", "lanes", "wavefronts", "ideal", "cycles");
    for access in Access::all() {
        let (kernel, patterns) = (access.kernel(), patterns(access));
        let counts: Vec<(f64, f64)> =
            patterns.iter().map(|pattern| counted(&kernel, pattern)).collect();
        let most = counts.iter().map(|(wavefronts, _)| *wavefronts).fold(0.0, f64::max);
        let least = counts.iter().map(|(wavefronts, _)| *wavefronts).fold(most, f64::min);
        assert!(most >= 4.0 * least, "{access}: patterns of {least} to {most} wavefronts");
        let (Some(device), Some(stream)) = (&device, &stream) else { continue };
        let cycles = measured(device, stream, &kernel, &patterns);
        let rows: Vec<Row> = patterns
            .into_iter()
            .zip(counts)
            .zip(cycles)
            .map(|((pattern, (wavefronts, ideal)), cycles)| Row {
                name: pattern.name,
                wavefronts,
                ideal,
                cycles,
            })
            .collect();
        for Row { name, wavefronts, ideal, cycles } in &rows {
            let access = access.to_string();
            println!("{access:24} {name:24} {wavefronts:10.1} {ideal:6.1} {cycles:8.2}");
        }
        wrong.extend(judge(access, &rows));
    }
    assert!(wrong.is_empty(), "{} differ from the model:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn cycles_that_do_not_follow_the_model_are_noticed() {
    let access = Access::Load { bytes: 4 };
    let judged = |cycles: &dyn Fn(f64) -> f64| {
        let rows: Vec<Row> = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
            .map(|wavefronts| {
                let name = format!("{wavefronts} words");
                Row { name, wavefronts, ideal: 1.0, cycles: cycles(wavefronts) }
            })
            .into();
        judge(access, &rows)
    };
    // An issue of two or four cycles, wavefronts of one or two, and some cycles between accesses.
    assert_eq!(judged(&|wavefronts| wavefronts.max(2.0)), [""; 0]);
    assert_eq!(judged(&|wavefronts| (2.0 * wavefronts).max(4.0)), [""; 0]);
    assert_eq!(judged(&|wavefronts| wavefronts.max(2.0) + 1.0), [""; 0]);
    // No conflicts, half of them, none in one of the patterns, and one too many.
    assert!(!judged(&|_| 2.0).is_empty());
    assert!(!judged(&|wavefronts| (wavefronts / 2.0).max(2.0)).is_empty());
    assert!(!judged(&|wavefronts| if wavefronts == 16.0 { 2.0 } else { wavefronts }).is_empty());
    assert!(!judged(&|wavefronts| if wavefronts == 16.0 { 32.0 } else { wavefronts }).is_empty());
    assert!(!judged(&|wavefronts| if wavefronts > 4.0 { 8.0 } else { wavefronts }).is_empty());
}
