//! Epilogues on the host: the bias as a matrix of one row, and activations in binary64.

#[cfg(feature = "cpu")]
use pgemm_ir::Element;
use pgemm_kernels::Epilogue;
#[cfg(feature = "cpu")]
use pgemm_kernels::{Activation, BiasAlong, MOST_PARAMETERS};
use pgemm_plan::{MatrixLayout, PlanError, Problem};

use crate::matrix::HostMatrix;

/// Checks the bias of a product. It is ignored if the epilogue adds none.
///
/// # Errors
/// The bias is missing, or is not a row without gaps of the required number of elements.
pub(crate) fn check_bias(
    problem: &Problem,
    epilogue: Epilogue,
    bias: Option<&HostMatrix>,
) -> Result<(), PlanError> {
    if epilogue.bias().is_none() {
        return Ok(());
    }
    let length = epilogue.bias_length(problem.m, problem.n);
    let Some(bias) = bias else {
        return Err(PlanError::MissingBias { epilogue, length });
    };
    let (found, needed) = (bias.layout(), MatrixLayout::row_major(1, length));
    if found != needed {
        return Err(PlanError::LayoutMismatch { matrix: "the bias", found, needed });
    }
    Ok(())
}

/// An epilogue with the values of its bias.
#[cfg(feature = "cpu")]
#[derive(Clone, Debug, Default)]
pub(crate) struct AppliedEpilogue {
    epilogue: Epilogue,
    bias: Vec<f64>,
}

#[cfg(feature = "cpu")]
impl AppliedEpilogue {
    /// With the parameters that kernels with results of type `output` have. `bias` is ignored if
    /// the epilogue adds none.
    ///
    /// # Errors
    /// The errors of [`check_bias`]; parameters are missing.
    pub(crate) fn new(
        problem: &Problem,
        epilogue: Epilogue,
        bias: Option<&HostMatrix>,
        output: Element,
    ) -> Result<AppliedEpilogue, PlanError> {
        if epilogue.lacks_parameters() {
            return Err(PlanError::MissingParameters { epilogue });
        }
        check_bias(problem, epilogue, bias)?;
        let epilogue = epilogue.for_output(output);
        let bias = bias.filter(|_| epilogue.bias().is_some());
        Ok(AppliedEpilogue { epilogue, bias: bias.map(HostMatrix::to_f64_vec).unwrap_or_default() })
    }

    /// The same epilogue for Dᵀ in place of D.
    pub(crate) fn transposed(&self) -> AppliedEpilogue {
        AppliedEpilogue { epilogue: self.epilogue.transposed(), bias: self.bias.clone() }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.epilogue.is_none()
    }

    pub(crate) fn has_bias(&self) -> bool {
        self.epilogue.bias().is_some()
    }

    pub(crate) fn activation(&self) -> Option<Activation> {
        self.epilogue.activation()
    }

    /// What is added to an element, or None if there is no bias.
    pub(crate) fn bias(&self, row: usize, column: usize) -> Option<f64> {
        self.epilogue.bias().map(|along| match along {
            BiasAlong::N => self.bias[column],
            BiasAlong::M => self.bias[row],
        })
    }

    /// Whether all that is added are integers, and all parameters of the activation, which may be
    /// infinite.
    pub(crate) fn is_integral(&self) -> bool {
        let parameters = self.parameters();
        self.bias.iter().all(|bias| bias.fract() == 0.0)
            && parameters.iter().all(|parameter| parameter.round() == *parameter)
    }

    /// The parameters of the activation.
    pub(crate) fn parameters(&self) -> [f64; MOST_PARAMETERS] {
        self.epilogue.parameters()
    }

    /// The activation of a result, in binary64.
    pub(crate) fn activate(&self, value: f64) -> f64 {
        self.epilogue.activate(value)
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests;
