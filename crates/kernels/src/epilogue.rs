//! The epilogue of one consumer warpgroup: D = alpha·acc (+ beta·C), through shared memory. Each slice of 64 rows is
//! converted, written to a staging buffer (stmatrix for 16-bit types), and stored by TMA while the next one is written and
//! the producer already loads the next tile. Where beta isn't 0, TMA brings the slice of C into the same buffer first.

use pgemm_ir::{
    Accumulators, Element, KernelBuilder, RegionId, RegionKind, SmemRequest, Special, TensorMap,
    Val, WARPGROUP_THREADS, ty,
};

use crate::scheduler::TileOrigin;
use crate::spec::KernelSpec;
use crate::staging::{STAGING_ROWS, Staging};

/// Named barriers 1.. belong to the consumer warpgroups; 0 is the CTA's.
const FIRST_BARRIER: u32 = 1;

const MBARRIER_BYTES: u32 = 8;

/// Declarations of the epilogue.
#[derive(Clone)]
pub struct Epilogue<'k> {
    b: &'k KernelBuilder,
    spec: KernelSpec,
    staging: Staging,
    buffers: RegionId,
    c_full: RegionId,
    c: TensorMap<'k>,
    d: TensorMap<'k>,
    alpha: Val<'k, ty::F32>,
    beta: Val<'k, ty::F32>,
}

impl<'k> Epilogue<'k> {
    /// Declares staging buffers and barriers. C is not read where `beta` is 0.
    pub fn new(
        b: &'k KernelBuilder,
        spec: &KernelSpec,
        [c, d]: [TensorMap<'k>; 2],
        [alpha, beta]: [Val<'k, ty::F32>; 2],
    ) -> Self {
        let staging = spec.staging();
        let buffers = SmemRequest::whole(spec.consumers * staging.bytes(), 1024);
        let barriers = SmemRequest::whole(spec.consumers * MBARRIER_BYTES, MBARRIER_BYTES);
        Epilogue {
            b,
            spec: *spec,
            staging,
            buffers: b.region("staging", RegionKind::Data(spec.output), buffers),
            c_full: b.region("c_full", RegionKind::Mbarrier, barriers),
            c,
            d,
            alpha,
            beta,
        }
    }

    /// Initialises the barriers and fetches the maps: one thread.
    pub fn init(&self) {
        for warpgroup in 0..self.spec.consumers {
            self.b.smem_address(self.c_full).offset(warpgroup * MBARRIER_BYTES).mbarrier_init(1);
        }
        self.d.prefetch();
    }

    /// The parity of the first C slice.
    pub fn start(&self) -> Val<'k, ty::U32> {
        self.b.constant(0)
    }

    /// Stores the tile at `origin` from warpgroup `warpgroup`'s accumulators. `c_parity` goes from tile to tile.
    pub fn store(
        &self,
        origin: TileOrigin<'k>,
        warpgroup: Val<'k, ty::U32>,
        accumulators: &Accumulators,
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let thread = b.special(Special::Thread) % WARPGROUP_THREADS;
        let part = WarpgroupPart {
            epilogue: self,
            leads: thread.eq(0),
            warp: b.special(Special::Warp) % 4,
            lane: b.special(Special::Lane),
            barrier: warpgroup + FIRST_BARRIER,
            buffers: b.smem_address(self.buffers).offset(warpgroup * self.staging.bytes()),
            c_full: b.smem_address(self.c_full).offset(warpgroup * MBARRIER_BYTES),
            first_row: origin.m + warpgroup * (self.spec.blocks() * STAGING_ROWS),
            first_column: origin.n,
        };
        let (slices, steps) = (self.staging.slices(), self.staging.steps());
        for step in 0..steps {
            let slice = Slice {
                block: step / slices,
                column: step % slices * self.staging.columns(),
                buffer: step % self.staging.buffers(),
            };
            part.store(accumulators, slice, c_parity ^ (step % 2));
        }
        c_parity ^ (steps % 2)
    }

    /// Before the CTA ends: its stores have read shared memory. The thread that issued them waits.
    pub fn drain(&self) {
        self.b.bulk_wait_read(0);
    }
}

/// 64 rows × one staging tile of columns.
#[derive(Clone, Copy)]
struct Slice {
    block: u32,
    column: u32,
    buffer: u32,
}

/// What one warpgroup's threads know while they store a tile.
struct WarpgroupPart<'e, 'k> {
    epilogue: &'e Epilogue<'k>,
    /// True in the one thread that talks to TMA.
    leads: Val<'k, ty::Bool>,
    warp: Val<'k, ty::U32>,
    lane: Val<'k, ty::U32>,
    barrier: Val<'k, ty::U32>,
    buffers: Val<'k, ty::Smem>,
    c_full: Val<'k, ty::Smem>,
    first_row: Val<'k, ty::U32>,
    first_column: Val<'k, ty::U32>,
}

impl<'k> WarpgroupPart<'_, 'k> {
    fn store(&self, accumulators: &Accumulators, slice: Slice, c_parity: Val<'k, ty::U32>) {
        let Epilogue { b, staging, c, d, beta, .. } = self.epilogue;
        let buffer = self.buffers.offset(slice.buffer * staging.buffer_bytes());
        let coordinates =
            [self.first_column + slice.column, self.first_row + slice.block * STAGING_ROWS];
        let reads_c = beta.ne(0.0);

        b.if_(self.leads, || {
            // The store before the latest ones of the other buffers was from this one.
            b.bulk_wait_read(staging.buffers() - 1);
            b.if_(reads_c, || {
                self.c_full.mbarrier_arrive_expect(staging.buffer_bytes());
                c.load(buffer, self.c_full, &coordinates);
            });
        });
        b.barrier_sync(self.barrier, WARPGROUP_THREADS);
        b.if_else(
            reads_c,
            || {
                self.c_full.mbarrier_wait(c_parity);
                b.scope("with c", || self.write(accumulators, slice, buffer, true));
            },
            || self.write(accumulators, slice, buffer, false),
        );
        b.fence_proxy_async();
        b.barrier_sync(self.barrier, WARPGROUP_THREADS);
        b.if_(self.leads, || {
            d.store(buffer, &coordinates);
            b.bulk_commit();
        });
    }

    /// Writes the warpgroup's slice into `buffer`, in place of C where that is added.
    fn write(
        &self,
        accumulators: &Accumulators,
        slice: Slice,
        buffer: Val<'k, ty::Smem>,
        with_c: bool,
    ) {
        match self.epilogue.spec.output {
            Element::F32 => self.write_f32(accumulators, slice, buffer, with_c),
            _ => self.write_16bit(accumulators, slice, buffer, with_c),
        }
    }

    /// Four 8×8 matrices at a time: rows 0–7 and 8–15 of the warp's 16, columns 0–7 and 8–15.
    fn write_16bit(
        &self,
        accumulators: &Accumulators,
        slice: Slice,
        buffer: Val<'k, ty::Smem>,
        with_c: bool,
    ) {
        let Epilogue { b, spec, staging, .. } = self.epilogue;
        // Lane l gives the address of row l % 8 of matrix l / 8.
        let row = self.warp * 16 + self.lane % 16;
        let chunk = self.lane / 16;
        let mut column = 0;
        while column < staging.columns() {
            let address = self.address(buffer, row, chunk + column / 8);
            let pair = |index: u32, c: Option<Val<'k, ty::B32>>| {
                let c = c.map(|c| c.unpack(spec.output));
                let [low, high] = [0, 1].map(|i| {
                    let register = (slice.column + column) / 8 * 4 + index * 2 + i;
                    let value = accumulators.get(b, slice.block as usize, register);
                    self.scale(value, c.map(|c| c[i as usize]))
                });
                low.pack(high, spec.output)
            };
            if staging.columns() - column >= 16 {
                let c = with_c.then(|| b.load_matrix::<4>(address));
                let values = std::array::from_fn::<_, 4, _>(|i| pair(i as u32, c.map(|c| c[i])));
                b.store_matrix(address, values);
                column += 16;
            } else {
                let c = with_c.then(|| b.load_matrix::<2>(address));
                let values = std::array::from_fn::<_, 2, _>(|i| pair(i as u32, c.map(|c| c[i])));
                b.store_matrix(address, values);
                column += 8;
            }
        }
    }

    /// Two neighbouring columns at a time, where the accumulator has them.
    fn write_f32(
        &self,
        accumulators: &Accumulators,
        slice: Slice,
        buffer: Val<'k, ty::Smem>,
        with_c: bool,
    ) {
        let Epilogue { b, staging, .. } = self.epilogue;
        let row = self.warp * 16 + self.lane / 4;
        let in_group = self.lane % 4;
        for group in 0..staging.columns() / 8 {
            for half in 0..2 {
                let chunk = in_group / 2 + group * 2;
                let address = self.address(buffer, row + half * 8, chunk).offset(in_group % 2 * 8);
                let c = with_c.then(|| b.load_shared::<ty::F32, 2>(address));
                let values = std::array::from_fn::<_, 2, _>(|i| {
                    let register = (slice.column / 8 + group) * 4 + half * 2 + i as u32;
                    let value = accumulators.get(b, slice.block as usize, register);
                    self.scale(value, c.map(|c| c[i]))
                });
                b.store_shared(address, values);
            }
        }
    }

    fn scale(&self, value: Val<'k, ty::F32>, c: Option<Val<'k, ty::F32>>) -> Val<'k, ty::F32> {
        let Epilogue { alpha, beta, .. } = self.epilogue;
        let scaled = value * *alpha;
        match c {
            None => scaled,
            Some(c) => c.mul_add(*beta, scaled),
        }
    }

    /// The address of a 16-byte chunk of a row of the staging tile. The swizzle XORs address bits 4.. with bits 7.., so
    /// the chunk with the number of its 128-byte line.
    fn address(
        &self,
        buffer: Val<'k, ty::Smem>,
        row: Val<'k, ty::U32>,
        chunk: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Smem> {
        let staging = &self.epilogue.staging;
        let chunk = match staging.swizzle().span_bytes() {
            None => chunk,
            Some(span) => chunk ^ (row / (128 / span) % (span / 16)),
        };
        buffer.offset(row * staging.row_bytes() + chunk * 16)
    }
}
