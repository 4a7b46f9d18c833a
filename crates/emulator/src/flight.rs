//! A TMA operation in flight.

use std::rc::Rc;

use pgemm_ir::{LocId, ReductionOp};

use crate::clock::{Epoch, Knowledge};
use crate::fault::Fault;
use crate::program::TensorMap;
use crate::report::{Actor, ReportKind};
use crate::shadow::{Access, Proxy};

/// Where a box lies in its tensor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BoxPlace {
    /// First element of the box, innermost dimension first.
    pub(crate) first: [i64; 5],
    /// What is added along the axes of an im2col map.
    pub(crate) offsets: [i64; 3],
}

/// A TMA operation in flight.
pub(crate) struct Flight {
    pub(crate) slot: usize,
    /// Number of the cluster, which clocks use.
    pub(crate) cluster: u32,
    /// Rank of the CTA whose shared memory is used.
    pub(crate) rank: usize,
    pub(crate) actor: Actor,
    pub(crate) loc: LocId,
    pub(crate) knowledge: Rc<Knowledge>,
    pub(crate) map: Rc<TensorMap>,
    pub(crate) place: BoxPlace,
    /// First byte of the box in shared memory.
    pub(crate) shared: u32,
    pub(crate) kind: FlightKind,
}

pub(crate) enum FlightKind {
    /// Completes on an mbarrier of the destination CTA.
    Load { barrier: usize },
    /// Belongs to a bulk group of a thread.
    Store {
        warp: usize,
        lane: u32,
        group: usize,
        /// How elements are combined with those in global memory, if not replaced.
        reduction: Option<ReductionOp>,
        staged: Option<Vec<u8>>,
    },
}

impl Flight {
    /// Whether it is a load into a CTA.
    pub(crate) fn lands_in(&self, slot: usize, rank: usize) -> bool {
        matches!(self.kind, FlightKind::Load { .. }) && (self.slot, self.rank) == (slot, rank)
    }

    pub(crate) fn access(&self, component: u32, time: u32) -> Access {
        Access {
            epoch: Epoch { cluster: self.cluster, component, time },
            proxy: Proxy::Async,
            strong: false,
            actor: self.actor,
            loc: self.loc,
        }
    }

    pub(crate) fn fault(&self, kind: ReportKind, message: String, what: &str) -> Box<Fault> {
        let sites = vec![(self.actor, self.loc, what.to_owned())];
        Box::new(Fault { kind, message, sites, notes: Vec::new() })
    }
}
