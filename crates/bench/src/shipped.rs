//! The kernels that are shipped with a release: which ones they are, and how many problems they are
//! for. They are chosen so that few kernels cover many problems. A kernel covers a problem if it is
//! estimated to take at most [`NEAR_THE_BEST`](pgemm_plan::NEAR_THE_BEST) times as long as the
//! best.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use persistent_gemm::measure::Elements;
use pgemm_ir::Element;
use pgemm_kernels::Spec;
use pgemm_plan::{
    Config, DeviceFacts, Major, OperandAlignment, Plan, Precision, PreferredKernels, Problem,
    USUAL_SMS, near_the_best,
};
use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;

use crate::atlas::Population;
use crate::error::{BenchError, Result};
use crate::serving::{ServingProblem, serving_problems};

/// Types for which kernels are shipped.
#[derive(Clone, Copy, Debug)]
pub struct ShippedTypes {
    /// The types of operands and results, and the precision.
    pub elements: Elements,
    /// Another type of operands with the same kernels: they differ in one instruction.
    twin: Option<Element>,
}

/// All types for which kernels are shipped, in the order of the tables. Results have the default
/// type of their operands.
pub const SHIPPED_TYPES: [ShippedTypes; 7] = {
    const fn types(ab: Element, d: Element, twin: Option<Element>) -> ShippedTypes {
        ShippedTypes { elements: Elements::new(ab, d), twin }
    }
    let fast = types(Element::E4m3, Element::Bf16, None);
    let fast = Elements { precision: Precision::Fast, ..fast.elements };
    [
        types(Element::Bf16, Element::Bf16, Some(Element::F16)),
        types(Element::Tf32, Element::F32, None),
        types(Element::E4m3, Element::Bf16, Some(Element::E5m2)),
        ShippedTypes { elements: fast, twin: None },
        types(Element::S8, Element::S32, Some(Element::U8)),
        types(Element::F64, Element::F64, None),
        types(Element::F32, Element::F32, None),
    ]
};

impl ShippedTypes {
    /// The config of these types, which leaves all else to the planner.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.elements.a);
        config.precision = Some(self.elements.precision);
        config
    }

    /// Whether the problems of serving have these types.
    fn is_served(&self) -> bool {
        matches!(self.elements.a, Element::Bf16 | Element::E4m3)
    }

    /// The other type, with results of its default type.
    fn of_twin(&self, twin: Element) -> ShippedTypes {
        let Elements { a, d, precision, .. } = self.elements;
        let d = if d == a { twin } else { d };
        ShippedTypes { elements: Elements { precision, ..Elements::new(twin, d) }, twin: None }
    }

    /// The kernel of the other type, if there is one.
    fn twin_of(&self, spec: Spec) -> Option<Spec> {
        let twin = self.twin?;
        let of = |element| if element == self.elements.a { twin } else { element };
        Some(Spec { a: of(spec.a), b: of(spec.b), output: of(spec.output), ..spec })
    }
}

/// The populations that are drawn from, with all majors of operands.
const DRAWN: [Population; 3] = [Population::Eights, Population::SixtyFours, Population::Any];

const MAJORS: [(Major, Major); 4] =
    [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)];

/// How kernels are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Covering {
    /// The seed of drawn problems.
    pub seed: u64,
    /// Problems of each drawn population and type.
    pub count: usize,
    /// The share of drawn problems, of all types together, and of the problems of models that the
    /// kernels cover.
    pub drawn: f64,
    /// See `drawn`.
    pub models: f64,
}

/// What a problem counts for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Drawn,
    Models,
    Serving,
    /// Any number of rows in the layers of serving.
    Rows,
}

/// Numbers of rows that are drawn for each layer of serving, log-uniform up to the largest one.
const ROWS: usize = 150;

/// The share of them that is covered.
const SHARE_OF_ROWS: f64 = 0.99;

/// The layers of serving with numbers of rows that follow from a seed.
fn problems_of_rows(seed: u64) -> Result<Vec<Problem>> {
    let serving = serving_problems()?;
    let most = serving.iter().map(|serving| serving.problem.m).max().unwrap_or(1);
    let mut layers: Vec<Problem> = serving.into_iter().map(|serving| serving.problem).collect();
    layers.dedup_by_key(|problem| (problem.n, problem.k));
    let mut numbers = ChaCha8Rng::seed_from_u64(seed);
    let mut rows = || {
        let uniform = (numbers.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (most as f64).powf(uniform).round() as usize
    };
    let of_layer = |layer: Problem| (0..ROWS).map(|_| (layer, rows())).collect::<Vec<_>>();
    let all = layers.into_iter().flat_map(of_layer);
    Ok(all.map(|(layer, m)| Problem::new(m, layer.n, layer.k, Major::K, Major::K)).collect())
}

/// Chooses the kernels to ship. All problems of serving are covered. `spoilt` returns those of some
/// kernels that the assembler spoils; others are chosen instead. `progress` is told what is done.
///
/// # Errors
/// A file of models of this version is broken, or an error of `spoilt`.
pub fn choose_shipped<E: From<BenchError>>(
    covering: &Covering,
    mut spoilt: impl FnMut(&[Spec]) -> Result<Vec<Spec>, E>,
    mut progress: impl FnMut(String),
) -> Result<Vec<Spec>, E> {
    let mut cover = Cover::default();
    for types in &SHIPPED_TYPES {
        for (kind, problems) in problems(types, covering.seed, covering.count)? {
            let config = types.config();
            let near = problems.par_iter().flat_map_iter(|problem| near(problem, &config));
            let near: Vec<Vec<Spec>> = near.collect();
            near.into_iter().for_each(|specs| cover.add(kind, types, specs));
        }
        let count = cover.cases.len();
        progress(format!("{}: {count} problems so far", types.elements.a));
    }
    let goals = [
        (Kind::Serving, 1.0),
        (Kind::Rows, SHARE_OF_ROWS),
        (Kind::Models, covering.models),
        (Kind::Drawn, covering.drawn),
    ];
    loop {
        cover.reset();
        for (kind, share) in goals {
            cover.choose(kind, share);
            progress(format!("{} kernels so far", cover.chosen.len()));
        }
        let mut chosen = cover.chosen.clone();
        add_picks_for_serving(&mut chosen)?;
        let spoilt = spoilt(&chosen)?;
        if spoilt.is_empty() {
            return Ok(chosen);
        }
        progress(format!("{} kernels are spoilt, and others are chosen", spoilt.len()));
        cover.spoilt.extend(spoilt);
    }
}

/// Adds the planner's picks for those problems of serving for which it takes no chosen kernel. It
/// estimates fewer kernels than are looked at here, so its best may be another one.
fn add_picks_for_serving(chosen: &mut Vec<Spec>) -> Result<()> {
    let preferred = PreferredKernels::new(chosen.iter().map(Spec::to_string));
    for types in SHIPPED_TYPES.iter().filter(|types| types.is_served()) {
        let config = types.config();
        for (ServingProblem { problem, .. }, device) in serving_problems()?
            .into_iter()
            .flat_map(|problem| devices().map(|at| (problem.clone(), at)))
        {
            let Some((pick, _)) = pick(&problem, &config, device, &preferred) else { continue };
            if !preferred.contains(&pick) && !chosen.contains(&pick) {
                chosen.extend([Some(pick), types.twin_of(pick)].into_iter().flatten());
            }
        }
    }
    Ok(())
}

/// Problems, and the kernels that cover them.
#[derive(Default)]
struct Cover {
    /// What each problem counts for, the numbers of the kernels that cover it, and whether one of
    /// them is chosen.
    cases: Vec<(Kind, Vec<usize>, bool)>,
    /// Each kernel with the one of the other type, and the problems that it covers.
    kernels: Vec<([Option<Spec>; 2], Vec<usize>)>,
    numbers: HashMap<Spec, usize>,
    chosen: Vec<Spec>,
    /// Kernels that must not be chosen.
    spoilt: HashSet<Spec>,
}

impl Cover {
    /// Adds a problem that these kernels cover.
    fn add(&mut self, kind: Kind, types: &ShippedTypes, specs: Vec<Spec>) {
        let case = self.cases.len();
        let mut near = Vec::with_capacity(specs.len());
        for spec in specs {
            let number = *self.numbers.entry(spec).or_insert_with(|| {
                self.kernels.push(([Some(spec), types.twin_of(spec)], vec![]));
                self.kernels.len() - 1
            });
            self.kernels[number].1.push(case);
            near.push(number);
        }
        self.cases.push((kind, near, false));
    }

    /// Forgets which kernels are chosen.
    fn reset(&mut self) {
        self.chosen.clear();
        self.cases.iter_mut().for_each(|(.., covered)| *covered = false);
    }

    /// Chooses kernels, one by one, that cover the most problems of a kind that are left, until
    /// this share of all is covered.
    fn choose(&mut self, kind: Kind, share: f64) {
        let Cover { cases, kernels, chosen, spoilt, .. } = self;
        let all = cases.iter().filter(|(of, ..)| *of == kind).count();
        let mut left = 0;
        let mut counts = vec![0usize; kernels.len()];
        for (_, near, _) in cases.iter().filter(|(of, _, covered)| *of == kind && !covered) {
            left += 1;
            near.iter().for_each(|number| counts[*number] += 1);
        }
        while left as f64 > (1.0 - share) * all as f64 {
            let usable = |number: &usize| {
                kernels[*number].0.iter().flatten().all(|spec| !spoilt.contains(spec))
            };
            let most = (0..counts.len())
                .filter(usable)
                .max_by_key(|number| (counts[*number], Reverse(*number)));
            let Some(best) = most.filter(|best| counts[*best] > 0) else { return };
            let (specs, covers) = &kernels[best];
            chosen.extend(specs.iter().flatten());
            for case in covers {
                let (of, near, covered) = &mut cases[*case];
                if !std::mem::replace(covered, true) && *of == kind {
                    left -= 1;
                    near.iter().for_each(|number| counts[*number] -= 1);
                }
            }
        }
    }
}

/// What the shipped kernels cover of a population, for one type of operands.
#[derive(Clone, Debug, PartialEq)]
pub struct Coverage {
    /// The types and the precision.
    pub elements: Elements,
    /// The population; `serving` for the problems of serving, and `rows` for other numbers of rows
    /// in their layers.
    pub population: &'static str,
    /// The number of problems, each on an H200 and on an H100.
    pub problems: usize,
    /// The number of those for which the planner takes a shipped kernel.
    pub covered: usize,
    /// How many times as long as with the best kernels all problems are estimated to take, as a
    /// geometric mean.
    pub cost: f64,
}

/// For how many problems the planner takes a preferred kernel: of each population and each type,
/// with problems drawn with this seed.
///
/// # Errors
/// A file of models of this version is broken.
pub fn coverage(preferred: &PreferredKernels, seed: u64, count: usize) -> Result<Vec<Coverage>> {
    let mut rows = Vec::new();
    for types in &SHIPPED_TYPES {
        let twin = types.twin.map(|twin| types.of_twin(twin));
        for types in [Some(*types), twin].into_iter().flatten() {
            let (elements, config) = (types.elements, types.config());
            let populations = DRAWN.map(|drawn| drawn.name()).into_iter();
            let populations = populations.chain([Population::Models.name(), "serving", "rows"]);
            for ((_, problems), population) in
                problems(&types, seed, count)?.into_iter().zip(populations)
            {
                let picks = problems.par_iter().flat_map_iter(|problem| {
                    let of_device = |device| pick(problem, &config, device, preferred);
                    devices().into_iter().filter_map(of_device)
                });
                let picks: Vec<(Spec, f64)> = picks.collect();
                let covered = picks.iter().filter(|(pick, _)| preferred.contains(pick)).count();
                let mean = picks.iter().map(|(_, cost)| cost.ln()).sum::<f64>();
                let cost = (mean / picks.len().max(1) as f64).exp();
                let problems = picks.len();
                rows.push(Coverage { elements, population, problems, covered, cost });
            }
        }
    }
    Ok(rows)
}

/// The kernel that the planner takes if these are preferred, and how many times as long as the best
/// it is estimated to take. `None` if the types have no kernel for the majors.
fn pick(
    problem: &Problem,
    config: &Config,
    device: DeviceFacts,
    preferred: &PreferredKernels,
) -> Option<(Spec, f64)> {
    let alignment = alignment(problem, config);
    let plans = Plan::candidates_with(problem, config, device, &(), alignment).ok()?;
    let mut plans = plans.prefer(preferred);
    let cost = plans.cost_of_preference();
    Some((plans.next()?.spec, cost))
}

/// The problems of each kind.
fn problems(types: &ShippedTypes, seed: u64, count: usize) -> Result<Vec<(Kind, Vec<Problem>)>> {
    let elements = types.elements;
    let of = |population: Population, seed, count| -> Result<Vec<Problem>> {
        let problems = population.problems(seed, count, elements, &MAJORS)?;
        Ok(problems.into_iter().map(|problem| problem.problem).collect())
    };
    let mut all = Vec::new();
    for (number, population) in DRAWN.into_iter().enumerate() {
        all.push((Kind::Drawn, of(population, seed + number as u64, count)?));
    }
    all.push((Kind::Models, of(Population::Models, seed, usize::MAX)?));
    if types.is_served() {
        let serving = serving_problems()?.into_iter().map(|layer| layer.problem).collect();
        all.push((Kind::Serving, serving));
        all.push((Kind::Rows, problems_of_rows(seed)?));
    }
    Ok(all)
}

/// The devices for which kernels are shipped: an H200, and an H100, whose memory is slower.
fn devices() -> [DeviceFacts; 2] {
    /// Megabytes per second that the memory of an H100 moves at most.
    const OF_H100: u32 = 3_352_320;
    let h200 = DeviceFacts::new(USUAL_SMS);
    [h200, h200.with_memory_mb_per_second(OF_H100)]
}

/// The kernels that cover a problem on each device. There are none if its types have no kernel for
/// its majors.
fn near(problem: &Problem, config: &Config) -> Vec<Vec<Spec>> {
    let near = |device| {
        let near = near_the_best(problem, config, device, alignment(problem, config)).ok()?;
        Some(near.into_iter().map(|(spec, _)| spec).collect())
    };
    devices().into_iter().filter_map(near).collect()
}

fn alignment(problem: &Problem, config: &Config) -> OperandAlignment {
    /// Addresses at which operands begin in memory of their own.
    const ALIGNED: u64 = 256;
    OperandAlignment::of(problem, config, [ALIGNED; 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_kernels_that_cover_much_are_chosen_with_their_twins() {
        let names = ["64x64x64-s6", "64x128x64-s6", "128x64x64-s6", "128x128x64-s6"];
        let spec = |number: usize, element: &str| -> Spec {
            format!("{element}-kk-{element}-{}-w1-c1x1", names[number]).parse().unwrap()
        };
        let [bf16, ..] = SHIPPED_TYPES;
        let mut cover = Cover::default();
        // Kernel 1 covers three problems, kernels 0 and 2 two of them, kernel 3 another one.
        for near in [&[0, 1][..], &[0, 1, 2], &[1, 2], &[3]] {
            let specs = near.iter().map(|number| spec(*number, "bf16")).collect();
            cover.add(Kind::Drawn, &bf16, specs);
        }
        cover.choose(Kind::Drawn, 0.75);
        assert_eq!(cover.chosen, [spec(1, "bf16"), spec(1, "f16")]);
        cover.choose(Kind::Models, 1.0);
        assert_eq!(cover.chosen.len(), 2);
        cover.choose(Kind::Drawn, 1.0);
        assert_eq!(cover.chosen[2..], [spec(3, "bf16"), spec(3, "f16")]);
        // A kernel is not chosen if its twin is spoilt.
        cover.spoilt.insert(spec(1, "f16"));
        cover.reset();
        cover.choose(Kind::Drawn, 0.75);
        let both = |number| [spec(number, "bf16"), spec(number, "f16")];
        assert_eq!(cover.chosen, [both(0), both(2)].concat());
    }
}
