//! A warpgroup: its accumulators, and its queue of wgmma.

use std::collections::VecDeque;

use pgemm_ir::{Kernel, LocId, Wgmma};

use crate::clock::Knowledge;
use crate::report::Actor;
use crate::tile::Tile;

/// The wgmma state of one warpgroup.
pub(crate) struct Warpgroup {
    pub(crate) component: u32,
    /// Operations that are not executed yet.
    pub(crate) queue: VecDeque<Pending>,
    /// Operations executed.
    pub(crate) executed: u64,
    /// The operation at the front has been made ready.
    pub(crate) scheduled: bool,
    pub(crate) accumulators: Vec<Tile>,
}

/// An operation that some warps of the warpgroup have issued.
pub(crate) struct Pending {
    pub(crate) op: Wgmma,
    /// Number of its group.
    pub(crate) group: u32,
    pub(crate) a: Option<u64>,
    pub(crate) b: u64,
    pub(crate) accumulate: bool,
    /// Registers of A as 32-bit words, by warp, register and lane.
    pub(crate) fragments: Vec<u32>,
    pub(crate) issued_by: u32,
    /// The knowledge that all warps that issued it have in common.
    pub(crate) knowledge: Knowledge,
    pub(crate) actor: Actor,
    pub(crate) loc: LocId,
}

impl Warpgroup {
    pub(crate) fn new(kernel: &Kernel, component: u32) -> Self {
        Warpgroup {
            component,
            queue: VecDeque::new(),
            executed: 0,
            scheduled: false,
            accumulators: kernel.accumulators.iter().map(Tile::new).collect(),
        }
    }
}
