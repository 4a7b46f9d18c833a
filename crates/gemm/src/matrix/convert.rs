//! Conversion of single elements of any type to and from `f32` and `f64`. Values are rounded once,
//! to nearest with ties to even.
//!
//! Out of range: f16, bf16, tf32 and f32 overflow to infinity as IEEE 754 says. e4m3 and e5m2
//! saturate at ±448 and ±57344, infinities included, as `cvt.rn.satfinite` does (PTX ISA, "cvt").
//! Integers saturate, and NaN becomes 0.

use bytemuck::{Pod, Zeroable};
use float8::{F8E4M3, F8E5M2};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The storage of an element. The method names differ from `half`'s inherent `from_f64`, which
/// rounds twice.
pub(crate) trait Scalar: Pod + Send + Sync {
    /// The exact value.
    fn to_double(self) -> f64;
    /// The nearest value of this type.
    fn from_double(value: f64) -> Self;
    /// The nearest `f32`, exact for every type but f64 and s32.
    fn to_single(self) -> f32 {
        self.to_double() as f32
    }
    /// The nearest value of this type.
    fn from_single(value: f32) -> Self {
        Self::from_double(f64::from(value))
    }
    /// [`to_single`](Self::to_single) on slices of equal length.
    fn slice_to_f32(source: &[Self], target: &mut [f32]) {
        for (target, source) in target.iter_mut().zip(source) {
            *target = source.to_single();
        }
    }
    /// [`from_single`](Self::from_single) on slices of equal length.
    fn slice_from_f32(source: &[f32], target: &mut [Self]) {
        for (target, source) in target.iter_mut().zip(source) {
            *target = Self::from_single(*source);
        }
    }
}

/// Truncates to `f32` and sets the last bit if anything was lost. Rounding the result to a type
/// with at most 22 significant bits then equals rounding the `f64` directly (Boldo and Melquiond,
/// "When double rounding is odd", 2005).
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let widened = f64::from(nearest);
    if widened == value || value.is_nan() {
        return nearest;
    }
    let bits = nearest.to_bits();
    let truncated = if widened.abs() > value.abs() { bits - 1 } else { bits };
    f32::from_bits(truncated | 1)
}

/// Rounds the significand of an `f32` to nearest even, clearing its low `DROPPED` bits.
fn round_significand<const DROPPED: u32>(value: f32) -> u32 {
    let bits = value.to_bits();
    let mask = (1u32 << DROPPED) - 1;
    if value.is_nan() {
        // The quiet bit is set, so dropping payload bits cannot turn a NaN into an infinity.
        return (bits | 0x0040_0000) & !mask;
    }
    let half_minus_one = mask >> 1;
    let odd = (bits >> DROPPED) & 1;
    (bits + half_minus_one + odd) & !mask
}

impl Scalar for f16 {
    fn to_double(self) -> f64 {
        f64::from(f16::to_f32(self))
    }
    fn from_double(value: f64) -> f16 {
        f16::from_f32(round_to_odd(value))
    }
    fn to_single(self) -> f32 {
        f16::to_f32(self)
    }
    fn from_single(value: f32) -> f16 {
        f16::from_f32(value)
    }
    fn slice_to_f32(source: &[f16], target: &mut [f32]) {
        let length = source.len().min(target.len());
        source[..length].convert_to_f32_slice(&mut target[..length]);
    }
    fn slice_from_f32(source: &[f32], target: &mut [f16]) {
        let length = source.len().min(target.len());
        target[..length].convert_from_f32_slice(&source[..length]);
    }
}

impl Scalar for bf16 {
    fn to_double(self) -> f64 {
        f64::from(self.to_single())
    }
    fn from_double(value: f64) -> bf16 {
        bf16::from_single(round_to_odd(value))
    }
    fn to_single(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    fn from_single(value: f32) -> bf16 {
        bf16::from_bits((round_significand::<16>(value) >> 16) as u16)
    }
}

/// binary32 storage whose value is the nearest tf32. Kernels round on load, so the low 13 bits may
/// hold anything.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Tf32(f32);

impl Scalar for Tf32 {
    fn to_double(self) -> f64 {
        f64::from(self.to_single())
    }
    fn from_double(value: f64) -> Tf32 {
        Tf32::from_single(round_to_odd(value))
    }
    fn to_single(self) -> f32 {
        f32::from_bits(round_significand::<13>(self.0))
    }
    fn from_single(value: f32) -> Tf32 {
        Tf32(f32::from_bits(round_significand::<13>(value)))
    }
}

impl Scalar for f32 {
    fn to_double(self) -> f64 {
        f64::from(self)
    }
    fn from_double(value: f64) -> f32 {
        value as f32
    }
    fn to_single(self) -> f32 {
        self
    }
    fn from_single(value: f32) -> f32 {
        value
    }
}

impl Scalar for f64 {
    fn to_double(self) -> f64 {
        self
    }
    fn from_double(value: f64) -> f64 {
        value
    }
}

/// The NaN that conversions to either 8-bit float produce, on the device too, for NaNs of both
/// signs.
const NAN_8: u8 = 0x7f;

/// e4m3 by its bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct E4m3(u8);

impl Scalar for E4m3 {
    fn to_double(self) -> f64 {
        F8E4M3::from_bits(self.0).to_f64()
    }
    fn from_double(value: f64) -> E4m3 {
        E4m3(if value.is_nan() { NAN_8 } else { F8E4M3::from_f64(value).to_bits() })
    }
}

/// e5m2 by its bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct E5m2(u8);

impl Scalar for E5m2 {
    fn to_double(self) -> f64 {
        F8E5M2::from_bits(self.0).to_f64()
    }
    fn from_double(value: f64) -> E5m2 {
        E5m2(if value.is_nan() { NAN_8 } else { F8E5M2::from_f64(value).to_bits() })
    }
}

macro_rules! integer {
    ($($integer:ty),*) => {$(
        impl Scalar for $integer {
            fn to_double(self) -> f64 {
                f64::from(self)
            }
            fn from_double(value: f64) -> $integer {
                // `as` saturates and maps NaN to 0.
                value.round_ties_even() as $integer
            }
        }
    )*};
}
integer!(i8, u8, i32);

/// Runs an expression with a type alias bound to the storage type of an
/// [`Element`](pgemm_ir::Element).
macro_rules! with_scalar {
    ($element:expr, $scalar:ident => $body:expr) => {{
        use pgemm_ir::Element as E;
        match $element {
            E::F16 => {
                type $scalar = half::f16;
                $body
            }
            E::Bf16 => {
                type $scalar = half::bf16;
                $body
            }
            E::F32 => {
                type $scalar = f32;
                $body
            }
            E::Tf32 => {
                type $scalar = $crate::matrix::convert::Tf32;
                $body
            }
            E::F64 => {
                type $scalar = f64;
                $body
            }
            E::E4m3 => {
                type $scalar = $crate::matrix::convert::E4m3;
                $body
            }
            E::E5m2 => {
                type $scalar = $crate::matrix::convert::E5m2;
                $body
            }
            E::S8 => {
                type $scalar = i8;
                $body
            }
            E::U8 => {
                type $scalar = u8;
                $body
            }
            E::S32 => {
                type $scalar = i32;
                $body
            }
        }
    }};
}
pub(crate) use with_scalar;

#[cfg(test)]
mod tests {
    use super::*;

    /// All finite values of a type of at most 16 bits, ascending, with the evenness of their
    /// significand.
    fn table<S: Scalar>(from_bits: impl Fn(u16) -> S, bits: u32) -> Vec<(f64, bool)> {
        let mut values: Vec<(f64, bool)> = (0..1u32 << (bits - 1))
            .map(|pattern| (from_bits(pattern as u16).to_double(), pattern % 2 == 0))
            .filter(|(value, _)| value.is_finite())
            .collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        values
    }

    /// Every finite value, every midpoint between neighbours and the doubles next to a midpoint
    /// round as they should.
    fn check_rounding<S: Scalar>(from_bits: impl Fn(u16) -> S, bits: u32) {
        let values = table(from_bits, bits);
        for (value, _) in &values {
            assert_eq!(S::from_double(*value).to_double(), *value);
            assert_eq!(S::from_double(-*value).to_double(), -*value);
            assert_eq!(S::from_single(*value as f32).to_double(), *value);
        }
        for pair in values.windows(2) {
            let ((low, low_even), (high, _)) = (pair[0], pair[1]);
            let middle = (low + high) / 2.0;
            let tie = if low_even { low } else { high };
            for sign in [1.0, -1.0] {
                let round = |value: f64| S::from_double(sign * value).to_double() * sign;
                assert_eq!(round(middle), tie, "tie between {low} and {high}");
                assert_eq!(round(middle.next_down()), low, "below the tie of {low} and {high}");
                assert_eq!(round(middle.next_up()), high, "above the tie of {low} and {high}");
                let round = |value: f32| S::from_single(sign as f32 * value).to_double() * sign;
                let middle = middle as f32;
                assert_eq!(round(middle), tie);
                assert_eq!(round(middle.next_down()), low);
                assert_eq!(round(middle.next_up()), high);
            }
        }
    }

    #[test]
    fn every_value_and_every_tie_of_the_narrow_floats() {
        check_rounding(f16::from_bits, 16);
        check_rounding(bf16::from_bits, 16);
        check_rounding(|bits| E4m3(bits as u8), 8);
        check_rounding(|bits| E5m2(bits as u8), 8);
    }

    #[test]
    fn all_patterns_of_the_16_bit_floats_survive() {
        for bits in 0..=u16::MAX {
            for (there, back) in [
                (f16::from_bits(bits).to_double(), |v| f16::from_double(v).to_bits() as u32),
                (bf16::from_bits(bits).to_double(), |v| bf16::from_double(v).to_bits() as u32),
            ] as [(f64, fn(f64) -> u32); 2]
            {
                if !there.is_nan() {
                    assert_eq!(back(there), u32::from(bits));
                }
            }
            assert_eq!(f16::from_bits(bits).to_double().is_nan(), f16::from_bits(bits).is_nan());
            assert_eq!(bf16::from_bits(bits).to_double().is_nan(), bf16::from_bits(bits).is_nan());
            // NaN stays NaN, whatever its payload.
            let nan = f32::from_bits(0x7f80_0000 | (u32::from(bits) + 1));
            assert!(bf16::from_single(nan).is_nan());
            assert!(f16::from_single(nan).is_nan());
            assert!(Tf32::from_single(nan).0.is_nan());
        }
    }

    #[test]
    fn slices_convert_as_elements_do() {
        let values: Vec<f32> =
            (0..=u16::MAX).map(|i| f32::from_bits(u32::from(i) * 65521)).collect();
        let mut halves = vec![f16::ZERO; values.len()];
        f16::slice_from_f32(&values, &mut halves);
        let mut back = vec![0f32; values.len()];
        f16::slice_to_f32(&halves, &mut back);
        for ((value, half), back) in values.iter().zip(&halves).zip(&back) {
            assert_eq!(half.to_bits(), f16::from_single(*value).to_bits());
            assert_eq!(back.to_bits(), half.to_single().to_bits());
        }
    }

    #[test]
    fn beyond_the_range() {
        assert_eq!(f16::from_double(65519.999), f16::MAX);
        assert_eq!(f16::from_double(65520.0), f16::INFINITY);
        assert_eq!(f16::from_double(-1e300), f16::NEG_INFINITY);
        assert_eq!(bf16::from_double(1e300), bf16::INFINITY);
        assert_eq!(bf16::from_double(f64::NEG_INFINITY), bf16::NEG_INFINITY);
        for (value, e4m3, e5m2) in
            [(1e9, 448.0, 57344.0), (f64::INFINITY, 448.0, 57344.0), (-1e9, -448.0, -57344.0)]
        {
            assert_eq!(E4m3::from_double(value).to_double(), e4m3);
            assert_eq!(E5m2::from_double(value).to_double(), e5m2);
        }
        for nan in [f64::NAN, -f64::NAN] {
            assert!(E4m3::from_double(nan).to_double().is_nan());
            assert!(E5m2::from_double(nan).to_double().is_nan());
            assert_eq!((E4m3::from_double(nan).0, E5m2::from_double(nan).0), (0x7f, 0x7f));
        }
        assert_eq!(i8::from_double(1e9), 127);
        assert_eq!(u8::from_double(-3.0), 0);
        assert_eq!(i32::from_double(f64::NAN), 0);
        assert_eq!((i8::from_double(2.5), i8::from_double(3.5), i8::from_double(-0.5)), (2, 4, 0));
        assert_eq!(Tf32::from_single(1.0 + 2f32.powi(-11)).0, 1.0);
        assert_eq!(Tf32::from_single(1.0 + 3.0 * 2f32.powi(-11)).0, 1.0 + 2f32.powi(-9));
    }

    #[test]
    fn doubles_round_once() {
        // Just above the tie of 1 and the next f16, by less than an f32 can show.
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(f16::from_double(above).to_double(), 1.0 + 2f64.powi(-10));
        let above = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(bf16::from_double(above).to_double(), 1.0 + 2f64.powi(-7));
    }
}
