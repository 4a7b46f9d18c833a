//! The arrivals of workers. They are counted for each split tile, and they decide which worker
//! stores which pieces.

use pgemm_ir::{AtomicOp, Order, Scope, Val, ty};

use super::{Share, StagedFixup};
use crate::coordinates::Segment;
use crate::store::staged::Warpgroup;

/// How often a worker without other work polls for the arrival of all others: some 20 µs.
const POLLS: u32 = 32;

/// The most owners of a tile's pieces. Each has a bit in the word through which pieces are handed
/// over. The remaining bit says that all workers have arrived.
const OWNERS: u32 = 31;
const COMPLETE: u32 = 1 << OWNERS;

impl<'k> StagedFixup<'k> {
    /// Counts the arrival of the warpgroup. Returns three values: the owners, as bits, whose pieces
    /// it stores at once; the number of owners; and, in the leader, the owners that handed their
    /// pieces over. A tile that is added up in registers has one owner, which is the last worker to
    /// arrive.
    pub(super) fn arrive(
        &self,
        segment: &Segment<'k>,
        share: &Share<'k>,
        warpgroup: &Warpgroup<'k>,
        word: Val<'k, ty::Smem>,
    ) -> (Val<'k, ty::U32>, Val<'k, ty::U32>, Val<'k, ty::U32>) {
        let b = self.b;
        // The tile has one owner if it is added up in registers or lies in one slot.
        let owners = share.count.min(self.pieces(share)).min(OWNERS);
        let alone = self.unordered | !share.from_slots;
        let owners = alone.select(1, owners);
        let polls = segment.last.select(POLLS, 0);
        let handed_over = b.if_else(
            warpgroup.leads,
            || {
                let (whose, handed_over) = self.lead(share, owners, polls);
                b.store_shared(word, [whose]);
                handed_over
            },
            || b.constant(0),
        );
        warpgroup.sync();
        (self.broadcast(word), owners, handed_over)
    }

    /// Counts the arrival of the warpgroup. One thread calls it. Returns the number of earlier
    /// arrivals, modulo two generations.
    pub(super) fn count_in(&self, share: &Share<'k>) -> Val<'k, ty::U32> {
        let end = share.count * 2 - 1;
        self.b.atomic(AtomicOp::Inc, share.arrived, end, Order::AcquireRelease, Scope::Gpu)
    }

    /// Leader: counts the arrival of the warpgroup, and polls up to `polls` times for the arrival
    /// of all others. Returns the owners, as bits, whose pieces the warpgroup finishes at once and,
    /// in the last worker to arrive, the owners that handed their pieces over.
    fn lead(
        &self,
        share: &Share<'k>,
        owners: Val<'k, ty::U32>,
        polls: Val<'k, ty::U32>,
    ) -> (Val<'k, ty::U32>, Val<'k, ty::U32>) {
        let (b, arrived, count) = (self.b, share.arrived, share.count);
        let place = self.count_in(share);
        let generation = place / count;
        let handed_over = |generation: Val<'k, ty::U32>| arrived.byte_offset(generation * 4 + 4);
        let add = |bits| {
            b.atomic(AtomicOp::Add, handed_over(generation), bits, Order::Relaxed, Scope::Gpu)
        };
        let all_arrived = || (b.load_acquire(arrived) / count).ne(generation);
        let zero = b.constant::<ty::U32>(0);
        // The last worker to arrive, which waits least, is owner 0.
        let owner = count - 1 - place % count;
        let own = b.constant::<ty::U32>(1) << owner.min(OWNERS);
        let waited = b.if_else(
            owner.ne(0) & owner.lt(owners),
            || {
                let (complete, _) = b.while_(
                    (b.constant::<ty::Bool>(false), zero),
                    |(complete, polled)| !complete & polled.lt(polls),
                    |(_, polled)| (all_arrived(), polled + 1),
                );
                let late = || {
                    b.if_else(
                        add(own).ge(COMPLETE),
                        || {
                            // All have arrived. Their sums are visible once the last arrival is.
                            b.while_(all_arrived(), |arrived_all| !arrived_all, |_| all_arrived());
                            own
                        },
                        || zero,
                    )
                };
                b.if_else(complete, || own, late)
            },
            || zero,
        );
        let handed_over = b.if_else(
            owner.eq(0) & owners.ne(1),
            || {
                b.store_global(handed_over(generation ^ 1), [zero]);
                add(b.constant(COMPLETE))
            },
            || zero,
        );
        (owner.eq(0).select(own, waited), handed_over)
    }
}
