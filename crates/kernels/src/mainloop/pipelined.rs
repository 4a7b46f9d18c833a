//! Software-pipelined mainloops with fragments in registers. While the fragments of one step are
//! multiplied, the fragments of the next step are loaded. The next step may be in the next stage.

use pgemm_ir::{Carried, KernelBuilder, LoadSlot, RingCursor, Val, ty};

use crate::coordinates::Segment;
use crate::operands::Operands;

/// A stage, and the index of a step in it.
pub(super) type Step<'k> = (Val<'k, ty::U32>, u32);

/// The fragments of a mainloop, and how each step loads and multiplies them.
pub(super) trait Fragments<'k> {
    /// The state of a consumer, which says what part of a tile it computes.
    type Consumer;
    /// The fragments of one step.
    type StepFragments: Carried<'k>;
    /// The sums of a consumer.
    type Sums: Carried<'k>;

    /// The operands.
    fn operands(&self) -> &Operands<'k>;

    /// Number of steps of a stage.
    fn steps(&self) -> u32;

    /// Sums that are all zero.
    fn zeros(&self) -> Self::Sums;

    /// Waits until a stage can be read.
    fn wait(&self, cursor: RingCursor<'k>) -> LoadSlot<'k>;

    /// Loads the fragments of a step.
    fn load(&self, consumer: &Self::Consumer, at: Step<'k>) -> Self::StepFragments;

    /// Multiplies the fragments of one step, and loads the fragments of the next.
    fn step(
        &self,
        consumer: &Self::Consumer,
        sums: &mut Self::Sums,
        current: Self::StepFragments,
        next: Step<'k>,
    ) -> Self::StepFragments;

    /// Multiplies the fragments of the last step.
    fn last_step(&self, sums: &mut Self::Sums, current: Self::StepFragments);
}

/// Multiplies all stages of a segment. Returns the sums, and the cursor after the last stage.
pub(super) fn multiply<'k, F: Fragments<'k>>(
    b: &'k KernelBuilder,
    fragments: &F,
    consumer: &F::Consumer,
    segment: &Segment<'k>,
    cursor: RingCursor<'k>,
) -> (F::Sums, RingCursor<'k>) {
    let operands = fragments.operands();
    let ring = operands.ring();
    // Multiplies all steps of a stage but the last. The fragments of the last step are then in
    // registers, so the stage is free.
    let all_but_last = |sums: &mut F::Sums, first: F::StepFragments, slot: LoadSlot<'k>| {
        let stage = slot.stage();
        let steps = 1..fragments.steps();
        let last = steps
            .fold(first, |current, step| fragments.step(consumer, sums, current, (stage, step)));
        operands.release_after_loads(slot);
        last
    };
    let slot = fragments.wait(cursor);
    let first = fragments.load(consumer, (slot.stage(), 0));
    let start = (fragments.zeros(), first, slot, ring.advance(cursor));
    let (mut sums, current, slot, cursor) =
        b.for_carry(1, segment.k_count, 1, start, |_, (mut sums, current, slot, cursor)| {
            let current = all_but_last(&mut sums, current, slot);
            let slot = fragments.wait(cursor);
            let next = fragments.step(consumer, &mut sums, current, (slot.stage(), 0));
            (sums, next, slot, ring.advance(cursor))
        });
    let current = all_but_last(&mut sums, current, slot);
    fragments.last_step(&mut sums, current);
    (sums, cursor)
}
