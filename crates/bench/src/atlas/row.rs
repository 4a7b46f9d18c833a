//! [`AtlasRow`]: what was measured of one problem of an atlas.

use std::fmt;

use persistent_gemm::measure::LaunchMode;
use serde::{Deserialize, Serialize};

use super::peer::{Peer, Pick};
use super::population::Population;
use super::regime::Regime;

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
    /// The peers that computed right results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<AtlasPeer>,
    /// Contestants that did not run or computed wrong results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// A peer that a row compares our kernel with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasPeer {
    /// The name of the [`Peer`].
    pub name: String,
    /// The candidate's place in the order of the library's heuristic. The first pick is not 0 if
    /// candidates before it computed wrong results. `None` of a library that has no such order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// What ran, in the library's own terms. `None` if it does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Microseconds of its product.
    pub us: f64,
    /// Its time over ours, smallest, median and largest of all rounds: above 1 ours is faster.
    pub ratio: [f64; 3],
}

/// A contestant that did not run, or computed a wrong result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// `persistent-gemm`, or the library of a [`Peer`].
    pub who: String,
    /// The candidate's place in the order of the library's heuristic, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// What ran, in the library's own terms. `None` if it does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Whether it ran, and computed a wrong result.
    pub wrong: bool,
    /// Whether it does not offer such a product, so that there was nothing to run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// The error, or the worst element.
    pub why: String,
}

impl AtlasRow {
    /// What was measured of a peer.
    pub fn of(&self, peer: Peer) -> Option<&AtlasPeer> {
        self.peers.iter().find(|measured| measured.name == peer.name())
    }

    /// The peer's time over ours, if both were timed.
    pub fn ratio(&self, peer: Peer) -> Option<f64> {
        self.of(peer).map(|peer| peer.ratio[1])
    }

    /// Whether our result is wrong.
    pub fn is_wrong(&self) -> bool {
        self.faults.iter().any(|fault| fault.wrong && fault.is_ours())
    }

    /// Whether one of the candidates that the peer tried computed a wrong result. The fastest of a
    /// library tries all, its first pick those up to one that is right.
    pub fn is_wrong_of(&self, peer: Peer) -> bool {
        let right = self.of(peer).map(|measured| measured.rank);
        self.faults.iter().filter(|fault| fault.wrong && fault.who == peer.library()).any(|fault| {
            peer.pick() == Pick::Fastest || right.is_none_or(|right| fault.rank < right)
        })
    }

    /// Whether the peer took no part, though none of its results is wrong: it refused, or failed.
    pub fn is_without(&self, peer: Peer) -> bool {
        let of_peer = |fault: &Fault| fault.who == peer.library();
        self.of(peer).is_none() && self.faults.iter().any(of_peer) && !self.is_wrong_of(peer)
    }

    /// How many of the peers' candidates computed wrong results.
    pub fn wrong_peers(&self) -> usize {
        self.faults.iter().filter(|fault| fault.wrong && !fault.is_ours()).count()
    }
}

impl Fault {
    /// Whether it is a fault of this library.
    pub fn is_ours(&self) -> bool {
        self.who == OURS
    }

    /// What is the matter, in a word or three.
    pub fn what(&self) -> &'static str {
        match (self.wrong, self.refused) {
            (true, _) => "is wrong",
            (false, true) => "refused",
            (false, false) => "did not run",
        }
    }
}

/// Who it is: the library, and the candidate's place.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.who)?;
        self.rank.map_or(Ok(()), |rank| write!(f, " #{rank}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::peer::{FASTEST, FIRST_PICK, TORCH};
    use super::*;

    fn row(peers: &[(&str, Option<usize>)], faults: &[(&str, Option<usize>, bool)]) -> AtlasRow {
        let peers = peers.iter().map(|&(name, rank)| AtlasPeer {
            name: name.into(),
            rank,
            algorithm: None,
            us: 1.0,
            ratio: [1.0; 3],
        });
        let faults = faults.iter().map(|&(who, rank, wrong)| Fault {
            who: who.into(),
            rank,
            algorithm: None,
            wrong,
            refused: false,
            why: "because".into(),
        });
        AtlasRow {
            population: Population::Any,
            index: 0,
            label: None,
            problem: "p".into(),
            regime: Regime::Compute,
            launch: None,
            kernel: None,
            us: Some(1.0),
            peers: peers.collect(),
            faults: faults.collect(),
        }
    }

    #[test]
    fn a_wrong_candidate_counts_for_the_peers_that_tried_it() {
        let wrong = |row: &AtlasRow| Peer::ALL.map(|peer| row.is_wrong_of(peer));
        let both = [(FIRST_PICK, Some(0)), (FASTEST, Some(2)), (TORCH, None)];
        assert_eq!(wrong(&row(&both, &[(FIRST_PICK, Some(1), true)])), [false, true, false]);
        let second = [(FIRST_PICK, Some(1)), (FASTEST, Some(1))];
        assert_eq!(wrong(&row(&second, &[(FIRST_PICK, Some(0), true)])), [true, true, false]);
        assert_eq!(wrong(&row(&[], &[(FIRST_PICK, Some(0), true)])), [true, true, false]);
        let of_torch = row(&both[..2], &[(TORCH, None, true)]);
        assert_eq!(wrong(&of_torch), [false, false, true]);
        assert!(!of_torch.is_without(Peer::Torch) && of_torch.wrong_peers() == 1);
        let ours = row(&both, &[(OURS, None, true)]);
        assert!(wrong(&ours) == [false; 3] && ours.is_wrong() && ours.wrong_peers() == 0);
    }

    #[test]
    fn a_peer_that_took_no_part_is_not_wrong() {
        let mut refused = row(&[(FIRST_PICK, Some(0))], &[(TORCH, None, false)]);
        refused.faults[0].refused = true;
        assert_eq!(Peer::ALL.map(|peer| refused.is_without(peer)), [false, false, true]);
        assert!(!refused.is_wrong_of(Peer::Torch));
        assert_eq!(refused.faults[0].what(), "refused");
    }
}
