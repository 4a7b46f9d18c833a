//! Stores of accumulators through shared memory, for any kernel.

use pgemm_cute::CuteError;
use pgemm_ir::{
    IntoVal, KernelBuilder, NamedBarriers, RegionKind, SmemRequest, Special, TensorMap,
    TensorMapSpec, Val, WARPGROUP_THREADS, WARPGROUP_WARPS, ty,
};

use super::PartsError;
use crate::mainloop::wgmma::SumsLayout;
use crate::store::write::{Addresses, Quads, ReadsC, StagedResult, Writer};
use crate::tiles::staging::{OutputMajor, STAGING_ROWS, Staging};

/// A tile of 64 rows in shared memory that a warpgroup writes from accumulators and TMA stores. Its
/// shape, a [`Staging`], is such that the writes meet no bank twice. Elements of 16 bits are
/// written by `stmatrix`.
pub struct StagingTile {
    staging: Staging,
    addresses: Addresses,
}

/// Results of a thread, which are written without C.
struct Results<'f, 'k>(&'f dyn Fn(u32) -> [Val<'k, ty::F32>; 4]);

impl<'k> Quads<'k, ty::F32> for Results<'_, 'k> {
    fn before_c(&self, group: u32) -> [Val<'k, ty::F32>; 4] {
        (self.0)(group)
    }

    fn add_c(
        &self,
        quad: [Val<'k, ty::F32>; 4],
        _: [Val<'k, ty::F32>; 4],
    ) -> [Val<'k, ty::F32>; 4] {
        quad
    }

    fn after_c(&self, quad: [Val<'k, ty::F32>; 4]) -> [Val<'k, ty::F32>; 4] {
        quad
    }
}

impl StagingTile {
    /// The tile of a shape, for accumulators as wgmma leaves them.
    ///
    /// # Errors
    /// [`PartsError::Layout`] if the shape has no columns.
    pub fn new(staging: Staging) -> Result<Self, PartsError> {
        Ok(Self::of_sums(staging, &SumsLayout::new(None)?)?)
    }

    pub(super) fn of_sums(staging: Staging, sums: &SumsLayout) -> Result<Self, CuteError> {
        Ok(StagingTile { addresses: Addresses::new(&staging, sums)?, staging })
    }

    /// The shape.
    pub fn staging(&self) -> &Staging {
        &self.staging
    }

    /// The box of the tensor map by which the tile is stored. The map has two dimensions, the
    /// contiguous one first, and `outer` further ones. A line of the matrix has to be whole units
    /// of 16 bytes: TMA would write the rest of the last one behind its end.
    pub fn tensor_map(&self, outer: usize) -> TensorMapSpec {
        let mut spec = self.staging.tensor_map();
        spec.box_extents.extend(std::iter::repeat_n(1, outer));
        spec
    }

    /// Writes the tile to the shared memory at `buffer`, a multiple of 1024. `quads` has the
    /// thread's quad of each group of 8 columns, in binary32. All threads of a warpgroup call it. A
    /// `fence_proxy_async` and a barrier have to follow before [`store`](Self::store).
    pub fn write<'k>(
        &self,
        b: &'k KernelBuilder,
        buffer: Val<'k, ty::Smem>,
        quads: &dyn Fn(u32) -> [Val<'k, ty::F32>; 4],
    ) {
        let thread = b.special(Special::Thread) % WARPGROUP_THREADS;
        let writer = Writer {
            b,
            addresses: &self.addresses,
            staging: &self.staging,
            buffer,
            thread,
            free_registers: 0,
            reads_c: ReadsC::Never,
        };
        ty::F32::write(&writer, &Results(quads));
    }

    /// Starts the stores of the tile at `buffer` to row `row` and column `column` of a matrix;
    /// `outer` has its places in the further dimensions of the map. One thread calls it, and closes
    /// the group by `bulk_commit`.
    #[track_caller]
    pub fn store<'k>(
        &self,
        map: &TensorMap<'k>,
        buffer: Val<'k, ty::Smem>,
        [row, column]: [Val<'k, ty::U32>; 2],
        outer: &[Val<'k, ty::U32>],
    ) {
        let staging = &self.staging;
        let [across, down] = match staging.major() {
            OutputMajor::N => [column, row],
            OutputMajor::M => [row, column],
        };
        for index in 0..staging.boxes() {
            let mut coordinates = vec![across + index * staging.extents()[0], down];
            coordinates.extend(outer);
            map.store(buffer.offset(index * staging.box_bytes()), &coordinates);
        }
    }
}

/// The stores of the parts of tiles that warpgroups have computed: the buffers of each warpgroup
/// and its barrier. A part is divided into staging tiles, which are stored while the next one is
/// computed, and while the next tile is multiplied.
pub struct StagedStores<'k> {
    b: &'k KernelBuilder,
    tile: StagingTile,
    buffers: Val<'k, ty::Smem>,
    barriers: NamedBarriers<'k>,
}

impl<'k> StagedStores<'k> {
    /// Declares the buffers and barriers of so many warpgroups, which are numbered from 0 on.
    pub fn declare(b: &'k KernelBuilder, name: &str, tile: StagingTile, warpgroups: u32) -> Self {
        let staging = tile.staging();
        let request = SmemRequest::whole(warpgroups.saturating_mul(staging.bytes()), 1024);
        let buffers = b.smem_address(b.region(name, RegionKind::Data(staging.element()), request));
        let barriers = b.named_barriers(name, warpgroups, WARPGROUP_WARPS);
        StagedStores { b, tile, buffers, barriers }
    }

    /// The staging tile.
    pub fn tile(&self) -> &StagingTile {
        &self.tile
    }

    /// Stores a warpgroup's part of a tile, whose first element is at row `row` and column `column`
    /// of the matrix. `quads` has the thread's quad of block `block` and group `group`; it is
    /// called once for each. All threads of the warpgroup call this.
    #[track_caller]
    pub fn store(
        &self,
        warpgroup: impl IntoVal<'k, ty::U32>,
        map: &TensorMap<'k>,
        [row, column]: [Val<'k, ty::U32>; 2],
        outer: &[Val<'k, ty::U32>],
        quads: &dyn Fn(u32, u32) -> [Val<'k, ty::F32>; 4],
    ) {
        let (b, staging) = (self.b, self.tile.staging());
        let warpgroup = warpgroup.into_val(b);
        let (steps, slices, count) = (staging.steps(), staging.slices(), staging.buffers());
        let barrier = self.barriers.at(warpgroup);
        let own = self.buffers.offset(warpgroup * staging.bytes());
        let leads = (b.special(Special::Thread) % WARPGROUP_THREADS).eq(0);
        let groups = staging.columns() / 8;
        for step in 0..steps {
            let (block, slice) = (step / slices, step % slices);
            let buffer = own.offset(step % count * staging.buffer_bytes());
            // The store before from this buffer has to have read it. Where the staging tiles of a
            // part do not end with the last buffer, the last store of the part before was from the
            // first buffer, too.
            let in_flight = if step == 0 && !steps.is_multiple_of(count) { 0 } else { count - 1 };
            b.if_(leads, || b.bulk_wait_read(in_flight));
            barrier.sync();
            self.tile.write(b, buffer, &|group| quads(block, slice * groups + group));
            b.fence_proxy_async();
            barrier.sync();
            b.if_(leads, || {
                let place = [row + block * STAGING_ROWS, column + slice * staging.columns()];
                self.tile.store(map, buffer, place, outer);
                b.bulk_commit();
            });
        }
    }

    /// Waits until the stores of this thread have read shared memory. All threads call it before
    /// the kernel ends.
    pub fn drain(&self) {
        self.b.bulk_wait_read(0);
    }
}
