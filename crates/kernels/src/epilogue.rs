//! The epilogue of one consumer warpgroup: D = alpha·acc (+ beta·C), with a bias and an activation where the spec has them
//! ([`crate::bias`], [`crate::activation`]), through shared memory. Each staging tile is converted,
//! written to a staging buffer (stmatrix for 16-bit types, [`crate::bytes`] for those of 8), and stored by TMA while the next one is written and the producer
//! already loads the next tile. Where beta isn't 0, TMA brings the slice of C into the same buffer first. Pieces of a tile
//! that many reduce together are too narrow for that: they go to D element by element. C and D that TMA cannot move go
//! through the same staging buffers by other ways ([`crate::direct`]), which a kernel parameter chooses.

use std::ops::Range;

use pgemm_cute::{CuteError, Layout};
use pgemm_ir::{
    Element, KernelBuilder, RegionId, RegionKind, SmemRequest, Special, Val, WARPGROUP_THREADS, ty,
};

use crate::batch::BatchMap;
use crate::bias::{Added, Bias, Vector};
use crate::direct::Found;
use crate::fragment;
use crate::lanes::evaluate;
use crate::reduction::MANY_REGISTERS;
use crate::scales::Scales;
use crate::scheduler::TileOrigin;
use crate::spec::{KernelSpec, OutputMajor, Schedule};
use crate::staging::{STAGING_ROWS, Staging};
use crate::sums::Sum;

/// Named barriers 1.. belong to the consumer warpgroups; 0 is the CTA's.
const FIRST_BARRIER: u32 = 1;

const MBARRIER_BYTES: u32 = 8;

/// Declarations of the epilogue.
#[derive(Clone)]
pub struct Epilogue<'k, S> {
    b: &'k KernelBuilder,
    spec: KernelSpec,
    staging: Staging,
    /// Thread → first row in a block of 64, where that is not the accumulator's.
    rows: Option<Layout>,
    buffers: RegionId,
    c_full: RegionId,
    c: Output<'k>,
    d: Output<'k>,
    /// Rows and columns of D.
    extents: [Val<'k, ty::U32>; 2],
    /// alpha and beta.
    factors: [Val<'k, S>; 2],
    scales: Option<Scales<'k>>,
    bias: Option<Bias<'k>>,
    /// Whether C and D move without TMA.
    direct: Val<'k, ty::Bool>,
}

/// C or D.
#[derive(Clone)]
pub struct Output<'k> {
    /// Its boxes.
    pub map: BatchMap<'k>,
    /// Address of element (0, 0) of the first product's.
    pub address: Val<'k, ty::U64>,
    /// Bytes from one line, a row or a column, to the next.
    pub stride: Val<'k, ty::U64>,
    /// Bytes from the matrix of one product to that of the next.
    pub batch_stride: Val<'k, ty::U64>,
}

impl<'k> Output<'k> {
    /// One that TMA moves and nothing else.
    pub(crate) fn by_map(map: BatchMap<'k>, b: &'k KernelBuilder) -> Self {
        let nowhere = b.constant(0u64);
        Output { map, address: nowhere, stride: nowhere, batch_stride: nowhere }
    }

    /// Address of element (0, 0) of the matrix of product `batch`.
    pub(crate) fn start(&self, batch: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.address + batch.widen() * self.batch_stride
    }
}

impl<'k, S: Sum> Epilogue<'k, S> {
    /// Declares staging buffers and barriers, for an output of `[m, n]`. C is not read where beta, the
    /// second factor, is 0; where `direct` holds, the boxes of C and D are not looked at.
    pub fn new(
        b: &'k KernelBuilder,
        spec: &KernelSpec,
        [c, d]: [Output<'k>; 2],
        extents: [Val<'k, ty::U32>; 2],
        factors: [Val<'k, S>; 2],
        scales: Option<Scales<'k>>,
        direct: Val<'k, ty::Bool>,
    ) -> Result<Self, CuteError> {
        let staging = spec.staging();
        let buffers = SmemRequest::whole(spec.consumers * staging.bytes(), 1024);
        let barriers = SmemRequest::whole(spec.consumers * MBARRIER_BYTES, MBARRIER_BYTES);
        Ok(Epilogue {
            b,
            spec: *spec,
            staging,
            rows: spec.reads_a_to_registers().then(fragment::rows_of_sums).transpose()?,
            buffers: b.region("staging", RegionKind::Data(spec.output), buffers),
            c_full: b.region("c_full", RegionKind::Mbarrier, barriers),
            c,
            d,
            extents,
            factors,
            scales,
            // A resident kernel's comes with each job.
            bias: (!spec.resident)
                .then(|| Bias::declare(b, spec.epilogue, spec.output, extents))
                .flatten(),
            direct,
        })
    }

    /// The same for other C and D, alpha and beta, and bias where the epilogue has one.
    pub(crate) fn of(
        &self,
        [c, d]: [Output<'k>; 2],
        factors: [Val<'k, S>; 2],
        bias: Option<Vector<'k>>,
    ) -> Self {
        let KernelSpec { epilogue, output, .. } = self.spec;
        let bias = bias.and_then(|vector| Bias::of_job(self.b, epilogue, output, vector));
        Epilogue { c, d, factors, bias, ..self.clone() }
    }

    /// The boxes of C.
    pub(crate) fn c(&self) -> &BatchMap<'k> {
        &self.c.map
    }

    /// The boxes of D.
    pub(crate) fn d(&self) -> &BatchMap<'k> {
        &self.d.map
    }

    /// Initialises the barriers and fetches the maps: one thread.
    pub fn init(&self) {
        self.init_barriers();
        self.d.map.prefetch_map();
    }

    /// Initialises the barriers: one thread.
    pub(crate) fn init_barriers(&self) {
        for warpgroup in 0..self.spec.consumers {
            self.b.smem_address(self.c_full).offset(warpgroup * MBARRIER_BYTES).mbarrier_init(1);
        }
    }

    /// The shape of the staging tiles.
    pub fn staging(&self) -> &Staging {
        &self.staging
    }

    /// The parity of the first C slice.
    pub fn start(&self) -> Val<'k, ty::U32> {
        self.b.constant(0)
    }

    /// What consumer warpgroup `consumer` needs to store what it computed.
    pub fn warpgroup(&self, consumer: Val<'k, ty::U32>) -> WarpgroupStore<'_, 'k, S> {
        let b = self.b;
        let thread = b.special(Special::Thread) % WARPGROUP_THREADS;
        WarpgroupStore {
            epilogue: self,
            thread,
            leads: thread.eq(0),
            warp: b.special(Special::Warp) % 4,
            lane: b.special(Special::Lane),
            barrier: consumer + FIRST_BARRIER,
            buffers: b.smem_address(self.buffers).offset(consumer * self.staging.bytes()),
            c_full: b.smem_address(self.c_full).offset(consumer * MBARRIER_BYTES),
        }
    }

    /// What is added to a thread's sums of the tile at `origin`, loaded before they are there, where registers are left for that.
    pub(crate) fn bias_ahead(
        &self,
        origin: TileOrigin<'k>,
        warpgroup: &WarpgroupStore<'_, 'k, S>,
    ) -> Option<Added<'k>> {
        let bias = self.bias.as_ref().filter(|_| self.spec.loads_bias_ahead())?;
        let first = warpgroup.first_element(origin.m, origin.n);
        let rows = (self.spec.blocks(), warpgroup.to_second_row());
        Some(bias.added(first, rows, self.spec.tile.n / 8))
    }

    /// What a thread stores of the tile at `origin` where TMA does not, found while the first stages load, by kernels that have registers
    /// for it.
    pub(crate) fn find_ahead(
        &self,
        origin: TileOrigin<'k>,
        warpgroup: &WarpgroupStore<'_, 'k, S>,
    ) -> Option<Found<'k>> {
        let last = self.place(origin, self.staging.steps() - 1);
        let at_once = last.side_by_side == self.staging.steps();
        at_once.then(|| warpgroup.find(&self.d, &last, self.direct)).flatten()
    }

    /// Where a staging tile of the tile at `origin` goes.
    fn place(&self, origin: TileOrigin<'k>, step: u32) -> Place<'k> {
        let (slices, steps) = (self.staging.slices(), self.staging.steps());
        // Staging tiles side by side that are all there at the end: threads store their lines as one, which has two ends.
        let side_by_side = self.spec.d_major == OutputMajor::N && slices == self.staging.buffers();
        let together = if side_by_side && slices == steps { slices } else { 1 };
        let (block, column) = (step / slices, step % slices * self.staging.columns());
        Place {
            row: origin.m + block * STAGING_ROWS,
            column: origin.n + column,
            batch: origin.batch,
            buffer: step % self.staging.buffers(),
            // The store before the latest ones of the other buffers was from this one.
            stores_pending: self.staging.buffers() - 1,
            side_by_side: if (step + 1).is_multiple_of(together) { together } else { 0 },
        }
    }

    /// Stores a tile; `origin` is that of its first row, `added` and `found` what [`bias_ahead`](Self::bias_ahead) and
    /// [`find_ahead`](Self::find_ahead) gave for it, `sums` gives this thread's four of each of some 8 columns, counted in
    /// groups over all m64 blocks. `c_parity` goes from tile to tile.
    pub fn store(
        &self,
        origin: TileOrigin<'k>,
        warpgroup: &WarpgroupStore<'_, 'k, S>,
        sums: &dyn Fn(Range<u32>) -> Vec<[Val<'k, S>; 4]>,
        (added, found): (Option<&Added<'k>>, Option<&Found<'k>>),
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let (slices, steps) = (self.staging.slices(), self.staging.steps());
        let groups = self.staging.columns() / 8;
        let place = |step: u32| self.place(origin, step);
        // Loaded a staging tile ahead, where that was not done for all of the tile; but not where another warpgroup multiplies
        // meanwhile, or registers are short: waiting costs less than spills.
        let many = self.spec.registers().consumer >= MANY_REGISTERS;
        let ahead = u32::from(self.spec.schedule == Schedule::Cooperative && many);
        let load = |step: u32| {
            let late = added.is_none() && step < steps;
            late.then(|| warpgroup.added(place(step))).flatten()
        };
        let mut next = if ahead == 0 { None } else { load(0) };
        for step in 0..steps {
            let loaded = load(step + ahead);
            let late = if ahead == 0 { loaded } else { std::mem::replace(&mut next, loaded) };
            let sums = sums(step * groups..(step + 1) * groups);
            let bias = |group: u32| match (added, &late) {
                (Some(all), _) => Some(all.quad(step / slices, step % slices * groups + group)),
                (None, late) => late.as_ref().map(|added| added.quad(0, group)),
            };
            let sums = |group: u32| sums[group as usize];
            warpgroup.store_with(&sums, &bias, place(step), found, c_parity ^ (step % 2));
        }
        c_parity ^ (steps % 2)
    }

    /// Before the CTA ends: its stores have read shared memory. The thread that issued them waits.
    pub fn drain(&self) {
        self.b.bulk_wait_read(0);
    }
}

/// This thread's four sums of each 8 columns.
pub type Sums<'s, 'k, S> = dyn Fn(u32) -> [Val<'k, S>; 4] + 's;

/// What is added to each of them, where there is a bias.
type Biases<'s, 'k> = dyn Fn(u32) -> Option<[Val<'k, ty::F32>; 4]> + 's;

/// Where a staging tile goes.
#[derive(Clone, Copy)]
pub struct Place<'k> {
    /// First row of D.
    pub row: Val<'k, ty::U32>,
    /// First column of D.
    pub column: Val<'k, ty::U32>,
    /// Which product of the batch.
    pub batch: Val<'k, ty::U32>,
    /// The staging buffer that it goes through.
    pub buffer: u32,
    /// Stores that may still read other buffers.
    pub stores_pending: u32,
    /// Staging tiles that threads then store together, this one the last of them; 0 where a later one is.
    pub side_by_side: u32,
}

/// What one warpgroup's threads know while they store.
pub struct WarpgroupStore<'e, 'k, S> {
    epilogue: &'e Epilogue<'k, S>,
    /// Index of the thread in the warpgroup.
    pub thread: Val<'k, ty::U32>,
    /// True in the one thread that talks to TMA.
    pub leads: Val<'k, ty::Bool>,
    warp: Val<'k, ty::U32>,
    lane: Val<'k, ty::U32>,
    /// The warpgroup's named barrier.
    pub barrier: Val<'k, ty::U32>,
    buffers: Val<'k, ty::Smem>,
    c_full: Val<'k, ty::Smem>,
}

impl<'k, S: Sum> WarpgroupStore<'_, 'k, S> {
    /// The type of C and D.
    pub fn output(&self) -> Element {
        self.epilogue.spec.output
    }

    /// The staging buffers.
    pub(crate) fn buffers(&self) -> Val<'k, ty::Smem> {
        self.buffers
    }

    pub(crate) fn builder(&self) -> &'k KernelBuilder {
        self.epilogue.b
    }

    /// Rows and columns of D.
    pub(crate) fn extents(&self) -> [Val<'k, ty::U32>; 2] {
        self.epilogue.extents
    }

    pub(crate) fn major(&self) -> OutputMajor {
        self.epilogue.spec.d_major
    }

    /// Whether threads can hold more than one unit of D at a time.
    pub(crate) fn has_registers_left(&self) -> bool {
        self.epilogue.spec.few_registers()
    }

    /// The staging tile.
    pub(crate) fn staging(&self) -> &Staging {
        &self.epilogue.staging
    }

    /// Columns of D in a staging tile.
    pub(crate) fn columns(&self) -> u32 {
        self.epilogue.staging.columns()
    }

    /// Waits for the warpgroup's threads.
    pub fn sync(&self) {
        self.epilogue.b.barrier_sync(self.barrier, WARPGROUP_THREADS);
    }

    /// Stores one staging tile; `sums` gives this thread's four of 8 columns, counted in groups, as the accumulators have
    /// them.
    pub fn store(&self, sums: &Sums<'_, 'k, S>, place: Place<'k>, c_parity: Val<'k, ty::U32>) {
        let added = self.added(place);
        let bias = |group: u32| added.as_ref().map(|added| added.quad(0, group));
        self.store_with(sums, &bias, place, None, c_parity);
    }

    /// What is added to a thread's sums of a staging tile.
    fn added(&self, place: Place<'k>) -> Option<Added<'k>> {
        let bias = self.epilogue.bias.as_ref()?;
        let first = self.first_element(place.row, place.column);
        if self.epilogue.spec.loads_bias_as_needed() {
            return Some(Added::AsNeeded(*bias, first[1]));
        }
        Some(bias.added(first, (1, self.to_second_row()), self.columns() / 8))
    }

    /// Stores one staging tile with this bias.
    fn store_with(
        &self,
        sums: &Sums<'_, 'k, S>,
        bias: &Biases<'_, 'k>,
        place: Place<'k>,
        found: Option<&Found<'k>>,
        c_parity: Val<'k, ty::U32>,
    ) {
        let Epilogue { scales, .. } = self.epilogue;
        let with_bias = |quad, group| self.with_bias(quad, bias(group));
        let Some(scales) = scales else {
            let sums = |group: u32| with_bias(sums(group), group);
            return self.store_scaled(&sums, place, found, c_parity);
        };
        let [row, column] = self.first_element(place.row, place.column);
        let rows = scales.rows(row, place.batch);
        let scaled = |group: u32| scales.apply(sums(group), rows, column + group * 8, place.batch);
        let sums = |group: u32| with_bias(scaled(group), group);
        self.store_scaled(&sums, place, found, c_parity);
    }

    /// A quad that alpha has multiplied and the bias been added to; the same one where there is no bias.
    fn with_bias(
        &self,
        quad: [Val<'k, S>; 4],
        bias: Option<[Val<'k, ty::F32>; 4]>,
    ) -> [Val<'k, S>; 4] {
        let [alpha, _] = self.epilogue.factors;
        match bias {
            None => quad,
            Some(bias) => std::array::from_fn(|i| S::with_bias(quad[i], alpha, bias[i])),
        }
    }

    /// Row and column of a thread's first sum in a block at these.
    pub(crate) fn first_element(
        &self,
        row: Val<'k, ty::U32>,
        column: Val<'k, ty::U32>,
    ) -> [Val<'k, ty::U32>; 2] {
        let row = match &self.epilogue.rows {
            None => row + self.warp * 16 + self.lane / 4,
            Some(rows) => row + evaluate(rows, self.thread),
        };
        [row, column + self.lane % 4 * 2]
    }

    /// Row of a thread's first two sums in a block.
    fn row_in_block(&self) -> Val<'k, ty::U32> {
        match &self.epilogue.rows {
            None => self.warp * 16 + self.lane / 4,
            Some(rows) => evaluate(rows, self.thread),
        }
    }

    /// Rows from there to its other two.
    fn to_second_row(&self) -> u32 {
        if self.epilogue.rows.is_some() { fragment::TO_SECOND_ROW } else { 8 }
    }

    /// Stores one staging tile of sums that need no scales any more, and have the bias.
    fn store_scaled(
        &self,
        sums: &Sums<'_, 'k, S>,
        place: Place<'k>,
        found: Option<&Found<'k>>,
        c_parity: Val<'k, ty::U32>,
    ) {
        let Epilogue { b, spec, staging, c, d, factors: [_, beta], direct, .. } = self.epilogue;
        let buffer = self.buffers.offset(place.buffer * staging.buffer_bytes());
        let coordinates = match spec.d_major {
            OutputMajor::N => [place.column, place.row],
            OutputMajor::M => [place.row, place.column],
        };
        let in_map = |map: &BatchMap<'k>| {
            let [first, second] = coordinates;
            [first, second, map.place(place.batch)]
        };
        let reads_c = beta.ne(S::zero(b));

        b.if_(self.leads & !*direct, || {
            b.bulk_wait_read(place.stores_pending);
            b.if_(reads_c, || {
                self.c_full.mbarrier_arrive_expect(staging.buffer_bytes());
                c.map.load(buffer, self.c_full, &in_map(&c.map));
            });
        });
        self.sync();
        b.if_(*direct & reads_c, || {
            b.scope("c", || self.load_slice(c, &place, buffer));
            self.sync();
        });
        b.if_else(
            reads_c,
            || {
                b.if_(!*direct, || self.c_full.mbarrier_wait(c_parity));
                b.scope("with c", || S::write_staging(self, sums, buffer, true));
            },
            || S::write_staging(self, sums, buffer, false),
        );
        b.fence_proxy_async();
        self.sync();
        b.if_else(
            *direct,
            || {
                if place.side_by_side > 0 {
                    // Those that are stored together fill the buffers from the first on.
                    let first = if place.side_by_side == 1 { buffer } else { self.buffers };
                    b.scope("direct", || self.store_slice(d, &place, first, found));
                }
            },
            || {
                b.if_(self.leads, || {
                    d.map.store(buffer, &in_map(&d.map));
                    b.bulk_commit();
                });
            },
        );
    }

    /// Stores some quads side by side, the first at `origin`, with no help of shared memory.
    pub fn store_elements(&self, sums: &[[Val<'k, S>; 4]], origin: TileOrigin<'k>) {
        let Epilogue { b, spec, c, d, extents: [m, n], factors: [_, beta], scales, bias, .. } =
            self.epilogue;
        let (element, reads_c) = (spec.output, beta.ne(S::zero(b)));
        let [first_row, first_column] = self.first_element(origin.m, origin.n);
        let [c_start, d_start] = [c, d].map(|matrix| matrix.start(origin.batch));
        let scales = scales.as_ref().map(|scales| (scales, scales.rows(first_row, origin.batch)));
        for (group, quad) in (0..).zip(sums) {
            let quad = match &scales {
                None => *quad,
                Some((scales, rows)) => {
                    scales.apply(*quad, *rows, first_column + group * 8, origin.batch)
                }
            };
            let place = [first_row, first_column + group * 8];
            let added = bias
                .as_ref()
                .map(|bias| bias.added(place, (1, self.to_second_row()), 1).quad(0, 0));
            let quad = self.with_bias(quad, added);
            for (i, sum) in (0..).zip(quad) {
                let row = first_row + i / 2 * self.to_second_row();
                let column = first_column + (group * 8 + i % 2);
                let (line, place) = match spec.d_major {
                    OutputMajor::N => (row, column),
                    OutputMajor::M => (column, row),
                };
                let in_matrix = |matrix: &Output<'k>, start: Val<'k, ty::U64>| {
                    let offset = line.widen() * matrix.stride;
                    (start + offset).byte_offset(place * element.bytes())
                };
                b.if_(row.lt(*m) & column.lt(*n), || {
                    let value = b.if_else(
                        reads_c,
                        || {
                            self.scale(
                                sum,
                                Some(S::load_element(b, in_matrix(c, c_start), element)),
                            )
                        },
                        || self.scale(sum, None),
                    );
                    S::store_element(b, in_matrix(d, d_start), element, value);
                });
            }
        }
    }

    /// Writes the staging tile of 32-bit results into `buffer`, in place of C where that is added: two neighbours of a line at a
    /// time, where the thread has them.
    pub fn write_words(&self, sums: &Sums<'_, 'k, S>, buffer: Val<'k, ty::Smem>, with_c: bool) {
        let Epilogue { spec, staging, .. } = self.epilogue;
        let (row, to_second_row) = (self.row_in_block(), self.to_second_row());
        let in_group = self.lane % 4;
        for group in 0..staging.columns() / 8 {
            let sums = sums(group);
            let column = |i: u32| in_group * 2 + (group * 8 + i);
            let in_column = |i: u32, row: Val<'k, ty::U32>| {
                buffer.offset(column(i) * staging.line_bytes()).offset(row * 4)
            };
            match spec.d_major {
                OutputMajor::N => {
                    for (half, pair) in (0..).zip(sums.chunks(2)) {
                        let chunk = in_group / 2 + group * 2;
                        let address = self.address(buffer, row + half * to_second_row, chunk);
                        let address = address.offset(in_group % 2 * 8);
                        self.write_scaled([pair[0], pair[1]], address, with_c);
                    }
                }
                OutputMajor::M if to_second_row == 1 => {
                    for i in 0..2 {
                        let pair = [sums[i as usize], sums[i as usize + 2]];
                        self.write_scaled(pair, in_column(i, row), with_c);
                    }
                }
                OutputMajor::M => {
                    for (at, sum) in (0..).zip(sums) {
                        let address = in_column(at % 2, row + at / 2 * to_second_row);
                        self.write_scaled([sum], address, with_c);
                    }
                }
            }
        }
    }

    /// Writes the results of neighbours to the staging tile, in place of C where that is added.
    fn write_scaled<const N: usize>(
        &self,
        sums: [Val<'k, S>; N],
        address: Val<'k, ty::Smem>,
        with_c: bool,
    ) {
        let b = self.epilogue.b;
        let c = with_c.then(|| b.load_shared::<S, N>(address));
        let scale = |i| self.scale(sums[i], c.map(|c: [Val<_>; N]| c[i]));
        b.store_shared(address, std::array::from_fn::<_, N, _>(scale));
    }

    /// A result: of a sum that has its bias, where there is one.
    pub(crate) fn scale(&self, sum: Val<'k, S>, c: Option<Val<'k, S>>) -> Val<'k, S> {
        let Epilogue { spec, bias, factors, .. } = self.epilogue;
        let scaled = match (bias, c) {
            (None, c) => S::scale(sum, *factors, c),
            (Some(_), None) => sum,
            (Some(_), Some(c)) => S::add(sum, c, factors[1]),
        };
        match spec.epilogue.activation() {
            None => scaled,
            Some(activation) => S::activate(scaled, activation, spec.output),
        }
    }

    /// The address of a 16-byte chunk of a line of the staging tile. The swizzle XORs address bits 4.. with bits 7.., so
    /// the chunk with the number of its 128-byte line.
    pub(crate) fn address(
        &self,
        buffer: Val<'k, ty::Smem>,
        line: Val<'k, ty::U32>,
        chunk: Val<'k, ty::U32>,
    ) -> Val<'k, ty::Smem> {
        let staging = &self.epilogue.staging;
        let chunk = match staging.swizzle().span_bytes() {
            None => chunk,
            Some(span) => chunk ^ (line / (128 / span) % (span / 16)),
        };
        buffer.offset(line * staging.line_bytes() + chunk * 16)
    }
}

impl<'k> WarpgroupStore<'_, 'k, ty::F32> {
    /// Writes the staging tile of a 16-bit type into `buffer`, in place of C where that is added: four 8×8 matrices at a time, rows 0–7 and 8–15 of the warp's 16, columns 0–7 and 8–15. Lane l gives the address of
    /// line l % 8 of matrix l / 8.
    pub fn write_16bit(
        &self,
        sums: &Sums<'_, 'k, ty::F32>,
        buffer: Val<'k, ty::Smem>,
        with_c: bool,
    ) {
        let Epilogue { b, spec, staging, .. } = self.epilogue;
        let columns_are_lines = spec.d_major == OutputMajor::M;
        for column in (0..staging.columns()).step_by(16) {
            let address = match spec.d_major {
                OutputMajor::N => {
                    let row = self.warp * 16 + self.lane % 16;
                    self.address(buffer, row, self.lane / 16 + column / 8)
                }
                OutputMajor::M => {
                    let line = self.lane / 16 * 8 + self.lane % 8;
                    let chunk = self.warp * 2 + self.lane / 8 % 2;
                    self.address(buffer, line, chunk).offset(column * staging.line_bytes())
                }
            };
            let pair = |sums: &[Val<'k, ty::F32>], c: Option<Val<'k, ty::B32>>| {
                let c = c.map(|c| c.unpack(spec.output));
                let [low, high] = [0, 1].map(|i| self.scale(sums[i], c.map(|c| c[i])));
                low.pack(high, spec.output)
            };
            let left = sums(column / 8);
            if staging.columns() - column >= 16 {
                let c = with_c.then(|| b.load_matrix::<4>(address, columns_are_lines));
                let both = [left, sums(column / 8 + 1)].concat();
                let pairs =
                    std::array::from_fn::<_, 4, _>(|i| pair(&both[i * 2..][..2], c.map(|c| c[i])));
                b.store_matrix(address, pairs, columns_are_lines);
            } else {
                let c = with_c.then(|| b.load_matrix::<2>(address, columns_are_lines));
                let pairs =
                    std::array::from_fn::<_, 2, _>(|i| pair(&left[i * 2..][..2], c.map(|c| c[i])));
                b.store_matrix(address, pairs, columns_are_lines);
            }
        }
    }
}
