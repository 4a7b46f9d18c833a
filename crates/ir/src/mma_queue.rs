//! Warpgroup MMA with its hazards in the types.
//!
//! The commit groups of a warpgroup are one first-in-first-out queue, an [`MmaQueue`]. It owns the
//! batches in flight, each with its source (a ring slot, say), and the accumulators that they
//! write. [`Accumulators`] are given to the queue as [`RunningAccumulators`] and come back only
//! from [`MmaQueue::finish`], which waits for the last batch that writes them. A wait retires the
//! oldest batches and hands back their sources as [`Retired`]. So nothing touches accumulators in
//! flight, and no slot can be released early.
//!
//! [`Pending`] is such a queue with a single set of accumulators.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::accumulators::{Accumulators, MmaAtom};
use crate::builder::KernelBuilder;
use crate::carried::Carried;
use crate::error::BuildError;
use crate::value::{IntoVal, Val, ty};
use crate::{ASource, AccId, Op, ValueId, Wgmma};

/// Batches that a wait can leave in flight (PTX ISA, "wgmma.wait_group").
const MAX_PENDING: usize = 7;

/// The shared memory that a batch of MMAs reads and owns while it is in flight.
///
/// A [`LoadSlot`](crate::LoadSlot) is not such a source, since ordinary loads free it. `()` is not
/// one either: a batch whose operands are in no ring says so with [`Resident`].
pub trait BatchSource {}

/// The source of a batch whose operands stay in shared memory until the batch has finished for a
/// reason that the kernel vouches for, such as an operand that is loaded only once.
///
/// Every batch states its source:
///
/// ```compile_fail,E0599
/// # use pgemm_ir::{KernelBuilder, Pending};
/// # fn consumer(b: &KernelBuilder, pending: &mut Pending<()>) {
/// pending.issue(b, (), |batch| ()); // `()` is no `BatchSource`
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident;

impl BatchSource for Resident {}
impl<S: BatchSource> BatchSource for Option<S> {}
impl<S: BatchSource> BatchSource for Vec<S> {}
impl<A: BatchSource, B: BatchSource> BatchSource for (A, B) {}

/// Proof that the batch that owned `S` has finished.
#[derive(Debug)]
pub struct Retired<S>(S);

impl<S> Retired<S> {
    /// What the finished batch owned.
    pub fn into_inner(self) -> S {
        self.0
    }
}

impl<S> Retired<Option<S>> {
    /// What the finished batch owned, if there is something.
    pub fn transpose(self) -> Option<Retired<S>> {
        self.0.map(Retired)
    }
}

impl<S> Retired<Vec<S>> {
    /// Each of the things that the finished batch owned.
    pub fn into_each(self) -> impl Iterator<Item = Retired<S>> {
        self.0.into_iter().map(Retired)
    }
}

impl<A, B> Retired<(A, B)> {
    /// Both things that the finished batch owned.
    pub fn split(self) -> (Retired<A>, Retired<B>) {
        (Retired(self.0.0), Retired(self.0.1))
    }
}

/// Accumulators that belong to a queue: only its batches write them.
#[derive(Debug)]
pub struct RunningAccumulators {
    pub(crate) atom: MmaAtom,
    pub(crate) groups: Vec<AccId>,
}

/// A batch in flight.
#[derive(Debug)]
struct InFlight<S> {
    /// None for a batch that borrows what it reads.
    source: Option<S>,
    writes: Vec<AccId>,
}

/// The MMAs of a warpgroup in flight, in batches. Each batch is a commit group.
///
/// Keep one queue with batches in flight at a time: the hardware has one for each warpgroup.
#[derive(Debug)]
pub struct MmaQueue<S> {
    /// Accumulators that were started and not finished.
    running: Vec<AccId>,
    /// Oldest first.
    in_flight: VecDeque<InFlight<S>>,
}

impl<S> Default for MmaQueue<S> {
    fn default() -> Self {
        MmaQueue { running: Vec::new(), in_flight: VecDeque::new() }
    }
}

impl<S: BatchSource> MmaQueue<S> {
    /// A queue without batches.
    pub fn new() -> Self {
        MmaQueue::default()
    }

    /// Gives accumulators to the queue's batches.
    pub fn start(&mut self, accumulators: Accumulators) -> RunningAccumulators {
        let Accumulators { atom, groups } = accumulators;
        self.running.extend(&groups);
        RunningAccumulators { atom, groups }
    }

    /// Batches in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.len() as u32
    }

    /// Issues one batch that owns `source` until it has retired: a fence, the instructions of
    /// `issue`, a commit. It is the last batch to read `source`.
    #[track_caller]
    pub fn issue<'k>(
        &mut self,
        b: &'k KernelBuilder,
        source: S,
        issue: impl FnOnce(&QueueBatch<'k, '_>),
    ) {
        self.issue_batch(b, Some(source), issue);
    }

    /// Issues one batch that reads `source`, which a later batch owns. Batches retire in order, so
    /// `source` is not released before this one has retired.
    #[track_caller]
    pub fn issue_borrowing<'k>(
        &mut self,
        b: &'k KernelBuilder,
        _source: &S,
        issue: impl FnOnce(&QueueBatch<'k, '_>),
    ) {
        self.issue_batch(b, None, issue);
    }

    #[track_caller]
    fn issue_batch<'k>(
        &mut self,
        b: &'k KernelBuilder,
        source: Option<S>,
        issue: impl FnOnce(&QueueBatch<'k, '_>),
    ) {
        let in_flight = self.in_flight();
        if b.batches_in_flight() != in_flight {
            let others = b.batches_in_flight().saturating_sub(in_flight);
            b.fail(|location| BuildError::SecondQueue { location, others });
        }
        let batch =
            QueueBatch { builder: b, running: &self.running, writes: RefCell::new(Vec::new()) };
        b.effect(Op::WgmmaFence, vec![]);
        issue(&batch);
        b.effect(Op::WgmmaCommit, vec![]);
        let mut writes = batch.writes.into_inner();
        writes.sort_unstable();
        writes.dedup();
        self.in_flight.push_back(InFlight { source, writes });
        b.set_batches_in_flight(in_flight + 1);
    }

    /// Waits until at most `pending` batches are in flight and hands back what the finished ones
    /// owned, oldest first.
    #[track_caller]
    pub fn wait_until(&mut self, b: &KernelBuilder, pending: u32) -> Vec<Retired<S>> {
        let in_flight = self.in_flight();
        if pending > in_flight {
            b.fail(|location| BuildError::WaitsForNothing { location, pending, in_flight });
        }
        b.effect(Op::WgmmaWait { pending }, vec![]);
        let finished = in_flight.saturating_sub(pending);
        b.set_batches_in_flight(in_flight - finished);
        let finished = self.in_flight.drain(..finished as usize);
        finished.filter_map(|batch| batch.source).map(Retired).collect()
    }

    /// Waits until no batch in flight writes the accumulators and gives them back, with what the
    /// finished batches owned. Later batches stay in flight. There is no wait if earlier waits were
    /// enough.
    #[track_caller]
    pub fn finish(
        &mut self,
        b: &KernelBuilder,
        accumulators: RunningAccumulators,
    ) -> (Accumulators, Vec<Retired<S>>) {
        if !accumulators.groups.iter().all(|group| self.running.contains(group)) {
            b.fail(|location| BuildError::ForeignAccumulators { location });
        }
        let writes = |batch: &InFlight<S>| {
            batch.writes.iter().any(|group| accumulators.groups.contains(group))
        };
        let retired = match self.in_flight.iter().rposition(writes) {
            Some(last) => {
                let later = self.in_flight.len() - 1 - last;
                self.wait_until(b, later.min(MAX_PENDING) as u32)
            }
            None => Vec::new(),
        };
        self.running.retain(|group| !accumulators.groups.contains(group));
        (accumulators.idle(), retired)
    }
}

/// One batch being issued.
pub struct QueueBatch<'k, 'q> {
    builder: &'k KernelBuilder,
    running: &'q [AccId],
    writes: RefCell<Vec<AccId>>,
}

impl<'k> QueueBatch<'k, '_> {
    /// The batch, with MMAs that write these accumulators.
    #[track_caller]
    pub fn on<'p>(&'p self, accumulators: &'p RunningAccumulators) -> Batch<'k, 'p> {
        if !accumulators.groups.iter().all(|group| self.running.contains(group)) {
            self.builder.fail(|location| BuildError::ForeignAccumulators { location });
        }
        let RunningAccumulators { atom, groups } = accumulators;
        Batch { builder: self.builder, atom: *atom, groups, writes: &self.writes }
    }
}

/// One batch being issued, on one set of accumulators.
pub struct Batch<'k, 'p> {
    builder: &'k KernelBuilder,
    atom: MmaAtom,
    groups: &'p [AccId],
    writes: &'p RefCell<Vec<AccId>>,
}

/// The A operand of one instruction in registers: this thread's four words of it, whose elements
/// are those of PTX ISA, "Register Fragments for wgmma". It goes to one instruction, whose batch
/// owns the registers from then on.
pub struct FragmentOfA<'k>([Val<'k, ty::B32>; 4]);

impl<'k> FragmentOfA<'k> {
    /// A fragment of values that nothing else uses.
    pub fn new(words: [Val<'k, ty::B32>; 4]) -> Self {
        FragmentOfA(words)
    }
}

impl<'k> Batch<'k, '_> {
    /// Accumulator block `block` = A·B, plus itself where `accumulate` holds.
    #[track_caller]
    pub fn mma(
        &self,
        block: usize,
        a: Val<'k, ty::Descriptor>,
        b: Val<'k, ty::Descriptor>,
        accumulate: impl IntoVal<'k, ty::Bool>,
    ) {
        let source = ASource::Shared(self.atom.a_major);
        self.issue(block, source, vec![a.id, b.id], accumulate.into_val(self.builder));
    }

    /// The same with A in registers, whatever its major in shared memory.
    #[track_caller]
    pub fn mma_of_registers(
        &self,
        block: usize,
        FragmentOfA(words): FragmentOfA<'k>,
        b: Val<'k, ty::Descriptor>,
        accumulate: impl IntoVal<'k, ty::Bool>,
    ) {
        let operands = words.iter().map(|word| word.id).chain([b.id]).collect();
        self.issue(block, ASource::Registers, operands, accumulate.into_val(self.builder));
    }

    /// Lets later MMAs of the batch read registers that were written since it began. The fence at
    /// the begin of the batch covers those that were written before.
    #[track_caller]
    pub fn fence(&self) {
        self.builder.effect(Op::WgmmaFence, vec![]);
    }

    #[track_caller]
    fn issue(
        &self,
        block: usize,
        a_source: ASource,
        mut args: Vec<ValueId>,
        accumulate: Val<'k, ty::Bool>,
    ) {
        let acc = self.groups[block];
        let MmaAtom { n, a, b, b_major, .. } = self.atom;
        args.push(accumulate.id);
        self.builder.effect(Op::Wgmma(Wgmma { acc, n, a, b, a_source, b_major }), args);
        self.writes.borrow_mut().push(acc);
    }
}

/// A set of accumulators with batches in flight: an [`MmaQueue`] for kernels that have one set at a
/// time.
#[derive(Debug)]
pub struct Pending<S> {
    pub(crate) queue: MmaQueue<S>,
    pub(crate) accumulators: RunningAccumulators,
}

impl Accumulators {
    /// Gives the registers to a queue of their own, for kernels with a single set in flight.
    pub fn start<S: BatchSource>(self) -> Pending<S> {
        let mut queue = MmaQueue::new();
        let accumulators = queue.start(self);
        Pending { queue, accumulators }
    }
}

impl RunningAccumulators {
    fn idle(self) -> Accumulators {
        Accumulators { atom: self.atom, groups: self.groups }
    }
}

impl<S: BatchSource> Pending<S> {
    /// Issues one batch that owns `source` until it has retired: a fence, the instructions of
    /// `issue`, a commit. It is the last batch to read `source`.
    #[track_caller]
    pub fn issue<'k>(
        &mut self,
        b: &'k KernelBuilder,
        source: S,
        issue: impl FnOnce(&Batch<'k, '_>),
    ) {
        let accumulators = &self.accumulators;
        self.queue.issue(b, source, |batch| issue(&batch.on(accumulators)));
    }

    /// Issues one batch that reads `source`, which a later batch owns. Batches retire in order, so
    /// `source` is not released before this one has retired.
    #[track_caller]
    pub fn issue_borrowing<'k>(
        &mut self,
        b: &'k KernelBuilder,
        source: &S,
        issue: impl FnOnce(&Batch<'k, '_>),
    ) {
        let accumulators = &self.accumulators;
        self.queue.issue_borrowing(b, source, |batch| issue(&batch.on(accumulators)));
    }

    /// Waits until at most `pending` batches are in flight and hands back what the finished ones
    /// owned, oldest first.
    #[track_caller]
    pub fn wait_until(&mut self, b: &KernelBuilder, pending: u32) -> Vec<Retired<S>> {
        self.queue.wait_until(b, pending)
    }

    /// Waits for every batch and gives the accumulators back.
    #[track_caller]
    pub fn finish(mut self, b: &KernelBuilder) -> (Accumulators, Vec<Retired<S>>) {
        let retired = self.wait_until(b, 0);
        (self.accumulators.idle(), retired)
    }
}

impl<'k> Carried<'k> for Resident {
    type Static = ();

    fn split(self, _: &mut Vec<ValueId>) {}

    fn join(_: &'k KernelBuilder, _: &mut std::vec::IntoIter<ValueId>, (): ()) -> Self {
        Resident
    }
}

impl<'k> Carried<'k> for RunningAccumulators {
    type Static = (MmaAtom, Vec<AccId>);

    fn split(self, _: &mut Vec<ValueId>) -> Self::Static {
        (self.atom, self.groups)
    }

    fn join(
        _: &'k KernelBuilder,
        _: &mut std::vec::IntoIter<ValueId>,
        (atom, groups): Self::Static,
    ) -> Self {
        RunningAccumulators { atom, groups }
    }
}

/// The static part of a queue. Loops must leave it as they find it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueState<F> {
    running: Vec<AccId>,
    /// What each batch in flight owns and writes, oldest first.
    batches: Vec<(Option<F>, Vec<AccId>)>,
}

impl<'k, S: Carried<'k>> Carried<'k> for MmaQueue<S> {
    type Static = QueueState<S::Static>;

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        let batches = self.in_flight.into_iter();
        let batches = batches.map(|batch| (batch.source.split(values), batch.writes)).collect();
        QueueState { running: self.running, batches }
    }

    fn join(
        builder: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        QueueState { running, batches }: Self::Static,
    ) -> Self {
        let mut batch = |(fixed, writes)| {
            let source = Option::<S>::join(builder, values, fixed);
            InFlight { source, writes }
        };
        let in_flight = batches.into_iter().map(&mut batch).collect();
        MmaQueue { running, in_flight }
    }
}

impl<'k, S: Carried<'k>> Carried<'k> for Pending<S> {
    type Static = (QueueState<S::Static>, (MmaAtom, Vec<AccId>));

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        (self.queue.split(values), self.accumulators.split(values))
    }

    fn join(
        builder: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        (queue, accumulators): Self::Static,
    ) -> Self {
        Pending {
            queue: MmaQueue::join(builder, values, queue),
            accumulators: RunningAccumulators::join(builder, values, accumulators),
        }
    }
}
