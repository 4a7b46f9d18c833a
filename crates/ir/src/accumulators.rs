//! Accumulators of warpgroup MMAs while no batch writes them, and the atoms that they belong to.

use pgemm_cute::{CuteError, Layout, TvLayout};

use crate::builder::KernelBuilder;
use crate::carried::Carried;
use crate::error::BuildError;
use crate::value::{Scalar, Val, ty};
use crate::{AccId, Accumulator, DescriptorLayout, Element, Half, Op, OperandMajor, Type, ValueId};

/// The MMA instruction that a mainloop issues: everything but the accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmaAtom {
    /// Columns: 8 to 256 in steps of 8.
    pub n: u32,
    /// Element type of A.
    pub a: Element,
    /// Element type of B.
    pub b: Element,
    /// Major of A in shared memory.
    pub a_major: OperandMajor,
    /// Major of B in shared memory.
    pub b_major: OperandMajor,
    /// Type of the accumulators: one of [`Element::accumulators_with`].
    pub accumulator: Type,
}

impl MmaAtom {
    /// Rows of one instruction.
    pub const M: u32 = 64;

    /// Depth of one instruction.
    pub const fn k(&self) -> u32 {
        self.a.wgmma_depth()
    }

    /// Accumulator registers per thread.
    pub fn registers(&self) -> u32 {
        Accumulator::registers_for(self.accumulator, self.n)
    }

    /// The sums of `n` columns, a multiple of 8: (thread of the warpgroup, sum) → row + 64·column
    /// (PTX ISA, "Register Fragments for wgmma", matrix D). Sums are numbered as
    /// [`Accumulators::get`] does.
    ///
    /// ```
    /// use pgemm_ir::MmaAtom;
    ///
    /// let sums = MmaAtom::sums_layout(128).unwrap();
    /// assert_eq!((sums.threads(), sums.values()), (128, 64));
    /// // The third sum of lane 5 of warp 2 lies in row 2·16 + 1 + 8, column 2.
    /// assert_eq!(sums.coordinate(2 * 32 + 5, 2).unwrap(), (41, 2).into());
    /// ```
    ///
    /// # Errors
    /// `n` is less than 8.
    pub fn sums_layout(n: u32) -> Result<TvLayout, CuteError> {
        let text = format!("((4,8,4),(2,2,{})):((128,1,16),(64,8,512))", n / 8);
        TvLayout::new(Layout::parse(&text)?, [Self::M, n].map(i64::from))
    }

    /// The elements of A in registers ([`FragmentOfA`](crate::FragmentOfA)): (thread of the
    /// warpgroup, element) → row + 64·column (PTX ISA, "Register Fragments for wgmma", matrix A).
    /// Elements are counted through the four registers, the low bits of a register first.
    ///
    /// ```
    /// use pgemm_ir::{Element, MmaAtom};
    ///
    /// let a = MmaAtom::a_layout(Element::Bf16).unwrap();
    /// // The high half of the third register of lane 5 lies in row 1, column 8 + 2 + 1.
    /// assert_eq!(a.coordinate(5, 5).unwrap(), (1, 11).into());
    /// ```
    ///
    /// # Errors
    /// An element has more than 32 bits.
    pub fn a_layout(element: Element) -> Result<TvLayout, CuteError> {
        let elements = element.wgmma_depth() / 8;
        let text = format!(
            "((4,8,4),({elements},2,2)):(({},1,16),(64,8,{}))",
            64 * elements,
            256 * elements
        );
        TvLayout::new(Layout::parse(&text)?, [Self::M, element.wgmma_depth()].map(i64::from))
    }
}

/// A set of idle accumulators of a warpgroup: `64 × n` sums for each of some m64 blocks. They can
/// be read and written. [`MmaQueue::start`](crate::MmaQueue::start) gives them to batches of MMAs.
#[derive(Debug)]
pub struct Accumulators {
    pub(crate) atom: MmaAtom,
    /// By m64 block.
    pub(crate) groups: Vec<AccId>,
}

impl Accumulators {
    /// Number of m64 blocks.
    pub fn blocks(&self) -> usize {
        self.groups.len()
    }

    /// The instruction that they belong to.
    pub fn atom(&self) -> MmaAtom {
        self.atom
    }

    /// Sum number `index` of this thread in m64 block `block`. It has the type of
    /// [`MmaAtom::accumulator`]; f16 sums are converted to binary32. [`Op::AccGet`] says which
    /// element of the block it is.
    #[track_caller]
    pub fn get<'k, T: Scalar>(&self, b: &'k KernelBuilder, block: usize, index: u32) -> Val<'k, T> {
        let group = self.groups[block];
        if self.atom.accumulator != Type::B32 {
            return b.value(Op::AccGet(group, index), vec![]);
        }
        let pair = b.value::<ty::B32>(Op::AccGet(group, index / 2), vec![]);
        let half = if index.is_multiple_of(2) { Half::Low } else { Half::High };
        b.value(Op::Unpack(Element::F16, half), vec![pair.id])
    }

    /// Writes the sum that [`get`](Self::get) reads. f16 sums share registers: write these with
    /// [`set_pair`](Self::set_pair).
    #[track_caller]
    pub fn set<'k, T: Scalar>(
        &mut self,
        b: &'k KernelBuilder,
        block: usize,
        index: u32,
        value: Val<'k, T>,
    ) {
        if self.atom.accumulator == Type::B32 {
            b.fail(|location| BuildError::PackedAccumulators { location });
            return;
        }
        b.effect(Op::AccSet(self.groups[block], index), vec![value.id]);
    }

    /// Writes sums `index`, an even number, and `index + 1`. f16 sums are rounded to nearest even.
    #[track_caller]
    pub fn set_pair<'k>(
        &mut self,
        b: &'k KernelBuilder,
        block: usize,
        index: u32,
        [low, high]: [Val<'k, ty::F32>; 2],
    ) {
        if self.atom.accumulator == Type::B32 {
            let pair = low.pack(high, Element::F16);
            b.effect(Op::AccSet(self.groups[block], index / 2), vec![pair.id]);
        } else {
            self.set(b, block, index, low);
            self.set(b, block, index + 1, high);
        }
    }
}

impl<'k> Carried<'k> for Accumulators {
    type Static = (MmaAtom, Vec<AccId>);

    fn split(self, _: &mut Vec<ValueId>) -> Self::Static {
        (self.atom, self.groups)
    }

    fn join(
        _: &'k KernelBuilder,
        _: &mut std::vec::IntoIter<ValueId>,
        (atom, groups): Self::Static,
    ) -> Self {
        Accumulators { atom, groups }
    }
}

impl KernelBuilder {
    /// Declares accumulators for `blocks` m64 blocks of this atom. Their contents are undefined
    /// until they are written, or until a batch that does not accumulate has written them.
    pub fn accumulators(&self, atom: MmaAtom, blocks: u32) -> Accumulators {
        let group = || self.accumulator(atom.accumulator, atom.registers());
        let groups = (0..blocks).map(|_| group()).collect();
        Accumulators { atom, groups }
    }

    /// The descriptor of an operand that starts at `address`.
    #[track_caller]
    pub fn descriptor<'k>(
        &'k self,
        address: Val<'k, ty::Smem>,
        layout: DescriptorLayout,
    ) -> Val<'k, ty::Descriptor> {
        self.value(Op::Descriptor(layout), vec![address.id])
    }
}
