//! Rules of the host's side of the protocol that can be broken, one at a time, between its code and
//! the words that it shares with the kernel.

use std::sync::atomic::Ordering;

use pgemm_kernels::resident::layout::{Entry, LANE_SLOTS, doorbell};

use crate::engine::queue::{COMPLETIONS, COMPLETIONS_AT};

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A job counts as done once the job before it is, so that its slot is used again too early.
    SlotTooEarly,
    /// The doorbell is rung before the entries are written.
    DoorbellFirst,
    /// The doorbell's store does not release the entries.
    DoorbellRelaxed,
    /// The hint names the next record.
    HintOfOtherRecord,
    /// The hint says one tile more.
    HintOfOtherTiles,
    /// The hint names the count before.
    HintOfOtherCount,
    /// The doorbell of a stream's lane says one job less, or one more.
    LaneCountLow,
    LaneCountHigh,
    /// A job does not wait for the second of the jobs that it comes after.
    SecondIgnored,
    /// Completion words are read without acquire.
    CompletionRelaxed,
    /// A stream's doorbell is enqueued without the release fence before.
    StreamUnfenced,
    /// There is no fence between the doorbell and the look whether the kernel has left.
    LookUnfenced,
}

impl Fault {
    /// The place, the order and an addend of a load.
    pub(super) fn of_load(
        fault: Option<Fault>,
        at: usize,
        order: Ordering,
    ) -> (usize, Ordering, u32) {
        let word = at.wrapping_sub(COMPLETIONS_AT) / 4;
        if at < COMPLETIONS_AT || word >= COMPLETIONS {
            return (at, order, 0);
        }
        match fault {
            Some(Fault::SlotTooEarly) => {
                let slots = LANE_SLOTS as usize;
                let before = word / slots * slots + (word + slots - 1) % slots;
                (COMPLETIONS_AT + before * 4, order, 1)
            }
            Some(Fault::CompletionRelaxed) => (at, Ordering::Relaxed, 0),
            _ => (at, order, 0),
        }
    }

    /// The word and the order of a store.
    pub(super) fn of_store(
        fault: Option<Fault>,
        at: usize,
        word: u32,
        order: Ordering,
    ) -> (u32, Ordering) {
        let is_hint = at == doorbell::HINT_AT as usize;
        let names_job = word & doorbell::LOOK != doorbell::LOOK;
        match fault {
            Some(Fault::DoorbellRelaxed) if is_hint || Self::is_ring(at) => {
                (word, Ordering::Relaxed)
            }
            Some(Fault::HintOfOtherRecord) if is_hint && names_job => (word + 1, order),
            Some(Fault::HintOfOtherTiles) if is_hint && names_job => {
                (word + (1 << doorbell::TILES_BIT), order)
            }
            Some(Fault::HintOfOtherCount) if is_hint && names_job => {
                (word.wrapping_sub(1 << doorbell::COUNT_BIT), order)
            }
            _ => (word, order),
        }
    }

    /// Whether a store is that of the host's doorbell.
    pub(super) fn is_ring(at: usize) -> bool {
        at == doorbell::HOST_AT as usize
    }

    /// The words of an entry.
    pub(super) fn of_entry(fault: Option<Fault>, words: &[u32]) -> Vec<u32> {
        let mut words = words.to_vec();
        if fault == Some(Fault::SecondIgnored) {
            words[Entry::After as usize + 2..].fill(0);
        }
        words
    }

    /// The word of a stream's doorbell.
    pub(super) fn of_count(fault: Option<Fault>, count: u32) -> u32 {
        match fault {
            Some(Fault::LaneCountLow) => count - 1,
            Some(Fault::LaneCountHigh) => count + 1,
            _ => count,
        }
    }

    /// Whether a fence is left out.
    pub(super) fn skips_fence(fault: Option<Fault>, order: Ordering) -> bool {
        match fault {
            Some(Fault::StreamUnfenced) => order == Ordering::Release,
            Some(Fault::LookUnfenced) => order == Ordering::SeqCst,
            _ => false,
        }
    }
}
