//! The view of the threads of a CTA: the matrix that the CTA works on, and the destination.

use pgemm_ir::{KernelBuilder, Special, Val, ty};

use super::quantity::{RepackField, RepackQuantity};
use super::source::Source;
use super::split::{SplitSpec, SplitStore};
use crate::params::Params;
use crate::tiles::chunked::CHUNK_BYTES;

/// Maximum number of matrices of a launch.
const MATRICES: usize = 2;

/// The matrix that a CTA works on.
pub(super) struct Job<'k> {
    pub(super) source: Source<'k>,
    pub(super) result: Destination<'k>,
    /// Number of tiles next to each other.
    pub(super) across: Val<'k, ty::U32>,
    /// Binary logarithm of the number of chunks in a row of a tile, or
    /// [`TRANSPOSED`](super::matrix::TRANSPOSED).
    pub(super) columns: Val<'k, ty::U32>,
}

/// The destination of the result.
#[derive(Clone, Copy)]
pub(super) struct Destination<'k> {
    pub(super) address: Val<'k, ty::U64>,
    /// Bytes from one line to the next.
    pub(super) pitch: Val<'k, ty::U64>,
    pub(super) lines: Val<'k, ty::U32>,
    /// Number of chunks of each line, before it is split into terms.
    pub(super) chunks: Val<'k, ty::U32>,
    /// The split of a chunk into terms. `None` if chunks are written unchanged.
    pub(super) split: Option<SplitStore<'k>>,
}

/// A place in the grid of tiles.
#[derive(Clone, Copy)]
pub(super) struct Tile<'k> {
    pub(super) row: Val<'k, ty::U32>,
    pub(super) column: Val<'k, ty::U32>,
}

impl<'k> Job<'k> {
    /// Declares the parameters of all matrices, and of their scales if there are any. Returns the
    /// matrix of this CTA, and the index of the CTA among those of the matrix.
    pub(super) fn declare(
        params: &Params<'k, RepackQuantity>,
        element_bytes: u32,
        split: Option<SplitSpec>,
    ) -> (Job<'k>, Val<'k, ty::U32>) {
        let b = params.b;
        let first_ctas = params.scalar::<ty::U32>(RepackQuantity::CtasOfFirst);
        let cta = b.special(Special::Cta);
        let second = cta.ge(first_ctas);
        let index = second.select(cta - first_ctas, cta);

        // The parameters of one matrix are consecutive.
        let declare = |matrix: usize| {
            let quantity = |field| RepackQuantity::Matrix(matrix, field);
            let wide = RepackField::WIDE.map(|field| params.scalar::<ty::U64>(quantity(field)));
            let narrow = RepackField::NARROW.map(|field| params.scalar::<ty::U32>(quantity(field)));
            let scales = split.filter(SplitSpec::scaled);
            (wide, narrow, scales.map(|_| params.scalar::<ty::U64>(quantity(RepackField::Scales))))
        };
        let matrices: [_; MATRICES] = std::array::from_fn(declare);
        let wide: [_; RepackField::WIDE.len()] =
            std::array::from_fn(|i| second.select(matrices[1].0[i], matrices[0].0[i]));
        let narrow: [_; RepackField::NARROW.len()] =
            std::array::from_fn(|i| second.select(matrices[1].1[i], matrices[0].1[i]));
        let scales = matrices[0].2.zip(matrices[1].2);
        let scales = scales.map(|(first, other)| second.select(other, first));
        let [address, destination, span, stride, step, pitch, batch_stride, result_batch_stride] =
            wide;
        let [lines, full, remainder, result_lines, result_chunks, across, columns, ctas] = narrow;
        let which = index / ctas;
        let address = address + which.to_u64() * batch_stride;
        let scales = scales.map(|first| first + which.to_u64() * (result_lines.to_u64() * 4));
        let job = Job {
            source: Source {
                b,
                element_bytes,
                address,
                end: address + span,
                stride,
                step,
                lines,
                full,
                remainder,
            },
            result: Destination {
                address: destination + which.to_u64() * result_batch_stride,
                pitch,
                lines: result_lines,
                chunks: result_chunks,
                split: split.map(|spec| SplitStore { spec, scales }),
            },
            across,
            columns,
        };
        (job, index - which * ctas)
    }
}

impl<'k> Destination<'k> {
    /// Stores a chunk, unless it lies outside of the result.
    pub(super) fn store(
        &self,
        b: &'k KernelBuilder,
        line: Val<'k, ty::U32>,
        column: Val<'k, ty::U32>,
        words: [Val<'k, ty::U32>; 4],
    ) {
        b.if_(line.lt(self.lines) & column.lt(self.chunks), || {
            let address = self.address + line.to_u64() * self.pitch;
            match &self.split {
                None => b.store_global(address + column.to_u64() * u64::from(CHUNK_BYTES), words),
                Some(split) => split.store(b, address, line, column, words),
            }
        });
    }
}
