//! The one table of element types: what matrices are made of, and what the hardware does with each
//! type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Type;
use crate::named::{Named, alternatives};

/// The type of one matrix element in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// binary32 storage of which the tensor core reads the upper 19 bits.
    Tf32,
    /// IEEE 754 binary64.
    F64,
    /// 8-bit float with 4 exponent and 3 mantissa bits and without infinities (OCP E4M3).
    E4m3,
    /// 8-bit float with 5 exponent and 2 mantissa bits (OCP E5M2).
    E5m2,
    /// Signed 8-bit integer.
    S8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    S32,
}

/// How the bits of an element make a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A binary floating-point number.
    Float(FloatFormat),
    /// An integer of all bits, in two's complement where it is signed.
    Integer {
        /// Whether it has a sign.
        signed: bool,
    },
}

/// A binary floating-point format. The bits below sign, exponent and mantissa are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Bits of the exponent.
    pub exponent_bits: u32,
    /// Bits of the mantissa that are stored, so without the leading one.
    pub mantissa_bits: u32,
    /// Whether the largest exponent is kept for infinities and NaN. Without infinities only the
    /// pattern with all exponent and mantissa bits set is a NaN.
    pub infinities: bool,
}

impl FloatFormat {
    /// The exponent of the number one as it is stored.
    pub const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The exponent of the smallest normal number.
    pub const fn least_exponent(self) -> i32 {
        1 - self.bias()
    }

    /// The bits of the largest finite number.
    pub const fn largest_bits(self) -> u64 {
        let all = (1 << (self.exponent_bits + self.mantissa_bits)) - 1;
        if self.infinities { all - (1 << self.mantissa_bits) } else { all - 1 }
    }
}

/// Element types that one wgmma can multiply (PTX ISA, "wgmma.mma_async"): both operands are of
/// the same family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MmaFamily {
    F16,
    Bf16,
    Tf32,
    Float8,
    Integer8,
}

impl MmaFamily {
    /// The register types that accumulate products, the usual one first.
    const fn accumulators(self) -> &'static [Type] {
        match self {
            MmaFamily::F16 => &[Type::F32, Type::B32],
            MmaFamily::Bf16 | MmaFamily::Tf32 | MmaFamily::Float8 => &[Type::F32],
            MmaFamily::Integer8 => &[Type::S32],
        }
    }
}

/// A row of the table.
struct Facts {
    name: &'static str,
    /// Bits in memory.
    bits: u32,
    format: Format,
    /// The types that wgmma multiplies it with.
    family: Option<MmaFamily>,
    /// Whether there are conversions from binary32 and back.
    converts: bool,
}

#[inline]
const fn float(exponent_bits: u32, mantissa_bits: u32, infinities: bool) -> Format {
    Format::Float(FloatFormat { exponent_bits, mantissa_bits, infinities })
}

#[inline]
const fn integer(signed: bool) -> Format {
    Format::Integer { signed }
}

/// `row(name, bits, format, family, converts)`.
#[inline]
const fn row(
    name: &'static str,
    bits: u32,
    format: Format,
    family: Option<MmaFamily>,
    converts: bool,
) -> Facts {
    Facts { name, bits, format, family, converts }
}

impl Element {
    /// Every element type, in the order of the enum.
    pub const ALL: [Element; 10] = [
        Element::F16,
        Element::Bf16,
        Element::F32,
        Element::Tf32,
        Element::F64,
        Element::E4m3,
        Element::E5m2,
        Element::S8,
        Element::U8,
        Element::S32,
    ];

    /// The table. It is inlined, as are the methods that read it, because the planner of the host
    /// library calls them for every candidate kernel.
    #[inline]
    const fn facts(self) -> Facts {
        use MmaFamily::{Bf16, F16, Float8, Integer8, Tf32};

        match self {
            Element::F16 => row("f16", 16, float(5, 10, true), Some(F16), true),
            Element::Bf16 => row("bf16", 16, float(8, 7, true), Some(Bf16), true),
            Element::F32 => row("f32", 32, float(8, 23, true), None, false),
            Element::Tf32 => row("tf32", 32, float(8, 10, true), Some(Tf32), false),
            Element::F64 => row("f64", 64, float(11, 52, true), None, false),
            Element::E4m3 => row("e4m3", 8, float(4, 3, false), Some(Float8), true),
            Element::E5m2 => row("e5m2", 8, float(5, 2, true), Some(Float8), true),
            Element::S8 => row("s8", 8, integer(true), Some(Integer8), true),
            Element::U8 => row("u8", 8, integer(false), Some(Integer8), false),
            Element::S32 => row("s32", 32, integer(true), None, false),
        }
    }

    /// The name that users type, which is also the type's suffix in PTX: `bf16`, `e4m3`, `s32`.
    #[inline]
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Size of one element in memory, in bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.facts().bits
    }

    /// Size of one element in memory, in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        self.facts().bits / 8
    }

    /// How its bits make a number.
    #[inline]
    pub const fn format(self) -> Format {
        self.facts().format
    }

    /// Whether it is a floating-point type.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self.facts().format, Format::Float(_))
    }

    /// Whether it is a floating-point type of 8 bits.
    #[inline]
    pub const fn is_float8(self) -> bool {
        self.is_float() && self.bits() == 8
    }

    /// Whether it is an integer type.
    #[inline]
    pub const fn is_integer(self) -> bool {
        matches!(self.facts().format, Format::Integer { .. })
    }

    /// Whether binary32 values are converted to it and back in pairs: the types of
    /// [`Op::Pack`](crate::Op::Pack) and [`Op::Unpack`](crate::Op::Unpack).
    #[inline]
    pub const fn is_packed(self) -> bool {
        self.facts().converts
    }

    /// Whether a thread can load and store single elements of it as binary32 values: the types of
    /// [`Op::LoadElement`](crate::Op::LoadElement) and
    /// [`Op::StoreElement`](crate::Op::StoreElement).
    #[inline]
    pub const fn is_movable(self) -> bool {
        self.facts().converts || matches!(self, Element::F32)
    }

    /// The register types in which wgmma accumulates products of this type with `b`, the usual one
    /// first. There are none where no wgmma multiplies the two. [`Type::B32`] stands for two f16
    /// sums in a register.
    ///
    /// ```
    /// use pgemm_ir::{Element, Type};
    ///
    /// assert_eq!(Element::E4m3.accumulators_with(Element::E5m2), [Type::F32]);
    /// assert_eq!(Element::F16.accumulators_with(Element::F16), [Type::F32, Type::B32]);
    /// assert_eq!(Element::S8.accumulator_with(Element::U8), Some(Type::S32));
    /// assert_eq!(Element::F16.accumulator_with(Element::Bf16), None);
    /// ```
    #[inline]
    pub fn accumulators_with(self, b: Element) -> &'static [Type] {
        match (self.facts().family, b.facts().family) {
            (Some(own), Some(other)) if own == other => own.accumulators(),
            _ => &[],
        }
    }

    /// The usual one of [`accumulators_with`](Self::accumulators_with); `None` where no wgmma
    /// multiplies the two types.
    #[inline]
    pub fn accumulator_with(self, b: Element) -> Option<Type> {
        self.accumulators_with(b).first().copied()
    }

    /// The depth of one wgmma in elements of this type, which is 32 bytes of a K-major operand.
    #[inline]
    pub const fn wgmma_depth(self) -> u32 {
        256 / self.bits()
    }

    /// Whether wgmma can read an operand of this type that is contiguous along M or N: only 16-bit
    /// types (PTX ISA, "wgmma.mma_async").
    #[inline]
    pub const fn can_be_mn_major(self) -> bool {
        self.bits() == 16
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Named for Element {
    const VALUES: &'static [Element] = &Element::ALL;

    fn text(self) -> &'static str {
        self.name()
    }
}

/// A name that is not an element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dtype '{name}': use one of {} (s32 is for results only)", alternatives(&Element::ALL))]
pub struct UnknownElement {
    /// The name.
    pub name: String,
}

impl FromStr for Element {
    type Err = UnknownElement;

    fn from_str(text: &str) -> Result<Self, UnknownElement> {
        Element::of_text(text).ok_or_else(|| UnknownElement { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for element in Element::ALL {
            assert_eq!(element.name().parse(), Ok(element));
        }
        let error = "float".parse::<Element>().unwrap_err().to_string();
        assert!(error.contains("'float'") && error.contains("one of f16, bf16"), "{error}");
    }

    #[test]
    fn formats_fill_their_bits() {
        for element in Element::ALL {
            assert_eq!(element.bytes() * 8, element.bits());
            let Format::Float(format) = element.format() else { continue };
            let used = 1 + format.exponent_bits + format.mantissa_bits;
            // The lower 13 bits of tf32 are not read.
            assert_eq!(used, if element == Element::Tf32 { 19 } else { element.bits() });
        }
    }

    #[test]
    fn ranges_follow_from_the_bits() {
        let range = |element: Element| match element.format() {
            Format::Float(format) => (format.least_exponent(), format.largest_bits()),
            Format::Integer { .. } => unreachable!("{element} is a float"),
        };
        assert_eq!(range(Element::E4m3), (-6, 0x7e));
        assert_eq!(range(Element::E5m2), (-14, 0x7b));
        assert_eq!(range(Element::F16), (-14, 0x7bff));
        assert_eq!(range(Element::F32), (-126, u64::from(f32::MAX.to_bits())));
        assert_eq!(range(Element::F64), (-1022, f64::MAX.to_bits()));
    }

    #[test]
    fn wgmma_multiplies_within_families() {
        let pairs = Element::ALL
            .map(|a| Element::ALL.into_iter().filter(|&b| a.accumulator_with(b).is_some()).count());
        assert_eq!(pairs, [1, 1, 0, 1, 0, 2, 2, 2, 2, 0]);
        assert_eq!(
            [Element::F16, Element::Tf32, Element::S8].map(Element::wgmma_depth),
            [16, 8, 32]
        );
    }
}
