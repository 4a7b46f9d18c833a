//! [`Plan`]: how a problem will be computed: which kernel, on how many CTAs, in which order. Pure arithmetic, no device.

mod describe;
mod dmma;
mod ffma;
mod shared;

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{
    AnySpec, Arithmetic, Cluster, Epilogue, KernelSpec, L2Policies, L2Policy, OutputMajor,
    Schedule, SpecError, Tile,
};
use serde::Serialize;

use crate::choice::{Choice, Decomposition};
use crate::config::{Config, Split};
use crate::error::{Error, Result};
use crate::heuristic::{self, AnyRated, Ranking, Shape};
use crate::precision::Precision;
use crate::problem::{Major, Problem};
use crate::reading::{Aligned, Readings, Seen};
use crate::tune::{Picks, ProblemKey};

/// Extents and coordinates are 32-bit and signed in TMA.
const MAX_EXTENT: usize = i32::MAX as usize;

/// Products of a batch: two operands of as many matrices are laid out anew in fewer than 2^31 CTAs.
const MAX_BATCH: usize = 1 << 28;

/// How a problem will be computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The kernel.
    pub spec: AnySpec,
    /// Rows of cluster tiles that are walked together.
    pub raster_rows: u32,
    /// How tiles are split along k.
    pub split: Split,
    /// Cluster tiles that are split.
    pub split_tiles: u32,
    /// Workers that share these.
    pub workers: u32,
    /// Whether partial sums are added as they come.
    pub unordered: bool,
    /// How long L2 keeps what is read and written.
    pub l2: L2Policies,
    /// How the kernel gets A and B.
    pub readings: Readings,
    /// Estimated cycles of laying operands out anew, 0 where both are read in place.
    pub pass_cycles: f64,
    /// Whether the launch may begin while the one before it ends.
    pub dependent_launch: bool,
    /// Clusters launched.
    pub clusters: u32,
    /// Cluster tiles of the problem, all its products together.
    pub tiles: u64,
    /// Tiles over clusters: how often each cluster works.
    pub waves: f64,
    /// What of the request was decomposed or chosen, for people.
    pub why: String,
}

impl Plan {
    /// Checks what no problem can make possible: types without kernels, and knobs beyond their limits.
    ///
    /// # Errors
    /// The types have no kernel, a knob is impossible.
    pub fn check_config(config: &Config, sms: u32) -> Result<()> {
        // Only named kernels have majors that no problem changes.
        let majors = |spec| Choice::plain(spec).majors();
        let (a_major, b_major) = config.spec.map_or((Major::K, Major::K), majors);
        Plan::candidates(&Problem::new(1, 1, 1, a_major, b_major), config, sms).map(|_| ())
    }

    /// The plans for a problem on `sms` SMs, best first; one where the config names the kernel. Of a column-major D they are
    /// those of the transposed problem, in which A and B, m and n have changed places. The addresses of operands are taken
    /// to be multiples of 16.
    ///
    /// # Errors
    /// The problem is malformed or too large, the types have no kernel, a knob is impossible.
    pub fn candidates(problem: &Problem, config: &Config, sms: u32) -> Result<Vec<Plan>> {
        Ok(Candidates::new(problem, config, sms, Aligned::ALL)?.collect())
    }

    /// Like [`candidates`](Self::candidates), each made when it is asked for, with what was tuned for this problem before all
    /// others where the config leaves everything but types to the planner.
    ///
    /// # Errors
    /// As [`candidates`](Self::candidates).
    pub fn candidates_with(
        problem: &Problem,
        config: &Config,
        sms: u32,
        picks: &Picks,
    ) -> Result<Candidates> {
        Self::candidates_at(problem, config, sms, picks, Aligned::ALL)
    }

    /// Like [`candidates_with`](Self::candidates_with), for operands at such addresses.
    ///
    /// # Errors
    /// As [`candidates`](Self::candidates).
    pub(crate) fn candidates_at(
        problem: &Problem,
        config: &Config,
        sms: u32,
        picks: &Picks,
        aligned: Aligned,
    ) -> Result<Candidates> {
        let mut plans = Candidates::new(problem, config, sms, aligned)?;
        let Some(first) = plans.first.as_ref().filter(|_| config.leaves_all_to_planner()) else {
            return Ok(plans);
        };
        // Of several ways to read the operands, what was tuned for the one that the heuristic takes.
        let seen = plans.seen(&first.choice());
        let pick = picks.get(&ProblemKey::of(&seen.problem, &seen.config));
        let fits = |candidate: Choice| {
            candidate.with_epilogue(seen.config.epilogue).spec.validate().is_ok()
        };
        plans.tuned = pick.filter(|pick| fits(pick.candidate)).map(|pick| {
            let day = pick.date.split('T').next().unwrap_or_default();
            Plan::new(pick.candidate, seen, sms, format!("tuned on {day}"))
        });
        Ok(plans)
    }

    /// What was chosen.
    pub fn choice(&self) -> Choice {
        let Plan { spec, raster_rows, split, dependent_launch, .. } = *self;
        Choice { spec, raster_rows, split, dependent_launch }
    }

    /// Whether the kernel computes Dᵀ = Bᵀ·Aᵀ.
    pub fn swapped(&self) -> bool {
        self.choice().swapped()
    }

    fn new(choice: Choice, seen: &Seen, sms: u32, why: String) -> Plan {
        let Seen { problem, config, readings, .. } = seen;
        let sms = config.sms.unwrap_or(sms).clamp(1, sms);
        let extents = [problem.m, problem.n, problem.k].map(|extent| extent as u64);
        let Decomposition { tiles, split_tiles, workers, clusters, .. } =
            choice.decompose(extents, problem.batch.count as u64, sms);
        Plan {
            spec: choice.with_epilogue(config.epilogue).spec,
            raster_rows: choice.raster_rows,
            split: choice.split,
            // Countable ones fit.
            split_tiles: split_tiles as u32,
            workers: workers as u32,
            unordered: config.unordered,
            l2: config.l2.unwrap_or_else(|| l2_policies(&choice, problem)),
            readings: *readings,
            pass_cycles: seen.pass_cycles(),
            dependent_launch: choice.dependent_launch,
            clusters: clusters as u32,
            tiles,
            waves: tiles as f64 / clusters as f64,
            why,
        }
    }
}

/// Plans for a problem, best first. The first is made at once, the others when they are asked for.
pub struct Candidates {
    /// All ways to read the operands; each choice has the majors of one.
    ways: Vec<Seen>,
    sms: u32,
    tuned: Option<Plan>,
    first: Option<Plan>,
    ranking: Option<Ranking>,
}

impl Candidates {
    fn new(problem: &Problem, config: &Config, sms: u32, aligned: Aligned) -> Result<Self> {
        problem.validate()?;
        for (what, extent) in [("m", problem.m), ("n", problem.n), ("k", problem.k)] {
            if extent > MAX_EXTENT {
                return Err(Error::Overflow { what, limit: MAX_EXTENT as u64 });
            }
        }
        if problem.batch.count > MAX_BATCH {
            return Err(Error::Overflow { what: "the batch", limit: MAX_BATCH as u64 });
        }
        let ways = Seen::ways(problem, config, aligned);
        let (problem, config) = (&ways[0].problem, &ways[0].config);
        let sms = config.sms.unwrap_or(sms).clamp(1, sms);
        let (operands @ [a, b], output) = (config.operands(), config.output_dtype());
        config.check_precision()?;
        config.check_epilogue()?;
        check_types(problem, operands, output)?;
        check_swapped(&ways)?;
        let precision = config.precision();
        let mut plans =
            Candidates { ways: ways.clone(), sms, tuned: None, first: None, ranking: None };
        if let Some(choice) = by_name(&ways, sms)? {
            plans.first = plans.plan(choice, "as asked");
        } else if config.shapes_kernel() {
            // Tiles are of D as it lies, unless operands are asked to change places.
            let swapped = Some(config.swapped.unwrap_or_default());
            let base = ways.iter().find_map(|seen| {
                let mut specs = specs_for(&seen.problem, operands, output, precision, swapped);
                Some((seen, specs.next()?))
            });
            let Some((seen, base)) = base else {
                return Err(SpecError::Types { a, b, output }.into());
            };
            let (spec, raster, why) = match base {
                AnySpec::Wgmma(base) => by_knobs(base, config)?,
                AnySpec::Dmma(base) => shared::by_knobs(base, config)?,
                AnySpec::Ffma(base) => shared::by_knobs(base, config)?,
            };
            let choice = choice_for(spec, Shape::seen(seen), config, sms, raster);
            plans.first = plans.plan(choice, &why);
        } else {
            let rankings = ways.iter().map(|seen| {
                let specs = rated_for(&seen.problem, operands, output, precision, config.swapped);
                let shape = Shape::seen(seen);
                let ranking =
                    Ranking::new(specs, shape, sms, config.split, config.dependent_launch);
                (ranking, seen.pass_cycles())
            });
            plans.ranking = Ranking::of_ways(rankings);
            if plans.ranking.is_none() {
                return Err(SpecError::Types { a, b, output }.into());
            }
            plans.first = plans.next_ranked();
        }
        match plans.first {
            Some(_) => Ok(plans),
            None => Err(Error::Overflow { what: "the number of tiles", limit: 1 << 31 }),
        }
    }

    /// How a choice reads the operands.
    fn seen(&self, choice: &Choice) -> &Seen {
        self.ways.iter().find(|seen| seen.has_majors_of(choice)).unwrap_or(&self.ways[0])
    }

    /// The plan of a choice; `None` where the kernel cannot count its tiles.
    fn plan(&self, choice: Choice, why: &str) -> Option<Plan> {
        let (seen, sms) = (self.seen(&choice), self.sms);
        let Problem { m, n, k, batch, .. } = seen.problem;
        let extents = [m, n, k].map(|extent| extent as u64);
        choice
            .decompose(extents, batch.count as u64, sms)
            .is_countable()
            .then(|| Plan::new(choice, seen, sms, why.to_owned()))
    }

    fn next_ranked(&mut self) -> Option<Plan> {
        loop {
            let choice = self.ranking.as_mut()?.next()?;
            let config = &self.ways[0].config;
            // An epilogue takes registers that the widest tiles have not.
            if choice.with_epilogue(config.epilogue).spec.validate().is_err() {
                continue;
            }
            let raster_rows = config.raster_rows.unwrap_or(choice.raster_rows).max(1);
            let plan = self.plan(Choice { raster_rows, ..choice }, "by the heuristic");
            if plan.is_some() {
                return plan;
            }
        }
    }
}

impl Iterator for Candidates {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        self.tuned.take().or_else(|| self.first.take()).or_else(|| self.next_ranked())
    }
}

/// An operand that is smaller stays in L2 for whoever reads it next, bytes.
const STREAMED_BYTES: u64 = 8 << 20;

/// A D that is larger needs the lines of the operands to be evicted in their turn, bytes: where operands always go first, D
/// fills L2, and 128×129280×7168 takes 6 % longer.
const MOST_OUTPUT_BYTES: u64 = 15 << 20;

/// A large operand of which every byte is read once, as D is one tile wide, leaves room in L2 to the other.
fn l2_policies(choice: &Choice, problem: &Problem) -> L2Policies {
    let Problem { m, n, k, batch, .. } = *problem;
    let [m, n, k] = choice.extents([m, n, k].map(|extent| extent as u64));
    let (rows, columns, _) = choice.tiles([m, n, k]);
    let products = batch.count as u64;
    let results = m.saturating_mul(n).saturating_mul(products);
    let output = results.saturating_mul(choice.spec.output().bytes().into());
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

/// The specs for a problem, rated: with the operands as they are, and with A and B in each other's place.
fn rated_for(
    problem: &Problem,
    operands: [Element; 2],
    output: Element,
    precision: Precision,
    swapped: Option<bool>,
) -> impl Iterator<Item = &'static AnyRated> + use<> {
    let (a, b) = (operand_major(problem.a.major), operand_major(problem.b.major));
    let rated = match precision.terms() {
        None => heuristic::rated(operands, output, a, b),
        Some((element, terms)) => heuristic::rated_terms(element, terms),
    };
    rated.iter().filter(move |rated| {
        let spec = rated.spec();
        Precision::of(&spec) == precision
            && swapped.is_none_or(|swapped| swapped == (spec.d_major() == OutputMajor::M))
    })
}

/// The specs for a problem: with the operands as they are, and with A and B in each other's place.
pub(crate) fn specs_for(
    problem: &Problem,
    operands: [Element; 2],
    output: Element,
    precision: Precision,
    swapped: Option<bool>,
) -> impl Iterator<Item = AnySpec> + use<> {
    rated_for(problem, operands, output, precision, swapped).map(AnyRated::spec)
}

/// Checks that there are kernels for operands of a config's types, and for the scalars of a problem that validates.
///
/// # Errors
/// As [`check_types`].
pub(crate) fn check(problem: &Problem, config: &Config) -> Result<()> {
    let Seen { problem, config, .. } = Seen::new(problem, config, Aligned::ALL);
    check_types(&problem, config.operands(), config.output_dtype())
}

/// Checks that there are kernels for operands of these types as they lie, and for the scalars.
///
/// # Errors
/// [`SpecError::Types`], [`SpecError::Major`], or scalars of an integer product that are no integers.
fn check_types(problem: &Problem, operands: [Element; 2], output: Element) -> Result<()> {
    let ([a, b], k) = (operands, OperandMajor::K);
    let majors = (operand_major(problem.a.major), operand_major(problem.b.major));
    if heuristic::rated(operands, output, majors.0, majors.1).is_empty() {
        let other_majors = !heuristic::rated(operands, output, k, k).is_empty();
        return Err(match majors {
            (OperandMajor::Mn, _) if other_majors => SpecError::Major { operand: "A", element: a },
            (_, OperandMajor::Mn) if other_majors => SpecError::Major { operand: "B", element: b },
            _ => SpecError::Types { a, b, output },
        }
        .into());
    }
    Ok(problem.check_scalars(output)?)
}

/// The choice where the config names the kernel.
fn by_name(ways: &[Seen], sms: u32) -> Result<Option<Choice>> {
    let config = &ways[0].config;
    let Some(spec) = config.spec else { return Ok(None) };
    let plain = Choice::plain(spec);
    let types = (plain.operands(), spec.output()) == (config.operands(), config.output_dtype());
    let seen = ways.iter().find(|seen| types && seen.has_majors_of(&plain));
    let Some(seen) = seen else { return Err(Error::SpecMismatch { spec }) };
    config.check_epilogue_of(&spec)?;
    // Rated as the kernel without one.
    let choice =
        choice_for(plain.with_epilogue(Epilogue::NONE).spec, Shape::seen(seen), config, sms, None);
    choice.with_epilogue(config.epilogue).spec.validate()?;
    Ok(Some(choice))
}

/// Refuses operands in each other's place where no kernel computes so.
fn check_swapped(ways: &[Seen]) -> Result<()> {
    let config = &ways[0].config;
    let Config { swapped, .. } = *config;
    let (operands, output) = (config.operands(), config.output_dtype());
    let mut specs = ways
        .iter()
        .flat_map(|seen| specs_for(&seen.problem, operands, output, config.precision(), swapped));
    match specs.next() {
        Some(_) => Ok(()),
        None => Err(Error::InvalidKnob {
            knob: "swapped",
            asked: swapped.unwrap_or_default().to_string(),
            limit: format!("kernels of {output} take A and B of any majors as they are"),
            nearest: "false".into(),
        }),
    }
}

fn choice_for(
    spec: AnySpec,
    shape: Shape,
    config: &Config,
    sms: u32,
    raster: Option<u32>,
) -> Choice {
    let plain = Choice::plain(spec);
    let [m, _, _] = plain.extents(shape.extents);
    let usual = || heuristic::raster_rows(&spec, m, sms);
    let raster_rows = config.raster_rows.or(raster).unwrap_or_else(usual).max(1);
    let choice = Choice { raster_rows, split: config.split.unwrap_or_default(), ..plain };
    let launches = [true, false].map(|dependent_launch| Choice { dependent_launch, ..choice });
    let cycles = launches.map(|choice| heuristic::cycles(&choice, shape, sms));
    let dependent_launch = config.dependent_launch.unwrap_or(cycles[0] <= cycles[1]);
    Choice { dependent_launch, ..choice }
}

/// The kernel's word for a major.
pub(crate) fn operand_major(major: Major) -> pgemm_ir::OperandMajor {
    match major {
        Major::K => pgemm_ir::OperandMajor::K,
        Major::M | Major::N => pgemm_ir::OperandMajor::Mn,
    }
}

/// A spec from the knobs, which are those of the kernel: where operands are swapped, `tile_m` lies along n. A macro-tile beyond one CTA is decomposed: CTA tiles of at most 128×256 or 256×128, side by side
/// in the cluster and in the raster block.
fn by_knobs(base: KernelSpec, config: &Config) -> Result<(AnySpec, Option<u32>, String)> {
    let cluster = config.cluster.unwrap_or(Cluster::NONE);
    let (macro_m, macro_n) = (config.tile_m.unwrap_or(128), config.tile_n.unwrap_or(128));
    let k = config.tile_k.unwrap_or(base.tile.k);
    let Arithmetic { promotion, f16_sums, .. } = base.arithmetic;
    let promotes = promotion.is_some();
    // Promoted sums leave registers for fewer columns, those in f16 for more.
    let fits = |m: u32, n: u32| match promotes {
        false => m <= 256 && n <= 256 && (m / 64 * n <= 4 * 208 || f16_sums),
        true => m <= 256 && (m.div_ceil(128) + 1) * n <= 384 && (m != 192 || n <= 112),
    };
    let (mut m, mut n) = (macro_m, macro_n);
    while !fits(m, n) {
        // The longer side first, as long as what is left is whole m64 blocks and 16 columns.
        let (halves_m, halves_n) = (m.is_multiple_of(128), n.is_multiple_of(32));
        if halves_m && (m > n || !halves_n) {
            m /= 2;
        } else if halves_n {
            n /= 2;
        } else {
            return Err(Error::InvalidKnob {
                knob: "tile_m, tile_n",
                asked: format!("{macro_m}x{macro_n}"),
                limit: format!(
                    "a macro-tile must halve down to CTA tiles of at most {}",
                    match (promotes, f16_sums) {
                        (true, _) => "256x128 or 128x192",
                        (false, true) => "256x256",
                        (false, false) => "256x208 or 192x256",
                    }
                ),
                nearest: format!(
                    "{}x{}",
                    macro_m.next_multiple_of(256),
                    macro_n.next_multiple_of(128)
                ),
            });
        }
    }
    let schedule = config.schedule.unwrap_or(Schedule::Cooperative);
    let consumers = match config.warps_per_block {
        None if schedule == Schedule::PingPong => 2,
        None if m % 192 == 0 => 3,
        None if m % 128 == 0 => 2,
        None => 1,
        Some(warps @ (8 | 12 | 16)) => warps / 4 - 1,
        Some(warps) => {
            let nearest = if warps < 10 {
                8
            } else if warps < 14 {
                12
            } else {
                16
            };
            return Err(Error::InvalidKnob {
                knob: "warps_per_block",
                asked: warps.to_string(),
                limit:
                    "one producer warpgroup and one to three consumer warpgroups: 8, 12 or 16 warps"
                        .into(),
                nearest: nearest.to_string(),
            });
        }
    };
    let tile = Tile { m, n, k };
    let promotion = promotion.map(|interval| interval.min(k));
    let arithmetic = Arithmetic { promotion, ..base.arithmetic };
    let spec = KernelSpec { tile, consumers, schedule, cluster, arithmetic, stages: 2, ..base };
    let stages = config.prefetch_depth.unwrap_or_else(|| spec.most_stages().clamp(2, 8));
    let spec = KernelSpec { stages, ..spec };
    spec.validate()?;
    let raster = (m < macro_m).then(|| (macro_m / (m * cluster.m)).max(1));
    let why = shared::why(Tile { m: macro_m, n: macro_n, k }, tile);
    Ok((spec.into(), raster, why))
}

#[cfg(test)]
mod tests;
