//! Stores that others see late: an ordered store to global memory stays with its warp, or the host, until the schedule lets it
//! go, and meanwhile the same warp may load other words, or end. Stores go in their order, and whatever else orders a later
//! operation after them, such as a sequentially consistent fence, lets them go first. The end of a cluster waits for them.

use std::collections::VecDeque;

use pgemm_ir::{Order, Space};

use crate::machine::{Emulator, Operation};
use crate::memory::Memory;
use crate::ordering::{Publications, Published};
use crate::program::{Program, Step};
use crate::state::{Warp, WarpId};

/// A word, or a few that lie side by side, on its way to memory.
pub(crate) struct LateStore {
    pub(crate) address: u64,
    pub(crate) data: Box<[u8]>,
    /// What it passes on.
    pub(crate) released: Option<Published>,
}

impl LateStore {
    fn overlaps(&self, address: u64, bytes: u64) -> bool {
        self.address < address + bytes && address < self.address + self.data.len() as u64
    }

    /// Lets others see it.
    pub(crate) fn arrive(self, memory: &mut Memory, published: &mut Publications) {
        if let Some(place) = memory.locate(self.address, self.data.len()) {
            memory.store(place, &self.data);
        }
        let location = (None, self.address);
        match self.released {
            Some(released) => published.insert(location, vec![released]),
            None => published.remove(&location),
        };
    }
}

/// Whether any of some stores is to a range.
pub(crate) fn any_overlaps(stores: &VecDeque<LateStore>, address: u64, bytes: u64) -> bool {
    stores.iter().any(|store| store.overlaps(address, bytes))
}

/// Whether a warp's stores may still be late when it makes its next step.
fn may_stay(program: &Program, warp: &Warp) -> bool {
    match &program.steps[warp.pc] {
        Step::Load { access, size, address, .. } => {
            let bytes = u64::from(size * access.vector);
            let other =
                |lane| !any_overlaps(&warp.late_stores, warp.get(program, *address, lane), bytes);
            access.space == Space::Shared
                || access.order != Order::Weak && warp.active_lanes().all(other)
        }
        Step::Store { access, .. } => access.space == Space::Shared || access.order != Order::Weak,
        Step::Fence(order, _) => *order != Order::SequentiallyConsistent,
        Step::Evaluate { .. }
        | Step::Special { .. }
        | Step::Clock { .. }
        | Step::Sleep
        | Step::Elect { .. }
        | Step::ShuffleFirst { .. }
        | Step::Copy(_)
        | Step::Jump(_)
        | Step::Branch { .. }
        | Step::Split { .. }
        | Step::Else { .. }
        | Step::EndSplit
        | Step::EnterLoop
        | Step::LoopTest { .. }
        | Step::ExitLoop
        | Step::Exit => true,
        _ => false,
    }
}

impl Emulator<'_> {
    /// Keeps the stores of a warp from others for now.
    pub(crate) fn store_late(&mut self, warp: &mut Warp, id: WarpId, stores: Vec<LateStore>) {
        self.cluster_mut(id.slot).flights += stores.len();
        let operations = stores.iter().map(|_| Operation::LateStore(id));
        self.ready_operations.extend(operations);
        warp.late_stores.extend(stores);
    }

    /// Lets all stores of a warp go if its next step must come after them.
    pub(crate) fn order_late_stores(&mut self, program: &Program, warp: &mut Warp, slot: usize) {
        if warp.late_stores.is_empty() || may_stay(program, warp) {
            return;
        }
        self.cluster_mut(slot).flights -= warp.late_stores.len();
        for store in warp.late_stores.drain(..) {
            store.arrive(self.memory, &mut self.published);
        }
        self.words_changed();
    }

    /// Lets the oldest store of a warp go, if one is left.
    pub(crate) fn advance_late_store(&mut self, id: WarpId) {
        let Some(cluster) = &mut self.clusters[id.slot] else { return };
        let stores = &mut cluster.ctas[id.rank].warps[id.warp].late_stores;
        let Some(store) = stores.pop_front() else { return };
        cluster.flights -= 1;
        store.arrive(self.memory, &mut self.published);
        self.retire_cluster(id.slot);
        self.words_changed();
    }
}
