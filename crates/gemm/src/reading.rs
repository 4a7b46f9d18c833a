//! How kernels get the operands of a problem: as they lie, or laid out anew by a pass before, in which case the problem that
//! is planned is the one that the kernel sees. A column-major D makes it the transposed one. For tf32 there can be several ways.

use std::fmt;

use pgemm_ir::Element;
use pgemm_kernels::{MatrixRelayout, SplitSpec, TMA_ALIGN_BYTES};
use serde::Serialize;

use crate::batch::Batch;
use crate::choice::Choice;
use crate::config::Config;
use crate::gemm::Pointers;
use crate::heuristic::NOMINAL_MHZ;
use crate::problem::{Major, OperandLayout, Problem};

/// Lines of at least so many bytes begin at multiples of it once they are laid out anew: whole lines of the L2.
const LINE_BYTES: u64 = 128;

/// Where operands begin that are laid out anew.
const OPERAND_ALIGN: u64 = 1024;

/// More bytes than any device has.
const MOST_BYTES: u64 = 1 << 60;

/// What a pass takes beside its traffic, µs: a launch that begins while the one before it ends. A guess, not measured.
const PASS_MICROSECONDS: f64 = 3.0;

/// Bytes that it reads and writes in a µs, if not from and to the L2. A guess, not measured.
const PASS_BYTES: f64 = 3.5e6;

/// How a kernel gets an operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// As it lies.
    #[default]
    InPlace,
    /// Copied to lines that TMA reads, in the direction that they had.
    LaidOut,
    /// Copied to lines along k.
    Turned,
    /// Split into terms, from lines along k.
    Split,
    /// Split into terms, to lines along k.
    SplitTurned,
}

impl Reading {
    /// Whether the kernel's lines run across those of the operand.
    fn is_turned(self) -> bool {
        matches!(self, Reading::Turned | Reading::SplitTurned)
    }
}

/// How a kernel gets A and B. Of a column-major D these are the transposed problem's: B and A of the one that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Readings {
    /// A.
    pub a: Reading,
    /// B.
    pub b: Reading,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reading::InPlace => "in place",
            Reading::LaidOut => "laid out anew",
            Reading::Turned => "laid out anew along k",
            Reading::Split => "split into terms",
            Reading::SplitTurned => "split into terms along k",
        })
    }
}

/// Whether the addresses of operands are multiples of 16 bytes, as TMA wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Aligned {
    pub(crate) a: bool,
    pub(crate) b: bool,
}

impl Aligned {
    pub(crate) const ALL: Aligned = Aligned { a: true, b: true };

    /// Those of a problem that validates. An operand that is not read in place wherever it is counts as aligned.
    pub(crate) fn of(problem: &Problem, config: &Config, pointers: &Pointers) -> Aligned {
        let Problem { k, batch, .. } = problem.normalised();
        // They are split wherever they are.
        if terms(config).is_some() {
            return Aligned::ALL;
        }
        let [a, b] = config.operands();
        let one = |address: u64, operand, element, lines, stride| {
            address.is_multiple_of(TMA_ALIGN_BYTES)
                || problem.is_empty()
                || k == 0
                || ways_to_read(operand, element, lines, stride, true)[0] != Reading::InPlace
        };
        Aligned {
            a: one(pointers.a, problem.a, a, problem.a_lines(), batch.a),
            b: one(pointers.b, problem.b, b, problem.b_lines(), batch.b),
        }
    }

    fn transposed(self) -> Aligned {
        Aligned { a: self.b, b: self.a }
    }
}

/// A problem as its kernel sees it, but for the places of A and B, which the kernel's choice may swap.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// With a row-major D and operands that TMA reads.
    pub(crate) problem: Problem,
    /// Its types and knobs.
    pub(crate) config: Config,
    pub(crate) readings: Readings,
    /// What was asked for, with a row-major D.
    source: Problem,
    transposed: bool,
}

/// What was asked for, with a row-major D.
struct Asked {
    source: Problem,
    config: Config,
    transposed: bool,
    /// Nobody reads operands.
    skipped: bool,
}

impl Asked {
    fn new(problem: &Problem, config: &Config) -> Asked {
        let transposed = problem.d_major == Major::M;
        let (source, config) = match transposed {
            true => (problem.transposed(), config.transposed()),
            false => (*problem, config.clone()),
        };
        let source = source.normalised();
        // Of no depth there is nothing to split.
        let config = if source.k == 0 { config.without_terms() } else { config };
        let skipped = source.is_empty() || source.k == 0;
        Asked { source, config, transposed, skipped }
    }

    /// How operands with such addresses can be read.
    fn readings(&self, aligned: Aligned) -> Vec<Readings> {
        let Asked { source, config, skipped, .. } = self;
        let ([a, b], split) = (config.operands(), terms(config));
        let Batch { a: a_stride, b: b_stride, .. } = source.batch;
        let ways = |operand: OperandLayout, element, lines, stride, aligned| match split {
            _ if *skipped => vec![Reading::InPlace],
            None => ways_to_read(operand, element, lines, stride, aligned),
            Some(_) if operand.major == Major::K => vec![Reading::Split],
            Some(_) => vec![Reading::SplitTurned],
        };
        let of_a = ways(source.a, a, source.a_lines(), a_stride, aligned.a);
        let of_b = ways(source.b, b, source.b_lines(), b_stride, aligned.b);
        let both = |a| of_b.iter().map(move |&b| Readings { a, b });
        let all = of_a.iter().flat_map(|&a| both(a));
        all.filter(|readings| *skipped || self.is_legal(*readings)).collect()
    }

    /// Whether a kernel takes both so: of tf32 one operand at most goes through registers.
    fn is_legal(&self, Readings { a, b }: Readings) -> bool {
        let through_registers = |operand: OperandLayout, element, reading| {
            element == Element::Tf32 && operand.major != Major::K && reading == Reading::InPlace
        };
        let [of_a, of_b] = self.config.operands();
        let Problem { a: a_layout, b: b_layout, .. } = self.source;
        !(through_registers(a_layout, of_a, a) && through_registers(b_layout, of_b, b))
    }

    fn seen(&self, readings: Readings) -> Seen {
        let Asked { source, config, transposed, skipped } = self;
        let ([a, b], split) = (config.operands(), terms(config));
        let (a_lines, b_lines) = (source.a_lines(), source.b_lines());
        let Batch { a: a_stride, b: b_stride, .. } = source.batch;
        let see = |operand, element, lines, reading| match split {
            // Kernels read terms along k only, be there rows and columns or not.
            Some(spec) => OperandLayout::new(
                Major::K,
                spec.terms.stored_k(source.k as u64, spec.element) as usize,
            ),
            None => seen(operand, element, lines, reading, *skipped),
        };
        let problem = Problem {
            a: see(source.a, a, a_lines, readings.a),
            b: see(source.b, b, b_lines, readings.b),
            ..*source
        };
        // What is laid out anew lies one behind the other.
        let apart = |reading, stride, (lines, _): (usize, usize), operand: OperandLayout| {
            let in_place = reading == Reading::InPlace || stride == 0;
            if in_place { stride } else { lines.saturating_mul(operand.leading_dimension) }
        };
        let batch = Batch {
            a: apart(readings.a, a_stride, problem.a_lines(), problem.a),
            b: apart(readings.b, b_stride, problem.b_lines(), problem.b),
            ..source.batch
        };
        let problem = Problem { batch, ..problem };
        let (config, source, transposed) = (config.clone(), *source, *transposed);
        Seen { problem, config, readings, source, transposed }
    }
}

/// An operand that is laid out anew: the source's address is to be added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) matrix: MatrixRelayout,
    /// Its place behind whatever else is in the workspace.
    pub(crate) offset: u64,
    /// What it is split into, and the place of its lines' scales.
    pub(crate) split: Option<(SplitSpec, u64)>,
}

/// What a config's operands are split into.
fn terms(config: &Config) -> Option<SplitSpec> {
    config.precision().terms().map(|(element, terms)| SplitSpec { element, terms })
}

impl Seen {
    /// For a problem that validates, the first of [`ways`](Self::ways).
    pub(crate) fn new(problem: &Problem, config: &Config, aligned: Aligned) -> Seen {
        Seen::ways(problem, config, aligned).swap_remove(0)
    }

    /// All ways to read a problem that validates, one at least: with as little laid out anew as kernels allow first. They differ
    /// in the majors that the kernel sees.
    pub(crate) fn ways(problem: &Problem, config: &Config, aligned: Aligned) -> Vec<Seen> {
        let asked = Asked::new(problem, config);
        let aligned = if asked.transposed { aligned.transposed() } else { aligned };
        let mut ways: Vec<Seen> =
            asked.readings(aligned).into_iter().map(|readings| asked.seen(readings)).collect();
        ways.sort_by_key(|seen| seen.passes().1);
        ways
    }

    /// Whether a choice's kernel has the majors that it sees.
    pub(crate) fn has_majors_of(&self, choice: &Choice) -> bool {
        choice.has_majors(self.problem.a.major, self.problem.b.major)
    }

    /// A problem that validates as a plan for it reads it.
    pub(crate) fn planned(problem: &Problem, config: &Config, readings: Readings) -> Seen {
        Asked::new(problem, config).seen(readings)
    }

    /// The addresses as the kernel's problem has them.
    pub(crate) fn pointers(&self, pointers: &Pointers) -> Pointers {
        let Pointers { a, b, .. } = *pointers;
        if self.transposed { Pointers { a: b, b: a, ..*pointers } } else { *pointers }
    }

    /// The passes over A and B, and the bytes that both results take.
    pub(crate) fn passes(&self) -> ([Option<Pass>; 2], u64) {
        let Seen { problem, readings, source, .. } = self;
        let [a, b] = self.config.operands();
        let split = terms(&self.config);
        let mut bytes = 0;
        let mut pass = |reading: Reading,
                        from: OperandLayout,
                        lines,
                        stride,
                        to: OperandLayout,
                        element: Element| {
            if reading == Reading::InPlace {
                return None;
            }
            let (lines, length): (usize, usize) = lines;
            let matrix = MatrixRelayout {
                source: 0,
                // Extents that are planned fit.
                lines: lines as u32,
                length: length as u32,
                line_stride: from.leading_dimension as u64,
                step: from.step as u64,
                destination: 0,
                pitch: to.leading_dimension as u64
                    * u64::from(split.map_or(element, |spec| spec.element).bytes()),
                turned: reading.is_turned(),
                batch: source.batch.matrices(stride) as u32,
                batch_stride: stride as u64,
                result_batch_stride: 0,
            };
            let lines = u64::from(matrix.result().0);
            let result_batch_stride = lines * matrix.pitch;
            let matrix = MatrixRelayout { result_batch_stride, ..matrix };
            // More than there is memory for stays that.
            let all = |of_one: u64| {
                let all = of_one.saturating_mul(matrix.batch.into()).min(MOST_BYTES);
                all.next_multiple_of(OPERAND_ALIGN)
            };
            let offset = bytes;
            bytes += all(result_batch_stride);
            let split = split.map(|spec| (spec, bytes));
            if split.is_some_and(|(spec, _)| spec.scaled()) {
                bytes += all(lines * 4);
            }
            Some(Pass { matrix, offset, split })
        };
        let passes = [
            pass(readings.a, source.a, source.a_lines(), source.batch.a, problem.a, a),
            pass(readings.b, source.b, source.b_lines(), source.batch.b, problem.b, b),
        ];
        (passes, bytes)
    }

    /// Estimated cycles of the passes, which are one launch, or two where lines have scales.
    pub(crate) fn pass_cycles(&self) -> f64 {
        let bytes = self.passes().1;
        if bytes == 0 {
            return 0.0;
        }
        // Read and written; those that are split are less when they are read, and read twice where they are scaled.
        let Problem { m, n, k, batch, .. } = self.problem;
        let [of_a, of_b] = [batch.a, batch.b].map(|stride| batch.matrices(stride) as f64);
        let (launches, read) = match terms(&self.config) {
            None => (1.0, bytes as f64),
            Some(spec) => {
                let times = if spec.scaled() { 2.0 } else { 1.0 };
                (times, times * 4.0 * k as f64 * (of_a * m as f64 + of_b * n as f64))
            }
        };
        (launches * PASS_MICROSECONDS + (read + bytes as f64) / PASS_BYTES) * NOMINAL_MHZ
    }
}

/// How an operand can be read, in place first: one way, or for tf32 that does not lie along k two, as kernels take one such operand
/// through registers.
fn ways_to_read(
    operand: OperandLayout,
    element: Element,
    (lines, _): (usize, usize),
    batch_stride: usize,
    aligned: bool,
) -> Vec<Reading> {
    let bytes = u64::from(element.bytes());
    let stride = operand.leading_dimension as u64 * bytes;
    // There is nothing behind the only line.
    let lines_fit = lines == 1 || stride > 0 && stride.is_multiple_of(TMA_ALIGN_BYTES);
    let matrices_fit = (batch_stride as u64).wrapping_mul(bytes).is_multiple_of(TMA_ALIGN_BYTES);
    let in_place = aligned && operand.step == 1 && lines_fit && matrices_fit;
    let either_major =
        matches!(element, Element::F16 | Element::Bf16 | Element::F32 | Element::F64);
    match operand.major {
        Major::K => {}
        _ if either_major => {}
        _ if in_place && element == Element::Tf32 => {
            return vec![Reading::InPlace, Reading::Turned];
        }
        _ => return vec![Reading::Turned],
    }
    vec![if in_place { Reading::InPlace } else { Reading::LaidOut }]
}

/// The operand as the kernel sees it.
fn seen(
    operand: OperandLayout,
    element: Element,
    (lines, length): (usize, usize),
    reading: Reading,
    skipped: bool,
) -> OperandLayout {
    let unit = (TMA_ALIGN_BYTES / u64::from(element.bytes())) as usize;
    let (major, length) = match reading {
        // Nobody reads it, and so in the major that all kernels read.
        Reading::InPlace if skipped => {
            return OperandLayout::new(Major::K, lines.max(length).max(1).next_multiple_of(unit));
        }
        Reading::InPlace if lines == 1 => {
            return OperandLayout::new(operand.major, length.max(1).next_multiple_of(unit));
        }
        Reading::InPlace => return operand,
        Reading::Turned => (Major::K, lines),
        _ => (operand.major, length),
    };
    let line = (LINE_BYTES / u64::from(element.bytes())) as usize;
    let unit = if length < line { unit } else { line };
    OperandLayout::new(major, length.next_multiple_of(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(problem: &Problem, element: Element) -> Seen {
        Seen::new(problem, &Config::new(element), Aligned::ALL)
    }

    #[test]
    fn what_tma_reads_is_read_in_place() {
        for (a, b) in [(Major::K, Major::K), (Major::M, Major::N)] {
            for element in [Element::Bf16, Element::F64] {
                let problem = Problem::new(64, 128, 256, a, b);
                let seen = seen(&problem, element);
                assert_eq!((seen.readings, seen.problem), (Readings::default(), problem));
                assert_eq!(seen.pass_cycles(), 0.0);
            }
        }
        // One line has nothing behind it.
        let row = Problem::new(1, 128, 251, Major::K, Major::K).with_b_leading_dimension(256);
        let seen = seen(&row, Element::Bf16);
        assert_eq!((seen.readings, seen.problem.a.leading_dimension), (Readings::default(), 256));
    }

    #[test]
    fn what_it_does_not_read_is_laid_out_and_what_wgmma_does_not_is_turned() {
        use Reading::{InPlace, LaidOut, Turned};
        let square = |a, b| Problem::new(64, 64, 64, a, b);
        let (k, m, n) = (Major::K, Major::M, Major::N);
        for (problem, element, a, b) in [
            (square(k, n).with_a_leading_dimension(65), Element::Bf16, LaidOut, InPlace),
            (square(m, n).with_b_leading_dimension(0), Element::F16, InPlace, LaidOut),
            (square(k, k).with_a_step(2), Element::Tf32, LaidOut, InPlace),
            (square(k, n), Element::E4m3, InPlace, Turned),
            (square(m, k), Element::S8, Turned, InPlace),
            (Problem::new(63, 65, 63, m, n), Element::F64, LaidOut, LaidOut),
        ] {
            let seen = seen(&problem, element);
            assert_eq!((seen.readings.a, seen.readings.b), (a, b), "{problem:?}");
            let (passes, bytes) = seen.passes();
            assert_eq!(passes.map(|pass| pass.is_some()), [a != InPlace, b != InPlace]);
            assert!(bytes > 0 && seen.pass_cycles() > 0.0);
            // Seen once more, it is in place.
            let again = Seen::new(&seen.problem, &seen.config, Aligned::ALL);
            assert_eq!((again.readings, again.problem), (Readings::default(), seen.problem));
        }
        let shifted = Aligned { a: false, b: true };
        let seen = Seen::new(&square(k, n), &Config::new(Element::Bf16), shifted);
        assert_eq!((seen.readings.a, seen.readings.b), (LaidOut, InPlace));
    }

    /// Kernels take one operand through registers; the other one, or both, are turned.
    #[test]
    fn tf32_across_k_can_be_read_in_place_or_turned() {
        use Reading::{InPlace, LaidOut, Turned};
        let (k, m, n) = (Major::K, Major::M, Major::N);
        let config = Config::new(Element::Tf32);
        let ways = |problem: &Problem, aligned| -> Vec<_> {
            let ways = Seen::ways(problem, &config, aligned);
            for seen in &ways {
                let again = Seen::planned(problem, &config, seen.readings);
                assert_eq!((again.problem, again.passes().1), (seen.problem, seen.passes().1));
            }
            ways.iter().map(|seen| (seen.readings.a, seen.readings.b)).collect()
        };
        let wide = |a, b| Problem::new(64, 128, 32, a, b);
        let all = Aligned::ALL;
        assert_eq!(ways(&wide(k, k), all), [(InPlace, InPlace)]);
        assert_eq!(ways(&wide(m, k), all), [(InPlace, InPlace), (Turned, InPlace)]);
        assert_eq!(ways(&wide(k, n), all), [(InPlace, InPlace), (InPlace, Turned)]);
        let both = [(Turned, InPlace), (InPlace, Turned), (Turned, Turned)];
        assert_eq!(ways(&wide(m, n), all), both);
        let tall = Problem::new(128, 64, 32, m, n);
        assert_eq!(ways(&tall, all)[0], (InPlace, Turned));
        // What TMA does not read is turned at once.
        assert_eq!(ways(&wide(m, n), Aligned { a: false, b: true })[0], (Turned, InPlace));
        let odd = wide(k, n).with_a_step(2).with_b_leading_dimension(131);
        assert_eq!(ways(&odd, all), [(LaidOut, Turned)]);
        assert_eq!(ways(&Problem::new(64, 128, 0, m, n), all), [(InPlace, InPlace)]);
        let terms = Config::new(Element::F32).with_precision("tf32x3".parse().unwrap());
        assert_eq!(Seen::ways(&wide(m, n), &terms, all).len(), 1);
    }

    #[test]
    fn lines_that_are_laid_out_anew_are_whole_lines_of_l2() {
        for element in [Element::Bf16, Element::E4m3, Element::F64] {
            let unit = LINE_BYTES / u64::from(element.bytes());
            for (length, expected) in
                [(4097, 4097_u64.next_multiple_of(unit)), (unit as usize + 1, 2 * unit)]
            {
                let problem = Problem::new(70, 90, length, Major::K, Major::K);
                let (passes, _) = seen(&problem.with_a_step(2).with_b_step(2), element).passes();
                for pass in passes.map(Option::unwrap) {
                    assert_eq!(pass.matrix.pitch, expected * u64::from(element.bytes()));
                    assert!(pass.offset.is_multiple_of(LINE_BYTES));
                }
            }
            // One that is shorter than that ends with its last 16 bytes.
            let short = Problem::new(70, 90, 5, Major::K, Major::K).with_a_step(2);
            let [pass, _] = seen(&short, element).passes().0;
            let bytes = 5 * u64::from(element.bytes());
            assert_eq!(pass.unwrap().matrix.pitch, bytes.next_multiple_of(TMA_ALIGN_BYTES));
        }
    }

    #[test]
    fn types_and_addresses_change_places_where_the_result_is_column_major() {
        let config = Config::new(Element::E4m3).with_b_dtype(Element::E5m2);
        let problem = Problem::new(64, 32, 128, Major::M, Major::K).with_d_major(Major::M);
        let seen = Seen::new(&problem, &config, Aligned { a: true, b: false });
        assert_eq!(seen.config.operands(), [Element::E5m2, Element::E4m3]);
        assert_eq!((seen.readings.a, seen.readings.b), (Reading::LaidOut, Reading::Turned));
        let pointers = seen.pointers(&Pointers::new(1, 2, 3, 4));
        assert_eq!(pointers, Pointers::new(2, 1, 3, 4));
        let (passes, bytes) = seen.passes();
        let [a, b] = passes.map(Option::unwrap);
        assert_eq!((a.matrix.result(), b.matrix.result()), ((32, 128), (64, 128)));
        assert_eq!((a.offset, b.offset, bytes), (0, 4096, 12_288));
    }
}
