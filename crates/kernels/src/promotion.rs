//! Promotion: tensor cores add up few products at a time, and CUDA cores add these sums to others in registers, in binary32
//! and to nearest. Tensor cores cut off what does not fit, and of 8-bit floats keep fewer bits than binary32 has.

use pgemm_ir::{Accumulators, Batch, Carried, KernelBuilder, MmaAtom, Retired, Val, ValueId};

use crate::sums::Sum;

/// The sums of a thread in registers.
pub enum Registers<'k, S> {
    /// As the tensor core left them.
    Accumulators(Accumulators),
    /// As they were promoted.
    Promoted(Promoted<'k, S>),
}

impl<'k, S: Sum> Registers<'k, S> {
    /// This thread's four of 8 columns, counted in groups, of an m64 block.
    pub fn quad(&self, b: &'k KernelBuilder, block: u32, group: u32) -> [Val<'k, S>; 4] {
        std::array::from_fn(|i| {
            let (block, index) = (block as usize, group * 4 + i as u32);
            match self {
                Registers::Accumulators(accumulators) => accumulators.get(b, block, index),
                Registers::Promoted(promoted) => promoted.sums[block][index as usize],
            }
        })
    }
}

/// Sums that were promoted, and the accumulators of one m64 block.
pub struct Promoted<'k, S> {
    accumulators: Accumulators,
    /// For each m64 block, in the order of the accumulators' registers.
    sums: Vec<Vec<Val<'k, S>>>,
}

impl<'k, S: Sum> Promoted<'k, S> {
    /// Zeros, for `blocks` m64 blocks.
    pub fn new(b: &'k KernelBuilder, atom: MmaAtom, blocks: u32) -> Self {
        let zeros = vec![S::zero(b); atom.registers() as usize];
        Promoted { accumulators: b.accumulators(atom, 1), sums: vec![zeros; blocks as usize] }
    }

    /// Adds what the MMAs of `issue`, which read `source`, sum up for a block; `release` is told when they have read it.
    pub fn add<R>(
        self,
        b: &'k KernelBuilder,
        block: usize,
        source: R,
        issue: impl FnOnce(&Batch<'k, '_>),
        release: impl Fn(Retired<R>),
    ) -> Self {
        let Promoted { accumulators, mut sums } = self;
        let mut pending = accumulators.start();
        pending.issue(b, source, issue);
        let (accumulators, retired) = pending.finish(b);
        retired.into_iter().for_each(release);
        for (index, sum) in (0..).zip(&mut sums[block]) {
            *sum = *sum + accumulators.get(b, 0, index);
        }
        Promoted { accumulators, sums }
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
