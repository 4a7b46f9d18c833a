//! How kernels access the operands of a problem: in place, or as a copy that a repack kernel makes
//! before.
//!
//! TMA reads lines that begin at multiples of 16 bytes, and wgmma reads tf32 and 8-bit operands
//! along k only. An operand that the GEMM kernel cannot read in place is first repacked into a
//! supported layout, or split into the terms of its precision. The planner then plans the problem
//! as the kernel sees it: a [`PlannedProblem`]. A problem with a column-major D is planned as its
//! transpose. For tf32 there can be several ways to access the operands.

use std::fmt;

use pgemm_ir::Element;
use pgemm_kernels::{
    CopySpec, Majors, MatrixRepack, Product, RepackSpec, SplitSpec, TMA_ALIGN_BYTES,
};
use serde::Serialize;

use crate::batch::Batch;
use crate::choice::Choice;
use crate::config::Config;
use crate::device::NOMINAL_MHZ;
use crate::layout::{Major, OperandLayout};
use crate::problem::Problem;

/// Bytes of a line of the L2 cache. Repacked lines of at least this length begin at multiples of
/// it.
const LINE_BYTES: u64 = 128;

/// Alignment of repacked operands, in bytes.
const OPERAND_ALIGN: u64 = 1024;

/// More bytes than any device has. Larger sizes are cut to this.
const MOST_BYTES: u64 = 1 << 60;

/// Time of a repack launch apart from its traffic, in µs. The launch begins while the previous one
/// ends. The value is a guess and was not measured.
const REPACK_MICROSECONDS: f64 = 3.0;

/// Bytes that a repack kernel reads and writes per µs if L2 does not hold them. The value is a
/// guess and was not measured.
const REPACK_BYTES_PER_MICROSECOND: f64 = 3.5e6;

/// How a kernel accesses an operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperandAccess {
    /// The kernel reads the operand in place.
    #[default]
    InPlace,
    /// The operand is copied to lines that TMA can read. The major stays.
    #[serde(rename = "laid_out")]
    Repacked,
    /// The operand is copied to lines along k.
    #[serde(rename = "turned")]
    RepackedAlongK,
    /// The operand, which lies along k, is split into terms.
    Split,
    /// The operand is split into terms along k. It has another major itself.
    #[serde(rename = "split_turned")]
    SplitAlongK,
}

impl OperandAccess {
    /// Whether the kernel's lines run across those of the operand.
    fn changes_major(self) -> bool {
        matches!(self, OperandAccess::RepackedAlongK | OperandAccess::SplitAlongK)
    }
}

impl fmt::Display for OperandAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperandAccess::InPlace => "in place",
            OperandAccess::Repacked => "repacked",
            OperandAccess::RepackedAlongK => "repacked along k",
            OperandAccess::Split => "split into terms",
            OperandAccess::SplitAlongK => "split into terms along k",
        })
    }
}

/// How a kernel accesses A and B. If D is column-major, A and B are those of the transposed
/// problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct OperandAccesses {
    /// A.
    pub a: OperandAccess,
    /// B.
    pub b: OperandAccess,
}

impl OperandAccesses {
    /// Whether both operands are read in place.
    pub fn are_in_place(&self) -> bool {
        *self == OperandAccesses::default()
    }
}

/// Whether the addresses of A and B are multiples of 16 bytes, as TMA requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandAlignment {
    /// Whether A is aligned, or is not read in place at any address.
    pub a: bool,
    /// Whether B is aligned, or is not read in place at any address.
    pub b: bool,
}

impl OperandAlignment {
    /// Both operands are aligned.
    pub const ALIGNED: OperandAlignment = OperandAlignment { a: true, b: true };

    /// The alignment of the operands of a valid problem at the addresses `[a, b]`. An operand that
    /// is not read in place at any address counts as aligned.
    pub fn of(problem: &Problem, config: &Config, addresses: [u64; 2]) -> OperandAlignment {
        let Problem { k, batch, .. } = problem.normalised();
        // Operands are split into terms at every address.
        if terms(config).is_some() {
            return OperandAlignment::ALIGNED;
        }
        let [a, b] = config.operands();
        let one = |address: u64, operand, element, lines, stride| {
            address.is_multiple_of(TMA_ALIGN_BYTES)
                || problem.is_empty()
                || k == 0
                || possible_accesses(operand, element, lines, stride, true)[0]
                    != OperandAccess::InPlace
        };
        OperandAlignment {
            a: one(addresses[0], problem.a, a, problem.a_lines(), batch.a),
            b: one(addresses[1], problem.b, b, problem.b_lines(), batch.b),
        }
    }

    fn transposed(self) -> OperandAlignment {
        OperandAlignment { a: self.b, b: self.a }
    }
}

/// A problem as its kernel sees it, with a row-major D and operands that the kernel can read. A
/// choice whose kernel computes Dᵀ swaps A and B once more.
#[derive(Clone, Debug)]
pub struct PlannedProblem {
    /// Extents, layouts and scalars.
    pub problem: Problem,
    /// Types and knobs.
    pub config: Config,
    /// How the kernel accesses A and B.
    pub accesses: OperandAccesses,
    /// The requested problem, with a row-major D.
    source: Problem,
    /// Whether D was requested column-major, so that A and B have changed places.
    transposed: bool,
}

/// A requested problem, with a row-major D.
struct Request {
    source: Problem,
    config: Config,
    transposed: bool,
    /// No kernel reads the operands, since the problem is empty or k is 0.
    unread: bool,
}

impl Request {
    fn new(problem: &Problem, config: &Config) -> Request {
        let transposed = problem.d_major == Major::M;
        let (source, config) = match transposed {
            true => (problem.transposed(), config.transposed()),
            false => (*problem, config.clone()),
        };
        let source = source.normalised();
        // With k = 0 there is nothing to split.
        let config = if source.k == 0 { config.without_terms() } else { config };
        let unread = source.is_empty() || source.k == 0;
        Request { source, config, transposed, unread }
    }

    /// The ways in which kernels can access operands of this alignment.
    fn accesses(&self, alignment: OperandAlignment) -> Vec<OperandAccesses> {
        let Request { source, config, unread, .. } = self;
        let ([a, b], split) = (config.operands(), terms(config));
        let Batch { a: a_stride, b: b_stride, .. } = source.batch;
        let possible = |operand: OperandLayout, element, lines, stride, aligned| match split {
            _ if *unread => vec![OperandAccess::InPlace],
            None => possible_accesses(operand, element, lines, stride, aligned),
            Some(_) if operand.major == Major::K => vec![OperandAccess::Split],
            Some(_) => vec![OperandAccess::SplitAlongK],
        };
        let of_a = possible(source.a, a, source.a_lines(), a_stride, alignment.a);
        let of_b = possible(source.b, b, source.b_lines(), b_stride, alignment.b);
        let both = |a| of_b.iter().map(move |&b| OperandAccesses { a, b });
        let all = of_a.iter().flat_map(|&a| both(a));
        all.filter(|accesses| *unread || self.is_legal(*accesses)).collect()
    }

    /// Whether a kernel can access both operands this way. At most one tf32 operand can go through
    /// registers.
    fn is_legal(&self, OperandAccesses { a, b }: OperandAccesses) -> bool {
        let through_registers = |operand: OperandLayout, element, access| {
            majors_of(element) == Majors::KOrAFromRegisters
                && operand.major != Major::K
                && access == OperandAccess::InPlace
        };
        let [of_a, of_b] = self.config.operands();
        let Problem { a: a_layout, b: b_layout, .. } = self.source;
        !(through_registers(a_layout, of_a, a) && through_registers(b_layout, of_b, b))
    }

    /// The problem as seen by a kernel with these operand accesses.
    fn planned(&self, accesses: OperandAccesses) -> PlannedProblem {
        let Request { source, config, transposed, unread } = self;
        let ([a, b], split) = (config.operands(), terms(config));
        let (a_lines, b_lines) = (source.a_lines(), source.b_lines());
        let Batch { a: a_stride, b: b_stride, .. } = source.batch;
        let layout = |operand, element, lines, access| match split {
            // Kernels read terms along k only, even in empty problems.
            Some(spec) => OperandLayout::new(
                Major::K,
                spec.terms.stored_k(source.k as u64, spec.element) as usize,
            ),
            None => planned_layout(operand, element, lines, access, *unread),
        };
        let problem = Problem {
            a: layout(source.a, a, a_lines, accesses.a),
            b: layout(source.b, b, b_lines, accesses.b),
            ..*source
        };
        // Repacked matrices lie one after another.
        let stride = |access, stride, (lines, _): (usize, usize), operand: OperandLayout| {
            let in_place = access == OperandAccess::InPlace || stride == 0;
            if in_place { stride } else { lines.saturating_mul(operand.leading_dimension) }
        };
        let batch = Batch {
            a: stride(accesses.a, a_stride, problem.a_lines(), problem.a),
            b: stride(accesses.b, b_stride, problem.b_lines(), problem.b),
            ..source.batch
        };
        let problem = Problem { batch, ..problem };
        let (config, source, transposed) = (config.clone(), *source, *transposed);
        PlannedProblem { problem, config, accesses, source, transposed }
    }
}

/// The copy of one operand that a repack kernel makes. The address of the source is to be added.
#[derive(Clone, Copy, Debug)]
pub struct Repack {
    /// Extents and strides of the source and of the copy.
    pub matrix: MatrixRepack,
    /// Where the copy begins in the memory of the repacked operands, in bytes.
    pub offset: u64,
    /// The terms that the copy consists of, or `None` if elements stay as they are.
    pub terms: Option<TermSplit>,
}

/// How a repack kernel splits an operand into terms.
#[derive(Clone, Copy, Debug)]
pub struct TermSplit {
    /// Element type and number of the terms.
    pub spec: SplitSpec,
    /// Where the scales of the lines begin in the memory of the repacked operands, in bytes.
    pub scales_offset: u64,
}

/// The copies that repack kernels make of the operands of a problem.
#[derive(Clone, Copy, Debug)]
pub struct Repacks {
    /// Of A and B; `None` for an operand that is read in place.
    pub operands: [Option<Repack>; 2],
    /// Bytes of device memory that the copies take.
    pub bytes: u64,
}

impl Repack {
    /// The matrix that a repack kernel reads at `source`, with its copy in the memory of the
    /// repacked operands, which begins at `base`.
    pub fn at(&self, source: u64, base: u64) -> MatrixRepack {
        MatrixRepack {
            source,
            destination: base + self.offset,
            scales: self.terms.map_or(0, |terms| base + terms.scales_offset),
            ..self.matrix
        }
    }
}

impl Repacks {
    /// The repack kernels for operands with elements of `element_bytes` bytes, in the order of
    /// their launches.
    pub fn kernels(&self, element_bytes: u32) -> Vec<RepackSpec> {
        let repacks = || self.operands.iter().flatten();
        let Some(first) = repacks().next() else { return vec![] };
        let Some(TermSplit { spec, .. }) = first.terms else {
            let matrices: Vec<_> = repacks().map(|repack| repack.matrix).collect();
            return vec![RepackSpec::Copy(CopySpec::of(element_bytes, &matrices))];
        };
        let scales = spec.scaled().then_some(RepackSpec::Scales);
        scales.into_iter().chain([RepackSpec::Split(spec)]).collect()
    }

    /// Whether no operand is repacked.
    pub fn is_empty(&self) -> bool {
        self.operands.iter().flatten().next().is_none()
    }
}

/// The terms that the operands of a config are split into.
fn terms(config: &Config) -> Option<SplitSpec> {
    config.precision().terms().map(|(element, terms)| SplitSpec { element, terms })
}

impl PlannedProblem {
    /// The first of the [`candidates`](Self::candidates) of a valid problem.
    pub fn new(problem: &Problem, config: &Config, alignment: OperandAlignment) -> PlannedProblem {
        PlannedProblem::candidates(problem, config, alignment).swap_remove(0)
    }

    /// The valid problem with each possible way to access its operands; at least one. Candidates
    /// that repack fewer bytes come first. They differ in the majors that the kernel sees.
    pub fn candidates(
        problem: &Problem,
        config: &Config,
        alignment: OperandAlignment,
    ) -> Vec<PlannedProblem> {
        let request = Request::new(problem, config);
        let alignment = if request.transposed { alignment.transposed() } else { alignment };
        let accesses = request.accesses(alignment).into_iter();
        let mut candidates: Vec<PlannedProblem> =
            accesses.map(|accesses| request.planned(accesses)).collect();
        candidates.sort_by_key(|planned| planned.repacks().bytes);
        candidates
    }

    /// A valid problem with the operand accesses of a plan.
    pub fn with_accesses(
        problem: &Problem,
        config: &Config,
        accesses: OperandAccesses,
    ) -> PlannedProblem {
        Request::new(problem, config).planned(accesses)
    }

    /// Whether the kernel of a choice has the majors of this problem.
    pub fn has_majors_of(&self, choice: &Choice) -> bool {
        choice.has_majors(self.problem.a.major, self.problem.b.major)
    }

    /// Reorders a pair that belongs to `[A, B]` of the requested problem into the operand order of
    /// this problem.
    pub fn in_order<T>(&self, [a, b]: [T; 2]) -> [T; 2] {
        if self.transposed { [b, a] } else { [a, b] }
    }

    /// The copies of A and B that repack kernels make.
    pub fn repacks(&self) -> Repacks {
        let PlannedProblem { problem, accesses, source, .. } = self;
        let [a, b] = self.config.operands();
        let split = terms(&self.config);
        let mut bytes = 0;
        let mut repack = |access: OperandAccess,
                          from: OperandLayout,
                          lines,
                          stride,
                          to: OperandLayout,
                          element: Element| {
            if access == OperandAccess::InPlace {
                return None;
            }
            let (lines, length): (usize, usize) = lines;
            let matrix = MatrixRepack {
                source: 0,
                // Extents that are planned fit.
                lines: lines as u32,
                length: length as u32,
                line_stride: from.leading_dimension as u64,
                step: from.step as u64,
                destination: 0,
                pitch: to.leading_dimension as u64
                    * u64::from(split.map_or(element, |spec| spec.element).bytes()),
                transposed: access.changes_major(),
                batch: source.batch.matrices(stride) as u32,
                batch_stride: stride as u64,
                result_batch_stride: 0,
                scales: 0,
            };
            let lines = u64::from(matrix.result().0);
            let result_batch_stride = lines * matrix.pitch;
            let matrix = MatrixRepack { result_batch_stride, ..matrix };
            // Sizes beyond `MOST_BYTES` are cut, so that sums do not overflow.
            let all = |of_one: u64| {
                let all = of_one.saturating_mul(matrix.batch.into()).min(MOST_BYTES);
                all.next_multiple_of(OPERAND_ALIGN)
            };
            let offset = bytes;
            bytes += all(result_batch_stride);
            let terms = split.map(|spec| TermSplit { spec, scales_offset: bytes });
            if split.is_some_and(|spec| spec.scaled()) {
                bytes += all(lines * 4);
            }
            Some(Repack { matrix, offset, terms })
        };
        let operands = [
            repack(accesses.a, source.a, source.a_lines(), source.batch.a, problem.a, a),
            repack(accesses.b, source.b, source.b_lines(), source.batch.b, problem.b, b),
        ];
        Repacks { operands, bytes }
    }

    /// Estimated cycles of the repack kernels. Both operands take one launch, or two where lines
    /// have scales.
    pub fn repack_cycles(&self) -> f64 {
        let bytes = self.repacks().bytes;
        if bytes == 0 {
            return 0.0;
        }
        // Plain copies are read and written once. Operands that are split into terms are smaller
        // when read than when written, and are read twice if they are scaled.
        let Problem { m, n, k, batch, .. } = self.problem;
        let [of_a, of_b] = [batch.a, batch.b].map(|stride| batch.matrices(stride) as f64);
        let (launches, read) = match terms(&self.config) {
            None => (1.0, bytes as f64),
            Some(spec) => {
                let times = if spec.scaled() { 2.0 } else { 1.0 };
                (times, times * 4.0 * k as f64 * (of_a * m as f64 + of_b * n as f64))
            }
        };
        let traffic = (read + bytes as f64) / REPACK_BYTES_PER_MICROSECOND;
        (launches * REPACK_MICROSECONDS + traffic) * NOMINAL_MHZ
    }
}

/// The majors in which kernels read an operand of this type.
fn majors_of(element: Element) -> Majors {
    Product::of(element, element).map_or(Majors::K, |product| product.majors)
}

/// The possible accesses of an operand, in place first. There is one, except for tf32 operands that
/// are not K-major. These have two, because kernels can read one such operand through registers.
fn possible_accesses(
    operand: OperandLayout,
    element: Element,
    (lines, _): (usize, usize),
    batch_stride: usize,
    aligned: bool,
) -> Vec<OperandAccess> {
    let bytes = u64::from(element.bytes());
    let stride = operand.leading_dimension as u64 * bytes;
    // The stride of a single line does not matter.
    let lines_fit = lines == 1 || stride > 0 && stride.is_multiple_of(TMA_ALIGN_BYTES);
    let matrices_fit = (batch_stride as u64).wrapping_mul(bytes).is_multiple_of(TMA_ALIGN_BYTES);
    let in_place = aligned && operand.step == 1 && lines_fit && matrices_fit;
    match (operand.major, majors_of(element)) {
        (Major::K, _) | (_, Majors::Any) => {}
        (_, Majors::KOrAFromRegisters) if in_place => {
            return vec![OperandAccess::InPlace, OperandAccess::RepackedAlongK];
        }
        (_, Majors::KOrAFromRegisters | Majors::K) => return vec![OperandAccess::RepackedAlongK],
    }
    vec![if in_place { OperandAccess::InPlace } else { OperandAccess::Repacked }]
}

/// The layout of an operand as the kernel sees it.
fn planned_layout(
    operand: OperandLayout,
    element: Element,
    (lines, length): (usize, usize),
    access: OperandAccess,
    unread: bool,
) -> OperandLayout {
    let unit = (TMA_ALIGN_BYTES / u64::from(element.bytes())) as usize;
    let (major, length) = match access {
        // K-major operands are readable for all kernels.
        OperandAccess::InPlace if unread => {
            return OperandLayout::new(Major::K, lines.max(length).max(1).next_multiple_of(unit));
        }
        OperandAccess::InPlace if lines == 1 => {
            return OperandLayout::new(operand.major, length.max(1).next_multiple_of(unit));
        }
        OperandAccess::InPlace => return operand,
        OperandAccess::RepackedAlongK => (Major::K, lines),
        _ => (operand.major, length),
    };
    let line = (LINE_BYTES / u64::from(element.bytes())) as usize;
    let unit = if length < line { unit } else { line };
    OperandLayout::new(major, length.next_multiple_of(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(problem: &Problem, element: Element) -> PlannedProblem {
        PlannedProblem::new(problem, &Config::new(element), OperandAlignment::ALIGNED)
    }

    #[test]
    fn aligned_lines_are_read_in_place() {
        for (a, b) in [(Major::K, Major::K), (Major::M, Major::N)] {
            for element in [Element::Bf16, Element::F64] {
                let problem = Problem::new(64, 128, 256, a, b);
                let planned = planned(&problem, element);
                assert_eq!(
                    (planned.accesses, planned.problem),
                    (OperandAccesses::default(), problem)
                );
                assert_eq!(planned.repack_cycles(), 0.0);
            }
        }
        // One line has nothing behind it.
        let row = Problem::new(1, 128, 251, Major::K, Major::K).with_b_leading_dimension(256);
        let planned = planned(&row, Element::Bf16);
        assert_eq!(
            (planned.accesses, planned.problem.a.leading_dimension),
            (OperandAccesses::default(), 256)
        );
    }

    #[test]
    fn unaligned_lines_are_repacked_and_other_majors_along_k() {
        use OperandAccess::{InPlace, Repacked, RepackedAlongK};
        let square = |a, b| Problem::new(64, 64, 64, a, b);
        let (k, m, n) = (Major::K, Major::M, Major::N);
        for (problem, element, a, b) in [
            (square(k, n).with_a_leading_dimension(65), Element::Bf16, Repacked, InPlace),
            (square(m, n).with_b_leading_dimension(0), Element::F16, InPlace, Repacked),
            (square(k, k).with_a_step(2), Element::Tf32, Repacked, InPlace),
            (square(k, n), Element::E4m3, InPlace, RepackedAlongK),
            (square(m, k), Element::S8, RepackedAlongK, InPlace),
            (Problem::new(63, 65, 63, m, n), Element::F64, Repacked, Repacked),
        ] {
            let planned = planned(&problem, element);
            assert_eq!((planned.accesses.a, planned.accesses.b), (a, b), "{problem:?}");
            let Repacks { operands, bytes } = planned.repacks();
            assert_eq!(operands.map(|repack| repack.is_some()), [a != InPlace, b != InPlace]);
            assert!(bytes > 0 && planned.repack_cycles() > 0.0);
            // The planned problem needs no further repacking.
            let again =
                PlannedProblem::new(&planned.problem, &planned.config, OperandAlignment::ALIGNED);
            assert_eq!(
                (again.accesses, again.problem),
                (OperandAccesses::default(), planned.problem)
            );
        }
        let shifted = OperandAlignment { a: false, b: true };
        let planned = PlannedProblem::new(&square(k, n), &Config::new(Element::Bf16), shifted);
        assert_eq!((planned.accesses.a, planned.accesses.b), (Repacked, InPlace));
    }

    /// Kernels can read one M- or N-major operand through registers. The other operand, or both,
    /// are repacked along k.
    #[test]
    fn tf32_across_k_can_be_read_in_place_or_repacked() {
        use OperandAccess::{InPlace, Repacked, RepackedAlongK};
        let (k, m, n) = (Major::K, Major::M, Major::N);
        let config = Config::new(Element::Tf32);
        let accesses = |problem: &Problem, aligned| -> Vec<_> {
            let candidates = PlannedProblem::candidates(problem, &config, aligned);
            for planned in &candidates {
                let again = PlannedProblem::with_accesses(problem, &config, planned.accesses);
                assert_eq!(again.problem, planned.problem);
                assert_eq!(again.repacks().bytes, planned.repacks().bytes);
            }
            candidates.iter().map(|planned| (planned.accesses.a, planned.accesses.b)).collect()
        };
        let wide = |a, b| Problem::new(64, 128, 32, a, b);
        let all = OperandAlignment::ALIGNED;
        assert_eq!(accesses(&wide(k, k), all), [(InPlace, InPlace)]);
        assert_eq!(accesses(&wide(m, k), all), [(InPlace, InPlace), (RepackedAlongK, InPlace)]);
        assert_eq!(accesses(&wide(k, n), all), [(InPlace, InPlace), (InPlace, RepackedAlongK)]);
        let both = [
            (RepackedAlongK, InPlace),
            (InPlace, RepackedAlongK),
            (RepackedAlongK, RepackedAlongK),
        ];
        assert_eq!(accesses(&wide(m, n), all), both);
        let tall = Problem::new(128, 64, 32, m, n);
        assert_eq!(accesses(&tall, all)[0], (InPlace, RepackedAlongK));
        // An operand that TMA cannot read is repacked along k directly.
        assert_eq!(
            accesses(&wide(m, n), OperandAlignment { a: false, b: true })[0],
            (RepackedAlongK, InPlace)
        );
        let odd = wide(k, n).with_a_step(2).with_b_leading_dimension(131);
        assert_eq!(accesses(&odd, all), [(Repacked, RepackedAlongK)]);
        assert_eq!(accesses(&Problem::new(64, 128, 0, m, n), all), [(InPlace, InPlace)]);
        let terms = Config::new(Element::F32).with_precision("tf32x3".parse().unwrap());
        assert_eq!(PlannedProblem::candidates(&wide(m, n), &terms, all).len(), 1);
    }

    #[test]
    fn repacked_lines_are_whole_lines_of_l2() {
        for element in [Element::Bf16, Element::E4m3, Element::F64] {
            let unit = LINE_BYTES / u64::from(element.bytes());
            for (length, expected) in
                [(4097, 4097_u64.next_multiple_of(unit)), (unit as usize + 1, 2 * unit)]
            {
                let problem = Problem::new(70, 90, length, Major::K, Major::K);
                let planned = planned(&problem.with_a_step(2).with_b_step(2), element);
                for repack in planned.repacks().operands.map(Option::unwrap) {
                    assert_eq!(repack.matrix.pitch, expected * u64::from(element.bytes()));
                    assert!(repack.offset.is_multiple_of(LINE_BYTES));
                }
            }
            // A line shorter than a line of L2 is padded to 16 bytes only.
            let short = Problem::new(70, 90, 5, Major::K, Major::K).with_a_step(2);
            let [repack, _] = planned(&short, element).repacks().operands;
            let bytes = 5 * u64::from(element.bytes());
            assert_eq!(repack.unwrap().matrix.pitch, bytes.next_multiple_of(TMA_ALIGN_BYTES));
        }
    }

    #[test]
    fn types_and_addresses_change_places_where_the_result_is_column_major() {
        let config = Config::new(Element::E4m3).with_b_dtype(Element::E5m2);
        let problem = Problem::new(64, 32, 128, Major::M, Major::K).with_d_major(Major::M);
        let planned =
            PlannedProblem::new(&problem, &config, OperandAlignment { a: true, b: false });
        assert_eq!(planned.config.operands(), [Element::E5m2, Element::E4m3]);
        assert_eq!(
            (planned.accesses.a, planned.accesses.b),
            (OperandAccess::Repacked, OperandAccess::RepackedAlongK)
        );
        assert_eq!(planned.in_order([1, 2]), [2, 1]);
        let Repacks { operands, bytes } = planned.repacks();
        let [a, b] = operands.map(Option::unwrap);
        assert_eq!((a.matrix.result(), b.matrix.result()), ((32, 128), (64, 128)));
        assert_eq!((a.offset, b.offset, bytes), (0, 4096, 12_288));
    }
}
