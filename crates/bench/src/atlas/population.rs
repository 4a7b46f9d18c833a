//! [`Population`]: a kind of problems from which a seed draws as many as are wanted.
//!
//! Problem `i` of seed `s` is made from the numbers of stream `i` of ChaCha8 (Bernstein, "ChaCha, a
//! variant of Salsa20", 2008) with the key that `rand_core::SeedableRng::seed_from_u64(s)` makes. A
//! number is uniform in [0, 1): the upper 53 bits of a 64-bit output. So a problem depends on
//! nothing but the population, the seed and its index.

use std::fmt;
use std::str::FromStr;

use persistent_gemm::measure::{Elements, operand_bytes};
use pgemm_plan::{Major, Problem};
use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::models::model_problems;
use crate::error::{BenchError, Result};

/// Least and largest extent of the drawn populations.
const EXTENTS: [f64; 2] = [16.0, 20_000.0];

/// Fewest and most operations, multiplications and additions counted.
const OPERATIONS: [u64; 2] = [200_000_000, 600_000_000_000];

/// Most bytes of A, B and D together.
const MOST_BYTES: usize = 2 << 30;

/// The same limits for the problems of models, some of which are larger.
const OPERATIONS_OF_MODELS: u64 = 6_000_000_000_000;
const MOST_BYTES_OF_MODELS: usize = 4 << 30;

/// Extents of tiny products, which have fewer operations than all others.
const TINY: [f64; 2] = [1.0, 512.0];

/// The short extent of products with a vector or a few of them, and the two long ones.
const FEW: [f64; 2] = [1.0, 16.0];
const LONG: [f64; 2] = [256.0, 32_768.0];

/// Number of products of a batch, and extents of each.
const COUNTS: [f64; 2] = [2.0, 256.0];
const OF_BATCH: [f64; 2] = [16.0, 2048.0];

/// A kind of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Population {
    /// Extents that are multiples of 8.
    Eights,
    /// Extents that are multiples of 64.
    SixtyFours,
    /// Any extents.
    Any,
    /// Products of few operations.
    Tiny,
    /// Matrices times a vector, or times up to 16 of them.
    Vectors,
    /// Batches of products whose extents are multiples of 8.
    Batches,
    /// The layers of published models, and the products of other programs, without the largest.
    Models,
    /// Problems that somebody names. Nothing is drawn from it.
    Given,
}

/// A problem of a population.
#[derive(Clone, Debug, PartialEq)]
pub struct AtlasProblem {
    /// Its index in the population. Problems of the same seed and index are the same.
    pub index: usize,
    /// What it is part of. `None` if it was drawn.
    pub label: Option<String>,
    /// Extents, majors and batch.
    pub problem: Problem,
}

impl Population {
    /// All populations that problems are drawn from.
    pub const ALL: [Population; 7] = [
        Population::Eights,
        Population::SixtyFours,
        Population::Any,
        Population::Tiny,
        Population::Vectors,
        Population::Batches,
        Population::Models,
    ];

    /// The name that users type.
    pub const fn name(self) -> &'static str {
        match self {
            Population::Eights => "eights",
            Population::SixtyFours => "sixty-fours",
            Population::Any => "any",
            Population::Tiny => "tiny",
            Population::Vectors => "vectors",
            Population::Batches => "batches",
            Population::Models => "models",
            Population::Given => "given",
        }
    }

    /// The first `count` problems of a seed. Each problem has one of these majors of A and B, drawn
    /// with it. Model problems have their own majors, and the seed says in which order they come.
    ///
    /// # Errors
    /// [`BenchError::SuiteSyntax`] if this version was built with a broken file of models.
    pub fn problems(
        self,
        seed: u64,
        count: usize,
        elements: Elements,
        majors: &[(Major, Major)],
    ) -> Result<Vec<AtlasProblem>> {
        if self == Population::Given {
            return Ok(Vec::new());
        }
        if self != Population::Models {
            let drawn = |index| {
                let problem = Draw::new(seed, index).problem(self, elements, majors);
                AtlasProblem { index, label: None, problem }
            };
            return Ok((0..count).map(drawn).collect());
        }
        let mut all: Vec<_> = model_problems()?.into_iter().enumerate().collect();
        all.retain(|(_, model)| is_wanted(self, &model.problem, elements));
        all.sort_by_cached_key(|(index, _)| Draw::new(seed, *index).0.next_u64());
        let all = all.into_iter().map(|(index, model)| AtlasProblem {
            index,
            label: Some(model.name),
            problem: model.problem,
        });
        Ok(all.take(count).collect())
    }
}

impl fmt::Display for Population {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Population {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Population> {
        Population::ALL.into_iter().find(|population| population.name() == text).ok_or_else(|| {
            BenchError::UnknownPopulation {
                text: text.to_owned(),
                known: Population::ALL.map(Population::name).to_vec(),
            }
        })
    }
}

/// The numbers of one problem.
struct Draw(ChaCha8Rng);

impl Draw {
    fn new(seed: u64, index: usize) -> Draw {
        let mut numbers = ChaCha8Rng::seed_from_u64(seed);
        numbers.set_stream(index as u64);
        Draw(numbers)
    }

    /// A number in [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number whose logarithm is uniform between those of the limits, rounded to the nearest
    /// multiple of `step`, and at least `step`.
    fn log_uniform(&mut self, [least, most]: [f64; 2], step: usize) -> usize {
        let number = least * (most / least).powf(self.uniform());
        ((number / step as f64).round() as usize).max(1) * step
    }

    fn problem(
        &mut self,
        population: Population,
        elements: Elements,
        majors: &[(Major, Major)],
    ) -> Problem {
        let place = (self.uniform() * majors.len() as f64) as usize;
        let (a_major, b_major) = majors.get(place).copied().unwrap_or((Major::K, Major::K));
        loop {
            let problem = match population {
                Population::Batches => {
                    let count = self.log_uniform(COUNTS, 1);
                    let [m, n, k] = [(); 3].map(|()| self.log_uniform(OF_BATCH, 8));
                    Problem::new(m, n, k, a_major, b_major).with_batch(count)
                }
                Population::Vectors => {
                    let [few, long, k] =
                        [FEW, LONG, LONG].map(|limits| self.log_uniform(limits, 1));
                    let long = long.next_multiple_of(8);
                    let k = k.next_multiple_of(8);
                    let few_rows = self.uniform() < 0.5;
                    let (m, n) = if few_rows { (few, long) } else { (long, few) };
                    Problem::new(m, n, k, a_major, b_major)
                }
                _ => {
                    let (limits, step) = match population {
                        Population::Tiny => (TINY, 1),
                        Population::SixtyFours => (EXTENTS, 64),
                        Population::Any => (EXTENTS, 1),
                        _ => (EXTENTS, 8),
                    };
                    let [m, n, k] = [(); 3].map(|()| self.log_uniform(limits, step));
                    Problem::new(m, n, k, a_major, b_major)
                }
            };
            if is_wanted(population, &problem, elements) {
                return problem;
            }
        }
    }
}

/// Whether a problem has neither too many operations nor too few, and operands that are not too
/// large.
fn is_wanted(population: Population, problem: &Problem, elements: Elements) -> bool {
    let [least, most] = OPERATIONS;
    let Ok(operations) = problem.operations() else { return false };
    let countable = match population {
        Population::Tiny => operations < least,
        Population::Vectors => operations <= most,
        Population::Models => operations <= OPERATIONS_OF_MODELS,
        _ => (least..=most).contains(&operations),
    };
    let most = if population == Population::Models { MOST_BYTES_OF_MODELS } else { MOST_BYTES };
    countable && operand_bytes(problem, elements).is_ok_and(|bytes| bytes <= most)
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use super::*;

    const BF16: Elements = Elements::new(Element::Bf16, Element::Bf16);
    const MAJORS: [(Major, Major); 4] =
        [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)];

    fn drawn(population: Population, seed: u64, count: usize) -> Vec<AtlasProblem> {
        population.problems(seed, count, BF16, &MAJORS).unwrap()
    }

    #[test]
    fn a_seed_always_draws_the_same_problems() {
        let extents = |population, seed| -> Vec<[usize; 3]> {
            let problems = drawn(population, seed, 3);
            problems.iter().map(|AtlasProblem { problem: p, .. }| [p.m, p.n, p.k]).collect()
        };
        // These are from a generator of our own in Python, written from the description above.
        let eights = [[120, 2536, 432], [15496, 184, 9160], [2080, 176, 616]];
        assert_eq!(extents(Population::Eights, 1), eights);
        let any = [[53, 2428, 2850], [2187, 18042, 2873], [9513, 349, 87]];
        assert_eq!(extents(Population::Any, 7), any);
        assert_eq!(drawn(Population::Eights, 1, 50)[..20], drawn(Population::Eights, 1, 20));
    }

    #[test]
    fn problems_are_those_of_their_population() {
        for population in Population::ALL {
            assert_eq!(population.name().parse::<Population>().unwrap(), population);
            for AtlasProblem { problem, .. } in drawn(population, 3, 300) {
                problem.validate().unwrap();
                let Problem { m, n, k, batch, .. } = problem;
                let step = match population {
                    Population::Eights | Population::Batches => 8,
                    Population::SixtyFours => 64,
                    _ => 1,
                };
                assert!([m, n, k].iter().all(|extent| extent.is_multiple_of(step)), "{problem:?}");
                match population {
                    Population::Vectors => assert!(m.min(n) <= 16 && m.max(n).min(k) >= 256),
                    Population::Tiny => assert!(m.max(n).max(k) <= 512),
                    Population::Batches => assert!(batch.count >= 2),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn all_majors_and_extents_of_every_size_are_drawn() {
        let problems = drawn(Population::Eights, 11, 400);
        for (a, b) in MAJORS {
            let count =
                problems.iter().filter(|p| (p.problem.a.major, p.problem.b.major) == (a, b));
            assert!((60..140).contains(&count.count()), "{a}{b}");
        }
        for extent in [|p: &Problem| p.m, |p: &Problem| p.n, |p: &Problem| p.k] {
            for [from, to] in [[16, 64], [64, 512], [512, 4096], [4096, 20_001]] {
                let count = problems.iter().filter(|p| (from..to).contains(&extent(&p.problem)));
                assert!(count.count() >= 20, "{from}..{to}");
            }
        }
    }
}
