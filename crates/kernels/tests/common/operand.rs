//! Matrices as they lie in memory, and the integers and factors in them.

use half::{bf16, f16};
use pgemm_ir::{Element, FloatFormat, Format};
use pgemm_kernels::{Epilogue, Spec};

use super::Case;

/// Padded matrices as they lie in memory.
pub struct Operand {
    pub bytes: Vec<u8>,
    /// Bytes before element (0, 0).
    pub guard: usize,
    pub leading_dimension: usize,
    /// Elements from one matrix to the next; 0 where there is one.
    pub batch_stride: usize,
}

/// A byte of NaNs in every floating-point type.
pub const POISON: u8 = 0xff;

impl Operand {
    /// `count` matrices of `lines` lines of `length` elements. NaNs stand behind each line, and at
    /// least one line of NaNs before the first and after the last matrix. Addresses and leading
    /// dimensions exceed a multiple of 16 bytes by `off` elements.
    pub fn new(
        element: Element,
        count: usize,
        [lines, length]: [usize; 2],
        off: usize,
        value: impl Fn(usize, usize, usize) -> f64,
    ) -> Operand {
        let size = element.bytes() as usize;
        // Lines that TMA moves are multiples of 16 bytes, here with at least one chunk of padding.
        let leading_dimension = (length * size / 16 + 2) * 16 / size + off;
        let line_bytes = leading_dimension * size;
        let guard = line_bytes.next_multiple_of(16) + off * size;
        // No multiple of a line, so that no matrix seems to go on in the next.
        let apart = (lines + 1) * line_bytes + 16;
        let mut bytes = vec![POISON; guard + (count - 1) * apart + (lines + 1) * line_bytes];
        for (matrix, line) in (0..count).flat_map(|at| (0..lines).map(move |line| (at, line))) {
            let start = guard + matrix * apart + line * line_bytes;
            for i in 0..length {
                let place = &mut bytes[start + i * size..][..size];
                write_element(place, element, value(matrix, line, i));
            }
        }
        let batch_stride = if count == 1 { 0 } else { apart / size };
        Operand { bytes, guard, leading_dimension, batch_stride }
    }

    /// The same without the bytes behind the last element. An empty matrix keeps them.
    pub fn without_end(mut self, [lines, length]: [usize; 2], element: Element) -> Operand {
        let size = element.bytes() as usize;
        let behind = (2 * self.leading_dimension - length) * size;
        if lines * length > 0 {
            self.bytes.truncate(self.bytes.len() - behind);
        }
        self
    }
}

/// Bytes before a bias that is `off` elements beyond whole 16-byte units.
pub fn bias_offset(spec: &Spec, off: usize) -> usize {
    off * Epilogue::bias_type(spec.output).bytes() as usize
}

pub fn bias_bytes(spec: &Spec, bias: &[i32], off: usize) -> Vec<u8> {
    let element = Epilogue::bias_type(spec.output);
    let mut bytes = vec![POISON; bias_offset(spec, off)];
    for &value in bias {
        let start = bytes.len();
        bytes.resize(start + element.bytes() as usize, 0);
        write_element(&mut bytes[start..], element, value.into());
    }
    bytes
}

/// Writes the element nearest to `value`. For tf32, writes a binary32 number just below it in
/// magnitude, which becomes `value` when it is rounded.
fn write_element(place: &mut [u8], element: Element, value: f64) {
    let single = value as f32;
    match element {
        Element::Bf16 => place.copy_from_slice(&bf16::from_f32(single).to_le_bytes()),
        Element::F16 => place.copy_from_slice(&f16::from_f32(single).to_le_bytes()),
        Element::F32 => place.copy_from_slice(&single.to_le_bytes()),
        Element::Tf32 => {
            let below = if value == 0.0 { 0 } else { 0x800 };
            place.copy_from_slice(&(single.to_bits() - below).to_le_bytes());
        }
        Element::E4m3 => place[0] = float8(single, 3, -6, 448.0),
        Element::E5m2 => place[0] = float8(single, 2, -14, 57344.0),
        Element::S8 => place[0] = (single.round_ties_even() as i8).cast_unsigned(),
        Element::U8 => place[0] = value as u8,
        Element::S32 => place.copy_from_slice(&(value as i32).to_le_bytes()),
        Element::F64 => place.copy_from_slice(&value.to_le_bytes()),
    }
}

/// The value of an element of floating-point type, and the distance to the next element that is
/// larger in magnitude.
pub fn read_element(place: &[u8], element: Element) -> (f64, f64) {
    let Format::Float(format) = element.format() else { panic!("{element} is no float") };
    let FloatFormat { exponent_bits, mantissa_bits, infinities } = format;
    let bits = place.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let exponent = (bits >> mantissa_bits & ((1 << exponent_bits) - 1)) as i32;
    let unit = 2f64.powi(exponent.max(1) - format.bias() - mantissa_bits as i32);
    let implied = if exponent == 0 { 0 } else { 1 << mantissa_bits };
    let magnitude = (mantissa + implied) as f64 * unit;
    let special = bits & ((1 << (exponent_bits + mantissa_bits)) - 1) > format.largest_bits();
    let value = match special {
        false => magnitude,
        true if infinities && mantissa == 0 => f64::INFINITY,
        true => f64::NAN,
    };
    let negative = bits >> (exponent_bits + mantissa_bits) & 1 == 1;
    (if negative { -value } else { value }, unit)
}

/// The 8-bit float with `fraction` bits of fraction that is nearest to `value`, and the even one if
/// two are equally near. `least` is the exponent of the type's smallest normal number, and
/// `largest` its largest number, at which values saturate.
fn float8(value: f32, fraction: i32, least: i32, largest: f32) -> u8 {
    let magnitude = value.abs().min(largest);
    // All of the numbers, in the order of their patterns.
    let number = |bits: i32| match (bits >> fraction, bits & ((1 << fraction) - 1)) {
        (0, low) => low as f32 * 2f32.powi(least - fraction),
        (exponent, low) => {
            ((1 << fraction) + low) as f32 * 2f32.powi(exponent - 1 + least - fraction)
        }
    };
    let (mut below, mut above) = (0, 0x7f);
    while above - below > 1 {
        let middle = (below + above) / 2;
        if number(middle) <= magnitude { below = middle } else { above = middle }
    }
    let [down, up] = [magnitude - number(below), number(above) - magnitude];
    let nearest = if down < up || down == up && below % 2 == 0 { below } else { above };
    nearest as u8 | if value.is_sign_negative() { 0x80 } else { 0 }
}

/// The factor of A·B. Products of integers are large. Where D has another type than `s32`, they are
/// scaled so that some results saturate.
pub fn alpha_of(spec: &Spec, case: &Case) -> f32 {
    let integers = matches!(spec.a, Element::S8 | Element::U8) && spec.output != Element::S32;
    case.alpha * if integers { 2f32.powi(-11) } else { 1.0 }
}

/// Makes elements of operands from integers of at most 4 in magnitude. Those of 8-bit integers use
/// the whole range of the type. All other types represent them exactly.
pub fn values_of(element: Element, integers: Vec<i32>) -> Vec<i32> {
    let value = |integer: i32| match element {
        Element::S8 => integer * 31,
        Element::U8 => (integer + 4) * 31,
        _ => integer,
    };
    integers.into_iter().map(value).collect()
}

/// A factor for integers, from one that is a multiple of a half: so large that products wrap.
pub fn integer_factor(factor: f32) -> i32 {
    (factor * 2.0) as i32 * 0x1_0001
}

/// Integers from `-limit` to `limit` that look random.
pub fn integers(seed: u64, count: usize, limit: u64) -> Vec<i32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            // Knuth's MMIX generator; its high bits are good enough.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % (2 * limit + 1)) as i32 - limit as i32
        })
        .collect()
}
