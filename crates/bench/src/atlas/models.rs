//! Model problems: matrix products of published models and methods, with their real extents.
//! `models.toml` of this crate lists them with their sources, and is compiled in.

use std::fmt;

use pgemm_plan::{Major, Problem};
use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};

/// A matrix product of a published model or method.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelProblem {
    /// The model and its layer, for example "Llama 3.1 8B attention output". Problems of one layer
    /// have the same name and differ in their extents.
    pub name: String,
    /// The field that the model belongs to.
    pub domain: Domain,
    /// Extents, layouts and batch.
    pub problem: Problem,
}

/// A field whose programs multiply matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// Language models: dense layers, attention and output layers.
    Language,
    /// Mixtures of experts.
    Experts,
    /// Image classification.
    Vision,
    /// Speech recognition.
    Speech,
    /// Image generation by diffusion.
    Diffusion,
    /// Recommendation.
    Recommendation,
    /// Graph networks.
    Graph,
    /// Finite elements, of low and high order.
    FiniteElements,
    /// Quantum chemistry.
    Chemistry,
}

impl Domain {
    /// All domains, in the order of the file.
    pub const ALL: [Domain; 9] = [
        Domain::Language,
        Domain::Experts,
        Domain::Vision,
        Domain::Speech,
        Domain::Diffusion,
        Domain::Recommendation,
        Domain::Graph,
        Domain::FiniteElements,
        Domain::Chemistry,
    ];
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Domain::Language => "language",
            Domain::Experts => "experts",
            Domain::Vision => "vision",
            Domain::Speech => "speech",
            Domain::Diffusion => "diffusion",
            Domain::Recommendation => "recommendation",
            Domain::Graph => "graph",
            Domain::FiniteElements => "finite-elements",
            Domain::Chemistry => "chemistry",
        })
    }
}

/// The problems of `models.toml`, in the order of the file.
///
/// # Errors
/// [`BenchError::SuiteSyntax`] if this version was built with a broken file.
pub fn model_problems() -> Result<Vec<ModelProblem>> {
    Ok(read()?.products.iter().flat_map(Group::problems).collect())
}

fn read() -> Result<File> {
    toml::from_str(include_str!("../../models.toml"))
        .map_err(|error| BenchError::SuiteSyntax { finding: Box::new(error) })
}

/// `models.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    products: Vec<Group>,
}

/// A layer of a model: one problem for each `m`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    model: String,
    layer: String,
    domain: Domain,
    /// The address of the paper, configuration or program that the extents follow from, and how.
    /// It is for readers of the file.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the tests check it"))]
    source: String,
    m: Vec<usize>,
    n: usize,
    k: usize,
    #[serde(default = "one")]
    batch: usize,
    #[serde(default = "k_major")]
    a_major: Major,
    #[serde(default = "k_major")]
    b_major: Major,
}

/// Default used when a group omits its batch.
fn one() -> usize {
    1
}

/// Default used when a group omits the major of an operand.
fn k_major() -> Major {
    Major::K
}

impl Group {
    fn problems(&self) -> impl Iterator<Item = ModelProblem> {
        self.m.iter().map(|&m| ModelProblem {
            name: format!("{} {}", self.model, self.layer),
            domain: self.domain,
            problem: Problem::new(m, self.n, self.k, self.a_major, self.b_major)
                .with_batch(self.batch),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The largest extent.
    const EXTENT: usize = 200_000;
    /// The most bytes that A, B and D take together, with elements of 2 bytes.
    const BYTES: usize = 8_000_000_000;

    #[test]
    fn the_file_has_a_few_hundred_problems_of_every_domain() {
        let problems = model_problems().unwrap();
        assert!((300..=600).contains(&problems.len()), "{}", problems.len());
        for domain in Domain::ALL {
            let count = problems.iter().filter(|problem| problem.domain == domain).count();
            assert!(count >= 8, "{domain} has {count} problems");
        }
    }

    #[test]
    fn every_problem_is_there_once() {
        let mut seen = BTreeSet::new();
        for ModelProblem { name, problem, .. } in model_problems().unwrap() {
            let Problem { m, n, k, a, b, batch, .. } = problem;
            let key = format!("{name} {}{} {m}x{n}x{k} {}", a.major, b.major, batch.count);
            assert!(!seen.contains(&key), "{key} is there twice");
            seen.insert(key);
        }
    }

    #[test]
    fn every_problem_is_valid_and_within_the_limits() {
        for ModelProblem { name, problem, .. } in model_problems().unwrap() {
            problem.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
            let Problem { m, n, k, batch, .. } = problem;
            assert!(m.min(n).min(k).min(batch.count) >= 1, "{name}: {m}x{n}x{k}");
            assert!(m.max(n).max(k) <= EXTENT, "{name}: {m}x{n}x{k}");
            let bytes = 2 * batch.count * (m * k + k * n + m * n);
            assert!(bytes <= BYTES, "{name}: {m}x{n}x{k} takes {bytes} bytes");
        }
    }

    #[test]
    fn every_source_is_an_address() {
        for group in read().unwrap().products {
            let Group { model, layer, source, m, .. } = group;
            assert!(source.starts_with("https://"), "{model} {layer}: {source}");
            assert!(!m.is_empty(), "{model} {layer} has no problems");
        }
    }

    #[test]
    fn groups_give_layouts_and_batches() {
        let problems = model_problems().unwrap();
        let find = |name: &str| problems.iter().find(|problem| problem.name == name).unwrap();
        let forward = find("Llama 3.1 8B attention output").problem;
        assert_eq!(forward, Problem::new(1, 4096, 4096, Major::K, Major::K));
        let gradient = find("Llama 3.1 8B MLP down, weight gradient").problem;
        assert_eq!(gradient, Problem::new(4096, 14336, 8192, Major::M, Major::N));
        let scores = find("Llama 3.1 8B attention scores").problem;
        let one = Problem::new(2048, 2048, 128, Major::K, Major::K);
        assert_eq!(scores, one.with_batch(32));
    }

    #[test]
    fn domains_are_written_as_in_the_file() {
        for domain in Domain::ALL {
            let json = serde_json::to_string(&domain).unwrap();
            assert_eq!(json, format!("\"{domain}\""));
        }
    }
}
