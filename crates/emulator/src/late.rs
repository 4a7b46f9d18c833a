//! Stores that become visible late. An ordered store to global memory stays with its warp, or with
//! the host, until the schedule makes it visible. Meanwhile the same warp may load other words, or
//! end. Stores become visible in their order. An operation that must come after them, such as a
//! sequentially consistent fence, makes them visible first. The end of a cluster waits for them.

use pgemm_ir::{Effect, Order, Space};

use crate::late_store::{LateStore, any_overlaps};
use crate::machine::{Emulator, Operation};
use crate::program::{Program, Step};
use crate::state::{Warp, WarpId};

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
        Step::Custom(step) => step.instruction.effect() != Effect::Acts,
        Step::Evaluate { .. }
        | Step::Special { .. }
        | Step::Clock { .. }
        | Step::Sleep
        | Step::Trap
        | Step::Print { .. }
        | Step::Elect { .. }
        | Step::Collective { .. }
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
        Step::AccGet { .. }
        | Step::AccSet { .. }
        | Step::TouchFragments(_)
        | Step::Atomic { .. }
        | Step::Reduce { .. }
        | Step::LoadElement { .. }
        | Step::StoreElement { .. }
        | Step::LoadMatrix { .. }
        | Step::StoreMatrix { .. }
        | Step::MbarrierInit { .. }
        | Step::MbarrierArrive { .. }
        | Step::MbarrierArriveExpect { .. }
        | Step::MbarrierArriveCluster { .. }
        | Step::MbarrierWait { .. }
        | Step::FenceMbarrierInit
        | Step::FenceProxy(_)
        | Step::FenceMapRelease
        | Step::FenceMapAcquire { .. }
        | Step::BarrierSync { .. }
        | Step::BarrierArrive { .. }
        | Step::ClusterArrive { .. }
        | Step::ClusterWait
        | Step::WarpSync
        | Step::GridDependencyWait
        | Step::PrefetchLine { .. }
        | Step::PrefetchMap { .. }
        | Step::TmaLoad(_)
        | Step::TmaStore { .. }
        | Step::BulkLoad(_)
        | Step::BulkStore { .. }
        | Step::TmaPrefetch { .. }
        | Step::CopyAsync { .. }
        | Step::CopyCommit
        | Step::CopyWait { .. }
        | Step::CopyArrive { .. }
        | Step::BulkCommit
        | Step::BulkWait { .. }
        | Step::WgmmaFence
        | Step::Wgmma(_)
        | Step::WgmmaCommit
        | Step::WgmmaWait { .. }
        | Step::WarpMma(_)
        | Step::SetMaxRegisters { .. } => false,
    }
}

impl Emulator<'_> {
    /// Keeps stores of a warp until the schedule makes them visible.
    pub(crate) fn store_late(&mut self, warp: &mut Warp, id: WarpId, stores: Vec<LateStore>) {
        self.cluster_mut(id.slot).flights += stores.len();
        let operations = stores.iter().map(|_| Operation::LateStore(id));
        self.ready_operations.extend(operations);
        warp.late_stores.extend(stores);
    }

    /// Makes all stores of a warp visible if its next step must come after them.
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

    /// Makes the oldest store of a warp visible, if one is left.
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
