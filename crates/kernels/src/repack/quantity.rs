//! [`RepackQuantity`] is the meaning of a parameter of a repack kernel. This module also computes
//! its value for a matrix.

use std::fmt;

use pgemm_ir::Argument;

use super::matrix::{MatrixRepack, REPACK_CHUNK_BYTES, TRANSPOSED, Units};

/// The meaning of a parameter of a repack kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepackQuantity {
    /// Number of CTAs of the first matrix.
    CtasOfFirst,
    /// A property of the first (0) or second (1) matrix.
    Matrix(usize, RepackField),
}

/// A property of a matrix that a parameter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepackField {
    /// Address of the source.
    Source,
    /// Address of the result.
    Destination,
    /// Bytes from the first element of the source to the end of its last element.
    Span,
    /// Bytes from one line of the source to the next.
    LineStride,
    /// Bytes from one element of a line to the next.
    Step,
    /// Bytes from one line of the result to the next.
    Pitch,
    /// Bytes from one matrix of the source to the next.
    BatchStride,
    /// Bytes from one matrix of the result to the next.
    ResultBatchStride,
    /// Lines of the source.
    Lines,
    /// Whole chunks of a line of the source.
    FullChunks,
    /// Bytes of a line after its whole chunks.
    RestBytes,
    /// Lines of the result.
    ResultLines,
    /// Chunks of a line of the result.
    ResultChunks,
    /// Number of tiles next to each other.
    Across,
    /// Binary logarithm of the number of chunks next to each other in a tile, or the mark that the
    /// matrix is transposed.
    Columns,
    /// Number of CTAs of one matrix.
    Ctas,
    /// Address of the scales.
    Scales,
}

impl RepackField {
    /// The fields of every matrix that are addresses, or numbers of bytes that may exceed 32 bits.
    pub(super) const WIDE: [RepackField; 8] = [
        RepackField::Source,
        RepackField::Destination,
        RepackField::Span,
        RepackField::LineStride,
        RepackField::Step,
        RepackField::Pitch,
        RepackField::BatchStride,
        RepackField::ResultBatchStride,
    ];

    /// The fields of every matrix that are counts.
    pub(super) const NARROW: [RepackField; 8] = [
        RepackField::Lines,
        RepackField::FullChunks,
        RepackField::RestBytes,
        RepackField::ResultLines,
        RepackField::ResultChunks,
        RepackField::Across,
        RepackField::Columns,
        RepackField::Ctas,
    ];

    fn name(self) -> &'static str {
        match self {
            RepackField::Source => "source",
            RepackField::Destination => "destination",
            RepackField::Span => "span",
            RepackField::LineStride => "line_stride",
            RepackField::Step => "step",
            RepackField::Pitch => "pitch",
            RepackField::BatchStride => "batch_stride",
            RepackField::ResultBatchStride => "result_batch_stride",
            RepackField::Lines => "lines",
            RepackField::FullChunks => "full",
            RepackField::RestBytes => "rest",
            RepackField::ResultLines => "result_lines",
            RepackField::ResultChunks => "result_chunks",
            RepackField::Across => "across",
            RepackField::Columns => "columns",
            RepackField::Ctas => "ctas",
            RepackField::Scales => "scales",
        }
    }
}

impl fmt::Display for RepackQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepackQuantity::CtasOfFirst => f.write_str("tiles_0"),
            RepackQuantity::Matrix(index, field) => write!(f, "{}_{index}", field.name()),
        }
    }
}

/// A matrix or a batch of matrices, from which the values of parameters are computed.
pub(super) struct Values<'m> {
    pub(super) matrix: &'m MatrixRepack,
    pub(super) units: Units,
    /// Number of CTAs of one matrix.
    pub(super) ctas: u32,
}

impl Values<'_> {
    pub(super) fn all_ctas(&self) -> u32 {
        self.ctas.saturating_mul(self.matrix.batch)
    }

    pub(super) fn value(&self, field: RepackField) -> Argument {
        let Values { matrix, units, ctas } = *self;
        let bytes = u64::from(units.element_bytes);
        let line_bytes = u64::from(matrix.length) * bytes;
        match field {
            RepackField::Source => Argument::U64(matrix.source),
            RepackField::Destination => Argument::U64(matrix.destination),
            RepackField::Span => {
                let lines = u64::from(matrix.lines - 1);
                Argument::U64(lines * matrix.line_stride * bytes + line_bytes)
            }
            RepackField::LineStride => Argument::U64(matrix.line_stride * bytes),
            RepackField::Step => Argument::U64(matrix.step * bytes),
            RepackField::Pitch => Argument::U64(matrix.pitch),
            RepackField::BatchStride => Argument::U64(matrix.batch_stride * bytes),
            RepackField::ResultBatchStride => Argument::U64(matrix.result_batch_stride),
            RepackField::Lines => Argument::U32(matrix.lines),
            RepackField::FullChunks => Argument::U32((line_bytes / REPACK_CHUNK_BYTES) as u32),
            RepackField::RestBytes => Argument::U32((line_bytes % REPACK_CHUNK_BYTES) as u32),
            RepackField::ResultLines => Argument::U32(matrix.result().0),
            RepackField::ResultChunks => Argument::U32(matrix.chunks(units) as u32),
            RepackField::Across => Argument::U32(matrix.tiles(units).0 as u32),
            RepackField::Columns => Argument::U32(match matrix.transposed {
                true => TRANSPOSED,
                false => matrix.columns(units).ilog2(),
            }),
            RepackField::Ctas => Argument::U32(ctas),
            RepackField::Scales => Argument::U64(matrix.scales),
        }
    }
}
