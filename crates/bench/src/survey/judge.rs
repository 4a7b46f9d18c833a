//! [`Judgement`]: what the heuristic's picks lose among the choices that a survey timed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use persistent_gemm::Error;
use persistent_gemm::error::FileDamage;
use persistent_gemm::stats::geometric_mean;
use pgemm_ir::Element;
use pgemm_plan::{Choice, KeyBatch, Major, Precision, ProblemKey, Split, heuristic};
use serde::Deserialize;

use crate::error::{BenchError, Result};

/// What the heuristic's picks of one run lose.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The run's name.
    pub run: String,
    /// Times of the picks over those of the fastest choices, ascending, with the problems' names.
    pub regrets: Vec<(f64, String)>,
}

impl Judgement {
    /// The geometric mean of the regrets.
    pub fn mean(&self) -> Option<f64> {
        geometric_mean(self.regrets.iter().map(|(regret, _)| *regret))
    }

    /// The regret that this part of the problems does not exceed.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let last = self.regrets.len().checked_sub(1)?;
        let place = (part * last as f64).round() as usize;
        self.regrets.get(place.min(last)).map(|(regret, _)| *regret)
    }
}

/// A line of a survey in the compact form of `benchmarks/results`.
#[derive(Deserialize)]
struct Line {
    run: String,
    problem: Option<String>,
    #[serde(default)]
    blocks: Vec<Block>,
}

/// Choices between two readings of the peer.
#[derive(Deserialize)]
struct Block {
    peer_us: [Option<f64>; 2],
    choices: Vec<(String, Option<f64>)>,
}

/// What the heuristic's picks lose on `sms` SMs, for each run of a file in the compact form.
///
/// # Errors
/// [`Error::Io`], or [`BenchError::Report`] if a line cannot be read.
pub fn judge(path: &Path, sms: u32) -> Result<Vec<Judgement>> {
    let text =
        fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let mut runs: BTreeMap<String, Vec<(f64, String)>> = BTreeMap::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).map_err(|error| BenchError::Report {
            path: path.to_owned(),
            finding: Box::new(FileDamage::Json(error)),
        })?;
        let Some(problem) = line.problem else { continue };
        let regret = key_of(&problem).and_then(|key| regret(&key, &line.blocks, sms));
        runs.entry(line.run).or_default().extend(regret.map(|regret| (regret, problem)));
    }
    let judgement = |(run, mut regrets): (String, Vec<(f64, String)>)| {
        regrets.sort_by(|a, b| a.0.total_cmp(&b.0));
        Judgement { run, regrets }
    };
    Ok(runs.into_iter().map(judgement).collect())
}

/// The time of the choice with the least estimate over the shortest time. `None` if nothing was
/// timed.
fn regret(key: &ProblemKey, blocks: &[Block], sms: u32) -> Option<f64> {
    let shape = key.shape();
    let mut timed = Vec::new();
    for Block { peer_us, choices } in blocks {
        // A drift of the clock shows in the peer's readings.
        let peer = peer_us.iter().flatten().sum::<f64>() / peer_us.iter().flatten().count() as f64;
        let drift = if peer.is_finite() { peer } else { 1.0 };
        for (name, us) in choices {
            let (Some(us), Some(choice)) = (us, choice_of(name)) else { continue };
            timed.push((heuristic::cycles(&choice, shape, sms), us / drift));
        }
    }
    let pick = timed.iter().min_by(|a, b| a.0.total_cmp(&b.0))?.1;
    let best = timed.iter().map(|(_, us)| *us).min_by(f64::total_cmp)?;
    Some(pick / best)
}

/// The problem of a name such as `e4m3->bf16 kk 512x1024x64`.
fn key_of(name: &str) -> Option<ProblemKey> {
    let mut words = name.split(' ');
    let (types, majors, extents) = (words.next()?, words.next()?, words.next()?);
    let (operands, output) = types.split_once("->").unwrap_or((types, types));
    let dtype: Element = operands.parse().ok()?;
    let extents: Vec<usize> =
        extents.split('x').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let [m, n, k] = extents[..] else { return None };
    let (a, b) = majors.split_at_checked(1)?;
    Some(ProblemKey {
        m,
        n,
        k,
        dtype,
        b_dtype: None,
        output: output.parse().ok()?,
        precision: Precision::Full,
        a_major: if a == "m" { Major::M } else { Major::K },
        b_major: if b == "n" { Major::N } else { Major::K },
        batch: KeyBatch::default(),
    })
}

/// The choice of a name such as `bf16-kk-bf16-64x8x128-s8-w1-c4x1:split-2:1:dependent`.
fn choice_of(name: &str) -> Option<Choice> {
    let mut parts = name.split(':');
    let (spec, split) = (parts.next()?.parse().ok()?, parts.next()?.parse::<Split>().ok()?);
    let raster_rows = parts.next()?.parse().ok()?;
    let dependent_launch = parts.next() == Some("dependent");
    Some(Choice { spec, raster_rows, split, dependent_launch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_regret_is_that_of_the_least_estimate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("survey.jsonl");
        // Of a product with one row of tiles, a tile of 256 columns wastes most of its work.
        let narrow = "bf16-kkm-bf16-64x16x128-s8-w1-c1x1:whole:1:dependent";
        let wide = "bf16-kk-bf16-128x256x64-s4-w2-c1x1:whole:1:dependent";
        let text = format!(
            r#"{{"format":1,"run":"r"}}
{{"run":"r","problem":"bf16 kk 16x8192x8192","blocks":[{{"peer_us":[10.0,10.0],"choices":[["{narrow}",40.0]]}},{{"peer_us":[20.0,null],"choices":[["{wide}",40.0],["{wide}",null]]}}]}}
"#
        );
        fs::write(&path, text).unwrap();
        let [judgement] = &judge(&path, 132).unwrap()[..] else { panic!() };
        assert_eq!(judgement.regrets, [(2.0, "bf16 kk 16x8192x8192".to_owned())]);
        assert_eq!((judgement.mean(), judgement.quantile(0.95)), (Some(2.0), Some(2.0)));

        fs::write(&path, "{\n").unwrap();
        assert!(matches!(judge(&path, 132), Err(BenchError::Report { .. })));
    }
}
