//! The kinds of instructions whose sums are probed, with the model of each.

use std::fmt;

use pgemm_emulator::tensor_core::{SumRules, dot_f64, read};
use pgemm_ir::{Element, FloatFormat, Format, Type, WarpMma};
use pgemm_kernels::SumInstruction;

/// Types of operands and sums.
#[derive(Clone, Copy)]
pub struct Kind {
    pub a: Element,
    pub b: Element,
    pub accumulator: Type,
    /// The MMA of a warp, if it is not wgmma.
    mma: Option<WarpMma>,
    /// The model, but for f64.
    pub rules: Option<SumRules>,
}

/// All kinds.
pub fn kinds() -> Vec<Kind> {
    use Element::{Bf16, E4m3, E5m2, F16, Tf32};
    let wgmma = |a, b, accumulator| Kind {
        a,
        b,
        accumulator,
        mma: None,
        rules: SumRules::of(a, b, accumulator),
    };
    let warp = |mma: WarpMma| Kind {
        a: mma.operand,
        b: mma.operand,
        accumulator: mma.accumulator,
        mma: Some(mma),
        rules: SumRules::of(mma.operand, mma.operand, mma.accumulator),
    };
    let mut kinds = vec![wgmma(F16, F16, Type::F32), wgmma(F16, F16, Type::B32)];
    let pairs =
        [(Bf16, Bf16), (Tf32, Tf32), (E4m3, E4m3), (E5m2, E5m2), (E4m3, E5m2), (E5m2, E4m3)];
    kinds.extend(pairs.map(|(a, b)| wgmma(a, b, Type::F32)));
    // Sums of integers are exact.
    let floats = WarpMma::ALL.into_iter().filter(|mma| mma.operand.is_float());
    kinds.extend(floats.map(warp));
    kinds
}

impl Kind {
    pub fn is_wgmma(&self) -> bool {
        self.mma.is_none()
    }

    /// Columns of a tile for many sums.
    pub fn widest(&self) -> u32 {
        self.mma.map_or(256, |mma| mma.n)
    }

    /// Columns of a tile for few.
    pub fn narrowest(&self) -> u32 {
        self.mma.map_or(64, |mma| mma.n)
    }

    pub fn instruction(&self, n: u32, a_in_registers: bool) -> SumInstruction {
        let Kind { a, b, accumulator, .. } = *self;
        match self.mma {
            Some(mma) => SumInstruction::Warp(mma),
            None => SumInstruction::Wgmma { a, b, accumulator, n, a_in_registers },
        }
    }

    /// Depth of one instruction.
    pub fn k(&self) -> usize {
        self.instruction(self.narrowest(), false).k() as usize
    }

    /// The type of C and D.
    pub fn sum(&self) -> Element {
        match self.accumulator {
            Type::F64 => Element::F64,
            Type::B32 => Element::F16,
            _ => Element::F32,
        }
    }

    /// The sum by the model.
    pub fn expected(&self, a: &[u64], b: &[u64], c: u64) -> u64 {
        match &self.rules {
            Some(rules) => self.expected_by(rules, a, b, c),
            None => {
                let [a, b] = [a, b].map(|bits| -> Vec<f64> {
                    bits.iter().map(|&bits| f64::from_bits(bits)).collect()
                });
                dot_f64(&a, &b, f64::from_bits(c)).to_bits()
            }
        }
    }

    /// The sum by some rules.
    pub fn expected_by(&self, rules: &SumRules, a: &[u64], b: &[u64], c: u64) -> u64 {
        let (a, b) = (values(self.a, a), values(self.b, b));
        rules.dot(&a, &b, f32::from_bits(c as u32)).to_bits().into()
    }

    /// Whether a sum is what the model says. Which NaN a sum is counts only for binary32.
    pub fn same(&self, found: u64, expected: u64) -> bool {
        let nan = |bits: u64| match self.accumulator {
            Type::F64 => f64::from_bits(bits).is_nan(),
            Type::B32 => f32::from_bits(bits as u32).is_nan(),
            _ => false,
        };
        found == expected || nan(found) && nan(expected)
    }

    /// The bits of a C or D.
    pub fn sum_bits(&self, value: f64) -> u64 {
        match self.accumulator {
            Type::F64 => value.to_bits(),
            _ => (value as f32).to_bits().into(),
        }
    }

    /// The number of a C or D.
    pub fn sum_value(&self, bits: u64) -> f64 {
        match self.accumulator {
            Type::F64 => f64::from_bits(bits),
            _ => f32::from_bits(bits as u32).into(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.instruction(self.narrowest(), false).fmt(f)
    }
}

/// The numbers of elements that are not f64.
fn values(element: Element, bits: &[u64]) -> Vec<f32> {
    let size = element.bytes() as usize;
    let bytes: Vec<u8> =
        bits.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(size)).collect();
    read(element, &bytes)
}

/// The format of a float type.
pub fn format_of(element: Element) -> FloatFormat {
    match element.format() {
        Format::Float(format) => format,
        Format::Integer { .. } => unreachable!("{element} is no float"),
    }
}

/// Bits of an element that are not part of its number.
pub fn unused_bits(element: Element) -> u32 {
    let format = format_of(element);
    element.bits() - 1 - format.exponent_bits - format.mantissa_bits
}

/// The bits of a finite number that an element type represents; `None` if it does not.
pub fn bits_of(element: Element, value: f64) -> Option<u64> {
    let (sign, stored, places) = parts(element, value);
    // The leading bit counts as one exponent, and a carry as another.
    let bits = stored + places as u64;
    let exact = places.fract() == 0.0 && bits <= format_of(element).largest_bits();
    exact.then(|| (sign | bits) << unused_bits(element))
}

/// The bits of the number of an element type that is nearest to a finite one. Numbers beyond the
/// range become the largest one.
pub fn nearest_bits(element: Element, value: f64) -> u64 {
    let (sign, stored, places) = parts(element, value);
    let bits = stored.saturating_add(places.round_ties_even() as u64);
    (sign | bits.min(format_of(element).largest_bits())) << unused_bits(element)
}

/// The sign, the exponent in place as if it were one less, and the significand in units of its last
/// place.
fn parts(element: Element, value: f64) -> (u64, u64, f64) {
    let format = format_of(element);
    let magnitude = value.abs();
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(format.least_exponent());
    // In two steps, since 2^1074 is no binary64.
    let places = magnitude * 2f64.powi(-exponent) * 2f64.powi(format.mantissa_bits as i32);
    let stored = ((exponent - format.least_exponent()) as u64) << format.mantissa_bits;
    let sign = u64::from(value.is_sign_negative());
    (sign << (format.exponent_bits + format.mantissa_bits), stored, places)
}
