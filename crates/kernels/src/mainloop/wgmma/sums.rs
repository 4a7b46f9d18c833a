//! The sums of a wgmma mainloop: which sums a thread holds, and in which registers.

use std::cell::RefCell;
use std::ops::Range;

use pgemm_cute::{CuteError, Layout, Tiler};
use pgemm_ir::{Accumulators, KernelBuilder, MmaAtom, Val, ty};

use crate::compute::Sum;
use crate::control::switch;
use crate::layout::evaluate;

/// Rows and columns of a fragment.
const ROWS: i64 = MmaAtom::M as i64;
const COLUMNS: i64 = 8;

/// The sums of a block of 64 rows that a thread holds. They are quads of two rows and two
/// neighbouring columns. Each quad lies 8 columns behind the previous one.
#[derive(Clone)]
pub(crate) struct SumsLayout {
    /// (thread, register) → row + 64·column.
    fragment: Layout,
    /// Thread → first row, and thread → first column.
    first: [Layout; 2],
    second_row: u32,
}

impl SumsLayout {
    /// The layout in which row i of the MMA is row `rows(i)` of the tile. With `None`, it is row i
    /// of the tile.
    ///
    /// # Errors
    /// `rows` is not a layout of 64 rows.
    pub(crate) fn new(rows: Option<&Layout>) -> Result<Self, CuteError> {
        let identity = Layout::new(ROWS, 1)?;
        let (rows, columns) = (rows.unwrap_or(&identity), Layout::new(COLUMNS, 1)?);
        let orders = Tiler::Tuple(vec![rows.into(), (&columns).into()]);
        let fragment = MmaAtom::sums_layout(COLUMNS as u32)?;
        let through = |strides: [i64; 2]| {
            fragment.over(&Layout::new([ROWS, COLUMNS], strides)?.compose(orders.clone())?)
        };
        let layout = through([1, ROWS])?;
        Ok(SumsLayout {
            second_row: (layout.index([0, 2])? - layout.index([0, 0])?) as u32,
            first: [through([1, 0])?.mode(0)?, through([0, 1])?.mode(0)?],
            fragment: layout,
        })
    }

    /// Thread → row + 64·column of its first sum.
    pub(crate) fn threads(&self) -> Result<Layout, CuteError> {
        self.fragment.mode(0)
    }

    /// Row and column of a thread's first sum.
    pub(crate) fn first_element<'k>(&self, thread: Val<'k, ty::U32>) -> [Val<'k, ty::U32>; 2] {
        [0, 1].map(|mode| evaluate(&self.first[mode], thread))
    }

    /// Rows from the first two sums of a quad to the other two.
    pub(crate) fn second_row(&self) -> u32 {
        self.second_row
    }
}

/// The sums of a thread in registers.
pub(crate) enum Sums<'k, S> {
    /// The accumulators of the tensor core.
    Accumulators(Accumulators),
    /// Values in the order of the accumulators' registers, for each block of 64 rows.
    Values(Vec<Vec<Val<'k, S>>>),
}

impl<'k, S: Sum> Sums<'k, S> {
    /// This thread's quad in group `group` of 8 columns of block `block` of 64 rows.
    pub(crate) fn quad(&self, b: &'k KernelBuilder, block: u32, group: u32) -> [Val<'k, S>; 4] {
        std::array::from_fn(|i| {
            let (block, index) = (block as usize, group * 4 + i as u32);
            match self {
                Sums::Accumulators(accumulators) => accumulators.get(b, block, index),
                Sums::Values(values) => values[block][index as usize],
            }
        })
    }

    /// Adds other sums to these if `condition` holds, which is uniform in a warp. `others` loads
    /// the sums of a range of quads. There are `quads` quads in all blocks together, and at most
    /// `at_once` are loaded together. Each range is one iteration of a loop. In straight-line code
    /// the assembler would start so many loads that it runs out of registers.
    pub(crate) fn add_where(
        &mut self,
        b: &'k KernelBuilder,
        condition: Val<'k, ty::Bool>,
        quads: u32,
        at_once: u32,
        others: impl Fn(Range<u32>) -> Vec<Val<'k, S>>,
    ) {
        let count = quads.div_ceil(at_once);
        let part = |index: u32| index * at_once..quads.min((index + 1) * at_once);
        match self {
            Sums::Accumulators(accumulators) => {
                let per_block = quads * 4 / accumulators.blocks() as u32;
                let accumulators = RefCell::new(accumulators);
                let add = |index: u32| {
                    let part = part(index);
                    for (index, other) in (part.start * 4..).zip(others(part)) {
                        let (block, index) = ((index / per_block) as usize, index % per_block);
                        let own = accumulators.borrow().get(b, block, index);
                        accumulators.borrow_mut().set(b, block, index, S::add(other, own));
                    }
                };
                b.if_(condition, || match count {
                    1 => add(0),
                    _ => b.for_range(0, count, 1, |index| switch(b, index, count, &add)),
                });
            }
            Sums::Values(values) => {
                let mut sums = values.iter().flatten().copied().collect::<Vec<_>>();
                for part in (0..count).map(part) {
                    let own = part.start as usize * 4..part.end as usize * 4;
                    let add = || {
                        let own = sums[own.clone()].iter();
                        others(part)
                            .into_iter()
                            .zip(own)
                            .map(|(other, own)| S::add(other, *own))
                            .collect()
                    };
                    let sum: Vec<Val<'k, S>> =
                        b.if_else(condition, add, || sums[own.clone()].to_vec());
                    sums[own].copy_from_slice(&sum);
                }
                let per_block = values[0].len();
                *values = sums.chunks(per_block).map(<[_]>::to_vec).collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sum_of_a_block_has_one_thread() {
        let swapped = Layout::parse("(2,32):(32,1)").unwrap();
        for rows in [None, Some(&swapped)] {
            let sums = SumsLayout::new(rows).unwrap();
            let mut found: Vec<i64> = (0..128)
                .flat_map(|thread| (0..4).map(move |register| [thread, register]))
                .map(|place| sums.fragment.index(place).unwrap())
                .collect();
            found.sort_unstable();
            assert!(found.into_iter().eq(0..512));
        }
        assert_eq!(SumsLayout::new(None).unwrap().second_row(), 8);
    }
}
