//! An operand's tile in a stage of an f32 kernel, and which elements of it a thread reads.
//!
//! A consumer reads four neighbouring lines at one depth with each load, so lines must lie side by
//! side. TMA brings MN-major tiles so. K-major tiles come line by line, and are transposed in place,
//! in blocks of 32 lines and up to 16 depths.

use pgemm_ir::{Element, OperandMajor, SwizzleMode, TensorMapSpec, Val, ty};

use super::operand::{BoxPlace, StageTile};

/// Bytes of an f32.
pub(crate) const ELEMENT_BYTES: u32 = 4;

/// Lines of a block that is transposed.
pub(crate) const BLOCK_LINES: u32 = 32;

/// Lines or depths that a lane loads at once.
pub(crate) const QUAD: u32 = 4;

/// Bytes of as many elements.
pub(crate) const QUAD_BYTES: u32 = QUAD * ELEMENT_BYTES;

/// One operand's tile of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTile {
    /// The dimension in which it is contiguous in global memory.
    pub(crate) major: OperandMajor,
    /// Rows of A or columns of B, a multiple of 32.
    pub(crate) lines: u32,
    /// Depth: 8, 16 or 32.
    pub(crate) k: u32,
    /// Depth of one TMA box: 8 or 16 where it is K-major, else all of it.
    pub(crate) box_depth: u32,
}

impl LineTile {
    /// A tile of `lines` lines and depth `k`; a K-major one comes in boxes of `box_depth`.
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

    /// The tile as the loader sees it.
    pub(crate) fn staged(&self) -> StageTile {
        let depth = self.box_depth;
        let bytes = self.lines * depth * ELEMENT_BYTES;
        let boxes = (0..self.k / depth)
            .map(|i| BoxPlace { mn: 0, k: i * depth, bytes: i * bytes })
            .collect();
        let tensor_map = self.tensor_map();
        StageTile { major: self.major, bytes: self.bytes(), tensor_map, boxes, slice: None }
    }

    /// The byte at which consumers find a line at a depth; additive over lines that have no bit in
    /// common.
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

    /// The same at depth 0, of a line that only the running thread knows.
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

/// How the quads of a tile are dealt out to warps and lanes along one dimension: in turn to the
/// lanes, then to the warps, so that the first lanes of all warps read the first quads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dealt {
    /// Lanes of a warp along this dimension: 4 or 8.
    pub(crate) lanes: u32,
    /// Warps along this dimension.
    pub(crate) warps: u32,
    /// Elements of a thread.
    pub(crate) thread: u32,
}

impl Dealt {
    /// A lane's place along this dimension. Shared memory serves 16 lanes at once that read 16 bytes
    /// each, where these are no more than 128 different ones and where either neighbours or lanes two
    /// apart read the same. So lanes that are neighbours differ along one dimension, others up to
    /// lane 15 along the other.
    pub(crate) fn place<'k>(&self, lane: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        match self.lanes {
            8 => lane / 2 % 8,
            _ => lane % 2 + lane / 16 * 2,
        }
    }

    /// The first line of a lane of a warp.
    pub(crate) fn first<'k>(
        &self,
        place: Val<'k, ty::U32>,
        warp: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        warp * (self.lanes * QUAD) + place * QUAD
    }

    /// The first line of each of a thread's quads, relative to its first.
    pub(crate) fn quads(self) -> impl Iterator<Item = u32> {
        let step = self.warps * self.lanes * QUAD;
        (0..self.thread / QUAD).map(move |quad| quad * step)
    }

    /// All lines of a thread, relative to its first.
    pub(crate) fn lines(self) -> impl Iterator<Item = u32> {
        self.quads().flat_map(|first| first..first + QUAD)
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
                // What is read at once lies side by side.
                let quad = |line, depth| tile.offset(line + 3, depth) - tile.offset(line, depth);
                let quads = (0..lines).step_by(4).flat_map(|line| (0..k).map(move |d| (line, d)));
                assert!(quads.into_iter().all(|(line, depth)| quad(line, depth) == 12));
                let filled = tile.staged().boxes.len() as u32 * tile.tensor_map().box_bytes();
                assert_eq!(filled, tile.bytes());
            }
        }
    }

    /// As TMA brings them, eight neighbouring lines at the same depths: with its swizzle they lie in
    /// different banks.
    #[test]
    fn lanes_that_transpose_do_not_wait_for_each_other() {
        for box_depth in [8, 16] {
            let tile = LineTile { major: OperandMajor::K, lines: 32, k: 16, box_depth };
            let swizzle = tile.tensor_map().swizzle;
            for (first, quad) in
                (0..32).step_by(8).flat_map(|first| (0..box_depth / QUAD).map(move |q| (first, q)))
            {
                let place = |line: u32| {
                    let plain = line * box_depth * ELEMENT_BYTES + quad * QUAD_BYTES;
                    swizzle.apply(plain) % 128 / QUAD_BYTES
                };
                let mut places: Vec<u32> = (first..first + 8).map(place).collect();
                places.sort_unstable();
                assert_eq!(places, (0..8).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn threads_share_all_lines() {
        for (lanes, warps, thread) in [(4, 2, 16), (8, 4, 8), (4, 4, 12), (8, 1, 4)] {
            let dealt = Dealt { lanes, warps, thread };
            let step = |index: u32| index * QUAD;
            let mut lines: Vec<u32> = (0..warps)
                .flat_map(|warp| (0..lanes).map(move |lane| step(warp * lanes + lane)))
                .flat_map(|first| dealt.lines().map(move |line| first + line))
                .collect();
            lines.sort_unstable();
            assert_eq!(lines, (0..lanes * warps * thread).collect::<Vec<_>>());
        }
    }
}
