//! Draws the parts of a random case.

use pgemm_ir::Element;
use pgemm_kernels::Epilogue;
use pgemm_plan::{Batch, Config, OperandLayout, Precision, Problem, Split, types};
use rand::RngExt;
use rand::rngs::StdRng;

use super::{CaseSize, Fill};

/// Precisions of f32 products.
const PRECISIONS_32: [Precision; 5] =
    [Precision::Exact, Precision::Tf32x3, Precision::F16x3, Precision::Bf16x6, Precision::Bf16x9];

/// Draws the parts of a random case.
pub(super) struct Draw(pub(super) StdRng);

impl Draw {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(super) fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Types of A, B and D.
    pub(super) fn types(&mut self) -> ([Element; 3], Option<Precision>) {
        match self.below(8) {
            0 => ([Element::F64; 3], None),
            1 => ([Element::F32; 3], Some(*self.of(&PRECISIONS_32))),
            2..=4 => {
                let types = self.types_of(|a| a.bytes() == 2);
                let in_f16 = types[0] == Element::F16 && self.one_in(3);
                (types, in_f16.then_some(Precision::F16))
            }
            _ => {
                let precision = *self.of(&[None, Some(Precision::Fast)]);
                (self.types_of(|a| a == Element::Tf32 || a.bytes() == 1), precision)
            }
        }
    }

    /// Types that kernels multiply, of such an A.
    fn types_of(&mut self, of: impl Fn(Element) -> bool) -> [Element; 3] {
        let types: Vec<_> = types().filter(|[a, ..]| of(*a)).collect();
        *self.of(&types)
    }

    /// Mostly ragged, sometimes tiny, sometimes a whole number of tiles, sometimes deep, rarely
    /// nothing at all.
    pub(super) fn extents(&mut self, size: CaseSize) -> [usize; 3] {
        let (most, deepest) = size.limits();
        let [m, n, k] = [most, most, deepest].map(|limit| match self.below(6) {
            0 => 1 + self.below(40),
            1 => 64 * (1 + self.below(limit / 64)),
            _ => 1 + self.below(limit),
        });
        match self.below(64) {
            0 => [0, n, k],
            1 => [m, 0, k],
            2 | 3 => [m, n, 0],
            4..=11 if size == CaseSize::Large => [m / 6 + 1, n / 6 + 1, 20 * k],
            4..=11 => [m / 6 + 1, n / 6 + 1, 5 * k],
            _ => [m, n, k],
        }
    }

    /// Draws alpha and beta. They are integers for integer products. Results beyond s32 wrap.
    pub(super) fn scalars(&mut self, integers: bool, output: Element) -> (f64, f64) {
        let (alpha, beta) = match integers {
            false => *self.of(&[(1.0, 0.0), (0.5, 2.0), (-2.0, 0.3), (1.0, -1.0), (0.0, 0.5)]),
            true => *self.of(&[(1.0, 0.0), (3.0, 2.0), (-2.0, 1.0), (1.0, -1.0), (0.0, 1.0)]),
        };
        let wraps = output == Element::S32 && self.one_in(5);
        (if wraps { alpha * 300_000.0 } else { alpha }, beta)
    }

    /// Elements between lines: none, as many as make whole 16-byte units, or any.
    pub(super) fn line(&mut self, length: usize, element: Element) -> usize {
        let unit = 16 / element.bytes() as usize;
        let length = length.max(1);
        match self.below(3) {
            0 => length,
            1 => length.next_multiple_of(unit) + unit * self.below(3),
            _ => length + self.below(6),
        }
    }

    /// Draws the layout of an input. `step` says whether its elements may have a step other than 1.
    pub(super) fn operand(
        &mut self,
        tight: OperandLayout,
        element: Element,
        step: bool,
    ) -> OperandLayout {
        let line = self.line(tight.leading_dimension, element);
        match self.below(12) {
            0 => OperandLayout { leading_dimension: 0, ..tight },
            1 if step => OperandLayout { step: 0, leading_dimension: line, ..tight },
            2 if step => OperandLayout { step: 2, leading_dimension: 2 * line, ..tight },
            _ => OperandLayout { leading_dimension: line, ..tight },
        }
    }

    /// One in five is a batch, packed, with an operand or C for all, or with gaps between matrices
    /// that TMA reads or not.
    pub(super) fn batch(&mut self, problem: Problem, in_place: bool) -> Problem {
        if !self.one_in(5) {
            return problem;
        }
        let count = if self.one_in(10) { 0 } else { 2 + self.below(3) };
        let batch = problem.with_batch(count);
        let Batch { a, b, c, d, .. } = batch.batch;
        let batch = match self.below(5) {
            0 => batch,
            1 => batch.with_b_batch_stride(0),
            2 => batch.with_a_batch_stride(0).with_c_batch_stride(0),
            3 => batch.with_a_batch_stride(a + 48).with_d_batch_stride(d + 16),
            _ => {
                let batch = batch.with_b_batch_stride(b + 1).with_c_batch_stride(c + 3);
                batch.with_d_batch_stride(d + 5)
            }
        };
        let d = batch.batch.d;
        if in_place { batch.with_c_batch_stride(d) } else { batch }
    }

    /// Draws the elements before A, B, C and D. Half of all cases have none.
    pub(super) fn offsets(&mut self, in_place: bool) -> [usize; 4] {
        let aligned = self.one_in(2);
        let [a, b, c, d] = [18; 4].map(|most| if aligned { 0 } else { self.below(most) });
        [a, b, if in_place { d } else { c }, d]
    }

    /// Draws the epilogue. Half of all cases with float results have one. With integer values it
    /// keeps results integral.
    pub(super) fn epilogue(&mut self, output: Element, fill: Fill) -> Epilogue {
        let texts: &[&str] = match fill {
            _ if matches!(output, Element::S32 | Element::S8) => &[],
            Fill::Integers => &["bias_n|relu", "bias_m", "relu"],
            Fill::Random => {
                &["bias_n|silu", "bias_n|gelu", "bias_m|gelu", "silu", "bias_n|relu", "bias_m"]
            }
        };
        match self.one_in(2) || texts.is_empty() {
            true => Epilogue::NONE,
            // All of these texts parse as epilogues.
            false => self.of(texts).parse().unwrap_or_default(),
        }
    }

    /// Half of them as the planner likes.
    pub(super) fn knobs(&mut self, config: Config) -> Config {
        let unordered = self.one_in(4);
        let splits = self.of(&[Split::Whole, Split::StreamK, Split::SplitK(2), Split::SplitK(5)]);
        let split = Some(*splits).filter(|_| self.one_in(2));
        let swapped = Some(self.one_in(2)).filter(|_| self.one_in(4));
        // Operands of f64, and of f32 on CUDA cores, never are exchanged.
        let stays = match config.dtype {
            Element::F64 => true,
            Element::F32 => config.precision().terms().is_none(),
            _ => false,
        };
        let mut config = config;
        config.split = split;
        if stays { config } else { config.with_swapped(swapped).with_unordered(unordered) }
    }
}
