//! How tensor cores add up: probing inputs that show the rules, and random sums that are compared
//! with the model of `pgemm_emulator::tensor_core` bit for bit. Without a Hopper device the test
//! says `SKIPPED`; with PGEMM_REQUIRE_GPU=1 that is a failure. `PGEMM_TEST_OUT` names a file that
//! gets a line of JSON for every probing input, and for random sums that differ from the model.

mod draw;
mod fit;
mod kinds;
mod probes;
mod record;
mod run;

use std::fs::File;
use std::io::{BufWriter, Write};

use pgemm_kernels::{SumInstruction, SumProbe};

use self::draw::{Draw, Drawn};
use self::kinds::{Kind, kinds};
use self::record::Record;
use self::run::{Runner, on_device, on_emulator};
use crate::device::device;

/// Random sums of a distribution that are written down, and as many that differ.
const SAMPLE: usize = 60;

/// What a test has found.
struct Findings {
    /// The file of `PGEMM_TEST_OUT`.
    lines: Option<BufWriter<File>>,
    /// Sums of the random check, and those that differ from the model.
    sums: usize,
    wrong: usize,
}

impl Findings {
    fn new() -> Findings {
        let create = |path| BufWriter::new(File::create(path).unwrap());
        let lines = std::env::var_os("PGEMM_TEST_OUT").map(create);
        Findings { lines, sums: 0, wrong: 0 }
    }

    fn write(&mut self, name: &str, record: &Record, found: u64, expected: u64) {
        if let Some(lines) = &mut self.lines {
            writeln!(lines, "{}", record.json(name, found, expected)).unwrap();
        }
    }
}

#[test]
fn tensor_cores_sum_as_the_model() {
    let Some(device) = device("hw_sums") else { return };
    let mut findings = Findings::new();
    let runner = on_device(&device);
    for kind in kinds() {
        show_probes(&mut findings, &kind, &runner);
        // Tiles of each distribution, so that each type has more than a million sums.
        let wide = Variant { n: kind.widest(), a_in_registers: false, steps: 1, accumulate: true };
        let narrow = Variant { n: kind.narrowest(), ..wide };
        let tiles = |n: u32, sums: u32| sums.div_ceil(SumProbe::M * n);
        let mut variants = vec![(wide, tiles(wide.n, 200_000))];
        let few = tiles(narrow.n, 32_000);
        variants.push((Variant { steps: 4, ..narrow }, few));
        if kind.is_wgmma() {
            variants.push((Variant { a_in_registers: true, ..narrow }, few));
            variants.push((Variant { a_in_registers: true, steps: 4, ..narrow }, few));
            variants.push((Variant { accumulate: false, ..narrow }, few));
        }
        let before = (findings.sums, findings.wrong);
        for (variant, tiles) in variants {
            compare(&mut findings, &kind, variant, tiles, &runner);
        }
        let (sums, wrong) = (findings.sums - before.0, findings.wrong - before.1);
        println!("  {sums} random sums, {wrong} differ");
    }
    assert_eq!(findings.wrong, 0, "sums of {} differ from the model", findings.sums);
}

/// The same program on the emulator, which has the model's sums.
#[test]
fn the_emulator_sums_as_the_model() {
    let mut findings = Findings { lines: None, sums: 0, wrong: 0 };
    let runner = on_emulator();
    for kind in kinds() {
        let odd = show_probes(&mut findings, &kind, &runner);
        assert_eq!(odd, 0, "{kind}");
        let n = kind.narrowest();
        let variant = Variant { n, a_in_registers: false, steps: 1, accumulate: true };
        compare(&mut findings, &kind, variant, 1, &runner);
    }
    assert_eq!(findings.wrong, 0);
}

/// If the hardware had other rules, a probe would show it.
#[test]
fn probes_tell_rules_apart() {
    for kind in kinds() {
        let Some(rules) = kind.rules else { continue };
        let records = probes::all(&kind);
        for other in fit::neighbours(&rules) {
            if other == rules {
                continue;
            }
            let differs = |Record { a, b, c, .. }: &Record| {
                kind.expected(a, b, *c) != kind.expected_by(&other, a, b, *c)
            };
            assert!(records.iter().any(differs), "{kind}: {other:?}");
        }
    }
}

/// Which kernel a check runs.
#[derive(Clone, Copy)]
struct Variant {
    n: u32,
    a_in_registers: bool,
    steps: u32,
    accumulate: bool,
}

impl Variant {
    fn probe(&self, kind: &Kind) -> SumProbe {
        SumProbe::build(self.instruction(kind), self.steps).unwrap()
    }

    fn instruction(&self, kind: &Kind) -> SumInstruction {
        kind.instruction(self.n, self.a_in_registers)
    }

    fn name(&self, kind: &Kind) -> String {
        let zero = if self.accumulate { "" } else { " without C" };
        format!("{} x{}{zero}", self.instruction(kind), self.steps)
    }
}

/// Runs the probing inputs of a kind, prints what they show, and returns how many differ from the
/// model.
fn show_probes(findings: &mut Findings, kind: &Kind, runner: &Runner<'_>) -> usize {
    let variant =
        Variant { n: kind.narrowest(), a_in_registers: false, steps: 1, accumulate: true };
    let records = probes::all(kind);
    let found = record::run(&variant.probe(kind), &records, runner);
    let mut odd = Vec::new();
    for (record, &found) in records.iter().zip(&found) {
        let expected = kind.expected(&record.a, &record.b, record.c);
        findings.write(&variant.name(kind), record, found, expected);
        if !kind.same(found, expected) {
            odd.push(format!("{} {found:x}≠{expected:x}", record.label));
        }
    }
    println!("{kind}: {} probes, {} differ from the model", records.len(), odd.len());
    for line in probes::summary(kind, &records, &found) {
        println!("  {line}");
    }
    if !odd.is_empty() {
        let shown: String = odd.join(", ").chars().take(500).collect();
        println!("  odd: {shown}");
    }
    odd.len()
}

/// Compares random sums of all distributions with the model.
fn compare(
    findings: &mut Findings,
    kind: &Kind,
    variant: Variant,
    tiles: u32,
    runner: &Runner<'_>,
) {
    let Variant { a_in_registers, steps, accumulate, .. } = variant;
    let plain = steps == 1 && accumulate && !a_in_registers;
    let probe = variant.probe(kind);
    let mut counts = String::new();
    for draw in Draw::ALL {
        let drawn = Drawn::new(kind, &probe, draw, tiles);
        let found = runner(&probe, drawn.operands(), accumulate);
        let wrong = drawn.wrong(kind, &found, accumulate);
        findings.sums += found.len();
        findings.wrong += wrong.len();

        let name = format!("{} {}", variant.name(kind), draw.name());
        let sample = if plain { SAMPLE } else { 0 };
        let sampled = (0..found.len()).step_by(found.len() / SAMPLE).take(sample);
        for at in sampled.chain(wrong.iter().map(|&(at, _)| at).take(SAMPLE)) {
            let record = drawn.record(at, accumulate);
            let expected = kind.expected(&record.a, &record.b, record.c);
            findings.write(&name, &record, found[at], expected);
        }
        let Some(&(at, expected)) = wrong.first() else { continue };
        if counts.is_empty() {
            println!("  {name}: {}", drawn.record(at, accumulate).line(found[at], expected));
        }
        counts.push_str(&format!(" {} {} of {}", draw.name(), wrong.len(), found.len()));
        if plain {
            for line in fit::closest(kind, &drawn, &found) {
                println!("    {}: {line}", draw.name());
            }
        }
    }
    if !counts.is_empty() {
        println!("  {} differ:{counts}", variant.name(kind));
    }
}
