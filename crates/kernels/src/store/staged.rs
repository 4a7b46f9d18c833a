//! The output of wgmma kernels. It owns the staging buffers and barriers in shared memory, and it
//! computes the place in D of each staging tile. A warpgroup stores its part of a tile as a
//! sequence of staging tiles of 64 rows ([`super::tile`]).

use pgemm_cute::CuteError;
use pgemm_ir::{
    KernelBuilder, MBARRIER_BYTES, NamedBarrier, NamedBarriers, RegionId, RegionKind, SmemRequest,
    Special, Val, WARPGROUP_THREADS, WARPGROUP_WARPS, ty,
};

use super::vector::Bias;
use super::write::{Addresses, StagedResult};
use crate::coordinates::TileOrigin;
use crate::epilogue::Graph;
use crate::mainloop::wgmma::SumsLayout;
use crate::problem::Problem;
use crate::problem::scales::Scales;
use crate::spec::{Resources, Spec};
use crate::tiles::staging::{OutputMajor, STAGING_ROWS, Staging};

/// Maximum number of consumer warpgroups of a kernel.
const MOST_CONSUMERS: u32 = 3;

/// The staged output of a kernel: its buffers, barriers, and description.
pub(crate) struct StagedOutput<'k> {
    pub(super) b: &'k KernelBuilder,
    pub(super) spec: Spec,
    pub(super) resources: Resources,
    /// Which sums each thread holds.
    pub(super) sums: SumsLayout,
    /// The graph that computes the results.
    pub(super) graph: Graph,
    /// The addresses at which each thread writes in a staging tile.
    pub(super) addresses: Addresses,
    pub(super) scales: Option<Scales<'k>>,
    buffers: RegionId,
    c_full: RegionId,
    /// Named barriers, one for each consumer warpgroup.
    barriers: NamedBarriers<'k>,
}

impl<'k> StagedOutput<'k> {
    /// Declares staging buffers and barriers.
    ///
    /// # Errors
    /// The layout algebra refuses the staging tile.
    pub(crate) fn declare(
        b: &'k KernelBuilder,
        spec: &Spec,
        sums: SumsLayout,
        scales: Option<Scales<'k>>,
    ) -> Result<Self, CuteError> {
        let resources = spec.resources();
        let (staging, consumers) = (resources.staging, spec.consumers());
        let buffers = SmemRequest::whole(consumers * staging.bytes(), 1024);
        let barriers = SmemRequest::whole(consumers * MBARRIER_BYTES, MBARRIER_BYTES);
        Ok(StagedOutput {
            b,
            spec: *spec,
            addresses: Addresses::new(&staging, &sums)?,
            sums,
            graph: spec.graph(),
            scales,
            buffers: b.region("staging", RegionKind::Data(spec.output), buffers),
            c_full: b.region("c_full", RegionKind::Mbarrier, barriers),
            barriers: b.named_barriers("epilogue", MOST_CONSUMERS, WARPGROUP_WARPS),
            resources,
        })
    }

    /// The shape of the staging tiles.
    pub(crate) fn staging(&self) -> &Staging {
        &self.resources.staging
    }

    /// Initialises the barriers. One thread calls it.
    pub(crate) fn init(&self) {
        for warpgroup in 0..self.spec.consumers() {
            self.b.smem_address(self.c_full).offset(warpgroup * MBARRIER_BYTES).mbarrier_init(1);
        }
    }

    /// The parity of the first slice of C.
    pub(crate) fn start(&self) -> Val<'k, ty::U32> {
        self.b.constant(0)
    }

    /// The spec of the kernel.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The resources that a CTA takes.
    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// The view of the threads of consumer warpgroup `consumer`, which computes part `part` of each
    /// tile.
    pub(crate) fn warpgroup(
        &self,
        consumer: Val<'k, ty::U32>,
        part: Val<'k, ty::U32>,
    ) -> Warpgroup<'k> {
        let b = self.b;
        let thread = b.special(Special::Thread) % WARPGROUP_THREADS;
        Warpgroup {
            thread,
            leads: thread.eq(0),
            part,
            barrier: self.barriers.at(consumer),
            buffers: b.smem_address(self.buffers).offset(consumer * self.staging().bytes()),
            c_full: b.smem_address(self.c_full).offset(consumer * MBARRIER_BYTES),
        }
    }

    /// The stores of one problem by the threads of a warpgroup.
    pub(crate) fn store<'o, R>(
        &'o self,
        warpgroup: &'o Warpgroup<'k>,
        problem: &'o Problem<'k, R>,
    ) -> Store<'o, 'k, R> {
        let bias = Bias::of(self.b, &self.spec, problem.bias);
        Store { output: self, warpgroup, problem, bias }
    }

    /// Waits until the stores that this thread issued have read shared memory. It runs before the
    /// CTA ends.
    pub(crate) fn drain(&self) {
        self.b.bulk_wait_read(0);
    }
}

/// The state of the threads of one consumer warpgroup.
#[derive(Clone, Copy)]
pub(crate) struct Warpgroup<'k> {
    /// Index of the thread in the warpgroup.
    pub(crate) thread: Val<'k, ty::U32>,
    /// True in the one thread that issues TMA copies.
    pub(crate) leads: Val<'k, ty::Bool>,
    /// The part of each tile that the warpgroup computes.
    pub(crate) part: Val<'k, ty::U32>,
    /// The warpgroup's named barrier.
    barrier: NamedBarrier<'k>,
    pub(super) buffers: Val<'k, ty::Smem>,
    pub(super) c_full: Val<'k, ty::Smem>,
}

impl<'k> Warpgroup<'k> {
    /// Waits until all threads of the warpgroup have arrived.
    pub(crate) fn sync(&self) {
        self.barrier.sync();
    }

    /// The first element of the warpgroup's part of a tile.
    pub(crate) fn part_of(
        &self,
        output: &StagedOutput<'k>,
        tile: TileOrigin<'k>,
    ) -> TileOrigin<'k> {
        let rows = output.spec.blocks() * STAGING_ROWS;
        TileOrigin { m: tile.m + self.part * rows, ..tile }
    }
}

/// The stores of one problem by a warpgroup.
pub(crate) struct Store<'o, 'k, R> {
    pub(super) output: &'o StagedOutput<'k>,
    pub(super) warpgroup: &'o Warpgroup<'k>,
    pub(super) problem: &'o Problem<'k, R>,
    pub(super) bias: Option<Bias<'k>>,
}

/// The destination of a staging tile.
#[derive(Clone, Copy)]
pub(crate) struct Place<'k> {
    /// First row and column of D.
    pub(super) row: Val<'k, ty::U32>,
    pub(super) column: Val<'k, ty::U32>,
    /// The index of the product in the batch.
    pub(super) batch: Val<'k, ty::U32>,
    /// The staging buffer that holds the tile.
    pub(super) buffer: Val<'k, ty::Smem>,
    /// Number of stores of other buffers that may still be in flight.
    pub(super) stores_pending: u32,
    /// Whether none may be in flight, if this depends on the staging tile.
    pub(super) waits_for_all: Option<Val<'k, ty::Bool>>,
    /// Number of neighbouring staging tiles that threads store together.
    pub(super) side_by_side: u32,
    /// Whether this staging tile is the last of those stored together.
    pub(super) completes: Val<'k, ty::Bool>,
}

impl<'k, R: StagedResult> Store<'_, 'k, R> {
    pub(super) fn b(&self) -> &'k KernelBuilder {
        self.output.b
    }

    /// The warpgroup that stores.
    pub(crate) fn warpgroup(&self) -> &Warpgroup<'k> {
        self.warpgroup
    }

    /// Row and column of the thread's first sum in the block of 64 rows that begins at `row` and
    /// `column`.
    pub(super) fn first_element(
        &self,
        row: Val<'k, ty::U32>,
        column: Val<'k, ty::U32>,
    ) -> [Val<'k, ty::U32>; 2] {
        let [first_row, first_column] = self.output.sums.first_element(self.warpgroup.thread);
        [row + first_row, column + first_column]
    }

    /// The destination of staging tile `step` of the tile part at `origin`.
    pub(super) fn place(&self, origin: TileOrigin<'k>, step: Val<'k, ty::U32>) -> Place<'k> {
        let (b, spec) = (self.b(), &self.output.spec);
        let staging = self.output.staging();
        let (slices, steps, buffers) = (staging.slices(), staging.steps(), staging.buffers());
        // If all neighbouring staging tiles are in buffers at the end, threads store their lines as
        // one. A joined line has only two ends.
        let one_block = spec.d_major == OutputMajor::N && slices == buffers && slices == steps;
        let side_by_side = if one_block { slices } else { 1 };
        Place {
            row: origin.m + step / slices * STAGING_ROWS,
            column: origin.n + step % slices * staging.columns(),
            batch: origin.batch,
            buffer: self.warpgroup.buffers.offset(step % buffers * staging.buffer_bytes()),
            // All stores may be in flight except the oldest one, which was from this buffer.
            stores_pending: buffers - 1,
            // Of an odd number of staging tiles in two buffers, the last one of the tile before was
            // in the first buffer, too.
            waits_for_all: (!steps.is_multiple_of(buffers)).then(|| step.eq(0)),
            side_by_side,
            completes: match side_by_side {
                1 => b.constant(true),
                _ => step.eq(steps - 1),
            },
        }
    }
}
