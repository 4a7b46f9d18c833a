//! [`MatrixRepack`] describes a matrix, the destination of its copy, and the tiles into which the
//! copy is divided.

use pgemm_ir::WARPGROUP_THREADS;

use crate::tiles::chunked::CHUNK_BYTES;

/// Bytes of a chunk, which a thread moves at once. Destinations and pitches are multiples of it.
pub const REPACK_CHUNK_BYTES: u64 = CHUNK_BYTES as u64;

pub(super) const WARPGROUPS: u32 = 2;
pub(super) const THREADS: u32 = WARPGROUPS * WARPGROUP_THREADS;
/// Number of chunks of a thread. All of them are in flight before the first is stored.
pub(super) const BATCH: u32 = 4;
/// Number of chunks in a row of the widest tile of a copy that keeps the direction of lines. It is
/// a power of two.
const MOST_COLUMNS: u32 = 64;
/// This value takes the place of the logarithm of a tile's width if the matrix is transposed.
pub(super) const TRANSPOSED: u32 = 31;
/// Number of lines of the result in a transposed tile, which is also the number of bytes of each
/// line.
pub(super) const TRANSPOSED_LINES: u32 = 128;
pub(super) const TRANSPOSED_BYTES: u32 = THREADS * BATCH * CHUNK_BYTES / TRANSPOSED_LINES;

/// One matrix or a batch of matrices, and the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixRepack {
    /// Address of the first element, a multiple of its size.
    pub source: u64,
    /// Number of lines of the source, at least 1.
    pub lines: u32,
    /// Number of elements of each line, at least 1.
    pub length: u32,
    /// Elements from one line to the next. It is 0 if all lines are the same.
    pub line_stride: u64,
    /// Elements from one element of a line to the next. A step of 1 is fast. It is 0 if all
    /// elements of a line are the same.
    pub step: u64,
    /// Address of the result, a multiple of 16.
    pub destination: u64,
    /// Bytes from one line of the result to the next. It is a multiple of 16, and a line fits into
    /// it.
    pub pitch: u64,
    /// Whether the result is transposed: it then has `length` lines of `lines` elements.
    pub transposed: bool,
    /// Number of matrices, at least 1. A launch has fewer than 2^31 CTAs, each of which copies at
    /// most 8 KiB of one matrix.
    pub batch: u32,
    /// Elements from one matrix to the next.
    pub batch_stride: u64,
    /// Bytes from one result to the next, a multiple of 16.
    pub result_batch_stride: u64,
    /// Address of the scales, a multiple of 4. There is one binary32 for each line of the result.
    /// The scales of all matrices of a batch are stored one after the other. Kernels without scales
    /// ignore the address.
    pub scales: u64,
}

impl MatrixRepack {
    /// Number of lines of the result, and of elements of each line.
    pub fn result(&self) -> (u32, u32) {
        if self.transposed { (self.length, self.lines) } else { (self.lines, self.length) }
    }

    /// The smallest legal pitch of the result, in bytes.
    pub fn least_pitch(&self, element_bytes: u32) -> u64 {
        chunks(self.result().1, element_bytes) * REPACK_CHUNK_BYTES
    }

    /// Number of chunks of a line of the result, before it is split into terms.
    pub(super) fn chunks(&self, units: Units) -> u64 {
        chunks(self.result().1, units.element_bytes).next_multiple_of(units.chunks)
    }

    /// Number of tiles next to each other, and number of rows of tiles.
    pub(super) fn tiles(&self, units: Units) -> (u64, u64) {
        let chunks = self.chunks(units);
        if self.transposed {
            let across = u64::from(self.length.div_ceil(TRANSPOSED_LINES));
            return (across, chunks.div_ceil(u64::from(TRANSPOSED_BYTES / CHUNK_BYTES)));
        }
        let columns = u64::from(self.columns(units));
        let rows = u64::from(THREADS * units.batch) / columns;
        (chunks.div_ceil(columns), u64::from(self.lines).div_ceil(rows))
    }

    /// Number of chunks next to each other in a tile of a copy, which is a power of two.
    pub(super) fn columns(&self, units: Units) -> u32 {
        self.chunks(units).min(MOST_COLUMNS.into()).next_power_of_two() as u32
    }
}

/// The division of lines into chunks.
#[derive(Clone, Copy)]
pub(super) struct Units {
    pub(super) element_bytes: u32,
    /// The number of chunks of a line of the result is a multiple of this. The last chunks are
    /// zeros.
    pub(super) chunks: u64,
    /// Number of chunks of a thread.
    pub(super) batch: u32,
}

/// Number of chunks of a line of `length` elements. The last chunk may be partial.
fn chunks(length: u32, element_bytes: u32) -> u64 {
    (u64::from(length) * u64::from(element_bytes)).div_ceil(CHUNK_BYTES.into())
}

impl MatrixRepack {
    /// Number of CTAs that copy one matrix. There is one for each tile.
    pub(super) fn tile_count(&self, units: Units) -> u32 {
        let (across, down) = self.tiles(units);
        (across * down) as u32
    }
}
