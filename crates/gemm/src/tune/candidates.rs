//! The candidates for a problem: kernels of the catalogue and of its rule, each with a few raster
//! heights, the most promising first.

use std::collections::{HashMap, HashSet};

use pgemm_kernels::{OutputMajor, Schedule, Spec, Tile};
use pgemm_plan::heuristic::{self, Shape};
use pgemm_plan::{Choice, DeviceFacts, ProblemKey, Split};

/// Factor on the estimate of a choice for each earlier choice with the same tile, the peer's
/// included. The model's differences between tiles are its least certain ones, so the first few
/// trials should have different tiles.
pub const TILE_PRIOR: f64 = 1.01;

/// Factor on the estimate of raster heights other than the heuristic's, so that the first few
/// trials have different kernels.
pub const RASTER_PRIOR: f64 = 1.02;

/// Choices with the heuristic's raster height from which each trial is taken. The rule has
/// thousands, and most of them are estimated as far too slow. The number was not tuned.
const CHOICES_OF_TRIAL: usize = 20;

/// The `trials` most promising choices on a device besides `peer`: kernels of the catalogue and of
/// its rule for these types and majors, clusters and swapped operands included, with each split
/// worth estimating, and with the heuristic's raster height, half and twice that, and all rows.
pub fn candidates(
    key: &ProblemKey,
    device: impl Into<DeviceFacts>,
    peer: &Choice,
    trials: usize,
) -> Vec<Choice> {
    let device = device.into();
    let extents = key.extents();
    let of_rule = key.rule().into_iter();
    let of_rule = of_rule
        .map(|(planned, specs)| (Shape::of_planned(&planned), planned.repack_cycles(), specs));
    let listed: Vec<Spec> = key.specs().collect();
    let (mut ranked, mut seen) = (Vec::new(), HashSet::from([*peer]));
    for (shape, before, specs) in of_rule.chain([(key.shape(), 0.0, listed)]) {
        let choices = heuristic::rank(specs, shape, device, None).into_iter();
        for choice in choices.take(trials.saturating_mul(CHOICES_OF_TRIAL)) {
            let usual = choice.raster_rows;
            let (tile, cluster) = (choice.spec.tile, choice.spec.cluster);
            let [m, _, _] = choice.extents(extents);
            let rows = m.div_ceil(u64::from(tile.m * cluster.m)).max(1);
            let rows = u32::try_from(rows).unwrap_or(u32::MAX);
            let mut rasters =
                vec![usual, usual.div_ceil(2), usual.saturating_mul(2).min(rows), rows];
            rasters.sort_unstable();
            rasters.dedup();
            for raster_rows in rasters {
                let candidate = Choice { raster_rows, ..choice };
                let prior = if raster_rows == usual { 1.0 } else { RASTER_PRIOR };
                if seen.insert(candidate) {
                    let cycles = heuristic::cycles(&candidate, shape, device) + before;
                    ranked.push((cycles * prior, candidate));
                }
            }
        }
    }
    ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut tiles = HashMap::from([(tile_of(peer), 1)]);
    for (cycles, candidate) in &mut ranked {
        let before = tiles.entry(tile_of(candidate)).or_default();
        *cycles *= TILE_PRIOR.powi(*before);
        *before += 1;
    }
    ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    ranked.into_iter().map(|(_, candidate)| candidate).take(trials).collect()
}

/// The properties by which two choices count as the same tile.
fn tile_of(choice: &Choice) -> (Tile, Schedule, OutputMajor, Split) {
    let spec = choice.spec;
    (spec.tile, spec.schedule(), spec.d_major, choice.split)
}

#[cfg(test)]
mod tests {
    use pgemm_kernels::Cluster;

    use super::*;
    use crate::Plan;
    use crate::tuned::tests::key_of as key;

    const SMS: u32 = 132;

    fn peer(key: &ProblemKey) -> Choice {
        let config = key.config();
        let plan = Plan::candidates(&key.problem(), &config, SMS).unwrap().remove(0);
        plan.choice()
    }

    #[test]
    fn the_whole_rule_and_catalogue_are_there_once_without_the_peer() {
        let key = key(16384, 16384, 4096);
        let peer = peer(&key);
        let all = candidates(&key, SMS, &peer, usize::MAX);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(!all.contains(&peer));
        let specs: HashSet<_> = all.iter().map(|candidate| candidate.spec).collect();
        let of_rule = key.rule().into_iter().flat_map(|(_, specs)| specs);
        let expected: HashSet<_> = key.specs().chain(of_rule).collect();
        assert!(specs == expected, "{} of {}", specs.len(), expected.len());
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
        let best = heuristic::cycles(&few[0], key.extents(), SMS);
        let last = heuristic::cycles(&all[all.len() - 1], key.extents(), SMS);
        assert!(best < last, "{best} {last}");
        let tiles = |few: &[Choice]| few.iter().map(tile_of).collect::<HashSet<_>>().len();
        assert!(tiles(&few) >= 4, "{few:?}");
        assert!(tiles(&candidates(&key, SMS, &peer, 14)) >= 8);
    }

    #[test]
    fn a_problem_of_one_tile_has_one_raster_a_spec() {
        let key = key(64, 64, 64);
        let all = candidates(&key, SMS, &peer(&key), usize::MAX);
        assert!(all.iter().all(|candidate| candidate.raster_rows == 1));
    }
}
