//! Builder methods for synchronisation: mbarriers, warp and cluster barriers, fences, dependent
//! grids.

use crate::builder::KernelBuilder;
use crate::value::{IntoVal, Val, ty};
use crate::{Op, Order, ProxyFence, Scope};

impl<'k> Val<'k, ty::Smem> {
    /// Initialises the mbarrier here to expect `count` arrivals per phase.
    #[track_caller]
    pub fn mbarrier_init(self, count: u32) {
        self.builder.effect(Op::MbarrierInit { count }, vec![self.id]);
    }

    /// Arrives once for each active thread.
    #[track_caller]
    pub fn mbarrier_arrive(self) {
        self.builder.effect(Op::MbarrierArrive, vec![self.id]);
    }

    /// Announces `bytes` that TMA will complete on this phase, and arrives.
    /// [`mbarrier_expect_copies`](Self::mbarrier_expect_copies) computes them from the copies.
    #[track_caller]
    pub fn mbarrier_arrive_expect(self, bytes: u32) {
        self.builder.effect(Op::MbarrierArriveExpect { bytes }, vec![self.id]);
    }

    /// Arrives once for each thread of the warp, when all asynchronous copies that the thread has
    /// started so far are complete. The whole warp.
    #[track_caller]
    pub fn mbarrier_arrive_after_copies(self) {
        self.builder.effect(Op::CopyArrive, vec![self.id]);
    }

    /// Blocks until the phase of this parity has completed.
    #[track_caller]
    pub fn mbarrier_wait(self, parity: impl IntoVal<'k, ty::U32>) {
        let parity = parity.into_val(self.builder);
        self.builder.effect(Op::MbarrierWait, vec![self.id, parity.id]);
    }
}

impl<'k> Val<'k, ty::ClusterSmem> {
    /// Arrives at an mbarrier anywhere in the cluster.
    #[track_caller]
    pub fn mbarrier_arrive(self) {
        self.builder.effect(Op::MbarrierArriveCluster, vec![self.id]);
    }
}

impl KernelBuilder {
    /// Makes mbarrier initialisation visible to the cluster and to TMA.
    #[track_caller]
    pub fn fence_mbarrier_init(&self) {
        self.effect(Op::FenceMbarrierInit, vec![]);
    }

    /// Orders this thread's generic shared-memory accesses before later accesses by TMA and wgmma.
    #[track_caller]
    pub fn fence_proxy_async(&self) {
        self.effect(Op::FenceProxy(ProxyFence::SharedCta), vec![]);
    }

    /// Orders this thread's generic global-memory accesses before later accesses by TMA.
    #[track_caller]
    pub fn fence_proxy_async_global(&self) {
        self.effect(Op::FenceProxy(ProxyFence::Global), vec![]);
    }

    /// A memory fence, acquire-release or sequentially consistent.
    #[track_caller]
    pub fn fence(&self, order: Order, scope: Scope) {
        self.effect(Op::Fence(order, scope), vec![]);
    }

    /// Orders this thread's generic writes before uses of tensor maps by threads that acquire what
    /// it then releases.
    #[track_caller]
    pub fn fence_map_release(&self, scope: Scope) {
        self.effect(Op::FenceMapRelease(scope), vec![]);
    }

    /// Suspends the thread for about this many nanoseconds.
    #[track_caller]
    pub fn sleep<'k>(&'k self, nanoseconds: impl IntoVal<'k, ty::U32>) {
        let nanoseconds = nanoseconds.into_val(self);
        self.effect(Op::Sleep, vec![nanoseconds.id]);
    }

    /// Nanoseconds by the clock of the whole GPU.
    #[track_caller]
    pub fn clock(&self) -> Val<'_, ty::U64> {
        self.value(Op::Clock, vec![])
    }

    /// Waits for all lanes of the warp, and orders what they do to memory.
    #[track_caller]
    pub fn warp_sync(&self) {
        self.effect(Op::WarpSync, vec![]);
    }

    /// Arrives at the cluster barrier, without ordering memory if `relaxed`.
    #[track_caller]
    pub fn cluster_arrive(&self, relaxed: bool) {
        self.effect(Op::ClusterArrive { relaxed }, vec![]);
    }

    /// Waits for the cluster barrier.
    #[track_caller]
    pub fn cluster_wait(&self) {
        self.effect(Op::ClusterWait, vec![]);
    }

    /// Waits until the grids that this one depends on have ended and their writes are visible.
    /// Before it, only prefetches of tensor maps, and of boxes and lines into L2, may touch global
    /// memory.
    #[track_caller]
    pub fn grid_dependency_wait(&self) {
        self.effect(Op::GridDependencyWait, vec![]);
    }

    /// Lets the grids that depend on this one be scheduled, once every CTA has come here or exited.
    #[track_caller]
    pub fn grid_dependency_launch(&self) {
        self.effect(Op::GridDependencyLaunch, vec![]);
    }
}
