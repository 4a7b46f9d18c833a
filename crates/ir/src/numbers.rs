//! Functions of numbers: conversions by value, extremes, rounding, powers, roots, bits.

use crate::value::{IntoVal, Scalar, Val, ty};
use crate::{BinaryOp, Op, UnaryOp};

/// Conversions to a type by value. [`Op::Convert`] says how numbers are rounded.
macro_rules! conversions {
    ($($doc:literal $method:ident -> $to:ident: $($from:ident)*;)*) => {$($(
        impl<'k> Val<'k, ty::$from> {
            #[doc = $doc]
            #[track_caller]
            pub fn $method(self) -> Val<'k, ty::$to> {
                self.builder.value(Op::Convert(ty::$to::TYPE), vec![self.id])
            }
        }
    )*)*};
}

conversions! {
    "The number as an unsigned integer. A fraction is dropped, and the nearest end of the range \
     replaces a number beyond it. NaN becomes what [`Op::Convert`] says. To keep the bits, use `bits`."
    to_u32 -> U32: F32 F64;
    "The number as a signed integer. A fraction is dropped, and the nearest end of the range \
     replaces a number beyond it. NaN becomes what [`Op::Convert`] says. To keep the bits, use `bits`."
    to_s32 -> S32: F32 F64;
    "The number as an integer of 64 bits. Signed integers are sign-extended. A fraction is dropped, \
     and the nearest end of the range replaces a float beyond it. NaN becomes what [`Op::Convert`] \
     says."
    to_u64 -> U64: U32 S32 F32 F64;
    "The nearest binary32; ties go to even. To keep the bits, use `as_f32`."
    to_f32 -> F32: U32 S32 U64 F64;
    "The nearest binary64; ties go to even. Only some `U64` differ from it."
    to_f64 -> F64: U32 S32 U64 F32;
}

impl<'k, T: Scalar> Val<'k, T> {
    /// The smaller of two values.
    #[track_caller]
    pub fn min(self, rhs: impl IntoVal<'k, T>) -> Self {
        self.binary(BinaryOp::Min, rhs)
    }

    /// The larger of two values.
    #[track_caller]
    pub fn max(self, rhs: impl IntoVal<'k, T>) -> Self {
        self.binary(BinaryOp::Max, rhs)
    }

    /// The smallest of three values. The assembler makes one instruction of it for integers.
    #[track_caller]
    pub fn min3(self, second: impl IntoVal<'k, T>, third: impl IntoVal<'k, T>) -> Self {
        self.min(second).min(third)
    }

    /// The largest of three values. The assembler makes one instruction of it for integers.
    #[track_caller]
    pub fn max3(self, second: impl IntoVal<'k, T>, third: impl IntoVal<'k, T>) -> Self {
        self.max(second).max(third)
    }

    /// The value, or the nearer of two bounds where it is beyond them.
    #[track_caller]
    pub fn clamp(self, least: impl IntoVal<'k, T>, most: impl IntoVal<'k, T>) -> Self {
        self.max(least).min(most)
    }
}

impl<'k> Val<'k, ty::U32> {
    /// Quotient rounded up.
    #[track_caller]
    pub fn div_ceil(self, divisor: u32) -> Self {
        (self + (divisor - 1)) / divisor
    }

    /// The upper 32 of the 64 bits of the product.
    #[track_caller]
    pub fn multiply_high(self, rhs: impl IntoVal<'k, ty::U32>) -> Self {
        self.binary(BinaryOp::MulHigh, rhs)
    }

    /// The number of bits that are set.
    #[track_caller]
    pub fn count_ones(self) -> Self {
        self.unary(UnaryOp::CountOnes)
    }

    /// The number of zeros above the highest bit that is set; 32 for zero.
    #[track_caller]
    pub fn leading_zeros(self) -> Self {
        self.unary(UnaryOp::LeadingZeros)
    }

    /// The bits in the reverse order.
    #[track_caller]
    pub fn reverse_bits(self) -> Self {
        self.unary(UnaryOp::ReverseBits)
    }
}

macro_rules! floats {
    ($($float:ident)*) => {$(
        impl<'k> Val<'k, ty::$float> {
            /// `self * factor + addend`, rounded once.
            #[track_caller]
            pub fn mul_add(
                self,
                factor: impl IntoVal<'k, ty::$float>,
                addend: impl IntoVal<'k, ty::$float>,
            ) -> Self {
                let (factor, addend) =
                    (factor.into_val(self.builder), addend.into_val(self.builder));
                self.builder.value(Op::Fma, vec![self.id, factor.id, addend.id])
            }

            /// Its magnitude.
            #[track_caller]
            pub fn abs(self) -> Self {
                self.unary(UnaryOp::Abs)
            }

            /// The square root, rounded to nearest even.
            #[track_caller]
            pub fn sqrt(self) -> Self {
                self.unary(UnaryOp::Sqrt)
            }

            /// The largest integer that is not above this number.
            #[track_caller]
            pub fn floor(self) -> Self {
                self.unary(UnaryOp::Floor)
            }

            /// The smallest integer that is not below this number.
            #[track_caller]
            pub fn ceil(self) -> Self {
                self.unary(UnaryOp::Ceil)
            }

            /// The nearest integer, the even one of two.
            #[track_caller]
            pub fn round_even(self) -> Self {
                self.unary(UnaryOp::RoundEven)
            }

            /// The integer part.
            #[track_caller]
            pub fn truncate(self) -> Self {
                self.unary(UnaryOp::Truncate)
            }
        }
    )*};
}

floats!(F32 F64);

impl<'k> Val<'k, ty::F32> {
    /// Two to the power of this number. The error is at most two units in the last place; subnormal
    /// operands and results become zero.
    #[track_caller]
    pub fn exp2(self) -> Self {
        self.unary(UnaryOp::Exp2)
    }

    /// The exponential, as `exp2` of the product with log2 e. For magnitudes up to `a`, the error
    /// is at most about `(1.3 a + 4) · 2^-24` of the result: `a` for the rounding of the product,
    /// 0.3 a for that of log2 e, and 4 for `exp2`.
    #[track_caller]
    pub fn exp(self) -> Self {
        (self * std::f32::consts::LOG2_E).exp2()
    }

    /// The logarithm to base two. The absolute error is at most 2^-22 for numbers between 0.5 and
    /// 2, and the relative error is at most 2^-22 for others; subnormal operands become zero.
    #[track_caller]
    pub fn log2(self) -> Self {
        self.unary(UnaryOp::Log2)
    }

    /// The natural logarithm, as the product of `log2` and ln 2.
    #[track_caller]
    pub fn ln(self) -> Self {
        self.log2() * std::f32::consts::LN_2
    }

    /// The reciprocal. The error is at most one unit in the last place; subnormal operands and
    /// results become zero.
    #[track_caller]
    pub fn reciprocal(self) -> Self {
        self.unary(UnaryOp::Reciprocal)
    }

    /// The reciprocal of the square root. The relative error is at most 2^-22.9; subnormal operands
    /// become zero.
    #[track_caller]
    pub fn reciprocal_sqrt(self) -> Self {
        self.unary(UnaryOp::ReciprocalSqrt)
    }

    /// The hyperbolic tangent. The relative error is at most 2^-11.
    #[track_caller]
    pub fn tanh(self) -> Self {
        self.unary(UnaryOp::Tanh)
    }

    /// The sine of an angle in radians. The absolute error is at most 2^-20.5 for angles between
    /// -2π and 2π; subnormal operands become zero.
    #[track_caller]
    pub fn sin(self) -> Self {
        self.unary(UnaryOp::Sin)
    }

    /// The cosine of an angle in radians. The absolute error is at most 2^-20.5 for angles between
    /// -2π and 2π; subnormal operands become zero.
    #[track_caller]
    pub fn cos(self) -> Self {
        self.unary(UnaryOp::Cos)
    }

    /// The larger of two values: NaN if one of them is NaN, and +0 of the two zeros.
    #[track_caller]
    pub fn max_nan(self, rhs: impl IntoVal<'k, ty::F32>) -> Self {
        self.binary(BinaryOp::MaxNan, rhs)
    }
}
