//! Fix-up is the reduction of tiles that are split along K over several workers. [`staged`] reduces
//! tiles of wgmma kernels by pieces. [`threads`] reduces tiles of kernels that store D from
//! registers, thread by thread.

pub(crate) mod staged;
pub(crate) mod threads;

use pgemm_ir::{KernelBuilder, Val, carried, ty};

use crate::launch::{Work, Workspace};
use crate::spec::Spec;

/// Alignment of partial sums in bytes.
const PARTIALS_ALIGN: u32 = 256;

impl Spec {
    /// The memory for partial sums that `work` needs.
    pub fn workspace(&self, work: &Work) -> Workspace {
        if work.split_tiles == 0 {
            Workspace { bytes: 0, zeroed: 0 }
        } else if self.wgmma().is_some() {
            staged::workspace(self, work)
        } else {
            threads::workspace(self, work)
        }
    }
}

carried! {
    /// A worker's share of a split tile in the workspace, for one consumer warpgroup's part of the
    /// tile.
    #[derive(Clone, Copy)]
    pub(crate) struct Share<'k> {
        /// The counter of arrivals.
        arrived: Val<'k, ty::U64>,
        /// Addresses of this thread's sums: in the first contributor's slot, in this worker's slot,
        /// and in the other worker's slot if there are two workers.
        first: Val<'k, ty::U64>,
        own: Val<'k, ty::U64>,
        other: Val<'k, ty::U64>,
        /// Number of workers that arrive.
        count: Val<'k, ty::U32>,
        /// Whether all sums are added up from slots. Otherwise the other worker's sums are added to
        /// those in registers.
        from_slots: Val<'k, ty::Bool>,
    }
}

impl<'k> Share<'k> {
    /// The share of a whole tile, which is not used.
    fn none(b: &'k KernelBuilder) -> Self {
        let at = b.constant(0);
        let (count, from_slots) = (b.constant(1), b.constant(false));
        Share { arrived: at, first: at, own: at, other: at, count, from_slots }
    }

    /// Whether exactly one arrival is missing when the counter stands at `place`.
    fn is_last(&self, place: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        (place % self.count).eq(self.count - 1)
    }
}
