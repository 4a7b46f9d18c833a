//! [`ChunkedTile`]: the tile of an operand in one stage, divided into the chunks of 16 bytes that
//! the threads of a warpgroup store. One pass of the warpgroup stores consecutive lines of a span.

use pgemm_ir::{OperandMajor, SwizzleMode, WARPGROUP_THREADS};

use super::operand::{BoxPlace, OperandTile, StageTile};

/// Bytes that a thread loads or stores at once.
pub(crate) const CHUNK_BYTES: u32 = 16;

/// Bytes of a stage that a warpgroup stores in one pass.
pub(crate) const PASS_BYTES: u32 = WARPGROUP_THREADS * CHUNK_BYTES;

/// The chunks of a stage's tile.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedTile {
    pub(crate) major: OperandMajor,
    pub(crate) element_bytes: u32,
    pub(crate) span_bytes: u32,
    pub(crate) swizzle: SwizzleMode,
    /// Lines of a span.
    pub(crate) lines: u32,
    /// The first element and the first byte of each span.
    pub(crate) spans: Vec<BoxPlace>,
}

/// A pass over the lines of a span, in which each thread stores one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) span: usize,
    /// Number of the pass, which begins at this multiple of the lines of a pass.
    pub(crate) index: u32,
}

impl OperandTile {
    /// Number of passes in which a warpgroup stores the tile. The planner asks for it often, so it
    /// is computed without the layout.
    pub(crate) fn pass_count(&self) -> u32 {
        let spans = self.spans();
        spans * (self.bytes() / spans.max(1)).div_ceil(PASS_BYTES)
    }
}

impl ChunkedTile {
    /// The chunks of a tile that one CTA loads.
    pub(crate) fn new(tile: &StageTile) -> Self {
        let element_bytes = tile.tensor_map.element.bytes();
        ChunkedTile {
            major: tile.major,
            element_bytes,
            span_bytes: tile.tensor_map.box_extents[0] * element_bytes,
            swizzle: tile.tensor_map.swizzle,
            lines: tile.tensor_map.box_extents[1],
            spans: tile.boxes.clone(),
        }
    }

    /// Lines that the threads cover in one pass.
    pub(crate) fn lines_of_pass(&self) -> u32 {
        PASS_BYTES / self.span_bytes
    }

    /// Number of passes over the lines of a span. The last may have fewer lines.
    pub(crate) fn passes_of_span(&self) -> u32 {
        self.lines.div_ceil(self.lines_of_pass())
    }

    /// All passes, span by span.
    pub(crate) fn passes(&self) -> Vec<Pass> {
        let of_span = |span| (0..self.passes_of_span()).map(move |index| Pass { span, index });
        (0..self.spans.len()).flat_map(of_span).collect()
    }

    /// First element of a span along its lines, counted from the tile's first.
    pub(crate) fn along_line(&self, span: usize) -> u32 {
        match self.major {
            OperandMajor::K => self.spans[span].k,
            OperandMajor::Mn => self.spans[span].mn,
        }
    }

    /// Elements of a line that the tile holds.
    pub(crate) fn length(&self) -> u32 {
        self.spans.len() as u32 * self.span_bytes / self.element_bytes
    }
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use super::*;

    #[test]
    fn passes_cover_every_byte_of_the_tile_once() {
        let tiles = [
            (Element::Bf16, OperandMajor::K, 128, 64),
            (Element::Bf16, OperandMajor::K, 72, 128),
            (Element::Bf16, OperandMajor::K, 8, 32),
            (Element::F16, OperandMajor::Mn, 200, 64),
            (Element::S8, OperandMajor::K, 24, 64),
        ];
        for (element, major, mn, k) in tiles {
            let operand = OperandTile::new(element, major, mn, k, 1);
            let tile = ChunkedTile::new(&operand.staged().unwrap());
            assert_eq!(operand.pass_count() as usize, tile.passes().len(), "{operand:?}");
            let mut stored: Vec<u32> = vec![];
            for Pass { span, index } in tile.passes() {
                let left = (tile.lines - index * tile.lines_of_pass()) * tile.span_bytes;
                let first = tile.spans[span].bytes + index * PASS_BYTES;
                stored.extend((first..first + left.min(PASS_BYTES)).step_by(CHUNK_BYTES as usize));
            }
            let all: Vec<u32> = (0..operand.bytes()).step_by(CHUNK_BYTES as usize).collect();
            stored.sort();
            assert_eq!(stored, all, "{operand:?}");
        }
    }
}
