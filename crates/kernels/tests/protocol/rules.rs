//! What the protocol asks of its parties, one by one, so that each can be broken.

use crate::memory::Order;

/// The protocol; every field that is `false` or `Relaxed` breaks it.
#[derive(Clone)]
pub struct Rules {
    /// The entry is written before the doorbell is rung.
    pub entry_first: bool,
    /// The doorbell's store.
    pub ring: Order,
    /// A slot of a lane is used again when its job is done.
    pub waits_for_slot: bool,
    /// A sequentially consistent fence between the doorbell and the look at the state: submitters'; the stream's watcher's.
    pub submitter_fence: bool,
    pub watcher_fence: bool,
    /// Who finds that the kernel left looks again under the launcher's lock.
    pub looks_under_lock: bool,
    /// A launch that has left counts though its launcher has not said yet that there is one.
    pub newer_launch_counts: bool,
    /// Nobody launches once jobs are given up.
    pub aborted_stays_away: bool,
    /// A hint names the count that it belongs to, and of many tiles it does not say how many.
    pub hint_names_count: bool,
    /// The relay's loads of the doorbells.
    pub look: Order,
    /// The relay waits until a slot of the ring is free; all of its lanes do before one writes.
    pub waits_for_free: bool,
    pub slots_in_order: bool,
    /// The relay knows that all slots are free at a launch's start; later only where all is done, with such a load.
    pub begins_free: bool,
    pub frees_when_done: bool,
    pub await_done: Order,
    /// Slots are written before they are published; so is what names the last of the jobs.
    pub slots_first: bool,
    pub latest_first: bool,
    /// The store of what is published.
    pub publish: Order,
    /// The relay leaves only when all tiles are done.
    pub leaves_when_done: bool,
    /// The relay's fence between its state and the last look, and that look.
    pub relay_fence: bool,
    pub last_look: bool,
    /// It says that it runs again where it found a job.
    pub says_runs_again: bool,
    /// The tickets' loads of what is published.
    pub await_published: Order,
    /// Who reads the last job beside what is published looks whether it is that one; at the start it is none.
    pub latest_names_job: bool,
    pub latest_begins_as_none: bool,
    /// A job waits for those it comes after, with such a load.
    pub waits_for_others: bool,
    pub await_others: Order,
    /// A tile whose wait for others is broken off is given up too.
    pub gives_up_waiting: bool,
    /// A consumer's count of tiles that are done.
    pub arrive: Order,
    /// The last consumer's fence before it says that the job is done.
    pub completion_fence: bool,
    /// The completion words are written after the tile is stored; the slot is freed after it was read.
    pub completes_last: bool,
    pub frees_last: bool,
    /// It counts a slot's jobs that are done, rather than to store the last one's number.
    pub counts_freed: bool,
    /// The last CTA sets the tickets back, and clears the bit that no more will come, unless tiles are given up.
    pub resets_ticket: bool,
    pub clears_last: bool,
    pub stays_given_up: bool,
    /// A CTA's leaving.
    pub leave: Order,
}

impl Rules {
    /// All of them.
    pub fn all() -> Self {
        Rules {
            entry_first: true,
            ring: Order::Ordered,
            waits_for_slot: true,
            submitter_fence: true,
            watcher_fence: true,
            looks_under_lock: true,
            newer_launch_counts: true,
            aborted_stays_away: true,
            hint_names_count: true,
            look: Order::Ordered,
            waits_for_free: true,
            slots_in_order: true,
            begins_free: true,
            frees_when_done: true,
            await_done: Order::Ordered,
            slots_first: true,
            latest_first: true,
            publish: Order::Ordered,
            leaves_when_done: true,
            relay_fence: true,
            last_look: true,
            says_runs_again: true,
            await_published: Order::Ordered,
            latest_names_job: true,
            latest_begins_as_none: true,
            waits_for_others: true,
            await_others: Order::Ordered,
            gives_up_waiting: true,
            arrive: Order::Ordered,
            completion_fence: true,
            completes_last: true,
            frees_last: true,
            counts_freed: true,
            resets_ticket: true,
            clears_last: true,
            stays_given_up: true,
            leave: Order::Ordered,
        }
    }
}
