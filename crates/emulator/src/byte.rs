//! Elements of 8 bits as results: binary32 rounded to them, to nearest even and saturated, and widened again.

use half::f16;
use pgemm_ir::Element;

/// An 8-bit float: bits of fraction, exponent of its smallest normal number, largest number.
struct Float {
    fraction: i32,
    least_exponent: i32,
    largest: f32,
}

const E4M3: Float = Float { fraction: 3, least_exponent: -6, largest: 448.0 };
const E5M2: Float = Float { fraction: 2, least_exponent: -14, largest: 57344.0 };

/// NaN as conversions give it, in either type.
const NAN: u8 = 0x7f;

impl Float {
    fn round(&self, value: f32) -> u8 {
        if value.is_nan() {
            return NAN;
        }
        let magnitude = value.abs().min(self.largest);
        // Subnormal binary32 have no exponent as large as any here.
        let exponent = (magnitude.to_bits() >> 23).cast_signed() - 127;
        let exponent = exponent.max(self.least_exponent);
        let last_place = 2f64.powi(exponent - self.fraction);
        let places = (f64::from(magnitude) / last_place).round_ties_even() as i32;
        // With the leading bit, which counts one exponent; a carry counts another.
        let bits = ((exponent - self.least_exponent) << self.fraction) + places;
        bits as u8 | if value.is_sign_negative() { 0x80 } else { 0 }
    }
}

/// A binary32 rounded to `e4m3`, `e5m2` or `s8`. NaN is 0 in integers.
pub(crate) fn round(element: Element, value: f32) -> u8 {
    match element {
        Element::E4m3 => E4M3.round(value),
        Element::E5m2 => E5M2.round(value),
        // `as` saturates.
        _ => (value.round_ties_even() as i8).cast_unsigned(),
    }
}

/// An element of these types as a binary32.
pub(crate) fn widen(element: Element, bits: u8) -> f32 {
    match element {
        Element::E4m3 => e4m3(bits),
        Element::E5m2 => e5m2(bits),
        _ => f32::from(bits.cast_signed()),
    }
}

/// The numbers of 8-bit floats, by their bits.
pub(crate) static E4M3_NUMBERS: [f32; 256] = {
    let mut numbers = [0.0; 256];
    let mut bits = 0;
    while bits < numbers.len() {
        numbers[bits] = e4m3(bits as u8);
        bits += 1;
    }
    numbers
};
pub(crate) static E5M2_NUMBERS: [f32; 256] = {
    let mut numbers = [0.0; 256];
    let mut bits = 0;
    while bits < numbers.len() {
        numbers[bits] = e5m2(bits as u8);
        bits += 1;
    }
    numbers
};

/// The value of an e4m3.
const fn e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = ((bits >> 3 & 15) as u32, (bits & 7) as u32);
    let magnitude = match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa as f32 / 512.0,
        _ => f32::from_bits((exponent + 127 - 7) << 23 | mantissa << 20),
    };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

/// The value of an e5m2, which is the upper half of a binary16.
const fn e5m2(bits: u8) -> f32 {
    f16::from_bits((bits as u16) << 8).to_f32_const()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_covers_its_range() {
        assert_eq!(e4m3(0x7e), 448.0);
        assert_eq!(e4m3(0x38), 1.0);
        assert_eq!(e4m3(0x01), 2f32.powi(-9));
        assert_eq!(e4m3(0xb8), -1.0);
        assert!(e4m3(0x7f).is_nan());
    }

    /// Every number rounds to itself, what lies between two to the nearer, and their middle to the even one.
    #[test]
    fn floats_round_to_nearest_even() {
        for (element, largest) in [(Element::E4m3, 0x7e), (Element::E5m2, 0x7b)] {
            for bits in 0..largest {
                let [low, high] = [bits, bits + 1].map(|bits| widen(element, bits));
                let middle = (low + high) / 2.0;
                let even = bits + bits % 2;
                let near = [low, middle.next_down(), middle, middle.next_up(), high];
                for (value, expected) in
                    near.into_iter().zip([bits, bits, even, bits + 1, bits + 1])
                {
                    assert_eq!(round(element, value), expected, "{element} {value}");
                    assert_eq!(round(element, -value), expected | 0x80, "{element} -{value}");
                }
            }
            assert_eq!(round(element, widen(element, largest)), largest);
        }
    }

    #[test]
    fn results_beyond_the_range_saturate() {
        for (element, largest, least) in
            [(Element::E4m3, 0x7e, 0xfe), (Element::E5m2, 0x7b, 0xfb), (Element::S8, 0x7f, 0x80)]
        {
            for beyond in [65536.0, 1e30, f32::INFINITY] {
                assert_eq!([round(element, beyond), round(element, -beyond)], [largest, least]);
            }
        }
        assert_eq!(
            [Element::E4m3, Element::E5m2].map(|element| round(element, f32::NAN)),
            [NAN; 2]
        );
        let rounded = [2.5, 3.5, -0.5, -1.5, 127.5, -128.5, f32::NAN];
        let rounded = rounded.map(|value| widen(Element::S8, round(Element::S8, value)));
        assert_eq!(rounded, [2.0, 4.0, 0.0, -2.0, 127.0, -128.0, 0.0]);
    }
}
