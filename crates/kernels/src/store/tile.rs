//! The stores of a warpgroup of a wgmma kernel. Each staging tile is computed from the sums and
//! written to a staging buffer in shared memory. It is stored from there while the next staging
//! tile is computed and the producer already loads the next CTA tile. If C is read, its elements
//! are first loaded into the same buffer. TMA moves staging tiles between shared and global memory.
//! If TMA cannot move C or D, the warpgroup's threads do ([`super::threads`]). The launch says
//! which.
//!
//! Pieces of a split tile are stored as single staging tiles. If many workers share the tile, they
//! are stored as quads that go straight to global memory.

use pgemm_ir::{Val, ty};

use super::results::{Results, Vectors};
use super::staged::{Place, Store};
use super::threads::PlannedStores;
use super::vector::QuadBias;
use super::write::{Quads, ReadsC, StagedResult, Writer};
use crate::control::switch;
use crate::coordinates::TileOrigin;
use crate::problem::{OutputMatrix, Problem};
use crate::spec::{BiasLoads, Schedule};
use crate::tiles::staging::OutputMajor;

/// Values that a thread loads or computes for a tile before its mainloop ends.
pub(crate) struct Prepared<'k, R> {
    /// The bias of the whole tile, if registers hold it.
    bias: Option<QuadBias<'k, R>>,
    /// The thread's stores to D, if threads store it.
    units: Option<PlannedStores<'k>>,
}

impl<R> Default for Prepared<'_, R> {
    /// The default has no prepared values.
    fn default() -> Self {
        Prepared { bias: None, units: None }
    }
}

impl<'k, R: StagedResult> Store<'_, 'k, R> {
    /// Prepares the tile part at `origin` before it is multiplied. Only kernels with enough
    /// registers prepare anything.
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
        let units = (last.side_by_side == steps).then(|| self.plan_stores(&last)).flatten();
        Prepared { bias, units }
    }

    /// Stores the tile part at `origin`. `quads` returns the thread's sums of a group of 8 columns.
    /// Groups are counted over all sets of accumulators and their blocks of 64 rows. `c_parity` is
    /// carried from tile to tile.
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
        // A bias that is loaded with each staging tile is loaded one staging tile ahead. This needs
        // free registers and a cooperative schedule. If registers are short, a wait costs less than
        // a spill. In a ping-pong kernel the other warpgroup's MMAs run during the wait.
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
                    let sums = |set: u32, group: u32| quads((set * steps + at) * groups + group);
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

    /// Stores only staging tile `step` of the tile part at `origin`, through the first buffer.
    /// `quads` returns the thread's sums of the groups of 8 columns of this staging tile.
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
            waits_for_all: None,
            side_by_side: 1,
            completes: b.constant(true),
            ..self.place(origin, step)
        };
        let (bias, scales) = (self.bias_of(&place), self.row_scales(&place));
        self.staging_tile(&place, None, c_parity, &|writer| {
            let vectors =
                Vectors { bias: bias.as_ref(), bias_at: (0, 0), scales, batch: place.batch };
            self.write(writer, &|_, group| quads(group), &vectors);
        });
    }

    /// Moves one staging tile. It loads C into the buffer, lets `write` replace C by the results,
    /// and stores the results.
    fn staging_tile(
        &self,
        place: &Place<'k>,
        units: Option<&PlannedStores<'k>>,
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
        // Where each box lies in shared memory, and in its lines.
        let boxes = || {
            (0..staging.boxes()).map(|i| {
                let before = i * staging.extents()[0];
                (place.buffer.offset(i * staging.box_bytes()), across + before)
            })
        };

        b.if_(warpgroup.leads & !*by_threads, || {
            b.bulk_wait_read(place.stores_pending);
            if let Some(waits) = place.waits_for_all {
                b.if_(waits, || b.bulk_wait_read(0));
            }
            b.if_(reads_c, || {
                if let Some(map) = &c.map {
                    warpgroup.c_full.mbarrier_expect_copies(|copies| {
                        for (buffer, across) in boxes() {
                            map.load(copies, buffer, &[across, down, map.place(place.batch)]);
                        }
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
            buffer: place.buffer,
            thread: warpgroup.thread,
            free_registers: registers.budget.consumer.saturating_sub(registers.accumulators),
            reads_c,
        };
        let wait_for_c = || b.if_(!*by_threads, || warpgroup.c_full.mbarrier_wait(c_parity));
        if output.graph.is_long() {
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
                    // Staging tiles that are stored together fill the buffers from the first one
                    // on.
                    let first =
                        if place.side_by_side == 1 { place.buffer } else { warpgroup.buffers };
                    b.scope("by threads", || self.store_by_threads(place, first, units));
                });
            },
            || {
                b.if_(warpgroup.leads, || {
                    if let Some(map) = &d.map {
                        for (buffer, across) in boxes() {
                            map.store(buffer, &[across, down, map.place(place.batch)]);
                        }
                    }
                    b.bulk_commit();
                });
            },
        );
    }

    /// Stores the quad at `row` and `column` of a product without shared memory.
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
        // Of each element: whether it is in D, its line, and its byte offset in the line.
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
            (start + line.to_u64() * matrix.stride).byte_offset(bytes)
        };
        let results = Results { store: self, quads: &|_, _| sums, vectors: &vectors };
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
