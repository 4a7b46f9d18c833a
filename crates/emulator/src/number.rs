//! Numbers of the element types: binary32 rounded to them, and widened again.

use std::sync::LazyLock;

use half::{bf16, f16};
use pgemm_ir::{Element, FloatFormat, Format};

/// NaN as conversions to 8-bit floats give it (PTX ISA, "cvt").
const BYTE_NAN: u8 = 0x7f;

/// Bits of the exponent that bfloat16 shares with binary32.
const WORD_EXPONENT_BITS: u32 = 8;

/// A binary32 rounded to nearest even to an element type of 16 or 8 bits. 16-bit results overflow,
/// 8-bit results saturate. NaN is 0 in integers.
pub(crate) fn round(element: Element, value: f32) -> u16 {
    match (element.bits(), element.format()) {
        (16, Format::Float(format)) if format.exponent_bits == WORD_EXPONENT_BITS => {
            bf16::from_f32(value).to_bits()
        }
        (8, Format::Float(format)) => round_to_byte(format, value).into(),
        // `as` saturates.
        (8, Format::Integer { signed: true }) => {
            (value.round_ties_even() as i8).cast_unsigned().into()
        }
        (8, Format::Integer { signed: false }) => (value.round_ties_even() as u8).into(),
        _ => f16::from_f32(value).to_bits(),
    }
}

/// An element of 16 or 8 bits as a binary32.
pub(crate) fn widen(element: Element, bits: u16) -> f32 {
    match (element.bits(), element.format()) {
        (16, Format::Float(format)) if format.exponent_bits == WORD_EXPONENT_BITS => {
            bf16::from_bits(bits).to_f32()
        }
        (8, Format::Float(format)) => widen_byte(format, bits as u8),
        (8, Format::Integer { signed: true }) => f32::from((bits as u8).cast_signed()),
        (8, Format::Integer { signed: false }) => f32::from(bits as u8),
        _ => f16::from_bits(bits).to_f32(),
    }
}

/// Appends the floats in `bytes` as tensor cores read them.
pub(crate) fn widen_all(element: Element, bytes: &[u8], out: &mut Vec<f32>) {
    let Format::Float(format) = element.format() else { return };
    let pairs = || bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    match element.bits() {
        8 => {
            let numbers = &BYTES[element as usize];
            out.extend(bytes.iter().map(|&bits| numbers[usize::from(bits)]));
        }
        16 if format.exponent_bits == WORD_EXPONENT_BITS => {
            out.extend(pairs().map(|bits| bf16::from_bits(bits).to_f32()));
        }
        16 => out.extend(pairs().map(|bits| f16::from_bits(bits).to_f32())),
        _ => {
            let read = u32::MAX << missing_bits(format);
            out.extend(bytes.chunks_exact(4).map(|word| {
                let bits = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                f32::from_bits(bits & read)
            }));
        }
    }
}

/// Rounds binary32 words to nearest even to the mantissa of a format with the same exponent. A NaN
/// stays one.
pub(crate) fn round_words(format: FloatFormat, words: &mut [u8]) {
    let missing = missing_bits(format);
    if missing == 0 {
        return;
    }
    let half = (1 << (missing - 1)) - 1;
    for word in words.chunks_exact_mut(4) {
        let bits = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let rounded = if f32::from_bits(bits).is_nan() {
            bits | 0x0040_0000
        } else {
            bits + half + (bits >> missing & 1)
        };
        word.copy_from_slice(&(rounded & u32::MAX << missing).to_le_bytes());
    }
}

/// Mantissa bits of a binary32 that a format with the same exponent does not have.
fn missing_bits(format: FloatFormat) -> u32 {
    f32::MANTISSA_DIGITS - 1 - format.mantissa_bits
}

/// The numbers of each element type of 8 bits, by type and bits.
static BYTES: LazyLock<Vec<[f32; 256]>> = LazyLock::new(|| {
    let numbers = |element: Element| match element.format() {
        Format::Float(format) if element.bits() == 8 => {
            std::array::from_fn(|bits| widen_byte(format, bits as u8))
        }
        _ => [0.0; 256],
    };
    Element::ALL.into_iter().map(numbers).collect()
});

fn round_to_byte(format: FloatFormat, value: f32) -> u8 {
    if value.is_nan() {
        return BYTE_NAN;
    }
    let mantissa_bits = format.mantissa_bits as i32;
    let magnitude = value.abs().min(widen_byte(format, format.largest_bits() as u8));
    // Subnormal binary32 have no exponent as large as any of an 8-bit float.
    let exponent = (magnitude.to_bits() >> 23).cast_signed() - 127;
    let exponent = exponent.max(format.least_exponent());
    let last_place = 2f64.powi(exponent - mantissa_bits);
    let places = (f64::from(magnitude) / last_place).round_ties_even() as i32;
    // The leading bit counts as one exponent, and a carry as another.
    let bits = ((exponent - format.least_exponent()) << mantissa_bits) + places;
    bits as u8 | if value.is_sign_negative() { 0x80 } else { 0 }
}

fn widen_byte(format: FloatFormat, bits: u8) -> f32 {
    let FloatFormat { exponent_bits, mantissa_bits, infinities } = format;
    let all_exponents = (1 << exponent_bits) - 1;
    let exponent = u32::from(bits) >> mantissa_bits & all_exponents;
    let mantissa = u32::from(bits) & ((1 << mantissa_bits) - 1);
    let least_place = 2f32.powi(format.least_exponent() - mantissa_bits as i32);
    let magnitude = match (exponent == all_exponents, mantissa) {
        (true, 0) if infinities => f32::INFINITY,
        // A quiet NaN with the same leading bits.
        (true, _) if infinities => f32::from_bits(
            f32::NAN.to_bits() | mantissa << (f32::MANTISSA_DIGITS - 1 - mantissa_bits),
        ),
        (true, _) if mantissa == (1 << mantissa_bits) - 1 => f32::NAN,
        _ if exponent == 0 => mantissa as f32 * least_place,
        _ => {
            let significand = (mantissa | 1 << mantissa_bits) as f32;
            significand * least_place * 2f32.powi(exponent as i32 - 1)
        }
    };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(element: Element, bits: u8) -> f32 {
        BYTES[element as usize][usize::from(bits)]
    }

    #[test]
    fn e4m3_covers_its_range() {
        let e4m3 = |bits| byte(Element::E4m3, bits);
        assert_eq!(e4m3(0x7e), 448.0);
        assert_eq!(e4m3(0x38), 1.0);
        assert_eq!(e4m3(0x01), 2f32.powi(-9));
        assert_eq!(e4m3(0xb8), -1.0);
        assert!(e4m3(0x7f).is_nan());
    }

    #[test]
    fn e5m2_is_the_upper_half_of_binary16() {
        for bits in 0..=255 {
            let (found, expected) =
                (byte(Element::E5m2, bits), f16::from_bits(u16::from(bits) << 8).to_f32());
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{bits:#x}");
        }
    }

    /// Every number rounds to itself, a number between two to the nearer, and their middle to the
    /// even one.
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
        for element in [Element::E4m3, Element::E5m2] {
            assert_eq!(round(element, f32::NAN), u16::from(BYTE_NAN));
        }
        let rounded = [2.5, 3.5, -0.5, -1.5, 127.5, -128.5, f32::NAN];
        let rounded = rounded.map(|value| widen(Element::S8, round(Element::S8, value)));
        assert_eq!(rounded, [2.0, 4.0, 0.0, -2.0, 127.0, -128.0, 0.0]);
    }
}
