//! Problems of a program: sizes, and files with the layers of a model.

use std::fs;
use std::path::{Path, PathBuf};

use persistent_gemm::measure::Elements;
use persistent_gemm::{Config, Dtype, Error, Major, Problem};
use serde::Deserialize;

use crate::failure::Failure;
use crate::parse::{self, Majors, Size, Types};
use crate::usage::UsageError;

/// What a file of layers looks like, for the help of commands.
pub const FORMAT: &str = "\
A file of layers is JSON: the numbers of rows m, and layers of n×k whose operands are both K-major, as
in X·Wᵀ. For example:

  { \"dtypes\": [\"bf16\", \"e4m3\"], \"m\": [1, 16, 256, 4096],
    \"layers\": [ { \"name\": \"attention output\", \"n\": 4096, \"k\": 4096 } ] }";

/// Problems, by their sizes or as the layers of a model.
#[derive(clap::Args)]
pub struct ProblemArgs {
    /// A problem size, or one number for a cube; may be given several times.
    #[arg(long, value_name = "MxNxK[*BATCH]", value_parser = parse::size)]
    problem: Vec<Size>,
    /// A file with the layers of a model.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    #[command(flatten)]
    types: Types,
    #[command(flatten)]
    majors: Majors,
}

/// Problems of some types.
pub struct Layers {
    pub config: Config,
    pub elements: Elements,
    pub problems: Vec<Problem>,
}

impl ProblemArgs {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.problem.is_empty() && self.model.is_none()
    }

    /// The problems, by the types that they have.
    ///
    /// # Errors
    /// The file of layers cannot be read.
    pub fn read(&self) -> Result<Vec<Layers>, Failure> {
        let mut all = vec![];
        if !self.problem.is_empty() {
            let elements = self.types.elements(None);
            let config = Config::new(elements.a).with_b_dtype(elements.b);
            let mut config = config.with_output(elements.d);
            config.precision = Some(elements.precision);
            let problems = self.problem.iter().map(|size| self.majors.problem(*size)).collect();
            all.push(Layers { config, elements, problems });
        }
        if let Some(path) = &self.model {
            let model = Model::read(path)?;
            for &dtype in &model.dtypes {
                let config = Config::new(dtype);
                let elements = Elements::new(dtype, config.output_dtype());
                all.push(Layers { config, elements, problems: model.problems() });
            }
        }
        Ok(all)
    }
}

/// The layers of a model.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    /// The types of operands. Results have their default types.
    dtypes: Vec<Dtype>,
    m: Vec<usize>,
    layers: Vec<Layer>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    /// The name, for readers of the file.
    #[serde(default)]
    name: String,
    n: usize,
    k: usize,
}

impl Model {
    fn read(path: &Path) -> Result<Model, Failure> {
        let text = fs::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let failed = |source| UsageError::Layers { path: path.to_owned(), source };
        Ok(serde_json::from_str(&text).map_err(failed)?)
    }

    fn problems(&self) -> Vec<Problem> {
        let of_layer = |layer: &Layer| {
            let problem = |&m: &usize| Problem::new(m, layer.n, layer.k, Major::K, Major::K);
            self.m.iter().map(problem).collect::<Vec<_>>()
        };
        self.layers.iter().flat_map(of_layer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_layers_has_a_problem_for_each_layer_and_each_m() {
        let text = r#"{ "dtypes": ["bf16", "e4m3"], "m": [1, 300],
            "layers": [ { "name": "down", "n": 4096, "k": 14336 }, { "n": 128, "k": 64 } ] }"#;
        let model: Model = serde_json::from_str(text).unwrap();
        let problems = model.problems();
        assert_eq!(model.dtypes, [Dtype::Bf16, Dtype::E4m3]);
        assert_eq!(problems.len(), 4);
        assert_eq!(problems[1], Problem::new(300, 4096, 14336, Major::K, Major::K));
    }

    #[test]
    fn a_broken_file_is_named_with_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shapes.json");
        fs::write(&path, r#"{ "dtypes": ["bf16"], "m": [1], "layer": [] }"#).unwrap();
        let message = Model::read(&path).unwrap_err().to_string();
        assert!(message.contains("shapes.json") && message.contains("layer"), "{message}");
        let message = Model::read(&folder.path().join("none.json")).unwrap_err().to_string();
        assert!(message.contains("none.json"), "{message}");
    }
}
