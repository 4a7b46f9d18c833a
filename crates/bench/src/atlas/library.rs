//! [`Library`]: a library that computes the problems of an atlas, and its [`Candidate`]s for one of
//! them. A candidate enqueues its work on our stream, or runs it in a process of its own.

use persistent_gemm::measure::Contestant;

use super::grid::{Grid, Sample};
use crate::cublaslt_facts::CublasLtVersion;
use crate::error::Result;
use crate::pooled::Operands;

/// A library beside ours.
pub(super) trait Library {
    /// Its name in rows, that of [`Peer::library`](super::peer::Peer::library).
    fn name(&self) -> &'static str;

    /// Its name and version, for reports.
    fn version(&self) -> String;

    /// The version of cuBLASLt that computes its products, if it is that library or says so.
    fn cublaslt(&self) -> Option<CublasLtVersion>;

    /// Where on this machine it was found.
    fn place(&self) -> String;

    /// The ways in which it computes a problem, its own first choice first.
    ///
    /// # Errors
    /// The reason why there are none.
    fn candidates<'o>(&'o self, operands: &'o Operands<'o>) -> Result<Vec<Candidate<'o>>>;
}

/// A way in which a library computes a problem.
pub(super) struct Candidate<'a> {
    /// Its place in the library's order, if the library has one.
    pub(super) rank: Option<usize>,
    /// What runs, in the library's own terms, if it says so.
    pub(super) algorithm: Option<String>,
    /// All that the library says about it.
    pub(super) details: Option<String>,
    /// What runs it.
    pub(super) runner: Runner<'a>,
}

/// What runs a contestant of an atlas.
pub(super) enum Runner<'a> {
    /// It is enqueued on our stream and uses the operands of the pool.
    Here(Box<dyn Contestant + 'a>),
    /// It runs in another process, on the same operands there.
    Elsewhere(Box<dyn Remote + 'a>),
}

/// A contestant in another process. While it works, this process waits.
pub(super) trait Remote {
    /// Computes the last set's D, of which every bit has been set, and fetches the grid's elements.
    ///
    /// # Errors
    /// It refuses the problem, or fails.
    fn sample(&mut self, grid: &Grid) -> Result<Sample>;

    /// From now on slices replay a graph of so many GEMMs, which rotate through the sets.
    ///
    /// # Errors
    /// It fails.
    fn use_graph(&mut self, gemms: u64) -> Result<()>;

    /// Runs so many GEMMs, and returns the GPU's time for them in seconds, which is above 0.
    ///
    /// # Errors
    /// It fails.
    fn slice(&mut self, gemms: u64) -> Result<f64>;
}
