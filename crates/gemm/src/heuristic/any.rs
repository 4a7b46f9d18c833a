//! [`AnyRated`]: a spec of any family, rated by its family's model.

use pgemm_kernels::AnySpec;

use super::{Placed, Rated, RatedDmma, RatedFfma};
use crate::choice::Choice;

/// A spec with what the estimate of its cycles needs for every problem.
#[derive(Clone, Copy, Debug)]
pub enum AnyRated {
    /// A kernel of warpgroups.
    Wgmma(Rated),
    /// An f64 kernel.
    Dmma(RatedDmma),
    /// An f32 kernel.
    Ffma(RatedFfma),
}

impl AnyRated {
    /// A spec that validates, rated.
    pub fn new(spec: AnySpec) -> Self {
        match spec {
            AnySpec::Wgmma(spec) => AnyRated::Wgmma(Rated::new(spec)),
            AnySpec::Dmma(spec) => AnyRated::Dmma(RatedDmma::new(spec)),
            AnySpec::Ffma(spec) => AnyRated::Ffma(RatedFfma::new(spec)),
        }
    }

    /// The spec.
    pub fn spec(&self) -> AnySpec {
        match self {
            AnyRated::Wgmma(rated) => rated.spec.into(),
            AnyRated::Dmma(rated) => rated.spec.into(),
            AnyRated::Ffma(rated) => rated.spec.into(),
        }
    }

    /// Estimated cycles of a choice of this spec.
    pub(super) fn cycles(&self, placed: &Placed, choice: &Choice) -> f64 {
        match self {
            AnyRated::Wgmma(rated) => rated.cycles(placed, choice),
            AnyRated::Dmma(rated) => rated.cycles(placed, choice),
            AnyRated::Ffma(rated) => rated.cycles(placed, choice),
        }
    }
}
