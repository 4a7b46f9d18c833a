//! The probe of tensor cores' sums, in the emulator and through every installed assembler.

#[path = "common/clean.rs"]
mod clean;

use clean::{assemblers, assert_clean};
use pgemm_emulator::tensor_core::{self, SumRules};
use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_ir::{Element, Type, WarpMma};
use pgemm_kernels::{ProbeError, SumInstruction, SumProbe, SumWork};

fn wgmma(a: Element, b: Element, accumulator: Type) -> SumInstruction {
    SumInstruction::Wgmma { a, b, accumulator, n: 64, a_in_registers: false }
}

/// Instructions of every size of element, source of A, and type of sum.
fn instructions() -> Vec<SumInstruction> {
    let (a, b) = (Element::E4m3, Element::E5m2);
    vec![
        wgmma(Element::F16, Element::F16, Type::F32),
        wgmma(Element::F16, Element::F16, Type::B32),
        wgmma(Element::Tf32, Element::Tf32, Type::F32),
        wgmma(a, b, Type::F32),
        SumInstruction::Wgmma { a, b, accumulator: Type::F32, n: 256, a_in_registers: true },
        SumInstruction::Warp(WarpMma::of_halves(Element::Bf16)),
        SumInstruction::Warp(WarpMma::f64(4)),
        SumInstruction::Warp(WarpMma::f64(16)),
    ]
}

/// A pseudo-random word.
fn noise(seed: u64, index: usize) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
    for _ in 0..3 {
        // This is Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^= state >> 29;
    }
    state
}

/// A number from −2 to 2 with many bits, as an element or a sum.
fn element(element: Element, word: u64) -> u64 {
    let value = (word >> 20) as f64 / (1u64 << 42) as f64 - 2.0;
    match element {
        Element::F64 => value.to_bits(),
        Element::F16 => half::f16::from_f64(value).to_bits().into(),
        Element::Bf16 => half::bf16::from_f64(value).to_bits().into(),
        Element::F32 | Element::Tf32 => (value as f32).to_bits().into(),
        // Any exponent from 1 to 9 of 15, or from 2 to 19 of 31.
        _ => (word >> 30 & 0x80) | ((word >> 20) % 0x48 + 8),
    }
}

/// D of two tiles. `operands` are the elements of A, B and C.
fn run(probe: &SumProbe, operands: [&[u64]; 3], accumulate: bool) -> Vec<u64> {
    let mut memory = Memory::new();
    let [a, b, c] = operands;
    let bytes = [probe.bytes_of_a(a), probe.bytes_of_b(b), probe.bytes_of_c(c)];
    let size = bytes[2].len();
    let mut upload = |name: &str, bytes: &[u8], permission| memory.upload(name, bytes, permission);
    let operands = [
        upload("a", &bytes[0], Permission::ReadOnly),
        upload("b", &bytes[1], Permission::ReadOnly),
        upload("c", &bytes[2], Permission::ReadOnly),
        upload("d", &vec![0xff; size], Permission::ReadWrite),
    ];
    let launch = probe.bind(&SumWork { operands, accumulate, tiles: 2 });
    let options = Options { tensor_core_sums: true, ..Options::default() };
    let emulator = Emulator::new(&probe.kernel, &launch, &mut memory, options).unwrap();
    emulator.run().unwrap_or_else(|report| panic!("{}: {report}", probe.instruction));
    probe.elements_of_d(memory.read_raw(operands[3], size).unwrap())
}

#[test]
fn sums_are_those_of_the_model() {
    for instruction in instructions() {
        let [a_element, b_element] = instruction.elements();
        let accumulator = instruction.accumulator();
        let c_element = match accumulator {
            Type::F64 => Element::F64,
            _ => Element::F32,
        };
        for (steps, accumulate) in [(1, true), (3, true), (2, false)] {
            let probe = SumProbe::build(instruction, steps).unwrap();
            let (depth, n) = (probe.depth() as usize, instruction.n() as usize);
            let m = SumProbe::M as usize;
            let fill = |seed, of, count: usize| -> Vec<u64> {
                (0..2 * count).map(|index| element(of, noise(seed, index))).collect()
            };
            let a = fill(1, a_element, m * depth);
            let b = fill(2, b_element, n * depth);
            let mut c = fill(3, c_element, m * n);
            if accumulator == Type::B32 {
                let rounded = |bits| half::f16::from_f32(f32::from_bits(bits as u32)).to_f32();
                c.iter_mut().for_each(|bits| *bits = rounded(*bits).to_bits().into());
            }
            let found = run(&probe, [&a, &b, &c], accumulate);
            let adds_c = accumulate || matches!(instruction, SumInstruction::Warp(_));
            for (at, (&found, &c)) in found.iter().zip(&c).enumerate() {
                let (tile, row, column) = (at / (m * n), at / n % m, at % n);
                let a = &a[(tile * m + row) * depth..][..depth];
                let b = &b[(tile * n + column) * depth..][..depth];
                let c = if adds_c { c } else { 0 };
                let expected = expected(instruction, a, b, c);
                let place = format!("{instruction} x{steps}, {tile}, {row}, {column}");
                assert_eq!(found, expected, "{place}");
            }
        }
    }
}

fn expected(instruction: SumInstruction, a: &[u64], b: &[u64], c: u64) -> u64 {
    let [a_element, b_element] = instruction.elements();
    if a_element == Element::F64 {
        let [a, b] = [a, b]
            .map(|bits| -> Vec<f64> { bits.iter().map(|&bits| f64::from_bits(bits)).collect() });
        return tensor_core::dot_f64(&a, &b, f64::from_bits(c)).to_bits();
    }
    let read = |element: Element, bits: &[u64]| {
        let size = element.bytes() as usize;
        let bytes: Vec<u8> =
            bits.iter().flat_map(|bits| bits.to_le_bytes()[..size].to_vec()).collect();
        tensor_core::read(element, &bytes)
    };
    let rules = SumRules::of(a_element, b_element, instruction.accumulator()).unwrap();
    let c = f32::from_bits(c as u32);
    rules.dot(&read(a_element, a), &read(b_element, b), c).to_bits().into()
}

#[test]
fn instructions_that_do_not_exist_are_refused() {
    let mma = WarpMma { operand: Element::F32, ..WarpMma::f64(4) };
    let error = SumProbe::build(SumInstruction::Warp(mma), 1).unwrap_err();
    assert_eq!(error, ProbeError::NoTensorCores(Element::F32));
    let instruction = wgmma(Element::F16, Element::Bf16, Type::F32);
    let error = SumProbe::build(instruction, 1).unwrap_err();
    assert!(matches!(error, ProbeError::Passes(_)), "{error}");
}

#[test]
fn assemblers_take_it_without_spills() {
    let probes = instructions().into_iter().map(|instruction| SumProbe::build(instruction, 2));
    assert_clean(&assemblers(), probes.map(|probe| probe.unwrap().kernel));
}
