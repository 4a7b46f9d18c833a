//! [`TurnedTile`]: the tile of a K-major operand in one stage, divided into the blocks that threads
//! transpose. Elements have one byte. A block is a chunk of each of some neighbouring lines of an
//! operand that lies along M or N in memory. The threads of a warpgroup store one block each in a
//! pass.

use pgemm_ir::{SwizzleMode, Val, WARPGROUP_WARPS, ty};

use super::chunked::CHUNK_BYTES;
use super::operand::{OperandTile, StageTile};
use crate::layout::swizzled;

/// Lanes of a warp.
const LANES: u32 = 32;

/// Bytes of a row of the tile that the lanes of a warp store together.
const ROW_BYTES: u32 = 64;

/// Lines of a block, the preferred number first: stores of eight bytes take fewer instructions than
/// those of four. Tiles that are too small to leave such a block to each thread of the warpgroup
/// have blocks of the second number.
const LINES: [u32; 2] = [8, 4];

/// The blocks of a stage's tile.
#[derive(Clone, Debug)]
pub(crate) struct TurnedTile {
    /// Rows along M or N, a multiple of 8.
    pub(crate) rows: u32,
    pub(crate) span_bytes: u32,
    pub(crate) swizzle: SwizzleMode,
    spans: u32,
    /// Lines of a block.
    pub(crate) lines: u32,
}

/// The place of a thread's block in a pass.
pub(crate) struct BlockPlace<'k> {
    /// Whether the block lies in the tile.
    pub(crate) exists: Val<'k, ty::Bool>,
    pub(crate) span: Val<'k, ty::U32>,
    /// The first line, counted from the span's first.
    pub(crate) line: Val<'k, ty::U32>,
    /// The first row.
    pub(crate) row: Val<'k, ty::U32>,
}

impl OperandTile {
    /// Number of chunks that a thread loads if a warpgroup turns the tile. The planner asks for it
    /// often, so it is computed without the layout.
    pub(crate) fn turned_chunks(&self) -> u32 {
        let spans = self.spans();
        let rows = self.lines();
        let span_bytes = self.bytes() / (spans * rows).max(1);
        let tile = TurnedTile::of(rows, span_bytes, self.swizzle(), spans);
        tile.passes() * tile.lines
    }
}

impl TurnedTile {
    /// The blocks of a K-major tile that one CTA loads.
    pub(crate) fn new(tile: &StageTile) -> Self {
        let [span, rows] = [tile.tensor_map.box_extents[0], tile.tensor_map.box_extents[1]];
        let span_bytes = span * tile.tensor_map.element.bytes();
        TurnedTile::of(rows, span_bytes, tile.tensor_map.swizzle, tile.boxes.len() as u32)
    }

    fn of(rows: u32, span_bytes: u32, swizzle: SwizzleMode, spans: u32) -> Self {
        let with = |lines| TurnedTile { rows, span_bytes, swizzle, spans, lines };
        let [most, fewest] = LINES.map(with);
        if most.warps() >= WARPGROUP_WARPS { most } else { fewest }
    }

    /// Lanes of a warp that are abreast along K, and along M or N.
    fn lanes(&self) -> [u32; 2] {
        let along_k = ROW_BYTES / self.lines;
        [along_k, LANES / along_k]
    }

    /// Chunks of a line.
    fn chunks(&self) -> u32 {
        self.rows.div_ceil(CHUNK_BYTES)
    }

    /// Warps side by side along K in a span, and along M or N.
    fn warps_along(&self) -> [u32; 2] {
        [self.span_bytes / ROW_BYTES, self.chunks().div_ceil(self.lanes()[1])]
    }

    /// Warps that have a block of the tile for each lane.
    fn warps(&self) -> u32 {
        self.warps_along().iter().product::<u32>() * self.spans
    }

    /// Number of passes of the warpgroup. In the last one there may be fewer blocks.
    pub(crate) fn passes(&self) -> u32 {
        self.warps().div_ceil(WARPGROUP_WARPS)
    }

    /// Lines of the tile.
    pub(crate) fn depth(&self) -> u32 {
        self.spans * self.span_bytes
    }

    pub(crate) fn bytes_of_span(&self) -> u32 {
        self.rows * self.span_bytes
    }

    /// The place of a byte offset in the swizzled tile.
    pub(crate) fn swizzled<'k>(&self, bytes: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        swizzled(bytes, self.swizzle)
    }

    /// The block of a thread of the warpgroup in a pass.
    pub(crate) fn place<'k>(&self, thread: Val<'k, ty::U32>, pass: u32) -> BlockPlace<'k> {
        let [along_k, along_mn] = self.lanes();
        let [warps_k, warps_mn] = self.warps_along();
        let (lane, warp) = (thread % LANES, thread / LANES + pass * WARPGROUP_WARPS);
        let (half, rest) = (warp % warps_k, warp / warps_k);
        let (span, beside) = (rest / warps_mn, rest % warps_mn);
        let chunk = beside * along_mn + lane / along_k;
        BlockPlace {
            exists: chunk.lt(self.chunks()) & span.lt(self.spans),
            span,
            line: half * ROW_BYTES + lane % along_k * self.lines,
            row: chunk * CHUNK_BYTES,
        }
    }
}
