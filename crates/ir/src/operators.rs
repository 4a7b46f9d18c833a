//! Rust's operators on values. An operand of the same type can be a value or a Rust constant, on
//! either side.

use std::ops;

use crate::value::{IntoVal, Scalar, Val, ty};
use crate::{BinaryOp, Op, UnaryOp};

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),* $(,)?) => {$(
        impl<'k, T: Scalar, R: IntoVal<'k, T>> ops::$trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;
            #[track_caller]
            fn $method(self, rhs: R) -> Self::Output {
                self.binary(BinaryOp::$op, rhs)
            }
        }
    )*};
}

operators!(
    Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem,
    BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor,
);

macro_rules! shifts {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl<'k, T: Scalar, R: IntoVal<'k, ty::U32>> ops::$trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;
            #[track_caller]
            fn $method(self, amount: R) -> Self::Output {
                let amount = amount.into_val(self.builder);
                self.builder.value(Op::Binary(BinaryOp::$op), vec![self.id, amount.id])
            }
        }
    )*};
}

shifts!(Shl shl Shl, Shr shr Shr);

/// Operators whose left operand is a Rust constant.
macro_rules! constants_on_the_left {
    ($($rust:ty => $name:ident: $($trait:ident $method:ident)*;)*) => {$($(
        impl<'k> ops::$trait<Val<'k, ty::$name>> for $rust {
            type Output = Val<'k, ty::$name>;
            #[track_caller]
            fn $method(self, rhs: Val<'k, ty::$name>) -> Self::Output {
                ops::$trait::$method(IntoVal::<ty::$name>::into_val(self, rhs.builder), rhs)
            }
        }
    )*)*};
}

constants_on_the_left! {
    bool => Bool: BitAnd bitand BitOr bitor BitXor bitxor;
    u32 => U32: Add add Sub sub Mul mul Div div Rem rem BitAnd bitand BitOr bitor BitXor bitxor
        Shl shl Shr shr;
    i32 => S32: Add add Sub sub Mul mul Div div Rem rem BitAnd bitand BitOr bitor BitXor bitxor;
    u64 => U64: Add add Sub sub Mul mul Div div Rem rem BitAnd bitand BitOr bitor BitXor bitxor;
    f32 => F32: Add add Sub sub Mul mul Div div;
    f64 => F64: Add add Sub sub Mul mul Div div;
}

impl<T: Scalar> ops::Not for Val<'_, T> {
    type Output = Self;
    #[track_caller]
    fn not(self) -> Self {
        self.unary(UnaryOp::Not)
    }
}

/// The number with the other sign.
impl<T: Scalar> ops::Neg for Val<'_, T> {
    type Output = Self;
    #[track_caller]
    fn neg(self) -> Self {
        self.unary(UnaryOp::Neg)
    }
}
