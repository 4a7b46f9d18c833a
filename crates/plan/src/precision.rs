//! [`Precision`]: how accurately a product is added up, where there is more than one way.

use std::fmt;
use std::str::FromStr;

use pgemm_ir::Element;
use pgemm_kernels::{Spec, Summation, Terms};
use serde::{Deserialize, Serialize};

/// How accurately products are added up. Types with one way only have it under every name of
/// [`Full`](Precision::Full) and [`Fast`](Precision::Fast). The CPU adds up in binary32, also
/// instead of f16, and splits no f32, whatever it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Precision {
    /// As accurately as it comes at nearly full speed: the tensor core adds up 128 products of
    /// 8-bit floats at a time, and these sums are added in binary32.
    #[default]
    Full,
    /// The tensor core adds up 8-bit floats all along k, with about 14 bits.
    Fast,
    /// The tensor core adds up f16 in f16: sums are rounded to 11 bits again and again, and
    /// infinite from 65520 on. Parts of split tiles are added in binary32.
    F16,
    /// f32 in binary32 on CUDA cores: what [`Full`](Precision::Full) is for f32.
    Exact,
    /// f32 as the sum of two tf32, three products.
    Tf32x3,
    /// f32 as the sum of two f16, three products, rows of A and columns of B scaled by powers of
    /// two.
    F16x3,
    /// f32 as the sum of three bf16, the six larger products.
    Bf16x6,
    /// f32 as the sum of three bf16, all nine products.
    Bf16x9,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 8] = [
        Precision::Full,
        Precision::Fast,
        Precision::F16,
        Precision::Exact,
        Precision::Tf32x3,
        Precision::F16x3,
        Precision::Bf16x6,
        Precision::Bf16x9,
    ];

    /// The name that users type.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::Full => "full",
            Precision::Fast => "fast",
            Precision::F16 => "f16",
            Precision::Exact => "exact",
            Precision::Tf32x3 => "tf32x3",
            Precision::F16x3 => "f16x3",
            Precision::Bf16x6 => "bf16x6",
            Precision::Bf16x9 => "bf16x9",
        }
    }

    /// That of a kernel.
    pub fn of(spec: &Spec) -> Precision {
        let Some(wgmma) = spec.wgmma() else { return Precision::Full };
        match (wgmma.terms, spec.a) {
            (Some(Terms::X3), Element::Tf32) => Precision::Tf32x3,
            (Some(Terms::X3), _) => Precision::F16x3,
            (Some(Terms::X6), _) => Precision::Bf16x6,
            (Some(Terms::X9), _) => Precision::Bf16x9,
            (None, _) if wgmma.summation == Summation::F16 => Precision::F16,
            (None, element) => Precision::full_or_fast(element, wgmma.promotion().is_none()),
        }
    }

    /// What it splits f32 into, and how many terms and products that makes.
    pub const fn terms(self) -> Option<(Element, Terms)> {
        match self {
            Precision::Tf32x3 => Some((Element::Tf32, Terms::X3)),
            Precision::F16x3 => Some((Element::F16, Terms::X3)),
            Precision::Bf16x6 => Some((Element::Bf16, Terms::X6)),
            Precision::Bf16x9 => Some((Element::Bf16, Terms::X9)),
            Precision::Full | Precision::Fast | Precision::F16 | Precision::Exact => None,
        }
    }

    /// Full or, where that is something else for operands of this type, fast.
    pub(crate) fn full_or_fast(element: Element, fast: bool) -> Precision {
        let has_few_bits = element.is_float() && element.bytes() == 1;
        if has_few_bits && fast { Precision::Fast } else { Precision::Full }
    }
}

/// Whether a precision is left out of files, as it was in those that know of none.
pub fn is_default(precision: &Precision) -> bool {
    *precision == Precision::default()
}

/// The text is not the name of a precision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no precision: use one of {}", Precision::ALL.map(Precision::name).join(", "))]
pub struct UnknownPrecision {
    /// The text.
    pub text: String,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(text: &str) -> Result<Self, UnknownPrecision> {
        let named = Precision::ALL.into_iter().find(|precision| precision.name() == text);
        named.ok_or_else(|| UnknownPrecision { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for precision in Precision::ALL {
            assert_eq!(precision.name().parse(), Ok(precision));
            let json = serde_json::to_value(precision).unwrap();
            assert_eq!(json, precision.name());
        }
        assert!("high".parse::<Precision>().unwrap_err().to_string().contains("bf16x9"));
    }
}
