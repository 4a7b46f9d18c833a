//! [`Ranking`]: the choices for a problem, ordered by their estimated cycles.

use pgemm_kernels::Spec;

use super::placement::{RunChoice, TilePlacement};
use super::rated::RatedSpec;
use super::shape::Shape;
use crate::choice::Choice;
use crate::split::Split;

/// Choices whose estimates the trees correct: so many with the least estimates, and equally many of
/// each way to access the operands.
pub(super) const CORRECTED: usize = 12;

/// Most of one way.
pub(super) const CORRECTED_OF_ACCESS: usize = 8;

/// Choices that are corrected together.
const TOGETHER: usize = 4;

/// Choices with their estimates, fastest first. The iterator finds the next choice on demand;
/// nothing is sorted in advance. Those with the least estimates come first, in the order of their
/// corrected estimates, and all others after them.
pub struct Ranking<'r> {
    corrected: Vec<Estimated<'r>>,
    others: Vec<Estimated<'r>>,
}

/// A way to access the operands of a problem, with the specs to estimate for it.
pub(crate) struct Access<I> {
    pub(crate) specs: I,
    /// The problem as its kernel sees it.
    pub(crate) shape: Shape,
    /// Cycles of the repack kernels before.
    pub(crate) before: f64,
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
        let access = Access { specs, shape: shape.into(), before: 0.0 };
        Ranking::of_accesses(vec![access], sms, split, dependent_launch)
    }

    /// The same for a problem whose operands can be accessed in several ways.
    pub(crate) fn of_accesses<I: IntoIterator<Item = &'r RatedSpec>>(
        accesses: Vec<Access<I>>,
        sms: u32,
        split: Option<Split>,
        dependent_launch: Option<bool>,
    ) -> Self {
        let quota = (CORRECTED / accesses.len().max(1)).min(CORRECTED_OF_ACCESS);
        let (mut corrected, mut others) = (Vec::with_capacity(CORRECTED), vec![]);
        for Access { specs, shape, before } in accesses {
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
                        let cycles = estimate(run) + before;
                        all.push(Estimated { cycles, rated, run });
                    }
                };
                add(split.unwrap_or_default());
                if split.is_none() {
                    placement.splits().for_each(add);
                }
            }
            if all.len() > quota {
                all.select_nth_unstable_by(quota - 1, |a, b| a.cycles.total_cmp(&b.cycles));
            }
            let rest = all.split_off(all.len().min(quota));
            for some in all.chunks_mut(TOGETHER) {
                // The last ones may be fewer; then the first of them fills up.
                let first = (some[0].rated, some[0].run);
                let choices = std::array::from_fn(|index| {
                    some.get(index).map_or(first, |Estimated { rated, run, .. }| (*rated, *run))
                });
                let found: [f64; TOGETHER] = RatedSpec::all_corrected(choices, shape, sms);
                for (Estimated { cycles, .. }, found) in some.iter_mut().zip(found) {
                    *cycles = found + before;
                }
            }
            corrected.append(&mut all);
            if others.is_empty() { others = rest } else { others.extend(rest) }
        }
        Ranking { corrected, others }
    }

    /// Whether there is no choice at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.corrected.is_empty() && self.others.is_empty()
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
    let Ranking { corrected, mut others } = Ranking::new(&rated, shape, sms, split, None);
    for Estimated { cycles, rated, run, .. } in &mut others {
        *cycles = rated.corrected(shape, sms, *run);
    }
    others.extend(corrected);
    others.sort_by(|a, b| a.cycles.total_cmp(&b.cycles));
    others.iter().map(Estimated::choice).collect()
}
