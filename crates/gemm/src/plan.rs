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
mod tests {
    use super::*;

    fn problem(m: usize, n: usize, k: usize) -> Problem {
        Problem::new(m, n, k, Major::K, Major::N)
    }

    #[test]
    fn large_problems_get_large_tiles_and_small_ones_fill_the_device() {
        let config = Config::new(Element::Bf16);
        let best = |m, n, k| Plan::candidates(&problem(m, n, k), &config, 132).unwrap().remove(0);
        let large = best(8192, 8192, 8192);
        assert!(large.spec.tile().m * large.spec.tile().n >= 128 * 160, "{large:?}");
        let small = best(512, 512, 512);
        assert!(small.tiles >= 32, "{small:?}");
        assert!(small.clusters as u64 <= small.tiles);
    }

    #[test]
    fn a_macro_tile_is_decomposed_and_reported() {
        let config = Config { tile_m: Some(512), tile_n: Some(512), ..Config::new(Element::Bf16) };
        let plan = Plan::candidates(&problem(4096, 4096, 4096), &config, 132).unwrap().remove(0);
        assert_eq!((plan.spec.tile().m, plan.spec.tile().n), (256, 128), "{plan:?}");
        assert_eq!(plan.raster_rows, 2);
        assert!(plan.why.contains("512x512"), "{}", plan.why);
    }

    /// An epilogue changes no choice but where its time counts: in turns another warpgroup multiplies meanwhile.
    #[test]
    fn epilogues_are_attached_to_what_is_picked() {
        let plain = Config::new(Element::Bf16);
        let fused = |text: &str| plain.clone().with_epilogue(text.parse().unwrap());
        let best = |config: &Config, problem: &Problem| {
            Plan::candidates(problem, config, 132).unwrap().remove(0)
        };
        for (m, d_major) in [(8192, Major::N), (16, Major::N), (1000, Major::M)] {
            let problem = problem(m, 8192, 8192).with_d_major(d_major);
            let (none, bias) = (best(&plain, &problem), best(&fused("bias_n|relu"), &problem));
            assert_eq!(bias.spec.with_epilogue(Epilogue::NONE), none.spec);
            let own = bias.choice().epilogue();
            let asked = fused("bias_n|relu").epilogue;
            assert_eq!(own, if d_major == Major::M { asked.transposed() } else { asked });
            // Named in either way it is the same.
            let named = Config::for_choice(bias.choice());
            if d_major == Major::N {
                assert_eq!(best(&named, &problem).spec, bias.spec);
                let attached = Config { spec: Some(none.spec), ..fused("bias_n|relu") };
                assert_eq!(best(&attached, &problem).spec, bias.spec);
                let text = Plan::candidates(&problem, &named.with_epilogue(Epilogue::NONE), 132);
                assert!(text.unwrap_err().to_string().contains("has the epilogue bias_n|relu"));
            }
        }
        let square = Problem::new(4096, 4096, 4096, Major::K, Major::K);
        for (name, counts) in [
            ("bf16-kk-bf16-128x256x64-s4-w2-c2x1", true),
            ("bf16-kk-bf16-128x128x64-s6-p2-c2x1", false),
        ] {
            let choice = Choice::plain(name.parse().unwrap());
            let cycles = |config| heuristic::cycles(&choice, Shape::of(&square, &config), 132);
            let ratio = cycles(fused("bias_n|gelu")) / cycles(plain.clone());
            assert_eq!(ratio > 1.02, counts, "{name}: {ratio}");
        }
    }

    #[test]
    fn choices_for_a_problem_have_its_majors() {
        for (a, b) in
            [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
        {
            let problem = Problem::new(64, 64, 64, a, b);
            let plans = Plan::candidates(&problem, &Config::new(Element::Bf16), 132).unwrap();
            for swapped in [false, true] {
                let mut choices =
                    plans.iter().map(Plan::choice).filter(|choice| choice.swapped() == swapped);
                let choice = choices.next().unwrap();
                assert_eq!(choice.majors(), (a, b), "{choice}");
            }
        }
    }

    /// tf32 across k goes through registers where that takes less than a pass before, or another kernel after it.
    #[test]
    fn tf32_of_any_major_is_read_in_place_where_that_is_estimated_faster() {
        use crate::reading::Reading::{InPlace, Turned};
        let config = Config::new(Element::Tf32);
        let plans = |[m, n, k]: [usize; 3], a, b, config: &Config| {
            Plan::candidates(&Problem::new(m, n, k, a, b), config, 132).unwrap()
        };
        let (k, m, n) = (Major::K, Major::M, Major::N);
        for (extents, a, b, found) in [
            ([4096; 3], k, k, ((InPlace, InPlace), false)),
            ([4096; 3], m, k, ((InPlace, InPlace), false)),
            ([4096; 3], k, n, ((InPlace, InPlace), true)),
            ([4096; 3], m, n, ((InPlace, Turned), false)),
            ([2048, 8192, 4096], m, n, ((Turned, InPlace), true)),
            // Weights stay where they are, few rows are turned.
            ([16, 8192, 8192], k, n, ((InPlace, InPlace), true)),
            ([16, 8192, 8192], m, k, ((Turned, InPlace), true)),
        ] {
            let plans = plans(extents, a, b, &config);
            let best = &plans[0];
            let readings = (best.readings.a, best.readings.b);
            assert_eq!((readings, best.swapped()), found, "{extents:?} {a:?} {b:?}: {}", best.spec);
            assert_eq!(best.pass_cycles > 0.0, readings != (InPlace, InPlace));
            let turned = plans.iter().any(|plan| plan.choice().has_majors(k, k));
            assert!(turned, "{extents:?} {a:?} {b:?}");
            // Named, each reads operands in its own way.
            for plan in [best, &plans[plans.len() / 2], &plans[plans.len() - 1]] {
                let problem = Problem::new(extents[0], extents[1], extents[2], a, b);
                let named = Config::for_choice(plan.choice());
                let again = Plan::candidates(&problem, &named, 132).unwrap().remove(0);
                assert_eq!((again.spec, again.readings), (plan.spec, plan.readings));
            }
        }
        // Tiles are of D as it lies, and operands change places where that is asked for.
        let tile = Config { tile_m: Some(128), tile_n: Some(64), ..config.clone() };
        for (asked, b, spec, turned) in [
            (None, n, "tf32-kk-f32-128x64", Turned),
            (Some(true), n, "tf32-mkm-f32-128x64", InPlace),
            (None, k, "tf32-mk-f32-128x64", InPlace),
        ] {
            let a = if b == n { k } else { m };
            let plan = plans([512; 3], a, b, &Config { swapped: asked, ..tile.clone() }).remove(0);
            assert!(plan.spec.to_string().starts_with(spec), "{}", plan.spec);
            assert_eq!(plan.readings.b, turned);
        }
        let unswapped = Config { swapped: Some(false), ..config };
        assert_eq!(plans([512; 3], k, n, &unswapped)[0].readings.b, Turned);
    }

    #[test]
    fn a_large_operand_that_is_read_once_leaves_l2_to_the_other() {
        let config = Config::new(Element::Bf16);
        let l2 = |spec: &str, m, n, k| {
            let mut config = config.clone();
            config.spec = Some(spec.parse().unwrap());
            let problem = Problem::new(m, n, k, Major::K, Major::K);
            Plan::candidates(&problem, &config, 132).unwrap().remove(0).l2
        };
        let of = |a, b| L2Policies { a, b, d: L2Policy::Normal };
        let (normal, first) = (L2Policy::Normal, L2Policy::EvictFirst);
        // Weights are B here, and A of a kernel that computes the transpose.
        let swapped = "bf16-kkm-bf16-64x16x128-s5-w1-c1x1";
        assert_eq!(l2(swapped, 16, 6144, 4096), of(normal, first));
        assert_eq!(l2(swapped, 17, 6144, 4096), of(normal, normal));
        assert_eq!(l2(swapped, 16, 512, 4096), of(normal, normal));
        let plain = "bf16-kk-bf16-128x64x64-s8-w2-c1x1";
        assert_eq!(l2(plain, 128, 6144, 4096), of(normal, first));
        assert_eq!(l2(plain, 8192, 64, 4096), of(first, normal));
        assert_eq!(l2(plain, 4096, 4096, 4096), of(normal, normal));
        // D is of 14 MiB, and of 16.
        assert_eq!(l2(plain, 128, 57344, 8192), of(normal, first));
        assert_eq!(l2(plain, 128, 65536, 8192), of(normal, normal));
        let asked = of(L2Policy::EvictLast, normal);
        let config = Config { l2: Some(asked), ..config };
        let plan = Plan::candidates(&problem(16, 6144, 4096), &config, 132).unwrap().remove(0);
        assert_eq!(plan.l2, asked);
    }

    #[test]
    fn extents_at_the_limits_are_planned_or_refused() {
        let config = Config::new(Element::Bf16);
        let plans = |m, n, k, config: &Config| Plan::candidates(&problem(m, n, k), config, 132);
        for (m, n, k) in [(0, 64, 64), (64, 0, 64), (64, 64, 0), (1, 1, MAX_EXTENT)] {
            assert!(!plans(m, n, k, &config).unwrap().is_empty(), "{m}x{n}x{k}");
        }
        let huge = plans(MAX_EXTENT, MAX_EXTENT, 1, &config).unwrap_err().to_string();
        assert!(huge.contains("number of tiles"), "{huge}");
        for split in [Split::SplitK(crate::config::MAX_SPLITS), Split::StreamK] {
            let config = Config { split: Some(split), ..config.clone() };
            assert!(plans(MAX_EXTENT, MAX_EXTENT, 1, &config).is_err());
            assert!(!plans(1, 1, MAX_EXTENT, &config).unwrap().is_empty());
        }
    }

    #[test]
    fn plans_come_in_one_order_whether_asked_for_at_once_or_one_by_one() {
        let (config, problem) = (Config::new(Element::Bf16), problem(1000, 3000, 5000));
        let lazily = Plan::candidates_with(&problem, &config, 132, &Picks::default()).unwrap();
        let all = Plan::candidates(&problem, &config, 132).unwrap();
        assert!(lazily.eq(all));
    }

    #[test]
    fn operands_of_two_types_change_places_with_them() {
        use Element::{Bf16, E4m3, E5m2, F32, S8, S32, Tf32, U8};
        for (a, b, output, shape) in [
            (Tf32, Tf32, F32, [4096, 4096, 4096]),
            (E4m3, E5m2, Bf16, [4096, 4096, 4096]),
            (E5m2, E4m3, F32, [8, 4096, 4096]),
            (U8, S8, S32, [8, 4096, 4096]),
            (U8, S8, Bf16, [4096, 4096, 4096]),
            (S8, S8, S8, [8, 4096, 4096]),
            (E5m2, E4m3, E4m3, [8, 4096, 4096]),
        ] {
            let config = Config::new(a).with_b_dtype(b).with_output(output);
            let problem = Problem::new(shape[0], shape[1], shape[2], Major::K, Major::K);
            let plans = Plan::candidates(&problem, &config, 132).unwrap();
            for swapped in [false, true] {
                assert!(plans.iter().any(|plan| plan.swapped() == swapped), "{a} {b}");
            }
            for plan in &plans {
                assert_eq!((plan.choice().operands(), plan.spec.output()), ([a, b], output));
                let named = Config::for_choice(plan.choice());
                assert_eq!((named.operands(), named.output_dtype()), ([a, b], output));
            }
            // Few rows are a narrow tile's columns.
            assert_eq!(plans[0].swapped(), shape[0] == 8, "{}", plans[0].spec);
            let again = Config::for_choice(plans[0].choice());
            assert_eq!(Plan::candidates(&problem, &again, 132).unwrap()[0].spec, plans[0].spec);
        }
        assert_eq!(Config::new(S8).with_b_dtype(S8), Config::new(S8));
    }

    #[test]
    fn sums_of_8_bit_floats_are_promoted_unless_fast_is_asked_for() {
        let problem = Problem::new(4096, 4096, 4096, Major::K, Major::K);
        let plans = |config: &Config| Plan::candidates(&problem, config, 132);
        let full = Config::new(Element::E4m3);
        for (precision, promotes) in [(Precision::Full, true), (Precision::Fast, false)] {
            for plan in plans(&full.clone().with_precision(precision)).unwrap() {
                let AnySpec::Wgmma(spec) = plan.spec else { panic!("{}", plan.spec) };
                assert_eq!(spec.arithmetic.promotion.is_some(), promotes, "{spec}");
            }
        }
        let asked = full.clone().with_precision(Precision::Full);
        assert_eq!(plans(&full).unwrap(), plans(&asked).unwrap());
        // Narrower tiles fit beside the second set of sums.
        for (tile, found) in [
            ([512, 512, 128], "256x128x128-s4-w2-c1x1-p128"),
            ([128, 192, 64], "128x192x64-s8-w2-c1x1-p64"),
            ([192, 192, 128], "192x96x128-s5-w3-c1x1-p128"),
            ([64, 192, 256], "64x192x256-s3-w1-c1x1-p128"),
        ] {
            let [tile_m, tile_n, tile_k] = tile.map(Some);
            let plan = plans(&Config { tile_m, tile_n, tile_k, ..full.clone() }).unwrap().remove(0);
            assert!(plan.spec.to_string().ends_with(found), "{}", plan.spec);
        }
        let turns = Config { schedule: Some(Schedule::PingPong), ..full };
        let text = plans(&turns).unwrap_err().to_string();
        assert!(text.contains("use w in place of p"), "{text}");
    }

    #[test]
    fn f16_is_added_up_in_f16_only_where_that_is_asked_for() {
        let in_f16 = |plan: &Plan| Precision::of(&plan.spec) == Precision::F16;
        for (output, b_major) in [(Element::F16, Major::N), (Element::F32, Major::K)] {
            let config = Config::new(Element::F16).with_output(output);
            let asked = config.clone().with_precision(Precision::F16);
            for [m, n, k] in [[8192, 8192, 8192], [512, 512, 512], [16, 4096, 4096]] {
                let problem = Problem::new(m, n, k, Major::K, b_major);
                let plans = |config| Plan::candidates(&problem, config, 132).unwrap();
                assert!(!plans(&config).iter().any(in_f16));
                assert!(plans(&asked).iter().all(in_f16));
            }
            // Tiles that sums in binary32 leave no registers for.
            let problem = Problem::new(4096, 4096, 4096, Major::K, b_major);
            let tile = |size| Config { tile_m: Some(size), tile_n: Some(size), ..asked.clone() };
            for (size, found) in [(256, "256x256x64"), (512, "256x256x64")] {
                let plan = Plan::candidates(&problem, &tile(size), 132).unwrap().remove(0);
                assert!(plan.spec.to_string().contains(found), "{}", plan.spec);
            }
        }
    }

    #[test]
    fn types_and_scalars_without_a_kernel_are_refused() {
        let refused = |config: &Config, problem: &Problem| {
            Plan::candidates(problem, config, 132).unwrap_err().to_string()
        };
        let square = |a, b| Problem::new(64, 64, 64, a, b);
        let fine = square(Major::K, Major::K);
        for (config, types) in [
            (Config::new(Element::Bf16).with_b_dtype(Element::F16), "bf16 by f16 into bf16"),
            (Config::new(Element::S8).with_output(Element::U8), "s8 by s8 into u8"),
            (Config::new(Element::Bf16).with_output(Element::E4m3), "bf16 by bf16 into e4m3"),
            (Config::new(Element::Tf32).with_output(Element::Bf16), "tf32 by tf32 into bf16"),
            (Config::new(Element::S8).with_b_dtype(Element::E4m3), "s8 by e4m3 into s32"),
        ] {
            let text = refused(&config, &fine);
            assert!(text.contains(types), "{text}");
        }
        let integers = Config::new(Element::U8);
        let text = refused(&integers, &fine.with_alpha(1.5));
        assert!(text.contains("alpha is 1.5") && text.contains("round it"), "{text}");
        assert!(Plan::candidates(&fine.with_alpha(-7.0), &integers, 132).is_ok());
        let scaled = integers.with_output(Element::S8);
        assert!(Plan::candidates(&fine.with_alpha(1.5), &scaled, 132).is_ok());
        // The kernel's types are not the problem's.
        let spec = "e4m3_e5m2-kk-bf16-128x256x128-s4-w2-c1x1".parse().unwrap();
        let other = Config::new(Element::E4m3);
        let text = refused(&Config { spec: Some(spec), ..other }, &fine);
        assert!(text.contains("its types or majors differ"), "{text}");
    }

    #[test]
    fn impossible_requests_say_what_is_possible() {
        let bf16 = Config::new(Element::Bf16);
        let refused = |config: &Config| {
            Plan::candidates(&problem(64, 64, 64), config, 132).unwrap_err().to_string()
        };
        let text = refused(&Config {
            prefetch_depth: Some(9),
            tile_m: Some(256),
            tile_n: Some(192),
            ..bf16.clone()
        });
        assert!(text.contains("stages fit"), "{text}");
        let text = refused(&Config { warps_per_block: Some(10), ..bf16.clone() });
        assert!(text.contains("warps_per_block") && text.contains("12"), "{text}");
        let text = refused(&Config { tile_m: Some(100), ..bf16.clone() });
        assert!(text.contains("tile_m"), "{text}");
        let text = refused(&Config::new(Element::F64).with_output(Element::F32));
        assert!(text.contains("f64 by f64 into f32"), "{text}");
        let mismatch = Config::for_spec("bf16-kk-bf16-128x128x64-s6-w2-c1x1".parse().unwrap());
        assert!(refused(&mismatch).contains("bf16-kk-bf16"), "{}", refused(&mismatch));
    }
}
