//! [`tile_features`]: what the trees that correct the bounds of tiles are fitted to.

use persistent_gemm::Config;
use persistent_gemm::measure::Elements;
use pgemm_plan::heuristic::TILE_FEATURE_NAMES;
use pgemm_plan::{Problem, TileSample};

use crate::names::problem_name;

/// The names of the columns of [`tile_features`], with commas between them and a line break.
pub fn tile_feature_names() -> String {
    format!("problem,access,cycles,before,bound,{}\n", TILE_FEATURE_NAMES.join(","))
}

/// The tiles that the planner bounds for a problem, a line each: the problem, the number of the way
/// to access its operands, the least corrected estimate of the tile's kernels, what the repack
/// kernels before them take and the tile's bound, all in cycles, and the features from which the
/// trees correct the bound.
pub fn tile_features(problem: &Problem, config: &Config, elements: Elements, sms: u32) -> String {
    let name = problem_name(problem, elements);
    let mut table = String::new();
    let accesses = pgemm_plan::tile_samples(problem, config, sms);
    for (access, samples) in accesses.into_iter().enumerate() {
        for TileSample { features, bound, cycles, before } in samples {
            table += &format!("{name},{access},{cycles},{before},{bound}");
            features.iter().for_each(|feature| table += &format!(",{feature}"));
            table.push('\n');
        }
    }
    table
}
