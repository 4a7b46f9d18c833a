//! The output of wgmma kernels. A warpgroup stores its part of a tile as staging tiles of 64 rows,
//! one after the other: each is computed from the sums, written to a staging buffer in shared
//! memory, and stored from there while the next one is computed and the producer already loads the
//! next CTA tile. Where C is read, its elements come into the same buffer first. Staging tiles move
//! between shared and global memory by TMA or, where TMA cannot move C or D, by the warpgroup's
//! threads ([`super::threads`]); the launch says which.

use pgemm_cute::CuteError;
use pgemm_ir::{
    KernelBuilder, NamedBarrier, NamedBarriers, RegionId, RegionKind, SmemRequest, Special, Val,
    WARPGROUP_THREADS, WARPGROUP_WARPS, ty,
};

use super::graph::{Graph, Input, Part};
use super::scales::Scales;
use super::staging::{STAGING_ROWS, Staging};
use super::threads::FoundUnits;
use super::vector::{Bias, QuadBias};
use super::write::{Addresses, Quads, ReadsC, StagedResult, Writer};
use crate::control::switch;
use crate::mainloop::wgmma::SumsLayout;
use crate::problem::{OutputMatrix, Problem};
use crate::source::TileOrigin;
use crate::spec::{BiasLoads, OutputMajor, Resources, Schedule, Spec};

/// Consumer warpgroups that a kernel has at most.
const MOST_CONSUMERS: u32 = 3;

const MBARRIER_BYTES: u32 = 8;

/// Declarations of the staged output of a kernel.
pub(crate) struct StagedOutput<'k> {
    pub(super) b: &'k KernelBuilder,
    pub(super) spec: Spec,
    pub(super) resources: Resources,
    /// Which sums a thread holds.
    pub(super) sums: SumsLayout,
    /// How results are computed.
    graph: Graph,
    /// Where a thread writes in a staging tile.
    pub(super) addresses: Addresses,
    scales: Option<Scales<'k>>,
    buffers: RegionId,
    c_full: RegionId,
    /// One for each consumer warpgroup.
    barriers: NamedBarriers<'k>,
}

impl<'k> StagedOutput<'k> {
    /// Declares staging buffers and barriers.
    ///
    /// # Errors
    /// A staging tile has no layout.
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
            addresses: Addresses::new(&staging, spec, &sums)?,
            sums,
            graph: Graph::of(spec),
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

    /// Initialises the barriers: one thread.
    pub(crate) fn init(&self) {
        for warpgroup in 0..self.spec.consumers() {
            self.b.smem_address(self.c_full).offset(warpgroup * MBARRIER_BYTES).mbarrier_init(1);
        }
    }

    /// The parity of the first slice of C.
    pub(crate) fn start(&self) -> Val<'k, ty::U32> {
        self.b.constant(0)
    }

    /// The spec.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// What a CTA takes.
    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// The threads of consumer warpgroup `consumer`, which computes part `part` of each tile.
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

    /// The output of a problem by the threads of a warpgroup.
    pub(crate) fn store<'o, R>(
        &'o self,
        warpgroup: &'o Warpgroup<'k>,
        problem: &'o Problem<'k, R>,
    ) -> Store<'o, 'k, R> {
        let bias = Bias::of(self.b, &self.spec, problem.bias);
        Store { output: self, warpgroup, problem, bias }
    }

    /// Before the CTA ends: its stores have read shared memory. The thread that issued them waits.
    pub(crate) fn drain(&self) {
        self.b.bulk_wait_read(0);
    }
}

/// What the threads of one consumer warpgroup know.
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
    c_full: Val<'k, ty::Smem>,
}

impl<'k> Warpgroup<'k> {
    /// Waits for the warpgroup's threads.
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

/// How a warpgroup's threads store results of one problem.
pub(crate) struct Store<'o, 'k, R> {
    pub(super) output: &'o StagedOutput<'k>,
    pub(super) warpgroup: &'o Warpgroup<'k>,
    pub(super) problem: &'o Problem<'k, R>,
    bias: Option<Bias<'k>>,
}

/// What a thread loads or computes for a tile before its mainloop ends.
pub(crate) struct Prepared<'k, R> {
    /// The bias of all of the tile, where registers hold it.
    bias: Option<QuadBias<'k, R>>,
    /// What the thread stores of D where TMA does not.
    units: Option<FoundUnits<'k>>,
}

/// Where a staging tile goes.
#[derive(Clone, Copy)]
pub(crate) struct Place<'k> {
    /// First row and column of D.
    pub(super) row: Val<'k, ty::U32>,
    pub(super) column: Val<'k, ty::U32>,
    /// Which product of the batch.
    pub(super) batch: Val<'k, ty::U32>,
    /// The staging buffer that it goes through.
    buffer: Val<'k, ty::Smem>,
    /// Stores that may still read other buffers.
    stores_pending: u32,
    /// Staging tiles side by side that threads store together.
    pub(super) side_by_side: u32,
    /// Whether this one is the last of these.
    completes: Val<'k, ty::Bool>,
}

/// The vectors of the thread's elements of a staging tile.
struct Vectors<'v, 'k, R> {
    bias: Option<&'v QuadBias<'k, R>>,
    /// The block of `bias` that the staging tile lies in, and its first group of 8 columns there.
    bias_at: (u32, u32),
    /// The scales of the thread's two rows, and its first column.
    scales: Option<([Val<'k, R>; 2], Val<'k, ty::U32>)>,
    batch: Val<'k, ty::U32>,
}

impl<R> Default for Prepared<'_, R> {
    /// Nothing.
    fn default() -> Self {
        Prepared { bias: None, units: None }
    }
}

impl<'k, R: StagedResult> Store<'_, 'k, R> {
    fn b(&self) -> &'k KernelBuilder {
        self.output.b
    }

    /// The threads.
    pub(crate) fn warpgroup(&self) -> &Warpgroup<'k> {
        self.warpgroup
    }

    /// Row and column of the thread's first sum in a block of 64 rows at these.
    fn first_element(
        &self,
        row: Val<'k, ty::U32>,
        column: Val<'k, ty::U32>,
    ) -> [Val<'k, ty::U32>; 2] {
        let [first_row, first_column] = self.output.sums.first_element(self.warpgroup.thread);
        [row + first_row, column + first_column]
    }

    /// Where staging tile `step` of the tile part at `origin` goes.
    fn place(&self, origin: TileOrigin<'k>, step: Val<'k, ty::U32>) -> Place<'k> {
        let (b, spec) = (self.b(), &self.output.spec);
        let staging = self.output.staging();
        let (slices, steps, buffers) = (staging.slices(), staging.steps(), staging.buffers());
        // Staging tiles side by side that all lie in buffers at the end: threads store their lines
        // as one, which has two ends.
        let one_block = spec.d_major == OutputMajor::N && slices == buffers && slices == steps;
        let side_by_side = if one_block { slices } else { 1 };
        Place {
            row: origin.m + step / slices * STAGING_ROWS,
            column: origin.n + step % slices * staging.columns(),
            batch: origin.batch,
            buffer: self.warpgroup.buffers.offset(step % buffers * staging.buffer_bytes()),
            // The store before the latest ones of the other buffers was from this one.
            stores_pending: buffers - 1,
            side_by_side,
            completes: match side_by_side {
                1 => b.constant(true),
                _ => step.eq(steps - 1),
            },
        }
    }

    /// What can be found before the tile part at `origin` is multiplied, by kernels that have the
    /// registers for it.
    pub(crate) fn prepare(&self, origin: TileOrigin<'k>) -> Prepared<'k, R> {
        let output = self.output;
        let bias =
            self.bias.filter(|_| output.resources.registers.bias == BiasLoads::BeforeMainloop);
        let bias = bias.map(|bias| {
            let first = self.first_element(origin.m, origin.n);
            let rows = (output.spec.blocks(), output.sums.second_row());
            bias.quads(first, rows, output.spec.tile.n / 8, false)
        });
        let steps = output.staging().steps();
        let last = self.place(origin, self.b().constant(steps - 1));
        let units = (last.side_by_side == steps).then(|| self.find_units(&last)).flatten();
        Prepared { bias, units }
    }

    /// Stores the tile part at `origin`. `quads` gives the thread's sums of some groups of 8
    /// columns, counted over all blocks of 64 rows. `c_parity` goes from tile to tile.
    pub(crate) fn tile(
        &self,
        origin: TileOrigin<'k>,
        prepared: &Prepared<'k, R>,
        quads: &dyn Fn(u32) -> [Val<'k, R>; 4],
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let (b, output) = (self.b(), self.output);
        let staging = output.staging();
        let (steps, slices, groups) = (staging.steps(), staging.slices(), staging.columns() / 8);
        let place = |step: Val<'k, ty::U32>| self.place(origin, step);
        // Where the bias comes with each staging tile it is loaded one ahead; but not where another
        // warpgroup multiplies meanwhile or registers are short, since a wait costs less than a
        // spill.
        let late = prepared.bias.is_none();
        let ahead = steps > 1
            && output.spec.schedule() == Schedule::Cooperative
            && output.resources.registers.is_plenty
            && output.resources.registers.bias == BiasLoads::WithStore;
        let load = |step| if late { self.bias_of(&place(step)) } else { None };
        let first = if ahead { load(b.constant(0)) } else { None };
        let store = |step: Val<'k, ty::U32>, (loaded, parity)| {
            let loaded: Option<QuadBias<'k, R>> = if ahead { loaded } else { load(step) };
            let next = if ahead { load((step + 1).min(steps - 1)) } else { None };
            let place = place(step);
            let scales = self.row_scales(&place);
            self.staging_tile(&place, prepared.units.as_ref(), parity, &|writer| {
                switch(b, step, steps, &|at| {
                    let (block, first_group) = (at / slices, at % slices * groups);
                    let (bias, bias_at) = match &prepared.bias {
                        Some(all) => (Some(all), (block, first_group)),
                        None => (loaded.as_ref(), (0, 0)),
                    };
                    let vectors = Vectors { bias, bias_at, scales, batch: place.batch };
                    let sums = |group: u32| quads(at * groups + group);
                    self.write(writer, &sums, &vectors);
                });
            });
            (next, parity ^ 1)
        };
        let (_, c_parity) = match steps {
            1 => store(b.constant(0), (first, c_parity)),
            _ => b.for_carry(0, steps, 1, (first, c_parity), store),
        };
        c_parity
    }

    /// Stores staging tile `step` of the tile part at `origin` alone, through the first buffer.
    /// `quads` gives the thread's sums of its groups of 8 columns.
    pub(crate) fn piece(
        &self,
        origin: TileOrigin<'k>,
        step: Val<'k, ty::U32>,
        quads: &dyn Fn(u32) -> [Val<'k, R>; 4],
        c_parity: Val<'k, ty::U32>,
    ) {
        let b = self.b();
        let place = Place {
            buffer: self.warpgroup.buffers,
            stores_pending: 0,
            side_by_side: 1,
            completes: b.constant(true),
            ..self.place(origin, step)
        };
        let (bias, scales) = (self.bias_of(&place), self.row_scales(&place));
        self.staging_tile(&place, None, c_parity, &|writer| {
            let vectors =
                Vectors { bias: bias.as_ref(), bias_at: (0, 0), scales, batch: place.batch };
            self.write(writer, quads, &vectors);
        });
    }

    /// The bias of the thread's elements of a staging tile.
    fn bias_of(&self, place: &Place<'k>) -> Option<QuadBias<'k, R>> {
        let output = self.output;
        let first = self.first_element(place.row, place.column);
        let by_element = output.resources.registers.bias == BiasLoads::ByElement;
        let rows = (1, output.sums.second_row());
        let groups = output.staging().columns() / 8;
        self.bias.map(|bias| bias.quads(first, rows, groups, by_element))
    }

    /// The scales of the thread's rows of a staging tile, and its first column.
    fn row_scales(&self, place: &Place<'k>) -> Option<([Val<'k, R>; 2], Val<'k, ty::U32>)> {
        let scales = self.output.scales.as_ref()?;
        let [row, column] = self.first_element(place.row, place.column);
        let second = self.output.sums.second_row();
        Some((scales.rows([row, row + second], place.batch), column))
    }

    /// Computes and writes the staging tile of the sums that `quads` gives.
    fn write(
        &self,
        writer: &Writer<'_, 'k>,
        quads: &dyn Fn(u32) -> [Val<'k, R>; 4],
        vectors: &Vectors<'_, 'k, R>,
    ) {
        R::write(writer, &Results { store: self, quads, vectors });
    }

    /// Moves one staging tile: brings C into its buffer, has `write` replace it by results, and
    /// stores these.
    fn staging_tile(
        &self,
        place: &Place<'k>,
        units: Option<&FoundUnits<'k>>,
        c_parity: Val<'k, ty::U32>,
        write: &dyn Fn(&Writer<'_, 'k>),
    ) {
        let (b, output, warpgroup) = (self.b(), self.output, self.warpgroup);
        let Problem { c, d, by_threads, .. } = self.problem;
        let staging = output.staging();
        let reads_c = self.problem.reads_c(b);
        let [across, down] = match output.spec.d_major {
            OutputMajor::N => [place.column, place.row],
            OutputMajor::M => [place.row, place.column],
        };

        b.if_(warpgroup.leads & !*by_threads, || {
            b.bulk_wait_read(place.stores_pending);
            b.if_(reads_c, || {
                if let Some(map) = &c.map {
                    let box_at = [across, down, map.place(place.batch)];
                    warpgroup.c_full.mbarrier_expect_copies(|copies| {
                        map.load(copies, place.buffer, &box_at);
                    });
                }
            });
        });
        warpgroup.sync();
        b.if_(*by_threads & reads_c, || {
            b.scope("c by threads", || self.load_by_threads(place, place.buffer));
            warpgroup.sync();
        });
        let registers = &output.resources.registers;
        let writer = |reads_c: ReadsC<'k>| Writer {
            b,
            addresses: &output.addresses,
            staging,
            element: output.spec.output,
            buffer: place.buffer,
            thread: warpgroup.thread,
            free_registers: registers.budget.consumer.saturating_sub(registers.accumulators),
            reads_c,
        };
        let wait_for_c = || b.if_(!*by_threads, || warpgroup.c_full.mbarrier_wait(c_parity));
        if output.graph.is_long_after_c() {
            b.if_(reads_c, wait_for_c);
            write(&writer(ReadsC::If(reads_c)));
        } else {
            b.if_else(
                reads_c,
                || {
                    wait_for_c();
                    b.scope("with c", || write(&writer(ReadsC::Always)));
                },
                || write(&writer(ReadsC::Never)),
            );
        }
        b.fence_proxy_async();
        warpgroup.sync();
        b.if_else(
            *by_threads,
            || {
                b.if_(place.completes, || {
                    // Staging tiles that are stored together fill the buffers from the first on.
                    let first =
                        if place.side_by_side == 1 { place.buffer } else { warpgroup.buffers };
                    b.scope("by threads", || self.store_by_threads(place, first, units));
                });
            },
            || {
                b.if_(warpgroup.leads, || {
                    if let Some(map) = &d.map {
                        map.store(place.buffer, &[across, down, map.place(place.batch)]);
                    }
                    b.bulk_commit();
                });
            },
        );
    }

    /// Stores the quad at `row` and `column` of a product without the help of shared memory.
    pub(crate) fn quad(&self, sums: [Val<'k, R>; 4], origin: TileOrigin<'k>) {
        let (b, output) = (self.b(), self.output);
        let Problem { c, d, extents: [m, n], .. } = self.problem;
        let (element, reads_c) = (output.spec.output, self.problem.reads_c(b));
        let [row, column] = self.first_element(origin.m, origin.n);
        let second_row = output.sums.second_row();
        let bias = self.bias.map(|bias| bias.quads([row, column], (1, second_row), 1, true));
        let scales = output.scales.as_ref();
        let scales =
            scales.map(|scales| (scales.rows([row, row + second_row], origin.batch), column));
        let vectors = Vectors { bias: bias.as_ref(), bias_at: (0, 0), scales, batch: origin.batch };
        // Row and column of each element, whether it is in D, and its byte offset in a matrix.
        let places: [_; 4] = std::array::from_fn(|i| {
            let i = i as u32;
            let (row, column) = (row + i / 2 * second_row, column + i % 2);
            let (line, at) = match output.spec.d_major {
                OutputMajor::N => (row, column),
                OutputMajor::M => (column, row),
            };
            (row.lt(*m) & column.lt(*n), line, at * element.bytes())
        });
        let address = |matrix: &OutputMatrix<'k>, i: usize| {
            let (_, line, bytes) = places[i];
            let start = matrix.start(origin.batch);
            (start + line.widen() * matrix.stride).byte_offset(bytes)
        };
        let results = Results { store: self, quads: &|_| sums, vectors: &vectors };
        let before = results.before_c(0);
        let with_c = || {
            let c = std::array::from_fn(|i| {
                let load = || R::load_element(b, address(c, i), element);
                b.if_else(places[i].0, load, || R::zero(b))
            });
            results.add_c(before, c).to_vec()
        };
        let quad = b.if_else(reads_c, with_c, || before.to_vec());
        let quad = results.after_c(std::array::from_fn(|i| quad[i]));
        for (i, result) in quad.into_iter().enumerate() {
            b.if_(places[i].0, || R::store_element(b, address(d, i), element, result));
        }
    }
}

/// How the quads of a staging tile are computed: rows (0, 0, 1, 1) and columns (0, 1, 0, 1) each.
struct Results<'r, 's, 'k, R> {
    store: &'r Store<'s, 'k, R>,
    /// The sums of a group of 8 columns.
    quads: &'r dyn Fn(u32) -> [Val<'k, R>; 4],
    vectors: &'r Vectors<'r, 'k, R>,
}

impl<'k, R: StagedResult> Results<'_, '_, 'k, R> {
    fn evaluate(
        &self,
        part: Part,
        before: &[Val<'k, R>],
        read: impl Fn(Input) -> Option<[Val<'k, R>; 4]>,
    ) -> [Val<'k, R>; 4] {
        let graph = &self.store.output.graph;
        // A graph has no input that its kernel does not have.
        let read = |input| read(input).map_or_else(Vec::new, |quad| quad.to_vec());
        let results = graph.evaluate(part, before.to_vec(), read);
        std::array::from_fn(|i| results[i])
    }
}

impl<'k, R: StagedResult> Quads<'k, R> for Results<'_, '_, 'k, R> {
    fn before_c(&self, group: u32) -> [Val<'k, R>; 4] {
        let (output, vectors) = (self.store.output, self.vectors);
        let (block, first_group) = vectors.bias_at;
        let sums = (self.quads)(group);
        self.evaluate(Part::BeforeC, &[], |input| match (input, vectors.scales, &output.scales) {
            (Input::Sums(_), ..) => Some(sums),
            (Input::Alpha, ..) => Some([self.store.problem.factors[0]; 4]),
            (Input::Bias(_), ..) => vectors.bias.map(|bias| bias.quad(block, first_group + group)),
            (Input::RowScale, Some(([first, second], _)), _) => {
                Some([first, first, second, second])
            }
            (Input::ColumnScale, Some((_, column)), Some(scales)) => {
                let [first, second] = scales.columns(column + group * 8, vectors.batch);
                Some([first, second, first, second])
            }
            (
                Input::RowScale | Input::ColumnScale | Input::C | Input::Beta | Input::Parameter(_),
                ..,
            ) => None,
        })
    }

    fn add_c(&self, quad: [Val<'k, R>; 4], c: [Val<'k, R>; 4]) -> [Val<'k, R>; 4] {
        let beta = self.store.problem.factors[1];
        self.evaluate(Part::C, &quad, |input| match input {
            Input::C => Some(c),
            Input::Beta => Some([beta; 4]),
            _ => None,
        })
    }

    fn after_c(&self, quad: [Val<'k, R>; 4]) -> [Val<'k, R>; 4] {
        self.evaluate(Part::AfterC, &quad, |input| match input {
            Input::Parameter(place) => Some([self.store.problem.parameters[place]; 4]),
            _ => None,
        })
    }
}
