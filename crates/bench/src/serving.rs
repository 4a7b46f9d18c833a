//! The linear layers of language models for which start-up is measured: `serving.toml`.

use pgemm_plan::{Major, Problem};
use serde::Deserialize;

use crate::error::{BenchError, Result};

/// A linear layer of a model for some number of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingProblem {
    /// The model and the layer.
    pub name: String,
    /// The extents. Both operands are K-major.
    pub problem: Problem,
}

/// `serving.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    m: Vec<usize>,
    models: Vec<Model>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    name: String,
    /// The address of the configuration that the extents follow from. It is for readers of the
    /// file.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the tests check it"))]
    source: String,
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    name: String,
    n: usize,
    k: usize,
}

/// The problems of `serving.toml`, in the order of the file.
///
/// # Errors
/// [`BenchError::SuiteSyntax`] if this version was built with a broken file.
pub fn serving_problems() -> Result<Vec<ServingProblem>> {
    let File { m, models } = read()?;
    let of_layer = |model: &str, layer: &Layer| {
        let name = format!("{model} {}", layer.name);
        let problem = |&m: &usize| Problem::new(m, layer.n, layer.k, Major::K, Major::K);
        m.iter()
            .map(|m| ServingProblem { name: name.clone(), problem: problem(m) })
            .collect::<Vec<_>>()
    };
    let of_model = |model: &Model| {
        model.layers.iter().flat_map(|layer| of_layer(&model.name, layer)).collect::<Vec<_>>()
    };
    Ok(models.iter().flat_map(of_model).collect())
}

fn read() -> Result<File> {
    toml::from_str(include_str!("../serving.toml"))
        .map_err(|error| BenchError::SuiteSyntax { finding: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_two_types_there_are_800_problems_of_four_models() {
        let problems = serving_problems().unwrap();
        assert!(2 * problems.len() >= 800, "{}", problems.len());
        for ServingProblem { name, problem } in &problems {
            problem.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(problem.n.is_multiple_of(16) && problem.k.is_multiple_of(16), "{name}");
        }
        let file = read().unwrap();
        assert_eq!(file.models.len(), 4);
        assert!(file.models.iter().all(|model| model.source.starts_with("https://")));
    }
}
