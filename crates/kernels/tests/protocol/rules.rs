//! The rules of the protocol, one by one, so that each can be broken.

use crate::memory::Order;

/// The rules that hold. A field that is `false` or `Relaxed` breaks its rule.
#[derive(Clone)]
pub struct Rules {
    /// The entry is written before the doorbell is rung.
    pub entry_first: bool,
    /// The doorbell's store.
    pub ring: Order,
    /// A slot of a lane is reused only after its job is done.
    pub waits_for_slot: bool,
    /// There is a sequentially consistent fence between the doorbell and the check of the state, in
    /// submitters and in the stream's watcher.
    pub submitter_fence: bool,
    pub watcher_fence: bool,
    /// A thread that finds that the kernel has left checks again under the launcher's lock.
    pub looks_under_lock: bool,
    /// A launch that has left counts even if its launcher has not announced it yet.
    pub newer_launch_counts: bool,
    /// No thread launches after jobs were given up.
    pub aborted_stays_away: bool,
    /// A hint names the count that it belongs to, and it does not give large numbers of tiles.
    pub hint_names_count: bool,
    /// The relay's loads of the doorbells.
    pub look: Order,
    /// The relay waits until a slot of the ring is free. All of its lanes do so before one writes.
    pub waits_for_free: bool,
    pub slots_in_order: bool,
    /// The relay knows that all slots are free at the start of a launch. Later it knows so only if
    /// all jobs are done, by a load of this order.
    pub begins_free: bool,
    pub frees_when_done: bool,
    pub await_done: Order,
    /// Slots are written before they are published, and so is the word that names the last job.
    pub slots_first: bool,
    pub latest_first: bool,
    /// The store of the published word.
    pub publish: Order,
    /// The relay leaves only when all tiles are done.
    pub leaves_when_done: bool,
    /// The relay has a fence between the store of its state and its last check, and it does this
    /// check.
    pub relay_fence: bool,
    pub last_look: bool,
    /// The relay reports that it is running again if it found a job.
    pub says_runs_again: bool,
    /// The tickets' loads of the published word.
    pub await_published: Order,
    /// A reader of the word beside the published word checks that it names the last job. At the
    /// start it names no job.
    pub latest_names_job: bool,
    pub latest_begins_as_none: bool,
    /// A job waits for its dependencies, by a load of this order.
    pub waits_for_others: bool,
    pub await_others: Order,
    /// A tile whose wait for dependencies is aborted is given up too.
    pub gives_up_waiting: bool,
    /// A consumer's count of completed tiles.
    pub arrive: Order,
    /// The last consumer's fence before it reports that the job is done.
    pub completion_fence: bool,
    /// The completion words are written after the tile is stored. The slot is freed after it was
    /// read.
    pub completes_last: bool,
    pub frees_last: bool,
    /// The last consumer counts the completed jobs of a slot, instead of storing the number of the
    /// last one.
    pub counts_freed: bool,
    /// The last CTA resets the tickets. It clears the bit that says that no more will come, unless
    /// tiles are given up.
    pub resets_ticket: bool,
    pub clears_last: bool,
    pub stays_given_up: bool,
    /// The count of CTAs that leave.
    pub leave: Order,
}

impl Rules {
    /// All rules.
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
