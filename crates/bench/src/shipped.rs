//! The kernels that are shipped with a release: which ones they are, and how many problems they are
//! for. They are chosen so that problems take little longer with the best of them than with the
//! best kernel of all. A kernel covers a problem if it is estimated to take at most
//! [`NEAR_THE_BEST`] times as long as the best.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use persistent_gemm::measure::Elements;
use pgemm_ir::Element;
use pgemm_kernels::Spec;
use pgemm_plan::{
    Candidates, Config, DeviceFacts, Major, NEAR_THE_BEST, OperandAlignment, PREFERRED_WITHIN,
    Plan, Precision, PreferredKernels, Problem, USUAL_SMS, near_the_best,
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
    /// What the chosen kernels may take in a pack, in kernels. One that differs from another in its
    /// types alone counts as a fifth.
    pub kernels: f64,
}

/// What a kernel takes in a pack that differs from another in its types alone, as a part of what
/// the other takes. Of an earlier list of 2026-11-28, bf16 takes 2.42 MB, and 3.02 MB with f16; s8
/// takes 1.00 MB, and 1.13 MB with u8 (`pgemm cubins assemble` of these parts of the list).
const SIZE_OF_TWIN: f64 = 0.2;

/// What a problem counts for.
#[derive(Clone, Copy)]
enum Kind {
    Drawn,
    Models,
    Serving,
    /// Any number of rows in the layers of serving.
    Rows,
}

impl Kind {
    /// What all problems of a population of this kind weigh together, for each type. Programs for
    /// models come first. With 2 for rows the planner takes a chosen kernel for 94.7 % of them in
    /// bf16 instead of 95.7 %, and for 61.7 % of drawn multiples of 8 instead of 61.2 %.
    fn weight(self) -> f64 {
        match self {
            Kind::Drawn | Kind::Serving => 1.0,
            Kind::Models => 2.0,
            Kind::Rows => 3.0,
        }
    }
}

/// A problem that no kernel covers counts as if it took so many times as long as with the best one.
/// The larger this is, the more problems are covered, and the longer those take that are. With a
/// third of the problems and 1.11, 90.6 % of drawn ones are covered, and 98.5 % of those of models
/// have a kernel within 3 %; with this it is 91.7 and 97.6 % (one-off computations).
const UNCOVERED: f64 = 1.16;

/// Numbers of rows that are drawn for each layer of serving, log-uniform up to the largest one.
const ROWS: usize = 150;

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

/// Chooses the kernels to ship: one by one that which shortens the problems most, for the space
/// that it takes. The planner's picks for all problems of serving are among them. `spoilt` returns
/// those of some kernels that the assembler spoils; others are chosen instead. `progress` is told
/// what is done.
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
            let near: Vec<Vec<(Spec, f64)>> = near.collect();
            cover.add(kind, types, near);
        }
        let count = cover.weights.len();
        progress(format!("{}: {count} problems so far", types.elements.a));
    }
    loop {
        let mut chosen = cover.choose(covering.kernels);
        progress(format!("{} kernels so far", chosen.len()));
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
            let pick = candidates(&problem, &config, device)
                .and_then(|plans| Some(plans.prefer(&preferred).next()?.spec));
            let Some(pick) = pick else { continue };
            if !preferred.contains(&pick) && !chosen.contains(&pick) {
                chosen.extend([Some(pick), types.twin_of(pick)].into_iter().flatten());
            }
        }
    }
    Ok(())
}

/// A kernel that can be chosen.
struct Coverer {
    /// The kernel, and the one of the other type.
    specs: [Option<Spec>; 2],
    /// The problems that it covers, each with the logarithm of how many times as long as with the
    /// best kernel it takes.
    covers: Vec<(usize, f64)>,
}

impl Coverer {
    fn size(&self) -> f64 {
        let twins = self.specs.iter().flatten().count() - 1;
        1.0 + SIZE_OF_TWIN * twins as f64
    }

    /// By how much the problems are shortened that take so long now, for the space of the kernel.
    fn gain(&self, weights: &[f64], now: &[f64]) -> f64 {
        let gain = |&(case, cost): &(usize, f64)| weights[case] * (now[case] - cost).max(0.0);
        self.covers.iter().map(gain).sum::<f64>() / self.size()
    }
}

/// Problems, and the kernels that cover them.
#[derive(Default)]
struct Cover {
    /// What each problem weighs.
    weights: Vec<f64>,
    kernels: Vec<Coverer>,
    /// Where each is among `kernels`.
    numbers: HashMap<Spec, usize>,
    /// Kernels that must not be chosen.
    spoilt: HashSet<Spec>,
}

impl Cover {
    /// Adds the problems of a kind, each with the kernels that cover it and how many times as long
    /// as with the best it takes with them. Those with another type count twice.
    fn add(&mut self, kind: Kind, types: &ShippedTypes, problems: Vec<Vec<(Spec, f64)>>) {
        let of_types = if types.twin.is_some() { 2.0 } else { 1.0 };
        let weight = of_types * kind.weight() / problems.len() as f64;
        for near in problems {
            let case = self.weights.len();
            self.weights.push(weight);
            for (spec, ratio) in near {
                let number = *self.numbers.entry(spec).or_insert_with(|| {
                    let specs = [Some(spec), types.twin_of(spec)];
                    self.kernels.push(Coverer { specs, covers: vec![] });
                    self.kernels.len() - 1
                });
                self.kernels[number].covers.push((case, ratio.ln()));
            }
        }
    }

    /// Chooses kernels, one by one those that shorten the problems most, until they take so much
    /// space or nothing is gained.
    fn choose(&self, most: f64) -> Vec<Spec> {
        let Cover { weights, kernels, spoilt, .. } = self;
        let mut now = vec![UNCOVERED.ln(); weights.len()];
        let mut chosen = vec![];
        let mut size = 0.0;
        // Gains become smaller as kernels are chosen, so a kernel whose gain is still at least that
        // of the next one in the heap gains most. The bits of numbers that are not negative have
        // the order of the numbers.
        let entry = |number: usize, now: &[f64]| {
            (kernels[number].gain(weights, now).to_bits(), Reverse(number))
        };
        let usable = |number: &usize| {
            kernels[*number].specs.iter().flatten().all(|spec| !spoilt.contains(spec))
        };
        let mut heap: BinaryHeap<_> =
            (0..kernels.len()).filter(usable).map(|number| entry(number, &now)).collect();
        while let Some((_, Reverse(number))) = heap.pop() {
            let gains = entry(number, &now);
            if heap.peek().is_some_and(|next| gains < *next) {
                heap.push(gains);
                continue;
            }
            let kernel = &kernels[number];
            size += kernel.size();
            if f64::from_bits(gains.0) == 0.0 || size > most {
                break;
            }
            chosen.extend(kernel.specs.iter().flatten());
            for &(case, cost) in &kernel.covers {
                now[case] = now[case].min(cost);
            }
        }
        chosen
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
    /// The number of those that a shipped kernel covers: the best one is estimated to take at most
    /// [`NEAR_THE_BEST`] times as long as the best of all.
    pub covered: usize,
    /// The number of those for which the planner takes a shipped kernel.
    pub taken: usize,
    /// How many times as long as with the best kernels all problems are estimated to take as the
    /// planner picks, as a geometric mean.
    pub cost: f64,
}

/// For how many problems a preferred kernel is near the best, and for how many the planner takes
/// one: of each population and each type, with problems drawn with this seed.
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
                let ratios = problems.par_iter().flat_map_iter(|problem| {
                    let of_device = |device| nearest(problem, &config, device, preferred);
                    devices().into_iter().filter_map(of_device)
                });
                let ratios: Vec<f64> = ratios.collect();
                let problems = ratios.len();
                let within = |most| ratios.iter().filter(move |ratio| **ratio <= most);
                let (covered, taken) = (within(NEAR_THE_BEST), within(PREFERRED_WITHIN));
                let mean = taken.clone().map(|ratio| ratio.ln()).sum::<f64>();
                let cost = (mean / problems.max(1) as f64).exp();
                let (covered, taken) = (covered.count(), taken.count());
                rows.push(Coverage { elements, population, problems, covered, taken, cost });
            }
        }
    }
    Ok(rows)
}

/// How many times as long as with the best kernel the problem is estimated to take with the best
/// preferred one; infinity if there is none. `None` if the types have no kernel for the majors.
fn nearest(
    problem: &Problem,
    config: &Config,
    device: DeviceFacts,
    preferred: &PreferredKernels,
) -> Option<f64> {
    let nearest = candidates(problem, config, device)?.nearest(preferred);
    Some(nearest.map_or(f64::INFINITY, |(_, ratio)| ratio))
}

/// The plans. `None` if the types have no kernel for the majors.
fn candidates(problem: &Problem, config: &Config, device: DeviceFacts) -> Option<Candidates> {
    let alignment = alignment(problem, config);
    Plan::candidates_with(problem, config, device, &(), alignment).ok()
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

/// The kernels that cover a problem on each device, and how many times as long as with the best one
/// it takes with them. There are none if its types have no kernel for its majors.
fn near(problem: &Problem, config: &Config) -> Vec<Vec<(Spec, f64)>> {
    let near = |device| near_the_best(problem, config, device, alignment(problem, config)).ok();
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
    fn the_kernels_that_shorten_problems_most_are_chosen_with_their_twins() {
        let names = ["64x64x64-s6", "64x128x64-s6", "128x64x64-s6", "128x128x64-s6"];
        let spec = |number: usize, element: &str| -> Spec {
            format!("{element}-kk-{element}-{}-w1-c1x1", names[number]).parse().unwrap()
        };
        let both = |number| [spec(number, "bf16"), spec(number, "f16")];
        let [bf16, ..] = SHIPPED_TYPES;
        let mut cover = Cover::default();
        // Kernel 1 covers three problems. Kernels 0 and 2 are the best of two of them, and kernel 3
        // covers another.
        let problems: [&[(usize, f64)]; 4] = [
            &[(0, 1.0), (1, 1.02)],
            &[(0, 1.0), (1, 1.02), (2, 1.0)],
            &[(1, 1.02), (2, 1.0)],
            &[(3, 1.04)],
        ];
        let near = problems
            .map(|near| near.iter().map(|(number, ratio)| (spec(*number, "bf16"), *ratio)))
            .map(|near| near.collect());
        cover.add(Kind::Drawn, &bf16, near.into());
        let size = 1.0 + SIZE_OF_TWIN;
        assert_eq!(cover.choose(size), both(1));
        assert_eq!(cover.choose(2.9 * size), [both(1), both(3)].concat());
        // What is shortened further comes last, and kernels without a gain do not come at all.
        let all = [both(1), both(3), both(0), both(2)].concat();
        assert_eq!(cover.choose(4.1 * size), all);
        cover.add(Kind::Drawn, &bf16, vec![vec![(spec(0, "bf16"), 1.0)]]);
        cover.add(Kind::Serving, &bf16, vec![vec![(spec(2, "bf16"), UNCOVERED)]]);
        assert_eq!(cover.choose(size), both(0));
        // A kernel is not chosen if its twin is spoilt.
        cover.spoilt.insert(spec(0, "f16"));
        assert_eq!(cover.choose(size), both(1));
        assert_eq!(cover.choose(100.0), [both(1), both(3), both(2)].concat());
    }
}
