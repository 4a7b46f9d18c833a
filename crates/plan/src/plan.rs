//! [`Plan`]: how a problem will be computed. It names the kernel, the number of clusters and the
//! order of tiles. Planning needs no device.

mod describe;
mod knobs;

use std::collections::HashMap;

use pgemm_ir::Element;
use pgemm_kernels::{EpilogueShape, L2Policies, L2Policy, Spec, SpecError};
use serde::Serialize;

use crate::catalogue::{
    PreferredFor, check_types, considered_for, direct_for, many_for, specs_for,
};
use crate::choice::Choice;
use crate::config::Config;
use crate::decomposition::Decomposition;
use crate::device::DeviceFacts;
use crate::error::{PlanError, Result};
use crate::heuristic::{self, Access, Ranking, Shape};
use crate::layout::Major;
use crate::operands::{OperandAccesses, OperandAlignment, PlannedProblem};
use crate::precision::Precision;
use crate::preferred::PreferredKernels;
use crate::problem::Problem;
use crate::split::Split;
use crate::summation::SummationClass;
use crate::tuning::{ProblemKey, TunedChoices};

/// The largest extent. TMA's coordinates are signed 32-bit integers.
const MAX_EXTENT: usize = i32::MAX as usize;

/// The largest number of products in a batch. Repacking two operands of this many matrices takes
/// fewer than 2^31 CTAs.
const MAX_BATCH: usize = 1 << 28;

/// A kernel is near the best one for a problem if it is estimated to take at most so many times as
/// long.
pub const NEAR_THE_BEST: f64 = 1.05;

/// A preferred kernel is taken instead of a faster one if it is estimated to take at most so many
/// times as long. With a larger number, fewer problems wait for a kernel to be compiled
/// (`pgemm cubins coverage`), and more fall behind: of 262 layers of models, 18 were below 0.97 of
/// cuBLASLt's speed on H200s with 1.05 and an earlier list of kernels, 11 are with this, and 6 were
/// without a preference.
pub const PREFERRED_WITHIN: f64 = 1.03;

/// Estimates that are corrected for each way to access the operands, when all kernels near the best
/// are looked for.
const MOST_NEAR_THE_BEST: usize = 384;

/// The problem has more tiles than kernels can count.
const TOO_MANY_TILES: PlanError =
    PlanError::Overflow { what: "the number of tiles", limit: 1 << 31 };

/// How a problem will be computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The kernel.
    pub spec: Spec,
    /// Height of a raster block, in cluster tiles.
    pub raster_rows: u32,
    /// How tiles are split along k.
    pub split: Split,
    /// Cluster tiles that are split.
    pub split_tiles: u32,
    /// Workers that share the split tiles.
    pub workers: u32,
    /// Whether partial sums are added in their order of arrival.
    pub unordered: bool,
    /// The L2 eviction policies of A, B and D.
    pub l2: L2Policies,
    /// How the kernel accesses A and B. The JSON field is `readings`.
    #[serde(rename = "readings")]
    pub accesses: OperandAccesses,
    /// Estimated cycles of the repack kernels; 0 if both operands are read in place. The JSON field
    /// is `pass_cycles`.
    #[serde(rename = "pass_cycles")]
    pub repack_cycles: f64,
    /// Whether the launch may begin while the previous one on the stream ends.
    pub dependent_launch: bool,
    /// Clusters launched.
    pub clusters: u32,
    /// Cluster tiles of all products of the problem.
    pub tiles: u64,
    /// Stages along k of each tile.
    #[serde(skip)]
    pub k_tiles: u64,
    /// Tiles divided by clusters.
    pub waves: f64,
    /// Why this plan was chosen, as text for people.
    pub why: String,
}

impl Plan {
    /// Checks a config apart from any problem: whether its types have kernels, and whether its
    /// knobs are within their limits.
    ///
    /// # Errors
    /// The types have no kernel, or a knob is impossible.
    pub fn check_config(config: &Config, device: impl Into<DeviceFacts>) -> Result<()> {
        // Only a named kernel fixes the majors. Some kernels cannot read the smallest operands.
        let majors = |spec| Choice::plain(spec).majors();
        let (a_major, b_major) = config.spec.map_or((Major::K, Major::K), majors);
        let problem = Problem::new(64, 64, 64, a_major, b_major);
        let search = Search::new(&problem, config, device.into(), OperandAlignment::ALIGNED)?;
        search.asked().map(|_| ())
    }

    /// Checks that there are kernels for a config's types, and that they take the scalars of a
    /// valid problem.
    ///
    /// # Errors
    /// [`SpecError::Types`], [`SpecError::Major`], or a scalar that the kernels do not take.
    pub fn check_problem(problem: &Problem, config: &Config) -> Result<()> {
        let planned = PlannedProblem::new(problem, config, OperandAlignment::ALIGNED);
        let PlannedProblem { problem, config, .. } = planned;
        check_types(&problem, config.operands(), config.output_dtype())
    }

    /// The plans for a problem on a device, best first. There is only one if the config names the
    /// kernel. For a column-major D, the plans are those of the transposed problem, in which A and
    /// B, and m and n, are exchanged. The addresses of operands are assumed to be multiples of 16
    /// bytes.
    ///
    /// # Errors
    /// The problem is malformed or too large, the types have no kernel, or a knob is impossible.
    pub fn candidates(
        problem: &Problem,
        config: &Config,
        device: impl Into<DeviceFacts>,
    ) -> Result<Vec<Plan>> {
        let alignment = OperandAlignment::ALIGNED;
        Ok(Candidates::new(problem, config, device.into(), alignment)?.collect())
    }

    /// The first of the [`candidates`](Self::candidates), computed without the others.
    ///
    /// # Errors
    /// The same as for [`candidates`](Self::candidates).
    pub fn best(
        problem: &Problem,
        config: &Config,
        device: impl Into<DeviceFacts>,
    ) -> Result<Plan> {
        let mut plans = Candidates::new(problem, config, device.into(), OperandAlignment::ALIGNED)?;
        plans.next().ok_or(TOO_MANY_TILES)
    }

    /// Like [`candidates`](Self::candidates), for operands of the given alignment. Each plan is
    /// computed on demand. If the config leaves every knob to the planner, a tuned choice for this
    /// problem comes before all others.
    ///
    /// # Errors
    /// The same as for [`candidates`](Self::candidates).
    pub fn candidates_with(
        problem: &Problem,
        config: &Config,
        device: impl Into<DeviceFacts>,
        tuned: &dyn TunedChoices,
        alignment: OperandAlignment,
    ) -> Result<Candidates> {
        let device = device.into();
        let mut plans = Candidates::new(problem, config, device, alignment)?;
        let Some(first) = plans.first.as_ref().filter(|_| config.leaves_all_to_planner()) else {
            return Ok(plans);
        };
        // If operands can be accessed in several ways, tuned choices are looked up for the access
        // that the heuristic chose.
        let planned = plans.search.planned(&first.choice());
        let fits = |choice: Choice| {
            choice.with_epilogue(planned.config.epilogue.shape()).spec.validate().is_ok()
        };
        let found = tuned.tuned(&ProblemKey::of_planned(planned));
        plans.tuned = found.filter(|found| fits(found.choice)).and_then(|found| {
            let day = found.date.split('T').next().unwrap_or_default();
            // What loads the operands may differ from the heuristic's choice.
            let mut accesses = plans.search.accesses.iter().chain(&plans.search.direct);
            let planned = accesses.find(|planned| planned.is_read_by(&found.choice))?;
            Some(Plan::new(found.choice, planned, device, format!("tuned on {day}")))
        });
        Ok(plans)
    }

    /// The best plan with a preferred kernel that is accepted, for operands of the given alignment.
    /// There is none if the config asks for a kernel. The plans are shown one after the other, best
    /// first.
    ///
    /// # Errors
    /// The same as for [`candidates`](Self::candidates).
    pub fn best_preferred(
        problem: &Problem,
        config: &Config,
        device: impl Into<DeviceFacts>,
        alignment: OperandAlignment,
        preferred: &PreferredKernels,
        mut accept: impl FnMut(&Plan) -> bool,
    ) -> Result<Option<Plan>> {
        let search = Search::new(problem, config, device.into(), alignment)?;
        if search.asked()?.is_some() {
            return Ok(None);
        }
        let preferred = PreferredFor::new(preferred, &search.accesses);
        let mut ranking = search.ranking(Some(&preferred));
        let next = || Some(search.next_ranked(&mut ranking, PREFERRED)?.0);
        Ok(std::iter::from_fn(next).find(|plan| accept(plan)))
    }

    /// The choice of this plan.
    pub fn choice(&self) -> Choice {
        let Plan { spec, raster_rows, split, dependent_launch, .. } = *self;
        Choice { spec, raster_rows, split, dependent_launch }
    }

    /// Whether the kernel computes Dᵀ = Bᵀ·Aᵀ.
    pub fn swapped(&self) -> bool {
        self.choice().swapped()
    }

    /// How the plan adds up along k. Plans of one class for the same problem give the same results
    /// bit for bit.
    pub fn summation(&self) -> SummationClass {
        let Plan { spec, raster_rows, tiles, k_tiles, .. } = *self;
        let [split_tiles, workers, clusters] =
            [self.split_tiles, self.workers, self.clusters].map(u64::from);
        let work = Decomposition { tiles, k_tiles, split_tiles, workers, clusters };
        SummationClass::of(spec, raster_rows, &work)
    }

    fn new(choice: Choice, planned: &PlannedProblem, device: DeviceFacts, why: String) -> Plan {
        let PlannedProblem { problem, config, accesses, .. } = planned;
        let sms = device.limited_to(config.sms).sm_count;
        let extents = [problem.m, problem.n, problem.k].map(|extent| extent as u64);
        let Decomposition { tiles, k_tiles, split_tiles, workers, clusters } =
            choice.decompose(extents, problem.batch.count as u64, sms);
        Plan {
            spec: choice.with_epilogue(config.epilogue.shape()).spec,
            raster_rows: choice.raster_rows,
            split: choice.split,
            // Countable numbers fit into 32 bits.
            split_tiles: split_tiles as u32,
            workers: workers as u32,
            unordered: config.unordered,
            l2: config.l2.unwrap_or_else(|| l2_policies(&choice, problem)),
            accesses: *accesses,
            repack_cycles: planned.repack_cycles(),
            dependent_launch: choice.dependent_launch,
            clusters: clusters as u32,
            tiles,
            k_tiles,
            waves: tiles as f64 / (clusters * u64::from(choice.spec.tiles_at_once())) as f64,
            why,
        }
    }
}

/// Why a preferred kernel was picked.
const PREFERRED: &str = "by the heuristic, of the preferred kernels";

/// Plans for a problem, best first. The first is computed at once, the others on demand.
pub struct Candidates {
    search: Search,
    tuned: Option<Plan>,
    /// The plan of a preferred kernel that comes before the heuristic's first one.
    preferred: Option<Plan>,
    first: Option<Plan>,
    /// The estimated cycles of the first plan, if the heuristic has ranked it.
    least: f64,
    ranking: Option<Ranking<'static>>,
}

impl Candidates {
    fn new(
        problem: &Problem,
        config: &Config,
        device: DeviceFacts,
        alignment: OperandAlignment,
    ) -> Result<Self> {
        let search = Search::new(problem, config, device, alignment)?;
        if let Some(first) = search.asked()? {
            let (first, least) = (Some(first), f64::INFINITY);
            return Ok(Candidates {
                search,
                tuned: None,
                preferred: None,
                first,
                least,
                ranking: None,
            });
        }
        let mut ranking = search.ranking(None);
        if ranking.is_empty() {
            let PlannedProblem { config, .. } = &search.accesses[0];
            let ([a, b], output) = (config.operands(), config.output_dtype());
            return Err(SpecError::Types { a, b, output }.into());
        }
        let first = search.next_ranked(&mut ranking, "by the heuristic");
        let (first, least) = first.ok_or(TOO_MANY_TILES)?;
        let (first, ranking) = (Some(first), Some(ranking));
        Ok(Candidates { search, tuned: None, preferred: None, first, least, ranking })
    }

    /// Puts the best plan with a preferred kernel first, if it is estimated to take at most
    /// [`PREFERRED_WITHIN`] times as long as the best of all. A tuned plan and plans that the
    /// config asks for stay first.
    pub fn prefer(mut self, preferred: &PreferredKernels) -> Candidates {
        let comes_first = |first: &Plan| preferred.contains(&first.spec);
        if self.tuned.is_none() && !self.first.iter().any(comes_first) {
            let nearest = self.nearest(preferred);
            self.preferred =
                nearest.and_then(|(plan, ratio)| (ratio <= PREFERRED_WITHIN).then_some(plan));
        }
        self
    }

    /// The best plan with a preferred kernel, and how many times as long as the best of all it is
    /// estimated to take. There is none if the config asks for a kernel.
    ///
    /// Of the kernels that were ranked with all others, the best preferred one is taken if it is
    /// within [`PREFERRED_WITHIN`]. Else preferred ones are ranked alone.
    pub fn nearest(&self, preferred: &PreferredKernels) -> Option<(Plan, f64)> {
        let Candidates { search, ranking, first, least, .. } = self;
        let ranking = ranking.as_ref()?;
        if let Some(first) = first.as_ref().filter(|first| preferred.contains(&first.spec)) {
            return Some((first.clone(), 1.0));
        }
        let near = ranking.corrected().filter(|(_, cycles)| *cycles <= PREFERRED_WITHIN * least);
        let plan = |(choice, cycles)| Some((search.legal(choice, PREFERRED)?, cycles));
        let mut found = near.filter_map(plan).find(|(plan, _)| preferred.contains(&plan.spec));
        if found.is_none() {
            let preferred = PreferredFor::new(preferred, &search.accesses);
            found = search.next_ranked(&mut search.ranking(Some(&preferred)), PREFERRED);
        }
        found.map(|(plan, cycles)| (plan, cycles / least))
    }
}

impl Iterator for Candidates {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        let known = [&mut self.tuned, &mut self.preferred, &mut self.first];
        let known = known.into_iter().find_map(Option::take);
        let ranked =
            || Some(self.search.next_ranked(self.ranking.as_mut()?, "by the heuristic")?.0);
        known.or_else(ranked)
    }
}

/// A problem whose plans are looked for.
struct Search {
    /// The problem with each possible way to access the operands. Each choice has the majors of one
    /// of them, or of `direct`.
    accesses: Vec<PlannedProblem>,
    /// The problem as direct kernels see it, if one of them may be the fastest.
    direct: Option<PlannedProblem>,
    device: DeviceFacts,
}

impl Search {
    /// Checks a problem and a config, and looks for the ways to access the operands.
    fn new(
        problem: &Problem,
        config: &Config,
        device: DeviceFacts,
        alignment: OperandAlignment,
    ) -> Result<Search> {
        problem.validate()?;
        for (what, extent) in [("m", problem.m), ("n", problem.n), ("k", problem.k)] {
            if extent > MAX_EXTENT {
                return Err(PlanError::Overflow { what, limit: MAX_EXTENT as u64 });
            }
        }
        if problem.batch.count > MAX_BATCH {
            return Err(PlanError::Overflow { what: "the batch", limit: MAX_BATCH as u64 });
        }
        if let Some(requested) = config.sms
            && !(1..=device.sm_count).contains(&requested)
        {
            return Err(PlanError::Sms { requested, limit: device.sm_count });
        }
        let search = Search {
            accesses: PlannedProblem::candidates(problem, config, alignment),
            direct: direct_access(problem, config),
            device: device.limited_to(config.sms),
        };
        let PlannedProblem { problem, config, .. } = &search.accesses[0];
        let (operands, output) = (config.operands(), config.output_dtype());
        config.check_precision()?;
        config.check_epilogue()?;
        check_types(problem, operands, output)?;
        check_swapped(&search.accesses)?;
        Ok(search)
    }

    /// The plan that the config asks for. `None` if it leaves the kernel to the planner.
    fn asked(&self) -> Result<Option<Plan>> {
        let PlannedProblem { config, .. } = &self.accesses[0];
        if let Some(choice) = by_name(&self.accesses, self.device)? {
            return self.requested(choice, "as asked").map(Some);
        }
        if !config.shapes_kernel() {
            return Ok(None);
        }
        // Requested tiles are tiles of D itself, unless swapped operands are requested.
        let swapped = Some(config.swapped.unwrap_or_default());
        let (operands @ [a, b], output) = (config.operands(), config.output_dtype());
        let precision = config.precision();
        let base = self.accesses.iter().find_map(|planned| {
            let mut specs = specs_for(&planned.problem, operands, output, precision, swapped);
            Some((planned, specs.next()?))
        });
        let Some((planned, base)) = base else {
            return Err(SpecError::Types { a, b, output }.into());
        };
        let (spec, raster, why) = knobs::by_knobs(&base, config)?;
        let shape = Shape::of_planned(planned);
        let choice = choice_for(spec, shape, config, self.device, raster);
        self.requested(choice, &why).map(Some)
    }

    /// The plan of a choice that the config asks for.
    fn requested(&self, choice: Choice, why: &str) -> Result<Plan> {
        let sms = self.device.sm_count;
        if choice.spec.cluster.size() > sms {
            return Err(PlanError::ClusterBeyondSms { spec: Box::new(choice.spec), sms });
        }
        self.plan(choice, why).ok_or(TOO_MANY_TILES)
    }

    /// The choices of the kernels that are worth estimating, or of the preferred ones of them.
    fn ranking<'t>(&self, preferred: Option<&'t PreferredFor<'t>>) -> Ranking<'t> {
        let device = self.device;
        let Config { split, dependent_launch, .. } = self.accesses[0].config;
        let access = |planned: &PlannedProblem| {
            let shape = Shape::of_planned(planned);
            let groups = considered_for(planned, shape, device, preferred);
            Access { groups, shape, before: planned.repack_cycles() }
        };
        let all = self.accesses.iter().map(access).collect();
        let mut ranking = Ranking::of_accesses(all, device, split, dependent_launch);
        if let Some(planned) = &self.direct {
            let specs = direct_for(planned, preferred.map(|preferred| preferred.kernels));
            ranking.add_direct(specs, Shape::of_planned(planned), device, dependent_launch);
        }
        ranking
    }

    /// The next plan of a ranking, with its estimated cycles.
    fn next_ranked(&self, ranking: &mut Ranking, why: &str) -> Option<(Plan, f64)> {
        loop {
            let (choice, cycles) = ranking.next_estimated()?;
            if let Some(plan) = self.legal(choice, why) {
                return Some((plan, cycles));
            }
        }
    }

    /// The plan of a choice of the ranking, if its clusters fit the device and its kernel can have
    /// the epilogue.
    fn legal(&self, choice: Choice, why: &str) -> Option<Plan> {
        if choice.spec.cluster.size() > self.device.sm_count {
            return None;
        }
        let config = &self.accesses[0].config;
        // The widest tiles have no registers left for an epilogue.
        choice.with_epilogue(config.epilogue.shape()).spec.validate().ok()?;
        let raster_rows = config.raster_rows.unwrap_or(choice.raster_rows).max(1);
        self.plan(Choice { raster_rows, ..choice }, why)
    }

    /// The problem as the kernel of a choice sees it.
    fn planned(&self, choice: &Choice) -> &PlannedProblem {
        let mut all = self.accesses.iter().chain(&self.direct);
        all.find(|planned| planned.is_read_by(choice)).unwrap_or(&self.accesses[0])
    }

    /// The plan of a choice. `None` if the kernel cannot count its tiles.
    fn plan(&self, choice: Choice, why: &str) -> Option<Plan> {
        let (planned, device) = (self.planned(&choice), self.device);
        let Problem { m, n, k, batch, .. } = planned.problem;
        let extents = [m, n, k].map(|extent| extent as u64);
        choice
            .decompose(extents, batch.count as u64, device.sm_count)
            .is_countable()
            .then(|| Plan::new(choice, planned, device, why.to_owned()))
    }
}

/// The kernels with which a problem is estimated to take at most [`NEAR_THE_BEST`] times as long as
/// with the best of all, each with this ratio. More kernels are estimated than for a plan, and all
/// estimates are corrected.
///
/// # Errors
/// The same as for [`Plan::candidates`].
pub fn near_the_best(
    problem: &Problem,
    config: &Config,
    device: impl Into<DeviceFacts>,
    alignment: OperandAlignment,
) -> Result<Vec<(Spec, f64)>> {
    let Candidates { search, first, least, .. } =
        Candidates::new(problem, config, device.into(), alignment)?;
    let mut near: Vec<(Spec, f64)> = vec![];
    let mut numbers: HashMap<Spec, usize> = HashMap::new();
    let mut best = least;
    let mut all: Vec<(Spec, f64)> = first.iter().map(|plan| (plan.spec, least)).collect();
    for planned in &search.accesses {
        let shape = Shape::of_planned(planned);
        let groups = many_for(planned, shape, search.device);
        let access = Access { groups, shape, before: planned.repack_cycles() };
        let epilogue = config.epilogue.shape();
        let estimates = heuristic::all_corrected(access, search.device, MOST_NEAR_THE_BEST);
        all.extend(
            estimates
                .into_iter()
                .map(|(choice, cycles)| (choice.with_epilogue(epilogue).spec, cycles)),
        );
    }
    best = all.iter().map(|(_, cycles)| *cycles).fold(best, f64::min);
    for (spec, cycles) in all {
        let ratio = cycles / best;
        if ratio <= NEAR_THE_BEST {
            let number = *numbers.entry(spec).or_insert_with(|| {
                near.push((spec, ratio));
                near.len() - 1
            });
            near[number].1 = near[number].1.min(ratio);
        }
    }
    Ok(near)
}

/// Bytes below which an operand is left in L2 for later kernels.
const STREAMED_BYTES: u64 = 8 << 20;

/// Bytes of D above which operands are not evicted first. If they were, a large D would fill L2.
/// This makes 128×129280×7168 take 6 % longer.
const MOST_OUTPUT_BYTES: u64 = 15 << 20;

/// The L2 policies of a choice. If D is a single tile wide, every byte of one operand is read only
/// once. If that operand is large, it is evicted first and leaves L2 to the other operand.
fn l2_policies(choice: &Choice, problem: &Problem) -> L2Policies {
    let Problem { m, n, k, batch, .. } = *problem;
    let [m, n, k] = choice.extents([m, n, k].map(|extent| extent as u64));
    let (rows, columns, _) = choice.tiles([m, n, k]);
    let products = batch.count as u64;
    let results = m.saturating_mul(n).saturating_mul(products);
    let output = results.saturating_mul(choice.spec.output.bytes().into());
    if output > MOST_OUTPUT_BYTES {
        return L2Policies::default();
    }
    let streamed = |readers: u64, extent: u64, element: Element, stride: usize| {
        let matrices = batch.matrices(stride) as u64;
        let bytes = extent.saturating_mul(k).saturating_mul(element.bytes().into());
        let bytes = bytes.saturating_mul(matrices);
        if readers == 1 && matrices == products && bytes >= STREAMED_BYTES {
            L2Policy::EvictFirst
        } else {
            L2Policy::Normal
        }
    };
    let [a, b] = choice.spec.operands();
    let (of_a, of_b) = if choice.swapped() { (batch.b, batch.a) } else { (batch.a, batch.b) };
    let (a, b) = (streamed(columns, m, a, of_a), streamed(rows, n, b, of_b));
    let (a, b) = if choice.swapped() { (b, a) } else { (a, b) };
    L2Policies { a, b, d: L2Policy::Normal }
}

/// The problem as direct kernels see it, if one of them may be the fastest and the config allows
/// them.
fn direct_access(problem: &Problem, config: &Config) -> Option<PlannedProblem> {
    let Problem { m, n, k, .. } = *problem;
    let allowed = config.split.is_none_or(|split| split == Split::Whole)
        && config.swapped != Some(true)
        && config.precision() == Precision::Full;
    let worthwhile = heuristic::may_be_direct([m, n, k].map(|extent| extent as u64));
    if allowed && worthwhile { PlannedProblem::direct(problem, config) } else { None }
}

/// The choice if the config names the kernel.
fn by_name(accesses: &[PlannedProblem], device: DeviceFacts) -> Result<Option<Choice>> {
    let config = &accesses[0].config;
    let Some(spec) = config.spec else { return Ok(None) };
    let plain = Choice::plain(spec);
    let types = (plain.operands(), spec.output) == (config.operands(), config.output_dtype());
    let planned = accesses.iter().find(|planned| types && planned.is_read_by(&plain));
    let Some(planned) = planned else { return Err(PlanError::SpecMismatch { spec }) };
    if let Some(split) = config.split.filter(|split| spec.is_direct() && *split != Split::Whole) {
        return Err(PlanError::NoSplit { spec, split });
    }
    config.check_epilogue_of(&spec)?;
    plain.with_epilogue(config.epilogue.shape()).spec.validate()?;
    // Rated as the kernel without an epilogue.
    let choice = choice_for(
        plain.with_epilogue(EpilogueShape::NONE).spec,
        Shape::of_planned(planned),
        config,
        device,
        None,
    );
    Ok(Some(choice))
}

/// Checks that there are kernels that swap A and B, or do not, as requested.
fn check_swapped(accesses: &[PlannedProblem]) -> Result<()> {
    let config = &accesses[0].config;
    let Config { swapped, .. } = *config;
    let (operands, output) = (config.operands(), config.output_dtype());
    let mut specs = accesses.iter().flat_map(|planned| {
        specs_for(&planned.problem, operands, output, config.precision(), swapped)
    });
    match specs.next() {
        Some(_) => Ok(()),
        None => Err(PlanError::NotSwapped { requested: swapped.unwrap_or_default(), output }),
    }
}

fn choice_for(
    spec: Spec,
    shape: Shape,
    config: &Config,
    device: DeviceFacts,
    raster: Option<u32>,
) -> Choice {
    let plain = Choice::plain(spec);
    let usual = || heuristic::raster_rows(&spec, plain.extents(shape.extents), device.sm_count);
    let raster_rows = config.raster_rows.or(raster).unwrap_or_else(usual).max(1);
    let choice = Choice { raster_rows, split: config.split.unwrap_or_default(), ..plain };
    let cycles =
        |dependent_launch| heuristic::cycles(&Choice { dependent_launch, ..choice }, shape, device);
    let dependent_launch = config.dependent_launch.unwrap_or_else(|| cycles(true) <= cycles(false));
    Choice { dependent_launch, ..choice }
}

#[cfg(test)]
mod tests;
