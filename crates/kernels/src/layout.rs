//! Evaluates layouts and swizzles at coordinates that are known only when the kernel runs. By them
//! a thread finds its elements.

use pgemm_cute::Layout;
use pgemm_ir::{SwizzleMode, Val, ty};

/// The address bits that a swizzle changes, and all bits below them (PTX ISA, "Swizzling modes").
const SWIZZLED_BITS: u32 = 0x7f;

/// Evaluates a layout at a coordinate that lies within it.
pub(crate) fn evaluate<'k>(layout: &Layout, coordinate: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
    let mut left = layout.size();
    let mut remainder = coordinate;
    let mut sum: Option<Val<'k, ty::U32>> = None;
    for (extent, stride) in layout.shape().leaves().into_iter().zip(layout.stride().leaves()) {
        // The last mode needs no remainder.
        let own = if extent == left { remainder } else { remainder % extent as u32 };
        let term = own * stride as u32;
        sum = Some(sum.map_or(term, |sum| sum + term));
        remainder = remainder / extent as u32;
        left /= extent;
    }
    // A layout has at least one mode.
    sum.unwrap_or(coordinate)
}

/// Swizzles a byte offset in a tile.
pub(crate) fn swizzled<'k>(bytes: Val<'k, ty::U32>, swizzle: SwizzleMode) -> Val<'k, ty::U32> {
    let rows = bytes & (((1 << swizzle.bits()) - 1) << 7);
    bytes ^ (rows >> 3)
}

/// A constant byte offset in a swizzled tile. It is combined with an offset that only the running
/// thread knows.
///
/// The two offsets have no bit in common, and the swizzle is linear in bits. So the swizzled sum
/// follows from the two swizzled offsets: they are added in the bits above the swizzled bits, and
/// XORed in the swizzled bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwizzledOffset {
    /// Bits of the thread's offset that are flipped.
    pub(crate) flips: u32,
    /// Bytes that are added afterwards.
    pub(crate) offset: u32,
}

impl SwizzledOffset {
    /// A constant offset of `bytes` bytes.
    pub(crate) fn new(bytes: u32, swizzle: SwizzleMode) -> Self {
        if swizzle == SwizzleMode::None {
            return SwizzledOffset { flips: 0, offset: bytes };
        }
        let bytes = swizzle.apply(bytes);
        SwizzledOffset { flips: bytes & SWIZZLED_BITS, offset: bytes & !SWIZZLED_BITS }
    }

    /// The whole offset. `thread` is the swizzled offset of the thread.
    pub(crate) fn plus<'k>(self, thread: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        (thread ^ self.flips) + self.offset
    }
}
