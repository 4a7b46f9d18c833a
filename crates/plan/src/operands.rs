//! How kernels access the operands of a problem: in place, or as a copy that a repack kernel makes
//! before.
//!
//! TMA reads lines that begin at multiples of 16 bytes, and wgmma reads tf32 and 8-bit operands
//! along k only. An operand that TMA or wgmma cannot read is loaded by threads of the GEMM kernel,
//! repacked into a supported layout by a kernel before it, or split into the terms of its
//! precision. The planner then plans the problem as the kernel sees it: a [`PlannedProblem`]. A
//! problem with a column-major D is planned as its transpose. There can be several ways to access
//! the operands.

mod repack;
#[cfg(test)]
mod tests;

use std::fmt;

use pgemm_ir::Element;
use pgemm_kernels::{
    DirectSpec, LEAST_BYTES_FOR_THREADS, Loader, Majors, Product, SplitSpec, TMA_ALIGN_BYTES,
};
use serde::Serialize;

use crate::batch::Batch;
use crate::choice::Choice;
use crate::config::Config;
use crate::layout::{Major, OperandLayout};
use crate::problem::Problem;

pub use repack::{Repack, Repacks, TermSplit};

/// Bytes of a line of the L2 cache. Repacked lines of at least this length begin at multiples of
/// it.
const LINE_BYTES: u64 = 128;

/// How a kernel accesses an operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperandAccess {
    /// The kernel reads the operand in place, by TMA.
    #[default]
    InPlace,
    /// Threads of the kernel load the operand in place.
    ByThreads,
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
    /// Whether a kernel before the GEMM kernel copies the operand.
    pub fn copies(self) -> bool {
        !matches!(self, OperandAccess::InPlace | OperandAccess::ByThreads)
    }

    /// What loads the operand in the GEMM kernel.
    fn loader(self) -> Loader {
        if self == OperandAccess::ByThreads { Loader::Threads } else { Loader::Tma }
    }

    /// Whether the kernel's lines run across those of the operand.
    fn changes_major(self) -> bool {
        matches!(self, OperandAccess::RepackedAlongK | OperandAccess::SplitAlongK)
    }
}

impl fmt::Display for OperandAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperandAccess::InPlace => "in place",
            OperandAccess::ByThreads => "loaded by threads",
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
    /// Whether both operands are read in place, by TMA.
    pub fn are_in_place(&self) -> bool {
        *self == OperandAccesses::default()
    }

    /// Whether a kernel before the GEMM kernel copies an operand.
    pub fn copy(&self) -> bool {
        self.a.copies() || self.b.copies()
    }

    /// What loads A and B in the GEMM kernel.
    pub(crate) fn loaders(&self) -> [Loader; 2] {
        [self.a.loader(), self.b.loader()]
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
        let is_direct = config.spec.is_some_and(|spec| spec.is_direct());
        if let Some(direct) = self.direct_accesses().filter(|_| is_direct) {
            return vec![direct];
        }
        // A kernel whose threads load an operand can be named for an aligned operand too.
        let by_threads = config.spec.is_some_and(|spec| spec.threads_load());
        let possible = |operand: OperandLayout, element, lines, stride, aligned| match split {
            _ if *unread => vec![OperandAccess::InPlace],
            None => {
                let mut all = possible_accesses(operand, element, lines, stride, aligned);
                if by_threads && all[0] == OperandAccess::InPlace {
                    all.extend(staged_by_threads_if_possible(operand, element, lines));
                }
                all
            }
            Some(_) if operand.major == Major::K => vec![OperandAccess::Split],
            Some(_) => vec![OperandAccess::SplitAlongK],
        };
        let of_a = possible(source.a, a, source.a_lines(), a_stride, alignment.a);
        let of_b = possible(source.b, b, source.b_lines(), b_stride, alignment.b);
        let both = |a| of_b.iter().map(move |&b| OperandAccesses { a, b });
        let all = of_a.iter().flat_map(|&a| both(a));
        all.filter(|accesses| *unread || self.is_legal(*accesses) && self.is_worthwhile(*accesses))
            .collect()
    }

    /// The accesses of a direct kernel. `None` if its warps cannot load the operands.
    fn direct_accesses(&self) -> Option<OperandAccesses> {
        let Request { source, config, unread, .. } = self;
        let [a, b] = config.operands();
        let possible = !unread && terms(config).is_none() && DirectSpec::multiplies(a);
        Some(OperandAccesses {
            a: by_threads_if_possible(source.a, a).filter(|_| possible)?,
            b: by_threads_if_possible(source.b, b)?,
        })
    }

    /// Whether a kernel might be fastest with these accesses. If the larger operand is repacked, the
    /// same launch also repacks the smaller one, so threads need not load that. The name of a kernel
    /// decides for itself.
    fn is_worthwhile(&self, OperandAccesses { a, b }: OperandAccesses) -> bool {
        let Problem { m, n, batch, .. } = self.source;
        let elements =
            |extent: usize, stride| (extent as u64).saturating_mul(batch.matrices(stride) as u64);
        let (of_a, of_b) = (elements(m, batch.a), elements(n, batch.b));
        let needless = match (a, b) {
            (OperandAccess::ByThreads, other) => other.copies() && of_a < of_b,
            (other, OperandAccess::ByThreads) => other.copies() && of_b < of_a,
            _ => false,
        };
        !needless || self.config.spec.is_some()
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
            let copied = OperandAccess::copies(access) && stride != 0;
            if copied { lines.saturating_mul(operand.leading_dimension) } else { stride }
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

/// The terms that the operands of a config are split into.
fn terms(config: &Config) -> Option<SplitSpec> {
    config.precision().terms().map(|(element, terms)| SplitSpec { element, terms })
}

impl PlannedProblem {
    /// The first of the [`candidates`](Self::candidates) of a valid problem.
    pub fn new(problem: &Problem, config: &Config, alignment: OperandAlignment) -> PlannedProblem {
        PlannedProblem::candidates(problem, config, alignment).swap_remove(0)
    }

    /// The problem as a direct kernel sees it, whose warps load both operands. `None` if they
    /// cannot.
    pub(crate) fn direct(problem: &Problem, config: &Config) -> Option<PlannedProblem> {
        let request = Request::new(problem, config);
        Some(request.planned(request.direct_accesses()?))
    }

    /// The valid problem with each possible way to access its operands; at least one. Candidates
    /// in which TMA loads all operands come first, and among them those that repack fewer bytes.
    /// They differ in the majors that the kernel sees, and in what loads the operands.
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
        let by_threads = |planned: &PlannedProblem| {
            planned.accesses.loaders().into_iter().filter(|loader| *loader == Loader::Threads)
        };
        candidates.sort_by_key(|planned| (by_threads(planned).count(), planned.repacks().bytes));
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

    /// The majors of A and B as they lie in memory, with a row-major D.
    pub(crate) fn majors(&self) -> [Major; 2] {
        [self.source.a.major, self.source.b.major]
    }

    /// Whether the kernel of a choice reads operands of these majors, in this way.
    pub fn is_read_by(&self, choice: &Choice) -> bool {
        choice.has_majors(self.problem.a.major, self.problem.b.major)
            && choice.loaders() == self.accesses.loaders()
    }

    /// Reorders a pair that belongs to `[A, B]` of the requested problem into the operand order of
    /// this problem.
    pub fn in_order<T>(&self, [a, b]: [T; 2]) -> [T; 2] {
        if self.transposed { [b, a] } else { [a, b] }
    }
}

/// The majors in which kernels read an operand of this type.
fn majors_of(element: Element) -> Majors {
    Product::of(element, element).map_or(Majors::K, |product| product.majors)
}

/// The possible accesses of an operand, in place first. There is one, with three exceptions. tf32
/// operands that are not K-major have two, because kernels can read one such operand through
/// registers. Operands that are not aligned may be loaded by threads, and so may those of 8 bits
/// that are not K-major, which threads transpose.
fn possible_accesses(
    operand: OperandLayout,
    element: Element,
    lines @ (count, _): (usize, usize),
    batch_stride: usize,
    aligned: bool,
) -> Vec<OperandAccess> {
    let bytes = u64::from(element.bytes());
    let stride = operand.leading_dimension as u64 * bytes;
    // The stride of a single line does not matter.
    let lines_fit = count == 1 || stride > 0 && stride.is_multiple_of(TMA_ALIGN_BYTES);
    let matrices_fit = (batch_stride as u64).wrapping_mul(bytes).is_multiple_of(TMA_ALIGN_BYTES);
    let in_place = aligned && operand.step == 1 && lines_fit && matrices_fit;
    match (operand.major, majors_of(element)) {
        (Major::K, _) | (_, Majors::Any) => {}
        (_, Majors::KOrAFromRegisters) if in_place => {
            return vec![OperandAccess::InPlace, OperandAccess::RepackedAlongK];
        }
        (_, Majors::KOrAFromRegisters) => return vec![OperandAccess::RepackedAlongK],
        (_, Majors::K) => {
            let turned = staged_by_threads_if_possible(operand, element, lines);
            return [OperandAccess::RepackedAlongK].into_iter().chain(turned).collect();
        }
    }
    if in_place {
        return vec![OperandAccess::InPlace];
    }
    let mut all = vec![OperandAccess::Repacked];
    all.extend(staged_by_threads_if_possible(operand, element, lines));
    all
}

/// The access of an operand that threads of a kernel load, if a kernel does that. TMA may be able
/// to read the operand too.
fn by_threads_if_possible(operand: OperandLayout, element: Element) -> Option<OperandAccess> {
    let possible = element.bytes() <= Loader::MOST_ELEMENT_BYTES && operand.step == 1;
    possible.then_some(OperandAccess::ByThreads)
}

/// The same for an operand that threads store to shared memory in units of 16 bytes.
fn staged_by_threads_if_possible(
    operand: OperandLayout,
    element: Element,
    (lines, length): (usize, usize),
) -> Option<OperandAccess> {
    let between = (lines as u64 - 1).saturating_mul(operand.leading_dimension as u64);
    let bytes = between.saturating_add(length as u64).saturating_mul(element.bytes().into());
    by_threads_if_possible(operand, element).filter(|_| bytes >= LEAST_BYTES_FOR_THREADS)
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
        OperandAccess::InPlace | OperandAccess::ByThreads => return operand,
        OperandAccess::RepackedAlongK => (Major::K, lines),
        _ => (operand.major, length),
    };
    let line = (LINE_BYTES / u64::from(element.bytes())) as usize;
    let unit = if length < line { unit } else { line };
    OperandLayout::new(major, length.next_multiple_of(unit))
}
