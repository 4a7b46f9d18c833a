//! The heuristic's cost model beside timings: what its picks lose, the features of its estimates,
//! and a fit of its constants.

use std::path::{Path, PathBuf};

use persistent_gemm::measure::Elements;
use persistent_gemm::{Config, USUAL_SMS};
use pgemm_bench::atlas::{AtlasProblem, Population};

use crate::Verdict;
use crate::failure::Failure;
use crate::output;

/// Prints the regrets of the heuristic's picks.
pub fn judge(paths: &[PathBuf]) -> Result<Verdict, Failure> {
    let mut table =
        output::table(["run", "problems", "mean", "95 %", "worst", "problem"], &["problems"]);
    for path in paths {
        for judgement in pgemm_bench::judge(path)? {
            let number = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.4}"));
            let worst = judgement.regrets.last();
            table.add_row([
                judgement.run.clone(),
                judgement.regrets.len().to_string(),
                number(judgement.mean()),
                number(judgement.quantile(0.95)),
                number(worst.map(|(regret, _)| *regret)),
                worst.map(|(_, problem)| problem.clone()).unwrap_or_default(),
            ]);
        }
    }
    output::print(&table)?;
    Ok(Verdict::Fine)
}

/// Prints the timings of a file with the features of their estimates.
pub fn features(path: &Path) -> Result<Verdict, Failure> {
    output::text(&pgemm_bench::features(path)?)?;
    Ok(Verdict::Fine)
}

/// Prints the tiles that the planner bounds for each problem, with the features of their bounds.
pub fn tile_features(
    work: &[(Population, AtlasProblem)],
    config: &Config,
    elements: Elements,
) -> Result<Verdict, Failure> {
    output::text(&pgemm_bench::tile_feature_names())?;
    for (_, at) in work {
        output::text(&pgemm_bench::tile_features(&at.problem, config, elements, USUAL_SMS))?;
    }
    Ok(Verdict::Fine)
}

/// Fits the constants and prints them beside those that estimates use now.
pub fn fit(paths: &[PathBuf]) -> Result<Verdict, Failure> {
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let progress = |sweep, error: f64| {
        output::note(format!("sweep {}: root mean square error {:.4}", sweep + 1, error.sqrt()));
    };
    let fit = pgemm_bench::fit(&paths, progress)?;
    let mut table = output::table(["constant", "now", "fitted"], &["now", "fitted"]);
    for (name, now, fitted) in fit.constants {
        table.add_row([name, format!("{now:.4}"), format!("{fitted:.4}")]);
    }
    output::print(&table)?;
    output::text(&format!(
        "{} timings, root mean square error {:.4} before and {:.4} after\n",
        fit.timings,
        fit.before.sqrt(),
        fit.after.sqrt()
    ))?;
    Ok(Verdict::Fine)
}
