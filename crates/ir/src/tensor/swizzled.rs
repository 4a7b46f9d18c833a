//! Places in swizzled tiles, with few instructions for the values of a thread.

use pgemm_cute::{CuteError, Layout, Swizzle};

use super::int::{Int, power_of_two};
use super::layout::{TensorLayout, apply, evaluate};
use crate::builder::KernelBuilder;

/// The place of a thread in a swizzled tile, in bytes.
#[derive(Clone)]
pub(super) struct Swizzled<'k> {
    swizzle: Swizzle,
    /// The offset before the swizzle.
    before: Int<'k>,
    /// The bits that this offset may have.
    bits: u32,
    /// The offset after the swizzle.
    after: Int<'k>,
}

impl<'k> Swizzled<'k> {
    /// The place of a thread, by the layout of the offsets of all threads. Elements have `bytes`.
    #[track_caller]
    pub(super) fn new(
        tile: &TensorLayout<'k>,
        threads: &Layout,
        thread: Int<'k>,
        bytes: u32,
    ) -> Result<Self, CuteError> {
        let swizzle = tile.swizzle.downcast(bytes.into())?;
        let before = tile.before_swizzle * bytes + evaluate(threads, thread, bytes);
        let bits = joined(bits_of(tile.before_swizzle), bits_of_layout(threads));
        let (bits, after) = (bits.wrapping_mul(bytes), apply(tile.b, swizzle, before));
        Ok(Swizzled { swizzle, before, bits, after })
    }

    /// Whether vectors of so many bytes stay together and are aligned.
    pub(super) fn keeps(&self, bytes: u32) -> bool {
        i64::from(bytes) <= 1 << self.swizzle.base() && self.before.multiple().is_multiple_of(bytes)
    }

    /// The swizzled offset of the thread's place plus `bytes`: a varying and a constant part.
    ///
    /// A swizzle is linear in bits. If the two offsets have no bit in common, the swizzled sum is
    /// the exclusive-or of the swizzled offsets. Its bits that the thread's offset never has are
    /// added, so that they can become part of the instruction.
    #[track_caller]
    pub(super) fn plus(&self, b: &'k KernelBuilder, bytes: u32) -> (Int<'k>, u32) {
        if self.bits & bytes != 0 {
            return (apply(b, self.swizzle, self.before + bytes), 0);
        }
        let swizzled = self.swizzle.apply(bytes.into()) as u32;
        let reached = self.bits | self.swizzle_bits();
        let (flips, rest) = (swizzled & reached, swizzled & !reached);
        let varying = match self.after.constant() {
            Some(after) => Int::from(after ^ flips),
            None if flips == 0 => self.after,
            None => (self.after.value(b) ^ flips).into(),
        };
        (varying, rest)
    }

    /// The bits that the swizzle may set in the thread's offset.
    fn swizzle_bits(&self) -> u32 {
        let bits = i64::from(self.bits);
        (self.swizzle.apply(bits) ^ bits) as u32
    }
}

/// The bits that a number may have.
fn bits_of(number: Int<'_>) -> u32 {
    match number.constant() {
        Some(constant) => constant,
        None => !(power_of_two(number.multiple()) - 1) & all_bits_of(number.most()),
    }
}

/// All bits up to the highest of a number.
fn all_bits_of(number: u32) -> u32 {
    u32::MAX.checked_shr(number.leading_zeros()).unwrap_or(0)
}

/// The bits that the indices of a layout may have.
fn bits_of_layout(layout: &Layout) -> u32 {
    let modes = layout.shape().leaves().into_iter().zip(layout.stride().leaves());
    modes.fold(0, |bits, (extent, stride)| {
        let (last, stride) = ((extent - 1) as u32, stride as u32);
        let own = if stride.is_power_of_two() {
            all_bits_of(last).wrapping_mul(stride)
        } else {
            !power_of_two(stride).wrapping_sub(1) & all_bits_of(last.wrapping_mul(stride))
        };
        joined(bits, own)
    })
}

/// The bits that the sum of two numbers may have, by those of the numbers.
fn joined(first: u32, second: u32) -> u32 {
    let either = first | second;
    if first & second == 0 { either } else { !(power_of_two(either) - 1) }
}
