//! The resident kernel. It is launched once, stays on the device, and processes jobs as they are
//! submitted. Each job is a GEMM of its own shape.
//!
//! One warp of the grid takes in jobs (`relay.rs`). Each CTA takes tiles of any job (`tickets.rs`).
//! The last warpgroup that stores a part of a job writes the job's completion words. Producer and
//! consumers work as in a launched kernel, but they read the job's record in place of kernel
//! parameters. docs/resident.md describes the protocol.

mod leader;
pub mod record;
pub(crate) mod relay;
pub(crate) mod tickets;

use pgemm_ir::{
    AtomicOp, Carried, KernelBuilder, Order, RingCursor, Scope, TensorMapSpec, Val, ty,
};

use crate::compute::Compute;
use crate::coordinates::{Segment, TileOrigin};
use crate::operands::{BatchMap, OperandMatrix, Operands};
use crate::params::Params;
use crate::problem::{Boxes, OutputMatrix, Problem};
use crate::quantity::Matrix;
pub use crate::queue::{QueueQuantity, layout};
use crate::source::{Item, Job, Source, Walker};
use crate::spec::Spec;
use layout::{MAP_BYTES, RECORD_BYTES, RING_SLOTS, SLOT_BYTES, Slot, queue};
use relay::Relay;
use tickets::{JobTile, Reader, Tickets};

/// The producer requests another tile when this many stages of the current tile are left. These
/// stages take longer than the search for a tile.
const REQUEST_AHEAD_STAGES: u32 = 16;

/// The tiles of a queue's jobs.
pub(crate) struct QueueSource<'k, R> {
    b: &'k KernelBuilder,
    spec: Spec,
    boxes: Boxes,
    queue: Val<'k, ty::U64>,
    records: Val<'k, ty::U64>,
    completions: Val<'k, ty::U64>,
    tickets: Tickets<'k>,
    relay: Relay<'k>,
    result: std::marker::PhantomData<R>,
}

impl<'k, R: Compute> QueueSource<'k, R> {
    /// Declares the queue's parameters and shared memory.
    pub(crate) fn declare(params: &Params<'k, QueueQuantity>, spec: &Spec, boxes: Boxes) -> Self {
        let queue = params.scalar(QueueQuantity::Queue);
        let records = params.scalar(QueueQuantity::Records);
        let completions = params.scalar(QueueQuantity::Completions);
        let readers = 1 + spec.consumers() * 4;
        QueueSource {
            b: params.b,
            spec: *spec,
            boxes,
            queue,
            records,
            completions,
            tickets: Tickets::declare(params.b, spec, readers, [queue, records]),
            relay: Relay::declare(params, [queue, records]),
            result: std::marker::PhantomData,
        }
    }

    /// The tensor map of a matrix of a tile's job.
    fn map(&self, tile: &JobTile<'k>, matrix: Matrix, boxes: &TensorMapSpec) -> BatchMap<'k> {
        let at = record::map_index(matrix) * MAP_BYTES;
        let address = self.records.byte_offset(tile.record * RECORD_BYTES + at);
        let step = (tile.steps >> matrix as u32) & 1;
        BatchMap::at(self.b, address, boxes.clone(), step)
    }

    /// The part of a tile's problem that this walker needs.
    fn problem(&self, tile: &JobTile<'k>, walker: Walker<'k>) -> Problem<'k, R> {
        let b = self.b;
        let operands = match walker {
            Walker::Consumer { .. } | Walker::Helper => vec![],
            Walker::Loader => [Matrix::A, Matrix::B]
                .into_iter()
                .zip(&self.boxes.operands)
                .map(|(matrix, boxes)| OperandMatrix::Map(self.map(tile, matrix, boxes)))
                .collect(),
        };
        let output = |matrix| {
            let boxes = self.boxes.output.as_ref();
            let boxes = boxes.filter(|_| matches!(walker, Walker::Consumer { .. }));
            OutputMatrix::by_map(b, boxes.map(|boxes| self.map(tile, matrix, boxes)))
        };
        let nothing = b.constant::<ty::U32>(0);
        Problem {
            operands,
            c: output(Matrix::C),
            d: output(Matrix::D),
            extents: [nothing; 2],
            factors: tile.factors.map(R::from_word),
            parameters: tile.parameters.into_iter().flatten().map(R::from_word).collect(),
            bias: tile.bias,
            by_threads: b.constant(false),
        }
    }

    /// The segment with all stages of a tile.
    fn segment(&self, tile: &JobTile<'k>) -> Segment<'k> {
        let b = self.b;
        let zero = b.constant(0);
        Segment {
            k_first: zero,
            k_count: tile.k_tiles,
            whole: b.constant(true),
            tile: zero,
            unit: zero,
            last: b.constant(false),
        }
    }

    /// Counts a part of a tile as done. The last part of a job writes the completion words once its
    /// stores are visible. The thread that issued the stores calls this.
    fn arrive(&self, job: Val<'k, ty::U32>) {
        let b = self.b;
        let slot = self.queue.byte_offset(job % RING_SLOTS * SLOT_BYTES + queue::SLOTS_AT);
        let at = |word: Slot| slot.byte_offset(word as u32 * 4);
        let [tiles] = b.load_global::<ty::U32, 1>(at(Slot::Tiles));
        let [completion, value] = b.load_global::<ty::U32, 2>(at(Slot::Completion));
        b.bulk_wait(0);
        b.fence_proxy_async_global();
        let all = tiles * self.spec.parts();
        let arrive = || {
            let at = at(Slot::Arrived);
            b.atomic(AtomicOp::Add, at, 1, Order::AcquireRelease, Scope::Gpu)
        };
        // The only part of a job need not be counted.
        let before = b.if_else(all.eq(1), || b.constant(0), arrive);
        b.if_((before + 1).eq(all), || {
            b.fence(Order::AcquireRelease, Scope::Gpu);
            let here = self.queue.byte_offset(completion * 4 + queue::COMPLETIONS_AT);
            b.store_ordered(here, value, Order::Relaxed, Scope::Gpu);
            // D is device memory, so copies to the host read the same L2 as the device. They need
            // no fence at system scope. Such fences run one at a time for all SMs, 0.7 µs each.
            let host = self.completions.byte_offset(completion * 4);
            b.store_ordered(host, value, Order::Relaxed, Scope::System);
            let freed = self.queue.byte_offset(job % RING_SLOTS * 4 + queue::FREED_AT);
            // This is an addition and not a store. The relay may learn from `done` alone that the
            // slot is free. Then no order exists between this access and the values that the slot's
            // next job writes there.
            b.atomic(AtomicOp::Add, freed, RING_SLOTS, Order::Relaxed, Scope::Gpu);
            let done = self.queue.byte_offset(queue::DONE_AT);
            b.atomic(AtomicOp::Add, done, tiles, Order::Relaxed, Scope::Gpu);
        });
    }
}

impl<'k, R: Compute> Source<'k> for QueueSource<'k, R> {
    type Result = R;
    /// The stamp of the last record whose tensor maps the walker has acquired.
    type ProblemState = Val<'k, ty::U32>;

    fn initial_state(&self) -> Val<'k, ty::U32> {
        // No record has stamp 0.
        self.b.constant(0)
    }

    /// Acquires the tensor maps of a new record that this walker uses. It takes hundreds of cycles.
    fn begin(
        &self,
        Item { problem, job, .. }: &Item<'k, R>,
        walker: Walker<'k>,
        problem_state: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let Some(Job { stamp, .. }) = *job else { return problem_state };
        let is_new = stamp.ne(problem_state);
        let maps = || problem.operands.iter().filter_map(OperandMatrix::map);
        match walker {
            Walker::Loader => {
                b.if_(is_new, || maps().for_each(BatchMap::fence_acquire));
                b.fence_proxy_async_global();
            }
            Walker::Helper => {}
            Walker::Consumer { leads } => b.if_(leads & is_new, || {
                problem.d.map.iter().for_each(BatchMap::fence_acquire);
                b.if_(problem.reads_c(b), || {
                    problem.c.map.iter().for_each(BatchMap::fence_acquire);
                });
            }),
        }
        stamp
    }

    fn init(&self) {
        self.tickets.init();
    }

    fn for_each<C: Carried<'k> + Copy>(
        &self,
        walker: Walker<'k>,
        init: C,
        body: impl FnOnce(&Item<'k, R>, C) -> C,
    ) -> C {
        let b = self.b;
        let reader = match walker {
            Walker::Loader => Reader::Thread,
            Walker::Consumer { .. } => Reader::Warpgroup,
            Walker::Helper => Reader::Warp,
        };
        let (_, carried, _) = b.while_(
            (self.tickets.start(), init, b.constant(true)),
            |(.., goes_on)| goes_on,
            |(at, carried, _)| {
                let (tile, at) = self.tickets.take(at, reader);
                let exists = tile.k_tiles.ne(0);
                let work = || {
                    let problem = self.problem(&tile, walker);
                    let (segment, origin) = (self.segment(&tile), Some(tile.origin));
                    let job = Some(Job { number: tile.job, stamp: tile.stamp });
                    body(&Item { segment, origin, problem, job }, carried)
                };
                let carried = b.if_else(exists, work, || carried);
                (at, carried, exists)
            },
        );
        carried
    }

    fn load(&self, operands: &Operands<'k>) -> RingCursor<'k> {
        let b = self.b;
        let walker = Walker::Loader;
        let start = (operands.start(), self.initial_state());
        let load = |item: &Item<'k, R>, (cursor, problem_state)| {
            let problem_state = self.begin(item, walker, problem_state);
            let request_at = item.segment.k_count.max(REQUEST_AHEAD_STAGES) - REQUEST_AHEAD_STAGES;
            let before =
                |k_tile: Val<'k, ty::U32>| b.if_(k_tile.eq(request_at), || self.tickets.request());
            let (matrices, origin) = (&item.problem.operands, self.origin(item));
            (operands.load(matrices, origin, &item.segment, cursor, before), problem_state)
        };
        self.for_each(walker, start, load).0
    }

    fn origin(&self, item: &Item<'k, R>) -> TileOrigin<'k> {
        let nowhere = || self.b.constant(0);
        item.origin.unwrap_or_else(|| TileOrigin { m: nowhere(), n: nowhere(), batch: nowhere() })
    }

    fn finished(&self, item: &Item<'k, R>, walker: Walker<'k>) {
        if let (Walker::Consumer { leads }, Some(job)) = (walker, item.job) {
            self.b.scope("completion", || self.b.if_(leads, || self.arrive(job.number)));
        }
    }

    fn helpers(&self) -> Vec<Box<dyn FnOnce() + '_>> {
        let b = self.b;
        vec![
            Box::new(|| b.scope("tickets", || self.tickets.draw())),
            Box::new(|| {
                let is_first = b.special(pgemm_ir::Special::Cta).eq(0);
                b.if_(is_first, || b.scope("relay", || self.relay.run()));
            }),
        ]
    }
}

const _: () = assert!(RECORD_BYTES.is_multiple_of(MAP_BYTES));
