//! [`AtlasRow`]: what was measured of one problem of an atlas.

use persistent_gemm::measure::LaunchMode;
use serde::{Deserialize, Serialize};

use super::population::Population;
use super::regime::Regime;

/// The name of cuBLASLt's first pick as a contestant, and of its fastest candidate.
pub const FIRST_PICK: &str = "cuBLASLt";
/// See [`FIRST_PICK`].
pub const FASTEST: &str = "cuBLASLt best";

/// The contestant of a row that is this library.
pub(super) const OURS: &str = "persistent-gemm";

/// The measurement of one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasRow {
    /// The population.
    pub population: Population,
    /// The problem's index in its population.
    pub index: usize,
    /// What the problem is part of. `None` if it was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The name that [`problem_name`](crate::problem_name) returns.
    pub problem: String,
    /// What bounds its time on an ideal device.
    pub regime: Regime,
    /// How launches reached the GPU. `None` if nothing was timed.
    pub launch: Option<LaunchMode>,
    /// Our kernel, as `--also` of `pgemm bench` takes it. `None` if there was none.
    pub kernel: Option<String>,
    /// Microseconds of our product. `None` if it was not timed.
    pub us: Option<f64>,
    /// The peer's contestants that computed right results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<AtlasPeer>,
    /// Contestants that did not run or computed wrong results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// A contestant that a row compares our kernel with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasPeer {
    /// [`FIRST_PICK`] or [`FASTEST`].
    pub name: String,
    /// The candidate's place in the order of cuBLASLt's heuristic. The first pick is not 0 if
    /// candidates before it computed wrong results.
    pub rank: usize,
    /// Microseconds of its product.
    pub us: f64,
    /// Its time over ours, smallest, median and largest of all rounds: above 1 ours is faster.
    pub ratio: [f64; 3],
}

/// A contestant that did not run, or computed a wrong result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// `persistent-gemm`, or `cuBLASLt #` and the candidate's place.
    pub who: String,
    /// Whether it ran, and computed a wrong result.
    pub wrong: bool,
    /// The error, or the worst element.
    pub why: String,
}

impl AtlasRow {
    /// The peer's time over ours, if both were timed.
    pub fn ratio(&self, peer: &str) -> Option<f64> {
        self.peers.iter().find(|contestant| contestant.name == peer).map(|peer| peer.ratio[1])
    }

    /// Whether our result is wrong.
    pub fn is_wrong(&self) -> bool {
        self.faults.iter().any(|fault| fault.wrong && fault.who == OURS)
    }

    /// How many of the peer's candidates computed wrong results.
    pub fn wrong_peers(&self) -> usize {
        self.faults.iter().filter(|fault| fault.wrong && fault.who != OURS).count()
    }
}
