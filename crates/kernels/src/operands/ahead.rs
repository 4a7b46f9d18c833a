//! Requests to L2 for the part of an operand that threads load next. The registers of these threads
//! hold few loads, so they wait for memory. A request keeps no register while memory answers, and
//! the load that follows finds its bytes in L2.

use pgemm_ir::{KernelBuilder, OperandMajor, Special, Val, WARPGROUP_THREADS, ty};

use super::lines::{MatrixUnits, MemoryMatrix};
use crate::coordinates::TileOrigin;
use crate::quantity::Side;
use crate::tiles::chunked::ChunkedTile;

/// Bytes of a line of L2.
const REQUEST_BYTES: u32 = 128;

/// The requests of a thread for one stage of a tile. The threads of the producer's warpgroup share
/// those of a stage: a thread asks for the same piece of every so many lines.
pub(super) struct Ahead<'k, 'o> {
    b: &'k KernelBuilder,
    units: MatrixUnits<'k>,
    tile: &'o ChunkedTile,
    stride: Val<'k, ty::U64>,
    /// Bytes from an element to the next one along K.
    step: Val<'k, ty::U64>,
    /// The thread's first line in the tile.
    line: Val<'k, ty::U32>,
    /// The unit of its piece of this line if K is 0, in bytes from the first unit.
    place: Val<'k, ty::U64>,
}

impl<'k, 'o> Ahead<'k, 'o> {
    pub(super) fn new(
        b: &'k KernelBuilder,
        tile: &'o ChunkedTile,
        side: Side,
        matrix: &MemoryMatrix<'k>,
        origin: TileOrigin<'k>,
    ) -> Self {
        let size = tile.element_bytes;
        let (units, stride) = (MatrixUnits::new(matrix, origin, size), matrix.stride);
        let size = u64::from(size);
        let first = origin.along(side).to_u64();
        let (start, step) = match tile.major {
            OperandMajor::K => (first * stride, b.constant(size)),
            OperandMajor::Mn => (first * size, stride),
        };
        let thread = b.special(Special::Thread);
        let (line, piece) = (thread / pieces(tile), thread % pieces(tile));
        // The last requests are for the last byte.
        let along = (piece * REQUEST_BYTES).min(line_bytes(tile) - 1);
        let place = units.start + start + line.to_u64() * stride + along.to_u64();
        let place = (place & !15) - units.first;
        Ahead { b, units, tile, stride, step, line, place }
    }

    /// Asks for the stage that begins at `k`, if it exists.
    pub(super) fn ask(&self, k: Val<'k, ty::U32>, exists: Val<'k, ty::Bool>) {
        let (lines, apart) = (self.tile.lines, WARPGROUP_THREADS / pieces(self.tile));
        let mut place = self.place + k.to_u64() * self.step;
        for first in (0..lines).step_by(apart as usize) {
            let is_in_tile = match first + apart <= lines {
                true => exists,
                false => exists & self.line.lt(lines - first),
            };
            self.units.ask_ahead(self.b, place, is_in_tile);
            place = place + self.stride * u64::from(apart);
        }
    }
}

/// Bytes of a line that the tile holds.
fn line_bytes(tile: &ChunkedTile) -> u32 {
    tile.length() * tile.element_bytes
}

/// Requests for each line, a power of two. A line that begins anywhere meets one piece more than
/// fit into it.
fn pieces(tile: &ChunkedTile) -> u32 {
    (line_bytes(tile).div_ceil(REQUEST_BYTES) + 1).next_power_of_two()
}
