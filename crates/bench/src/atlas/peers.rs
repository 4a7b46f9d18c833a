//! [`Peers`]: the peers of an atlas with their libraries, each opened once.

use persistent_gemm::driver::Device;
use serde::{Deserialize, Serialize};

use super::library::Library;
use super::peer::{FIRST_PICK, Peer, Pick, TORCH};
use super::torch::Torch;
use crate::cublaslt::CublasLt;
use crate::cublaslt_facts::CublasLtVersion;
use crate::error::{BenchError, Result};

/// The libraries of peers, and what opens them.
const LIBRARIES: [(&str, Open); 2] = [
    (FIRST_PICK, |device| Ok(Box::new(CublasLt::open(device)?))),
    (TORCH, |device| Ok(Box::new(Torch::open(device)?))),
];

type Open = fn(&Device) -> Result<Box<dyn Library>>;

/// The peers of an atlas.
#[derive(Default)]
pub struct Peers {
    wanted: Vec<Peer>,
    libraries: Vec<Box<dyn Library>>,
    missing: Vec<BenchError>,
}

/// A peer and the version of its library, as files record them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerVersion {
    /// The name of the peer.
    pub name: String,
    /// The name of its library, and its version.
    pub library: String,
}

impl Peers {
    /// Opens the libraries of these peers. Without a Python that has torch the run goes on with the
    /// other peers, if there are any, and [`missing`](Self::missing) says why.
    ///
    /// # Errors
    /// [`BenchError::CublasLtNotFound`] and the other errors of [`CublasLt::open`], and
    /// [`BenchError::NoTorch`] if torch would be the only peer.
    pub fn open(device: &Device, wanted: &[Peer]) -> Result<Peers> {
        let mut peers = Peers::default();
        for (name, open) in LIBRARIES {
            let of_library: Vec<Peer> = Peer::ALL
                .into_iter()
                .filter(|peer| peer.library() == name && wanted.contains(peer))
                .collect();
            if of_library.is_empty() {
                continue;
            }
            match open(device) {
                Ok(library) => {
                    peers.libraries.push(library);
                    peers.wanted.extend(of_library);
                }
                Err(error @ BenchError::NoTorch { .. }) => peers.missing.push(error),
                Err(error) => return Err(error),
            }
        }
        match peers.missing.pop() {
            Some(error) if peers.wanted.is_empty() => return Err(error),
            error => peers.missing.extend(error),
        }
        Ok(peers)
    }

    /// Why peers that were asked for take no part.
    pub fn missing(&self) -> &[BenchError] {
        &self.missing
    }

    /// The peers and the versions of their libraries.
    pub fn versions(&self) -> Vec<PeerVersion> {
        let version = |peer: &Peer| {
            let library = self.version_of(peer.library())?;
            Some(PeerVersion { name: peer.name().to_owned(), library })
        };
        self.wanted.iter().filter_map(version).collect()
    }

    /// The name and version of a library, by the name that faults give it.
    pub fn version_of(&self, library: &str) -> Option<String> {
        self.library(library).map(Library::version)
    }

    /// The name and version of each library, and where it was found.
    pub fn places(&self) -> Vec<(String, String)> {
        self.libraries.iter().map(|library| (library.version(), library.place())).collect()
    }

    /// The version of cuBLASLt, if it is among the libraries.
    pub fn cublaslt(&self) -> Option<CublasLtVersion> {
        self.library(FIRST_PICK)?.cublaslt()
    }

    /// The peers.
    pub(super) fn wanted(&self) -> &[Peer] {
        &self.wanted
    }

    /// The libraries.
    pub(super) fn libraries(&self) -> impl Iterator<Item = &dyn Library> {
        self.libraries.iter().map(|library| &**library)
    }

    /// The library of this name.
    pub(super) fn library(&self, name: &str) -> Option<&dyn Library> {
        self.libraries().find(|library| library.name() == name)
    }

    /// Whether all candidates of a library take part, and not only the first that is right.
    pub(super) fn wants_all(&self, library: &str) -> bool {
        let all = |peer: &&Peer| peer.library() == library && peer.pick() == Pick::Fastest;
        self.wanted.iter().any(|peer| all(&peer))
    }
}
