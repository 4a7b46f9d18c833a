//! [`Precision`]: how accurately products are added up, for types that have more than one way.

use std::fmt;
use std::str::FromStr;

use pgemm_ir::Element;
use pgemm_kernels::{Spec, Summation, Terms};
use serde::{Deserialize, Serialize};

/// How accurately products are added up. For types with only one way, [`Full`](Precision::Full) and
/// [`Fast`](Precision::Fast) are the same. The CPU backend ignores the precision: it adds up in
/// binary32, also instead of f16, and does not split f32 into terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Precision {
    /// The most accurate sums at nearly full speed. Of 8-bit floats, the tensor core adds up 128
    /// products at a time, and these sums are added in binary32.
    #[default]
    Full,
    /// The tensor core adds up products of 8-bit floats along all of k, with about 14 bits.
    Fast,
    /// The tensor core adds up products of f16 in f16. Sums are rounded to 11 bits after each step,
    /// and become infinite from 65520 on. Parts of split tiles are added in binary32.
    F16,
    /// f32 is multiplied in binary32 on CUDA cores. This is the meaning of
    /// [`Full`](Precision::Full) for f32.
    Exact,
    /// f32 is split into two tf32 terms, and three products of terms are added.
    Tf32x3,
    /// f32 is split into two f16 terms, and three products of terms are added. Rows of A and
    /// columns of B are scaled by powers of two.
    F16x3,
    /// f32 is split into three bf16 terms, and the six largest products of terms are added.
    Bf16x6,
    /// f32 is split into three bf16 terms, and all nine products of terms are added.
    Bf16x9,
}

impl Precision {
    /// All precisions.
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

    /// The precision of a kernel.
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

    /// The element type and number of the terms that f32 is split into. `None` for precisions
    /// without terms.
    pub const fn terms(self) -> Option<(Element, Terms)> {
        match self {
            Precision::Tf32x3 => Some((Element::Tf32, Terms::X3)),
            Precision::F16x3 => Some((Element::F16, Terms::X3)),
            Precision::Bf16x6 => Some((Element::Bf16, Terms::X6)),
            Precision::Bf16x9 => Some((Element::Bf16, Terms::X9)),
            Precision::Full | Precision::Fast | Precision::F16 | Precision::Exact => None,
        }
    }

    /// `Fast` if `fast` is set and differs from `Full` for operands of this type, otherwise `Full`.
    pub(crate) fn full_or_fast(element: Element, fast: bool) -> Precision {
        let has_few_bits = element.is_float() && element.bytes() == 1;
        if has_few_bits && fast { Precision::Fast } else { Precision::Full }
    }
}

/// Whether a precision is the default one, which files omit.
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
