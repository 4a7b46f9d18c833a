//! [`Val`]: a value that the kernel holds when it runs. Rust values are known when the kernel is
//! built. Nothing converts a `Val` back, so confusing the two does not compile.

use std::marker::PhantomData;

use crate::builder::KernelBuilder;
use crate::{BinaryOp, CompareOp, Constant, Element, Half, Op, Type, UnaryOp, ValueId};

/// Marker types for [`Val`]: one for each [`Type`].
pub mod ty {
    use super::{Scalar, Type};

    macro_rules! markers {
        ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;
            impl Scalar for $name {
                const TYPE: Type = Type::$name;
            }
        )*};
    }

    markers!(
        /// A predicate.
        Bool,
        /// 32-bit unsigned integer.
        U32,
        /// 32-bit signed integer.
        S32,
        /// 64-bit unsigned integer or global address.
        U64,
        /// binary32.
        F32,
        /// binary64.
        F64,
        /// Two packed elements of 16 or 8 bits.
        B32,
        /// Shared-memory byte address.
        Smem,
        /// Shared-memory byte address anywhere in the cluster.
        ClusterSmem,
        /// Address of a tensor map.
        MapPtr,
        /// wgmma matrix descriptor.
        Descriptor,
    );
}

/// A marker with its IR type.
pub trait Scalar: Copy {
    /// The IR type.
    const TYPE: Type;
}

/// A run-time value of type `T` in the kernel being built.
pub struct Val<'k, T> {
    pub(crate) id: ValueId,
    pub(crate) builder: &'k KernelBuilder,
    pub(crate) marker: PhantomData<T>,
}

impl KernelBuilder {
    /// Emits an operation with one result.
    #[track_caller]
    pub(crate) fn value<T: Scalar>(&self, op: Op, args: Vec<ValueId>) -> Val<'_, T> {
        let results = self.emit(op, args, &[T::TYPE], vec![]);
        self.wrap(results[0])
    }

    pub(crate) fn wrap<T: Scalar>(&self, id: ValueId) -> Val<'_, T> {
        Val { id, builder: self, marker: PhantomData }
    }

    /// A constant of the kernel.
    #[track_caller]
    pub fn constant<'k, T: Scalar>(&'k self, value: impl IntoVal<'k, T>) -> Val<'k, T> {
        value.into_val(self)
    }
}

impl<T> Clone for Val<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Val<'_, T> {}

/// Something that can be used as a `Val<T>`: a `Val`, or a Rust constant.
pub trait IntoVal<'k, T: Scalar> {
    /// The value. A Rust value becomes a constant of the kernel.
    fn into_val(self, builder: &'k KernelBuilder) -> Val<'k, T>;
}

impl<'k, T: Scalar> IntoVal<'k, T> for Val<'k, T> {
    fn into_val(self, _: &'k KernelBuilder) -> Val<'k, T> {
        self
    }
}

macro_rules! constants {
    ($($rust:ty => $name:ident),* $(,)?) => {$(
        impl<'k> IntoVal<'k, ty::$name> for $rust {
            #[track_caller]
            fn into_val(self, builder: &'k KernelBuilder) -> Val<'k, ty::$name> {
                builder.value(Op::Const(Constant::$name(self)), vec![])
            }
        }
    )*};
}

constants!(bool => Bool, u32 => U32, i32 => S32, u64 => U64, f32 => F32, f64 => F64);

impl<'k, T: Scalar> Val<'k, T> {
    /// The SSA value behind it.
    pub fn id(self) -> ValueId {
        self.id
    }

    /// A constant of the same kernel and type.
    #[track_caller]
    pub fn constant(self, value: impl IntoVal<'k, T>) -> Self {
        value.into_val(self.builder)
    }

    #[track_caller]
    pub(crate) fn unary(self, op: UnaryOp) -> Self {
        self.builder.value(Op::Unary(op), vec![self.id])
    }

    #[track_caller]
    pub(crate) fn binary(self, op: BinaryOp, rhs: impl IntoVal<'k, T>) -> Self {
        let rhs = rhs.into_val(self.builder);
        self.builder.value(Op::Binary(op), vec![self.id, rhs.id])
    }

    #[track_caller]
    fn compare(self, op: CompareOp, rhs: impl IntoVal<'k, T>) -> Val<'k, ty::Bool> {
        let rhs = rhs.into_val(self.builder);
        self.builder.value(Op::Compare(op), vec![self.id, rhs.id])
    }

    /// `self == rhs`.
    #[track_caller]
    pub fn eq(self, rhs: impl IntoVal<'k, T>) -> Val<'k, ty::Bool> {
        self.compare(CompareOp::Eq, rhs)
    }

    /// `self != rhs`.
    #[track_caller]
    pub fn ne(self, rhs: impl IntoVal<'k, T>) -> Val<'k, ty::Bool> {
        self.compare(CompareOp::Ne, rhs)
    }

    /// `self < rhs`.
    #[track_caller]
    pub fn lt(self, rhs: impl IntoVal<'k, T>) -> Val<'k, ty::Bool> {
        self.compare(CompareOp::Lt, rhs)
    }

    /// `self <= rhs`.
    #[track_caller]
    pub fn le(self, rhs: impl IntoVal<'k, T>) -> Val<'k, ty::Bool> {
        self.compare(CompareOp::Le, rhs)
    }

    /// `self > rhs`.
    #[track_caller]
    pub fn gt(self, rhs: impl IntoVal<'k, T>) -> Val<'k, ty::Bool> {
        self.compare(CompareOp::Gt, rhs)
    }

    /// `self >= rhs`.
    #[track_caller]
    pub fn ge(self, rhs: impl IntoVal<'k, T>) -> Val<'k, ty::Bool> {
        self.compare(CompareOp::Ge, rhs)
    }
}

impl<'k> Val<'k, ty::Bool> {
    /// `if_true` where this holds, else `if_false`.
    #[track_caller]
    pub fn select<T: Scalar>(
        self,
        if_true: impl IntoVal<'k, T>,
        if_false: impl IntoVal<'k, T>,
    ) -> Val<'k, T> {
        let (t, f) = (if_true.into_val(self.builder), if_false.into_val(self.builder));
        self.builder.value(Op::Select, vec![self.id, t.id, f.id])
    }
}

impl<'k> Val<'k, ty::U32> {
    /// Four of the eight bytes of this word and `high`, this word's first. Nibble `i` of the
    /// selector says which one becomes byte `i`: see [`Op::PermuteBytes`].
    #[track_caller]
    pub fn permute_bytes(self, high: Self, selector: impl IntoVal<'k, ty::U32>) -> Self {
        let selector = selector.into_val(self.builder);
        self.builder.value(Op::PermuteBytes, vec![self.id, high.id, selector.id])
    }

    /// The binary32 of these bits. [`to_f32`](Self::to_f32) converts the number.
    #[track_caller]
    pub fn as_f32(self) -> Val<'k, ty::F32> {
        self.builder.value(Op::Bitcast(Type::F32), vec![self.id])
    }

    /// These bits as two packed elements.
    #[track_caller]
    pub fn as_b32(self) -> Val<'k, ty::B32> {
        self.builder.value(Op::Bitcast(Type::B32), vec![self.id])
    }

    /// The same bits as a signed number.
    #[track_caller]
    pub fn as_s32(self) -> Val<'k, ty::S32> {
        self.builder.value(Op::Bitcast(Type::S32), vec![self.id])
    }
}

impl<'k> Val<'k, ty::S32> {
    /// The same bits as an unsigned number.
    #[track_caller]
    pub fn as_u32(self) -> Val<'k, ty::U32> {
        self.builder.value(Op::Bitcast(Type::U32), vec![self.id])
    }
}

impl<'k> Val<'k, ty::U64> {
    /// The binary64 of these bits.
    #[track_caller]
    pub fn as_f64(self) -> Val<'k, ty::F64> {
        self.builder.value(Op::Bitcast(Type::F64), vec![self.id])
    }

    /// The lower 32 bits.
    #[track_caller]
    pub fn low_word(self) -> Val<'k, ty::U32> {
        self.builder.value(Op::Convert(Type::U32), vec![self.id])
    }

    /// The global address plus `bytes`.
    #[track_caller]
    pub fn byte_offset(self, bytes: impl IntoVal<'k, ty::U32>) -> Self {
        self + bytes.into_val(self.builder).to_u64()
    }
}

impl<'k> Val<'k, ty::Smem> {
    /// The address plus `bytes`.
    #[track_caller]
    pub fn offset(self, bytes: impl IntoVal<'k, ty::U32>) -> Self {
        let bytes = bytes.into_val(self.builder);
        self.builder.value(Op::SmemOffset, vec![self.id, bytes.id])
    }

    /// The same offset in the shared memory of another CTA of the cluster.
    #[track_caller]
    pub fn in_cta(self, rank: impl IntoVal<'k, ty::U32>) -> Val<'k, ty::ClusterSmem> {
        let rank = rank.into_val(self.builder);
        self.builder.value(Op::MapShared, vec![self.id, rank.id])
    }
}

impl<'k> Val<'k, ty::Descriptor> {
    /// The descriptor, moved on by `bytes`, a multiple of 16.
    #[track_caller]
    pub fn advance(self, bytes: u32) -> Self {
        if bytes == 0 {
            return self;
        }
        self.builder.value(Op::DescriptorAdvance(bytes), vec![self.id])
    }
}

impl<'k> Val<'k, ty::F32> {
    /// Its bits.
    #[track_caller]
    pub fn bits(self) -> Val<'k, ty::U32> {
        self.builder.value(Op::Bitcast(Type::U32), vec![self.id])
    }

    /// Packs this value (low) and `high` into two elements of 16 or 8 bits, rounded to nearest
    /// even. Elements of 8 bits saturate, and have zeros above them.
    #[track_caller]
    pub fn pack(self, high: Self, element: Element) -> Val<'k, ty::B32> {
        self.builder.value(Op::Pack(element), vec![self.id, high.id])
    }
}

impl<'k> Val<'k, ty::F64> {
    /// Its bits.
    #[track_caller]
    pub fn bits(self) -> Val<'k, ty::U64> {
        self.builder.value(Op::Bitcast(Type::U64), vec![self.id])
    }
}

impl<'k> Val<'k, ty::B32> {
    /// The bits of both elements, the first in the low half.
    #[track_caller]
    pub fn bits(self) -> Val<'k, ty::U32> {
        self.builder.value(Op::Bitcast(Type::U32), vec![self.id])
    }

    /// Both elements of 16 or 8 bits as binary32, the low one first.
    #[track_caller]
    pub fn unpack(self, element: Element) -> [Val<'k, ty::F32>; 2] {
        let low = self.builder.value(Op::Unpack(element, Half::Low), vec![self.id]);
        let high = self.builder.value(Op::Unpack(element, Half::High), vec![self.id]);
        [low, high]
    }
}
