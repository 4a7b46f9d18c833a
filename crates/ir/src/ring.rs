//! [`Ring`]: a ring of shared-memory stages between one TMA producer and the warps that read them.
//!
//! Each stage has a `full` mbarrier (one producer arrival and the bytes of its copies) and an
//! `empty` mbarrier (one arrival of each consumer warp of every CTA that the stage is filled for).
//! Stage and phase travel in a [`RingCursor`].
//!
//! Warps may fill a stage too, beside TMA or in its place ([`Ring::filled_by`]). Each of them waits
//! for a [`StoreSlot`], stores its part, and passes the slot on.
//!
//! There are two ways to read a stage, with a slot each. A [`ReadSlot`] is read by batches of MMAs,
//! and only the retired batch that owns it releases it. A [`LoadSlot`] is read by ordinary loads,
//! and no batch can own it. A [`Relay`] comes between the producer and the readers if other warps
//! change stages before they are read.

use crate::builder::KernelBuilder;
use crate::carried;
use crate::copies::Copies;
use crate::mma_queue::{BatchSource, Retired};
use crate::smem::SmemRequest;
use crate::value::{IntoVal, Val, ty};
use crate::{MBARRIER_BYTES, RegionId, RegionKind, Special};

/// The barriers of a ring of `stages` stages.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    stages: u32,
    full: RegionId,
    empty: RegionId,
    /// Arrivals that fill a stage.
    full_arrivals: u32,
    /// Arrivals that free a stage.
    empty_arrivals: u32,
}

carried! {
    /// The place of a producer or consumer in a ring.
    #[derive(Clone, Copy)]
    pub struct RingCursor<'k> {
        stage: Val<'k, ty::U32>,
        /// Parity of the ring's round, 0 in the first.
        phase: Val<'k, ty::U32>,
    }
}

carried! {
    /// A stage that batches of MMAs may read. It goes back through [`Ring::release`] once the batch
    /// that owns it has retired; other batches borrow it
    /// ([`MmaQueue::issue_borrowing`](crate::MmaQueue::issue_borrowing)).
    ///
    /// Loads are no reason to free it:
    ///
    /// ```compile_fail,E0308
    /// # use pgemm_ir::{KernelBuilder, Release, Ring};
    /// # fn consumer<'k>(b: &'k KernelBuilder, ring: &Ring, to: Release<'k>) {
    /// let cursor = ring.start(b);
    /// let slot = ring.wait_full(b, cursor);
    /// ring.release_after_loads(b, slot, to); // expected `LoadSlot`, found `ReadSlot`
    /// # }
    /// ```
    ///
    /// Nor can it go back before its batch has retired:
    ///
    /// ```compile_fail,E0308
    /// # use pgemm_ir::{KernelBuilder, Release, Ring};
    /// # fn consumer<'k>(b: &'k KernelBuilder, ring: &Ring, to: Release<'k>) {
    /// let cursor = ring.start(b);
    /// let slot = ring.wait_full(b, cursor);
    /// ring.release(b, slot, to); // expected `Retired<ReadSlot>`, found `ReadSlot`
    /// # }
    /// ```
    pub struct ReadSlot<'k> {
        stage: Val<'k, ty::U32>,
    }
}

impl<'k> ReadSlot<'k> {
    /// Stage index.
    pub fn stage(&self) -> Val<'k, ty::U32> {
        self.stage
    }
}

impl BatchSource for ReadSlot<'_> {}

carried! {
    /// A stage that ordinary loads may read. It goes back through [`Ring::release_after_loads`].
    ///
    /// A batch of MMAs cannot own it, since the release does not wait for batches:
    ///
    /// ```compile_fail,E0599
    /// # use pgemm_ir::{KernelBuilder, LoadSlot, Pending, Ring};
    /// # fn consumer<'k>(b: &'k KernelBuilder, ring: &Ring, pending: &mut Pending<LoadSlot<'k>>) {
    /// let cursor = ring.start(b);
    /// let slot = ring.wait_full_for_loads(b, cursor);
    /// pending.issue(b, slot, |batch| ()); // `LoadSlot` is no `BatchSource`
    /// # }
    /// ```
    pub struct LoadSlot<'k> {
        stage: Val<'k, ty::U32>,
    }
}

impl<'k> LoadSlot<'k> {
    /// Stage index.
    pub fn stage(&self) -> Val<'k, ty::U32> {
        self.stage
    }
}

/// A free stage that a warp fills by ordinary stores. It goes to the readers through
/// [`Ring::stored`].
pub struct StoreSlot<'k> {
    stage: Val<'k, ty::U32>,
}

impl<'k> StoreSlot<'k> {
    /// Stage index.
    pub fn stage(&self) -> Val<'k, ty::U32> {
        self.stage
    }
}

impl Ring {
    /// Declares the barriers of a ring: regions `<name>.full` and `<name>.empty`. `empty_arrivals`
    /// is the number of arrivals that free a stage. No other ring has this name.
    #[track_caller]
    pub fn new(b: &KernelBuilder, name: &str, stages: u32, empty_arrivals: u32) -> Self {
        b.declare_name("ring", name);
        let full = stage_barriers(b, name, "full", stages);
        let empty = stage_barriers(b, name, "empty", stages);
        Ring { stages, full, empty, full_arrivals: 1, empty_arrivals }
    }

    /// The same ring with stages that `warps` warps fill by stores. `copies` says whether TMA
    /// fills a part of each stage too.
    pub fn filled_by(self, warps: u32, copies: bool) -> Self {
        Ring { full_arrivals: warps + u32::from(copies), ..self }
    }

    /// Initialises the barriers: one thread, before the fence and the CTA or cluster barrier.
    #[track_caller]
    pub fn init(&self, b: &KernelBuilder) {
        for stage in 0..self.stages {
            let offset = stage * MBARRIER_BYTES;
            b.smem_address(self.full).offset(offset).mbarrier_init(self.full_arrivals);
            b.smem_address(self.empty).offset(offset).mbarrier_init(self.empty_arrivals);
        }
    }

    /// The first stage of the first round.
    #[track_caller]
    pub fn start<'k>(&self, b: &'k KernelBuilder) -> RingCursor<'k> {
        RingCursor { stage: b.constant(0), phase: b.constant(0) }
    }

    /// The next stage.
    #[track_caller]
    pub fn advance<'k>(&self, cursor: RingCursor<'k>) -> RingCursor<'k> {
        let next = cursor.stage + 1;
        let wraps = next.eq(self.stages);
        RingCursor {
            stage: wraps.select(0, next),
            phase: wraps.select(cursor.phase ^ 1, cursor.phase),
        }
    }

    /// The stage `count` further on.
    #[track_caller]
    pub fn skip<'k>(
        &self,
        cursor: RingCursor<'k>,
        count: impl IntoVal<'k, ty::U32>,
    ) -> RingCursor<'k> {
        let ahead = cursor.stage + count;
        RingCursor { stage: ahead % self.stages, phase: cursor.phase ^ (ahead / self.stages % 2) }
    }

    /// Producer: waits until the stage is free, announces the bytes that will fill it, and starts
    /// the copies of `fill`, which gets the stage's index. The bytes are those of the copies. One
    /// thread.
    #[track_caller]
    pub fn fill<'k>(
        &self,
        b: &'k KernelBuilder,
        cursor: RingCursor<'k>,
        fill: impl FnOnce(Val<'k, ty::U32>, &Copies<'k>),
    ) {
        barrier(b, self.empty, cursor.stage).mbarrier_wait(cursor.phase ^ 1);
        let full = barrier(b, self.full, cursor.stage);
        full.mbarrier_expect_copies(|copies| fill(cursor.stage, copies));
    }

    /// Producer warp: waits until the stage is free, to fill a part of it by stores.
    #[track_caller]
    pub fn wait_free<'k>(&self, b: &'k KernelBuilder, cursor: RingCursor<'k>) -> StoreSlot<'k> {
        barrier(b, self.empty, cursor.stage).mbarrier_wait(cursor.phase ^ 1);
        StoreSlot { stage: cursor.stage }
    }

    /// Producer warp: passes on a stage whose part its lanes have stored. What they stored comes
    /// before the consumers' reads. The whole warp.
    #[track_caller]
    pub fn stored<'k>(&self, b: &'k KernelBuilder, slot: StoreSlot<'k>) {
        arrive_after_accesses(b, barrier(b, self.full, slot.stage));
    }

    /// Producer, at its end: waits until consumers have freed every stage, so that no arrival can
    /// reach a CTA that has left its cluster.
    #[track_caller]
    pub fn drain<'k>(&self, b: &'k KernelBuilder, cursor: RingCursor<'k>) {
        b.at_caller(|| {
            b.for_carry(0, self.stages, 1, cursor, |_, cursor| {
                barrier(b, self.empty, cursor.stage).mbarrier_wait(cursor.phase ^ 1);
                self.advance(cursor)
            });
        });
    }

    /// Consumer: waits until the stage is full, to read it with batches of MMAs.
    #[track_caller]
    pub fn wait_full<'k>(&self, b: &'k KernelBuilder, cursor: RingCursor<'k>) -> ReadSlot<'k> {
        barrier(b, self.full, cursor.stage).mbarrier_wait(cursor.phase);
        ReadSlot { stage: cursor.stage }
    }

    /// Consumer: waits until the stage is full, to read it with ordinary loads only.
    #[track_caller]
    pub fn wait_full_for_loads<'k>(
        &self,
        b: &'k KernelBuilder,
        cursor: RingCursor<'k>,
    ) -> LoadSlot<'k> {
        barrier(b, self.full, cursor.stage).mbarrier_wait(cursor.phase);
        LoadSlot { stage: cursor.stage }
    }

    /// Consumer warp: frees a stage whose reader has retired. Each lane for which `rank` gives a
    /// CTA of the cluster arrives there; without clusters the first lane arrives here.
    #[track_caller]
    pub fn release<'k>(
        &self,
        b: &'k KernelBuilder,
        retired: Retired<ReadSlot<'k>>,
        to: Release<'k>,
    ) {
        let empty = barrier(b, self.empty, retired.into_inner().stage);
        b.at_caller(|| to.arrive(b, empty));
    }

    /// Consumer warp: frees a stage that its lanes have read with loads. The whole warp.
    #[track_caller]
    pub fn release_after_loads<'k>(
        &self,
        b: &'k KernelBuilder,
        slot: LoadSlot<'k>,
        to: Release<'k>,
    ) {
        let empty = barrier(b, self.empty, slot.stage);
        b.at_caller(|| {
            order_accesses(b);
            to.arrive(b, empty);
        });
    }
}

/// The mbarriers of `stages` stages, a region of their own.
#[track_caller]
fn stage_barriers(b: &KernelBuilder, name: &str, which: &str, stages: u32) -> RegionId {
    let request = SmemRequest::whole(stages * MBARRIER_BYTES, MBARRIER_BYTES);
    b.region(format!("{name}.{which}"), RegionKind::Mbarrier, request)
}

#[track_caller]
fn barrier<'k>(
    b: &'k KernelBuilder,
    region: RegionId,
    stage: Val<'k, ty::U32>,
) -> Val<'k, ty::Smem> {
    b.smem_address(region).offset(stage * MBARRIER_BYTES)
}

/// The first lane arrives for the warp, whose loads and stores come before later copies to the
/// stage.
#[track_caller]
fn arrive_after_accesses<'k>(b: &'k KernelBuilder, barrier: Val<'k, ty::Smem>) {
    b.at_caller(|| {
        order_accesses(b);
        b.if_(b.special(Special::Lane).eq(0), || barrier.mbarrier_arrive());
    });
}

/// Orders the accesses of all lanes of a warp before an arrival of one of them, and so before later
/// copies to the stage. A barrier alone does not order these: on an H200 the copy that refilled a
/// stage overtook the last loads from it.
#[track_caller]
fn order_accesses(b: &KernelBuilder) {
    b.at_caller(|| {
        b.fence_proxy_async();
        b.warp_sync();
    });
}

/// A further barrier for each stage of a ring. Warps that change stages after TMA has filled them
/// arrive at it, and consumers wait for it.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    stages: u32,
    ready: RegionId,
    /// Warps that change each stage.
    warps: u32,
}

impl Relay {
    /// Declares the barriers, region `<name>.ready`. `warps` warps pass each stage on.
    #[track_caller]
    pub fn new(b: &KernelBuilder, name: &str, ring: &Ring, warps: u32) -> Self {
        let ready = stage_barriers(b, name, "ready", ring.stages);
        Relay { stages: ring.stages, ready, warps }
    }

    /// Initialises the barriers: one thread, before the fence and the CTA's barrier.
    #[track_caller]
    pub fn init(&self, b: &KernelBuilder) {
        for stage in 0..self.stages {
            let offset = stage * MBARRIER_BYTES;
            b.smem_address(self.ready).offset(offset).mbarrier_init(self.warps);
        }
    }

    /// Passes a stage on: what the warp's lanes wrote there comes before consumers' reads and
    /// before the next copies. The whole warp.
    #[track_caller]
    pub fn pass<'k>(&self, b: &'k KernelBuilder, slot: LoadSlot<'k>) {
        arrive_after_accesses(b, barrier(b, self.ready, slot.stage));
    }

    /// Consumer: waits until all warps have passed the stage on.
    #[track_caller]
    pub fn wait<'k>(&self, b: &'k KernelBuilder, cursor: RingCursor<'k>) -> LoadSlot<'k> {
        barrier(b, self.ready, cursor.stage).mbarrier_wait(cursor.phase);
        LoadSlot { stage: cursor.stage }
    }
}

/// The producers that the release of a stage tells.
#[derive(Clone, Copy)]
pub enum Release<'k> {
    /// This CTA's producer, by one lane.
    Here {
        /// True in one lane of the warp.
        first_lane: Val<'k, ty::Bool>,
    },
    /// Every CTA whose producer fills this CTA's stages, one lane each.
    Cluster {
        /// True in the lanes that arrive.
        arrives: Val<'k, ty::Bool>,
        /// The lane's CTA rank.
        rank: Val<'k, ty::U32>,
    },
}

impl<'k> Release<'k> {
    /// Arrives at the producers' barriers for a stage.
    #[track_caller]
    fn arrive(self, b: &'k KernelBuilder, empty: Val<'k, ty::Smem>) {
        b.at_caller(|| match self {
            Release::Here { first_lane } => b.if_(first_lane, || empty.mbarrier_arrive()),
            Release::Cluster { arrives, rank } => {
                b.if_(arrives, || empty.in_cta(rank).mbarrier_arrive());
            }
        });
    }
}
