//! The resident kernel: launched once, it stays and works through jobs as they come in, each a GEMM of its own shape. One warp of
//! the grid takes jobs in (`relay`), each CTA takes tiles of any of them (`tickets`), and the last warpgroup to store of a job
//! tells whoever waits for it. Producer and consumers work as those of a kernel that is launched for one problem, but find what that
//! has in its parameters in the job's record. docs/resident.md has the protocol.

pub mod layout;
mod leader;
pub mod record;
pub(crate) mod relay;
pub(crate) mod tickets;

use pgemm_cute::CuteError;
use pgemm_ir::{
    AtomicOp, KernelBuilder, Order, Scope, Special, TensorMapSpec, Val, WARPGROUP_THREADS, ty,
};

use crate::batch::BatchMap;
use crate::epilogue::{Epilogue, Output};
use crate::gemm::Turns;
use crate::mainloop::Mainloop;
use crate::scheduler::{Segment, TileOrigin};
use crate::spec::{KernelSpec, Schedule};
use crate::staging::STAGING_ROWS;
use crate::sums::{Gives, Sum, results};
use layout::{MAP_BYTES, RECORD_BYTES, RING_SLOTS, SLOT_BYTES, Slot, queue};
use relay::Relay;
use tickets::{JobTile, Tickets};

/// Shared memory that a resident kernel needs beside that of its spec.
pub(crate) const SMEM_BYTES: u32 = (relay::SMEM_BYTES + tickets::SMEM_BYTES).next_multiple_of(1024);

/// The producer asks for another tile when so many stages of this one are left: longer than it takes to find one.
const ASKS_AHEAD: u32 = 16;

/// The maps of a record.
struct Maps {
    a: TensorMapSpec,
    b: TensorMapSpec,
    output: TensorMapSpec,
}

/// Writes the kernel with sums of type `S`, of which `R` are scaled.
pub(crate) fn write<S: Gives<R>, R: Sum>(
    b: &KernelBuilder,
    spec: &KernelSpec,
) -> Result<(), CuteError> {
    b.ctas_per_sm(spec.ctas_per_sm());
    let [queue, records, completions] =
        ["queue", "records", "completions"].map(|name| b.param(name));
    let maps = Maps {
        a: spec.a_tile().tensor_map(),
        b: spec.b_tile().tensor_map(),
        output: spec.staging().tensor_map(),
    };
    let readers = 1 + spec.consumers * 4;
    let tickets = Tickets::new(b, spec, readers, [queue, records]);
    let relay = Relay::new(b, [queue, records]);
    // What their jobs bring takes the place of these.
    let nothing = b.constant::<ty::U32>(0);
    let no_map = |spec: &TensorMapSpec| BatchMap::at(b, records, spec.clone(), nothing);
    let outputs = [0, 1].map(|_| Output::by_map(no_map(&maps.output), b));
    let mainloop = Mainloop::new(b, spec, [no_map(&maps.a), no_map(&maps.b)], None)?;
    let factors = [0, 1].map(|_| R::zero(b));
    let moved = b.constant(false);
    let epilogue = Epilogue::new(b, spec, outputs, [nothing; 2], factors, None, moved)?;

    b.scope("prologue", || {
        b.if_(b.special(Special::Thread).eq(0), || {
            mainloop.init_ring();
            epilogue.init_barriers();
            tickets.init();
            b.fence_mbarrier_init();
        });
        b.barrier_sync(0, (spec.consumers + 1) * WARPGROUP_THREADS);
    });

    let budget = spec.registers();
    let mut consumed = Ok(());
    b.warp_roles(|roles| {
        roles.role("producer", 1, budget.producer, |_| {
            let warp = b.special(Special::Warp);
            let jobs = Jobs { b, records, maps: &maps };
            b.if_(warp.eq(0), || b.if_(b.elect(), || load(&jobs, &tickets, &mainloop)));
            b.if_(warp.eq(1), || b.scope("tickets", || tickets.draw()));
            let relays = warp.eq(2) & b.special(Special::Cta).eq(0);
            b.if_(relays, || b.scope("relay", || relay.run()));
        });
        roles.role("consumer", spec.consumers, budget.consumer, |consumer| {
            let jobs = Jobs { b, records, maps: &maps };
            let work = Consumer { b, spec, mainloop: &mainloop, epilogue: &epilogue, jobs };
            consumed = work.run::<S>(&tickets, consumer, [queue, completions]);
        });
    });
    consumed
}

/// The producer: loads the stages of all tiles of its CTA. One thread.
fn load<'k>(jobs: &Jobs<'_, 'k>, tickets: &Tickets<'k>, mainloop: &Mainloop<'k>) {
    let b = jobs.b;
    let start = (tickets.start(), b.constant::<ty::U32>(0), mainloop.start(), b.constant(true));
    b.while_(
        start,
        |(.., goes_on)| goes_on,
        |(at, stamp, cursor, _)| {
            let (tile, at) = tickets.take(at, true);
            let there = tile.k_tiles.ne(0);
            let cursor = b.if_else(
                there,
                || {
                    let a = jobs.map(&tile, 0);
                    let bt = jobs.map(&tile, 1);
                    b.if_(tile.stamp.ne(stamp), || {
                        a.fence_acquire();
                        bt.fence_acquire();
                    });
                    b.fence_proxy_async_global();
                    let asks = tile.k_tiles.max(ASKS_AHEAD) - ASKS_AHEAD;
                    let before =
                        |k_tile: Val<'k, ty::U32>| b.if_(k_tile.eq(asks), || tickets.ask());
                    let segment = tile.segment(b);
                    mainloop.with_maps([a, bt]).load_with(tile.origin, &segment, cursor, before)
                },
                || cursor,
            );
            (at, tile.stamp, cursor, there)
        },
    );
}

/// A consumer warpgroup.
struct Consumer<'c, 'k, R> {
    b: &'k KernelBuilder,
    spec: &'c KernelSpec,
    mainloop: &'c Mainloop<'k>,
    epilogue: &'c Epilogue<'k, R>,
    jobs: Jobs<'c, 'k>,
}

impl<'k, R: Sum> Consumer<'_, 'k, R> {
    /// Multiplies and stores the tiles that are its own, or its part of all.
    fn run<S: Gives<R>>(
        &self,
        tickets: &Tickets<'k>,
        consumer: Val<'k, ty::U32>,
        [queue, completions]: [Val<'k, ty::U64>; 2],
    ) -> Result<(), CuteError> {
        let (b, spec) = (self.b, self.spec);
        let part = match spec.schedule {
            Schedule::Cooperative => consumer,
            Schedule::PingPong => b.constant(0),
        };
        let turns = Turns { b };
        let mut consumed = Ok(());
        let mut consume = |tile: JobTile<'k>, stamp, cursor, c_parity, issued: &dyn Fn()| {
            let epilogue = self.of_job(&tile);
            let store = epilogue.warpgroup(consumer);
            b.if_(store.leads & tile.stamp.ne(stamp), || {
                epilogue.d().fence_acquire();
                b.if_(tile.factors[1].ne(0), || epilogue.c().fence_acquire());
            });
            let segment = tile.segment(b);
            let ahead = None::<fn()>;
            let multiplied = b.scope("mainloop", || {
                self.mainloop.multiply::<S, ()>(&segment, part, cursor, ahead, issued)
            });
            let (sums, cursor, _) = match multiplied {
                Ok(multiplied) => multiplied,
                Err(error) => {
                    consumed = Err(error);
                    return (tile.stamp, cursor, c_parity);
                }
            };
            let origin = TileOrigin {
                m: tile.origin.m + part * (spec.blocks() * STAGING_ROWS),
                ..tile.origin
            };
            let c_parity = b.scope("epilogue", || {
                let groups = spec.tile.n / 8;
                let quads = |range: std::ops::Range<u32>| {
                    let quads = range.map(|at| sums.quad(b, at / groups, at % groups));
                    results::<S, R>(quads.collect())
                };
                let after = epilogue.store(origin, &store, &quads, (None, None), c_parity);
                // Slices of C came only where they are added.
                let reads_c = R::from_bits(tile.factors[1]).ne(R::zero(b));
                reads_c.select(after, c_parity)
            });
            b.scope("completion", || b.if_(store.leads, || self.arrive(&tile, queue, completions)));
            (tile.stamp, cursor, c_parity)
        };
        let start = (b.constant::<ty::U32>(0), self.mainloop.start(), self.epilogue.start());
        let goes_on = b.constant(true);
        match spec.schedule {
            Schedule::Cooperative => {
                b.while_(
                    (tickets.start(), start, goes_on),
                    |(.., goes_on)| goes_on,
                    |(at, (stamp, cursor, parity), _)| {
                        let (tile, at) = tickets.take(at, false);
                        let there = tile.k_tiles.ne(0);
                        let after = b.if_else(
                            there,
                            || consume(tile, stamp, cursor, parity, &|| {}),
                            || (stamp, cursor, parity),
                        );
                        (at, after, there)
                    },
                );
            }
            Schedule::PingPong => {
                // Bit 0: whose turn it is. Bit 1: somebody had one before.
                let turn = b.constant::<ty::U32>(0);
                b.while_(
                    (tickets.start(), turn, start, goes_on),
                    |(.., goes_on)| goes_on,
                    |(at, turn, (stamp, cursor, parity), _)| {
                        let (tile, at) = tickets.take(at, false);
                        let there = tile.k_tiles.ne(0);
                        let mine = (turn & 1).eq(consumer);
                        b.if_(mine & turn.ne(0), || turns.wait(consumer));
                        let after = b.if_else(
                            there & mine,
                            || {
                                let pass_on = || turns.pass(consumer ^ 1);
                                consume(tile, stamp, cursor, parity, &pass_on)
                            },
                            || (stamp, self.mainloop.skip(&tile.segment(b), cursor), parity),
                        );
                        (at, (turn ^ 1) | 2, after, there)
                    },
                );
            }
        }
        consumed
    }

    /// The epilogue of a tile's job.
    fn of_job(&self, tile: &JobTile<'k>) -> Epilogue<'k, R> {
        let [c, d] = [3, 2].map(|at| Output::by_map(self.jobs.map(tile, at), self.b));
        self.epilogue.of([c, d], tile.factors.map(|bits| R::from_bits(bits)), tile.bias)
    }

    /// Counts the tile's part as done; the last one of a job says so, once its stores can be seen. The thread that issued them.
    fn arrive(&self, tile: &JobTile<'k>, queue: Val<'k, ty::U64>, completions: Val<'k, ty::U64>) {
        let b = self.b;
        let slot = queue.byte_offset(tile.job % RING_SLOTS * SLOT_BYTES + queue::SLOTS_AT);
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
        // Who is alone need not count.
        let before = b.if_else(all.eq(1), || b.constant(0), arrive);
        b.if_((before + 1).eq(all), || {
            b.fence(Order::AcquireRelease, Scope::Gpu);
            let here = queue.byte_offset(completion * 4 + queue::COMPLETIONS_AT);
            b.store_ordered(here, value, Order::Relaxed, Scope::Gpu);
            // D is device memory: what the device sees of it in L2 is what copies to the host read. A fence at system scope, which they
            // would not need, is one at a time for all SMs, 0.7 µs each.
            let host = completions.byte_offset(completion * 4);
            b.store_ordered(host, value, Order::Relaxed, Scope::System);
            let freed = queue.byte_offset(tile.job % RING_SLOTS * 4 + queue::FREED_AT);
            // Counted, not stored: the relay may know by `done` alone that the slot is free, and then nothing orders this before what the
            // slot's next job says there.
            b.atomic(AtomicOp::Add, freed, RING_SLOTS, Order::Relaxed, Scope::Gpu);
            let done = queue.byte_offset(queue::DONE_AT);
            b.atomic(AtomicOp::Add, done, tiles, Order::Relaxed, Scope::Gpu);
        });
    }
}

/// The records of jobs.
#[derive(Clone, Copy)]
struct Jobs<'c, 'k> {
    b: &'k KernelBuilder,
    records: Val<'k, ty::U64>,
    maps: &'c Maps,
}

impl<'k> Jobs<'_, 'k> {
    /// The map of a job's A, B, D or C: its record's number `at`.
    fn map(&self, tile: &JobTile<'k>, at: u32) -> BatchMap<'k> {
        let (spec, bit) = match at {
            0 => (&self.maps.a, 0),
            1 => (&self.maps.b, 1),
            2 => (&self.maps.output, 3),
            _ => (&self.maps.output, 2),
        };
        let address = self.records.byte_offset(tile.record * RECORD_BYTES + at * MAP_BYTES);
        BatchMap::at(self.b, address, spec.clone(), (tile.steps >> bit) & 1)
    }
}

impl<'k> JobTile<'k> {
    /// All of its stages.
    fn segment(&self, b: &'k KernelBuilder) -> Segment<'k> {
        let zero = b.constant(0);
        Segment {
            k_first: zero,
            k_count: self.k_tiles,
            whole: b.constant(true),
            tile: zero,
            unit: zero,
            last: b.constant(false),
        }
    }
}

const _: () = assert!(RECORD_BYTES.is_multiple_of(MAP_BYTES));
