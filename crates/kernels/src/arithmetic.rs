//! [`Arithmetic`]: how a kernel gets more out of tensor cores than their sums have, or less. Partial sums are taken out of them and
//! added in binary32 (promotion), operands come as sums of shorter numbers (terms), rows and columns of D are scaled, or f16 is
//! added up in f16.
//!
//! In a spec's name they are `tf32x3` in the operand's place and `-p128`, `-scaled`, `-acc16` at the end.

use std::cmp::Reverse;

use pgemm_ir::{Element, OperandMajor};

use crate::spec::{KernelSpec, Schedule, SpecError};

/// Sums and scales of a kernel beyond what one MMA after the other computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arithmetic {
    /// Elements of k whose products the tensor core adds up; these sums are then added in binary32, to nearest. None where
    /// it adds up all of k.
    pub promotion: Option<u32>,
    /// What each operand is the sum of; None where it is stored as it is.
    pub terms: Option<Terms>,
    /// Whether row i of A·B is multiplied by a binary32 of its own, and column j too.
    pub scaled: bool,
    /// Whether the tensor core adds up products of f16 in f16, which takes half as many registers. Parts of split tiles are added in
    /// binary32 all the same, and the epilogue is.
    pub f16_sums: bool,
}

/// Operands that are sums of two or three numbers of the element's type, each some 8 to 11 bits further down than the one before,
/// and which products of these count. A and B hold them in turns along k: [`SPAN_BYTES`](Terms::SPAN_BYTES) of
/// the first term, as many of the second, and so on, then the next elements of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    /// Two terms, all products but that of the two second ones.
    X3,
    /// Three terms, the six products that are not below the third term's size.
    X6,
    /// Three terms, all products.
    X9,
}

impl Terms {
    /// Every list of terms.
    pub const ALL: [Terms; 3] = [Terms::X3, Terms::X6, Terms::X9];

    /// Bytes of one term of an operand's line before those of the next.
    pub const SPAN_BYTES: u32 = 128;

    /// Numbers that each operand's element is the sum of.
    pub const fn count(self) -> u32 {
        match self {
            Terms::X3 => 2,
            Terms::X6 | Terms::X9 => 3,
        }
    }

    /// The products, as (term of A, term of B) from 0, the small ones first: what is added to a small sum loses little.
    pub fn products(self) -> Vec<(u32, u32)> {
        let below = match self {
            Terms::X3 => 2,
            Terms::X6 => 3,
            Terms::X9 => 5,
        };
        let count = self.count();
        let all = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let mut products: Vec<_> = all.filter(|(a, b)| a + b < below).collect();
        products.sort_by_key(|(a, b)| Reverse(a + b));
        products
    }

    /// Elements along k that operands of `element` hold for `k` elements of their sums: whole spans of each term.
    pub const fn stored_k(self, k: u64, element: Element) -> u64 {
        let span = (Terms::SPAN_BYTES / element.bytes()) as u64;
        k.div_ceil(span) * span * self.count() as u64
    }

    /// How a name says it, behind the element: `x3`.
    pub const fn suffix(self) -> &'static str {
        match self {
            Terms::X3 => "x3",
            Terms::X6 => "x6",
            Terms::X9 => "x9",
        }
    }

    /// An element's name with or without terms behind it.
    pub(crate) fn strip(name: &str) -> (&str, Option<Terms>) {
        let found = Terms::ALL
            .into_iter()
            .find_map(|terms| Some((name.strip_suffix(terms.suffix())?, Some(terms))));
        found.unwrap_or((name, None))
    }
}

impl Arithmetic {
    /// Terms of each operand.
    pub fn term_count(&self) -> u32 {
        self.terms.map_or(1, Terms::count)
    }

    /// What stands at the end of a name.
    pub(crate) fn suffix(&self) -> String {
        let promotion = self.promotion.map_or(String::new(), |k| format!("-p{k}"));
        let scaled = if self.scaled { "-scaled" } else { "" };
        promotion + scaled + if self.f16_sums { "-acc16" } else { "" }
    }
}

impl KernelSpec {
    /// The part of [`validate`](Self::validate) that is about [`Arithmetic`].
    pub(crate) fn validate_arithmetic(&self) -> Result<(), SpecError> {
        let Arithmetic { promotion, terms, scaled, f16_sums } = self.arithmetic;
        let refuse = |what, limit: String| {
            Err(SpecError::Arithmetic { asked: self.to_string(), what, limit })
        };
        let integers = self.accumulator() == Element::S32;
        if scaled && integers {
            return refuse("scales", "are binary32, and integers are added up as such".into());
        }
        if f16_sums {
            let what = "sums in f16";
            if self.a != Element::F16 {
                return refuse(what, format!("are of f16 operands, not of {}", self.a));
            }
            if promotion.is_some() || terms.is_some() {
                return refuse(what, "are for all of k: leave promotion and terms out".into());
            }
        }
        if let Some(terms) = terms {
            let what = "operands of several terms";
            if !matches!(self.a, Element::F16 | Element::Bf16 | Element::Tf32)
                || self.output != Element::F32
            {
                let limit = "are of f16, bf16 or tf32 and give f32";
                return refuse(what, limit.into());
            }
            if [self.a_major, self.b_major] != [OperandMajor::K; 2] {
                return refuse(what, "are stored along k: use majors kk".into());
            }
            let span = Terms::SPAN_BYTES / self.a.bytes();
            if self.tile.k != span {
                let count = terms.count();
                let limit = format!("have stages of {count} spans: use tile_k = {span}");
                return refuse(what, limit);
            }
        }
        let Some(interval) = promotion else { return Ok(()) };
        let what = "promotion";
        if integers {
            return refuse(what, "is for floats: sums of integers are exact already".into());
        }
        if self.schedule == Schedule::PingPong {
            let limit =
                "leaves the tensor core idle where warpgroups take turns: use w in place of p";
            return refuse(what, limit.into());
        }
        let step = 32 / self.a.bytes();
        if !interval.is_multiple_of(step) || interval == 0 || !self.tile.k.is_multiple_of(interval)
        {
            let limit = format!(
                "comes at multiples of {step} that divide the stage of {}: use -p{}",
                self.tile.k, self.tile.k
            );
            return refuse(what, limit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_that_no_kernel_does_is_explained() {
        for (name, reason) in [
            ("s8-kk-s32-128x128x128-s4-w2-c1x1-p128", "sums of integers are exact"),
            ("s8-kk-s32-128x128x128-s4-w2-c1x1-scaled", "scales, which are binary32"),
            ("e4m3-kk-bf16-128x128x128-s4-p2-c1x1-p128", "use w in place of p"),
            ("e4m3-kk-bf16-128x128x128-s4-w2-c1x1-p96", "use -p128"),
            ("e4m3-kk-bf16-128x128x128-s4-w2-c1x1-p0", "use -p128"),
            ("e4m3-kk-bf16-128x128x128-s4-w2-c1x1-p256", "use -p128"),
            ("e4m3x3-kk-f32-128x128x128-s2-w2-c1x1", "f16, bf16 or tf32 and give f32"),
            ("bf16x6-kk-bf16-64x64x64-s2-w1-c1x1", "f16, bf16 or tf32 and give f32"),
            ("bf16x6-kn-f32-64x64x64-s2-w1-c1x1", "use majors kk"),
            ("tf32x3-kk-f32-64x64x64-s2-w1-c1x1", "use tile_k = 32"),
            ("bf16-kk-bf16-64x64x64-s2-w1-c1x1-acc16", "of f16 operands, not of bf16"),
            ("f16-kk-f16-64x64x64-s2-w1-c1x1-p64-acc16", "leave promotion and terms out"),
            ("f16x3-kk-f32-64x64x64-s2-w1-c1x1-acc16", "leave promotion and terms out"),
        ] {
            let error = name.parse::<KernelSpec>().unwrap().validate().unwrap_err();
            assert!(matches!(error, SpecError::Arithmetic { .. }), "{name}: {error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn products_go_from_small_to_large() {
        assert_eq!(Terms::X3.products(), [(0, 1), (1, 0), (0, 0)]);
        assert_eq!(Terms::X6.products(), [(0, 2), (1, 1), (2, 0), (0, 1), (1, 0), (0, 0)]);
        assert_eq!(Terms::X9.products()[..3], [(2, 2), (1, 2), (2, 1)]);
        for terms in Terms::ALL {
            let products = terms.products();
            assert_eq!(format!("x{}", products.len()), terms.suffix());
            assert!(products.iter().all(|&(a, b)| a < terms.count() && b < terms.count()));
        }
    }

    #[test]
    fn operands_are_stored_in_whole_spans_of_every_term() {
        assert_eq!(Terms::X3.stored_k(33, Element::Tf32), 2 * 64);
        assert_eq!(Terms::X9.stored_k(64, Element::Bf16), 3 * 64);
        assert_eq!(Terms::X3.stored_k(0, Element::F16), 0);
    }
}
