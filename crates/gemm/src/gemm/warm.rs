//! Warm-up: problems that are prepared before they are needed.

use std::collections::HashSet;
use std::sync::Arc;

use pgemm_kernels::Spec;
use pgemm_plan::{OperandAlignment, Plan, PlannedProblem, Problem};

use super::prepared::PlanKey;
use super::{Gemm, Inner, lock};
use crate::ahead;
use crate::error::{Error, Result};

/// What [`Gemm::warm_up`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmUp {
    /// Problems that were prepared, each once.
    pub problems: usize,
    /// Kernels that they need, without repack kernels.
    pub kernels: usize,
    /// Those of the kernels that were assembled in advance.
    pub assembled: usize,
}

impl Gemm {
    /// Prepares problems, so that their first products wait for nothing. Kernels that have to be
    /// compiled are compiled in several processes if the command `pgemm` is there
    /// ([`ahead::VARIABLE`]), since the driver compiles one kernel at a time in each process.
    /// `progress` is called with the number of problems that are prepared and of all. Only the last
    /// 4096 are remembered.
    ///
    /// # Errors
    /// The same as for [`prepare`](Self::prepare). The problems before are prepared then.
    pub fn warm_up(
        &self,
        problems: &[Problem],
        mut progress: impl FnMut(usize, usize),
    ) -> Result<WarmUp> {
        let Inner { device, config, store, .. } = &*self.0;
        let alignment = OperandAlignment::ALIGNED;
        let mut keys = HashSet::new();
        let mut plans: Vec<(PlanKey, &Problem, Plan)> = vec![];
        for problem in problems {
            problem.validate()?;
            let key = PlanKey::new(problem, alignment);
            let known = lock(&self.0.prepared).get(&key).cloned();
            let is_ready = known.is_some_and(|known| known.stand_in_for().is_none());
            if keys.insert(key) && !is_ready {
                // The list of plans is not empty; otherwise planning would have failed.
                let first = self.plans(problem, alignment)?.next();
                let plan = first.ok_or(Error::NoCleanKernel { dtype: config.dtype })?;
                plans.push((key, problem, plan));
            }
        }
        let specs: HashSet<Spec> = plans.iter().map(|(.., plan)| plan.spec).collect();
        let missing = specs.iter().filter(|spec| !store.has(spec));
        let missing: Vec<Spec> = missing.copied().collect();
        ahead::compile(&missing, device.properties().ordinal, ahead::FEWEST);
        let all = plans.len();
        for (done, (key, problem, plan)) in plans.into_iter().enumerate() {
            progress(done, all);
            let planned = PlannedProblem::with_accesses(problem, config, plan.accesses);
            match self.prepare_plan(problem, planned, plan) {
                Ok(prepared) => {
                    let prepared = Arc::new(prepared);
                    let known = self.remember(key, prepared.clone())?;
                    if known.stand_in_for().is_some() {
                        self.replace(key, prepared)?;
                    }
                }
                // The next plan is looked for.
                Err(Error::UncleanKernel { .. }) => drop(self.prepare_for(problem, alignment)?),
                Err(error) => return Err(error),
            }
        }
        progress(all, all);
        let assembled = specs.iter().filter(|spec| store.is_assembled(spec)).count();
        Ok(WarmUp { problems: all, kernels: specs.len(), assembled })
    }
}
