//! `pgemm warm`: prepares the problems of a program in advance.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use persistent_gemm::driver::Device;
use persistent_gemm::measure::Elements;
use persistent_gemm::{Config, Dtype, Error, Gemm, Major, Problem, WarmUp, ahead};
use serde::Deserialize;

use crate::failure::Failure;
use crate::parse::{self, Majors, Size, Types};
use crate::usage::UsageError;
use crate::{Verdict, output};

#[derive(clap::Args)]
#[command(after_help = "\
A file of layers is JSON: the numbers of rows m, and layers of n×k whose operands are both K-major, as
in X·Wᵀ. For example:

  { \"dtypes\": [\"bf16\", \"e4m3\"], \"m\": [1, 16, 256, 4096],
    \"layers\": [ { \"name\": \"attention output\", \"n\": 4096, \"k\": 4096 } ] }

Examples:
  pgemm warm --model shapes.json
  pgemm warm --problem 1x4096x4096 --problem 8192x4096x4096 --dtype bf16")]
pub struct Args {
    /// A problem size, or one number for a cube; may be given several times.
    #[arg(long, value_name = "MxNxK[*BATCH]", value_parser = parse::size, required_unless_present = "model")]
    problem: Vec<Size>,
    /// A file with the layers of a model.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    #[command(flatten)]
    types: Types,
    #[command(flatten)]
    majors: Majors,
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
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

/// Runs the command.
///
/// # Errors
/// The file cannot be read, there is no device, or a problem cannot be prepared.
pub fn run(args: &Args) -> Result<Verdict, Failure> {
    // Problems by the types that they have.
    let mut work: Vec<(Config, Elements, Vec<Problem>)> = vec![];
    if !args.problem.is_empty() {
        let elements = args.types.elements(None);
        let config = Config::new(elements.a).with_b_dtype(elements.b);
        let mut config = config.with_output(elements.d);
        config.precision = Some(elements.precision);
        let problems = args.problem.iter().map(|size| args.majors.problem(*size)).collect();
        work.push((config, elements, problems));
    }
    if let Some(path) = &args.model {
        let model = Model::read(path)?;
        for &dtype in &model.dtypes {
            let config = Config::new(dtype);
            let elements = Elements::new(dtype, config.output_dtype());
            work.push((config, elements, model.problems()));
        }
    }
    let device = Device::new(args.device)?;
    ahead::set_program(std::env::current_exe()?);
    let mut rows = BTreeMap::new();
    for (config, elements, problems) in work {
        let begin = Instant::now();
        let gemm = Gemm::create(&device, config)?;
        let progress = output::progress(problems.len());
        let warm = gemm.warm_up(&problems, |done, all| {
            progress.set_length(all as u64);
            progress.set_position(done as u64);
        })?;
        progress.finish_and_clear();
        rows.insert(elements.a.to_string(), (warm, begin.elapsed()));
    }
    if args.json {
        let row = |(dtype, (warm, time)): (&String, &(WarmUp, std::time::Duration))| {
            serde_json::json!({
                "dtype": dtype,
                "problems": warm.problems,
                "kernels": warm.kernels,
                "assembled": warm.assembled,
                "seconds": time.as_secs_f64(),
            })
        };
        output::json(&rows.iter().map(row).collect::<Vec<_>>())?;
        return Ok(Verdict::Fine);
    }
    let mut table = output::table(
        ["type", "problems", "kernels", "assembled in advance", "time"],
        &["problems", "kernels", "assembled in advance", "time"],
    );
    for (dtype, (warm, time)) in &rows {
        table.add_row([
            dtype.clone(),
            warm.problems.to_string(),
            warm.kernels.to_string(),
            warm.assembled.to_string(),
            output::seconds(*time),
        ]);
    }
    output::print(&table)?;
    Ok(Verdict::Fine)
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
