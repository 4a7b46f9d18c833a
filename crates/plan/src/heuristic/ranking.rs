//! [`Ranking`]: the choices for a problem, ordered by their estimated cycles.

use std::mem;
use std::ops::Range;

use pgemm_kernels::Spec;

use super::features::FEATURES;
use super::network::{LANES, combined};
use super::placement::RunChoice;
use super::rated::{RatedSpec, filled};
use super::shape::Shape;
use super::short::Short;
use super::trees::corrections;
use crate::choice::Choice;
use crate::device::DeviceFacts;
use crate::split::Split;

/// Choices whose estimates the first trees correct, those with the least estimates. They and those
/// that the next steps correct are twice as many for a problem that needs more.
pub(super) const CORRECTED: usize = 32;

/// The least numbers of groups that are estimated for each way to access the operands, and of its
/// choices that the first trees correct, even if others are expected to be faster.
const GROUPS_OF_WAY: usize = 3;
const CHOICES_OF_WAY: usize = 6;

/// Choices that all trees correct, those which the first trees find best.
const BETTER: usize = 16;

/// Choices that the network corrects too, those which all trees find best.
pub(super) const FINALISTS: usize = LANES;

/// The number of trees, from the first on, that correct [`CORRECTED`] choices. They correct most of
/// an error. `scripts/fit-corrections.py` knows this number and the others.
const FIRST_TREES: usize = 160;

/// Direct kernels are near the best of the others if they are estimated to take up to so many times
/// as long. That is three times the median error of their model (`scripts/fit-direct.py`, 971
/// timings of problems that it was not fitted to).
const NEAR: f64 = 1.33;

/// Choices with their estimates, fastest first. The iterator finds the next choice on demand;
/// nothing is sorted in advance.
pub struct Ranking<'r> {
    /// Choices that all trees and the network have corrected, those that all trees have, those that
    /// fewer trees have, and all others. Each group follows the one before.
    groups: [Vec<Estimated<'r>>; 4],
}

/// A way to access the operands of a problem, with the specs to estimate for it.
pub(crate) struct Access<S> {
    pub(crate) groups: Vec<SpecGroup<S>>,
    /// The problem as its kernel sees it.
    pub(crate) shape: Shape,
    /// Cycles of the repack kernels before.
    pub(crate) before: f64,
}

/// Specs to estimate.
pub(crate) struct SpecGroup<S> {
    pub(crate) specs: S,
    /// About the least of their corrected estimates, if it is known. The estimates are multiplied
    /// by one factor, so that the least of them is this.
    pub(crate) least: Option<f64>,
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

/// A choice with the features from which the trees correct its estimate.
struct Featured<'r> {
    estimated: Estimated<'r>,
    features: [Short; FEATURES],
    /// Cycles of the kernel alone as the model estimates them, and of the repack kernels, which are
    /// not corrected.
    alone: f64,
    before: f64,
    /// The logarithms of the factors by which trees correct the estimate, and the network, if it
    /// has been asked.
    of_trees: f64,
    of_network: Option<f64>,
}

impl<'r> Featured<'r> {
    /// The choices with their features, and with the estimates that the features belong to.
    fn of(
        all: &[Estimated<'r>],
        shape: Shape,
        device: DeviceFacts,
        before: f64,
    ) -> impl Iterator<Item = Featured<'r>> {
        all.iter().map(move |&estimated| {
            let Estimated { rated, run, .. } = estimated;
            let placement = rated.placed(shape, device);
            let (alone, features) = rated.features(&placement, run);
            let features = features.map(Short::from);
            Featured { estimated, features, alone, before, of_trees: 0.0, of_network: None }
        })
    }

    /// Corrects the choices further by those of their trees with these numbers, `N` choices at a
    /// time. They are for the kernels of one problem, which all have one kind of mainloop.
    fn correct<const N: usize, const LANES: usize>(all: &mut [Featured<'r>], trees: Range<usize>) {
        let Some(first) = all.first() else { return };
        let trees = first.estimated.rated.trees().part(trees);
        for some in all.chunks_mut(N) {
            let corrections = corrections::<_, N, LANES>(trees, features_of(some));
            for (choice, correction) in some.iter_mut().zip(corrections) {
                choice.of_trees += correction;
                choice.estimate();
            }
        }
    }

    /// Corrects the choices by their network.
    fn correct_by_network(all: &mut [Featured<'r>]) {
        let Some(first) = all.first() else { return };
        let Some(network) = first.estimated.rated.network() else { return };
        for some in all.chunks_mut(LANES) {
            let corrections = network.corrections(features_of(some));
            for (choice, correction) in some.iter_mut().zip(corrections) {
                choice.of_network = Some(correction);
                choice.estimate();
            }
        }
    }

    /// The choices with their features, corrected by all their trees and their network, if
    /// their operands are read in place. Their kernels may be of several kinds.
    fn corrected(all: &[Estimated<'r>], shape: Shape, device: DeviceFacts) -> Vec<Featured<'r>> {
        let mut all: Vec<_> = Featured::of(all, shape, device, 0.0).collect();
        let kind = |choice: &Featured| mem::discriminant(&choice.estimated.rated.spec.mainloop);
        for of_kind in all.chunk_by_mut(|one, other| kind(one) == kind(other)) {
            Featured::correct::<CORRECTED, CORRECTED>(of_kind, 0..usize::MAX);
            Featured::correct_by_network(of_kind);
        }
        all
    }

    /// Estimates the choice anew, after a correction.
    fn estimate(&mut self) {
        let kernel = self.alone * combined(self.of_trees, self.of_network).exp();
        self.estimated.cycles = kernel + self.before;
    }

    /// The choices in groups, each of which follows the one before: those that all trees and
    /// the network correct, those that all trees do, and those that fewer trees do. The first two
    /// are so many times larger than usual.
    fn groups(mut all: Vec<Featured<'r>>, times: usize) -> [Vec<Estimated<'r>>; 3] {
        let cycles = |choice: &Featured| choice.estimated.cycles;
        let estimated = |all: Vec<Featured<'r>>| all.into_iter().map(|choice| choice.estimated);
        Featured::correct::<CORRECTED, CORRECTED>(&mut all, 0..FIRST_TREES);
        let corrected = keep_least(&mut all, times * BETTER, cycles);
        Featured::correct::<BETTER, BETTER>(&mut all, FIRST_TREES..usize::MAX);
        let better = keep_least(&mut all, times * FINALISTS, cycles);
        Featured::correct_by_network(&mut all);
        [all, better, corrected].map(|group| estimated(group).collect())
    }
}

/// The features of so many choices. There may be fewer; then the first of them fills up.
fn features_of<'f, const N: usize>(some: &'f [Featured]) -> [&'f [Short; FEATURES]; N] {
    filled(some).map(|choice| &choice.features)
}

impl<'r> Ranking<'r> {
    /// Every spec with each split worth estimating, or with the requested `split` only.
    pub fn new(
        specs: impl IntoIterator<Item = &'r RatedSpec>,
        shape: impl Into<Shape>,
        device: DeviceFacts,
        split: Option<Split>,
        dependent_launch: Option<bool>,
    ) -> Self {
        let groups = vec![SpecGroup { specs, least: None }];
        let access = Access { groups, shape: shape.into(), before: 0.0 };
        Ranking::of_accesses(vec![access], device, split, dependent_launch)
    }

    /// The same for a problem whose operands can be accessed in several ways. Of all ways together,
    /// as many groups are estimated as the way with the most of them has.
    pub(crate) fn of_accesses<S: IntoIterator<Item = &'r RatedSpec>>(
        accesses: Vec<Access<S>>,
        device: DeviceFacts,
        split: Option<Split>,
        dependent_launch: Option<bool>,
    ) -> Self {
        let needs_more = accesses.iter().any(|access| access.shape.needs_more(split));
        let groups = accesses.iter().map(|access| access.groups.len()).max().unwrap_or(0);
        let leasts = |Access { groups, before, .. }: &Access<S>| -> Vec<f64> {
            groups.iter().filter_map(|group| Some(group.least? + before)).collect()
        };
        let most = least_up_to(accesses.iter().flat_map(leasts).collect(), groups);
        let mut ways: Vec<(Vec<Estimated>, Shape, f64)> = Vec::with_capacity(accesses.len());
        for access in accesses {
            let most = most.max(least_up_to(leasts(&access), GROUPS_OF_WAY));
            let Access { groups, shape, before } = access;
            let mut all = Vec::with_capacity(512);
            for SpecGroup { specs, least } in groups {
                if least.is_some_and(|least| least + before > most) {
                    continue;
                }
                let begin = all.len();
                for rated in specs {
                    estimate(rated, shape, device, (split, dependent_launch), &mut all);
                }
                let group = &mut all[begin..];
                let estimates = group.iter().map(|choice| choice.cycles);
                let factor =
                    least.map_or(1.0, |least| least / estimates.fold(f64::INFINITY, f64::min));
                group.iter_mut().for_each(|choice| choice.cycles = choice.cycles * factor + before);
            }
            ways.push((all, shape, before));
        }
        let cycles = |(all, ..): &(Vec<Estimated>, Shape, f64)| -> Vec<f64> {
            all.iter().map(|choice| choice.cycles).collect()
        };
        let times = if needs_more { 2 } else { 1 };
        let corrected = times * CORRECTED;
        let most = least_up_to(ways.iter().flat_map(cycles).collect(), corrected);
        let (mut known, mut others) = (vec![], vec![]);
        for way in ways {
            let most = most.max(least_up_to(cycles(&way), CHOICES_OF_WAY));
            let (mut all, shape, before) = way;
            let left = all.extract_if(.., |choice| choice.cycles > most);
            if others.is_empty() {
                others = left.collect()
            } else {
                others.extend(left)
            }
            known.extend(Featured::of(&all, shape, device, before));
        }
        let [finalists, better, corrected] = Featured::groups(known, times);
        Ranking { groups: [finalists, better, corrected, others] }
    }

    /// Adds the choices of direct kernels, whose estimates no trees correct. Those that are not
    /// near the best of all others come last.
    pub(crate) fn add_direct(
        &mut self,
        specs: impl IntoIterator<Item = &'r RatedSpec>,
        shape: Shape,
        device: DeviceFacts,
        dependent_launch: Option<bool>,
    ) {
        let run = (Some(Split::Whole), Some(dependent_launch.unwrap_or(true)));
        let mut direct = vec![];
        specs.into_iter().for_each(|rated| estimate(rated, shape, device, run, &mut direct));
        let [finalists, .., others] = &mut self.groups;
        let least = finalists.iter().map(|choice| choice.cycles).fold(f64::INFINITY, f64::min);
        let (near, far): (Vec<_>, Vec<_>) =
            direct.into_iter().partition(|choice| choice.cycles <= NEAR * least);
        finalists.extend(near);
        others.extend(far);
    }

    /// The next choice, with its estimated cycles.
    pub(crate) fn next_estimated(&mut self) -> Option<(Choice, f64)> {
        let group = self.groups.iter_mut().find(|group| !group.is_empty())?;
        let cycles = |index: usize| group[index].cycles;
        let least = (0..group.len()).min_by(|&a, &b| cycles(a).total_cmp(&cycles(b)))?;
        let least = group.swap_remove(least);
        Some((least.choice(), least.cycles))
    }

    /// The choices that all trees have corrected, in the order in which they come next, with their
    /// estimated cycles.
    pub(crate) fn corrected(&self) -> impl Iterator<Item = (Choice, f64)> {
        let [finalists, better, ..] = &self.groups;
        let sorted = |group: &[Estimated]| {
            let mut group: Vec<_> =
                group.iter().map(|found| (found.choice(), found.cycles)).collect();
            group.sort_by(|(_, one), (_, other)| one.total_cmp(other));
            group
        };
        [finalists, better].into_iter().flat_map(move |group| sorted(group))
    }

    /// Whether there is no choice at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(Vec::is_empty)
    }
}

impl Iterator for Ranking<'_> {
    type Item = Choice;

    fn next(&mut self) -> Option<Choice> {
        Some(self.next_estimated()?.0)
    }
}

/// Adds the choices of a spec that are worth estimating, or only those with the requested split and
/// launch.
fn estimate<'r>(
    rated: &'r RatedSpec,
    shape: Shape,
    device: DeviceFacts,
    (split, dependent_launch): (Option<Split>, Option<bool>),
    all: &mut Vec<Estimated<'r>>,
) {
    let placement = rated.placed(shape, device);
    // Clusters of kernels that add up in registers pay where CTAs load much and compute little.
    if rated.spec.wgmma().is_none() && placement.is_beyond_one_wave_of_clusters() {
        return;
    }
    let raster_rows = placement.raster_rows;
    let estimate = rated.estimator(&placement);
    let mut add = |split| {
        let launches: &[bool] = match dependent_launch {
            Some(true) => &[true],
            Some(false) => &[false],
            None if placement.may_be_serial(split) => &[true, false],
            None => &[true],
        };
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

/// Every spec with each split worth estimating (or with the requested `split`), fastest first by
/// [`cycles`](super::cycles).
pub fn rank(
    specs: impl IntoIterator<Item = Spec>,
    shape: impl Into<Shape>,
    device: impl Into<DeviceFacts>,
    split: Option<Split>,
) -> Vec<Choice> {
    let rated: Vec<_> = specs.into_iter().map(RatedSpec::new).collect();
    let (shape, device) = (shape.into(), device.into());
    let Ranking { groups } = Ranking::new(&rated, shape, device, split, None);
    let all = Featured::corrected(&groups.concat(), shape, device);
    let mut all: Vec<_> = all.into_iter().map(|choice| choice.estimated).collect();
    all.sort_by(|a, b| a.cycles.total_cmp(&b.cycles));
    all.iter().map(Estimated::choice).collect()
}

/// The least estimate of these specs with each split worth estimating, corrected by all trees and
/// the network.
pub(crate) fn least_corrected<'r>(
    specs: impl IntoIterator<Item = &'r RatedSpec>,
    shape: Shape,
    device: DeviceFacts,
) -> f64 {
    let Ranking { groups } = Ranking::new(specs, shape, device, None, None);
    let all = Featured::corrected(&groups.concat(), shape, device);
    all.iter().map(|choice| choice.estimated.cycles).fold(f64::INFINITY, f64::min)
}

/// The specs with each split worth estimating for a way to access the operands, at most so many,
/// with their estimates, which all trees and the network have corrected.
pub(crate) fn all_corrected<'r>(
    Access { groups, shape, before }: Access<impl IntoIterator<Item = &'r RatedSpec>>,
    device: DeviceFacts,
    most: usize,
) -> Vec<(Choice, f64)> {
    let specs = groups.into_iter().flat_map(|group| group.specs);
    let Ranking { groups } = Ranking::new(specs, shape, device, None, None);
    let mut all = groups.concat();
    keep_least(&mut all, most, |choice| choice.cycles);
    let all = Featured::corrected(&all, shape, device).into_iter();
    all.map(|Featured { estimated, .. }| (estimated.choice(), estimated.cycles + before)).collect()
}

/// The greatest of so many least cycles, or infinity if there are no more.
fn least_up_to(mut cycles: Vec<f64>, count: usize) -> f64 {
    match count.checked_sub(1) {
        Some(last) if count < cycles.len() => {
            *cycles.select_nth_unstable_by(last, f64::total_cmp).1
        }
        _ => f64::INFINITY,
    }
}

/// Leaves so many choices with the least cycles, and returns the others.
pub(crate) fn keep_least<T>(all: &mut Vec<T>, count: usize, cycles: impl Fn(&T) -> f64) -> Vec<T> {
    if all.len() <= count {
        return vec![];
    }
    all.select_nth_unstable_by(count - 1, |a, b| cycles(a).total_cmp(&cycles(b)));
    all.split_off(count)
}
