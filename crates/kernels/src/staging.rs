//! The epilogue's staging tile in shared memory: 64 rows of a column slice of D, written by one warpgroup and stored by
//! one TMA box. Its width is chosen so that the warpgroup's writes spread over the banks: rows of one swizzle span, or
//! plain rows of an odd number of 16-byte chunks.

use pgemm_ir::{Element, SwizzleMode, TensorMapSpec};

/// Rows of a staging tile: one m64 block.
pub const STAGING_ROWS: u32 = 64;

/// Widest box row, in bytes: it bounds the memory that the epilogue takes from the ring.
const MAX_ROW_BYTES: u32 = 208;

/// The shape of a staging tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staging {
    element: Element,
    columns: u32,
    tile_n: u32,
    blocks: u32,
    buffers: u32,
}

impl Staging {
    /// The staging tiles of a warpgroup that stores `blocks` m64 blocks of a CTA tile `tile_n` columns wide (a multiple of
    /// 16), with as many buffers as `bytes` hold: stores then drain while the next tile is multiplied. The buffers divide
    /// the warpgroup's staging tiles evenly, so that every CTA tile begins with the first.
    pub fn new(element: Element, tile_n: u32, blocks: u32, bytes: u32) -> Self {
        let one = Staging { buffers: 1, ..Self::fewest(element, tile_n, blocks) };
        let steps = one.steps();
        let fit =
            |buffers: &u32| steps.is_multiple_of(*buffers) && buffers * one.buffer_bytes() <= bytes;
        Staging { buffers: (1..=steps).rev().find(fit).unwrap_or(1), ..one }
    }

    /// The same with the fewest buffers worth having: one is written while another is stored.
    pub fn fewest(element: Element, tile_n: u32, blocks: u32) -> Self {
        let bytes = element.bytes();
        let columns = if (tile_n * bytes).is_multiple_of(128) {
            128 / bytes
        } else if bytes == 4 {
            64 / bytes
        } else {
            // 8 columns are one chunk, so one width always fits.
            (8..=MAX_ROW_BYTES / bytes)
                .step_by(8)
                .filter(|columns| tile_n.is_multiple_of(*columns) && columns * bytes / 16 % 2 == 1)
                .last()
                .unwrap_or(8)
        };
        let one = Staging { element, columns, tile_n, blocks, buffers: 1 };
        let steps = one.steps();
        let buffers = (2..=steps).find(|buffers| steps.is_multiple_of(*buffers)).unwrap_or(1);
        Staging { buffers, ..one }
    }

    /// Staging tiles that a warpgroup stores for each CTA tile.
    pub fn steps(&self) -> u32 {
        self.blocks * self.slices()
    }

    /// Staging tiles in shared memory for each warpgroup.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Columns of D in it.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// Staging tiles side by side in a CTA tile.
    pub fn slices(&self) -> u32 {
        self.tile_n / self.columns
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u32 {
        self.columns * self.element.bytes()
    }

    /// How 16-byte chunks are permuted.
    pub fn swizzle(&self) -> SwizzleMode {
        match self.row_bytes() {
            128 => SwizzleMode::B128,
            64 if self.element.bytes() == 4 => SwizzleMode::B64,
            _ => SwizzleMode::None,
        }
    }

    /// Bytes of one buffer, a multiple of the swizzle's period of 1024.
    pub fn buffer_bytes(&self) -> u32 {
        self.row_bytes() * STAGING_ROWS
    }

    /// Bytes of a warpgroup's buffers.
    pub fn bytes(&self) -> u32 {
        self.buffers * self.buffer_bytes()
    }

    /// The box of one staging tile.
    pub fn tensor_map(&self) -> TensorMapSpec {
        TensorMapSpec {
            element: self.element,
            box_extents: vec![self.columns, STAGING_ROWS],
            swizzle: self.swizzle(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_width_has_a_conflict_free_staging_tile() {
        for element in [Element::Bf16, Element::F32] {
            for tile_n in (16..=256).step_by(16) {
                let staging = Staging::fewest(element, tile_n, 2);
                assert_eq!(staging.slices() * staging.columns(), tile_n);
                let odd = staging.row_bytes() / 16 % 2 == 1;
                assert!(staging.swizzle() != SwizzleMode::None || odd, "{tile_n} {staging:?}");
                assert_eq!(staging.columns() % 8, 0);
                assert!(staging.row_bytes() <= MAX_ROW_BYTES);
                assert_eq!(staging.buffer_bytes() % 1024, 0);
            }
        }
        assert_eq!(Staging::fewest(Element::Bf16, 208, 1).columns(), 104);
        assert_eq!(Staging::fewest(Element::Bf16, 176, 1).columns(), 88);
        assert_eq!(Staging::fewest(Element::F32, 208, 1).columns(), 16);
    }

    #[test]
    fn buffers_fill_the_memory_there_is_and_divide_the_steps() {
        let staging = Staging::new(Element::Bf16, 256, 1, 40 << 10);
        assert_eq!((staging.steps(), staging.buffers()), (4, 4));
        assert_eq!(Staging::new(Element::Bf16, 256, 1, 31 << 10).buffers(), 2);
        assert_eq!(Staging::new(Element::Bf16, 192, 1, 16 << 10).buffers(), 1);
        assert_eq!(Staging::fewest(Element::Bf16, 192, 1).buffers(), 3);
        assert_eq!(Staging::new(Element::Bf16, 192, 2, 24 << 10).buffers(), 3);
    }
}
