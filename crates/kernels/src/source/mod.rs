//! Work sources: where a CTA finds its work. Every role of the CTA walks the same sequence of
//! items on its own. An item is some or all stages of an output tile, together with the problem
//! that the tile is part of. A launched kernel has one problem ([`LaunchSource`]); a resident
//! kernel takes tiles of any of a queue's jobs ([`crate::resident`]).

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
    /// Its stages.
    pub(crate) segment: Segment<'k>,
    /// Where its tile lies, as far as the source has computed that.
    pub(crate) origin: Option<TileOrigin<'k>>,
    /// The problem of the tile.
    pub(crate) problem: Problem<'k, R>,
    /// The job that it is part of, where it comes from a queue.
    pub(crate) job: Option<Job<'k>>,
}

/// A job of a queue.
#[derive(Clone, Copy)]
pub(crate) struct Job<'k> {
    /// Its number.
    pub(crate) number: Val<'k, ty::U32>,
    /// The stamp of its record, which differs from that of every record written before.
    pub(crate) stamp: Val<'k, ty::U32>,
}

/// Who walks the items.
#[derive(Clone, Copy)]
pub(crate) enum Walker<'k> {
    /// The thread that loads operands.
    Loader,
    /// The threads of a consumer warpgroup, of which one issues the stores by TMA.
    Consumer {
        /// True in that thread.
        leads: Val<'k, ty::Bool>,
    },
    /// The lanes of a helper warp.
    Helper,
}

/// A sequence of items for each CTA.
pub(crate) trait Source<'k> {
    /// The type in which results are computed.
    type Result: Compute;

    /// What a walker remembers of the problem that it worked on last.
    type Known: Carried<'k> + Copy;

    /// What a walker knows before its first item.
    fn nothing_known(&self) -> Self::Known;

    /// Makes the problem of an item usable by this walker, which works on the item now: what it
    /// remembers of the problem. A walker that skips an item need not call it.
    fn begin(
        &self,
        item: &Item<'k, Self::Result>,
        walker: Walker<'k>,
        known: Self::Known,
    ) -> Self::Known;

    /// Prepares it: one thread, before the CTA's barrier.
    fn init(&self);

    /// Lets the launches that depend on this one begin, once the CTA is set up.
    fn release_dependents(&self) {}

    /// Waits for the launches that this one depends on.
    fn await_dependencies(&self) {}

    /// Runs `body` for each item of this CTA.
    fn for_each<C: Carried<'k> + Copy>(
        &self,
        walker: Walker<'k>,
        init: C,
        body: impl FnOnce(&Item<'k, Self::Result>, C) -> C,
    ) -> C;

    /// Runs `body` for the numbers of stages of this CTA's items, several items together where they
    /// follow each other. For helper warps, which need not know where tiles lie.
    fn for_each_run<C: Carried<'k> + Copy>(
        &self,
        init: C,
        body: impl FnOnce(Val<'k, ty::U32>, C) -> C,
    ) -> C {
        self.for_each(Walker::Helper, init, |item, carried| body(item.segment.k_count, carried))
    }

    /// Loader: fills the stages of all items. Gives the cursor behind them. One thread.
    fn load(&self, operands: &Operands<'k>) -> RingCursor<'k>;

    /// Where the tile of an item lies.
    fn origin(&self, item: &Item<'k, Self::Result>) -> TileOrigin<'k>;

    /// Consumer: its stores of an item were issued.
    fn finished(&self, _item: &Item<'k, Self::Result>, _walker: Walker<'k>) {}

    /// What helper warps of the source run, one warp each.
    fn helpers(&self) -> Vec<Box<dyn FnOnce() + '_>> {
        vec![]
    }
}
