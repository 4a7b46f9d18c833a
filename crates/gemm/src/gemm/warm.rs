//! Warm-up: problems that are prepared before they are needed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pgemm_kernels::Spec;
use pgemm_plan::{OperandAlignment, Plan, PlannedProblem, Problem};

use super::prepared::PlanKey;
use super::{Gemm, lock};
use crate::ahead;
use crate::error::{Error, Result};

/// What [`Gemm::warm_up`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmUp {
    /// Problems that were not prepared before, each once.
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
        progress: impl FnMut(usize, usize),
    ) -> Result<WarmUp> {
        warm_up(&[(self, problems)], progress)
    }

    /// The first plans of those problems that are not prepared, each once.
    fn plans_to_warm<'p>(&self, problems: &'p [Problem]) -> Result<Vec<ToWarm<'p>>> {
        let alignment = OperandAlignment::ALIGNED;
        let mut keys = HashSet::new();
        let mut plans = vec![];
        for problem in problems {
            problem.validate()?;
            let key = PlanKey::new(problem, alignment);
            let known = lock(&self.0.prepared).get(&key).cloned();
            let is_ready = known.is_some_and(|known| known.stand_in_for().is_none());
            if keys.insert(key) && !is_ready {
                // The list of plans is not empty; otherwise planning would have failed.
                let first = self.plans(problem, alignment)?.next();
                let dtype = self.0.config.dtype;
                let plan = first.ok_or(Error::NoCleanKernel { dtype })?;
                plans.push(ToWarm { key, problem, plan });
            }
        }
        Ok(plans)
    }

    fn warm(&self, ToWarm { key, problem, plan }: ToWarm<'_>) -> Result<()> {
        let planned = PlannedProblem::with_accesses(problem, &self.0.config, plan.accesses);
        match self.prepare_plan(problem, planned, plan) {
            Ok(prepared) => {
                let prepared = Arc::new(prepared);
                let known = self.remember(key, prepared.clone())?;
                if known.stand_in_for().is_some() {
                    self.replace(key, prepared)?;
                }
                Ok(())
            }
            // The next plan is looked for.
            Err(Error::UncleanKernel { .. } | Error::ClusterDoesNotFit { .. }) => {
                self.prepare_for(problem, OperandAlignment::ALIGNED).map(drop)
            }
            Err(error) => Err(error),
        }
    }
}

/// A problem to prepare, with its first plan.
struct ToWarm<'p> {
    key: PlanKey,
    problem: &'p Problem,
    plan: Plan,
}

/// Prepares the problems of several GEMMs on one device, as [`Gemm::warm_up`] does for one, so that
/// the same processes compile for all of them.
///
/// # Errors
/// The same as for [`Gemm::warm_up`].
pub fn warm_up(
    work: &[(&Gemm, &[Problem])],
    mut progress: impl FnMut(usize, usize),
) -> Result<WarmUp> {
    let mut all: Vec<(&Gemm, ToWarm)> = vec![];
    for (gemm, problems) in work {
        all.extend(gemm.plans_to_warm(problems)?.into_iter().map(|plan| (*gemm, plan)));
    }
    let specs: HashMap<Spec, &Gemm> =
        all.iter().map(|(gemm, to_warm)| (to_warm.plan.spec, *gemm)).collect();
    if let Some((first, _)) = work.first() {
        let missing = specs.iter().filter(|(spec, gemm)| !gemm.0.store.has(spec));
        let missing: Vec<Spec> = missing.map(|(spec, _)| *spec).collect();
        if missing.len() >= ahead::FEWEST {
            let device = first.0.device.properties().ordinal;
            // Those that the driver spoils and those that no process compiled are looked at below.
            let load = |spec: Spec| {
                if let Some(gemm) = specs.get(&spec) {
                    drop(gemm.0.store.preload(&spec));
                }
            };
            ahead::compile(&missing, device, ahead::usual_processes(), load);
        }
    }
    let problems = all.len();
    for (done, (gemm, to_warm)) in all.into_iter().enumerate() {
        progress(done, problems);
        gemm.warm(to_warm)?;
    }
    progress(problems, problems);
    let is_assembled = |(spec, gemm): &(&Spec, &&Gemm)| gemm.0.store.is_assembled(spec);
    let assembled = specs.iter().filter(is_assembled).count();
    Ok(WarmUp { problems, kernels: specs.len(), assembled })
}
