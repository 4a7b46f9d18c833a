//! The staging tile of an epilogue in shared memory. It has some columns of 64 rows of D. One
//! warpgroup writes it, and one or two TMA boxes store it.
//!
//! Its lines run along the contiguous dimension of D. A line is a row of a row-major D, and a
//! column of a column-major D. The shape spreads the warpgroup's writes over the banks: a line is
//! one or two swizzle spans, each in a box of its own, or a plain line whose length is an odd
//! multiple of the bytes that a thread, or four neighbouring ones, write to it at once.

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

/// Fewest and most columns of a row-major box of 32-bit elements whose lines need no swizzle: they
/// are an odd multiple of the 32 bytes that four neighbouring threads write. If a tile's width has
/// no such divisor, lines are swizzle spans if they can be, and otherwise longer, up to
/// [`MAX_WIDE_COLUMNS_BYTES`]. Boxes of 8 columns, of which a wide tile has up to 31, are the last
/// resort. With 56 columns a box has 14 KiB, and with more it would take too much from the ring.
const WORD_COLUMNS: [u32; 2] = [24, 56];

/// Most bytes of the smallest useful number of buffers for row-major 32-bit elements: two boxes
/// of 40 columns. One buffer has to do where two or more take more. Neither this limit nor the
/// number of columns above was tuned by measurements.
const MOST_WORD_BYTES: u32 = 20 << 10;

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
    /// that stores drain while the next tile is multiplied. Every CTA tile begins with the first
    /// buffer. More than two buffers divide the number of the warpgroup's staging tiles.
    pub fn new(element: Element, major: OutputMajor, tile_n: u32, blocks: u32, bytes: u32) -> Self {
        let one = Self::single(element, major, tile_n, blocks);
        let steps = one.steps();
        let fit = |buffers: &u32| {
            (*buffers == 2 || steps.is_multiple_of(*buffers))
                && buffers * one.buffer_bytes() <= bytes
        };
        Staging { buffers: (1..=steps).rev().find(fit).unwrap_or(1), ..one }
    }

    /// The same with the smallest useful number of buffers. One buffer is written while another is
    /// stored.
    pub fn fewest(element: Element, major: OutputMajor, tile_n: u32, blocks: u32) -> Self {
        let one = Self::single(element, major, tile_n, blocks);
        // A large box leaves no room for a second one.
        let is_large = major == OutputMajor::M && one.buffer_bytes() > MAX_COLUMNS_BYTES;
        let is_word_row = major == OutputMajor::N && element.bytes() == 4;
        let takes_too_much = is_large || is_word_row && 2 * one.buffer_bytes() > MOST_WORD_BYTES;
        let buffers = if one.steps() == 1 || takes_too_much { 1 } else { 2 };
        Staging { buffers, ..one }
    }

    /// The same with one buffer, which is stored before it is written again.
    pub fn single(element: Element, major: OutputMajor, tile_n: u32, blocks: u32) -> Self {
        let bytes = element.bytes();
        // 8 columns always fit. They are one chunk of a row of 16-bit elements. A chunk of bytes is
        // 16 columns.
        let widest = |most: u32, fits: &dyn Fn(u32) -> bool| {
            let columns = (1..=most / 8).rev().map(|eights| 8 * eights);
            columns.into_iter().find(|n| tile_n.is_multiple_of(*n) && fits(*n))
        };
        let columns = match major {
            OutputMajor::M => {
                let most = |limit: u32| limit / (STAGING_ROWS * bytes);
                let usual = widest(most(MAX_COLUMNS_BYTES), &|_| true);
                let wide = (FEW_COLUMNS..=most(MAX_WIDE_COLUMNS_BYTES).min(tile_n)).step_by(8);
                let wide = || wide.into_iter().find(|n| tile_n.is_multiple_of(*n));
                usual.filter(|columns| *columns >= FEW_COLUMNS).or_else(wide).or(usual)
            }
            OutputMajor::N if bytes == 4 => {
                let [fewest, most] = WORD_COLUMNS;
                let widest_rows = MAX_WIDE_COLUMNS_BYTES / (STAGING_ROWS * bytes);
                let odd = |columns: &u32| columns % 16 == 8 && tile_n.is_multiple_of(*columns);
                let usual = (fewest..=most).step_by(8).filter(odd).last();
                let wide = || (most..=widest_rows).step_by(8).find(odd);
                let spans = |span: u32| Some(span).filter(|span| tile_n.is_multiple_of(*span));
                usual.or_else(|| spans(32)).or_else(wide).or_else(|| spans(16))
            }
            OutputMajor::N if (tile_n * bytes).is_multiple_of(128) => Some(128 / bytes),
            OutputMajor::N if bytes == 1 && tile_n.is_multiple_of(64) => Some(64),
            OutputMajor::N => widest(MAX_ROW_BYTES / bytes, &|columns| columns * bytes % 32 == 16),
        };
        Staging { element, major, columns: columns.unwrap_or(8), tile_n, blocks, buffers: 1 }
    }

    /// Number of staging tiles that a warpgroup stores for each CTA tile.
    pub fn steps(&self) -> u32 {
        self.blocks * self.slices()
    }

    /// Number of staging tiles in shared memory for each warpgroup.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// The type of its elements.
    pub fn element(&self) -> Element {
        self.element
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
        let (start, unit) = match self.boxes() {
            1 => (buffer, unit),
            _ => {
                let units = self.span_bytes() / 16;
                (buffer.offset(unit / units * self.box_bytes()), unit % units)
            }
        };
        start.offset(swizzled(line * self.span_bytes() + unit * 16, self.swizzle()))
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
            OutputMajor::M => {
                let boxes = i64::from(self.boxes());
                let in_box = rows / boxes;
                let shape = ((in_box, boxes), columns);
                Layout::new(shape, ((1, in_box * columns), in_box))
            }
        }
    }

    /// Number of TMA boxes. They lie behind each other in the buffer, and side by side along the
    /// lines. A column of 32-bit elements has twice the bytes of the widest swizzle span.
    pub fn boxes(&self) -> u32 {
        if self.major == OutputMajor::M {
            (STAGING_ROWS * self.element.bytes()).div_ceil(128)
        } else {
            1
        }
    }

    /// Elements of D in a line of a box, and number of lines.
    pub fn extents(&self) -> [u32; 2] {
        match self.major {
            OutputMajor::N => [self.columns, STAGING_ROWS],
            OutputMajor::M => [STAGING_ROWS / self.boxes(), self.columns],
        }
    }

    /// Bytes of a line of a box, which are also the bytes from one line to the next.
    pub fn span_bytes(&self) -> u32 {
        self.extents()[0] * self.element.bytes()
    }

    /// Bytes of a line in all boxes.
    pub fn line_bytes(&self) -> u32 {
        self.boxes() * self.span_bytes()
    }

    /// Bytes of a box.
    pub fn box_bytes(&self) -> u32 {
        self.buffer_bytes() / self.boxes()
    }

    /// The permutation of 16-byte chunks.
    pub fn swizzle(&self) -> SwizzleMode {
        match self.span_bytes() {
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

    /// A box of a staging tile.
    pub fn tensor_map(&self) -> TensorMapSpec {
        TensorMapSpec::tiled(self.element, self.extents().to_vec(), self.swizzle())
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
                let written = if element == Element::F32 { 32 } else { 16 };
                let odd = staging.line_bytes() / written % 2 == 1;
                assert!(staging.swizzle() != SwizzleMode::None || odd, "{tile_n} {staging:?}");
                assert_eq!(staging.columns() % 8, 0);
                assert!(staging.line_bytes() <= MAX_ROW_BYTES || element == Element::F32);
                assert!(staging.buffer_bytes() <= MAX_WIDE_COLUMNS_BYTES);
                assert_eq!(staging.buffer_bytes() % 1024, 0);

                let columns = Staging::fewest(element, M, tile_n, 2);
                assert_eq!(columns.slices() * columns.columns(), tile_n);
                assert_eq!(columns.line_bytes(), 64 * element.bytes());
                assert!(columns.buffer_bytes() <= MAX_WIDE_COLUMNS_BYTES);
                assert_ne!(columns.swizzle(), SwizzleMode::None);
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
        let words = |tile_n, blocks| Staging::fewest(Element::F32, N, tile_n, blocks);
        let of = |staging: Staging| (staging.columns(), staging.steps(), staging.buffers());
        assert_eq!(of(words(208, 1)), (104, 2, 1));
        assert_eq!(of(words(144, 1)), (24, 6, 2));
        assert_eq!(of(words(72, 2)), (24, 6, 2));
        assert_eq!(of(words(160, 1)), (40, 4, 2));
        assert_eq!(of(words(168, 1)), (56, 3, 1));
        assert_eq!(of(words(256, 1)), (32, 8, 2));
        assert_eq!(of(words(136, 1)), (8, 17, 2));
        for (tile_n, columns, buffers) in [(144, 72, 2), (104, 104, 1), (176, 88, 1), (16, 16, 2)] {
            let staging = Staging::fewest(Element::Bf16, M, tile_n, 2);
            assert_eq!((staging.columns(), staging.buffers()), (columns, buffers), "{tile_n}");
        }
    }

    #[test]
    fn buffers_fill_the_memory_there_is() {
        let staging = Staging::new(Element::Bf16, N, 256, 1, 40 << 10);
        assert_eq!((staging.steps(), staging.buffers()), (4, 4));
        assert_eq!(Staging::new(Element::Bf16, N, 256, 1, 31 << 10).buffers(), 2);
        assert_eq!(Staging::new(Element::Bf16, N, 192, 1, 16 << 10).buffers(), 2);
        assert_eq!(Staging::new(Element::Bf16, N, 192, 1, 15 << 10).buffers(), 1);
        assert_eq!(Staging::new(Element::Bf16, N, 192, 1, 24 << 10).buffers(), 3);
        assert_eq!(Staging::new(Element::Bf16, N, 200, 1, 24 << 10).buffers(), 2);
        assert_eq!(Staging::fewest(Element::Bf16, N, 192, 1).buffers(), 2);
        assert_eq!(Staging::new(Element::Bf16, N, 192, 2, 24 << 10).buffers(), 3);
    }
}
