//! Layouts and swizzles at coordinates that are known when the kernel runs: where a lane finds its elements.

use pgemm_cute::Layout;
use pgemm_ir::{SwizzleMode, Val, ty};

/// Address bits that a swizzle changes, and those below them.
pub(crate) const SWIZZLED_BITS: u32 = 0x7f;

/// A layout at a coordinate that lies within it.
pub(crate) fn evaluate<'k>(layout: &Layout, coordinate: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
    let mut left = layout.size();
    let mut rest = coordinate;
    let mut sum: Option<Val<'k, ty::U32>> = None;
    for (extent, stride) in layout.shape().leaves().into_iter().zip(layout.stride().leaves()) {
        // The last mode needs no remainder.
        let own = if extent == left { rest } else { rest % extent as u32 };
        let term = own * stride as u32;
        sum = Some(sum.map_or(term, |sum| sum + term));
        rest = rest / extent as u32;
        left /= extent;
    }
    let Some(sum) = sum else { unreachable!("a layout has a mode") };
    sum
}

/// A byte offset in a tile, swizzled.
pub(crate) fn swizzled<'k>(bytes: Val<'k, ty::U32>, swizzle: SwizzleMode) -> Val<'k, ty::U32> {
    let rows = bytes & (((1 << swizzle.bits()) - 1) << 7);
    bytes ^ (rows >> 3)
}
