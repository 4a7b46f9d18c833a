//! The tile of an operand in one stage of shared memory. TMA boxes and wgmma descriptors follow
//! from its layout.
//!
//! The layout maps (mn, k) to an element offset before swizzling. It repeats the swizzle atom,
//! which is 8 lines of one span. A span is 128 bytes, or 64 if a K-major tile has only that depth.
//! The atom is first repeated along the lines, so that one TMA box fills the atoms of one span.

use pgemm_cute::{CuteError, Layout};
use pgemm_ir::{DescriptorLayout, Element, OperandMajor, SwizzleMode, TensorMapSpec};

/// Lines of a swizzle atom.
const ATOM_LINES: u32 = 8;

/// A tile of `mn × k` elements that tensor cores read. `peers` CTAs fill it together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandTile {
    element: Element,
    major: OperandMajor,
    mn: u32,
    k: u32,
    peers: u32,
}

/// The source and destination of one TMA box of a stage, relative to the tile and to the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxPlace {
    /// First element along M or N.
    pub mn: u32,
    /// First element along K.
    pub k: u32,
    /// First byte in the stage's tile.
    pub bytes: u32,
}

/// A tile of any layout, in the form that the loader uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageTile {
    /// The dimension in which the operand is contiguous in global memory.
    pub major: OperandMajor,
    /// Bytes in shared memory. TMA completes the same number of bytes for the tile.
    pub bytes: u32,
    /// The box of the operand's tensor map.
    pub tensor_map: TensorMapSpec,
    /// The boxes that one CTA copies.
    pub boxes: Vec<BoxPlace>,
    /// Lines that each of several CTAs copies for all of them, and their bytes in a span. `None` if
    /// one CTA copies the whole tile. If several CTAs share the tile, they then copy boxes in turn.
    pub slice: Option<(u32, u32)>,
}

impl OperandTile {
    /// A tile of `mn × k` elements that `peers` CTAs load together. Each CTA loads a slice of each
    /// tile, or the CTAs load its spans in turn.
    pub fn new(element: Element, major: OperandMajor, mn: u32, k: u32, peers: u32) -> Self {
        OperandTile { element, major, mn, k, peers }
    }

    /// The tile whose lines are the depth of this one, and whose depth is its lines. If the
    /// contiguous extent is whole spans, it has the same layout in memory.
    pub(crate) fn turned(&self) -> Self {
        let OperandTile { mn, k, .. } = *self;
        let major = match self.major {
            OperandMajor::K => OperandMajor::Mn,
            OperandMajor::Mn => OperandMajor::K,
        };
        OperandTile { major, mn: k, k: mn, ..*self }
    }

    /// Type of its elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The dimension in which it is contiguous.
    pub(crate) fn major(&self) -> OperandMajor {
        self.major
    }

    /// Depth in elements.
    pub fn k(&self) -> u32 {
        self.k
    }

    /// Lines of the dimension that is not contiguous.
    pub(crate) fn lines(&self) -> u32 {
        self.extents().1
    }

    /// Elements along the contiguous dimension.
    pub(crate) fn contiguous(&self) -> u32 {
        self.extents().0
    }

    /// Extents along the contiguous dimension and the other, in elements.
    fn extents(&self) -> (u32, u32) {
        match self.major {
            OperandMajor::K => (self.k, self.mn),
            OperandMajor::Mn => (self.mn, self.k),
        }
    }

    /// The swizzle. Its span is the contiguous extent, but at most 128 bytes.
    pub fn swizzle(&self) -> SwizzleMode {
        match self.extents().0 * self.element.bytes() {
            0..64 => SwizzleMode::B32,
            64..128 => SwizzleMode::B64,
            128.. => SwizzleMode::B128,
        }
    }

    /// Elements of one swizzle span.
    fn span(&self) -> u32 {
        self.swizzle().span_bytes().unwrap_or(16) / self.element.bytes()
    }

    /// Number of spans next to each other. The last one may extend beyond the tile.
    pub(crate) fn spans(&self) -> u32 {
        self.extents().0.div_ceil(self.span())
    }

    /// Bytes in shared memory. TMA completes the same number of bytes for the tile.
    pub fn bytes(&self) -> u32 {
        self.spans() * self.span() * self.extents().1 * self.element.bytes()
    }

    /// Lines of each box.
    fn box_lines(&self) -> u32 {
        self.slice_lines().map_or(self.extents().1, |(lines, _)| lines)
    }

    /// The layout, (mn, k) → element offset before swizzling.
    pub fn layout(&self) -> Result<Layout, CuteError> {
        let (span, lines) = (self.span(), self.extents().1);
        let contiguous = self.spans() * span;
        match self.major {
            OperandMajor::K => {
                Layout::row_major((ATOM_LINES, span))?.tile_to_shape((lines, contiguous))
            }
            OperandMajor::Mn => Layout::col_major((span, ATOM_LINES))?
                .tile_to_shape_ordered((contiguous, lines), (1, 0)),
        }
    }

    /// The TMA box of one span of a peer's slice. If peers take turns, it is a span of the whole
    /// tile.
    pub fn tensor_map(&self) -> TensorMapSpec {
        TensorMapSpec::tiled(self.element, vec![self.span(), self.box_lines()], self.swizzle())
    }

    /// The destinations of the boxes of the first slice, or of the whole tile if peers take turns.
    /// The boxes of slice `i` are `i` times [`slice_lines`](Self::slice_lines) further on.
    pub fn boxes(&self) -> Result<Vec<BoxPlace>, CuteError> {
        let layout = self.layout()?;
        (0..self.spans())
            .map(|i| {
                let along = i * self.span();
                let (mn, k) = match self.major {
                    OperandMajor::K => (0, along),
                    OperandMajor::Mn => (along, 0),
                };
                Ok(BoxPlace { mn, k, bytes: self.offset_bytes(&layout, mn, k)? })
            })
            .collect()
    }

    /// Lines of the non-contiguous dimension in one peer's slice, and their bytes in a span. `None`
    /// if slices would not be whole atoms. The peers then load spans of the tile in turn.
    pub fn slice_lines(&self) -> Option<(u32, u32)> {
        let (lines, peers) = (self.extents().1, self.peers.max(1));
        lines.is_multiple_of(peers * ATOM_LINES).then(|| {
            let slice = lines / peers;
            (slice, slice * self.span() * self.element.bytes())
        })
    }

    /// Whether peers neither copy slices of equal size nor as many spans as each other.
    pub(crate) fn is_shared_unevenly(&self) -> bool {
        self.slice_lines().is_none() && !self.spans().is_multiple_of(self.peers.max(1))
    }

    fn offset_bytes(&self, layout: &Layout, mn: u32, k: u32) -> Result<u32, CuteError> {
        Ok(layout.index((mn, k))? as u32 * self.element.bytes())
    }

    /// The tile in the form that the loader uses.
    ///
    /// # Errors
    /// The layout algebra refuses the tile.
    pub fn staged(&self) -> Result<StageTile, CuteError> {
        Ok(StageTile {
            major: self.major,
            bytes: self.bytes(),
            tensor_map: self.tensor_map(),
            boxes: self.boxes()?,
            slice: self.slice_lines(),
        })
    }

    /// The byte offset of the MMA operand that starts at (mn, k).
    pub fn operand_offset(&self, mn: u32, k: u32) -> Result<u32, CuteError> {
        self.offset_bytes(&self.layout()?, mn, k)
    }

    /// The byte offsets of the MMA operands that start at these depths, for each of these lines
    /// along M or N, and the descriptor by which wgmma reads them.
    pub(crate) fn operands(
        &self,
        lines: impl Iterator<Item = u32>,
        depths: &[u32],
    ) -> Result<(Vec<Vec<u32>>, DescriptorLayout), CuteError> {
        let layout = self.layout()?;
        let of_line = |mn| {
            depths.iter().map(|&k| self.offset_bytes(&layout, mn, k)).collect::<Result<_, _>>()
        };
        Ok((lines.map(of_line).collect::<Result<_, _>>()?, self.descriptor_of(&layout)?))
    }

    /// The descriptor by which wgmma reads the tile. It has the strides between the layout's atoms.
    /// CuTe's canonical forms, in 16-byte units, are `((8,n),2):((span,SBO),1)` for K-major tiles
    /// and `((span,n),(8,k)):((1,LBO),(span,SBO))` for MN-major tiles.
    pub fn descriptor(&self) -> Result<DescriptorLayout, CuteError> {
        self.descriptor_of(&self.layout()?)
    }

    fn descriptor_of(&self, layout: &Layout) -> Result<DescriptorLayout, CuteError> {
        let (stride, leading) = match self.major {
            OperandMajor::K => (self.stride_along(layout, 0, ATOM_LINES)?, 0),
            OperandMajor::Mn => (
                self.stride_along(layout, 1, ATOM_LINES)?,
                self.stride_along(layout, 0, self.span())?,
            ),
        };
        Ok(DescriptorLayout {
            swizzle: self.swizzle(),
            leading_bytes: leading,
            stride_bytes: stride,
        })
    }

    /// Bytes from one atom to the next along a mode. It is 0 if there is only one atom.
    fn stride_along(&self, layout: &Layout, mode: usize, step: u32) -> Result<u32, CuteError> {
        if layout.mode(mode)?.size() <= i64::from(step) {
            return Ok(0);
        }
        match mode {
            0 => self.offset_bytes(layout, step, 0),
            _ => self.offset_bytes(layout, 0, step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(major: OperandMajor, mn: u32, k: u32) -> OperandTile {
        OperandTile::new(Element::Bf16, major, mn, k, 1)
    }

    #[test]
    fn k_major_tiles_stack_atoms_of_eight_rows() {
        let tile = tile(OperandMajor::K, 256, 64);
        assert_eq!(tile.layout().unwrap().to_string(), "((8,32),(64,1)):((64,512),(1,0))");
        let descriptor = tile.descriptor().unwrap();
        assert_eq!((descriptor.leading_bytes, descriptor.stride_bytes), (0, 1024));
        assert_eq!(tile.operand_offset(64, 16).unwrap(), 8192 + 32);
        assert_eq!(tile.tensor_map().box_extents, [64, 256]);
    }

    #[test]
    fn mn_major_tiles_stack_spans_of_64_elements() {
        let tile = tile(OperandMajor::Mn, 208, 64);
        let descriptor = tile.descriptor().unwrap();
        assert_eq!((descriptor.leading_bytes, descriptor.stride_bytes), (8192, 1024));
        assert_eq!(tile.boxes().unwrap().len(), 4);
        assert_eq!(tile.bytes(), 4 * 8192);
        assert_eq!(tile.operand_offset(64, 16).unwrap(), 8192 + 2048);
    }

    #[test]
    fn deep_k_major_tiles_have_a_box_per_span_and_shallow_ones_a_narrow_swizzle() {
        let deep = tile(OperandMajor::K, 128, 128);
        let places: Vec<_> =
            deep.boxes().unwrap().iter().map(|place| (place.k, place.bytes)).collect();
        assert_eq!(places, [(0, 0), (64, 16384)]);
        let shallow = tile(OperandMajor::K, 128, 32);
        assert_eq!(shallow.swizzle(), SwizzleMode::B64);
        assert_eq!(shallow.descriptor().unwrap().stride_bytes, 512);
    }

    #[test]
    fn k_major_tiles_of_equal_bytes_lie_alike_in_every_type() {
        let tile = |element: Element, k_bytes: u32| {
            OperandTile::new(element, OperandMajor::K, 128, k_bytes / element.bytes(), 2)
        };
        for k_bytes in [64, 128, 256] {
            let halves = tile(Element::Bf16, k_bytes);
            for element in [Element::Tf32, Element::E4m3, Element::U8] {
                let other = tile(element, k_bytes);
                assert_eq!(other.bytes(), halves.bytes());
                assert_eq!(other.descriptor(), halves.descriptor());
                let places = |tile: &OperandTile| {
                    tile.boxes().unwrap().iter().map(|place| place.bytes).collect::<Vec<_>>()
                };
                assert_eq!(places(&other), places(&halves));
                assert_eq!(other.tensor_map().box_bytes(), halves.tensor_map().box_bytes());
                // The second MMA's operand: 32 bytes further along k.
                let second =
                    |tile: &OperandTile| tile.operand_offset(64, 32 / tile.element().bytes());
                assert_eq!(second(&other), second(&halves));
            }
        }
    }

    #[test]
    fn boxes_fill_every_byte_of_the_stage_once() {
        for major in [OperandMajor::K, OperandMajor::Mn] {
            for (mn, k, peers) in
                [(256, 64, 1), (208, 64, 1), (128, 128, 2), (64, 32, 2), (192, 64, 4)]
            {
                let tile = OperandTile::new(Element::F16, major, mn, k, peers);
                let slice_bytes = tile.slice_lines().unwrap().1;
                let box_bytes = tile.tensor_map().box_bytes();
                let mut filled: Vec<u32> = (0..peers)
                    .flat_map(|peer| {
                        tile.boxes()
                            .unwrap()
                            .into_iter()
                            .map(move |place| place.bytes + peer * slice_bytes)
                    })
                    .collect();
                filled.sort();
                let expected: Vec<u32> =
                    (0..tile.bytes() / box_bytes).map(|i| i * box_bytes).collect();
                assert_eq!(filled, expected, "{tile:?}");
            }
        }
    }

    #[test]
    fn peers_of_a_tile_without_whole_slices_take_turns_with_all_of_it() {
        for (mn, peers) in [(8, 2), (16, 4), (48, 4), (80, 4), (72, 2)] {
            let tile = OperandTile::new(Element::Bf16, OperandMajor::K, mn, 128, peers);
            assert_eq!(tile.slice_lines(), None);
            assert_eq!(tile.tensor_map().box_extents, [64, mn]);
            assert_eq!(tile.boxes().unwrap().len() as u32 * mn * 128, tile.bytes());
        }
        // Slices along k are always whole.
        let along_k = OperandTile::new(Element::Bf16, OperandMajor::Mn, 8, 32, 4);
        assert_eq!(along_k.slice_lines().unwrap().0, 8);
    }
}
