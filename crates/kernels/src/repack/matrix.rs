//! [`MatrixRepack`]: a matrix, where its copy goes, and the tiles into which the copy is divided.

use pgemm_ir::WARPGROUP_THREADS;

/// Bytes of a chunk, which a thread moves at once. Destinations and pitches are multiples of it.
pub const REPACK_CHUNK_BYTES: u64 = CHUNK_BYTES as u64;

pub(super) const CHUNK_BYTES: u32 = 16;
pub(super) const WARPGROUPS: u32 = 2;
pub(super) const THREADS: u32 = WARPGROUPS * WARPGROUP_THREADS;
/// Chunks of a thread. All of them are in flight before the first is stored.
pub(super) const BATCH: u32 = 4;
/// Chunks of a row of the widest tile of a copy that keeps the direction of lines. A power of two.
const MOST_COLUMNS: u32 = 64;
/// Stands in place of the logarithm of a tile's width where the matrix is transposed.
pub(super) const TRANSPOSED: u32 = 31;
/// Lines of the result of a transposed tile, and bytes of each line.
pub(super) const TRANSPOSED_LINES: u32 = 128;
pub(super) const TRANSPOSED_BYTES: u32 = THREADS * BATCH * CHUNK_BYTES / TRANSPOSED_LINES;

/// One matrix and where it goes, or a batch of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixRepack {
    /// Address of the first element, a multiple of its size.
    pub source: u64,
    /// Lines of the source, at least 1.
    pub lines: u32,
    /// Elements of each, at least 1.
    pub length: u32,
    /// Elements from one line to the next; 0 where all lines are the same one.
    pub line_stride: u64,
    /// Elements from one element of a line to the next: 1 is fast; 0 where all are the same one.
    pub step: u64,
    /// Address of the result, a multiple of 16.
    pub destination: u64,
    /// Bytes from one line of the result to the next, a multiple of 16 that holds one.
    pub pitch: u64,
    /// Whether the result is transposed: it then has `length` lines of `lines` elements.
    pub transposed: bool,
    /// Matrices, at least 1. A launch has fewer than 2^31 CTAs, each of which copies at most 8 KiB
    /// of one matrix.
    pub batch: u32,
    /// Elements from one matrix to the next.
    pub batch_stride: u64,
    /// Bytes from one result to the next, a multiple of 16.
    pub result_batch_stride: u64,
    /// Address of the scales, a multiple of 4: a binary32 for each line of the result. The scales
    /// of a batch's matrices follow each other. Kernels without scales ignore the address.
    pub scales: u64,
}

impl MatrixRepack {
    /// Lines of the result, and elements of each.
    pub fn result(&self) -> (u32, u32) {
        if self.transposed { (self.length, self.lines) } else { (self.lines, self.length) }
    }

    /// The least pitch of the result, in bytes.
    pub fn least_pitch(&self, element_bytes: u32) -> u64 {
        chunks(self.result().1, element_bytes) * REPACK_CHUNK_BYTES
    }

    /// Chunks of a line of the result, before it is split into terms.
    pub(super) fn chunks(&self, units: Units) -> u64 {
        chunks(self.result().1, units.element_bytes).next_multiple_of(units.chunks)
    }

    /// Tiles side by side, and rows of them.
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

    /// Chunks side by side in a tile of a copy: a power of two.
    pub(super) fn columns(&self, units: Units) -> u32 {
        self.chunks(units).min(MOST_COLUMNS.into()).next_power_of_two() as u32
    }
}

/// How lines are divided into chunks.
#[derive(Clone, Copy)]
pub(super) struct Units {
    pub(super) element_bytes: u32,
    /// The number of chunks of a line of the result is a multiple of this. The last chunks are
    /// zeros.
    pub(super) chunks: u64,
    /// Chunks of a thread.
    pub(super) batch: u32,
}

/// Chunks of a line of `length` elements; the last may be cut short.
fn chunks(length: u32, element_bytes: u32) -> u64 {
    (u64::from(length) * u64::from(element_bytes)).div_ceil(CHUNK_BYTES.into())
}

impl MatrixRepack {
    /// CTAs that copy one matrix, one for each tile.
    pub(super) fn tile_count(&self, units: Units) -> u32 {
        let (across, down) = self.tiles(units);
        (across * down) as u32
    }
}
