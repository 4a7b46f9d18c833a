//! [`RatedSpec`]: a spec with the terms of its cost model that serve for every problem.

use pgemm_kernels::{MainloopSpec, Spec};

use super::constants::FITTED;
use super::dmma::DmmaModel;
use super::features::{FEATURES, features};
use super::ffma::FfmaModel;
use super::placement::{RunChoice, TilePlacement};
use super::shape::Shape;
use super::trees::corrections;
use super::wgmma::{LeastCycles, TileCycles, WgmmaModel};

/// A valid spec, with the terms of its cost model that depend on the spec alone.
#[derive(Clone, Copy, Debug)]
pub struct RatedSpec {
    /// The spec.
    pub spec: Spec,
    model: Model,
}

/// The model of a mainloop.
#[derive(Clone, Copy, Debug)]
enum Model {
    Wgmma(WgmmaModel<'static>),
    Dmma(DmmaModel),
    Ffma(FfmaModel),
}

impl RatedSpec {
    /// Computes the model's terms for a valid spec.
    pub fn new(spec: Spec) -> Self {
        let model = match &spec.mainloop {
            MainloopSpec::Wgmma(wgmma) => Model::Wgmma(WgmmaModel::new(&spec, wgmma, &FITTED)),
            MainloopSpec::Dmma(dmma) => Model::Dmma(DmmaModel::new(&spec, dmma)),
            MainloopSpec::Ffma(ffma) => Model::Ffma(FfmaModel::new(&spec, ffma)),
        };
        RatedSpec { spec, model }
    }

    /// Estimated cycles of a choice of this spec, corrected by the trees.
    pub(super) fn corrected(&self, shape: Shape, sms: u32, run: RunChoice) -> f64 {
        let [corrected] = RatedSpec::all_corrected([(self, run)], shape, sms);
        corrected
    }

    /// Estimated cycles of choices, corrected by the trees. Several together take less time.
    pub(super) fn all_corrected<const N: usize>(
        choices: [(&RatedSpec, RunChoice); N],
        shape: Shape,
        sms: u32,
    ) -> [f64; N] {
        let mut all = [[0.0; FEATURES]; N];
        let mut cycles = [0.0; N];
        let mut known = [false; N];
        for (index, (rated, run)) in choices.into_iter().enumerate() {
            let placement = TilePlacement::new(rated.spec, shape, sms);
            match rated.features(&placement, run) {
                Some(found) => (cycles[index], all[index], known[index]) = (found.0, found.1, true),
                None => cycles[index] = rated.estimator(&placement)(run),
            }
        }
        if known.contains(&true) {
            let corrections = corrections(&all);
            for ((cycles, correction), known) in cycles.iter_mut().zip(corrections).zip(known) {
                *cycles *= if known { correction.exp() } else { 1.0 };
            }
        }
        cycles
    }

    /// Estimated cycles before the trees correct them, and the features from which they do. `None`
    /// for a spec without wgmma.
    pub(super) fn features(
        &self,
        placement: &TilePlacement,
        run: RunChoice,
    ) -> Option<(f64, [f32; FEATURES])> {
        let Model::Wgmma(model) = &self.model else { return None };
        let terms = model.estimate(placement, &model.of_tile(placement), run);
        Some((terms.cycles, features(&self.spec, model, &terms, placement, run)))
    }

    /// The least that the tiles of any problem take with a spec of wgmma. All is 0 for other specs,
    /// of which there are few.
    pub(crate) fn least_cycles(&self) -> LeastCycles {
        match &self.model {
            Model::Wgmma(model) => model.least_cycles(),
            Model::Dmma(_) | Model::Ffma(_) => LeastCycles::default(),
        }
    }

    /// A function that estimates the cycles of choices of this spec. What they have in common is
    /// computed once.
    pub(super) fn estimator<'p>(
        &'p self,
        placement: &'p TilePlacement,
    ) -> impl Fn(RunChoice) -> f64 + 'p {
        enum Estimator<'p> {
            Wgmma(&'p WgmmaModel<'static>, TileCycles),
            Dmma(&'p DmmaModel),
            Ffma(&'p FfmaModel),
        }
        let estimator = match &self.model {
            Model::Wgmma(model) => Estimator::Wgmma(model, model.of_tile(placement)),
            Model::Dmma(model) => Estimator::Dmma(model),
            Model::Ffma(model) => Estimator::Ffma(model),
        };
        move |run| match &estimator {
            Estimator::Wgmma(model, tile) => model.estimate(placement, tile, run).cycles,
            Estimator::Dmma(model) => model.cycles(placement, run),
            Estimator::Ffma(model) => model.cycles(placement, run),
        }
    }
}
