//! Tuned choices: the key under which they are stored, and the trait by which a plan looks them up.
//! Results files implement the trait.

use pgemm_ir::Element;
use pgemm_kernels::{Loader, Spec};
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::catalogue::{rule_for, specs_for};
use crate::choice::Choice;
use crate::config::Config;
use crate::device::DeviceFacts;
use crate::heuristic::Shape;
use crate::layout::Major;
use crate::operands::{OperandAlignment, PlannedProblem};
use crate::precision::{Precision, is_default};
use crate::problem::Problem;
use crate::split::{MAX_SPLITS, Split};

/// A choice that the tuner has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunedChoice {
    /// Kernel, raster, split and launch.
    pub choice: Choice,
    /// When it was found, UTC, ISO 8601.
    pub date: String,
}

/// A source of tuned choices. The source `()` is empty.
pub trait TunedChoices {
    /// The choice for a problem, or `None` if the problem was not tuned.
    fn tuned(&self, key: &ProblemKey) -> Option<&TunedChoice>;
}

impl TunedChoices for () {
    fn tuned(&self, _: &ProblemKey) -> Option<&TunedChoice> {
        None
    }
}

/// The properties of a problem that a tuned choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProblemKey {
    /// Rows of A and D.
    pub m: usize,
    /// Columns of B and D.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Element type of A, and of B unless `b_dtype` is given.
    pub dtype: Element,
    /// Element type of B, if it differs from that of A.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b_dtype: Option<Element>,
    /// Element type of C and D.
    pub output: Element,
    /// How accurately products are added up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub precision: Precision,
    /// Contiguous dimension of A.
    pub a_major: Major,
    /// Contiguous dimension of B.
    pub b_major: Major,
    /// The batch: its number of products, and whether they share A or B.
    #[serde(default, skip_serializing_if = "KeyBatch::is_one")]
    pub batch: KeyBatch,
}

/// The properties of a batch that a tuned choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyBatch {
    /// Number of products.
    pub count: usize,
    /// Whether all products have the same A.
    #[serde(default)]
    pub same_a: bool,
    /// Whether all products have the same B.
    #[serde(default)]
    pub same_b: bool,
}

impl KeyBatch {
    fn is_one(&self) -> bool {
        *self == KeyBatch::default()
    }
}

/// A single product.
impl Default for KeyBatch {
    fn default() -> KeyBatch {
        KeyBatch { count: 1, same_a: false, same_b: false }
    }
}

impl ProblemKey {
    /// The key of a problem under a config. A problem with a column-major D is described by its
    /// transpose. How kernels access the operands, leading dimensions and scalars are not part of
    /// it.
    pub fn of(problem: &Problem, config: &Config) -> ProblemKey {
        let alignment = OperandAlignment::ALIGNED;
        ProblemKey::of_planned(&PlannedProblem::new(problem, config, alignment))
    }

    /// The key of a planned problem.
    pub fn of_planned(planned: &PlannedProblem) -> ProblemKey {
        let PlannedProblem { problem, config, .. } = planned;
        let [a_major, b_major] = planned.majors();
        ProblemKey {
            m: problem.m,
            n: problem.n,
            k: problem.k,
            dtype: config.dtype,
            b_dtype: Some(config.b_dtype()).filter(|b| *b != config.dtype),
            output: config.output_dtype(),
            precision: config.precision(),
            a_major,
            b_major,
            batch: match problem.batch {
                Batch { count: 1, .. } => KeyBatch::default(),
                Batch { count, a, b, .. } => KeyBatch { count, same_a: a == 0, same_b: b == 0 },
            },
        }
    }

    /// Element types of A and B.
    pub fn operands(&self) -> [Element; 2] {
        [self.dtype, self.b_dtype.unwrap_or(self.dtype)]
    }

    /// The config with the key's types and precision. Every knob is left to the planner.
    pub fn config(&self) -> Config {
        let [a, b] = self.operands();
        Config::new(a).with_b_dtype(b).with_output(self.output).with_precision(self.precision)
    }

    /// The problem that the tuner measures for this key. It has no gaps between lines or matrices,
    /// alpha = 1 and beta = 0.
    pub fn problem(&self) -> Problem {
        let KeyBatch { count, same_a, same_b } = self.batch;
        let problem = Problem::new(self.m, self.n, self.k, self.a_major, self.b_major);
        let problem = problem.with_batch(count);
        let problem = if same_a { problem.with_a_batch_stride(0) } else { problem };
        if same_b { problem.with_b_batch_stride(0) } else { problem }
    }

    /// The extents m, n and k.
    pub fn extents(&self) -> [u64; 3] {
        [self.m, self.n, self.k].map(|extent| extent as u64)
    }

    /// [`problem`](Self::problem) as the cost model sees it.
    pub fn shape(&self) -> Shape {
        Shape::of(&self.problem(), &self.config())
    }

    /// Every spec of the catalogue that can compute the problem.
    pub fn specs(&self) -> impl Iterator<Item = Spec> + use<> {
        specs_for(&self.problem(), self.operands(), self.output, self.precision, None)
    }

    /// Every spec of the rule that can compute the problem, whether the catalogue lists it or not, or
    /// all that the catalogue lists if the rule has none of these types. There is a list for each
    /// way to access the operands.
    pub fn rule(&self) -> Vec<(PlannedProblem, Vec<Spec>)> {
        let (operands, output, precision) = (self.operands(), self.output, self.precision);
        let specs = |planned: PlannedProblem| {
            let loaders = planned.accesses.loaders();
            let rule = rule_for(&planned.problem, operands, output, precision, loaders);
            let mut specs: Vec<Spec> = rule.collect();
            if specs.is_empty() && loaders == [Loader::Tma; 2] {
                let listed = specs_for(&planned.problem, operands, output, precision, None);
                specs.extend(listed);
            }
            (planned, specs)
        };
        self.accesses().into_iter().map(specs).collect()
    }

    /// [`problem`](Self::problem) with each way to access its operands.
    fn accesses(&self) -> Vec<PlannedProblem> {
        PlannedProblem::candidates(&self.problem(), &self.config(), OperandAlignment::ALIGNED)
    }

    /// The problem as the cost model sees it if this choice computes it, and estimated cycles of
    /// the repack kernels before. `None` if the choice does not fit the problem.
    pub fn shape_for(&self, choice: &Choice) -> Option<(Shape, f64)> {
        let planned = self.accesses().into_iter().find(|planned| planned.is_read_by(choice))?;
        Some((Shape::of_planned(&planned), planned.repack_cycles()))
    }

    /// Estimated cycles of a choice for the problem on a device, with those of repack kernels.
    /// `None` if the choice does not fit the problem.
    pub fn cycles(&self, choice: &Choice, device: impl Into<DeviceFacts>) -> Option<f64> {
        let (shape, before) = self.shape_for(choice)?;
        Some(crate::heuristic::cycles(choice, shape, device) + before)
    }

    /// Whether the kernel of a choice can access the operands of the problem.
    pub fn is_read_by(&self, choice: &Choice) -> bool {
        let direct = match choice.spec.is_direct() {
            true => PlannedProblem::direct(&self.problem(), &self.config()),
            false => None,
        };
        self.accesses().iter().chain(&direct).any(|planned| planned.is_read_by(choice))
    }

    /// Whether a choice can compute the problem: types, precision and majors agree, and every
    /// number is in range.
    pub fn fits(&self, choice: &Choice) -> bool {
        let spec = &choice.spec;
        let types = (choice.operands(), spec.output) == (self.operands(), self.output);
        let splits = match choice.split {
            Split::SplitK(splits) => Some(splits),
            Split::Whole | Split::StreamK => None,
        };
        types
            && Precision::of(spec) == self.precision
            && self.is_read_by(choice)
            && choice.raster_rows > 0
            && splits.is_none_or(|splits| (1..=MAX_SPLITS).contains(&splits))
            && spec.validate().is_ok()
    }
}
