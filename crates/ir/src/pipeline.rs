//! [`Ring`]: a ring of shared-memory stages between one TMA producer and warpgroups that read them. Each stage has a
//! `full` mbarrier (one producer arrival and the bytes of its copies) and an `empty` mbarrier (one arrival of each consumer
//! warp of every CTA that the stage is filled for). Stage and phase travel in a [`RingCursor`]. A [`Relay`] comes between
//! the two where stages are changed before they are read.

use crate::builder::KernelBuilder;
use crate::carried::Carried;
use crate::smem::SmemRequest;
use crate::value::{IntoVal, Val, ty};
use crate::warpgroup::Retired;
use crate::{RegionId, RegionKind, Special, ValueId};

const MBARRIER_BYTES: u32 = 8;

/// The barriers of a ring of `stages` stages.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    stages: u32,
    full: RegionId,
    empty: RegionId,
    /// Arrivals that free a stage.
    empty_arrivals: u32,
}

/// Where a producer or consumer stands in a ring.
#[derive(Clone, Copy)]
pub struct RingCursor<'k> {
    stage: Val<'k, ty::U32>,
    /// Parity of the ring's round, 0 in the first.
    phase: Val<'k, ty::U32>,
}

/// A stage that its producer may fill.
#[derive(Clone, Copy)]
pub struct WriteSlot<'k> {
    /// Stage index.
    pub stage: Val<'k, ty::U32>,
    /// The mbarrier on which the copies complete.
    pub full: Val<'k, ty::Smem>,
}

/// A stage that a consumer may read. It goes back through [`Ring::release`] once the batch that read it has retired.
pub struct ReadSlot<'k> {
    stage: Val<'k, ty::U32>,
}

impl<'k> ReadSlot<'k> {
    /// Stage index.
    pub fn stage(&self) -> Val<'k, ty::U32> {
        self.stage
    }
}

impl Ring {
    /// Declares the barriers. `empty_arrivals` is the number of arrivals that free a stage.
    pub fn new(b: &KernelBuilder, stages: u32, empty_arrivals: u32) -> Self {
        let barriers = || SmemRequest::whole(stages * MBARRIER_BYTES, MBARRIER_BYTES);
        Ring {
            stages,
            full: b.region("full", RegionKind::Mbarrier, barriers()),
            empty: b.region("empty", RegionKind::Mbarrier, barriers()),
            empty_arrivals,
        }
    }

    /// Initialises the barriers: one thread, before the fence and the CTA or cluster barrier.
    #[track_caller]
    pub fn init(&self, b: &KernelBuilder) {
        for stage in 0..self.stages {
            let offset = stage * MBARRIER_BYTES;
            b.smem_address(self.full).offset(offset).mbarrier_init(1);
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

    /// Producer: waits until the stage is free and announces the bytes that will fill it. One thread.
    #[track_caller]
    pub fn acquire<'k>(
        &self,
        b: &'k KernelBuilder,
        cursor: RingCursor<'k>,
        bytes: u32,
    ) -> WriteSlot<'k> {
        self.barrier(b, self.empty, cursor.stage).mbarrier_wait(cursor.phase ^ 1);
        let full = self.barrier(b, self.full, cursor.stage);
        full.mbarrier_arrive_expect(bytes);
        WriteSlot { stage: cursor.stage, full }
    }

    /// Producer, at its end: waits until consumers have freed every stage, so that no arrival can reach a CTA that has
    /// left its cluster.
    #[track_caller]
    pub fn drain<'k>(&self, b: &'k KernelBuilder, cursor: RingCursor<'k>) {
        b.at_caller(|| {
            b.for_carry(0, self.stages, 1, cursor, |_, cursor| {
                self.barrier(b, self.empty, cursor.stage).mbarrier_wait(cursor.phase ^ 1);
                self.advance(cursor)
            });
        });
    }

    /// Consumer: waits until the stage is full.
    #[track_caller]
    pub fn wait_full<'k>(&self, b: &'k KernelBuilder, cursor: RingCursor<'k>) -> ReadSlot<'k> {
        self.barrier(b, self.full, cursor.stage).mbarrier_wait(cursor.phase);
        ReadSlot { stage: cursor.stage }
    }

    /// Consumer warp: frees a stage whose reader has retired. Each lane for which `rank` gives a CTA of the cluster
    /// arrives there; without clusters the first lane arrives here.
    #[track_caller]
    pub fn release<'k>(
        &self,
        b: &'k KernelBuilder,
        retired: Retired<ReadSlot<'k>>,
        to: Release<'k>,
    ) {
        let empty = self.barrier(b, self.empty, retired.into_inner().stage);
        b.at_caller(|| match to {
            Release::Here { first_lane } => b.if_(first_lane, || empty.mbarrier_arrive()),
            Release::Cluster { arrives, rank } => {
                b.if_(arrives, || empty.in_cta(rank).mbarrier_arrive());
            }
        });
    }

    /// Consumer warp: frees a stage of this CTA that its lanes have read with loads. The whole warp.
    #[track_caller]
    pub fn release_after_loads<'k>(&self, b: &'k KernelBuilder, slot: ReadSlot<'k>) {
        let empty = self.barrier(b, self.empty, slot.stage);
        b.at_caller(|| {
            // A barrier alone does not keep the copy that fills the stage anew behind these loads: on an H200 it overtook the last
            // of them. The first lane then speaks for all.
            b.fence_proxy_async();
            b.warp_sync();
            b.if_(b.special(Special::Lane).eq(0), || empty.mbarrier_arrive());
        });
    }

    #[track_caller]
    fn barrier<'k>(
        &self,
        b: &'k KernelBuilder,
        region: RegionId,
        stage: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Smem> {
        b.smem_address(region).offset(stage * MBARRIER_BYTES)
    }
}

/// A further barrier for each stage of a ring, between warps that change what TMA brought and consumers, which then wait
/// for it and not for the copies.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    stages: u32,
    ready: RegionId,
    /// Warps that change each stage.
    warps: u32,
}

impl Relay {
    /// Declares the barriers; `warps` warps pass each stage on.
    pub fn new(b: &KernelBuilder, ring: &Ring, warps: u32) -> Self {
        let barriers = SmemRequest::whole(ring.stages * MBARRIER_BYTES, MBARRIER_BYTES);
        let ready = b.region("ready", RegionKind::Mbarrier, barriers);
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

    /// Passes a stage on: what the warp's lanes wrote there comes before consumers' reads and before the next copies. The
    /// whole warp.
    #[track_caller]
    pub fn pass<'k>(&self, b: &'k KernelBuilder, slot: ReadSlot<'k>) {
        let ready = self.barrier(b, slot.stage);
        b.at_caller(|| {
            b.fence_proxy_async();
            b.warp_sync();
            b.if_(b.special(Special::Lane).eq(0), || ready.mbarrier_arrive());
        });
    }

    /// Consumer: waits until all warps have passed the stage on.
    #[track_caller]
    pub fn wait<'k>(&self, b: &'k KernelBuilder, cursor: RingCursor<'k>) -> ReadSlot<'k> {
        self.barrier(b, cursor.stage).mbarrier_wait(cursor.phase);
        ReadSlot { stage: cursor.stage }
    }

    #[track_caller]
    fn barrier<'k>(&self, b: &'k KernelBuilder, stage: Val<'k, ty::U32>) -> Val<'k, ty::Smem> {
        b.smem_address(self.ready).offset(stage * MBARRIER_BYTES)
    }
}

/// Whom the release of a stage is told.
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

impl<'k> Carried<'k> for RingCursor<'k> {
    type Static = ();

    fn split(self, values: &mut Vec<ValueId>) {
        values.extend([self.stage.id(), self.phase.id()]);
    }

    fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        let [stage, phase] = std::array::from_fn(|_| Val::join(b, values, crate::Type::U32));
        RingCursor { stage, phase }
    }
}

impl<'k> Carried<'k> for ReadSlot<'k> {
    type Static = ();

    fn split(self, values: &mut Vec<ValueId>) {
        values.push(self.stage.id());
    }

    fn join(b: &'k KernelBuilder, values: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        ReadSlot { stage: Val::join(b, values, crate::Type::U32) }
    }
}
