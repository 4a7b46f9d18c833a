//! [`Ranking`]: the choices for a problem, ordered by their estimated cycles.

use pgemm_kernels::Spec;

use super::placement::TilePlacement;
use super::rated::RatedSpec;
use super::shape::Shape;
use crate::choice::Choice;
use crate::split::Split;

/// Choices whose estimates the trees correct: so many with the least estimates.
pub(super) const CORRECTED: usize = 12;

/// Choices with their estimates, fastest first. The iterator finds the next choice on demand;
/// nothing is sorted in advance. Those with the least estimates come first, in the order of their
/// corrected estimates, and all others after them.
pub struct Ranking {
    corrected: Vec<(f64, Choice)>,
    others: Vec<(f64, Choice)>,
}

impl Ranking {
    /// Every spec with each split worth estimating, or with the requested `split` only.
    pub fn new<'r>(
        specs: impl IntoIterator<Item = &'r RatedSpec>,
        shape: impl Into<Shape>,
        sms: u32,
        split: Option<Split>,
        dependent_launch: Option<bool>,
    ) -> Self {
        let shape = shape.into();
        let mut choices = Vec::with_capacity(512);
        for rated in specs {
            let spec = rated.spec;
            let placement = TilePlacement::new(spec, shape, sms);
            let raster_rows = placement.raster_rows;
            // A serial launch is only faster if neighbouring tiles share reads.
            let launches: &[bool] = match dependent_launch {
                Some(true) => &[true],
                Some(false) => &[false],
                None if placement.may_merge() => &[true, false],
                None => &[true],
            };
            let mut add = |split| {
                for &dependent_launch in launches {
                    let choice = Choice { spec, raster_rows, split, dependent_launch };
                    choices.push((rated.cycles(&placement, &choice), (choice, rated)));
                }
            };
            add(split.unwrap_or_default());
            if split.is_none() {
                placement.splits().for_each(add);
            }
        }
        if choices.len() > CORRECTED {
            choices.select_nth_unstable_by(CORRECTED - 1, |a, b| a.0.total_cmp(&b.0));
        }
        let others = choices.split_off(choices.len().min(CORRECTED));
        let correct = |(_, (choice, rated)): (f64, (Choice, &RatedSpec))| {
            let placement = TilePlacement::new(choice.spec, shape, sms);
            (rated.corrected(&placement, &choice), choice)
        };
        let others = others.into_iter().map(|(cycles, (choice, _))| (cycles, choice));
        Ranking { corrected: choices.into_iter().map(correct).collect(), others: others.collect() }
    }

    /// Merges the rankings of several operand accesses, each given with the cycles of its repack
    /// kernels. `None` if there is no choice at all.
    pub(crate) fn of_accesses(rankings: impl Iterator<Item = (Ranking, f64)>) -> Option<Self> {
        let mut all = Ranking { corrected: Vec::new(), others: Vec::new() };
        for (Ranking { corrected, others }, before) in rankings {
            let later = |(cycles, choice): (f64, Choice)| (cycles + before, choice);
            all.corrected.extend(corrected.into_iter().map(later));
            all.others.extend(others.into_iter().map(later));
        }
        (!all.corrected.is_empty()).then_some(all)
    }
}

impl Iterator for Ranking {
    type Item = Choice;

    fn next(&mut self) -> Option<Choice> {
        let Ranking { corrected, others } = self;
        let rest = if corrected.is_empty() { others } else { corrected };
        let least = (0..rest.len()).min_by(|&a, &b| rest[a].0.total_cmp(&rest[b].0))?;
        Some(rest.swap_remove(least).1)
    }
}

/// Every spec with each split worth estimating (or with the requested `split`), fastest first by
/// [`cycles`](super::cycles).
pub fn rank(
    specs: impl IntoIterator<Item = Spec>,
    shape: impl Into<Shape>,
    sms: u32,
    split: Option<Split>,
) -> Vec<Choice> {
    let rated: Vec<_> = specs.into_iter().map(RatedSpec::new).collect();
    let shape = shape.into();
    let estimate = |choice: Choice| (super::cycles(&choice, shape, sms), choice);
    let mut choices: Vec<_> = Ranking::new(&rated, shape, sms, split, None).map(estimate).collect();
    choices.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    choices.into_iter().map(|(_, choice)| choice).collect()
}
