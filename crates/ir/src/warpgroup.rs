//! Warpgroup MMA with its hazards in the types. [`Accumulators`] are idle registers: they can be read. Issuing a batch
//! turns them into a [`Pending`], which owns them and the batches in flight, each with what it reads (a ring slot, say).
//! Waiting retires the oldest batches and hands back what they read as [`Retired`], and only a wait for all of them gives
//! the accumulators back. So nothing touches accumulators in flight, and no slot can be released early.
//!
//! Commit groups are one first-in-first-out queue per warpgroup: keep one `Pending` alive at a time.

use std::collections::VecDeque;

use crate::builder::{BuildError, KernelBuilder};
use crate::carried::Carried;
use crate::value::{IntoVal, Scalar, Val, ty};
use crate::{
    ASource, AccId, Accumulator, DescriptorLayout, Element, Half, Op, OperandMajor, Type, ValueId,
    Wgmma,
};

/// The MMA instruction that a kernel's mainloop issues: everything but the accumulators.
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
    /// Type of the accumulators: see [`Wgmma::acc`].
    pub accumulator: Type,
}

impl MmaAtom {
    /// Rows of one instruction.
    pub const M: u32 = 64;

    /// Depth of one instruction.
    pub const fn k(&self) -> u32 {
        32 / self.a.bytes()
    }

    /// Accumulator registers per thread.
    pub fn registers(&self) -> u32 {
        Accumulator::registers_for(self.accumulator, self.n)
    }
}

/// Idle accumulator registers of a warpgroup: one group of `64 × n` for each m64 block.
#[derive(Debug)]
pub struct Accumulators {
    atom: MmaAtom,
    groups: Vec<AccId>,
}

impl Accumulators {
    /// How many m64 blocks.
    pub fn blocks(&self) -> usize {
        self.groups.len()
    }

    /// Sum number `index` of this thread in m64 block `block`, of the type of [`MmaAtom::accumulator`], or of f16 as binary32:
    /// see [`Op::AccGet`] for which element it is.
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

    /// Gives the registers to batches still to be issued.
    pub fn start<S>(self) -> Pending<S> {
        Pending { atom: self.atom, groups: self.groups, in_flight: VecDeque::new() }
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

/// Accumulators with batches in flight, oldest first; each batch keeps what it reads.
#[derive(Debug)]
pub struct Pending<S> {
    atom: MmaAtom,
    groups: Vec<AccId>,
    in_flight: VecDeque<S>,
}

/// Proof that the batch that read `S` has finished.
#[derive(Debug)]
pub struct Retired<S>(S);

impl<S> Retired<S> {
    /// What the finished batch read.
    pub fn into_inner(self) -> S {
        self.0
    }
}

impl<S> Retired<Option<S>> {
    /// What a finished batch read, if it says.
    pub fn transpose(self) -> Option<Retired<S>> {
        self.0.map(Retired)
    }
}

/// The A operand of one instruction in registers: this thread's four words of it, whose elements are those of PTX ISA,
/// "Register Fragments for wgmma". It goes to one instruction, whose batch has the registers from then on.
pub struct FragmentOfA<'k>([Val<'k, ty::B32>; 4]);

impl<'k> FragmentOfA<'k> {
    /// Of values that nothing else uses.
    pub fn new(words: [Val<'k, ty::B32>; 4]) -> Self {
        FragmentOfA(words)
    }
}

/// One batch being issued.
pub struct Batch<'k, 'p> {
    builder: &'k KernelBuilder,
    atom: MmaAtom,
    groups: &'p [AccId],
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

    #[track_caller]
    fn issue(
        &self,
        block: usize,
        a_source: ASource,
        mut args: Vec<ValueId>,
        accumulate: Val<'k, ty::Bool>,
    ) {
        let op = Op::Wgmma(Wgmma {
            acc: self.groups[block],
            n: self.atom.n,
            a: self.atom.a,
            b: self.atom.b,
            a_source,
            b_major: self.atom.b_major,
        });
        args.push(accumulate.id);
        self.builder.effect(op, args);
    }
}

impl<S> Pending<S> {
    /// Issues one batch that reads `source`: fence, the instructions of `issue`, commit.
    #[track_caller]
    pub fn issue<'k>(
        &mut self,
        b: &'k KernelBuilder,
        source: S,
        issue: impl FnOnce(&Batch<'k, '_>),
    ) {
        b.effect(Op::WgmmaFence, vec![]);
        issue(&Batch { builder: b, atom: self.atom, groups: &self.groups });
        b.effect(Op::WgmmaCommit, vec![]);
        self.in_flight.push_back(source);
    }

    /// Waits until at most `pending` batches are in flight and hands back what the finished ones read, oldest first.
    #[track_caller]
    pub fn wait_until(&mut self, b: &KernelBuilder, pending: u32) -> Vec<Retired<S>> {
        let in_flight = self.in_flight.len() as u32;
        if pending > in_flight {
            b.fail(|location| BuildError::WaitsForNothing { location, asked: pending, in_flight });
        }
        b.effect(Op::WgmmaWait { pending }, vec![]);
        let finished = self.in_flight.len().saturating_sub(pending as usize);
        self.in_flight.drain(..finished).map(Retired).collect()
    }

    /// Waits for every batch and gives the accumulators back.
    #[track_caller]
    pub fn finish(mut self, b: &KernelBuilder) -> (Accumulators, Vec<Retired<S>>) {
        let retired = self.wait_until(b, 0);
        (Accumulators { atom: self.atom, groups: self.groups }, retired)
    }
}

impl<'k, S: Carried<'k>> Carried<'k> for Pending<S> {
    type Static = (MmaAtom, Vec<AccId>, Vec<S::Static>);

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        let sources = self.in_flight.into_iter().map(|source| source.split(values)).collect();
        (self.atom, self.groups, sources)
    }

    fn join(
        builder: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        (atom, groups, sources): Self::Static,
    ) -> Self {
        let in_flight = sources.into_iter().map(|fixed| S::join(builder, values, fixed)).collect();
        Pending { atom, groups, in_flight }
    }
}

impl KernelBuilder {
    /// Declares accumulators for `blocks` m64 blocks of this atom. Their contents are undefined until a batch that does
    /// not accumulate has written them.
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
