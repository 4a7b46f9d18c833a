//! Swizzles: XOR of one run of index bits into another run.

use std::fmt;

use crate::CuteError;

/// The bijection on indices that CuTe writes `Sw<bits,base,shift>`.
///
/// The lowest `base` bits of the index stay constant. The swizzle reads `bits` bits, starting at
/// bit `base + max(shift, 0)`. It XORs them into the `bits` bits that are `shift` positions lower,
/// or `-shift` positions higher if `shift` is negative. A swizzle applied twice is the identity.
///
/// ```
/// use pgemm_cute::Swizzle;
///
/// let swizzle = Swizzle::new(3, 4, 3).unwrap();
/// assert_eq!(swizzle.to_string(), "Sw<3,4,3>");
/// assert_eq!(swizzle.apply(128), 128 ^ 16);
/// assert_eq!(swizzle.apply(swizzle.apply(1000)), 1000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Swizzle {
    bits: u32,
    base: u32,
    shift: i32,
}

impl Swizzle {
    /// Creates the swizzle `Sw<bits,base,shift>`.
    ///
    /// # Errors
    /// Returns [`CuteError::SwizzleParameters`] unless `|shift| >= bits` and the masks lie within
    /// the lowest 62 bits.
    pub fn new(bits: u32, base: u32, shift: i32) -> Result<Self, CuteError> {
        let top = bits.checked_add(base).and_then(|sum| sum.checked_add(shift.unsigned_abs()));
        if shift.unsigned_abs() < bits || top.is_none_or(|top| top > 62) {
            return Err(CuteError::SwizzleParameters { bits, base, shift });
        }
        Ok(Self { bits, base, shift })
    }

    /// Returns the identity, which CuTe writes `Sw<0,4,3>`.
    pub fn identity() -> Self {
        Self { bits: 0, base: 4, shift: 3 }
    }

    /// Creates the swizzle that reads the bits of `source` and changes the bits of `target`.
    ///
    /// ```
    /// use pgemm_cute::Swizzle;
    ///
    /// let swizzle = Swizzle::from_masks(0b1100_0000, 0b0000_0110).unwrap();
    /// assert_eq!(swizzle.to_string(), "Sw<2,1,5>");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::SwizzleMasks`] unless each mask is one run of the same number of bits
    /// and the runs do not overlap.
    pub fn from_masks(source: i64, target: i64) -> Result<Self, CuteError> {
        let invalid_masks = CuteError::SwizzleMasks { source_mask: source, target_mask: target };
        if source == 0 && target == 0 {
            return Ok(Self::identity());
        }
        if source <= 0 || target <= 0 {
            return Err(invalid_masks);
        }
        let (low_source, low_target) = (source.trailing_zeros(), target.trailing_zeros());
        // Both positions are below 63.
        let shift = low_source as i32 - low_target as i32;
        match Self::new(source.count_ones(), low_source.min(low_target), shift) {
            Ok(swizzle) if swizzle.source_mask() == source && swizzle.target_mask() == target => {
                Ok(swizzle)
            }
            _ => Err(invalid_masks),
        }
    }

    /// Returns the number of bits in each mask.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the number of lowest bits that are neither read nor changed.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Returns the distance in bits from the changed to the read bits. It is negative if the read
    /// bits are the lower ones.
    pub fn shift(&self) -> i32 {
        self.shift
    }

    /// Returns the mask of the bits that are read.
    pub fn source_mask(&self) -> i64 {
        self.run() << (self.base + self.shift.max(0).unsigned_abs())
    }

    /// Returns the mask of the bits that are changed.
    pub fn target_mask(&self) -> i64 {
        self.run() << (self.base + self.shift.min(0).unsigned_abs())
    }

    /// Returns whether the swizzle is the identity.
    pub fn is_identity(&self) -> bool {
        self.bits == 0
    }

    /// Returns the period: the swizzle maps each aligned block of this many indices to itself, by
    /// the same pattern.
    pub fn period(&self) -> i64 {
        if self.bits == 0 { 1 } else { 1 << (self.base + self.bits + self.shift.unsigned_abs()) }
    }

    /// Returns the swizzled index.
    pub fn apply(&self, index: i64) -> i64 {
        let source = index & self.source_mask();
        let distance = self.shift.unsigned_abs();
        index ^ if self.shift >= 0 { source >> distance } else { source << distance }
    }

    /// Merges the composition `self o inner` into one swizzle.
    ///
    /// # Errors
    /// Returns [`CuteError::SwizzleShifts`] if the shifts differ, and [`CuteError::SwizzleMasks`]
    /// if the merged masks are not contiguous runs, or if one swizzle reads bits that the other
    /// changes.
    pub fn compose(&self, inner: &Swizzle) -> Result<Swizzle, CuteError> {
        if self.shift != inner.shift {
            return Err(CuteError::SwizzleShifts { first: self.shift, second: inner.shift });
        }
        // If one swizzle reads a bit that the other changes, the composition is not a single XOR.
        let source = self.source_mask() ^ inner.source_mask();
        let target = self.target_mask() ^ inner.target_mask();
        if self.source_mask() & inner.target_mask() != 0
            || self.target_mask() & inner.source_mask() != 0
        {
            return Err(CuteError::SwizzleMasks { source_mask: source, target_mask: target });
        }
        Self::from_masks(source, target)
    }

    fn run(&self) -> i64 {
        (1 << self.bits) - 1
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sw<{},{},{}>", self.bits, self.base, self.shift)
    }
}
