//! Problems that are ready to launch: planned, their kernels loaded, their arguments packed.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use pgemm_kernels::RepackSignature;
use pgemm_plan::{
    Batch, Candidates, Choice, Config, Major, OperandAlignment, OperandLayout, Plan,
    PlannedProblem, Problem, Split,
};

use super::{Gemm, Inner, lock};
use crate::behind::Compile;
use crate::cache::Outcome;
use crate::error::{Error, Result};
use crate::plans::plans;
use crate::sequence::Sequence;
use crate::sequence::cuda::CudaStep;
use crate::shipped::preferred;
use crate::store::KernelStore;
use crate::work::Pointers;
use crate::workspace::Workspaces;

/// The properties of a problem that a prepared launch depends on: everything but addresses and
/// scalars.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PlanKey {
    extents: [usize; 3],
    a: OperandLayout,
    b: OperandLayout,
    alignment: OperandAlignment,
    d_major: Major,
    /// The leading dimension of C, if C is read.
    c_leading_dimension: Option<usize>,
    d_leading_dimension: usize,
    /// The stride of C is 0 if C is not read.
    batch: Batch,
}

impl PlanKey {
    pub(super) fn new(problem: &Problem, alignment: OperandAlignment) -> Self {
        let batch = problem.batch.normalised();
        PlanKey {
            extents: [problem.m, problem.n, problem.k],
            a: problem.a,
            b: problem.b,
            alignment,
            d_major: problem.d_major,
            c_leading_dimension: (problem.beta != 0.0).then_some(problem.c_leading_dimension),
            d_leading_dimension: problem.d_leading_dimension,
            batch: Batch { c: if problem.beta == 0.0 { 0 } else { batch.c }, ..batch },
        }
    }
}

/// A problem that is ready to launch.
pub struct Prepared {
    problem: Problem,
    sequence: Sequence,
    patched: Mutex<PatchedArguments>,
    outcome: Option<Outcome>,
    /// The better plan, if this is a stand-in while its kernel is compiled.
    better: Option<Box<Plan>>,
}

/// The parts that each run changes.
pub(super) struct PatchedArguments {
    /// The kernels of the steps, in order.
    pub(super) steps: Vec<CudaStep>,
    pub(super) workspaces: Workspaces,
}

impl Prepared {
    /// The outcome of the kernel cache, or `None` if the kernel was already loaded.
    pub fn cache_outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// How the problem is computed.
    pub fn plan(&self) -> &Plan {
        self.sequence.plan()
    }

    /// The better plan whose kernel was still being compiled when the problem was prepared, if this
    /// is a stand-in for it: see [`Compile::Behind`](crate::Compile::Behind). A graph that captures
    /// a run of a stand-in keeps it. Runs of the problem itself, rather than of this preparation,
    /// take the better kernel once it is there.
    pub fn stand_in_for(&self) -> Option<&Plan> {
        self.better.as_deref()
    }

    /// Whether this is a stand-in for a kernel that has been compiled since, or should be now.
    fn is_outdated(&self, store: &KernelStore, compile: Compile) -> bool {
        let is_due = |better: &Plan| compile == Compile::Now || store.knows(&better.spec);
        self.stand_in_for().is_some_and(is_due)
    }

    /// Bytes of device memory held for partial sums and for repacked operands, or 0 if every tile
    /// is computed whole and both operands are read in place. Each stream on which the problem was
    /// run, and each stream of a capture, has its own workspace. The workspace of a capture is
    /// reused once the graph and its executables are gone. All others are freed with this problem.
    pub fn workspace_bytes(&self) -> u64 {
        lock(&self.patched).workspaces.bytes()
    }

    /// Bytes of the workspace of one launch, or 0 if it needs none.
    pub fn workspace_required_bytes(&self) -> u64 {
        lock(&self.patched).workspaces.size().bytes
    }

    /// The problem, with the scalars that it was prepared with.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The launches of this problem.
    pub(super) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// The parts that each run changes.
    pub(super) fn patched(&self) -> &Mutex<PatchedArguments> {
        &self.patched
    }
}

/// A plan whose kernel is there, and the better one of the same summation class that is compiled
/// meanwhile, if there is one.
struct StandIn {
    plan: Plan,
    better: Option<Plan>,
}

/// Plans among which a better one than a stand-in is looked for.
const MOST_BETTER: usize = 64;

/// A request to prepare a problem, optionally with the alignment of its operands and with a choice.
#[derive(Clone, Copy, Debug)]
pub struct Preparation<'a> {
    problem: &'a Problem,
    pointers: Option<Pointers>,
    choice: Option<Choice>,
}

impl<'a> Preparation<'a> {
    /// The problem, with operands at addresses that are multiples of 16, computed as is expected to
    /// be fastest.
    pub fn new(problem: &'a Problem) -> Self {
        Preparation { problem, pointers: None, choice: None }
    }

    /// Prepares for operands with the alignment of these addresses, and for operands aligned to 16
    /// bytes.
    pub fn at(self, pointers: &Pointers) -> Self {
        Preparation { pointers: Some(*pointers), ..self }
    }

    /// Prepares exactly this choice. The result is not stored in the `Gemm`, but its kernel stays
    /// loaded.
    pub fn with_choice(self, choice: Choice) -> Self {
        Preparation { choice: Some(choice), ..self }
    }
}

impl<'a> From<&'a Problem> for Preparation<'a> {
    fn from(problem: &'a Problem) -> Self {
        Preparation::new(problem)
    }
}

impl Gemm {
    /// Plans a problem, compiles and loads its kernel if necessary, and packs its arguments. It
    /// allocates a workspace if the plan splits tiles along k or repacks operands. Later runs of
    /// this problem with the same alignment only patch addresses and launch.
    ///
    /// ```no_run
    /// # use persistent_gemm::{Choice, Error, Gemm, Pointers, Preparation, Problem};
    /// # fn prepare(gemm: &Gemm, problem: &Problem, pointers: &Pointers, choice: Choice) -> Result<(), Error> {
    /// let at_multiples_of_16 = gemm.prepare(problem)?;
    /// let here = gemm.prepare(Preparation::new(problem).at(pointers))?;
    /// let by_this_kernel = gemm.prepare(Preparation::new(problem).with_choice(choice))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The problem is invalid, no kernel can compute it, the choice does not fit the problem or the
    /// types, memory for the workspace is lacking, or the driver fails. [`Error::UncleanKernel`] if
    /// the driver spoils the kernel that the config or the choice names; [`Error::NoCleanKernel`]
    /// if it spoils all kernels that the planner could take.
    pub fn prepare<'a>(&self, preparation: impl Into<Preparation<'a>>) -> Result<Arc<Prepared>> {
        let Preparation { problem, pointers, choice } = preparation.into();
        problem.validate()?;
        let alignment = pointers.map_or(OperandAlignment::ALIGNED, |pointers| {
            alignment(problem, &self.0.config, &pointers)
        });
        let Some(choice) = choice else { return self.prepare_for(problem, alignment) };
        let own = &self.0.config;
        let mut config = Config::for_choice(choice).with_output(own.output_dtype());
        (config.dtype, config.b, config.epilogue) = (own.dtype, own.b, own.epilogue);
        self.prepare_first(
            problem,
            &config,
            Plan::candidates_with(problem, &config, self.0.device.properties(), &(), alignment)?,
        )
    }

    pub(super) fn prepare_for(
        &self,
        problem: &Problem,
        alignment: OperandAlignment,
    ) -> Result<Arc<Prepared>> {
        let key = PlanKey::new(problem, alignment);
        let Inner { store, compile, .. } = &*self.0;
        let compile = *lock(compile);
        let known = lock(&self.0.prepared).get(&key).cloned();
        match known {
            None => {
                let begin = Instant::now();
                let prepared = self.prepare_best(problem, alignment)?;
                let Problem { m, n, k, .. } = problem;
                tracing::debug!("{m}x{n}x{k} was prepared in {:?}", begin.elapsed());
                self.remember(key, prepared)
            }
            Some(stand_in) if stand_in.is_outdated(store, compile) => {
                let prepared = self.prepare_best(problem, alignment)?;
                self.replace(key, prepared.clone())?;
                Ok(prepared)
            }
            Some(prepared) => Ok(prepared),
        }
    }

    /// Prepares the best plan, or a stand-in for it.
    fn prepare_best(
        &self,
        problem: &Problem,
        alignment: OperandAlignment,
    ) -> Result<Arc<Prepared>> {
        let Inner { config, store, compile, .. } = &*self.0;
        let begin = Instant::now();
        let mut plans = self.plans(problem, alignment)?;
        tracing::debug!("planned in {:?}", begin.elapsed());
        if *lock(compile) == Compile::Behind && config.spec.is_none() {
            // Those that the driver spoils are known to be so after their compilation.
            let best = plans.find(|plan| !store.is_unclean(&plan.spec));
            let best = best.ok_or(Error::NoCleanKernel { dtype: config.dtype })?;
            let found = self.stand_in(problem, alignment, &best, &mut plans)?;
            if let Some(StandIn { plan, better }) = found {
                let planned = PlannedProblem::with_accesses(problem, config, plan.accesses);
                let mut prepared = self.prepare_plan(problem, planned, plan)?;
                if let Some(better) = better {
                    tracing::debug!("{} stands in for {}", prepared.plan().spec, better.spec);
                    store.compile_behind(better.spec);
                    prepared.better = Some(Box::new(better));
                }
                return Ok(Arc::new(prepared));
            }
            return self.prepare_first(problem, config, [best].into_iter().chain(plans));
        }
        self.prepare_first(problem, config, plans)
    }

    /// The plan to use while the kernel of the best one is compiled. `None` if that is there, or if
    /// no kernel is. `others` follow the best.
    fn stand_in(
        &self,
        problem: &Problem,
        alignment: OperandAlignment,
        best: &Plan,
        others: &mut Candidates,
    ) -> Result<Option<StandIn>> {
        let Inner { device, config, store, .. } = &*self.0;
        if store.has(&best.spec) {
            return Ok(None);
        }
        let there = |config: &Config, accept: &dyn Fn(&Plan) -> bool| -> Result<Option<Plan>> {
            let accept = |plan: &Plan| accept(plan) && store.has(&plan.spec);
            let device = device.properties();
            Ok(Plan::best_preferred(problem, config, device, alignment, preferred(), accept)?)
        };
        let split = if best.split_tiles == 0 { Split::Whole } else { best.split };
        let of_class = config.clone().with_split(config.split.unwrap_or(split));
        let summation = best.summation();
        if let Some(plan) = there(&of_class, &|plan| plan.summation() == summation)? {
            return Ok(Some(StandIn { plan, better: Some(best.clone()) }));
        }
        // Nothing that is there gives the bits of the best. So the best that is there decides about
        // the bits, and what is better has to give the same.
        let Some(plan) = there(config, &|_| true)? else { return Ok(None) };
        let summation = plan.summation();
        let is_usable = |other: &Plan| !store.is_unclean(&other.spec);
        let mut better = others.take(MOST_BETTER).filter(is_usable);
        let better = better.find(|better| better.summation() == summation);
        let better = better.filter(|better| better.spec != plan.spec);
        Ok(Some(match better {
            Some(better) if store.has(&better.spec) => StandIn { plan: better, better: None },
            better => StandIn { plan, better },
        }))
    }

    /// The plans for a problem, best first.
    pub(super) fn plans(
        &self,
        problem: &Problem,
        alignment: OperandAlignment,
    ) -> Result<Candidates> {
        let Inner { device, config, picks, .. } = &*self.0;
        Ok(plans(problem, config, device.properties(), &**picks, alignment)?)
    }

    /// Prepares the first of these plans whose kernel the driver does not spoil.
    fn prepare_first(
        &self,
        problem: &Problem,
        config: &Config,
        plans: impl IntoIterator<Item = Plan>,
    ) -> Result<Arc<Prepared>> {
        let prepared = first_clean(config, plans, |plan| {
            let planned = PlannedProblem::with_accesses(problem, config, plan.accesses);
            self.prepare_plan(problem, planned, plan)
        })?;
        Ok(Arc::new(prepared))
    }

    /// A plan, ready to launch.
    ///
    /// # Errors
    /// [`Error::UncleanKernel`] if the driver spoils its kernel, and what else keeps it from being
    /// launched.
    pub(super) fn prepare_plan(
        &self,
        problem: &Problem,
        planned: PlannedProblem,
        mut plan: Plan,
    ) -> Result<Prepared> {
        let Inner { device, config, store, zeros, account, .. } = &*self.0;
        let (kernel, outcome) = store.kernel(&plan.spec)?;
        plan.clusters = plan.clusters.min(kernel.fitting_clusters()?);
        plan.waves = plan.tiles as f64 / f64::from(plan.clusters);
        // Both operands of every kernel have elements of one size.
        let repacks = planned.repacks().kernels(config.dtype.bytes());
        let repacks = repacks.into_iter().map(|spec| store.repack(spec));
        let repacks = repacks.collect::<Result<Vec<_>>>()?;
        let of_repacks: Vec<&RepackSignature> =
            repacks.iter().map(|repack| &repack.signature).collect();
        let sms = device.properties().sm_count;
        let sequence =
            Sequence::new(planned, plan, &kernel.signature, &of_repacks, zeros.address(), sms)?;
        let functions = repacks.iter().map(|repack| &repack.function).chain([&kernel.function]);
        let steps = sequence.steps().iter().zip(functions);
        let steps = steps.map(|(step, function)| CudaStep::new(device, step, function));
        let steps = steps.collect::<Result<_>>()?;
        let workspaces = Workspaces::new(device, account.clone(), sequence.workspace())?;
        let patched = Mutex::new(PatchedArguments { steps, workspaces });
        Ok(Prepared { problem: *problem, sequence, patched, outcome, better: None })
    }
}

/// The alignment of the operands at these addresses.
pub(super) fn alignment(
    problem: &Problem,
    config: &Config,
    pointers: &Pointers,
) -> OperandAlignment {
    OperandAlignment::of(problem, config, [pointers.a, pointers.b])
}

/// The result of `prepare` for the first plan whose kernel the driver does not spoil, and of which
/// the device has room for a cluster.
///
/// # Errors
/// [`Error::UncleanKernel`] for a kernel that the config names, [`Error::NoCleanKernel`] if the
/// planner has no other left; [`Error::ClusterDoesNotFit`] in both cases; any other error of
/// `prepare`.
fn first_clean<T>(
    config: &Config,
    plans: impl IntoIterator<Item = Plan>,
    mut prepare: impl FnMut(Plan) -> Result<T>,
) -> Result<T> {
    let mut too_large = None;
    for plan in plans {
        match prepare(plan) {
            Err(Error::UncleanKernel { .. }) if config.spec.is_none() => {}
            Err(error @ Error::ClusterDoesNotFit { .. }) if config.spec.is_none() => {
                too_large.get_or_insert(error);
            }
            prepared => return prepared,
        }
    }
    Err(too_large.unwrap_or(Error::NoCleanKernel { dtype: config.dtype }))
}

#[cfg(test)]
mod tests {
    use pgemm_ptx::ResourceReport;

    use super::*;
    use crate::Dtype;

    /// The plans of `config` for a problem, given to a driver that spoils the first `spoilt` of
    /// them.
    fn picked(config: &Config, spoilt: usize) -> (Vec<Plan>, Result<Plan>) {
        let problem = Problem::new(4096, 4096, 4096, Major::K, Major::K);
        let plans: Vec<Plan> = Plan::candidates(&problem, config, 132).unwrap();
        let mut left = spoilt;
        let picked = first_clean(config, plans.clone(), |plan| {
            if left == 0 {
                return Ok(plan);
            }
            left -= 1;
            let report = ResourceReport { spill_store_bytes: 72, ..ResourceReport::default() };
            Err(Error::UncleanKernel { spec: plan.spec, report: report.into() })
        });
        (plans, picked)
    }

    #[test]
    fn the_planner_goes_on_to_the_first_kernel_that_the_driver_does_not_spoil() {
        let config = Config::new(Dtype::Bf16);
        let (plans, first) = picked(&config, 0);
        assert_eq!(first.unwrap(), plans[0]);
        assert_eq!(picked(&config, 2).1.unwrap(), plans[2]);
        let none = picked(&config, plans.len()).1;
        assert!(matches!(none, Err(Error::NoCleanKernel { dtype: Dtype::Bf16 })), "{none:?}");
    }

    #[test]
    fn a_kernel_that_was_asked_for_and_is_spoilt_is_named_with_what_the_driver_said() {
        let name = "bf16-kk-bf16-64x64x64-s10-w1-c1x1";
        let config = Config::for_spec(name.parse().unwrap());
        let (plans, picked) = picked(&config, 1);
        assert_eq!(plans.len(), 1);
        let message = picked.unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("72 bytes spilled"), "{message}");
    }

    #[test]
    fn the_planner_goes_on_to_a_kernel_that_the_device_has_room_for() {
        let problem = Problem::new(4096, 4096, 4096, Major::K, Major::K);
        let in_room = |config: &Config, room: u32| {
            let plans = Plan::candidates(&problem, config, 132).unwrap();
            first_clean(config, plans, |plan| match plan.spec.cluster.size() {
                needed if needed <= room => Ok(needed),
                needed => {
                    let spec = Box::new(plan.spec);
                    Err(Error::ClusterDoesNotFit { spec, needed, sms: 132 })
                }
            })
        };
        assert_eq!(in_room(&Config::new(Dtype::Bf16), 1).unwrap(), 1);
        let pairs = Config::new(Dtype::Bf16).with_cluster(2, 1);
        assert_eq!(in_room(&pairs, 2).unwrap(), 2);
        for asked in [pairs, Config::for_spec("bf16-kk-bf16-64x64x64-s4-w1-c2x1".parse().unwrap())]
        {
            let refused = in_room(&asked, 1).unwrap_err();
            assert!(matches!(refused, Error::ClusterDoesNotFit { needed: 2, .. }), "{refused}");
        }
    }

    #[test]
    fn what_else_goes_wrong_ends_the_search() {
        let config = Config::new(Dtype::Bf16);
        let problem = Problem::new(64, 64, 64, Major::K, Major::K);
        let plans = Plan::candidates(&problem, &config, 132).unwrap();
        let ended = first_clean(&config, plans, |_| Err::<(), _>(Error::NoDevice));
        assert!(matches!(ended, Err(Error::NoDevice)), "{ended:?}");
    }
}
