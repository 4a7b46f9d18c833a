//! The plans that a [`Gemm`](crate::Gemm) uses: those of the planner, with the kernels of the
//! library's list preferred ([`assembled`](crate::assembled)).

use pgemm_plan::{
    Candidates, Config, DeviceFacts, OperandAlignment, Plan, PlanError, Problem, TunedChoices,
};

use crate::shipped::preferred;

/// The plans for a problem on a device with operands of this alignment, best first. A tuned choice
/// comes before all others.
///
/// # Errors
/// The same as for [`Plan::candidates_with`].
pub fn plans(
    problem: &Problem,
    config: &Config,
    device: impl Into<DeviceFacts>,
    tuned: &dyn TunedChoices,
    alignment: OperandAlignment,
) -> Result<Candidates, PlanError> {
    let plans = Plan::candidates_with(problem, config, device, tuned, alignment)?;
    Ok(plans.prefer(preferred()))
}

/// The first of the [`plans`] without tuned choices, for operands whose addresses are multiples of
/// 16 bytes.
///
/// # Errors
/// The same as for [`Plan::best`].
pub fn first_plan(
    problem: &Problem,
    config: &Config,
    device: impl Into<DeviceFacts>,
) -> Result<Plan, PlanError> {
    let device = device.into();
    let first = plans(problem, config, device, &(), OperandAlignment::ALIGNED)?.next();
    // There is a plan; otherwise planning would have failed.
    first.map_or_else(|| Plan::best(problem, config, device), Ok)
}
