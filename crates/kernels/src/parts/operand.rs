//! Tiles of operands of wgmma in shared memory, for any kernel.

use pgemm_ir::{
    Batch, Copies, DescriptorLayout, Element, IntoVal, KernelBuilder, OperandMajor, RegionKind,
    SmemRequest, TensorMap, TensorMapSpec, Val, ty,
};

use super::PartsError;
use crate::operands::OPERAND_ALIGN;
use crate::spec::MOST_BOX_LINES;
use crate::tiles::operand::{BoxPlace, OperandTile};

/// Lines of a tile come in so many.
const LINE_STEP: u32 = 8;
/// The depth of a tile comes in so many bytes, the depth of one wgmma.
const DEPTH_BYTES: u32 = 32;
/// Bytes of a row of the widest swizzle.
const SWIZZLE_BYTES: u32 = 128;
/// Rows of one wgmma.
const MMA_ROWS: u32 = 64;

/// The tiles of an operand of wgmma in the stages of a ring: their shared memory, the TMA boxes
/// that fill them, and the descriptors by which wgmma reads them.
///
/// A tile has `mn` lines of `k` elements. It is K-major if the elements of a line are contiguous in
/// global memory, and MN-major if the elements of equal depth are. The layout follows from these
/// numbers: rows of up to 128 bytes that TMA swizzles.
pub struct OperandTiles<'k> {
    b: &'k KernelBuilder,
    name: String,
    tile: Tile,
    memory: Val<'k, ty::Smem>,
}

/// What is known of a tile when the kernel is built.
#[derive(Clone)]
struct Tile {
    tile: OperandTile,
    boxes: Vec<BoxPlace>,
    descriptor: DescriptorLayout,
}

impl<'k> OperandTiles<'k> {
    /// Declares the shared memory of `stages` tiles.
    ///
    /// # Errors
    /// [`PartsError::Operand`] if the extents or the type are not possible.
    pub fn declare(
        b: &'k KernelBuilder,
        name: &str,
        (element, major): (Element, OperandMajor),
        [mn, k]: [u32; 2],
        stages: u32,
    ) -> Result<Self, PartsError> {
        let refuse = |limit| Err(PartsError::Operand { name: name.to_owned(), mn, k, limit });
        if !matches!(element.bytes(), 1 | 2 | 4) {
            return refuse("elements of wgmma have at most 32 bits");
        }
        if major == OperandMajor::Mn && element.bytes() != 2 {
            return refuse("wgmma reads elements that have not 16 bits along K only: use K-major");
        }
        if mn == 0 || !mn.is_multiple_of(LINE_STEP) {
            return refuse("the lines are a multiple of 8");
        }
        if k == 0 || !(k * element.bytes()).is_multiple_of(DEPTH_BYTES) {
            return refuse("the depth is a multiple of 32 bytes");
        }
        let lines = if major == OperandMajor::K { mn } else { k };
        if lines > MOST_BOX_LINES {
            return refuse("a TMA box has at most 256 lines");
        }
        let tile = OperandTile::new(element, major, mn, k, 1);
        let request = SmemRequest::whole(stages.saturating_mul(tile.bytes()), OPERAND_ALIGN);
        let memory = b.smem_address(b.region(name, RegionKind::Data(element), request));
        Ok(OperandTiles { b, name: name.to_owned(), tile: Tile::new(tile)?, memory })
    }

    /// Bytes of a tile.
    pub fn bytes(&self) -> u32 {
        self.tile.tile.bytes()
    }

    /// The box of the operand's tensor map. The map has two dimensions, the contiguous one first,
    /// and `outer` further ones, of which a tile lies in one place each.
    pub fn tensor_map(&self, outer: usize) -> TensorMapSpec {
        let mut spec = self.tile.tile.tensor_map();
        spec.box_extents.extend(std::iter::repeat_n(1, outer));
        spec
    }

    /// The address of the tile of a stage.
    pub fn address(&self, stage: impl IntoVal<'k, ty::U32>) -> Val<'k, ty::Smem> {
        self.memory.offset(stage.into_val(self.b) * self.bytes())
    }

    /// Starts the copies that fill the tile of a stage. The tile begins at line `mn` and depth `k`
    /// of the matrix; `outer` has its places in the further dimensions of the map.
    #[track_caller]
    pub fn load(
        &self,
        copies: &Copies<'k>,
        map: &TensorMap<'k>,
        stage: impl IntoVal<'k, ty::U32>,
        [mn, k]: [Val<'k, ty::U32>; 2],
        outer: &[Val<'k, ty::U32>],
    ) {
        let address = self.address(stage);
        for place in &self.tile.boxes {
            let mut coordinates = match self.tile.tile.major() {
                OperandMajor::K => vec![k + place.k, mn + place.mn],
                OperandMajor::Mn => vec![mn + place.mn, k + place.k],
            };
            coordinates.extend(outer);
            copies.load(map, address.offset(place.bytes), &coordinates);
        }
    }

    /// The same memory read along the other dimension: a K-major tile of `mn` lines and depth `k`
    /// is an MN-major one of `k` lines and depth `mn`. The products `Q·Kᵀ` and `P·K` read a tile of
    /// K in the two ways, say.
    ///
    /// # Errors
    /// [`PartsError::Operand`] if the elements have not 16 bits, or the contiguous extent is no
    /// multiple of 128 bytes.
    pub fn turned(&self) -> Result<Self, PartsError> {
        let turned = self.tile.tile.turned();
        let (contiguous, lines, bytes) =
            (turned.contiguous(), turned.lines(), turned.element().bytes());
        let (mn, k) = match turned.major() {
            OperandMajor::K => (lines, contiguous),
            OperandMajor::Mn => (contiguous, lines),
        };
        let refuse = |limit| Err(PartsError::Operand { name: self.name.clone(), mn, k, limit });
        if bytes != 2 {
            return refuse("only elements of 16 bits are read along both dimensions");
        }
        if !(contiguous * bytes).is_multiple_of(SWIZZLE_BYTES) {
            return refuse("to be read along both, the contiguous one is a multiple of 128 bytes");
        }
        let tile = Tile::new(turned)?;
        Ok(OperandTiles { b: self.b, name: self.name.clone(), tile, memory: self.memory })
    }

    /// The tile of a stage as wgmma reads it.
    pub fn operand(&self, stage: impl IntoVal<'k, ty::U32>) -> MmaOperand<'k> {
        self.part(stage, 0, 0)
    }

    /// The same from line `part · lines` on, such as the rows of a warpgroup.
    ///
    /// # Panics
    /// If the tile has not more than `lines` lines, or `lines` is no multiple of 64.
    #[track_caller]
    pub fn part(
        &self,
        stage: impl IntoVal<'k, ty::U32>,
        part: impl IntoVal<'k, ty::U32>,
        lines: u32,
    ) -> MmaOperand<'k> {
        assert!(lines.is_multiple_of(MMA_ROWS), "parts of {lines} lines: use a multiple of 64");
        let address = match lines {
            0 => self.address(stage),
            _ => self.address(stage).offset(part.into_val(self.b) * self.tile.offset(lines, 0)),
        };
        let descriptor = self.b.descriptor(address, self.tile.descriptor);
        MmaOperand { tile: self.tile.clone(), address, descriptor }
    }
}

impl Tile {
    fn new(tile: OperandTile) -> Result<Self, PartsError> {
        let (boxes, descriptor) = (tile.boxes()?, tile.descriptor()?);
        Ok(Tile { tile, boxes, descriptor })
    }

    /// The byte offset of an element that begins an MMA's operand.
    #[track_caller]
    fn offset(&self, mn: u32, k: u32) -> u32 {
        match self.tile.operand_offset(mn, k) {
            Ok(bytes) => bytes,
            Err(error) => panic!("line {mn}, depth {k} of a tile: {error}"),
        }
    }
}

/// A tile of an operand as wgmma reads it.
#[derive(Clone)]
pub struct MmaOperand<'k> {
    tile: Tile,
    address: Val<'k, ty::Smem>,
    descriptor: Val<'k, ty::Descriptor>,
}

impl<'k> MmaOperand<'k> {
    /// The descriptor of an MMA's operand that begins at line `mn` and depth `k`.
    ///
    /// # Panics
    /// If the tile has no such element.
    #[track_caller]
    pub fn at(&self, mn: u32, k: u32) -> Val<'k, ty::Descriptor> {
        self.descriptor.advance(self.tile.offset(mn, k))
    }

    /// The address of the same element.
    ///
    /// # Panics
    /// If the tile has no such element.
    #[track_caller]
    pub fn address(&self, mn: u32, k: u32) -> Val<'k, ty::Smem> {
        self.address.offset(self.tile.offset(mn, k))
    }

    /// Elements along K.
    pub fn depth(&self) -> u32 {
        self.tile.tile.k()
    }
}

/// Issues the MMAs of two tiles: for each block of 64 rows of `a`, its accumulators become A·B,
/// plus themselves if `accumulate` holds.
///
/// # Panics
/// If `a` has fewer rows.
#[track_caller]
pub fn multiply<'k>(
    batch: &Batch<'k, '_>,
    blocks: u32,
    a: &MmaOperand<'k>,
    b: &MmaOperand<'k>,
    accumulate: impl IntoVal<'k, ty::Bool> + Copy,
) {
    let step = a.tile.tile.element().wgmma_depth();
    for k in (0..a.depth()).step_by(step as usize) {
        for block in 0..blocks {
            let (a, b) = (a.at(block * MMA_ROWS, k), b.at(0, k));
            match k {
                0 => batch.mma(block as usize, a, b, accumulate),
                _ => batch.mma(block as usize, a, b, true),
            }
        }
    }
}
