//! Quotients of 32-bit numbers by constants, without a division (T. Granlund and P. Montgomery,
//! "Division by Invariant Integers using Multiplication", 1994).

use crate::{BinaryOp, Constant, Op};

/// How to divide by a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quotient {
    /// The dividend is first shifted right by this.
    before: u32,
    /// The shifted dividend is multiplied by this. Of the product the high word is used.
    multiplier: u32,
    /// Whether the multiplier has a 33rd bit, which the number above does not hold.
    is_33_bits: bool,
    /// The high word is shifted right by this.
    after: u32,
}

impl Quotient {
    /// How to divide by `divisor`. `None` for 0 and for powers of two, which need no product.
    pub(super) fn by(divisor: u32) -> Option<Self> {
        if divisor == 0 || divisor.is_power_of_two() {
            return None;
        }
        let zeros = divisor.trailing_zeros();
        let whole = Self::after_shift(divisor, 0)?;
        if whole.is_33_bits && zeros > 0 { Self::after_shift(divisor, zeros) } else { Some(whole) }
    }

    /// How to divide if the dividend is first shifted right by `before`, which divides it by a
    /// factor of the divisor.
    ///
    /// With a multiplier m and a shift s the quotient is m·dividend / 2^(32 + s), rounded down,
    /// where m is 2^(32 + s) / divisor, rounded up. This is exact for dividends below 2^bits if the
    /// rounding added at most 2^(32 + s - bits) / divisor.
    fn after_shift(divisor: u32, before: u32) -> Option<Self> {
        let (divisor, bits) = (u128::from(divisor >> before), 32 - before);
        (0..=32).find_map(|after| {
            let power = 1u128 << (32 + after);
            let multiplier = power.div_ceil(divisor);
            let rounding = multiplier * divisor - power;
            (rounding << bits <= power).then_some(Quotient {
                before,
                multiplier: multiplier as u32,
                is_33_bits: multiplier >> 32 != 0,
                after,
            })
        })
    }

    /// Emits the operations that divide `dividend`. `emit` returns the result of an operation.
    pub(super) fn of<V: Copy>(self, dividend: V, emit: &mut impl FnMut(Op, Vec<V>) -> V) -> V {
        let shifted = |value: V, by: u32, emit: &mut dyn FnMut(Op, Vec<V>) -> V| match by {
            0 => value,
            _ => {
                let by = emit(Op::Const(Constant::U32(by)), vec![]);
                emit(Op::Binary(BinaryOp::Shr), vec![value, by])
            }
        };
        let value = shifted(dividend, self.before, emit);
        let multiplier = emit(Op::Const(Constant::U32(self.multiplier)), vec![]);
        let high = emit(Op::Binary(BinaryOp::MulHigh), vec![value, multiplier]);
        if !self.is_33_bits {
            return shifted(high, self.after, emit);
        }
        // (dividend + high) / 2, without an overflow.
        let rest = emit(Op::Binary(BinaryOp::Sub), vec![value, high]);
        let half = shifted(rest, 1, emit);
        let mean = emit(Op::Binary(BinaryOp::Add), vec![half, high]);
        shifted(mean, self.after - 1, emit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(quotient: Quotient, dividend: u32) -> u32 {
        quotient.of(dividend, &mut |op, args| match (op, &args[..]) {
            (Op::Const(Constant::U32(number)), []) => number,
            (Op::Binary(BinaryOp::Shr), &[a, by]) => a >> by,
            (Op::Binary(BinaryOp::MulHigh), &[a, b]) => {
                ((u64::from(a) * u64::from(b)) >> 32) as u32
            }
            (Op::Binary(BinaryOp::Sub), &[a, b]) => a.checked_sub(b).unwrap(),
            (Op::Binary(BinaryOp::Add), &[a, b]) => a.checked_add(b).unwrap(),
            (op, _) => panic!("{op:?}"),
        })
    }

    #[test]
    fn quotients_are_exact() {
        let large = [u32::MAX, u32::MAX - 1, (1 << 31) + 1, (1 << 31) - 1, 0x5555_5555, 641 << 20];
        for divisor in (0..3000).chain(large) {
            let Some(quotient) = Quotient::by(divisor) else {
                assert!(divisor == 0 || divisor.is_power_of_two());
                continue;
            };
            // Errors would show at the ends of the ranges of equal quotients, first for the largest
            // dividends.
            let last = u32::MAX / divisor;
            let factors = (0..100.min(last)).chain(last.saturating_sub(100)..=last);
            let dividends = factors.flat_map(|factor| {
                let first = factor * divisor;
                [first.saturating_sub(1), first, first.saturating_add(1)]
            });
            for dividend in dividends.chain([u32::MAX, 1 << 31]) {
                assert_eq!(divide(quotient, dividend), dividend / divisor, "{dividend}/{divisor}");
            }
        }
        let by = |divisor| Quotient::by(divisor).unwrap();
        assert!(by(7).is_33_bits && !by(9).is_33_bits && !by(14).is_33_bits);
    }
}
