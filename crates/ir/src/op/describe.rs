//! The vocabulary of the table of operations: types, effects, and which threads act together.

use super::attributes::{AtomicOp, BinaryOp, Special, UnaryOp};
use crate::{AccId, ParamId, Type};

/// One or more operands or results in a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// One value of this type.
    Is(Type),
    /// One value of type T, the same in the whole signature, which is one of these.
    T(&'static [Type]),
    /// This many values of this type.
    Many(Type, u32),
    /// One value of the type of a scalar parameter.
    Param(ParamId),
    /// One value: the address of a parameter that is a tensor map.
    Map(ParamId),
    /// One value of the type of an accumulator's registers.
    Accumulator(AccId),
    /// All further values: what a loop carries, the same as operands and as results.
    Carried,
    /// All further values, of any types. The structure rule compares them with the nested blocks.
    Any,
}

/// What the table writes for operands or results.
pub(super) trait Slots {
    fn add_to(self, slots: &mut Vec<Slot>);
}

impl Slots for Slot {
    fn add_to(self, slots: &mut Vec<Slot>) {
        slots.push(self);
    }
}

/// One value.
impl Slots for Type {
    fn add_to(self, slots: &mut Vec<Slot>) {
        slots.push(Slot::Is(self));
    }
}

/// A value of each type.
impl Slots for &[Type] {
    fn add_to(self, slots: &mut Vec<Slot>) {
        slots.extend(self.iter().copied().map(Slot::Is));
    }
}

/// The operands and results of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) operands: Vec<Slot>,
    pub(crate) results: Vec<Slot>,
}

/// What an operation does besides computing its results from its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing. It may be merged with an equal operation, moved within its block, or dropped when
    /// unused.
    Pure,
    /// It reads what changes while the kernel runs: memory, a clock, values of other lanes.
    Reads,
    /// It changes memory, signals, waits, orders what stands before and after it, or changes the
    /// threads' resources.
    Acts,
    /// It copies a register of an accumulator group to a value.
    ReadsAccumulator(AccId),
    /// It writes a register of an accumulator group.
    WritesAccumulator(AccId),
    /// It belongs to the warpgroup's queue of wgmma groups.
    Wgmma(WgmmaEffect),
    /// It belongs to the thread's queue of bulk groups.
    Bulk(BulkEffect),
    /// It holds nested blocks or ends one.
    Control(Control),
}

/// An operation on the queue of wgmma groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WgmmaEffect {
    /// Orders register accesses before it with wgmma after it.
    Fence,
    /// Adds a wgmma to the open group, which writes these accumulators.
    Multiply(AccId),
    /// Closes the open group.
    Commit,
    /// Waits until at most this many groups are in flight.
    Wait(u32),
}

/// An operation on the queue of bulk groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkEffect {
    /// Adds a store to the open group.
    Store,
    /// Closes the open group.
    Commit,
    /// Waits until at most this many groups are unfinished.
    Wait(u32),
}

/// The kinds of structured control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// A counted loop with one block.
    For,
    /// A loop with a block for its condition and one for its body.
    While,
    /// A branch with two blocks.
    If,
    /// A branch by warpgroup with one block for each listed role.
    Roles,
    /// The end of a nested block.
    Yield,
}

/// A set of threads that do the same or hold the same. A later set is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Threads {
    /// All threads of the CTA.
    Cta,
    /// All 128 threads of a warpgroup.
    Warpgroup,
    /// All 32 threads of a warp.
    Warp,
    /// Each thread on its own.
    Thread,
}

/// In which threads a result is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniformity {
    /// Where all operands are.
    AsOperands,
    /// In these threads, whatever the operands.
    In(Threads),
    /// In these threads at least, and in more where all operands are the same in more.
    AtLeastIn(Threads),
}

impl Special {
    /// The threads in which it is the same.
    pub(super) fn threads(self) -> Threads {
        match self {
            Special::Thread | Special::Lane => Threads::Thread,
            Special::Warp => Threads::Warp,
            Special::Warpgroup => Threads::Warpgroup,
            Special::Cta
            | Special::CtaY
            | Special::CtaZ
            | Special::CtaCount
            | Special::CtaCountY
            | Special::CtaCountZ
            | Special::CtaRank
            | Special::Cluster
            | Special::ClusterCount => Threads::Cta,
        }
    }
}

pub(super) const ARITHMETIC: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::F32, Type::F64];
pub(super) const FLOATS: &[Type] = &[Type::F32, Type::F64];
pub(super) const INTEGERS: &[Type] = &[Type::U32, Type::S32, Type::U64];
pub(super) const LOGICAL: &[Type] = &[Type::Bool, Type::U32, Type::S32, Type::U64];
pub(super) const WORDS: &[Type] = &[Type::U32, Type::S32];
pub(super) const BITS_32: &[Type] = &[Type::U32, Type::S32, Type::F32, Type::B32];
const BITS_64: &[Type] = &[Type::U64, Type::F64];
pub(super) const UNSIGNED: &[Type] = &[Type::U32, Type::U64];

impl UnaryOp {
    /// The types that it exists for.
    pub(super) const fn types(self) -> &'static [Type] {
        match self {
            UnaryOp::Not => LOGICAL,
            UnaryOp::Neg => &[Type::S32, Type::F32, Type::F64],
            UnaryOp::Abs
            | UnaryOp::Sqrt
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::RoundEven
            | UnaryOp::Truncate => FLOATS,
            UnaryOp::Exp2
            | UnaryOp::Reciprocal
            | UnaryOp::ReciprocalSqrt
            | UnaryOp::Log2
            | UnaryOp::Tanh
            | UnaryOp::Sin
            | UnaryOp::Cos => &[Type::F32],
            UnaryOp::CountOnes | UnaryOp::LeadingZeros | UnaryOp::ReverseBits => &[Type::U32],
        }
    }
}

impl AtomicOp {
    /// The types that it exists for.
    pub(super) const fn types(self) -> &'static [Type] {
        match self {
            AtomicOp::Add | AtomicOp::Exch => ARITHMETIC,
            AtomicOp::Inc | AtomicOp::Dec => &[Type::U32],
            AtomicOp::Min | AtomicOp::Max => INTEGERS,
            AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => UNSIGNED,
        }
    }
}

impl BinaryOp {
    /// The types that it exists for.
    pub(super) const fn types(self) -> &'static [Type] {
        match self {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Min
            | BinaryOp::Max => ARITHMETIC,
            BinaryOp::MulHigh => &[Type::U32],
            BinaryOp::MaxNan => &[Type::F32],
            BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr => INTEGERS,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => LOGICAL,
        }
    }

    /// The right operand: of the same type, or the amount of a shift.
    pub(super) const fn right(self) -> Slot {
        match self {
            BinaryOp::Shl | BinaryOp::Shr => Slot::Is(Type::U32),
            _ => Slot::T(self.types()),
        }
    }
}

/// The types that this operation reduces over a warp.
pub(super) const fn reduced(op: BinaryOp) -> &'static [Type] {
    match op {
        BinaryOp::Add | BinaryOp::Min | BinaryOp::Max => WORDS,
        _ => &[Type::U32],
    }
}

/// The types that convert by value to this one.
pub(super) const fn converts_to(to: Type) -> &'static [Type] {
    match to {
        Type::U32 | Type::S32 => &[Type::U64, Type::F32, Type::F64],
        Type::U64 => &[Type::U32, Type::S32, Type::F32, Type::F64],
        Type::F32 => &[Type::U32, Type::S32, Type::U64, Type::F64],
        Type::F64 => &[Type::U32, Type::S32, Type::U64, Type::F32],
        _ => &[],
    }
}

/// The types whose bits can be those of this one.
pub(super) const fn bits_of(to: Type) -> &'static [Type] {
    match to {
        Type::U32 | Type::S32 | Type::F32 | Type::B32 => BITS_32,
        Type::U64 | Type::F64 => BITS_64,
        _ => &[],
    }
}

/// This many values of a type.
pub(super) const fn many(ty: Type, count: u32) -> Slot {
    Slot::Many(ty, count)
}

/// The number of offsets of a load through a map of so many dimensions.
pub(super) const fn offsets(rank: u32, im2col: bool) -> u32 {
    if im2col { rank.saturating_sub(2) } else { 0 }
}

/// A value of a type that is there only if `present`.
pub(super) const fn optional(ty: Type, present: bool) -> Slot {
    Slot::Many(ty, present as u32)
}
