//! What is worth measuring for a problem: specs of the catalogue, each with a few raster heights, the most promising first.

use std::fmt;

use pgemm_kernels::{KernelSpec, catalogue};
use serde::{Deserialize, Serialize};

use super::results::ProblemKey;
use crate::heuristic;
use crate::plan::operand_major;

/// Other raster heights than the heuristic's are ranked as if they took this much longer, so that few trials go to different
/// kernels first.
pub const RASTER_PRIOR: f64 = 1.02;

/// A kernel and how its tiles are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Candidate {
    /// The kernel.
    pub spec: KernelSpec,
    /// Rows of cluster tiles that are walked together.
    pub raster_rows: u32,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} raster {}", self.spec, self.raster_rows)
    }
}

impl Candidate {
    /// The heuristic's estimate of its time on `sms` SMs, cycles, which does not see the raster.
    pub fn estimated_cycles(&self, key: &ProblemKey, sms: u32) -> f64 {
        heuristic::cycles(&self.spec, (key.m as u64, key.n as u64, key.k as u64), sms)
    }
}

/// The `trials` most promising candidates on `sms` SMs besides `peer`: every spec of the catalogue for these types and majors,
/// clusters included, with the heuristic's raster height, half and twice that, and all rows.
pub fn candidates(key: &ProblemKey, sms: u32, peer: &Candidate, trials: usize) -> Vec<Candidate> {
    let (a_major, b_major) = (operand_major(key.a_major), operand_major(key.b_major));
    let mut ranked = Vec::new();
    for spec in catalogue::specs_for(key.dtype, a_major, b_major, key.output) {
        let usual = heuristic::raster_rows(&spec, key.m as u64, sms).max(1);
        let rows = (key.m as u64).div_ceil(u64::from(spec.tile.m * spec.cluster.m)).max(1);
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let mut rasters = vec![usual, usual.div_ceil(2), usual.saturating_mul(2).min(rows), rows];
        rasters.sort_unstable();
        rasters.dedup();
        for raster_rows in rasters {
            let candidate = Candidate { spec, raster_rows };
            let prior = if raster_rows == usual { 1.0 } else { RASTER_PRIOR };
            if candidate != *peer {
                ranked.push((candidate.estimated_cycles(key, sms) * prior, candidate));
            }
        }
    }
    ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    ranked.into_iter().map(|(_, candidate)| candidate).take(trials).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use pgemm_kernels::Cluster;

    use super::*;
    use crate::{Config, Dtype, Major, Plan};

    const SMS: u32 = 132;

    fn key(m: usize, n: usize, k: usize) -> ProblemKey {
        ProblemKey {
            m,
            n,
            k,
            dtype: Dtype::Bf16,
            output: Dtype::Bf16,
            a_major: Major::K,
            b_major: Major::N,
        }
    }

    fn peer(key: &ProblemKey) -> Candidate {
        let config = Config::new(key.dtype).with_output(key.output);
        let plan = Plan::candidates(&key.problem(), &config, SMS).unwrap().remove(0);
        Candidate { spec: plan.spec, raster_rows: plan.raster_rows }
    }

    #[test]
    fn the_whole_catalogue_is_there_once_without_the_peer() {
        let key = key(16384, 16384, 4096);
        let peer = peer(&key);
        let all = candidates(&key, SMS, &peer, usize::MAX);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(!all.contains(&peer));
        let specs: HashSet<_> = all.iter().map(|candidate| candidate.spec).collect();
        let (a, b) = (operand_major(key.a_major), operand_major(key.b_major));
        let catalogue: HashSet<_> = catalogue::specs_for(key.dtype, a, b, key.output).collect();
        assert_eq!(specs, catalogue);
        assert!(specs.iter().any(|spec| spec.cluster != Cluster::NONE));
        assert!(all.iter().all(|candidate| candidate.raster_rows >= 1));
    }

    #[test]
    fn few_trials_go_to_the_most_promising_and_to_different_kernels() {
        let key = key(8192, 8192, 8192);
        let peer = peer(&key);
        let few = candidates(&key, SMS, &peer, 6);
        assert_eq!(few.len(), 6);
        let all = candidates(&key, SMS, &peer, usize::MAX);
        assert_eq!(few, all[..6]);
        let best = few[0].estimated_cycles(&key, SMS);
        let last = all[all.len() - 1].estimated_cycles(&key, SMS);
        assert!(best < last, "{best} {last}");
        assert!(few.iter().map(|candidate| candidate.spec).collect::<HashSet<_>>().len() >= 2);
    }

    #[test]
    fn a_problem_of_one_tile_has_one_raster_a_spec() {
        let key = key(64, 64, 64);
        let all = candidates(&key, SMS, &peer(&key), usize::MAX);
        assert!(all.iter().all(|candidate| candidate.raster_rows == 1));
    }
}
