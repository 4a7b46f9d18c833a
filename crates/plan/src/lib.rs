//! Planning of GEMMs for NVIDIA Hopper: the choice of the kernel, the number of CTAs and the order
//! of tiles for a problem.
//!
//! A [`Problem`] has extents, layouts and scalars. A [`Config`] has element types and knobs.
//! [`Plan::candidates`] gives the plans for both, best first by a cost model ([`heuristic`]). This
//! crate uses no device, no driver and no files.
//!
//! ```
//! use pgemm_plan::{Config, Element, Major, Plan, Problem};
//!
//! # fn main() -> Result<(), pgemm_plan::PlanError> {
//! let problem = Problem::new(4096, 4096, 4096, Major::K, Major::N);
//! // On a device with 132 SMs.
//! let plans = Plan::candidates(&problem, &Config::new(Element::Bf16), 132)?;
//! println!("{}: {}", plans[0].spec, plans[0]);
//! # Ok(())
//! # }
//! ```

mod batch;
mod catalogue;
mod choice;
mod config;
mod considered;
mod decomposition;
mod device;
mod error;
pub mod heuristic;
mod layout;
mod operands;
mod plan;
mod precision;
mod preferred;
mod problem;
mod split;
mod summation;
mod tuning;

pub use batch::Batch;
pub use catalogue::{specs_for, tile_samples, types};
pub use choice::Choice;
pub use config::Config;
pub use considered::TileSample;
pub use decomposition::Decomposition;
pub use device::{DeviceFacts, NOMINAL_MHZ, USUAL_SMS};
pub use error::PlanError;
pub use layout::{Major, MatrixLayout, OperandLayout, Order};
pub use operands::{
    OperandAccess, OperandAccesses, OperandAlignment, PlannedProblem, Repack, Repacks, TermSplit,
};
pub use pgemm_ir::Element;
pub use plan::{Candidates, NEAR_THE_BEST, PREFERRED_WITHIN, Plan, near_the_best};
pub use precision::{Precision, UnknownPrecision, is_default as is_default_precision};
pub use preferred::PreferredKernels;
pub use problem::{Problem, Spans};
pub use split::{MAX_SPLITS, Split, UnknownSplit};
pub use summation::SummationClass;
pub use tuning::{KeyBatch, ProblemKey, TunedChoice, TunedChoices};
