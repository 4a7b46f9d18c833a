//! [`Ranking`]: the choices for a problem, ordered by their estimated cycles.

use pgemm_kernels::Spec;

use super::placement::TilePlacement;
use super::rated::RatedSpec;
use super::shape::Shape;
use crate::choice::Choice;
use crate::split::Split;

/// Choices with their estimates, fastest first. The iterator finds the next choice on demand;
/// nothing is sorted in advance.
pub struct Ranking(Vec<(f64, Choice)>);

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
                    choices.push((rated.cycles(&placement, &choice), choice));
                }
            };
            add(split.unwrap_or_default());
            if split.is_none() {
                placement.splits().for_each(add);
            }
        }
        Ranking(choices)
    }

    /// Merges the rankings of several operand accesses, each given with the cycles of its repack
    /// kernels. `None` if there is no choice at all.
    pub(crate) fn of_accesses(rankings: impl Iterator<Item = (Ranking, f64)>) -> Option<Self> {
        let later = |(Ranking(choices), before): (Ranking, f64)| {
            choices.into_iter().map(move |(cycles, choice)| (cycles + before, choice))
        };
        let all: Vec<_> = rankings.flat_map(later).collect();
        (!all.is_empty()).then_some(Ranking(all))
    }
}

impl Iterator for Ranking {
    type Item = Choice;

    fn next(&mut self) -> Option<Choice> {
        let least = (0..self.0.len()).min_by(|&a, &b| self.0[a].0.total_cmp(&self.0[b].0))?;
        Some(self.0.swap_remove(least).1)
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
    let Ranking(mut choices) = Ranking::new(&rated, shape, sms, split, None);
    choices.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    choices.into_iter().map(|(_, choice)| choice).collect()
}
