//! Epilogues on the host.

#[cfg(feature = "cpu")]
mod applied;

use pgemm_kernels::Epilogue;
use pgemm_plan::{MatrixLayout, PlanError, Problem};

#[cfg(feature = "cpu")]
pub(crate) use self::applied::{AppliedEpilogue, RowInput};
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

#[cfg(all(test, feature = "cpu"))]
mod tests;
