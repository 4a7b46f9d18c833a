//! [`Short`]: the numbers that trees compare.

/// A number that is not negative, with a precision of 8 bits: the first half of an [`f32`]. It
/// halves the memory of the trees' splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(crate) struct Short(pub(super) i16);

impl Short {
    pub(crate) const ZERO: Short = Short(0);
}

impl From<f32> for Short {
    fn from(number: f32) -> Short {
        Short((number.max(0.0).to_bits() >> 16) as i16)
    }
}

impl From<Short> for f32 {
    fn from(Short(bits): Short) -> f32 {
        f32::from_bits(u32::from(bits as u16) << 16)
    }
}
