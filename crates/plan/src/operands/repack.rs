//! The copies of operands that repack kernels make, and their estimated time.

use pgemm_ir::Element;
use pgemm_kernels::{CopySpec, MatrixRepack, RepackSpec, SplitSpec};

use super::{OperandAccess, PlannedProblem, terms};
use crate::device::NOMINAL_MHZ;
use crate::layout::OperandLayout;
use crate::problem::Problem;

/// Alignment of repacked operands, in bytes.
const OPERAND_ALIGN: u64 = 1024;

/// More bytes than any device has. Larger sizes are cut to this.
const MOST_BYTES: u64 = 1 << 60;

/// What a repack launch adds to the time of a product apart from its traffic, in µs. The launch
/// begins while the previous one ends. This and the next value were fitted to the times of 1008
/// kernels for 183 products behind repack kernels. 837 of the times, of 151 products, are in
/// `benchmarks/results`; the others were not steady. With these values, estimates of those 837 are
/// off by 8.6 % in the mean, and by 8.3 % with the best ones (1.0 and 3.8e6).
const REPACK_MICROSECONDS: f64 = 1.25;

/// Bytes that a repack kernel reads and writes per µs.
const REPACK_BYTES_PER_MICROSECOND: f64 = 3.7e6;

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

impl PlannedProblem {
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
            if !access.copies() {
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
