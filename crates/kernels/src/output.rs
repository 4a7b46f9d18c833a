//! What becomes of a consumer's sums: tiles that are split are put together ([`crate::fixup`]), and
//! results are computed and stored ([`crate::epilogue`]).

use std::marker::PhantomData;

use pgemm_ir::{Carried, KernelBuilder, Special, Val, WARPGROUP_THREADS, ty};

use crate::compute::{AtomicSum, Compute, Gives};
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

/// An item of work, and where its tile is: code that computes that is written where it is called.
pub(crate) struct WorkItem<'w, 'k, R> {
    pub(crate) item: &'w Item<'k, R>,
    pub(crate) origin: &'w dyn Fn() -> TileOrigin<'k>,
}

/// The way from the sums of a mainloop `M` to a D that is computed in type `R`.
pub(crate) trait Output<'k, M: Mainloop<'k>, R> {
    /// What a consumer warpgroup or thread knows.
    type Worker;
    /// What is known of an item before its mainloop.
    type Prepared;
    /// What is found shortly before the end of its mainloop.
    type Ahead;
    /// What goes from item to item.
    type State: Carried<'k> + Copy;

    /// Initialises the barriers: one thread.
    fn init(&self);

    /// Whether vectors of the problem are read before the first stage has come.
    fn reads_vectors_early(&self) -> bool {
        false
    }

    /// Consumer warpgroup `consumer`, which computes part `part` of each tile.
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

    /// What is to be known of an item before its mainloop.
    fn prepare(&self, worker: &Self::Worker, work: &WorkItem<'_, 'k, R>) -> Self::Prepared;

    /// Whether something is to be done shortly before the end of a mainloop.
    fn looks_ahead(&self) -> bool {
        false
    }

    /// That.
    fn look_ahead(&self, worker: &Self::Worker, item: &Item<'k, R>) -> Self::Ahead;

    /// Stores what is to be stored of an item.
    fn finish(
        &self,
        worker: &Self::Worker,
        mainloop: &M,
        work: &WorkItem<'_, 'k, R>,
        sums: M::Sums,
        found: (Self::Prepared, Option<Self::Ahead>),
        state: Self::State,
    ) -> Self::State;

    /// Before the consumers end.
    fn drain(&self) {}
}

/// Tiles that go through staging buffers.
pub(crate) struct StagedTiles<'k> {
    pub(crate) b: &'k KernelBuilder,
    pub(crate) output: StagedOutput<'k>,
    /// How split tiles are put together, where there may be any.
    pub(crate) fixup: Option<StagedFixup<'k>>,
}

/// A consumer warpgroup that stores staging tiles.
pub(crate) struct StagedWorker<'k> {
    part: Val<'k, ty::U32>,
    warpgroup: Warpgroup<'k>,
    /// The words in which threads tell each other about split tiles.
    words: Option<Val<'k, ty::Smem>>,
}

impl<'k, S, R> Output<'k, WgmmaMainloop<'k, S>, R> for StagedTiles<'k>
where
    S: AtomicSum + Gives<R>,
    R: StagedResult,
{
    type Worker = StagedWorker<'k>;
    /// The first element of the warpgroup's part, where it is computed early, and what is prepared.
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

    /// While the first stage loads; but where registers are short and the other warpgroup
    /// multiplies during the epilogue, not before that.
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
                // Pieces come apart, since they need the registers that whole tiles are in.
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
        // Slices of C came only where C is read.
        item.problem.reads_c(b).select(parity, c_parity)
    }

    fn drain(&self) {
        self.output.drain();
    }
}

/// Tiles that are stored from registers.
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
        // The producer's warpgroup comes first.
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
