//! [`RatedSpec`]: a spec with the terms of its cost model that serve for every problem.

use pgemm_kernels::{MainloopSpec, Spec};

use super::constants::{Constants, FITTED};
use super::direct::DirectModel;
use super::estimate::{Estimate, SpecTerms};
use super::features::{FEATURES, features};
use super::network::{LANES, Network, combined};
use super::placement::{RunChoice, TilePlacement};
use super::registers::RegisterModel;
use super::shape::Shape;
use super::short::Short;
use super::trees::{MOST_LANES, Trees, corrections};
use super::wgmma::{LeastCycles, TileCycles, WgmmaModel};
use crate::choice::Choice;
use crate::device::DeviceFacts;

/// The problem in which the trees correct a bound: rows and columns of tiles in a wave, waves, and
/// stages of a tile. With 132 SMs, this wave is full.
const TILES_OF_WAVE: [u32; 2] = [12, 11];
const WAVES: u32 = 3;
const STAGES: u32 = 64;

/// A valid spec, with the terms of its cost model that depend on the spec alone.
#[derive(Clone, Copy, Debug)]
pub struct RatedSpec {
    /// The spec.
    pub spec: Spec,
    model: Model<'static>,
    /// CTAs that work on an SM at once.
    pub(crate) ctas_per_sm: u32,
}

/// The model of a mainloop.
#[derive(Clone, Copy, Debug)]
enum Model<'c> {
    Wgmma(WgmmaModel<'c>),
    Registers(RegisterModel<'c>),
    Direct(DirectModel),
}

impl<'c> Model<'c> {
    /// The model of a valid spec.
    fn new(spec: &Spec, constants: &'c Constants) -> Self {
        let Constants { wgmma: of_wgmma, dmma: of_dmma, ffma: of_ffma } = constants;
        match &spec.mainloop {
            MainloopSpec::Wgmma(wgmma) => Model::Wgmma(WgmmaModel::new(spec, wgmma, of_wgmma)),
            MainloopSpec::Dmma(dmma) => Model::Registers(RegisterModel::dmma(spec, dmma, of_dmma)),
            MainloopSpec::Ffma(ffma) => Model::Registers(RegisterModel::ffma(spec, ffma, of_ffma)),
            MainloopSpec::Direct(direct) => Model::Direct(DirectModel::new(spec, direct)),
        }
    }

    /// A function that estimates the cycles of choices of the spec. What they have in common is
    /// computed once.
    fn estimator<'p>(
        &'p self,
        placement: &'p TilePlacement,
    ) -> impl Fn(RunChoice) -> Estimate + 'p {
        enum Estimator<'p> {
            Wgmma(&'p WgmmaModel<'p>, TileCycles),
            Registers(&'p RegisterModel<'p>),
            Direct(DirectModel),
        }
        let estimator = match self {
            Model::Wgmma(model) => Estimator::Wgmma(model, model.of_tile(placement)),
            Model::Registers(model) => Estimator::Registers(model),
            Model::Direct(model) => Estimator::Direct(*model),
        };
        move |run| match &estimator {
            Estimator::Wgmma(model, tile) => model.estimate(placement, tile, run),
            Estimator::Registers(model) => model.estimate(placement, run),
            Estimator::Direct(model) => model.estimate(placement, run),
        }
    }
}

/// Estimated cycles of a choice with these constants, before the trees correct them.
pub(super) fn cycles_with(
    constants: &Constants,
    choice: &Choice,
    placement: &TilePlacement,
) -> f64 {
    Model::new(&choice.spec, constants).estimator(placement)(choice.into()).cycles
}

/// So many elements of a slice. There may be fewer; then the first of them fills up.
pub(super) fn filled<T, const N: usize>(some: &[T]) -> [&T; N] {
    std::array::from_fn(|index| some.get(index).unwrap_or(&some[0]))
}

impl RatedSpec {
    /// Computes the model's terms for a valid spec.
    pub fn new(spec: Spec) -> Self {
        let model = Model::new(&spec, &FITTED);
        RatedSpec { spec, model, ctas_per_sm: spec.working_ctas_per_sm() }
    }

    /// A problem in the tiles of this spec.
    pub(super) fn placed(&self, shape: Shape, device: DeviceFacts) -> TilePlacement {
        TilePlacement::with(self.spec, self.ctas_per_sm, shape, device)
    }

    /// Estimated cycles of a choice of this spec, corrected by all trees and the
    /// network.
    pub(super) fn corrected(&self, shape: Shape, device: DeviceFacts, run: RunChoice) -> f64 {
        let placement = self.placed(shape, device);
        let (cycles, features) = self.features(&placement, run);
        let correction = self.corrections(&[features.map(Short::from)])[0];
        cycles * correction.exp()
    }

    /// Estimated cycles before the trees correct them, and the features from which they do.
    pub(super) fn features(
        &self,
        placement: &TilePlacement,
        run: RunChoice,
    ) -> (f64, [f32; FEATURES]) {
        let terms = self.model.estimator(placement)(run);
        let of_spec = match &self.model {
            Model::Wgmma(model) => &model.of_spec,
            Model::Registers(model) => &model.of_spec,
            Model::Direct(_) => &SpecTerms::default(),
        };
        (terms.cycles, features(&self.spec, of_spec, &terms, placement, run))
    }

    /// The trees that correct estimates of this spec. There are none for direct kernels.
    pub(super) fn trees(&self) -> Trees<FEATURES> {
        match &self.model {
            Model::Wgmma(_) => Trees::of_wgmma(),
            Model::Registers(_) => Trees::of_registers(),
            Model::Direct(_) => Trees::none(),
        }
    }

    /// The network that corrects estimates of this spec. There is none for direct kernels.
    pub(super) fn network(&self) -> Option<&'static Network> {
        match &self.model {
            Model::Wgmma(_) => Network::of_wgmma(),
            Model::Registers(_) => Network::of_registers(),
            Model::Direct(_) => None,
        }
    }

    /// The least that the tiles of any problem take with each of these specs, which all have one
    /// kind of mainloop. Stages of wgmma are corrected as those of a problem of [`WAVES`] full
    /// waves of deep tiles. All is 0 for other specs, of which there are few.
    pub(crate) fn least_cycles(all: &[RatedSpec]) -> Vec<LeastCycles> {
        let Some(first) = all.first() else { return vec![] };
        let bounds: Vec<_> = all.iter().map(RatedSpec::least_and_features).collect();
        let features: Vec<_> = bounds.iter().map(|(_, features)| *features).collect();
        let corrections = first.corrections(&features);
        let corrected = |((least, _), correction): ((LeastCycles, _), f64)| LeastCycles {
            stage: least.stage * correction.exp(),
            ..least
        };
        bounds.into_iter().zip(corrections).map(corrected).collect()
    }

    /// The least that tiles take with this spec before it is corrected, and the features from which
    /// it is.
    fn least_and_features(&self) -> (LeastCycles, [Short; FEATURES]) {
        let Model::Wgmma(model) = &self.model else {
            return (LeastCycles::default(), [Short::ZERO; FEATURES]);
        };
        let Spec { tile, cluster, .. } = self.spec;
        let [rows, columns] = TILES_OF_WAVE;
        let extent = |tile: u32, ctas: u32, tiles: u32| u64::from(tile * ctas * tiles);
        let m = extent(tile.m, cluster.m, rows);
        let n = extent(tile.n, cluster.n, columns * WAVES);
        let shape = Shape::from([m, n, u64::from(STAGES * tile.k)]);
        let choice = Choice::plain(self.spec);
        let shape = if choice.swapped() { shape.swapped() } else { shape };
        let device = DeviceFacts::new(rows * columns * cluster.size());
        let placement = self.placed(shape, device);
        let raster_rows = placement.raster_rows;
        let run = RunChoice { raster_rows, ..RunChoice::from(&choice) };
        (model.least_cycles(), self.features(&placement, run).1.map(Short::from))
    }

    /// The logarithms of the factors by which all trees and the network find the estimates of
    /// choices of such specs too short, from the features of each.
    fn corrections(&self, all: &[[Short; FEATURES]]) -> Vec<f64> {
        let (trees, network) = (self.trees(), self.network());
        let mut found = Vec::with_capacity(all.len());
        for some in all.chunks(MOST_LANES) {
            let of_trees = corrections::<_, MOST_LANES, MOST_LANES>(trees, filled(some));
            for (some, of_trees) in some.chunks(LANES).zip(of_trees.chunks(LANES)) {
                let of_network = network.map(|network| network.corrections(filled(some)));
                let of_network =
                    |index| of_network.map(|of_network: [f64; LANES]| of_network[index]);
                let found_by_both = |index| combined(of_trees[index], of_network(index));
                found.extend((0..some.len()).map(found_by_both));
            }
        }
        found
    }

    /// A function that estimates the cycles of choices of this spec. What they have in common is
    /// computed once.
    pub(super) fn estimator<'p>(
        &'p self,
        placement: &'p TilePlacement,
    ) -> impl Fn(RunChoice) -> f64 + 'p {
        let estimate = self.model.estimator(placement);
        move |run| estimate(run).cycles
    }
}
