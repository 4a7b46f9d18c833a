//! Tuned choices: the key under which they are kept, and how a plan looks them up. Results files
//! implement the lookup.

use pgemm_ir::Element;
use pgemm_kernels::Spec;
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::catalogue::specs_for;
use crate::choice::Choice;
use crate::config::Config;
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

/// Where a plan looks for tuned choices. `()` has none.
pub trait TunedChoices {
    /// The choice for a problem; `None` where it was not tuned.
    fn tuned(&self, key: &ProblemKey) -> Option<&TunedChoice>;
}

impl TunedChoices for () {
    fn tuned(&self, _: &ProblemKey) -> Option<&TunedChoice> {
        None
    }
}

/// What a tuned choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProblemKey {
    /// Rows of A and D.
    pub m: usize,
    /// Columns of B and D.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Element type of A, and of B where that is not given.
    pub dtype: Element,
    /// Element type of B, where it is not A's.
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
    /// Products, and whether all have the same A or the same B.
    #[serde(default, skip_serializing_if = "KeyBatch::is_one")]
    pub batch: KeyBatch,
}

/// What a tuned choice depends on of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyBatch {
    /// Products.
    pub count: usize,
    /// Whether all have the same A.
    #[serde(default)]
    pub same_a: bool,
    /// Whether all have the same B.
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
    /// The key of a problem under a config. It is that of the problem as the kernel sees it: with
    /// repacked operands, and transposed where D is column-major. Leading dimensions and scalars
    /// are not part of it.
    pub fn of(problem: &Problem, config: &Config) -> ProblemKey {
        let alignment = OperandAlignment::ALIGNED;
        ProblemKey::of_planned(&PlannedProblem::new(problem, config, alignment))
    }

    /// The key of a problem as its kernel sees it.
    pub fn of_planned(planned: &PlannedProblem) -> ProblemKey {
        let PlannedProblem { problem, config, .. } = planned;
        ProblemKey {
            m: problem.m,
            n: problem.n,
            k: problem.k,
            dtype: config.dtype,
            b_dtype: Some(config.b_dtype()).filter(|b| *b != config.dtype),
            output: config.output_dtype(),
            precision: config.precision(),
            a_major: problem.a.major,
            b_major: problem.b.major,
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

    /// The config of its types, with every knob left to the planner.
    pub fn config(&self) -> Config {
        let [a, b] = self.operands();
        Config::new(a).with_b_dtype(b).with_output(self.output).with_precision(self.precision)
    }

    /// The problem that is measured: no gaps between lines or matrices, alpha = 1, beta = 0.
    pub fn problem(&self) -> Problem {
        let KeyBatch { count, same_a, same_b } = self.batch;
        let problem = Problem::new(self.m, self.n, self.k, self.a_major, self.b_major);
        let problem = problem.with_batch(count);
        let problem = if same_a { problem.with_a_batch_stride(0) } else { problem };
        if same_b { problem.with_b_batch_stride(0) } else { problem }
    }

    /// Its m, n and k.
    pub fn extents(&self) -> [u64; 3] {
        [self.m, self.n, self.k].map(|extent| extent as u64)
    }

    /// [`problem`](Self::problem) as the cost model sees it.
    pub fn shape(&self) -> Shape {
        Shape::of(&self.problem(), &self.config())
    }

    /// Every spec of the catalogue that can compute it.
    pub fn specs(&self) -> impl Iterator<Item = Spec> + use<> {
        specs_for(&self.problem(), self.operands(), self.output, self.precision, None)
    }

    /// Whether the kernel of a choice has its majors.
    pub fn has_majors_of(&self, choice: &Choice) -> bool {
        choice.has_majors(self.a_major, self.b_major)
    }

    /// Whether a choice can compute it: types, precision and majors are those of the problem, and
    /// every number is in range.
    pub fn fits(&self, choice: &Choice) -> bool {
        let spec = &choice.spec;
        let types = (choice.operands(), spec.output) == (self.operands(), self.output);
        let splits = match choice.split {
            Split::SplitK(splits) => Some(splits),
            Split::Whole | Split::StreamK => None,
        };
        types
            && Precision::of(spec) == self.precision
            && self.has_majors_of(choice)
            && choice.raster_rows > 0
            && splits.is_none_or(|splits| (1..=MAX_SPLITS).contains(&splits))
            && spec.validate().is_ok()
    }
}
