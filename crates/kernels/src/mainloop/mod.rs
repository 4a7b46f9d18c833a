//! Mainloops: consumers multiply the stages of an item and leave its sums in registers. Each
//! mainloop says what it needs of the operands' tiles, which helper warps change a stage before it
//! is read, and which sums a thread holds in the end.

pub(crate) mod dmma;
pub(crate) mod ffma;
mod pipelined;
pub(crate) mod wgmma;

use pgemm_ir::{Carried, RingCursor, Val, ty};

use crate::coordinates::Segment;
use crate::operands::Operands;

/// Multiplies the stages of items.
pub(crate) trait Mainloop<'k> {
    /// What a consumer warp or thread knows of its part of a tile.
    type Consumer;
    /// The sums that a consumer has after the mainloop.
    type Sums;

    /// The operands, and the ring that they come through.
    fn operands(&self) -> &Operands<'k>;

    /// Initialises the barriers: one thread.
    fn init(&self);

    /// Consumer: multiplies all stages of a segment. `ahead`, where there is one, runs when a
    /// ring's worth of stages is left; `issued` when nothing is left to issue, though it may still
    /// run.
    fn multiply<T>(
        &self,
        consumer: &Self::Consumer,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
        ahead: Option<impl FnOnce() -> T>,
        issued: impl FnOnce(),
    ) -> (Self::Sums, RingCursor<'k>, Option<T>);

    /// Warps of the producer's warpgroup, besides the loader's, that change each stage before
    /// consumers read it.
    fn helper_warps(&self) -> u32 {
        0
    }

    /// Helper warp `warp`: changes `k_count` stages.
    fn help(
        &self,
        _warp: Val<'k, ty::U32>,
        _k_count: Val<'k, ty::U32>,
        cursor: RingCursor<'k>,
    ) -> RingCursor<'k> {
        cursor
    }
}

/// Sums of a thread in one row of D, whose elements of C are loaded together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Row, counted from the thread's first.
    pub(crate) row: u32,
    /// Of each sum its column, counted from the thread's first, and its place among the thread's
    /// sums.
    pub(crate) values: Vec<(u32, usize)>,
}

/// A mainloop that leaves each thread sums of some elements of a tile.
pub(crate) trait RegisterSums<'k>: Mainloop<'k> {
    /// The thread's sums, row by row.
    fn groups(&self) -> &[Group];

    /// What consumer warp `warp` knows.
    fn worker(&self, warp: Val<'k, ty::U32>) -> Self::Consumer;

    /// Row and column of the thread's first sum in a tile.
    fn first_element(&self, consumer: &Self::Consumer) -> [Val<'k, ty::U32>; 2];

    /// Neighbouring sums that lie in a row side by side.
    fn vector(&self) -> u32 {
        1
    }
}

/// Runs `stage` for the stages of a segment from number `first` on, and `ahead`, where there is
/// one, when a ring of `ring` stages is left.
fn each_stage<'k, C: Carried<'k>, T>(
    b: &'k pgemm_ir::KernelBuilder,
    ring: u32,
    segment: &Segment<'k>,
    first: u32,
    start: C,
    ahead: Option<impl FnOnce() -> T>,
    stage: impl Fn(C) -> C,
) -> (C, Option<T>) {
    let stages = |first: Val<'k, ty::U32>, end: Val<'k, ty::U32>, at| {
        b.for_carry(first, end, 1, at, |_, at| stage(at))
    };
    let first = b.constant(first);
    match ahead {
        None => (stages(first, segment.k_count, start), None),
        Some(ahead) => {
            let left = segment.k_count.max(ring + 1) - ring;
            let at = stages(first, left, start);
            let found = ahead();
            (stages(left, segment.k_count, at), Some(found))
        }
    }
}
