//! Promotion: tensor cores add up few products at a time, and CUDA cores add these sums to others
//! in registers, in binary32 and rounded to nearest. Tensor cores cut off the bits that do not fit,
//! and of sums of 8-bit floats they keep fewer bits than binary32 has.

use pgemm_ir::{
    Accumulators, Batch, BatchSource, Carried, KernelBuilder, MmaAtom, Retired, Val, ValueId,
};

use crate::compute::Sum;

/// What a batch reads of a source that several batches read.
pub(super) enum Part<'s, R> {
    /// A part that others come after.
    Early(&'s R),
    /// The last part.
    Last(R),
}

/// Sums that were promoted, and the accumulators of one block of 64 rows.
pub(super) struct Promoted<'k, S> {
    accumulators: Accumulators,
    /// For each block of 64 rows, in the order of the accumulators' registers.
    sums: Vec<Vec<Val<'k, S>>>,
}

impl<'k, S: Sum> Promoted<'k, S> {
    /// Zeros, for `blocks` blocks of 64 rows.
    pub(super) fn new(b: &'k KernelBuilder, atom: MmaAtom, blocks: u32) -> Self {
        let zeros = vec![S::zero(b); atom.registers() as usize];
        Promoted { accumulators: b.accumulators(atom, 1), sums: vec![zeros; blocks as usize] }
    }

    /// Adds what the MMAs of `issue`, which read `part`, sum up for a block. `release` gets the
    /// source once they have read the last part of it.
    pub(super) fn add<R: BatchSource>(
        self,
        b: &'k KernelBuilder,
        block: usize,
        part: Part<'_, R>,
        issue: impl FnOnce(&Batch<'k, '_>),
        release: impl Fn(Retired<R>),
    ) -> Self {
        let Promoted { accumulators, mut sums } = self;
        let mut pending = accumulators.start();
        match part {
            Part::Early(source) => pending.issue_borrowing(b, source, issue),
            Part::Last(source) => pending.issue(b, source, issue),
        }
        let (accumulators, retired) = pending.finish(b);
        retired.into_iter().for_each(release);
        for (index, sum) in (0..).zip(&mut sums[block]) {
            *sum = S::add(*sum, accumulators.get(b, 0, index));
        }
        Promoted { accumulators, sums }
    }

    /// The sums.
    pub(super) fn into_values(self) -> Vec<Vec<Val<'k, S>>> {
        self.sums
    }
}

impl<'k, S: Sum> Carried<'k> for Promoted<'k, S> {
    type Static = <(Accumulators, Vec<Vec<Val<'k, S>>>) as Carried<'k>>::Static;

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
