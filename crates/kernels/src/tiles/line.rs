//! An operand's tile in a stage of an f32 kernel, and the elements of it that a thread reads.
//!
//! A consumer reads four neighbouring lines at one depth with each load, or four depths of one line
//! ([`LineForm`]).

use pgemm_ir::{Element, OperandMajor, SwizzleMode, TensorMapSpec, Val, ty};

use super::operand::{BoxPlace, StageTile};
use crate::layout::swizzled;

/// Number of neighbouring lines, or depths, that a lane loads at once.
pub(crate) const QUAD: u32 = 4;

/// Bytes of an f32.
pub(crate) const ELEMENT_BYTES: u32 = 4;

/// Lines of a block that is transposed.
pub(crate) const BLOCK_LINES: u32 = 32;

/// The largest depth of a TMA box of a K-major tile. The swizzle of 64 bytes then covers a line.
const MOST_BOX_DEPTH: u32 = 16;

/// How the elements of a tile lie in shared memory when consumers read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineForm {
    /// Neighbouring lines are contiguous, as TMA loads an MN-major tile.
    Lines,
    /// Neighbouring lines are contiguous, in blocks of 32 lines and up to 16 depths. TMA has loaded
    /// a K-major tile line by line, and helper warps have transposed it in place.
    Transposed,
    /// Neighbouring depths are contiguous, as TMA loads a K-major tile.
    Depths,
}

/// One operand's tile of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTile {
    /// The place of elements in shared memory.
    pub(crate) form: LineForm,
    /// Rows of A or columns of B, a multiple of 32.
    pub(crate) lines: u32,
    /// Depth: 8, 16 or 32.
    pub(crate) k: u32,
    /// Depth of one TMA box. It is 8 or 16 if the tile is K-major, else the depth of the tile.
    pub(crate) box_depth: u32,
}

impl LineTile {
    /// An MN-major tile of `lines` lines and depth `k`.
    pub(crate) fn by_lines(lines: u32, k: u32) -> Self {
        LineTile { form: LineForm::Lines, lines, k, box_depth: k }
    }

    /// A K-major tile that is transposed. It is loaded in boxes of depth `box_depth`.
    pub(crate) fn transposed(lines: u32, k: u32, box_depth: u32) -> Self {
        LineTile { form: LineForm::Transposed, lines, k, box_depth }
    }

    /// A K-major tile that is read as it was loaded.
    pub(crate) fn by_depths(lines: u32, k: u32) -> Self {
        LineTile { form: LineForm::Depths, lines, k, box_depth: k.min(MOST_BOX_DEPTH) }
    }

    /// The dimension in which the operand is contiguous in global memory.
    pub(crate) fn major(&self) -> OperandMajor {
        match self.form {
            LineForm::Lines => OperandMajor::Mn,
            LineForm::Transposed | LineForm::Depths => OperandMajor::K,
        }
    }

    /// Bytes in shared memory.
    pub(crate) fn bytes(&self) -> u32 {
        self.lines * self.k * ELEMENT_BYTES
    }

    /// The TMA box.
    pub(crate) fn tensor_map(&self) -> TensorMapSpec {
        let depth = self.box_depth;
        let (box_extents, swizzle) = match self.major() {
            OperandMajor::K if depth == 8 => (vec![depth, self.lines], SwizzleMode::B32),
            OperandMajor::K => (vec![depth, self.lines], SwizzleMode::B64),
            OperandMajor::Mn => (vec![self.lines, depth], SwizzleMode::None),
        };
        TensorMapSpec::tiled(Element::F32, box_extents, swizzle)
    }

    /// The tile in the form that the loader uses.
    pub(crate) fn staged(&self) -> StageTile {
        let depth = self.box_depth;
        let bytes = self.lines * depth * ELEMENT_BYTES;
        let boxes = (0..self.k / depth)
            .map(|i| BoxPlace { mn: 0, k: i * depth, bytes: i * bytes })
            .collect();
        let tensor_map = self.tensor_map();
        StageTile { major: self.major(), bytes: self.bytes(), tensor_map, boxes, slice: None }
    }

    /// The byte offset of a line at a depth, as consumers read the tile. It is additive over lines
    /// that have no bit in common, if they are contiguous. Where depths are contiguous, TMA's
    /// swizzle is applied to it.
    pub(crate) fn offset(&self, line: u32, k: u32) -> u32 {
        let depth = self.box_depth;
        let boxes = k / depth * self.lines * depth;
        let elements = match self.form {
            LineForm::Lines => k * self.lines + line,
            LineForm::Transposed => {
                let (block, row) = (line / BLOCK_LINES, k % depth);
                boxes + (block * depth + row) * BLOCK_LINES + line % BLOCK_LINES
            }
            LineForm::Depths => boxes + line * depth + k % depth,
        };
        elements * ELEMENT_BYTES
    }

    /// The byte offset at depth 0 of a line that only the running thread knows.
    pub(crate) fn offset_of<'k>(&self, line: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        match self.form {
            LineForm::Lines => line * ELEMENT_BYTES,
            LineForm::Transposed => {
                let block = line / BLOCK_LINES * (BLOCK_LINES * self.box_depth);
                (block + line % BLOCK_LINES) * ELEMENT_BYTES
            }
            LineForm::Depths => {
                swizzled(line * (self.box_depth * ELEMENT_BYTES), self.tensor_map().swizzle)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_place_of_its_own() {
        for (lines, k, box_depth) in [(96, 8, 8), (64, 16, 8), (128, 32, 16), (32, 16, 16)] {
            let tiles = [
                LineTile::by_lines(lines, k),
                LineTile::transposed(lines, k, box_depth),
                LineTile::by_depths(lines, k),
            ];
            for tile in tiles {
                let mut offsets: Vec<u32> = (0..lines)
                    .flat_map(|line| (0..k).map(move |depth| tile.offset(line, depth)))
                    .collect();
                offsets.sort_unstable();
                let all: Vec<u32> = (0..lines * k).map(|element| element * ELEMENT_BYTES).collect();
                assert_eq!(offsets, all, "{tile:?}");
                // Elements that are read at once are contiguous.
                let [of_lines, of_depths] = match tile.form {
                    LineForm::Depths => [1, QUAD],
                    LineForm::Lines | LineForm::Transposed => [QUAD, 1],
                };
                let quad = |line, depth| {
                    let last = tile.offset(line + of_lines - 1, depth + of_depths - 1);
                    last - tile.offset(line, depth)
                };
                let depths = || (0..k).step_by(of_depths as usize);
                let mut quads = (0..lines)
                    .step_by(of_lines as usize)
                    .flat_map(|line| depths().map(move |depth| (line, depth)));
                assert!(quads.all(|(line, depth)| quad(line, depth) == 12));
                let filled = tile.staged().boxes.len() as u32 * tile.tensor_map().box_bytes();
                assert_eq!(filled, tile.bytes());
            }
        }
    }
}
