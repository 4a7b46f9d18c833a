//! A model of the sums of Hopper's tensor cores in integers, which gives the same bits as an H200.
//!
//! An instruction on floats other than f64 multiplies the elements of a block exactly. The products
//! and the accumulator are aligned to the largest exponent among them, cut off some bits below it,
//! and added as integers. The sum is rounded once and is the accumulator of the next block. The
//! facts of each type are in [`SumRules::of`]. f64 is summed by fused multiply-adds, in the order
//! of k: [`dot_f64`].

mod term;
#[cfg(test)]
mod tests;

use pgemm_ir::{Element, FloatFormat, Format, Type};

use self::term::Term;
use crate::number;

/// How a number is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Towards zero.
    TowardsZero,
    /// Towards minus infinity.
    Down,
    /// To the nearest number, of two the even one.
    NearestEven,
}

/// The exponent of a product by which it is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductExponent {
    /// The sum of the exponents of its factors. Subnormal factors have the exponent of the smallest
    /// normal number, so that the leading bit may be above or below.
    OfFactors,
    /// That of its leading bit.
    OfLeadingBit,
}

/// How the instructions of a type add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumRules {
    /// The format of A's elements.
    pub a: FloatFormat,
    /// The format of B's elements.
    pub b: FloatFormat,
    /// The format of the accumulators.
    pub accumulator: FloatFormat,
    /// Products that are added at once, together with the accumulator.
    pub block: usize,
    /// Bits that are kept of each term below the largest exponent, at most 46.
    pub fraction_bits: u32,
    /// The exponent by which products are aligned. That of the accumulator is its own.
    pub product_exponent: ProductExponent,
    /// How terms are cut off.
    pub terms: Rounding,
    /// Bits of the sum that are kept below its leading bit.
    pub result_bits: u32,
    /// How the sum is rounded to them. Sums beyond the range become infinite. A sum of zero is +0,
    /// whatever the signs of its terms, and so is a negative sum that is rounded to zero.
    pub result: Rounding,
}

/// Terms are aligned to this exponent if the exponents of all are smaller. Products of bf16 and
/// tf32 can be. Every other exponent that was tried, from −126 to −149 and none, contradicts sums
/// that an H200 has computed.
const LEAST_EXPONENT: i32 = -133;

impl SumRules {
    /// The rules of wgmma, and of warp MMAs that sum in binary32; `None` if there is no such wgmma
    /// of floats.
    pub fn of(a: Element, b: Element, accumulator: Type) -> Option<SumRules> {
        if !a.accumulators_with(b).contains(&accumulator) {
            return None;
        }
        let (Format::Float(a_format), Format::Float(b_format)) = (a.format(), b.format()) else {
            return None;
        };
        let in_halves = accumulator == Type::B32;
        let Format::Float(accumulator) =
            (if in_halves { Element::F16 } else { Element::F32 }).format()
        else {
            return None;
        };
        // The sums of 8-bit floats have fewer bits than their accumulators.
        let (fraction_bits, result_bits) = match a.is_float8() {
            true => (13, 13),
            false => (25, accumulator.mantissa_bits),
        };
        Some(SumRules {
            a: a_format,
            b: b_format,
            accumulator,
            block: a.wgmma_depth() as usize,
            fraction_bits,
            product_exponent: ProductExponent::OfFactors,
            terms: Rounding::TowardsZero,
            result_bits,
            result: if in_halves { Rounding::NearestEven } else { Rounding::TowardsZero },
        })
    }

    /// `c` plus the products of `a` and `b`, which have the rules' formats and the same length. One
    /// block after the other is added.
    pub fn dot(&self, a: &[f32], b: &[f32], c: f32) -> f32 {
        let blocks = a.chunks(self.block).zip(b.chunks(self.block));
        blocks.fold(c, |c, (a, b)| self.add_block(a, b, c))
    }

    fn add_block(&self, a: &[f32], b: &[f32], c: f32) -> f32 {
        if !a.iter().chain(b).chain([&c]).all(|value| value.is_finite()) {
            return special(a, b, c);
        }
        let factors = a.iter().zip(b);
        let products = factors.clone().map(|(&a, &b)| Term::product((a, self.a), (b, self.b)));
        let accumulator = Term::number(c, self.accumulator);
        let exponents = products.clone().filter(|product| product.places > 0).map(|product| {
            match self.product_exponent {
                ProductExponent::OfFactors => product.exponent,
                ProductExponent::OfLeadingBit => product.leading(),
            }
        });
        let exponents = exponents.chain((c != 0.0).then_some(accumulator.exponent));
        // Otherwise all terms are zero.
        let Some(largest) = exponents.max() else { return 0.0 };
        let last = largest.max(LEAST_EXPONENT) - self.fraction_bits as i32;
        let terms = products.chain([accumulator]);
        let sum: i64 = terms.map(|term| term.in_units_of(last, self.terms)).sum();
        if sum == 0 { 0.0 } else { self.round(sum, last) }
    }

    /// `sum`·2^`last` as an accumulator.
    fn round(&self, sum: i64, last: i32) -> f32 {
        let magnitude = sum.unsigned_abs();
        let leading = last + magnitude.ilog2() as i32;
        let last_kept = leading.max(self.accumulator.least_exponent()) - self.result_bits as i32;
        let dropped = (last_kept - last).clamp(0, 63) as u32;
        let kept = term::shorten(magnitude, dropped, sum < 0, self.result);
        // Few bits, so that binary64 holds the result.
        let magnitude = kept as f64 * 2f64.powi(last + dropped as i32);
        let beyond = 2f64.powi(2 - self.accumulator.least_exponent());
        let magnitude = if magnitude >= beyond { f32::INFINITY } else { magnitude as f32 };
        if sum < 0 && magnitude > 0.0 { -magnitude } else { magnitude }
    }
}

/// `tile = a·b`, plus itself where `accumulate`: `a` is 64 × depth, `b` is depth × n, `tile` is 64
/// × n.
pub(crate) fn multiply(
    rules: &SumRules,
    tile: &mut [f32],
    a: &[f32],
    b: &[f32],
    n: usize,
    accumulate: bool,
) {
    let depth = b.len() / n;
    let column = |at: usize| b.iter().skip(at).step_by(n).copied().collect();
    let columns: Vec<Vec<f32>> = (0..n).map(column).collect();
    for (row, a) in tile.chunks_exact_mut(n).zip(a.chunks_exact(depth)) {
        for (sum, column) in row.iter_mut().zip(&columns) {
            let c = if accumulate { *sum } else { 0.0 };
            *sum = rules.dot(a, column, c);
        }
    }
}

/// A block of which some number is infinite or NaN.
fn special(a: &[f32], b: &[f32], c: f32) -> f32 {
    // Products of finite numbers are no infinities, however large they are.
    let product = |(a, b): (&f32, &f32)| match a.is_finite() && b.is_finite() {
        true => 0.0,
        false => a * b,
    };
    let sum: f32 = a.iter().zip(b).map(product).sum::<f32>() + if c.is_finite() { 0.0 } else { c };
    if sum.is_nan() { f32::from_bits(NAN) } else { sum }
}

/// The NaN that all invalid sums give.
const NAN: u32 = 0x7fff_ffff;

/// `c` plus the products of `a` and `b`, as the f64 instruction computes it.
pub fn dot_f64(a: &[f64], b: &[f64], c: f64) -> f64 {
    a.iter().zip(b).fold(c, |sum, (a, b)| a.mul_add(*b, sum))
}

/// The elements of a float type other than f64 in `bytes`, as tensor cores read them.
pub fn read(element: Element, bytes: &[u8]) -> Vec<f32> {
    let mut values = Vec::new();
    number::widen_all(element, bytes, &mut values);
    values
}
