//! An operand's tile in a stage of an f32 kernel, and the elements of it that a thread reads.
//!
//! A consumer reads four neighbouring lines at one depth with each load, so neighbouring lines must
//! be contiguous. TMA loads MN-major tiles in this form. It loads K-major tiles line by line, and
//! they are transposed in place, in blocks of 32 lines and up to 16 depths.

use pgemm_ir::{Element, OperandMajor, SwizzleMode, TensorMapSpec, Val, ty};

use super::operand::{BoxPlace, StageTile};

/// Bytes of an f32.
pub(crate) const ELEMENT_BYTES: u32 = 4;

/// Lines of a block that is transposed.
pub(crate) const BLOCK_LINES: u32 = 32;

/// One operand's tile of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTile {
    /// The dimension in which it is contiguous in global memory.
    pub(crate) major: OperandMajor,
    /// Rows of A or columns of B, a multiple of 32.
    pub(crate) lines: u32,
    /// Depth: 8, 16 or 32.
    pub(crate) k: u32,
    /// Depth of one TMA box. It is 8 or 16 if the tile is K-major, else the depth of the tile.
    pub(crate) box_depth: u32,
}

impl LineTile {
    /// A tile of `lines` lines and depth `k`. A K-major tile is loaded in boxes of depth
    /// `box_depth`.
    pub(crate) fn new(major: OperandMajor, lines: u32, k: u32, box_depth: u32) -> Self {
        let box_depth = if major == OperandMajor::K { box_depth } else { k };
        LineTile { major, lines, k, box_depth }
    }

    /// Bytes in shared memory.
    pub(crate) fn bytes(&self) -> u32 {
        self.lines * self.k * ELEMENT_BYTES
    }

    /// The TMA box.
    pub(crate) fn tensor_map(&self) -> TensorMapSpec {
        let depth = self.box_depth;
        let (box_extents, swizzle) = match self.major {
            OperandMajor::K if depth == 8 => (vec![depth, self.lines], SwizzleMode::B32),
            OperandMajor::K => (vec![depth, self.lines], SwizzleMode::B64),
            OperandMajor::Mn => (vec![self.lines, depth], SwizzleMode::None),
        };
        TensorMapSpec { element: Element::F32, box_extents, swizzle }
    }

    /// The tile in the form that the loader uses.
    pub(crate) fn staged(&self) -> StageTile {
        let depth = self.box_depth;
        let bytes = self.lines * depth * ELEMENT_BYTES;
        let boxes = (0..self.k / depth)
            .map(|i| BoxPlace { mn: 0, k: i * depth, bytes: i * bytes })
            .collect();
        let tensor_map = self.tensor_map();
        StageTile { major: self.major, bytes: self.bytes(), tensor_map, boxes, slice: None }
    }

    /// The byte offset of a line at a depth, as consumers read the tile. It is additive over lines
    /// that have no bit in common.
    pub(crate) fn offset(&self, line: u32, k: u32) -> u32 {
        let depth = self.box_depth;
        let elements = match self.major {
            OperandMajor::K => {
                let (block, row) = (line / BLOCK_LINES, k % depth);
                let boxes = k / depth * self.lines * depth;
                boxes + (block * depth + row) * BLOCK_LINES + line % BLOCK_LINES
            }
            OperandMajor::Mn => k * self.lines + line,
        };
        elements * ELEMENT_BYTES
    }

    /// The byte offset at depth 0 of a line that only the running thread knows.
    pub(crate) fn offset_of<'k>(&self, line: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        let elements = match self.major {
            OperandMajor::K => {
                line / BLOCK_LINES * (BLOCK_LINES * self.box_depth) + line % BLOCK_LINES
            }
            OperandMajor::Mn => line,
        };
        elements * ELEMENT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_place_of_its_own() {
        for (lines, k, box_depth) in [(96, 8, 8), (64, 16, 8), (128, 32, 16), (32, 16, 16)] {
            for (major, box_depth) in [(OperandMajor::K, box_depth), (OperandMajor::Mn, k)] {
                let tile = LineTile { major, lines, k, box_depth };
                let mut offsets: Vec<u32> = (0..lines)
                    .flat_map(|line| (0..k).map(move |depth| tile.offset(line, depth)))
                    .collect();
                offsets.sort_unstable();
                let all: Vec<u32> = (0..lines * k).map(|element| element * ELEMENT_BYTES).collect();
                assert_eq!(offsets, all, "{tile:?}");
                // Elements that are read at once are contiguous.
                let quad = |line, depth| tile.offset(line + 3, depth) - tile.offset(line, depth);
                let quads = (0..lines).step_by(4).flat_map(|line| (0..k).map(move |d| (line, d)));
                assert!(quads.into_iter().all(|(line, depth)| quad(line, depth) == 12));
                let filled = tile.staged().boxes.len() as u32 * tile.tensor_map().box_bytes();
                assert_eq!(filled, tile.bytes());
            }
        }
    }
}
