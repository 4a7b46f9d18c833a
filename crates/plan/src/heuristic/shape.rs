//! [`Shape`]: the properties of a problem that the cost model depends on.

use pgemm_ir::Element;
use pgemm_kernels::MatrixArgument;

use crate::config::Config;
use crate::layout::{Major, OperandLayout};
use crate::operands::{OperandAccesses, OperandAlignment, PlannedProblem};
use crate::problem::Problem;
use crate::split::Split;

/// Bytes of a line of L2. TMA loads an operand's lines in slices of the same size.
const LINE_BYTES: u64 = 128;

/// The properties of a problem that estimates depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Extents along m, n and k.
    pub extents: [u64; 3],
    /// How the lines of A, and those of B, lie in memory.
    pub(super) operands: [OperandLines; 2],
    /// Bytes from one line of D to the next.
    pub(super) d_pitch: u64,
    /// Number of products.
    pub batch: u64,
    /// Number of distinct matrices A, and of distinct matrices B.
    pub(super) matrices: [u64; 2],
    /// Whether the epilogue has an activation that costs more than a comparison.
    pub(super) activated: bool,
    /// Whether threads store D, because TMA cannot store this layout at any address.
    pub(super) by_threads: bool,
    /// Whether a repack kernel runs before the GEMM kernel.
    pub(super) after_repack: bool,
}

impl Shape {
    /// The shape of a valid problem as its kernel sees it: transposed if D is column-major, and
    /// with operands after their repacking. Operands are assumed to begin at a line of L2.
    pub fn of(problem: &Problem, config: &Config) -> Shape {
        Shape::of_planned(&PlannedProblem::new(problem, config, OperandAlignment::ALIGNED))
    }

    /// The same for a kernel with these operand accesses, which a plan contains.
    pub fn with_accesses(problem: &Problem, config: &Config, accesses: OperandAccesses) -> Shape {
        Shape::of_planned(&PlannedProblem::with_accesses(problem, config, accesses))
    }

    /// The shape of a planned problem.
    pub fn of_planned(planned: &PlannedProblem) -> Shape {
        let PlannedProblem { problem, config, accesses, .. } = planned;
        let [a, b] = config.operands();
        let batch = problem.batch;
        let d = MatrixArgument {
            address: 0,
            leading_dimension: problem.d_leading_dimension as u64,
            batch_stride: batch.normalised().d as u64,
        };
        let line = problem.d_layout().line_length() as u64;
        Shape {
            extents: [problem.m, problem.n, problem.k].map(|extent| extent as u64),
            operands: [
                OperandLines::new(problem.a, a, problem.a_lines()),
                OperandLines::new(problem.b, b, problem.b_lines()),
            ],
            d_pitch: problem.d_leading_dimension as u64 * u64::from(config.output_dtype().bytes()),
            batch: batch.count as u64,
            matrices: [batch.a, batch.b].map(|stride| batch.matrices(stride) as u64),
            activated: config.epilogue.activation().is_some_and(|activation| activation.is_long()),
            by_threads: !d.is_moved_by_tma(line, config.output_dtype()),
            after_repack: accesses.copy(),
        }
    }

    /// Whether a repack kernel runs before the GEMM kernel.
    pub fn after_repack(&self) -> bool {
        self.after_repack
    }

    /// Whether the epilogue has an activation that costs more than a comparison.
    pub(crate) fn is_activated(&self) -> bool {
        self.activated
    }

    /// Whether threads store D, since TMA cannot.
    pub(crate) fn by_threads(&self) -> bool {
        self.by_threads
    }

    /// Elements of all matrices A and B, and of all results.
    pub(crate) fn elements(&self) -> [f64; 2] {
        let [m, n, k] = self.extents.map(|extent| extent as f64);
        let [of_a, of_b] = self.matrices.map(|count| count as f64);
        [k * (of_a * m + of_b * n), m * n * self.batch as f64]
    }

    /// Whether more kernels than usual have to be looked at for a good pick. Few of the problems
    /// that the trees are fitted to have a given split, and few are batches.
    pub(crate) fn needs_more(&self, split: Option<Split>) -> bool {
        split.is_some() || self.batch > 1
    }

    /// The power of 2, up to a line of L2, at whose multiples the lines of D begin.
    pub(super) fn alignment_of_d(&self) -> u64 {
        1 << (self.d_pitch | LINE_BYTES).trailing_zeros()
    }

    /// The shape with A and B, and m and n, exchanged.
    pub(crate) fn swapped(self) -> Shape {
        let Shape { extents: [m, n, k], operands: [a, b], matrices: [of_a, of_b], .. } = self;
        Shape { extents: [n, m, k], operands: [b, a], matrices: [of_b, of_a], ..self }
    }
}

/// One product whose operands and results consist of whole lines.
impl From<[u64; 3]> for Shape {
    fn from(extents: [u64; 3]) -> Shape {
        let (activated, by_threads, after_repack) = (false, false, false);
        let (operands, d_pitch) = ([OperandLines::WHOLE; 2], LINE_BYTES);
        let (batch, matrices) = (1, [1; 2]);
        Shape { extents, operands, d_pitch, batch, matrices, activated, by_threads, after_repack }
    }
}

/// How the lines of an operand lie in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OperandLines {
    /// Bytes from one line to the next.
    pitch: u64,
    /// Bytes of a slice: 128, or a whole line if it is shorter.
    slice: u64,
    /// Bytes of an element, if lines run along m or n, so that slices begin where tiles do.
    across: Option<u64>,
    /// Whether there is more than one line.
    many: bool,
}

impl OperandLines {
    /// Slices that are whole lines of L2.
    const WHOLE: OperandLines =
        OperandLines { pitch: LINE_BYTES, slice: LINE_BYTES, across: None, many: true };

    fn new(operand: OperandLayout, element: Element, (lines, length): (usize, usize)) -> Self {
        let bytes = u64::from(element.bytes());
        OperandLines {
            pitch: operand.leading_dimension as u64 * bytes,
            slice: (length as u64).saturating_mul(bytes).min(LINE_BYTES),
            across: (operand.major != Major::K).then_some(bytes),
            many: lines > 1,
        }
    }

    /// Bytes from one line to the next.
    pub(super) fn pitch(&self) -> u64 {
        self.pitch
    }

    /// Lines of L2 that a slice touches in the mean, in tiles of `extent` elements along m or n. It
    /// is 1 if slices are whole lines, and always below 2.
    pub(super) fn touched(&self, extent: u32) -> f64 {
        let tile = self.across.map_or(LINE_BYTES, |bytes| u64::from(extent) * bytes);
        let pitch = if self.many { self.pitch } else { LINE_BYTES };
        // Slices begin in a line of L2 at the multiples of the common divisor of pitch, tile and
        // line, equally often at each.
        let power = (pitch | tile | LINE_BYTES).trailing_zeros();
        let places = LINE_BYTES >> power;
        // Of the places 0, 1, 2 and so on of this power of 2, those beyond this one cross a line.
        let inside = (((LINE_BYTES - self.slice) >> power) + 1).min(places);
        1.0 + (places - inside) as f64 / places as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operands::OperandAccess;

    fn lines(problem: Problem, element: Element) -> [f64; 2] {
        Shape::of(&problem, &Config::new(element)).operands.map(|lines| lines.touched(128))
    }

    #[test]
    fn slices_cross_lines_of_l2_where_pitches_are_no_multiples() {
        let problem = |k| Problem::new(512, 640, k, Major::K, Major::K);
        let bf16 = Element::Bf16;
        assert_eq!(lines(problem(4096), bf16), [1.0, 1.0]);
        // Lines of 8208 bytes: one in eight begins at a line of L2.
        assert_eq!(lines(problem(4104), bf16), [1.875, 1.875]);
        assert_eq!(lines(problem(4104).with_b_leading_dimension(4160), bf16), [1.875, 1.0]);
        assert_eq!(lines(problem(4128), bf16), [1.5, 1.5]);
        assert_eq!(lines(problem(4104), Element::F64), [1.5, 1.5]);
        // Repacked operands consist of whole lines.
        assert_eq!(lines(problem(4097), bf16), [1.0, 1.0]);
        // Lines of 32 bytes never cross a line of L2; lines of 48 bytes sometimes do.
        assert_eq!(lines(problem(16), bf16), [1.0, 1.0]);
        assert_eq!(lines(problem(24), bf16), [1.25, 1.25]);
        let row = Problem::new(1, 520, 4096, Major::K, Major::N);
        assert_eq!(lines(row.with_a_leading_dimension(4104), bf16), [1.0, 1.875]);
        // Slices of an N-major B begin where tiles of 72 columns do.
        let problem = Problem::new(512, 640, 4096, Major::K, Major::N);
        let [_, b] = Shape::of(&problem, &Config::new(bf16)).operands;
        assert_eq!([64, 72, 96].map(|columns| b.touched(columns)), [1.0, 1.875, 1.5]);
    }

    #[test]
    fn lines_are_those_of_the_accesses_of_a_plan() {
        let config = Config::new(Element::Tf32);
        let problem = Problem::new(512, 640, 4096, Major::M, Major::K);
        let problem = problem.with_a_leading_dimension(516);
        let plans = crate::Plan::candidates(&problem, &config, 132).unwrap();
        for (access, unaligned) in
            [(OperandAccess::InPlace, true), (OperandAccess::RepackedAlongK, false)]
        {
            let plan = plans.iter().find(|plan| plan.accesses.a == access).unwrap();
            let shape = Shape::with_accesses(&problem, &config, plan.accesses);
            assert_eq!(shape.operands[0].touched(128) > 1.0, unaligned, "{access}");
        }
    }

    #[test]
    fn stores_by_threads_and_repack_kernels_are_known() {
        let of = |problem: Problem| {
            let shape = Shape::of(&problem, &Config::new(Element::Bf16));
            (shape.by_threads, shape.after_repack)
        };
        let kk = |m, n, k| Problem::new(m, n, k, Major::K, Major::K);
        assert_eq!(of(kk(512, 520, 1024)), (false, false));
        assert_eq!(of(kk(511, 513, 1024)), (true, false));
        // Lines of 1026 bytes with an aligned leading dimension.
        assert_eq!(of(kk(511, 513, 1024).with_d_leading_dimension(520)), (true, false));
        assert_eq!(of(kk(511, 520, 1023)), (false, true));
        // The lines of a column-major D are its columns, of 520 rows.
        assert_eq!(of(kk(520, 513, 1024).with_d_major(Major::M)), (false, false));
        let batch = kk(512, 520, 1024).with_batch(2).with_d_batch_stride(512 * 520 + 1);
        assert_eq!(of(batch), (true, false));
    }

    /// A batch is estimated to take longer than one product, less than its products one after the
    /// other, and no longer if they share an operand. What corrects estimates knows no such order.
    #[test]
    fn batches_fill_waves_together() {
        let problem = Problem::new(512, 512, 512, Major::K, Major::K);
        for element in [Element::Bf16, Element::F64, Element::F32] {
            let config = Config::new(element);
            let choice = crate::Plan::candidates(&problem, &config, 132).unwrap()[0].choice();
            let cycles = |problem: Problem| {
                let shape = Shape::of(&problem, &config);
                crate::heuristic::features_of(&choice, shape, 132).0
            };
            let (one, many) = (cycles(problem), cycles(problem.with_batch(64)));
            assert!(many > 4.0 * one && many < 64.0 * one, "{element}: {one}, {many}");
            let shared = cycles(problem.with_batch(64).with_b_batch_stride(0));
            assert!(shared <= many, "{element}: {shared}, {many}");
        }
        let shape =
            Shape::of(&problem.with_batch(3).with_a_batch_stride(0), &Config::new(Element::Bf16));
        assert_eq!((shape.matrices, shape.swapped().matrices), ([1, 3], [3, 1]));
    }

    #[test]
    fn operands_and_their_lines_change_places_together() {
        let problem = Problem::new(512, 640, 4096, Major::K, Major::K);
        let problem = problem.with_a_leading_dimension(4104);
        let shape = Shape::of(&problem, &Config::new(Element::Bf16));
        let transposed = Problem::new(512, 640, 4096, Major::K, Major::K)
            .with_d_major(Major::M)
            .with_a_leading_dimension(4104);
        let column_major = Shape::of(&transposed, &Config::new(Element::Bf16));
        let d_pitch = shape.d_pitch;
        assert_eq!(Shape { d_pitch, ..column_major }, shape.swapped());
        assert_eq!(shape.swapped().operands.map(|lines| lines.touched(64)), [1.0, 1.875]);
    }
}
