//! The one table of element types: what matrices are made of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities (OCP E4M3).
    E4m3,
    /// 8-bit float, 5 exponent and 2 mantissa bits (OCP E5M2).
    E5m2,
    /// Signed 8-bit integer.
    S8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    S32,
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

    /// Size of one element in memory, in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 1,
            Element::F16 | Element::Bf16 => 2,
            Element::F32 | Element::Tf32 | Element::S32 => 4,
            Element::F64 => 8,
        }
    }

    /// Whether [`Op::Pack`](crate::Op::Pack) and [`Op::Unpack`](crate::Op::Unpack) know it: the types that binary32 results are
    /// rounded to.
    pub const fn is_packed(self) -> bool {
        matches!(self, Element::F16 | Element::Bf16 | Element::E4m3 | Element::E5m2 | Element::S8)
    }

    /// The name users type and PTX uses: `bf16`, `e4m3`, `s32`, …
    pub const fn name(self) -> &'static str {
        match self {
            Element::F16 => "f16",
            Element::Bf16 => "bf16",
            Element::F32 => "f32",
            Element::Tf32 => "tf32",
            Element::F64 => "f64",
            Element::E4m3 => "e4m3",
            Element::E5m2 => "e5m2",
            Element::S8 => "s8",
            Element::U8 => "u8",
            Element::S32 => "s32",
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not an element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dtype '{asked}': use one of f16, bf16, f32, tf32, f64, e4m3, e5m2, s8, u8, s32")]
pub struct UnknownElement {
    /// What was asked for.
    pub asked: String,
}

impl FromStr for Element {
    type Err = UnknownElement;

    fn from_str(text: &str) -> Result<Self, UnknownElement> {
        Element::ALL
            .into_iter()
            .find(|element| element.name() == text)
            .ok_or_else(|| UnknownElement { asked: text.to_owned() })
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
        assert!("float".parse::<Element>().unwrap_err().to_string().contains("'float'"));
    }
}
