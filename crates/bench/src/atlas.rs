//! The atlas: populations of problems, drawn by a seed or taken from published models, each
//! measured in short rounds with its peers. It says how a library does on problems that it was not
//! fitted to.

mod cublaslt;
mod finding;
mod grid;
mod judge;
mod library;
mod measure;
mod models;
mod old;
mod peer;
mod peers;
mod population;
mod regime;
mod report;
mod reproduce;
mod row;
mod shrink;
mod timer;
mod torch;

pub use finding::{Finding, WrongElement};
pub use measure::{Atlas, AtlasOptions};
pub use models::{Domain, ModelProblem, model_problems};
pub use peer::{FASTEST, FIRST_PICK, Peer, TORCH};
pub use peers::{PeerVersion, Peers};
pub use population::{AtlasProblem, Population};
pub use regime::{Rates, Regime, nominal_rates};
pub use report::{AtlasFile, AtlasHead, AtlasScore, LOSS};
pub use reproduce::{Reproducer, Reproduction, WrongKind, WrongProblem};
pub use row::{AtlasPeer, AtlasRow, Fault};
pub use torch::INTERPRETER as PYTHON_VARIABLE;
