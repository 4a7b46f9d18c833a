//! Mainloops. Consumers multiply the stages of an item and leave its sums in registers. Each
//! mainloop declares the operand tiles that it needs, and the helper warps that change a stage
//! before it is read. It also says which sums each thread holds at the end.

pub(crate) mod dmma;
pub(crate) mod ffma;
mod pipelined;
pub(crate) mod wgmma;

use pgemm_ir::{Carried, RingCursor, Val, ty};

use crate::coordinates::Segment;
use crate::operands::Operands;

/// A mainloop multiplies the stages of items.
pub(crate) trait Mainloop<'k> {
    /// The state of a consumer warp or thread, which says what part of a tile it computes.
    type Consumer;
    /// The sums of a consumer after the mainloop.
    type Sums;

    /// The operands and their ring.
    fn operands(&self) -> &Operands<'k>;

    /// Initialises the barriers. One thread calls it.
    fn init(&self);

    /// Consumer: multiplies all stages of a segment. `ahead`, if given, runs when as many stages
    /// are left as the ring has. `issued` runs when all MMAs are issued, although they may not have
    /// completed.
    fn multiply<T>(
        &self,
        consumer: &Self::Consumer,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
        ahead: Option<impl FnOnce() -> T>,
        issued: impl FnOnce(),
    ) -> (Self::Sums, RingCursor<'k>, Option<T>);

    /// Number of helper warps. They belong to the producer's warpgroup, in addition to the loader's
    /// warp. They change each stage before consumers read it.
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

/// Sums of a thread in one row of D. Their elements of C are loaded together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The row, counted from the thread's first row.
    pub(crate) row: u32,
    /// For each sum, its column and its index among the thread's sums. Columns are counted from the
    /// thread's first column.
    pub(crate) values: Vec<(u32, usize)>,
}

/// A mainloop that leaves each thread with the sums of some elements of a tile, in registers.
pub(crate) trait RegisterSums<'k>: Mainloop<'k> {
    /// The thread's sums, row by row.
    fn groups(&self) -> &[Group];

    /// The state of consumer warp `warp`.
    fn worker(&self, warp: Val<'k, ty::U32>) -> Self::Consumer;

    /// Row and column of the thread's first sum in a tile.
    fn first_element(&self, consumer: &Self::Consumer) -> [Val<'k, ty::U32>; 2];

    /// Number of sums that are contiguous in a row.
    fn vector(&self) -> u32 {
        1
    }
}

/// Runs `stage` for the stages of a segment, from number `first` on. `ahead`, if given, runs when
/// `ring` stages are left.
fn each_stage<'k, C: Carried<'k>, T>(
    b: &'k pgemm_ir::KernelBuilder,
    ring: u32,
    segment: &Segment<'k>,
    first: u32,
    start: C,
    ahead: Option<impl FnOnce() -> T>,
    stage: impl Fn(C) -> C,
) -> (C, Option<T>) {
    each_group(b, (ring, 1), segment, first, start, ahead, |at, _| stage(at))
}

/// Runs `stages` for groups of so many stages of a segment, from number `first` on, and then for
/// each stage that is left. It gets the number of stages. `ahead`, if given, runs when `ring` stages
/// are left.
fn each_group<'k, C: Carried<'k>, T>(
    b: &'k pgemm_ir::KernelBuilder,
    (ring, group): (u32, u32),
    segment: &Segment<'k>,
    first: u32,
    start: C,
    ahead: Option<impl FnOnce() -> T>,
    stages: impl Fn(C, u32) -> C,
) -> (C, Option<T>) {
    let stages = |first: Val<'k, ty::U32>, end: Val<'k, ty::U32>, at| {
        if group == 1 {
            return b.for_carry(first, end, 1, at, |_, at| stages(at, 1));
        }
        let left = end - (end - first) % group;
        let at = b.for_carry(first, left, group, at, |_, at| stages(at, group));
        b.for_carry(left, end, 1, at, |_, at| stages(at, 1))
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
