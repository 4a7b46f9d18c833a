//! The output of a kernel. It adds up the partial sums of split tiles ([`crate::fixup`]), computes
//! the results, and stores them ([`crate::epilogue`]).

use std::marker::PhantomData;

use pgemm_ir::{Carried, KernelBuilder, Special, Val, WARPGROUP_THREADS, ty};

use crate::compute::{AtomicSum, Compute, ConvertsTo};
use crate::coordinates::TileOrigin;
use crate::fixup::staged::{LookAhead, StagedFixup};
use crate::fixup::threads::ThreadFixup;
use crate::mainloop::Mainloop;
use crate::mainloop::RegisterSums;
use crate::mainloop::wgmma::{Sums, WgmmaMainloop};
use crate::source::Item;
use crate::spec::{BiasLoads, Schedule};
use crate::store::registers::RegisterOutput;
use crate::store::staged::{StagedOutput, Warpgroup};
use crate::store::tile::Prepared;
use crate::store::write::StagedResult;

/// An item of work and the place of its tile. `origin` writes the code that computes the place
/// wherever it is called.
pub(crate) struct WorkItem<'w, 'k, R> {
    pub(crate) item: &'w Item<'k, R>,
    pub(crate) origin: &'w dyn Fn() -> TileOrigin<'k>,
}

/// The output of a mainloop `M`. It turns the sums into a D that is computed in type `R`.
pub(crate) trait Output<'k, M: Mainloop<'k>, R> {
    /// The state of a consumer warpgroup or thread.
    type Worker;
    /// The values that are prepared for an item before its mainloop.
    type Prepared;
    /// The values that are read shortly before the end of a mainloop.
    type Ahead;
    /// The state that is carried from item to item.
    type State: Carried<'k> + Copy;

    /// Initialises the barriers. One thread calls it.
    fn init(&self);

    /// Whether vectors of the problem are read before the first stage is full.
    fn reads_vectors_early(&self) -> bool {
        false
    }

    /// The state of consumer warpgroup `consumer`, which computes part `part` of each tile.
    fn worker(
        &self,
        mainloop: &M,
        consumer: Val<'k, ty::U32>,
        part: Val<'k, ty::U32>,
    ) -> Self::Worker;

    /// The mainloop's view of a worker.
    fn consumer<'w>(&self, worker: &'w Self::Worker) -> &'w M::Consumer;

    /// True in the one thread of a warpgroup that issues TMA copies.
    fn leads(&self, worker: &Self::Worker) -> Val<'k, ty::Bool>;

    /// The state before the first item.
    fn start(&self) -> Self::State;

    /// Prepares an item before its mainloop.
    fn prepare(&self, worker: &Self::Worker, work: &WorkItem<'_, 'k, R>) -> Self::Prepared;

    /// Whether [`look_ahead`](Self::look_ahead) is to be called shortly before the end of a
    /// mainloop.
    fn looks_ahead(&self) -> bool {
        false
    }

    /// Reads values for the fix-up shortly before the end of a mainloop.
    fn look_ahead(&self, worker: &Self::Worker, item: &Item<'k, R>) -> Self::Ahead;

    /// Stores the results of an item, or its partial sums.
    fn finish(
        &self,
        worker: &Self::Worker,
        mainloop: &M,
        work: &WorkItem<'_, 'k, R>,
        sums: M::Sums,
        found: (Self::Prepared, Option<Self::Ahead>),
        state: Self::State,
    ) -> Self::State;

    /// Waits for outstanding stores before the consumers end.
    fn drain(&self) {}
}

/// The output through staging buffers.
pub(crate) struct StagedTiles<'k> {
    pub(crate) b: &'k KernelBuilder,
    pub(crate) output: StagedOutput<'k>,
    /// The fix-up of split tiles. `None` if the kernel splits no tiles.
    pub(crate) fixup: Option<StagedFixup<'k>>,
}

/// The state of a consumer warpgroup that stores staging tiles.
pub(crate) struct StagedWorker<'k> {
    part: Val<'k, ty::U32>,
    warpgroup: Warpgroup<'k>,
    /// The words in shared memory by which the threads share the state of a split tile.
    words: Option<Val<'k, ty::Smem>>,
}

impl<'k, S, R> Output<'k, WgmmaMainloop<'k, S>, R> for StagedTiles<'k>
where
    S: AtomicSum + ConvertsTo<R>,
    R: StagedResult,
{
    type Worker = StagedWorker<'k>;
    /// The first element of the warpgroup's part and its prepared values. `None` if they are
    /// computed after the mainloop.
    type Prepared = Option<(TileOrigin<'k>, Prepared<'k, R>)>;
    type Ahead = Option<LookAhead<'k, S>>;
    /// The parity of the next slice of C.
    type State = Val<'k, ty::U32>;

    fn init(&self) {
        self.output.init();
    }

    fn reads_vectors_early(&self) -> bool {
        self.output.resources().registers.bias == BiasLoads::BeforeMainloop
    }

    fn worker(
        &self,
        _: &WgmmaMainloop<'k, S>,
        consumer: Val<'k, ty::U32>,
        part: Val<'k, ty::U32>,
    ) -> StagedWorker<'k> {
        let warpgroup = self.output.warpgroup(consumer, part);
        let words = self.fixup.as_ref().map(|fixup| fixup.words(consumer));
        StagedWorker { part, warpgroup, words }
    }

    fn consumer<'w>(&self, worker: &'w StagedWorker<'k>) -> &'w Val<'k, ty::U32> {
        &worker.part
    }

    fn leads(&self, worker: &StagedWorker<'k>) -> Val<'k, ty::Bool> {
        worker.warpgroup.leads
    }

    fn start(&self) -> Val<'k, ty::U32> {
        self.output.start()
    }

    /// Runs while the first stage loads. A ping-pong kernel prepares nothing: its registers are
    /// short, and the other warpgroup's MMAs run during its epilogue.
    fn prepare(&self, worker: &StagedWorker<'k>, work: &WorkItem<'_, 'k, R>) -> Self::Prepared {
        (self.output.spec().schedule() == Schedule::Cooperative).then(|| {
            let origin = worker.warpgroup.part_of(&self.output, (work.origin)());
            let store = self.output.store(&worker.warpgroup, &work.item.problem);
            (origin, store.prepare(origin))
        })
    }

    fn looks_ahead(&self) -> bool {
        self.fixup.is_some() && self.output.resources().registers.looks_ahead()
    }

    fn look_ahead(&self, worker: &StagedWorker<'k>, item: &Item<'k, R>) -> Self::Ahead {
        let fixup = self.fixup.as_ref()?;
        Some(fixup.look_ahead(&item.segment, &worker.warpgroup, worker.words?))
    }

    fn finish(
        &self,
        worker: &StagedWorker<'k>,
        _: &WgmmaMainloop<'k, S>,
        WorkItem { item, origin }: &WorkItem<'_, 'k, R>,
        sums: Sums<'k, S>,
        (prepared, ahead): (Self::Prepared, Option<Self::Ahead>),
        c_parity: Val<'k, ty::U32>,
    ) -> Val<'k, ty::U32> {
        let (b, warpgroup) = (self.b, &worker.warpgroup);
        let (origin, prepared) = match prepared {
            Some((origin, prepared)) => (origin, prepared),
            None => (warpgroup.part_of(&self.output, origin()), Prepared::default()),
        };
        let store = self.output.store(warpgroup, &item.problem);
        let whole = |sums: &Sums<'k, S>| {
            b.scope("epilogue", || {
                let groups = self.output.spec().tile.n / 8;
                let quad = |index: u32| {
                    sums.quad(b, index / groups, index % groups).map(|sum| S::result(sum))
                };
                store.tile(origin, &prepared, &quad, c_parity)
            })
        };
        let parity = match (&self.fixup, worker.words) {
            (Some(fixup), Some(words)) => {
                let (segment, ahead) = (&item.segment, ahead.flatten());
                let ahead = ahead.as_ref();
                let outcome =
                    b.scope("fix-up", || fixup.contribute(segment, warpgroup, &sums, ahead, words));
                // Pieces have their own branch, since they need the registers that whole tiles
                // occupy.
                let pieces = || {
                    b.scope("pieces", || {
                        fixup.store_pieces::<S, R>(&outcome, &store, origin, words, c_parity)
                    })
                };
                let in_registers = || {
                    let store_whole = || {
                        let mut sums = sums;
                        b.scope("fix-up", || fixup.add_other(&outcome, &mut sums, ahead));
                        whole(&sums)
                    };
                    b.if_else(outcome.stores, store_whole, || c_parity)
                };
                b.if_else(outcome.pieces.ne(0), pieces, in_registers)
            }
            _ => whole(&sums),
        };
        // The parity changes only if slices of C were loaded.
        item.problem.reads_c(b).select(parity, c_parity)
    }

    fn drain(&self) {
        self.output.drain();
    }
}

/// The output straight from registers.
pub(crate) struct RegisterTiles<'k> {
    pub(crate) b: &'k KernelBuilder,
    pub(crate) output: RegisterOutput<'k>,
    pub(crate) fixup: ThreadFixup<'k>,
}

impl<'k, M, R> Output<'k, M, R> for RegisterTiles<'k>
where
    R: Compute,
    M: RegisterSums<'k, Sums = Vec<Val<'k, R>>>,
{
    type Worker = M::Consumer;
    type Prepared = PhantomData<R>;
    type Ahead = ();
    type State = ();

    fn init(&self) {}

    fn worker(&self, mainloop: &M, _: Val<'k, ty::U32>, _: Val<'k, ty::U32>) -> M::Consumer {
        // The first warpgroup is the producer, so consumer warps are counted after it.
        let warp = self.b.special(Special::Warp) - WARPGROUP_THREADS / 32;
        mainloop.worker(warp)
    }

    fn consumer<'w>(&self, worker: &'w M::Consumer) -> &'w M::Consumer {
        worker
    }

    fn leads(&self, _: &M::Consumer) -> Val<'k, ty::Bool> {
        self.b.constant(false)
    }

    fn start(&self) {}

    fn prepare(&self, _: &M::Consumer, _: &WorkItem<'_, 'k, R>) -> PhantomData<R> {
        PhantomData
    }

    fn look_ahead(&self, _: &M::Consumer, _: &Item<'k, R>) {}

    fn finish(
        &self,
        worker: &M::Consumer,
        mainloop: &M,
        WorkItem { item, origin }: &WorkItem<'_, 'k, R>,
        sums: Vec<Val<'k, R>>,
        _: (PhantomData<R>, Option<()>),
        (): (),
    ) {
        let b = self.b;
        let reduce = || self.fixup.contribute(&item.segment, &sums);
        let (sums, complete) = b.if_else(
            item.segment.whole,
            || (sums.clone(), b.constant::<ty::Bool>(true)),
            || b.scope("fix-up", reduce),
        );
        b.if_(complete, || {
            b.scope("epilogue", || {
                let place = mainloop.first_element(worker);
                self.output.store(&item.problem, origin(), place, &sums);
            });
        });
    }
}
