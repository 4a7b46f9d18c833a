//! The atlas: populations of problems, drawn by a seed or taken from published models, each
//! measured in a quick pair with the peer. It says how a library does on problems that it was not
//! fitted to.

mod grid;
mod measure;
mod models;
mod population;
mod regime;
mod report;
mod row;

pub use measure::{Atlas, AtlasOptions};
pub use models::{Domain, ModelProblem, model_problems};
pub use population::{AtlasProblem, Population};
pub use regime::Regime;
pub use report::{AtlasFile, AtlasHead, AtlasScore, LOSS};
pub use row::{AtlasPeer, AtlasRow, FASTEST, FIRST_PICK, Fault};
