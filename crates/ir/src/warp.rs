//! Methods in which the lanes of a warp exchange values through registers. All 32 lanes execute
//! them together, so they cannot stand under a condition that differs between lanes. They order no
//! access to memory: [`warp_sync`](crate::KernelBuilder::warp_sync) does.

use crate::builder::KernelBuilder;
use crate::value::{IntoVal, Scalar, Val, ty};
use crate::{BinaryOp, Op, Shuffle, Type, Vote};

/// Lanes of a warp.
const LANES: u32 = 32;

impl KernelBuilder {
    /// True in exactly one thread of the converged warp.
    #[track_caller]
    pub fn elect(&self) -> Val<'_, ty::Bool> {
        self.value(Op::Elect, vec![])
    }
}

/// Any type of 32 or 64 bits that arithmetic knows, and packed elements.
impl<'k, T: Scalar> Val<'k, T> {
    /// The value of the lane whose number is `lane` modulo 32.
    #[track_caller]
    pub fn shuffle(self, lane: impl IntoVal<'k, ty::U32>) -> Self {
        self.shuffle_in(Shuffle::Index, LANES, lane)
    }

    /// The value of the lane that is lower by `amount`; its own in the lowest lanes.
    #[track_caller]
    pub fn shuffle_up(self, amount: impl IntoVal<'k, ty::U32>) -> Self {
        self.shuffle_in(Shuffle::Up, LANES, amount)
    }

    /// The value of the lane that is higher by `amount`; its own in the highest lanes.
    #[track_caller]
    pub fn shuffle_down(self, amount: impl IntoVal<'k, ty::U32>) -> Self {
        self.shuffle_in(Shuffle::Down, LANES, amount)
    }

    /// The value of the lane whose number is the own one, exclusive-or `mask`.
    #[track_caller]
    pub fn shuffle_xor(self, mask: impl IntoVal<'k, ty::U32>) -> Self {
        self.shuffle_in(Shuffle::Xor, LANES, mask)
    }

    /// A shuffle inside of groups of `width` lanes (2, 4, 8, 16 or 32), which counts lanes from the
    /// first of each group. A lane reads its own value where its group has no such lane. Only the
    /// lowest five bits of the amount count.
    #[track_caller]
    pub fn shuffle_in(
        self,
        shuffle: Shuffle,
        width: u32,
        amount: impl IntoVal<'k, ty::U32>,
    ) -> Self {
        let (b, amount) = (self.builder, amount.into_val(self.builder));
        let op = Op::Shuffle { shuffle, width };
        if T::TYPE.bytes() != Some(8) {
            return b.value(op, vec![self.id, amount.id]);
        }
        // The instruction moves 32 bits.
        let bits: Val<'k, ty::U64> = b.value(Op::Bitcast(Type::U64), vec![self.id]);
        let [low, high] = [bits.low_word(), (bits >> 32u32).low_word()].map(|half| {
            let moved: Val<'k, ty::U32> = b.value(op.clone(), vec![half.id, amount.id]);
            moved.to_u64()
        });
        b.value(Op::Bitcast(T::TYPE), vec![(low | (high << 32u32)).id])
    }

    /// A reduction over groups of `width` lanes (1, 2, 4, 8, 16 or 32), whose result all lanes of a
    /// group get. `combine` must be commutative and associative up to rounding; every lane computes
    /// the same order of combinations, so all get the same bits. The assembler has one instruction
    /// for integers and 32 lanes: [`warp_sum`](Val::warp_sum) and its siblings.
    ///
    /// ```
    /// # use pgemm_ir::{KernelBuilder, Occupancy, Special};
    /// # let b = KernelBuilder::new("sum", 1);
    /// # b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("all", 1, 128, |_| {
    /// let lane = b.special(Special::Lane).to_f32();
    /// let sum = lane.reduce_lanes(32, |a, b| a + b);
    /// # let _ = sum;
    /// # }));
    /// # b.finish().unwrap();
    /// ```
    #[track_caller]
    pub fn reduce_lanes(self, width: u32, combine: impl Fn(Self, Self) -> Self) -> Self {
        let mut distance = width / 2;
        let mut value = self;
        while distance > 0 {
            value = combine(value, value.shuffle_xor(distance));
            distance /= 2;
        }
        value
    }
}

impl<'k> Val<'k, ty::Bool> {
    /// Whether it holds in at least one lane of the warp.
    #[track_caller]
    pub fn any_lane(self) -> Self {
        self.builder.value(Op::Vote(Vote::Any), vec![self.id])
    }

    /// Whether it holds in all lanes of the warp.
    #[track_caller]
    pub fn all_lanes(self) -> Self {
        self.builder.value(Op::Vote(Vote::All), vec![self.id])
    }

    /// The lanes of the warp in which it holds: bit `i` stands for lane `i`.
    #[track_caller]
    pub fn ballot(self) -> Val<'k, ty::U32> {
        self.builder.value(Op::Ballot, vec![self.id])
    }
}

macro_rules! matching {
    ($($unsigned:ident)*) => {$(
        impl<'k> Val<'k, ty::$unsigned> {
            /// The lanes of the warp that have the same value as this one: bit `i` stands for lane
            /// `i`.
            #[track_caller]
            pub fn matching_lanes(self) -> Val<'k, ty::U32> {
                self.builder.value(Op::Match, vec![self.id])
            }
        }
    )*};
}

matching!(U32 U64);

macro_rules! reductions {
    ($($integer:ident: $($(#[$doc:meta])* $method:ident $op:ident)*;)*) => {$(
        impl Val<'_, ty::$integer> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $method(self) -> Self {
                self.builder.value(Op::WarpReduce(BinaryOp::$op), vec![self.id])
            }
        )*}
    )*};
}

reductions! {
    U32:
        /// The sum over all lanes of the warp, wrapping.
        warp_sum Add
        /// The smallest value of all lanes of the warp.
        warp_min Min
        /// The largest value of all lanes of the warp.
        warp_max Max
        /// The bits that are set in all lanes of the warp.
        warp_and And
        /// The bits that are set in at least one lane of the warp.
        warp_or Or
        /// The bits that are set in an odd number of lanes of the warp.
        warp_xor Xor;
    S32:
        /// The sum over all lanes of the warp, wrapping.
        warp_sum Add
        /// The smallest value of all lanes of the warp.
        warp_min Min
        /// The largest value of all lanes of the warp.
        warp_max Max;
}

impl Val<'_, ty::U32> {
    /// Lane 0's value in all lanes of the warp. The verifier knows it to be warp-uniform, so
    /// operations that a warp executes together may stand under a condition on it.
    #[track_caller]
    pub fn warp_uniform(self) -> Self {
        self.builder.value(Op::ShuffleFirst, vec![self.id])
    }

    /// Lane 0's value in all lanes of the warp. The kernel vouches that all warps of the warpgroup
    /// have the same value, and the verifier takes it to be warpgroup-uniform.
    #[track_caller]
    pub fn warpgroup_uniform(self) -> Self {
        self.builder.value(Op::AssumeUniform, vec![self.id])
    }
}
