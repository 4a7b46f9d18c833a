//! Swizzles: XOR of one run of index bits into another run.

use std::fmt;

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
    pub(crate) bits: u32,
    pub(crate) base: u32,
    pub(crate) shift: i32,
}

impl Swizzle {
    /// Returns the identity, which CuTe writes `Sw<0,4,3>`.
    pub fn identity() -> Self {
        Self { bits: 0, base: 4, shift: 3 }
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

    fn run(&self) -> i64 {
        (1 << self.bits) - 1
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sw<{},{},{}>", self.bits, self.base, self.shift)
    }
}
