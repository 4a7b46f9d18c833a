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

    /// Checks that there are kernels with the epilogue for these types.
    ///
    /// # Errors
    /// [`PlanError::EpilogueOutput`] if D is of integers.
    pub fn check_epilogue(&self) -> Result<()> {
        let (epilogue, output) = (self.epilogue, self.output_dtype());
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
        if own.is_none() || own == self.epilogue {
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
