//! Swizzles from parameters, from masks and from other swizzles, if there is such a swizzle.

use crate::{CuteError, Swizzle};

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
}
