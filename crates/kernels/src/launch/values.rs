//! [`Values`] computes the value of each [`Quantity`] for the work of a launch.

use pgemm_ir::{Argument, Element, OperandMajor, TensorMapArgument};

use super::{MatrixArgument, TMA_ALIGN_BYTES, Tiling, Work};
use crate::quantity::{Matrix, Quantity, Side};
use crate::spec::Spec;
use crate::tiles::staging::OutputMajor;

/// The work of a launch and the spec of its kernel, from which the values of quantities follow.
pub(crate) struct Values<'a> {
    spec: &'a Spec,
    work: &'a Work,
    tiling: Tiling,
}

impl<'a> Values<'a> {
    /// The values of `work` for the kernel of `spec`.
    pub(crate) fn new(spec: &'a Spec, work: &'a Work) -> Self {
        Values { spec, work, tiling: Tiling::new(spec, work) }
    }

    /// The value of a quantity.
    pub(crate) fn value(&self, quantity: Quantity) -> Argument {
        let Values { spec, work, tiling } = self;
        match quantity {
            Quantity::Map(matrix) => Argument::TensorMap(self.map(matrix)),
            Quantity::BatchStep(matrix) => Argument::U32(work.matrix(matrix).batch_step()),
            Quantity::Address(matrix) => Argument::U64(work.matrix(matrix).address),
            Quantity::Stride(matrix) => {
                let bytes = self.element(matrix).bytes();
                Argument::U64(work.matrix(matrix).leading_dimension * u64::from(bytes))
            }
            Quantity::BatchStride(matrix) => Argument::U64(self.batch_stride(matrix)),
            Quantity::BatchSpan(matrix) => {
                let steps = u64::from(work.batch).saturating_sub(1);
                Argument::U64(self.batch_stride(matrix) * steps)
            }
            Quantity::Policy(matrix) => Argument::U64(work.l2.of(matrix).word()),
            Quantity::Rows => Argument::U32(work.m),
            Quantity::Columns => Argument::U32(work.n),
            Quantity::Depth => Argument::U32(work.k),
            Quantity::Count(count, part) => Argument::U32(tiling.part(count, part)),
            Quantity::Tiles => Argument::U32(tiling.tiles()),
            Quantity::Alpha => spec.factor(work.alpha),
            // Kernels that skip C rely on a positive zero.
            Quantity::Beta => spec.factor(work.beta + 0.0),
            Quantity::Workspace => Argument::U64(work.workspace),
            Quantity::Unordered => Argument::U32(work.unordered.into()),
            Quantity::StoredByThreads => {
                let [line, _] = self.output_lines();
                Argument::U32((!spec.moves_by_tma(line, &work.c, &work.d)).into())
            }
            Quantity::Scales(matrix) => {
                let addresses = work.scales.unwrap_or_default();
                Argument::U64(addresses[usize::from(matrix != Matrix::A)])
            }
            Quantity::Bias => Argument::U64(work.bias),
            Quantity::BiasLength => {
                let length = spec.epilogue.bias_length(work.m as usize, work.n as usize);
                Argument::U32(length as u32)
            }
            Quantity::Parameter(place) => spec.factor(work.parameters[place]),
        }
    }

    /// The 32-bit words of a quantity as they lie in memory, lowest first. A tensor map has none.
    pub(crate) fn words(&self, quantity: Quantity) -> Vec<u32> {
        let halves = |value: u64| vec![value as u32, (value >> 32) as u32];
        match self.value(quantity) {
            Argument::U32(value) => vec![value],
            Argument::U64(value) => halves(value),
            Argument::F32(value) => vec![value.to_bits()],
            Argument::F64(value) => halves(value.to_bits()),
            Argument::TensorMap(_) => vec![],
        }
    }

    /// Bytes from one matrix of a batch to the next.
    fn batch_stride(&self, matrix: Matrix) -> u64 {
        self.work.matrix(matrix).batch_stride * u64::from(self.element(matrix).bytes())
    }

    fn element(&self, matrix: Matrix) -> Element {
        match self.spec.side(matrix) {
            Some(Side::M) => self.spec.a,
            Some(Side::N) => self.spec.b,
            None => self.spec.output,
        }
    }

    /// Elements of a line of D, and its lines.
    pub(crate) fn output_lines(&self) -> [u64; 2] {
        let (m, n) = (self.work.m.into(), self.work.n.into());
        match self.spec.d_major {
            OutputMajor::N => [n, m],
            OutputMajor::M => [m, n],
        }
    }

    /// The tensor map of a matrix.
    pub(crate) fn map(&self, matrix: Matrix) -> TensorMapArgument {
        let (work, bytes) = (self.work, self.element(matrix).bytes());
        let argument = work.matrix(matrix);
        let (major, lines) = match self.spec.side(matrix) {
            Some(Side::M) => (self.spec.a_major, work.m),
            Some(Side::N) => (self.spec.b_major, work.n),
            None => {
                let moved = self.moved_by_tma(argument);
                return batched_map(&moved, self.output_lines(), bytes, work.batch);
            }
        };
        let (k, lines) = (self.spec.stored_k(work.k), u64::from(lines));
        if k == 0 {
            // A map cannot have an empty dimension, so it has one line of zeros. Elements outside
            // of the map read as zero too.
            return batched_map(argument, [u64::from(16 / bytes), 1], bytes, 1);
        }
        let extents = match major {
            OperandMajor::K => [k, lines],
            OperandMajor::Mn => [lines, k],
        };
        batched_map(argument, extents, bytes, work.batch)
    }

    /// C or D with an address and strides that a map can have. If TMA cannot move the matrix, its
    /// map is not used, but it must still be encodable.
    fn moved_by_tma(&self, matrix: &MatrixArgument) -> MatrixArgument {
        let step = (TMA_ALIGN_BYTES / u64::from(self.spec.output.bytes())).max(1);
        MatrixArgument {
            address: matrix.address / TMA_ALIGN_BYTES * TMA_ALIGN_BYTES,
            leading_dimension: matrix.leading_dimension.max(1).next_multiple_of(step),
            batch_stride: matrix.batch_stride.next_multiple_of(step),
        }
    }
}

/// The map of a matrix for each of `count` products. `extents` are those of one product, innermost
/// first. The outermost dimension counts the matrices. A matrix that all products share occurs
/// once.
fn batched_map(
    matrix: &MatrixArgument,
    extents: [u64; 2],
    element_bytes: u32,
    count: u32,
) -> TensorMapArgument {
    let bytes = |elements: u64| elements * u64::from(element_bytes);
    let matrices = if matrix.batch_stride == 0 { 1 } else { count.max(1).into() };
    let line = bytes(matrix.leading_dimension);
    TensorMapArgument {
        address: matrix.address,
        extents: vec![extents[0], extents[1], matrices],
        // A single matrix has no successor, so any stride that a map may have is correct.
        strides: vec![line, if matrices == 1 { line } else { bytes(matrix.batch_stride) }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_products_share_is_one_matrix() {
        let own = MatrixArgument { address: 256, leading_dimension: 64, batch_stride: 24 };
        let shared = MatrixArgument { batch_stride: 0, ..own };
        let of = |matrix, count| {
            let map = batched_map(matrix, [40, 7], 2, count);
            (map.extents, map.strides)
        };
        // Batch strides may be shorter than lines.
        assert_eq!(of(&own, 5), (vec![40, 7, 5], vec![128, 48]));
        assert_eq!(of(&shared, 5), (vec![40, 7, 1], vec![128, 128]));
        assert_eq!(of(&own, 1), (vec![40, 7, 1], vec![128, 128]));
        assert_eq!([own.batch_step(), shared.batch_step()], [1, 0]);
    }
}
