//! Loads by threads of operands that lie along M or N in memory, and that wgmma reads along K only:
//! those with elements of one byte. A thread loads a block, which is a chunk of each of four or
//! eight neighbouring lines, as [`super::lines`] loads chunks. It transposes the block in registers
//! and stores a piece of each row of the tile.
//!
//! The lanes of a warp are abreast along both dimensions: as many along K as store 64 bytes of a
//! row, and the others along M or N, so that a load reads whole sectors.

use pgemm_ir::{KernelBuilder, Special, Val, ty};

use super::lines::{ChunkUnits, MatrixUnits, MemoryMatrix, Units};
use crate::coordinates::TileOrigin;
use crate::layout::SwizzledOffset;
use crate::quantity::Side;
use crate::shift::{Shift, Words, across, masks};
use crate::tiles::chunked::CHUNK_BYTES;
use crate::tiles::turned::{BlockPlace, TurnedTile};

/// What the threads of the producer's warpgroup know of the tile of an operand that an item needs.
pub(super) struct TurnedLines<'k, 'o> {
    b: &'k KernelBuilder,
    tile: &'o TurnedTile,
    matrix: MemoryMatrix<'k>,
    units: MatrixUnits<'k>,
    /// The tile's first element along M or N.
    first: Val<'k, ty::U32>,
    /// For each line of a block, the bytes from a unit to the thread's chunk that begins in it. All
    /// blocks of the thread have the same: they are whole numbers of 16 lines or of 16-byte units
    /// apart.
    shifts: Vec<Val<'k, ty::U32>>,
    /// The thread's blocks.
    blocks: Vec<Block<'k>>,
}

/// A block of a thread.
struct Block<'k> {
    /// Whether it lies in the tile.
    exists: Val<'k, ty::Bool>,
    /// Its first line and its first element along M or N, in the tile.
    line: Val<'k, ty::U32>,
    row: Val<'k, ty::U32>,
    /// The byte of its first line if K is 0, counted from the first unit.
    at: Val<'k, ty::U64>,
    /// Offset in a stage of the first line's place in its first row.
    offset: Val<'k, ty::U32>,
}

impl<'k, 'o> TurnedLines<'k, 'o> {
    pub(super) fn new(
        b: &'k KernelBuilder,
        tile: &'o TurnedTile,
        side: Side,
        matrix: MemoryMatrix<'k>,
        origin: TileOrigin<'k>,
    ) -> Self {
        let units = MatrixUnits::new(&matrix, origin, 1);
        let first = origin.along(side);
        let thread = b.special(Special::Thread);
        let blocks = (0..tile.passes())
            .map(|pass| {
                let BlockPlace { exists, span, line, row } = tile.place(thread, pass);
                let in_span = line;
                let line = span * tile.span_bytes + line;
                let address = units.start + line.to_u64() * matrix.stride + (first + row).to_u64();
                Block {
                    exists,
                    line,
                    row,
                    at: address - units.first,
                    offset: span * tile.bytes_of_span() + row * tile.span_bytes + in_span,
                }
            })
            .collect::<Vec<_>>();
        // Units begin at multiples of their size.
        let start = blocks[0].at;
        let shifts = (0..tile.lines)
            .map(|line| (start + matrix.stride * u64::from(line)).low_word() & 15)
            .collect();
        TurnedLines { b, tile, matrix, units, first, shifts, blocks }
    }

    /// Starts the loads of all blocks of the stage that begins at `k`, each after `before`. If the
    /// stage does not exist, these are loads of a unit of the matrix.
    pub(super) fn load(
        &self,
        k: Val<'k, ty::U32>,
        exists: Val<'k, ty::Bool>,
        mut before: impl FnMut(usize),
    ) -> Units<'k> {
        let depth = k.to_u64() * self.matrix.stride;
        let mut loaded = vec![];
        for (index, block) in self.blocks.iter().enumerate() {
            before(index);
            let exists = exists & block.exists;
            let mut at = block.at + depth;
            for shift in &self.shifts {
                let low = at & !15;
                let next = shift.ne(0).select::<ty::U64>(16, 0);
                let load = |at| self.units.load(self.b, at, exists).to_vec();
                loaded.push((load(low), load(low + next)));
                at = at + self.matrix.stride;
            }
        }
        loaded
    }

    /// Stores block `index` of the thread in the stage that begins at `k`. Lines beyond the end of
    /// K become zeros, whatever their units hold.
    pub(super) fn store(
        &self,
        stage: Val<'k, ty::Smem>,
        k: Val<'k, ty::U32>,
        index: usize,
        units: &Units<'k>,
    ) {
        let (b, tile, block) = (self.b, self.tile, &self.blocks[index]);
        let count = tile.lines as usize;
        let lines: Vec<Words<'k>> = units[index * count..(index + 1) * count]
            .iter()
            .zip(&self.shifts)
            .map(|((low, high), shift): (&ChunkUnits<'k>, _)| {
                let [low, high] = [low, high].map(|unit| std::array::from_fn(|i| unit[i]));
                Shift::new(*shift, 1).down(&low, &high)
            })
            .collect();
        let line = k + block.line;
        let valid = (self.matrix.lines.max(line) - line).min(tile.lines);
        let masks = masks(b, valid);
        // For each row, the bytes of four lines in each word.
        let words: Vec<_> = lines
            .chunks(4)
            .zip(masks)
            .map(|(lines, mask)| {
                let rows = across(lines, 1).into_iter().flatten();
                rows.map(|word| word & mask).collect::<Vec<_>>()
            })
            .collect();
        let store_rows = |rows: std::ops::Range<u32>| {
            for row in rows {
                let place = SwizzledOffset::new(row * tile.span_bytes, tile.swizzle);
                let place = stage.offset(place.plus(block.offset));
                let at = row as usize;
                match &words[..] {
                    [words] => b.store_shared(place, [words[at]]),
                    [low, high, ..] => b.store_shared(place, [low[at], high[at]]),
                    [] => {}
                }
            }
        };
        // Tiles have a multiple of eight rows.
        let half = CHUNK_BYTES / 2;
        b.if_(block.exists, || {
            store_rows(0..half);
            let there = (block.row + half).lt(tile.rows);
            match tile.rows.is_multiple_of(CHUNK_BYTES) {
                true => store_rows(half..CHUNK_BYTES),
                false => b.if_(there, || store_rows(half..CHUNK_BYTES)),
            }
        });
    }

    /// Stores all blocks of the last stage of a tile, which begins at `k`. Nothing is loaded behind
    /// it.
    pub(super) fn store_last(
        &self,
        stage: Val<'k, ty::Smem>,
        k: Val<'k, ty::U32>,
        units: &Units<'k>,
    ) {
        (0..self.blocks.len()).for_each(|index| self.store(stage, k, index, units));
    }

    /// Whether elements of the product's matrix are in a unit which is partly outside of the span
    /// of the batch.
    pub(super) fn is_at_end(&self) -> Val<'k, ty::Bool> {
        self.units.are_left_by([self.units.start, self.units.end])
    }

    /// Stores those chunks of the stage that begins at `k` again that have elements in such a unit,
    /// element by element. Only stages at both ends of the batch have some.
    pub(super) fn store_ends(&self, stage: Val<'k, ty::Smem>, k: Val<'k, ty::U32>) {
        let (b, tile, matrix) = (self.b, self.tile, self.matrix);
        let depth = tile.depth();
        let address = |line: Val<'k, ty::U32>, element: Val<'k, ty::U32>| {
            self.units.start + line.to_u64() * matrix.stride + element.to_u64()
        };
        let last_line = matrix.lines.min(k + depth) - 1;
        let last = address(last_line, matrix.length.min(self.first + tile.rows));
        b.if_(self.units.are_left_by([address(k, self.first), last]), || {
            b.scope("ends", || {
                for block in &self.blocks {
                    b.for_range(0, tile.lines, 1, |line| {
                        let of_matrix = k + block.line + line;
                        let row = self.first + block.row;
                        // Elements of the chunk that the line and the tile have.
                        let most = (b.constant::<ty::U32>(tile.rows) - block.row).min(CHUNK_BYTES);
                        let valid = (matrix.length.max(row) - row).min(most);
                        let from = address(of_matrix, row);
                        let leaves = self.units.are_left_by([from, from + valid.to_u64()]);
                        let is_there = block.exists & of_matrix.lt(matrix.lines) & valid.ne(0);
                        b.if_(is_there & leaves, || {
                            b.for_range(0, valid, 1, |i| {
                                let element = b.load_narrow(from + i.to_u64(), 1);
                                let place =
                                    tile.swizzled(block.offset + line + i * tile.span_bytes);
                                b.store_narrow_shared(stage.offset(place), 1, element);
                            });
                        });
                    });
                }
            });
        });
    }
}
