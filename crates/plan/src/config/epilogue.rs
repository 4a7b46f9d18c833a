//! The epilogue of a config, and the checks that kernels exist for it.

use pgemm_ir::Element;
use pgemm_kernels::{Epilogue, Spec};

use super::Config;
use crate::choice::Choice;
use crate::error::{PlanError, Result};
use crate::problem::Problem;

impl Config {
    /// Sets the bias and activation that are applied to results.
    pub fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Config { epilogue, ..self }
    }

    /// Element type of the bias: that of D, or bf16 if D is an 8-bit float.
    pub fn bias_dtype(&self) -> Element {
        Epilogue::bias_type(self.output_dtype())
    }

    /// Elements of the bias, or `None` if the epilogue adds none.
    pub fn bias_length(&self, problem: &Problem) -> Option<usize> {
        self.epilogue.bias().map(|_| self.epilogue.bias_length(problem.m, problem.n))
    }

    /// Checks that a bias is given if, and only if, the epilogue adds one.
    ///
    /// # Errors
    /// [`PlanError::MissingBias`], or [`PlanError::UnusedBias`].
    pub fn check_bias_given(&self, problem: &Problem, is_given: bool) -> Result<()> {
        let epilogue = self.epilogue;
        match self.bias_length(problem) {
            Some(length) if !is_given => Err(PlanError::MissingBias { epilogue, length }),
            None if is_given => Err(PlanError::UnusedBias { epilogue }),
            _ => Ok(()),
        }
    }

    /// Checks that there are kernels with the epilogue for these types, and that its activation has
    /// its parameters.
    ///
    /// # Errors
    /// [`PlanError::EpilogueOutput`] if D is of integers, [`PlanError::MissingParameters`] if the
    /// activation has parameters that are not given.
    pub fn check_epilogue(&self) -> Result<()> {
        let (epilogue, output) = (self.epilogue, self.output_dtype());
        if epilogue.lacks_parameters() {
            return Err(PlanError::MissingParameters { epilogue });
        }
        if epilogue.is_none() || !matches!(output, Element::S32 | Element::S8) {
            return Ok(());
        }
        Err(PlanError::EpilogueOutput { epilogue, output })
    }

    /// Checks that a named kernel has this epilogue, or has none, so that this one can be attached.
    ///
    /// # Errors
    /// [`PlanError::EpilogueOfSpec`] if the kernel has another epilogue.
    pub fn check_epilogue_of(&self, spec: &Spec) -> Result<()> {
        let own = Choice::plain(*spec).epilogue();
        if own.is_none() || own == self.epilogue.shape() {
            return Ok(());
        }
        Err(PlanError::EpilogueOfSpec { epilogue: self.epilogue, spec: *spec, own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_no_epilogue() {
        let epilogue: Epilogue = "bias_n|relu".parse().unwrap();
        for (config, fine) in [
            (Config::new(Element::S8), false),
            (Config::new(Element::S8).with_output(Element::S8), false),
            (Config::new(Element::S8).with_output(Element::F32), true),
            (Config::new(Element::E4m3).with_output(Element::E4m3), true),
        ] {
            let checked = config.clone().with_epilogue(epilogue).check_epilogue();
            assert_eq!(checked.is_ok(), fine, "{config:?}");
            if let Err(error) = checked {
                let text = error.to_string();
                assert!(
                    text.contains("bias_n|relu") && text.contains("f32, f16 or bf16"),
                    "{text}"
                );
            }
        }
    }

    /// The bounds of a clamp are no part of a kernel, so a kernel's name does not give them.
    #[test]
    fn a_kernel_takes_any_parameters_and_some_must_be_given() {
        let spec = "bf16-kk-bf16-128x128x64-s4-w2-c1x1-eclamp".parse().unwrap();
        let open = Config::for_spec(spec);
        let text = open.check_epilogue().unwrap_err().to_string();
        assert!(text.contains("epilogue = clamp(lower,upper)") && text.contains("Give"), "{text}");
        for bounds in ["clamp(0,6)", "clamp(-inf,1e-3)"] {
            let config = open.clone().with_epilogue(bounds.parse().unwrap());
            assert!(config.check_epilogue().is_ok() && config.check_epilogue_of(&spec).is_ok());
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
        }
        let relu = open.clone().with_epilogue("relu".parse().unwrap());
        let text = relu.check_epilogue_of(&spec).unwrap_err().to_string();
        assert!(text.contains("The nearest legal value is clamp(lower,upper)"), "{text}");
        let integers = Config::new(Element::S8).with_epilogue("clamp(0,6)".parse().unwrap());
        let text = integers.check_epilogue().unwrap_err().to_string();
        assert!(text.contains("clamp(0,6)") && text.contains("f32, f16 or bf16"), "{text}");
    }

    #[test]
    fn configs_without_an_epilogue_are_written_as_before() {
        let plain = Config::new(Element::Bf16);
        let text = serde_json::to_string(&plain).unwrap();
        assert!(!text.contains("epilogue"), "{text}");
        let fused = plain.with_epilogue("bias_n|silu".parse().unwrap());
        let text = serde_json::to_string(&fused).unwrap();
        assert!(text.contains("\"bias_n|silu\""), "{text}");
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), fused);
    }
}
