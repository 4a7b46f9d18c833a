//! The precision of a config, and the checks that kernels exist for it.

use pgemm_ir::Element;

use super::Config;
use crate::error::{PlanError, Result};
use crate::precision::Precision;

impl Config {
    /// Sets the precision.
    pub fn with_precision(self, precision: Precision) -> Self {
        Config { precision: Some(precision), ..self }
    }

    /// The requested precision. Without a request it is the precision of the named kernel, or
    /// [`Precision::Full`]. A precision that makes no difference for these types is reported as
    /// [`Precision::Full`].
    pub fn precision(&self) -> Precision {
        match (self.precision, &self.spec) {
            (None, Some(spec)) => Precision::of(spec),
            (None, None) => Precision::Full,
            (Some(Precision::Fast), _) => Precision::full_or_fast(self.dtype, true),
            (Some(Precision::Exact), _) if self.dtype == Element::F32 => Precision::Full,
            (Some(requested), _) => requested,
        }
    }

    /// The same config with f32 multiplied in binary32, and without the knobs that only kernels
    /// with terms have. It serves products with k = 0, which have nothing to split into terms.
    pub fn without_terms(self) -> Self {
        match self.precision().terms() {
            None => self,
            Some(_) => Config { precision: None, spec: None, split: None, swapped: None, ..self },
        }
    }

    /// Checks that there are kernels of the requested precision for these types, and that the named
    /// kernel has it.
    ///
    /// # Errors
    /// [`PlanError::PrecisionOperands`], [`PlanError::PrecisionOutput`],
    /// [`PlanError::PrecisionOfSpec`], or [`PlanError::ScaledSpec`].
    pub fn check_precision(&self) -> Result<()> {
        let precision = self.precision();
        let only_for = |operands: Element, found: Element| {
            Err(PlanError::PrecisionOperands { precision, operands, found })
        };
        let other_than =
            |element| self.operands().into_iter().find(move |operand| *operand != element);
        match self.spec {
            Some(spec) if Precision::of(&spec) != precision => {
                Err(PlanError::PrecisionOfSpec { precision, spec, own: Precision::of(&spec) })
            }
            _ if precision.terms().is_some() => {
                match (other_than(Element::F32), self.output_dtype()) {
                    (Some(found), _) => only_for(Element::F32, found),
                    (None, Element::F32) => Ok(()),
                    (None, found) => Err(PlanError::PrecisionOutput { precision, found }),
                }
            }
            Some(spec) if spec.scaled => Err(PlanError::ScaledSpec { spec }),
            _ if precision == Precision::Exact => only_for(Element::F32, self.dtype),
            _ if precision == Precision::F16 => {
                other_than(Element::F16).map_or(Ok(()), |found| only_for(Element::F16, found))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_8_bit_floats_have_a_fast_way() {
        let requested = |element| Config::new(element).with_precision(Precision::Fast).precision();
        assert_eq!(requested(Element::E5m2), Precision::Fast);
        assert_eq!(requested(Element::Bf16), Precision::Full);
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
        let fast: pgemm_kernels::Spec = "e4m3-kk-bf16-256x128x128-s4-w2-c1x1".parse().unwrap();
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
