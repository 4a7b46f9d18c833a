//! The staging tile of an epilogue in shared memory. It has some columns of 64 rows of D. One
//! warpgroup writes it, and one TMA box stores it.
//!
//! Its lines run along the contiguous dimension of D. A line is a row of a row-major D, and a
//! column of a column-major D. The shape spreads the warpgroup's writes over the banks: lines are
//! one swizzle span, or plain lines of an odd number of 16-byte chunks.

use pgemm_cute::{CuteError, Layout};
use pgemm_ir::{Element, SwizzleMode, TensorMapSpec, Val, ty};
use serde::{Deserialize, Serialize};

use crate::layout::swizzled;

/// The dimension in which C and D are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OutputMajor {
    /// Along N: row-major.
    N,
    /// Along M: column-major.
    M,
}

/// Rows of a staging tile, which are the rows of one MMA.
pub const STAGING_ROWS: u32 = 64;

/// Width of the widest row of a row-major box, in bytes. It bounds the shared memory that the
/// epilogue takes from the ring.
const MAX_ROW_BYTES: u32 = 208;

/// Size of the largest column-major box, in bytes. It is 72 columns of 16-bit elements.
const MAX_COLUMNS_BYTES: u32 = 9216;

/// Fewest columns of a column-major box. If a tile's width has no divisor from this to the largest
/// box, such as that of 88 or 104, one larger box of up to [`MAX_WIDE_COLUMNS_BYTES`] is used: on an
/// H200, 104 columns in boxes of 8 took 2.5 times as long as wider tiles.
const FEW_COLUMNS: u32 = 24;
const MAX_WIDE_COLUMNS_BYTES: u32 = 32 << 10;

/// The shape of a staging tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staging {
    element: Element,
    major: OutputMajor,
    columns: u32,
    tile_n: u32,
    blocks: u32,
    buffers: u32,
}

impl Staging {
    /// No staging tiles.
    pub const NONE: Staging = Staging {
        element: Element::F32,
        major: OutputMajor::N,
        columns: 8,
        tile_n: 0,
        blocks: 0,
        buffers: 0,
    };

    /// The staging tiles of a warpgroup that stores `blocks` blocks of 64 rows of a CTA tile of
    /// `tile_n` columns. `tile_n` is a multiple of 8. There are as many buffers as `bytes` hold, so
    /// that stores drain while the next tile is multiplied. The number of buffers divides the
    /// number of the warpgroup's staging tiles, so that every CTA tile begins with the first
    /// buffer.
    pub fn new(element: Element, major: OutputMajor, tile_n: u32, blocks: u32, bytes: u32) -> Self {
        let one = Staging { buffers: 1, ..Self::fewest(element, major, tile_n, blocks) };
        let steps = one.steps();
        let fit =
            |buffers: &u32| steps.is_multiple_of(*buffers) && buffers * one.buffer_bytes() <= bytes;
        Staging { buffers: (1..=steps).rev().find(fit).unwrap_or(1), ..one }
    }

    /// The same with the smallest useful number of buffers. One buffer is written while another is
    /// stored.
    pub fn fewest(element: Element, major: OutputMajor, tile_n: u32, blocks: u32) -> Self {
        let bytes = element.bytes();
        // 8 columns always fit. They are one chunk of a row of 16-bit elements. A chunk of bytes is
        // 16 columns.
        let widest = |most: u32, fits: &dyn Fn(u32) -> bool| {
            (8..=most).step_by(8).filter(|n| tile_n.is_multiple_of(*n) && fits(*n)).last()
        };
        let columns = match major {
            OutputMajor::M => {
                let most = |limit: u32| limit / (STAGING_ROWS * bytes);
                let usual = widest(most(MAX_COLUMNS_BYTES), &|_| true);
                let wide = (FEW_COLUMNS..=most(MAX_WIDE_COLUMNS_BYTES).min(tile_n)).step_by(8);
                let wide = || wide.into_iter().find(|n| tile_n.is_multiple_of(*n));
                usual.filter(|columns| *columns >= FEW_COLUMNS).or_else(wide).or(usual)
            }
            OutputMajor::N if (tile_n * bytes).is_multiple_of(128) => Some(128 / bytes),
            OutputMajor::N if bytes == 4 && tile_n.is_multiple_of(16) => Some(64 / bytes),
            OutputMajor::N if bytes == 4 => Some(8),
            OutputMajor::N if bytes == 1 && tile_n.is_multiple_of(64) => Some(64),
            OutputMajor::N => widest(MAX_ROW_BYTES / bytes, &|columns| columns * bytes % 32 == 16),
        };
        let one =
            Staging { element, major, columns: columns.unwrap_or(8), tile_n, blocks, buffers: 1 };
        let steps = one.steps();
        // A large box leaves no room for a second one.
        let is_large = major == OutputMajor::M && one.buffer_bytes() > MAX_COLUMNS_BYTES;
        let buffers = (2..=steps).find(|buffers| steps.is_multiple_of(*buffers) && !is_large);
        Staging { buffers: buffers.unwrap_or(1), ..one }
    }

    /// Number of staging tiles that a warpgroup stores for each CTA tile.
    pub fn steps(&self) -> u32 {
        self.blocks * self.slices()
    }

    /// Number of staging tiles in shared memory for each warpgroup.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// The dimension along which its lines run.
    pub fn major(&self) -> OutputMajor {
        self.major
    }

    /// The address of a 16-byte unit of a line in the buffer at `buffer`.
    pub(crate) fn unit_address<'k>(
        &self,
        buffer: Val<'k, ty::Smem>,
        line: Val<'k, ty::U32>,
        unit: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Smem> {
        buffer.offset(swizzled(line * self.line_bytes() + unit * 16, self.swizzle()))
    }

    /// Number of columns of D.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// Number of staging tiles next to each other in a CTA tile.
    pub fn slices(&self) -> u32 {
        self.tile_n / self.columns
    }

    /// The layout (row, column) → element offset, before swizzling.
    ///
    /// # Errors
    /// The staging tile has no elements.
    pub fn layout(&self) -> Result<Layout, CuteError> {
        let (rows, columns) = (i64::from(STAGING_ROWS), i64::from(self.columns));
        match self.major {
            OutputMajor::N => Layout::row_major((rows, columns)),
            OutputMajor::M => Layout::col_major((rows, columns)),
        }
    }

    /// Elements of D in a line, and number of lines.
    fn extents(&self) -> [u32; 2] {
        match self.major {
            OutputMajor::N => [self.columns, STAGING_ROWS],
            OutputMajor::M => [STAGING_ROWS, self.columns],
        }
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u32 {
        self.extents()[0] * self.element.bytes()
    }

    /// The permutation of 16-byte chunks.
    pub fn swizzle(&self) -> SwizzleMode {
        match self.line_bytes() {
            128 => SwizzleMode::B128,
            64 => SwizzleMode::B64,
            32 if self.element.bytes() == 4 => SwizzleMode::B32,
            _ => SwizzleMode::None,
        }
    }

    /// Bytes of one buffer. It is a multiple of the swizzle's period, which is 1024 bytes for a
    /// 128-byte swizzle and 512 bytes otherwise.
    pub fn buffer_bytes(&self) -> u32 {
        self.columns * STAGING_ROWS * self.element.bytes()
    }

    /// Bytes of a warpgroup's buffers.
    pub fn bytes(&self) -> u32 {
        self.buffers * self.buffer_bytes()
    }

    /// The box of one staging tile.
    pub fn tensor_map(&self) -> TensorMapSpec {
        TensorMapSpec {
            element: self.element,
            box_extents: self.extents().to_vec(),
            swizzle: self.swizzle(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutputMajor::{M, N};

    #[test]
    fn every_tile_width_has_a_conflict_free_staging_tile() {
        for element in [Element::Bf16, Element::F32, Element::S8] {
            // A row's chunk has at least 16 bytes.
            let step = if element == Element::S8 { 16 } else { 8 };
            for tile_n in (step..=256).step_by(step as usize) {
                let staging = Staging::fewest(element, N, tile_n, 2);
                assert_eq!(staging.slices() * staging.columns(), tile_n);
                let odd = staging.line_bytes() / 16 % 2 == 1;
                assert!(staging.swizzle() != SwizzleMode::None || odd, "{tile_n} {staging:?}");
                assert_eq!(staging.columns() % 8, 0);
                assert!(staging.line_bytes() <= MAX_ROW_BYTES);
                assert_eq!(staging.buffer_bytes() % 1024, 0);

                let columns = Staging::fewest(element, M, tile_n, 2);
                assert_eq!(columns.slices() * columns.columns(), tile_n);
                assert_eq!(columns.line_bytes(), 64 * element.bytes());
                assert!(columns.buffer_bytes() <= MAX_WIDE_COLUMNS_BYTES);
                assert!(columns.columns() >= FEW_COLUMNS.min(tile_n) || element == Element::F32);
                let period = if columns.swizzle() == SwizzleMode::B64 { 512 } else { 1024 };
                assert_eq!(columns.buffer_bytes() % period, 0);
            }
        }
        let narrow = Staging::fewest(Element::E4m3, M, 8, 1);
        assert_eq!((narrow.buffer_bytes(), narrow.swizzle()), (512, SwizzleMode::B64));
        assert_eq!(Staging::fewest(Element::E4m3, N, 192, 1).columns(), 64);
        assert_eq!(Staging::fewest(Element::E4m3, N, 112, 1).columns(), 112);
        assert_eq!(Staging::fewest(Element::E4m3, N, 240, 1).columns(), 80);
        assert_eq!(Staging::fewest(Element::Bf16, N, 208, 1).columns(), 104);
        assert_eq!(Staging::fewest(Element::Bf16, N, 176, 1).columns(), 88);
        assert_eq!(Staging::fewest(Element::F32, N, 208, 1).columns(), 16);
        for (tile_n, columns, buffers) in [(144, 72, 2), (104, 104, 1), (176, 88, 1), (16, 16, 2)] {
            let staging = Staging::fewest(Element::Bf16, M, tile_n, 2);
            assert_eq!((staging.columns(), staging.buffers()), (columns, buffers), "{tile_n}");
        }
    }

    #[test]
    fn buffers_fill_the_memory_there_is_and_divide_the_steps() {
        let staging = Staging::new(Element::Bf16, N, 256, 1, 40 << 10);
        assert_eq!((staging.steps(), staging.buffers()), (4, 4));
        assert_eq!(Staging::new(Element::Bf16, N, 256, 1, 31 << 10).buffers(), 2);
        assert_eq!(Staging::new(Element::Bf16, N, 192, 1, 16 << 10).buffers(), 1);
        assert_eq!(Staging::fewest(Element::Bf16, N, 192, 1).buffers(), 3);
        assert_eq!(Staging::new(Element::Bf16, N, 192, 2, 24 << 10).buffers(), 3);
    }
}
