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

    /// Adds the partial sums of some batches of MMAs to the sums of their blocks. `blocks` has the
    /// block of each batch. `issue` issues the MMAs of a batch, all of which read `source`.
    /// `release` is called once the last batch has read it.
    ///
    /// The number of batches must be a multiple of the number of sets, so that the next call begins
    /// with the same set.
    pub(super) fn add<R: BatchSource>(
        &mut self,
        b: &'k KernelBuilder,
        source: R,
        blocks: &[usize],
        issue: impl Fn(&Batch<'k, '_>, usize),
        release: impl Fn(Retired<R>),
    ) {
        let mut queue = MmaQueue::new();
        let mut source = Some(source);
        // Partial sums that are being computed, and their block.
        let mut running = None;
        for (at, &block) in blocks.iter().enumerate() {
            // The sets that are not running are here, and a single set does not keep running.
            let accumulators = queue.start(self.accumulators.remove(0));
            let issue = |batch: &QueueBatch<'k, '_>| issue(&batch.on(&accumulators), at);
            source = match source {
                Some(source) if at + 1 < blocks.len() => {
                    queue.issue_borrowing(b, &source, issue);
                    Some(source)
                }
                Some(source) => {
                    queue.issue(b, source, issue);
                    None
                }
                None => None,
            };
            let before = running.replace((accumulators, block));
            self.add_up(b, &mut queue, before, &release);
            if self.accumulators.is_empty() {
                self.add_up(b, &mut queue, running.take(), &release);
            }
        }
        self.add_up(b, &mut queue, running, &release);
    }

    /// Waits for partial sums, and adds them to the sums of their block.
    fn add_up<R: BatchSource>(
        &mut self,
        b: &'k KernelBuilder,
        queue: &mut MmaQueue<R>,
        running: Option<(RunningAccumulators, usize)>,
        release: &impl Fn(Retired<R>),
    ) {
        let Some((running, block)) = running else { return };
        let (accumulators, retired) = queue.finish(b, running);
        retired.into_iter().for_each(release);
        for (index, sum) in (0..).zip(&mut self.sums[block]) {
            *sum = S::add(*sum, accumulators.get(b, 0, index));
        }
        self.accumulators.push(accumulators);
    }

    /// The sums.
    pub(super) fn into_values(self) -> Vec<Vec<Val<'k, S>>> {
        self.sums
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
