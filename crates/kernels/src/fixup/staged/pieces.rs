//! Pieces: owners add up the partial sums of their pieces of a split tile and store the results.

use pgemm_ir::{Val, ty};

use super::{GROUP_BYTES, HANDED_OVER_WORD, Outcome, Share, StagedFixup};
use crate::compute::{AtomicSum, ConvertsTo};
use crate::coordinates::TileOrigin;
use crate::store::staged::{Store, Warpgroup};
use crate::store::write::StagedResult;
use crate::tiles::staging::STAGING_ROWS;

/// Quads of 128 registers together whose loads a thread may have in flight at once. A thread with
/// few registers has half as many in flight.
const QUADS_IN_FLIGHT: u32 = 32;

/// Up to this number of workers of a tile, a piece is a staging tile, which is read from all slots
/// at once. With more workers, a piece is one quad.
const FEW_WORKERS: u32 = 8;

/// Maximum number of quads of a thread if pieces are to be quads. Larger tiles leave no free
/// registers, and they never have that many workers.
const MOST_NARROW_QUADS: u32 = 32;

impl<'k> StagedFixup<'k> {
    /// Pieces of a tile that is added up from slots.
    pub(super) fn pieces(&self, share: &Share<'k>) -> Val<'k, ty::U32> {
        self.is_few(share).select(self.resources.staging.steps(), self.quads())
    }

    /// Whether pieces are staging tiles.
    pub(super) fn is_few(&self, share: &Share<'k>) -> Val<'k, ty::Bool> {
        let always = self.quads() > MOST_NARROW_QUADS;
        if always { self.b.constant(true) } else { share.count.lt(FEW_WORKERS + 1) }
    }

    /// Adds up and stores the pieces that the warpgroup owns, if any. The last warpgroup to arrive
    /// also stores the pieces that were handed over. Returns the parity of the next slice of C.
    pub(crate) fn store_pieces<S: AtomicSum + ConvertsTo<R>, R: StagedResult>(
        &self,
        outcome: &Outcome<'k>,
        store: &Store<'_, 'k, R>,
        origin: TileOrigin<'k>,
        words: Val<'k, ty::Smem>,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let (b, share) = (self.b, &outcome.share);
        let staging = &self.resources.staging;
        let warpgroup = store.warpgroup();
        let staging_tiles = || {
            let store_piece = |piece, c_parity| {
                let quads = staging.columns() / 8;
                let first = piece * quads;
                let slots = self.unordered.select(1, share.count);
                let sums = self.add_up::<S>(share, slots, first, quads, FEW_WORKERS);
                // The one slot of an unordered reduction is left as zeros.
                b.if_(self.unordered, || {
                    let slot = share.first.byte_offset(first * GROUP_BYTES);
                    for quad in 0..quads {
                        b.store_global(slot.byte_offset(quad * GROUP_BYTES), [S::zero(b); 4]);
                    }
                });
                let results: Vec<[Val<'k, R>; 4]> =
                    sums.into_iter().map(|quad| quad.map(S::result)).collect();
                store.piece(origin, piece, &|group| results[group as usize], c_parity);
                c_parity ^ 1
            };
            let c_parity =
                self.finish(outcome, staging.steps(), warpgroup, words, c_parity, store_piece);
            if staging.buffers() > 1 {
                // The next tile's store begins with the first buffer, without waiting for this
                // store.
                b.if_(warpgroup.leads, || b.bulk_wait_read(0));
            }
            c_parity
        };
        if self.quads() > MOST_NARROW_QUADS {
            return staging_tiles();
        }
        b.if_else(self.is_few(share) | self.unordered, staging_tiles, || {
            let groups = self.groups();
            self.finish(outcome, self.quads(), warpgroup, words, c_parity, |piece, c_parity| {
                let sums = self.add_up::<S>(share, share.count, piece, 1, QUADS_IN_FLIGHT);
                let origin = TileOrigin {
                    m: origin.m + piece / groups * STAGING_ROWS,
                    n: origin.n + piece % groups * 8,
                    ..origin
                };
                store.quad(sums[0].map(S::result), origin);
                c_parity
            })
        })
    }

    /// Runs `store` for the pieces that the warpgroup owns, and then for the pieces that were
    /// handed over, which its leader reads meanwhile. Pieces are dealt round-robin to the owners.
    fn finish(
        &self,
        outcome: &Outcome<'k>,
        pieces: u32,
        warpgroup: &Warpgroup<'k>,
        words: Val<'k, ty::Smem>,
        c_parity: Val<'k, ty::U32>,
        store: impl FnOnce(Val<'k, ty::U32>, Val<'k, ty::U32>) -> Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let owners = outcome.owners;
        let checks_handed_over = outcome.pieces.eq(1) & owners.ne(1);
        let (_, _, c_parity) = b.while_(
            (outcome.pieces, checks_handed_over, c_parity),
            |(owned, _, _)| owned.ne(0),
            |(owned, checks_handed_over, c_parity)| {
                let start = (b.constant::<ty::U32>(0), c_parity);
                let (_, c_parity) = b.for_carry(0, pieces, 1, start, |piece, (owner, c_parity)| {
                    let is_owned = (owned >> owner & 1).ne(0);
                    let c_parity = b.if_else(is_owned, || store(piece, c_parity), || c_parity);
                    let next = owner + 1;
                    (next.eq(owners).select(0, next), c_parity)
                });
                let no_owners = || b.constant(0);
                let more = if pieces == 1 {
                    no_owners()
                } else {
                    let read_handed_over = || {
                        let word = words.offset(HANDED_OVER_WORD);
                        b.if_(warpgroup.leads, || b.store_shared(word, [outcome.handed_over]));
                        warpgroup.sync();
                        self.broadcast(word)
                    };
                    b.if_else(checks_handed_over, read_handed_over, no_owners)
                };
                (more, b.constant(false), c_parity)
            },
        );
        c_parity
    }

    /// Sums of some of this thread's quads over `slots` slots, in order. At most `most` slots are
    /// loaded at once.
    fn add_up<S: AtomicSum>(
        &self,
        share: &Share<'k>,
        slots: Val<'k, ty::U32>,
        first: Val<'k, ty::U32>,
        quads: u32,
        most: u32,
    ) -> Vec<[Val<'k, S>; 4]> {
        let b = self.b;
        let slot_bytes = u64::from(self.spec.cluster.size() * self.tile_bytes());
        // The accumulators' registers are free by now.
        let plenty = self.resources.registers.is_plenty;
        let in_flight = if plenty { QUADS_IN_FLIGHT } else { QUADS_IN_FLIGHT / 2 };
        let at_once = (in_flight / quads).clamp(1, most);
        let first = share.first.byte_offset(first * GROUP_BYTES);
        let neutral = || vec![S::neutral(b); quads as usize * 4];
        let sums = b.scope("add up", || {
            b.for_carry(0, slots, at_once, neutral(), |index, mut sums| {
                let slot = first + index.to_u64() * slot_bytes;
                let loaded: Vec<_> = (0..at_once)
                    .map(|ahead| {
                        let slot = slot + u64::from(ahead) * slot_bytes;
                        let load =
                            || (0..quads).flat_map(|quad| self.load_quad(slot, quad)).collect();
                        match ahead {
                            0 => load(),
                            _ => b.if_else((index + ahead).lt(slots), load, neutral),
                        }
                    })
                    .collect();
                for values in loaded {
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = S::add(*sum, value);
                    }
                }
                sums
            })
        });
        sums.chunks(4).map(|quad| std::array::from_fn(|i| quad[i])).collect()
    }
}
