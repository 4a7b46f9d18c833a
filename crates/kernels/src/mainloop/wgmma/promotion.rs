//! Promotion of sums. Tensor cores add up only few products at a time. CUDA cores add these partial
//! sums to a second set of sums in registers, in binary32 and rounded to nearest. The reason is
//! accuracy: tensor cores truncate the bits that do not fit. For 8-bit floats, their sums keep
//! fewer bits than binary32 has.
//!
//! With two sets of accumulators, the tensor core computes the next partial sums in one set while
//! CUDA cores add up the other. Otherwise they wait for each other. The order of additions is the
//! same, and so are the bits. Partial sums do not stay in flight from one stage to the next: ptxas
//! serialises MMAs whose accumulators are read in another iteration of a loop (C7514).

use pgemm_ir::{
    Accumulators, Batch, BatchSource, Carried, KernelBuilder, MmaAtom, MmaQueue, QueueBatch,
    Retired, RunningAccumulators, Val, ValueId,
};

use crate::compute::Sum;

/// Promoted sums, and the accumulators that partial sums are computed in.
pub(super) struct Promoted<'k, S> {
    /// Sets of accumulators of one block of 64 rows.
    accumulators: Vec<Accumulators>,
    /// The sums of each block of 64 rows, in the order of the accumulators' registers.
    sums: Vec<Vec<Val<'k, S>>>,
}

impl<'k, S: Sum> Promoted<'k, S> {
    /// Sums that are zero, for `blocks` blocks of 64 rows, with `sets` sets of accumulators.
    pub(super) fn new(b: &'k KernelBuilder, atom: MmaAtom, blocks: u32, sets: u32) -> Self {
        let zeros = vec![S::zero(b); atom.registers() as usize];
        Promoted {
            accumulators: (0..sets).map(|_| b.accumulators(atom, 1)).collect(),
            sums: vec![zeros; blocks as usize],
        }
    }

    /// Batches of MMAs whose partial sums are added to the sums. `release` is called for each source
    /// once the last batch has read it.
    pub(super) fn batches<R: BatchSource, F: Fn(Retired<R>)>(
        &mut self,
        b: &'k KernelBuilder,
        release: F,
    ) -> Batches<'_, 'k, S, R, F> {
        let Promoted { accumulators, sums } = self;
        let set = 0;
        let sets = accumulators.drain(..).map(Some).collect();
        Batches { b, release, queue: MmaQueue::new(), running: None, set, sets, accumulators, sums }
    }

    /// The sums.
    pub(super) fn into_values(self) -> Vec<Vec<Val<'k, S>>> {
        self.sums
    }
}

/// Batches of MMAs, of which the last one is in flight while CUDA cores add up the one before. The
/// sets of accumulators take turns. With a single set, none is in flight meanwhile.
pub(super) struct Batches<'p, 'k, S, R, F> {
    b: &'k KernelBuilder,
    release: F,
    queue: MmaQueue<R>,
    /// Partial sums that are being computed, their set, and their block.
    running: Option<(RunningAccumulators, usize, usize)>,
    /// The set of the next batch, and the sets that are not running.
    set: usize,
    sets: Vec<Option<Accumulators>>,
    /// Where the sets are left in their order.
    accumulators: &'p mut Vec<Accumulators>,
    sums: &'p mut Vec<Vec<Val<'k, S>>>,
}

impl<'k, S: Sum, R: BatchSource, F: Fn(Retired<R>)> Batches<'_, 'k, S, R, F> {
    /// Issues batches that all read `source`. `blocks` has the block of each of them. `issue` issues
    /// the MMAs of a batch.
    pub(super) fn add(
        &mut self,
        source: R,
        blocks: &[usize],
        issue: impl Fn(&Batch<'k, '_>, usize),
    ) {
        let mut source = Some(source);
        for (at, &block) in blocks.iter().enumerate() {
            // A set is free here: a single one does not keep running.
            let Some(accumulators) = self.sets[self.set].take() else { return };
            let accumulators = self.queue.start(accumulators);
            let issue = |batch: &QueueBatch<'k, '_>| issue(&batch.on(&accumulators), at);
            source = match source {
                Some(source) if at + 1 < blocks.len() => {
                    self.queue.issue_borrowing(self.b, &source, issue);
                    Some(source)
                }
                Some(source) => {
                    self.queue.issue(self.b, source, issue);
                    None
                }
                None => None,
            };
            let before = self.running.replace((accumulators, self.set, block));
            self.add_up(before);
            self.set = (self.set + 1) % self.sets.len();
            if self.sets[self.set].is_none() {
                let running = self.running.take();
                self.add_up(running);
            }
        }
    }

    /// Waits for partial sums, and adds them to the sums of their block.
    fn add_up(&mut self, running: Option<(RunningAccumulators, usize, usize)>) {
        let Some((running, set, block)) = running else { return };
        let (accumulators, retired) = self.queue.finish(self.b, running);
        retired.into_iter().for_each(&self.release);
        for (index, sum) in (0..).zip(&mut self.sums[block]) {
            *sum = S::add(*sum, accumulators.get(self.b, 0, index));
        }
        self.sets[set] = Some(accumulators);
    }

    /// Waits for all batches.
    pub(super) fn finish(mut self) {
        let running = self.running.take();
        self.add_up(running);
        self.accumulators.extend(self.sets.into_iter().flatten());
    }
}

impl<'k, S: Sum> Carried<'k> for Promoted<'k, S> {
    type Static = <(Vec<Accumulators>, Vec<Vec<Val<'k, S>>>) as Carried<'k>>::Static;

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        (self.accumulators, self.sums).split(values)
    }

    fn join(
        b: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        fixed: Self::Static,
    ) -> Self {
        let (accumulators, sums) = Carried::join(b, values, fixed);
        Promoted { accumulators, sums }
    }
}
