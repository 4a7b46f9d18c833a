//! The atlas: populations of problems.

mod models;

pub use models::{Domain, ModelProblem, model_problems};
