//! Promotion of sums. Tensor cores add up only few products at a time. CUDA cores add these partial
//! sums to a second set of sums in registers, in binary32 and rounded to nearest. The reason is
//! accuracy: tensor cores truncate the bits that do not fit. For 8-bit floats, their sums keep
//! fewer bits than binary32 has.

use pgemm_ir::{
    Accumulators, Batch, BatchSource, Carried, KernelBuilder, MmaAtom, Retired, Val, ValueId,
};

use crate::compute::Sum;

/// The part of a source that one batch reads, if several batches read the source.
pub(super) enum Part<'s, R> {
    /// A part that is not the last one.
    Early(&'s R),
    /// The last part.
    Last(R),
}

/// Promoted sums, and the accumulators of one block of 64 rows.
pub(super) struct Promoted<'k, S> {
    accumulators: Accumulators,
    /// The sums of each block of 64 rows, in the order of the accumulators' registers.
    sums: Vec<Vec<Val<'k, S>>>,
}

impl<'k, S: Sum> Promoted<'k, S> {
    /// Sums that are zero, for `blocks` blocks of 64 rows.
    pub(super) fn new(b: &'k KernelBuilder, atom: MmaAtom, blocks: u32) -> Self {
        let zeros = vec![S::zero(b); atom.registers() as usize];
        Promoted { accumulators: b.accumulators(atom, 1), sums: vec![zeros; blocks as usize] }
    }

    /// Adds the sums of one block that the MMAs of `issue` compute. These MMAs read `part`.
    /// `release` is called with the source once they have read its last part.
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
