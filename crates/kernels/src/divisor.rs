//! Division by numbers that a launch knows. The hardware has no instruction for integer division.
//! The assembler's replacement takes about fifty cycles, and a kernel would run it several times
//! before its first load. A multiplication by the reciprocal takes a tenth of that time (T.
//! Granlund, P. Montgomery: Division by Invariant Integers using Multiplication, PLDI 1994).

use pgemm_ir::{Val, ty};

/// A divisor in the form of three kernel parameters, or three words of memory.
#[derive(Clone, Copy)]
pub struct Divisor<'k> {
    /// The divisor itself.
    pub value: Val<'k, ty::U32>,
    multiplier: Val<'k, ty::U32>,
    shift: Val<'k, ty::U32>,
}

impl<'k> Divisor<'k> {
    /// A divisor from its value, and the multiplier and shift of its [`reciprocal`].
    pub fn new([value, multiplier, shift]: [Val<'k, ty::U32>; 3]) -> Self {
        Divisor { value, multiplier, shift }
    }

    /// Quotient and remainder of a number below 2^31.
    pub fn divide(&self, dividend: Val<'k, ty::U32>) -> (Val<'k, ty::U32>, Val<'k, ty::U32>) {
        let quotient = (dividend * 2).multiply_high(self.multiplier) >> self.shift;
        (quotient, dividend - quotient * self.value)
    }

    /// This divisor if `condition` holds, else `other`.
    pub fn or(self, condition: Val<'k, ty::Bool>, other: Self) -> Self {
        let either = |this, other| condition.select(this, other);
        Divisor {
            value: either(self.value, other.value),
            multiplier: either(self.multiplier, other.multiplier),
            shift: either(self.shift, other.shift),
        }
    }
}

/// The largest divisor.
pub(crate) const LARGEST: u32 = 1 << 31;

/// The multiplier and shift for a divisor d of 1 to [`LARGEST`]. The shift s is such that 2^(s-1) <
/// d <= 2^s. The multiplier is 2^(31+s) / d, rounded up. The product of the multiplier with n below
/// 2^31 exceeds the exact product by less than n, and thus by less than 2^31. So the floor of the
/// product over 2^(31+s) is the floor of n / d.
pub(crate) fn reciprocal(divisor: u32) -> [u32; 2] {
    let shift = divisor.next_power_of_two().trailing_zeros();
    let multiplier = (1u64 << (31 + shift)).div_ceil(divisor.into());
    [multiplier as u32, shift]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIVIDENDS: u32 = 1 << 31;

    fn quotient(dividend: u32, divisor: u32) -> u32 {
        let [multiplier, shift] = reciprocal(divisor);
        ((u64::from(dividend * 2) * u64::from(multiplier)) >> 32 >> shift) as u32
    }

    #[test]
    fn reciprocals_fit_and_are_right_at_the_ends() {
        let divisors = (0..=31)
            .flat_map(|power| [-1i64, 0, 1].map(|by| (1i64 << power) + by))
            .filter(|d| (1..=i64::from(DIVIDENDS)).contains(d))
            .map(|d| d as u32);
        for divisor in divisors {
            assert!((1u64 << (31 + reciprocal(divisor)[1])).div_ceil(divisor.into()) < 1 << 32);
            let largest = DIVIDENDS - 1;
            let multiple = largest / divisor * divisor;
            for dividend in [0, 1, divisor - 1, divisor, multiple, multiple.max(1) - 1, largest] {
                let dividend = dividend.min(largest);
                assert_eq!(
                    quotient(dividend, divisor),
                    dividend / divisor,
                    "{dividend} / {divisor}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn quotients_are_those_of_division(dividend in 0..DIVIDENDS, divisor in 1..=DIVIDENDS) {
            prop_assert_eq!(quotient(dividend, divisor), dividend / divisor);
        }
    }
}
