//! The split of binary32 into terms, in the emulator and through every installed assembler. Each
//! term is compared with rounding on the host, and scales are compared with logarithms.

#[path = "common/clean.rs"]
mod clean;

use clean::{assemblers, assert_clean};
use half::{bf16, f16};
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule};
use pgemm_ir::{Element, Kernel, Launch};
use pgemm_kernels::{MatrixRepack, RepackKernel, RepackSpec, SplitSpec, Terms};

const SPECS: [SplitSpec; 3] = [
    SplitSpec { element: Element::Tf32, terms: Terms::X3 },
    SplitSpec { element: Element::Bf16, terms: Terms::X6 },
    SplitSpec { element: Element::F16, terms: Terms::X3 },
];

const UNTOUCHED: u8 = 0x5a;

/// A matrix of a launch. It has the lines of its result and the elements of each line. It also has
/// the number of elements before it and between elements, and whether the result's lines run across
/// its own lines. The matrices of a batch have equal parts of the lines.
#[derive(Clone, Copy, Debug)]
struct Case {
    lines: usize,
    k: usize,
    before: usize,
    step: usize,
    transposed: bool,
    batch: usize,
}

impl Case {
    /// The index in the source of element `i` of a line of the result.
    fn place(&self, line: usize, i: usize) -> usize {
        let (line, i, length) =
            if self.transposed { (i, line, self.lines) } else { (line, i, self.k) };
        self.before + (line * length + i) * self.step
    }

    fn matrix(&self, [source, destination, scales]: [u64; 3], pitch: u64) -> MatrixRepack {
        let of_one = self.lines / self.batch;
        let (lines, length, stride) =
            if self.transposed { (self.k, of_one, self.lines) } else { (of_one, self.k, self.k) };
        MatrixRepack {
            source: source + 4 * self.before as u64,
            lines: lines as u32,
            length: length as u32,
            line_stride: (stride * self.step) as u64,
            step: self.step as u64,
            destination,
            pitch,
            transposed: self.transposed,
            batch: self.batch as u32,
            batch_stride: self.place(of_one, 0).abs_diff(self.before) as u64,
            result_batch_stride: of_one as u64 * pitch,
            scales,
        }
    }
}

/// Numbers of all sizes with all bits, and some lines of numbers of one size. There are also zeros
/// of both signs, the largest numbers, subnormal numbers, infinities and NaN.
fn samples(case: &Case, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut values = vec![f32::NAN; case.place(case.lines - 1, case.k - 1) + 1];
    for line in 0..case.lines {
        for i in 0..case.k {
            // This is Knuth's MMIX generator.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bits = (state >> 32) as u32;
            let mantissa = bits & 0x807f_ffff;
            let exponent = match line % 7 {
                0 => 120 + (bits >> 23) % 16,
                1 => (bits >> 23) % 255,
                2 => 0,
                3 => 254,
                4 if i % 11 == 3 => 255,
                _ => 127,
            };
            let special = match (line % 7, i % 5) {
                (3, 0) => Some(f32::MAX),
                (5, 0) => Some(-0.0),
                (6, _) => Some(0.0),
                _ => None,
            };
            values[case.place(line, i)] =
                special.unwrap_or(f32::from_bits(mantissa | exponent << 23));
        }
    }
    values
}

/// The nearest number of a type. Infinity and NaN become the largest number.
fn nearest(value: f32, element: Element) -> f32 {
    let rounded = match element {
        Element::F16 => f16::from_f32(value).to_f32(),
        Element::Bf16 => bf16::from_f32(value).to_f32(),
        _ => {
            // Of two nearest neighbours, the even one is taken. This is computed by scaling in
            // binary64, which has more bits.
            let unit = f64::from(f32::from_bits((value.to_bits() >> 23 & 0xff).max(1) << 23));
            let unit = unit * 2f64.powi(-10);
            let rounded = (f64::from(value) / unit).round_ties_even() * unit;
            if rounded.abs() > f64::from(f32::MAX) { f32::INFINITY } else { rounded as f32 }
        }
    };
    let largest = if element == Element::Bf16 { 0x7f7f_0000 } else { 0x7f7f_e000 };
    match (value.is_finite(), rounded.is_finite()) {
        (true, false) => f32::from_bits(largest).copysign(value),
        (true, true) => rounded,
        _ => f32::NAN,
    }
}

/// The scale of a line.
fn scale(line: &[f32]) -> f32 {
    let largest = line.iter().fold(0u32, |all, value| all.max(value.to_bits() & 0x7fff_ffff));
    match f32::from_bits(largest) {
        finite if finite.is_finite() => {
            let exponent = f64::from(finite).log2().floor() - 13.0;
            2f64.powf(exponent.max(-126.0)) as f32
        }
        _ => 2f32.powi(115),
    }
}

/// Elements of a line of the result as binary32.
fn read(bytes: &[u8], element: Element) -> Vec<f32> {
    let size = element.bytes() as usize;
    let halves = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    bytes
        .chunks(size)
        .map(|bytes| match element {
            Element::F16 => f16::from_bits(halves(bytes)).to_f32(),
            Element::Bf16 => bf16::from_bits(halves(bytes)).to_f32(),
            _ => f32::from_le_bytes(bytes.try_into().unwrap()),
        })
        .collect()
}

fn run(kernel: &Kernel, launch: &Launch, memory: &mut Memory, schedule: Schedule) {
    let options = Options { schedule, ..Options::default() };
    let emulator = Emulator::new(kernel, launch, memory, options).unwrap();
    emulator.run().unwrap_or_else(|report| panic!("{}: {report}", kernel.name));
}

/// A matrix in the emulator's memory.
struct SplitMatrix {
    case: Case,
    values: Vec<f32>,
    matrix: MatrixRepack,
}

impl SplitMatrix {
    fn new(memory: &mut Memory, spec: SplitSpec, case: Case, seed: u64) -> SplitMatrix {
        let values = samples(&case, seed);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let source = memory.upload("source", &bytes, Permission::ReadOnly);
        let pitch = spec.pitch(case.k as u32) + 32;
        let result = vec![UNTOUCHED; pitch as usize * case.lines];
        let destination = memory.upload("result", &result, Permission::ReadWrite);
        let scales =
            memory.upload("scales", &vec![UNTOUCHED; case.lines * 4], Permission::ReadWrite);
        let matrix = case.matrix([source, destination, scales], pitch);
        SplitMatrix { case, values, matrix }
    }

    /// Compares every term of every element, and the zeros behind a line's end. All other bytes
    /// must not change.
    fn check(&self, memory: &Memory, spec: SplitSpec) {
        let SplitMatrix { case, values, matrix } = self;
        let pitch = matrix.pitch as usize;
        let found = memory.read_raw(matrix.destination, pitch * case.lines).unwrap();
        let scales = memory.read_raw(matrix.scales, case.lines * 4).unwrap();
        let (count, span) =
            (spec.terms.count() as usize, (Terms::SPAN_BYTES / spec.element.bytes()) as usize);
        for (index, found) in found.chunks(pitch).enumerate() {
            let line: Vec<f32> = (0..case.k).map(|i| values[case.place(index, i)]).collect();
            let scale = if spec.scaled() { scale(&line) } else { 1.0 };
            if spec.scaled() {
                let found = read(&scales[index * 4..][..4], Element::F32)[0];
                assert_eq!(found, scale, "{case:?}: line {index}");
            }
            let (found, behind) = found.split_at(spec.pitch(case.k as u32) as usize);
            assert!(behind.iter().all(|byte| *byte == UNTOUCHED), "{case:?}: line {index}");
            let found = read(found, spec.element);
            for i in 0..found.len() / count {
                let at = |term: usize| found[(i / span * count + term) * span + i % span];
                let Some(value) = line.get(i) else {
                    assert!((0..count).all(|term| at(term).to_bits() == 0), "{case:?}: {i}");
                    continue;
                };
                let mut rest = (f64::from(*value) / f64::from(scale)) as f32;
                if !rest.is_finite() {
                    assert!(at(count - 1).is_nan(), "{case:?}: line {index}, {i}: {value:e}");
                    continue;
                }
                for term in 0..count {
                    let expected = nearest(rest, spec.element);
                    assert_eq!(
                        at(term),
                        expected,
                        "{case:?}: line {index}, {i}: {value:e}, {term}"
                    );
                    rest -= expected;
                }
                assert!(spec.terms != Terms::X6 || rest == 0.0 || value.abs() < 1e-30, "{value:e}");
            }
        }
    }
}

fn check(spec: SplitSpec, cases: &[Case], schedule: Schedule) {
    let mut memory = Memory::new();
    let placed: Vec<_> = (1..)
        .zip(cases)
        .map(|(seed, case)| SplitMatrix::new(&mut memory, spec, *case, seed))
        .collect();
    let second = placed.get(1).map(|placed| &placed.matrix);
    let scales = spec.scaled().then_some(RepackSpec::Scales);
    for spec in scales.into_iter().chain([RepackSpec::Split(spec)]) {
        let kernel = RepackKernel::build(spec).unwrap();
        let launch = kernel.signature.bind(&placed[0].matrix, second).unwrap();
        run(&kernel.kernel, &launch, &mut memory, schedule.clone());
    }
    for placed in &placed {
        placed.check(&memory, spec);
    }
}

#[test]
fn lines_of_any_length_and_address_are_split_in_both_directions() {
    for spec in SPECS {
        for transposed in [false, true] {
            for (lines, k) in [(1, 1), (9, 200), (150, 7), (70, 129), (7, 1100)] {
                for (before, step) in [(0, 1), (3, 1), (1, 2)] {
                    let case = Case { lines, k, before, step, transposed, batch: 1 };
                    check(spec, &[case], Schedule::seeded(lines as u64));
                }
            }
        }
    }
}

#[test]
fn two_matrices_in_one_launch_are_split() {
    let copied = Case { lines: 37, k: 301, before: 1, step: 1, transposed: false, batch: 1 };
    let transposed = Case { lines: 65, k: 43, transposed: true, ..copied };
    let [of_three, of_five] =
        [Case { lines: 39, batch: 3, ..copied }, Case { batch: 5, ..transposed }];
    for spec in SPECS {
        check(spec, &[copied, transposed], Schedule::round_robin());
        check(spec, &[transposed, copied], Schedule::async_late(1));
        check(spec, &[of_three, of_five], Schedule::seeded(2));
        check(spec, &[of_five, copied], Schedule::seeded(3));
    }
}

#[test]
fn other_terms_are_refused() {
    let spec = SplitSpec { element: Element::E4m3, terms: Terms::X3 };
    let error = RepackKernel::build(RepackSpec::Split(spec)).unwrap_err().to_string();
    assert!(error.contains("tf32, bf16 or f16"), "{error}");
}

#[test]
fn assemblers_take_them_without_spills() {
    let specs = SPECS.map(RepackSpec::Split).into_iter().chain([RepackSpec::Scales]);
    assert_clean(&assemblers(), specs.map(|spec| RepackKernel::build(spec).unwrap().kernel));
}
