//! Work sources tell a CTA which work to do. Every role of the CTA walks the same sequence of items
//! by itself. An item is some or all of the stages of an output tile, together with the problem of
//! the tile. A launched kernel has one problem ([`LaunchSource`]). A resident kernel takes tiles
//! from any job of a queue ([`crate::resident`]).

mod launch;

use pgemm_ir::{Carried, RingCursor, Val, ty};

pub(crate) use self::launch::LaunchSource;
use crate::compute::Compute;
use crate::coordinates::{Segment, TileOrigin};
use crate::operands::Operands;
use crate::problem::Problem;

/// One item of work.
#[derive(Clone)]
pub(crate) struct Item<'k, R> {
    /// The stages of the item.
    pub(crate) segment: Segment<'k>,
    /// The place of the tile in D, if the source has computed it.
    pub(crate) origin: Option<TileOrigin<'k>>,
    /// The problem of the tile.
    pub(crate) problem: Problem<'k, R>,
    /// The job of the tile, if the source is a queue.
    pub(crate) job: Option<Job<'k>>,
}

/// A job of a queue.
#[derive(Clone, Copy)]
pub(crate) struct Job<'k> {
    /// The number of the job.
    pub(crate) number: Val<'k, ty::U32>,
    /// The stamp of the job's record. It differs from the stamps of all earlier records.
    pub(crate) stamp: Val<'k, ty::U32>,
}

/// The role that walks the items.
#[derive(Clone, Copy)]
pub(crate) enum Walker<'k> {
    /// The thread that loads operands.
    Loader,
    /// The threads of a consumer warpgroup, one of which issues the stores by TMA.
    Consumer {
        /// True in the thread that issues the stores.
        leads: Val<'k, ty::Bool>,
    },
    /// The lanes of a helper warp.
    Helper,
}

/// A sequence of items of work for each CTA.
pub(crate) trait Source<'k> {
    /// The type in which results are computed.
    type Result: Compute;

    /// The walker's state of the last problem that it worked on.
    type ProblemState: Carried<'k> + Copy;

    /// The state of a walker before its first item.
    fn initial_state(&self) -> Self::ProblemState;

    /// Makes the problem of an item usable by this walker, which works on the item now. Returns the
    /// walker's state of the problem. A walker that skips an item need not call this.
    fn begin(
        &self,
        item: &Item<'k, Self::Result>,
        walker: Walker<'k>,
        problem_state: Self::ProblemState,
    ) -> Self::ProblemState;

    /// Initialises the source. One thread calls it before the CTA's barrier.
    fn init(&self);

    /// Lets dependent launches begin once the CTA is set up.
    fn release_dependents(&self) {}

    /// Waits for the launches that this launch depends on.
    fn await_dependencies(&self) {}

    /// Runs `body` for each item of this CTA.
    fn for_each<C: Carried<'k> + Copy>(
        &self,
        walker: Walker<'k>,
        init: C,
        body: impl FnOnce(&Item<'k, Self::Result>, C) -> C,
    ) -> C;

    /// Runs `body` for the stage counts of this CTA's items. Consecutive items may be joined to one
    /// count. Helper warps use it, since they need not know the places of tiles.
    fn for_each_run<C: Carried<'k> + Copy>(
        &self,
        init: C,
        body: impl FnOnce(Val<'k, ty::U32>, C) -> C,
    ) -> C {
        self.for_each(Walker::Helper, init, |item, carried| body(item.segment.k_count, carried))
    }

    /// Loader: fills the stages of all items. Returns the cursor after the last stage. One thread
    /// calls it, or the producer's warpgroup if threads load an operand.
    fn load(&self, operands: &Operands<'k>) -> RingCursor<'k>;

    /// The place in D of an item's tile.
    fn origin(&self, item: &Item<'k, Self::Result>) -> TileOrigin<'k>;

    /// Consumer: called after the stores of an item were issued.
    fn finished(&self, _item: &Item<'k, Self::Result>, _walker: Walker<'k>) {}

    /// The code of the source's helper warps, with one entry for each warp.
    fn helpers(&self) -> Vec<Box<dyn FnOnce() + '_>> {
        vec![]
    }
}
