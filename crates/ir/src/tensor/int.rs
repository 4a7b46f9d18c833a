//! [`Int`]: an extent, a stride or a coordinate that is a constant of the kernel or known when it
//! runs. Arithmetic between constants needs no instruction.

use std::ops;

use crate::builder::KernelBuilder;
use crate::value::{IntoVal, Val, ty};

/// An unsigned number of 32 bits: a constant, or a value of the kernel with what is known of it.
///
/// ```
/// # use pgemm_ir::{KernelBuilder, ty};
/// use pgemm_ir::Int;
///
/// # let b = KernelBuilder::new("ints", 1);
/// let columns = Int::from(b.param::<ty::U32>("columns")).multiple_of(8);
/// let padded = Int::from(3) * 32 + 4;
/// assert_eq!((padded.constant(), columns.constant()), (Some(100), None));
/// ```
#[derive(Clone, Copy)]
pub struct Int<'k>(Number<'k>);

#[derive(Clone, Copy)]
enum Number<'k> {
    Constant(u32),
    Value {
        value: Val<'k, ty::U32>,
        /// A number that divides it.
        multiple: u32,
        /// A bound that it does not exceed.
        most: u32,
    },
}

impl<'k> Int<'k> {
    /// States that `factor` divides the number. The kernel guarantees it. Vectors may then be
    /// wider, and tiles need no bounds check. A constant does not change.
    #[must_use]
    pub fn multiple_of(self, factor: u32) -> Self {
        match self.0 {
            Number::Value { value, multiple, most } if factor > 0 => {
                let multiple = (multiple / gcd(multiple, factor)).saturating_mul(factor);
                Int(Number::Value { value, multiple, most })
            }
            _ => self,
        }
    }

    /// The number, if it is a constant.
    pub fn constant(self) -> Option<u32> {
        match self.0 {
            Number::Constant(constant) => Some(constant),
            Number::Value { .. } => None,
        }
    }

    /// The number as a value of the kernel.
    #[track_caller]
    pub fn value(self, b: &'k KernelBuilder) -> Val<'k, ty::U32> {
        match self.0 {
            Number::Constant(constant) => b.constant(constant),
            Number::Value { value, .. } => value,
        }
    }

    /// A number that divides it: the constant itself, which is 0 if all numbers do.
    pub(super) fn multiple(self) -> u32 {
        match self.0 {
            Number::Constant(constant) => constant,
            Number::Value { multiple, .. } => multiple,
        }
    }

    /// A bound that it does not exceed.
    pub(super) fn most(self) -> u32 {
        match self.0 {
            Number::Constant(constant) => constant,
            Number::Value { most, .. } => most,
        }
    }

    /// The same number, which the caller knows not to exceed `most`.
    pub(super) fn at_most(self, bound: u32) -> Self {
        match self.0 {
            Number::Value { value, multiple, most } => {
                Int(Number::Value { value, multiple, most: most.min(bound) })
            }
            Number::Constant(_) => self,
        }
    }

    /// The smaller one of two numbers.
    #[track_caller]
    pub(super) fn min(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Number::Constant(a), Number::Constant(b)) => Int::from(a.min(b)),
            (Number::Value { value, multiple, most }, _) => Int(Number::Value {
                value: value.min(other.value(value.builder)),
                multiple: gcd(multiple, other.multiple()).max(1),
                most: most.min(other.most()),
            }),
            (Number::Constant(_), Number::Value { .. }) => other.min(self),
        }
    }

    /// Whether it is less than `end`; `None` if that is certain.
    #[track_caller]
    pub(super) fn is_below(self, end: Self) -> Option<Val<'k, ty::Bool>> {
        match (self.0, end.0) {
            (_, Number::Constant(end)) if self.most() < end => None,
            (Number::Value { value, .. }, _) => Some(value.lt(end.value(value.builder))),
            (_, Number::Value { value, .. }) => Some(value.gt(self.value(value.builder))),
            // Both are constants. Only the caller has a builder for the predicate.
            (Number::Constant(_), Number::Constant(_)) => None,
        }
    }

    /// Whether both are the same constant or the same value.
    pub(super) fn is(self, other: Self) -> bool {
        match (self.0, other.0) {
            (Number::Constant(a), Number::Constant(b)) => a == b,
            (Number::Value { value: a, .. }, Number::Value { value: b, .. }) => a.id == b.id,
            _ => false,
        }
    }

    /// Whether it is certainly not less than `end`.
    pub(super) fn is_never_below(self, end: Self) -> bool {
        matches!((self.0, end.0), (Number::Constant(a), Number::Constant(end)) if a >= end)
    }
}

impl From<u32> for Int<'_> {
    fn from(constant: u32) -> Self {
        Int(Number::Constant(constant))
    }
}

impl<'k> From<Val<'k, ty::U32>> for Int<'k> {
    fn from(value: Val<'k, ty::U32>) -> Self {
        Int(Number::Value { value, multiple: 1, most: u32::MAX })
    }
}

impl<'k> IntoVal<'k, ty::U32> for Int<'k> {
    fn into_val(self, builder: &'k KernelBuilder) -> Val<'k, ty::U32> {
        self.value(builder)
    }
}

/// Bound of a result: nothing is known of one that may have wrapped.
fn bound(most: Option<u32>) -> u32 {
    most.unwrap_or(u32::MAX)
}

impl<'k, R: Into<Int<'k>>> ops::Add<R> for Int<'k> {
    type Output = Int<'k>;

    #[track_caller]
    fn add(self, rhs: R) -> Int<'k> {
        let rhs = rhs.into();
        match (self.0, rhs.0) {
            (Number::Constant(a), Number::Constant(b)) => Int::from(a.wrapping_add(b)),
            (Number::Constant(0), _) => rhs,
            (_, Number::Constant(0)) => self,
            (Number::Constant(_), Number::Value { .. }) => rhs + self,
            (Number::Value { value, multiple, most }, _) => {
                let most = most.checked_add(rhs.most());
                // A sum that wraps is still a multiple of powers of two.
                let multiple = wrapped(gcd(multiple, rhs.multiple()), most.is_none());
                let value = match rhs.0 {
                    Number::Constant(constant) => value + constant,
                    Number::Value { value: rhs, .. } => value + rhs,
                };
                Int(Number::Value { value, multiple, most: bound(most) })
            }
        }
    }
}

impl<'k, R: Into<Int<'k>>> ops::Mul<R> for Int<'k> {
    type Output = Int<'k>;

    #[track_caller]
    fn mul(self, rhs: R) -> Int<'k> {
        let rhs = rhs.into();
        match (self.0, rhs.0) {
            (Number::Constant(a), Number::Constant(b)) => Int::from(a.wrapping_mul(b)),
            (Number::Constant(0), _) | (_, Number::Constant(1)) => self,
            (Number::Constant(1), _) | (_, Number::Constant(0)) => rhs,
            (Number::Constant(_), Number::Value { .. }) => rhs * self,
            (Number::Value { value, multiple, most }, _) => {
                let most = most.checked_mul(rhs.most());
                let multiple =
                    wrapped(multiple.saturating_mul(rhs.multiple().max(1)), most.is_none());
                let value = match rhs.0 {
                    Number::Constant(constant) => value * constant,
                    Number::Value { value: rhs, .. } => value * rhs,
                };
                Int(Number::Value { value, multiple, most: bound(most) })
            }
        }
    }
}

impl<'k> Int<'k> {
    /// The quotient and the remainder of a division by a constant other than 0.
    #[track_caller]
    pub(super) fn divide(self, divisor: u32) -> (Self, Self) {
        match self.0 {
            Number::Constant(a) => (Int::from(a / divisor), Int::from(a % divisor)),
            Number::Value { .. } if divisor == 1 => (self, Int::from(0)),
            Number::Value { value, multiple, most } => {
                let quotient = Number::Value {
                    value: value / divisor,
                    multiple: if multiple.is_multiple_of(divisor) { multiple / divisor } else { 1 },
                    most: most / divisor,
                };
                if most < divisor {
                    return (Int::from(0), self);
                }
                let remainder = Number::Value {
                    value: value % divisor,
                    multiple: gcd(multiple, divisor),
                    most: divisor - 1,
                };
                (Int(quotient), Int(remainder))
            }
        }
    }

    /// The quotient and the remainder of a division by a number that may be a value.
    #[track_caller]
    pub(super) fn divide_by(self, divisor: Self) -> (Self, Self) {
        match (self.0, divisor.0) {
            (_, Number::Constant(divisor)) => self.divide(divisor.max(1)),
            (_, Number::Value { value: divisor, .. }) => {
                let value = self.value(divisor.builder);
                ((value / divisor).into(), (value % divisor).into())
            }
        }
    }
}

/// A number that divides a result: its largest power of two if the result may have wrapped.
fn wrapped(multiple: u32, may_wrap: bool) -> u32 {
    if may_wrap { power_of_two(multiple) } else { multiple }.max(1)
}

/// The largest power of two that divides a number; 0 for 0.
pub(super) fn power_of_two(number: u32) -> u32 {
    number & number.wrapping_neg()
}

/// The greatest common divisor. 0 is a multiple of every number.
pub(super) fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Numbers for each mode of a tensor: an array or a tuple whose parts are constants, values or
/// [`Int`]s. A single number is a linear coordinate.
pub trait IntoInts<'k> {
    /// The numbers in order.
    fn into_ints(self) -> Vec<Int<'k>>;
}

macro_rules! single {
    ($($single:ty)*) => {$(
        impl<'k> IntoInts<'k> for $single {
            fn into_ints(self) -> Vec<Int<'k>> {
                vec![self.into()]
            }
        }
    )*};
}

single!(u32 Int<'k> Val<'k, ty::U32>);

impl<'k, I: Into<Int<'k>>, const N: usize> IntoInts<'k> for [I; N] {
    fn into_ints(self) -> Vec<Int<'k>> {
        self.map(Into::into).to_vec()
    }
}

impl<'k, I: Into<Int<'k>>> IntoInts<'k> for Vec<I> {
    fn into_ints(self) -> Vec<Int<'k>> {
        self.into_iter().map(Into::into).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident),+))*) => {$(
        #[allow(non_snake_case)]
        impl<'k, $($name: Into<Int<'k>>),+> IntoInts<'k> for ($($name,)+) {
            fn into_ints(self) -> Vec<Int<'k>> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    )*};
}

tuples!((A)(A, B)(A, B, C)(A, B, C, D)(A, B, C, D, E));
