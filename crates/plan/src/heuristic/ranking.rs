//! [`Ranking`]: the choices for a problem, ordered by their estimated cycles.

use pgemm_kernels::Spec;

use super::placement::{RunChoice, TilePlacement};
use super::rated::RatedSpec;
use super::shape::Shape;
use crate::choice::Choice;
use crate::split::Split;

/// Choices whose estimates the trees correct: so many with the least estimates.
pub(super) const CORRECTED: usize = 12;

/// Choices with their estimates, fastest first. The iterator finds the next choice on demand;
/// nothing is sorted in advance. Those with the least estimates come first, in the order of their
/// corrected estimates, and all others after them.
pub struct Ranking<'r> {
    corrected: Vec<Estimated<'r>>,
    others: Vec<Estimated<'r>>,
}

/// A choice with its estimate. There are hundreds for each problem, so a choice is kept in few
/// bytes.
#[derive(Clone, Copy)]
struct Estimated<'r> {
    cycles: f64,
    rated: &'r RatedSpec,
    run: RunChoice,
}

impl Estimated<'_> {
    fn choice(&self) -> Choice {
        let RunChoice { raster_rows, split, dependent_launch } = self.run;
        Choice { spec: self.rated.spec, raster_rows, split, dependent_launch }
    }
}

impl<'r> Ranking<'r> {
    /// Every spec with each split worth estimating, or with the requested `split` only.
    pub fn new(
        specs: impl IntoIterator<Item = &'r RatedSpec>,
        shape: impl Into<Shape>,
        sms: u32,
        split: Option<Split>,
        dependent_launch: Option<bool>,
    ) -> Self {
        let shape = shape.into();
        let mut all = Vec::with_capacity(512);
        for rated in specs {
            let placement = TilePlacement::new(rated.spec, shape, sms);
            let raster_rows = placement.raster_rows;
            // A serial launch is only faster if neighbouring tiles share reads.
            let launches: &[bool] = match dependent_launch {
                Some(true) => &[true],
                Some(false) => &[false],
                None if placement.may_merge() => &[true, false],
                None => &[true],
            };
            let estimate = rated.estimator(&placement);
            let mut add = |split| {
                for &dependent_launch in launches {
                    let run = RunChoice { raster_rows, split, dependent_launch };
                    all.push(Estimated { cycles: estimate(run), rated, run });
                }
            };
            add(split.unwrap_or_default());
            if split.is_none() {
                placement.splits().for_each(add);
            }
        }
        if all.len() > CORRECTED {
            all.select_nth_unstable_by(CORRECTED - 1, |a, b| a.cycles.total_cmp(&b.cycles));
        }
        let others = all.split_off(all.len().min(CORRECTED));
        for Estimated { cycles, rated, run } in &mut all {
            let placement = TilePlacement::new(rated.spec, shape, sms);
            *cycles = rated.corrected(&placement, *run);
        }
        Ranking { corrected: all, others }
    }

    /// Merges the rankings of several operand accesses, each given with the cycles of its repack
    /// kernels. `None` if there is no choice at all.
    pub(crate) fn of_accesses(mut rankings: impl Iterator<Item = (Self, f64)>) -> Option<Self> {
        let later = |(mut ranking, before): (Self, f64)| {
            let Ranking { corrected, others } = &mut ranking;
            corrected.iter_mut().chain(others).for_each(|estimated| estimated.cycles += before);
            ranking
        };
        let mut all = later(rankings.next()?);
        for Ranking { corrected, others } in rankings.map(later) {
            all.corrected.extend(corrected);
            all.others.extend(others);
        }
        (!all.corrected.is_empty()).then_some(all)
    }
}

impl Iterator for Ranking<'_> {
    type Item = Choice;

    fn next(&mut self) -> Option<Choice> {
        let Ranking { corrected, others } = self;
        let rest = if corrected.is_empty() { others } else { corrected };
        let cycles = |index: usize| rest[index].cycles;
        let least = (0..rest.len()).min_by(|&a, &b| cycles(a).total_cmp(&cycles(b)))?;
        Some(rest.swap_remove(least).choice())
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
