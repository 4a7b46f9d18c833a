//! [`Peer`]: somebody whom an atlas compares with, as users name it. It is a library, and which of
//! that library's candidates for a problem counts.

use std::fmt;
use std::str::FromStr;

use crate::error::{BenchError, Result};

/// cuBLASLt's first pick in rows and tables.
pub const FIRST_PICK: &str = "cuBLASLt";
/// cuBLASLt's fastest candidate in rows and tables.
pub const FASTEST: &str = "cuBLASLt best";
/// torch in rows and tables.
pub const TORCH: &str = "torch";

/// Somebody whom an atlas compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// The first candidate of cuBLASLt's heuristic that computes a right result.
    CublasLt,
    /// The fastest of all that it returns.
    CublasLtBest,
    /// torch in a process of its own.
    Torch,
}

/// Which of a library's candidates is the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// The first that is right.
    First,
    /// The fastest that is right.
    Fastest,
}

/// All that is known of a peer.
struct Facts {
    typed: &'static str,
    name: &'static str,
    library: &'static str,
    pick: Pick,
}

impl Peer {
    /// All peers.
    pub const ALL: [Peer; 3] = [Peer::CublasLt, Peer::CublasLtBest, Peer::Torch];

    const fn facts(self) -> Facts {
        let (typed, name, library, pick) = match self {
            Peer::CublasLt => ("cublaslt", FIRST_PICK, FIRST_PICK, Pick::First),
            Peer::CublasLtBest => ("cublaslt-best", FASTEST, FIRST_PICK, Pick::Fastest),
            Peer::Torch => ("torch", TORCH, TORCH, Pick::First),
        };
        Facts { typed, name, library, pick }
    }

    /// The name that users type.
    pub const fn typed(self) -> &'static str {
        self.facts().typed
    }

    /// The name in rows and tables.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The library, as faults of its candidates name it.
    pub const fn library(self) -> &'static str {
        self.facts().library
    }

    /// Which of the library's candidates it is.
    pub(super) const fn pick(self) -> Pick {
        self.facts().pick
    }

    /// The peer by whose measurement a candidate of a library is verified, at this place of the
    /// library's order: the first pick only tries others after wrong ones.
    pub fn that_tries(library: &str, rank: Option<usize>) -> Option<Peer> {
        let pick = if rank.unwrap_or(0) == 0 { Pick::First } else { Pick::Fastest };
        Peer::ALL.into_iter().find(|peer| peer.library() == library && peer.pick() == pick)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Peer> {
        Peer::ALL.into_iter().find(|peer| peer.typed() == text).ok_or_else(|| {
            let known = Peer::ALL.map(Peer::typed).to_vec();
            BenchError::UnknownPeer { text: text.to_owned(), known }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_names_of_their_own() {
        for peer in Peer::ALL {
            assert_eq!(peer.typed().parse::<Peer>().unwrap(), peer);
            let same = |other: &&Peer| other.name() == peer.name() || other.typed() == peer.typed();
            assert_eq!(Peer::ALL.iter().filter(same).count(), 1);
        }
        let error = "cudnn".parse::<Peer>().unwrap_err().to_string();
        assert!(error.contains("'cudnn'") && error.contains("cublaslt-best, torch"), "{error}");
    }

    #[test]
    fn a_candidate_is_tried_by_the_peer_that_gets_to_it() {
        let of = Peer::that_tries;
        assert_eq!(of("cuBLASLt", Some(0)), Some(Peer::CublasLt));
        assert_eq!(of("cuBLASLt", Some(3)), Some(Peer::CublasLtBest));
        assert_eq!((of("torch", None), of("others", None)), (Some(Peer::Torch), None));
    }
}
