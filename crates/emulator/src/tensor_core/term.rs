//! The terms of a sum as integers.

use pgemm_ir::FloatFormat;

use super::Rounding;

/// Places of a term below its exponent: two factors have 23 each.
pub(super) const PLACES: i32 = 46;

/// Places of a binary32 below its exponent.
const FACTOR_PLACES: i32 = 23;

/// A number: `places`·2^(`exponent` − [`PLACES`]), negated if `negative`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) negative: bool,
    pub(super) places: u64,
    pub(super) exponent: i32,
}

impl Term {
    /// A finite number of a format.
    pub(super) fn number(value: f32, format: FloatFormat) -> Term {
        let (places, exponent) = parts(value, format);
        let negative = value.is_sign_negative();
        Term { negative, places: places << (PLACES - FACTOR_PLACES), exponent }
    }

    /// The product of two finite numbers. Its exponent is the sum of theirs.
    pub(super) fn product(
        (a, a_format): (f32, FloatFormat),
        (b, b_format): (f32, FloatFormat),
    ) -> Term {
        let ((a_places, a_exponent), (b_places, b_exponent)) =
            (parts(a, a_format), parts(b, b_format));
        Term {
            negative: a.is_sign_negative() != b.is_sign_negative(),
            places: a_places * b_places,
            exponent: a_exponent + b_exponent,
        }
    }

    /// The exponent of the leading bit of a term that is not zero.
    pub(super) fn leading(&self) -> i32 {
        self.exponent - PLACES + self.places.ilog2() as i32
    }

    /// The term in units of 2^`last`, with the places below them cut off.
    pub(super) fn in_units_of(&self, last: i32, rounding: Rounding) -> i64 {
        if self.places == 0 {
            return 0;
        }
        let below = last - (self.exponent - PLACES);
        let units = match u32::try_from(below) {
            Ok(dropped) => shorten(self.places, dropped, self.negative, rounding),
            // Nothing overflows, since `last` is at most 46 below the leading bit or the exponent.
            Err(_) => self.places << below.unsigned_abs(),
        };
        if self.negative { -(units as i64) } else { units as i64 }
    }
}

/// The significand of a finite number with 23 places below its exponent, and the exponent: that of
/// the leading bit, or of the smallest normal number of the format if the number is below.
fn parts(value: f32, format: FloatFormat) -> (u64, i32) {
    let bits = value.to_bits();
    let (stored, mantissa) = ((bits >> FACTOR_PLACES & 0xff) as i32, u64::from(bits & 0x7f_ffff));
    let (places, exponent) = match stored {
        0 => (mantissa, -126),
        _ => (mantissa | 1 << FACTOR_PLACES, stored - 127),
    };
    // Numbers of the format lose nothing here.
    let below = (format.least_exponent() - exponent).max(0);
    (places.checked_shr(below as u32).unwrap_or(0), exponent + below)
}

/// The magnitude of a number without its last `dropped` bits, rounded.
pub(super) fn shorten(magnitude: u64, dropped: u32, negative: bool, rounding: Rounding) -> u64 {
    let kept = magnitude.checked_shr(dropped).unwrap_or(0);
    let rest = magnitude - kept.checked_shl(dropped).unwrap_or(0);
    let up = match rounding {
        Rounding::TowardsZero => false,
        Rounding::Down => negative && rest > 0,
        Rounding::NearestEven => match 1u64.checked_shl(dropped) {
            Some(unit) => rest > unit / 2 || rest == unit / 2 && rest > 0 && kept % 2 == 1,
            None => false,
        },
    };
    kept + u64::from(up)
}
