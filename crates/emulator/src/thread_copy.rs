//! Asynchronous copies of threads in flight, and what a warp knows of its own.

use std::rc::Rc;

use pgemm_ir::LocId;

use crate::clock::{Epoch, Knowledge};
use crate::report::Actor;
use crate::shadow::{Access, Proxy};

/// The copies of a warp. Each instruction of the warp is one, for all lanes that execute it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WarpCopies {
    /// The component of their accesses in clocks. The time of an access is the copy's number.
    pub(crate) component: Option<u32>,
    /// Copies issued; their numbers begin with 1.
    pub(crate) issued: u32,
    /// Copies that have not landed.
    pub(crate) unfinished: Vec<u32>,
    /// Copies issued when each group was closed.
    pub(crate) closed: Vec<u32>,
    /// Copies that the warp has waited for, or that an mbarrier counts.
    pub(crate) covered: u32,
    /// Place of the latest copy.
    pub(crate) loc: Option<LocId>,
}

/// A copy in flight.
pub(crate) struct ThreadCopy {
    /// Slot of the cluster, rank of the CTA, and warp.
    pub(crate) slot: usize,
    pub(crate) rank: usize,
    pub(crate) warp: usize,
    /// Number of the cluster, which clocks use.
    pub(crate) cluster: u32,
    pub(crate) actor: Actor,
    pub(crate) loc: LocId,
    pub(crate) knowledge: Rc<Knowledge>,
    pub(crate) component: u32,
    /// The copy's number; of an arrival, that of the last copy before it.
    pub(crate) number: u32,
    pub(crate) kind: ThreadCopyKind,
}

pub(crate) enum ThreadCopyKind {
    /// Moves bytes: destination, source, bytes of the source, of so many in all.
    Move(Vec<(u64, u64, u32)>, u32),
    /// Arrives at mbarriers once the copies before it have landed: index and arrivals.
    Arrive(Vec<(usize, u32)>),
}

impl ThreadCopy {
    pub(crate) fn access(&self) -> Access {
        Access {
            epoch: Epoch { cluster: self.cluster, component: self.component, time: self.number },
            proxy: Proxy::Generic,
            strong: false,
            actor: self.actor,
            loc: self.loc,
        }
    }
}
