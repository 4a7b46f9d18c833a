//! [`Precision`]: how accurately a product is added up, where there is more than one way.

use std::fmt;
use std::str::FromStr;

use pgemm_ir::Element;
use pgemm_kernels::{AnySpec, Terms};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::{Error, Result};

/// How accurately products are added up. Types with one way only have it under every name of [`Full`](Precision::Full) and
/// [`Fast`](Precision::Fast). The CPU adds up in binary32, also instead of f16, and splits no f32, whatever it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// As accurately as it comes at nearly full speed: the tensor core adds up 128 products of 8-bit floats at a time, and
    /// these sums are added in binary32.
    #[default]
    Full,
    /// The tensor core adds up 8-bit floats all along k, with about 14 bits.
    Fast,
    /// The tensor core adds up f16 in f16: sums are rounded to 11 bits again and again, and infinite from 65520 on. Parts of split
    /// tiles are added in binary32.
    F16,
    /// f32 in binary32 on CUDA cores: what [`Full`](Precision::Full) is for f32.
    Exact,
    /// f32 as the sum of two tf32, three products.
    Tf32x3,
    /// f32 as the sum of two f16, three products, rows of A and columns of B scaled by powers of two.
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
    pub fn of(spec: &AnySpec) -> Precision {
        let AnySpec::Wgmma(spec) = spec else { return Precision::Full };
        let arithmetic = spec.arithmetic;
        match (arithmetic.terms, spec.a) {
            (Some(Terms::X3), Element::Tf32) => Precision::Tf32x3,
            (Some(Terms::X3), _) => Precision::F16x3,
            (Some(Terms::X6), _) => Precision::Bf16x6,
            (Some(Terms::X9), _) => Precision::Bf16x9,
            (None, _) if arithmetic.f16_sums => Precision::F16,
            (None, element) => Precision::asked(element, arithmetic.promotion.is_none()),
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
    fn asked(element: Element, fast: bool) -> Precision {
        match element {
            Element::E4m3 | Element::E5m2 if fast => Precision::Fast,
            _ => Precision::Full,
        }
    }
}

/// Whether a precision is left out of files, as it was in those that know of none.
pub(crate) fn is_default(precision: &Precision) -> bool {
    *precision == Precision::default()
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Precision::ALL.into_iter().find(|precision| precision.name() == text).ok_or_else(|| {
            let names = Precision::ALL.map(Precision::name).join(", ");
            format!("'{text}' is no precision: use one of {names}")
        })
    }
}

impl Config {
    /// Sets the precision.
    pub fn with_precision(self, precision: Precision) -> Self {
        Config { precision: Some(precision), ..self }
    }

    /// The precision that is asked for, or that of the kernel that is named, else [`Precision::Full`]. What is no different
    /// for these types from that is that.
    pub fn precision(&self) -> Precision {
        match (self.precision, &self.spec) {
            (None, Some(spec)) => Precision::of(spec),
            (None, None) => Precision::Full,
            (Some(Precision::Fast), _) => Precision::asked(self.dtype, true),
            (Some(Precision::Exact), _) if self.dtype == Element::F32 => Precision::Full,
            (Some(asked), _) => asked,
        }
    }

    /// The same with f32 multiplied in binary32, and without the knobs that only kernels of terms have: for products without
    /// depth, of which there is nothing to split.
    pub(crate) fn without_terms(self) -> Self {
        match self.precision().terms() {
            None => self,
            Some(_) => Config { precision: None, spec: None, split: None, swapped: None, ..self },
        }
    }

    /// Checks the precision for these types and the kernel that is named.
    ///
    /// # Errors
    /// [`Error::InvalidKnob`] where there are no kernels for it, or the one that is named has another.
    pub(crate) fn check_precision(&self) -> Result<()> {
        let asked = self.precision();
        let refuse = |limit: String, nearest: &str| {
            let (knob, nearest) = ("precision", nearest.to_owned());
            Err(Error::InvalidKnob { knob, asked: asked.to_string(), limit, nearest })
        };
        let not_of = |element: Element| {
            let of = if asked == Precision::F16 { Element::F16 } else { Element::F32 };
            refuse(format!("it is for products of {of}, not of {element}"), "full")
        };
        match self.spec {
            Some(spec) if Precision::of(&spec) != asked => {
                let own = Precision::of(&spec);
                refuse(format!("the kernel {spec} has the precision {own}"), own.name())
            }
            _ if asked.terms().is_some() => {
                let of = self.operands().into_iter().find(|element| *element != Element::F32);
                match (of, self.output_dtype()) {
                    (Some(element), _) => not_of(element),
                    (None, Element::F32) => Ok(()),
                    (None, d) => refuse(format!("its D is f32, not {d}"), "full"),
                }
            }
            Some(AnySpec::Wgmma(spec)) if spec.arithmetic.scaled => refuse(
                format!("{spec} needs scales, which this library makes for terms only"),
                "full",
            ),
            _ if asked == Precision::Exact => not_of(self.dtype),
            _ if asked == Precision::F16 => {
                let other = self.operands().into_iter().find(|element| *element != Element::F16);
                other.map_or(Ok(()), not_of)
            }
            _ => Ok(()),
        }
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
        assert!("high".parse::<Precision>().unwrap_err().contains("bf16x9"));
    }

    #[test]
    fn only_8_bit_floats_have_a_fast_way() {
        let asked = |element| Config::new(element).with_precision(Precision::Fast).precision();
        assert_eq!(asked(Element::E5m2), Precision::Fast);
        assert_eq!(asked(Element::Bf16), Precision::Full);
        assert_eq!(Config::new(Element::E4m3).precision(), Precision::Full);
        for (spec, precision) in [
            ("e4m3-kk-bf16-256x128x128-s4-w2-c1x1-p128", Precision::Full),
            ("e4m3-kk-bf16-256x128x128-s4-w2-c1x1", Precision::Fast),
            ("bf16-kk-bf16-256x128x64-s4-w2-c1x1", Precision::Full),
            ("tf32x3-kk-f32-256x128x32-s2-w2-c1x1-p32", Precision::Tf32x3),
            ("f16x3-kk-f32-128x128x64-s2-w2-c1x1-p64-scaled", Precision::F16x3),
            ("bf16x6-kk-f32-128x128x64-s2-w2-c1x1-p64", Precision::Bf16x6),
            ("f16-kk-f32-128x128x64-s4-w2-c1x1-acc16", Precision::F16),
            ("f16-kk-f32-128x128x64-s4-w2-c1x1", Precision::Full),
        ] {
            let config = Config::for_spec(spec.parse().unwrap());
            assert_eq!(config.precision(), precision, "{spec}");
        }
    }

    #[test]
    fn what_no_kernel_has_is_refused_with_what_there_is() {
        let refused = |config: Config| config.check_precision().unwrap_err().to_string();
        let exact = Config::new(Element::F32).with_precision(Precision::Exact);
        assert!(exact.check_precision().is_ok() && exact.precision() == Precision::Full);
        for mode in [Precision::Tf32x3, Precision::F16x3, Precision::Bf16x9] {
            let split = Config::new(Element::F32).with_precision(mode);
            assert!(split.check_precision().is_ok());
            assert_eq!(split.without_terms().precision(), Precision::Full);
            let text = refused(Config::new(Element::Bf16).with_precision(mode));
            assert!(text.contains("products of f32, not of bf16"), "{text}");
        }
        let narrow = Config::new(Element::F32).with_output(Element::Bf16);
        assert!(refused(narrow.with_precision(Precision::Tf32x3)).contains("D is f32, not bf16"));
        let text = refused(Config::new(Element::Bf16).with_precision(Precision::Exact));
        assert!(text.contains("products of f32, not of bf16"), "{text}");
        for output in [Element::F16, Element::F32] {
            let half = Config::new(Element::F16).with_output(output);
            assert_eq!(half.precision(), Precision::Full);
            let half = half.with_precision(Precision::F16);
            assert!(half.check_precision().is_ok() && half.precision() == Precision::F16);
        }
        let text = refused(Config::new(Element::Bf16).with_precision(Precision::F16));
        assert!(text.contains("products of f16, not of bf16"), "{text}");
        let sums = Config::for_spec("f16-kk-f16-128x128x64-s4-w2-c1x1-acc16".parse().unwrap());
        assert!(refused(sums.with_precision(Precision::Full)).contains("has the precision f16"));
        let fast: AnySpec = "e4m3-kk-bf16-256x128x128-s4-w2-c1x1".parse().unwrap();
        let text = refused(Config::for_spec(fast).with_precision(Precision::Full));
        assert!(text.contains("has the precision fast"), "{text}");
        let split = Config::for_spec("tf32x3-kk-f32-256x128x32-s2-w2-c1x1-p32".parse().unwrap());
        assert_eq!(split.operands(), [Element::F32; 2]);
        assert!(split.check_precision().is_ok());
        let other = refused(split.with_precision(Precision::Bf16x9));
        assert!(other.contains("has the precision tf32x3"), "{other}");
        let scaled = "bf16-kk-bf16-128x128x64-s4-w2-c1x1-scaled".parse().unwrap();
        assert!(refused(Config::for_spec(scaled)).contains("scales"));
    }
}
