//! [`SplitSpec`] splits matrices of binary32 into the terms that kernels of [`Terms`] multiply.
//! Each term is the number of its type nearest to the remainder that the earlier terms leave. A
//! chunk of four numbers becomes four numbers of each term, in the term's span.
//!
//! A number that rounds beyond the type's largest number becomes the largest number, and the next
//! term takes the remainder. Infinities and NaN have terms that are NaN, so that their products are
//! NaN too.

use pgemm_ir::{Element, KernelBuilder, Val, ty};

use super::matrix::{BATCH, Units};
use crate::shift::Words;
use crate::spec::{SpecError, Terms};
use crate::tiles::chunked::CHUNK_BYTES;

/// Bytes of the numbers that are split.
pub(super) const BINARY32: u32 = 4;

/// The split of binary32 into terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitSpec {
    /// Type of the terms: tf32, bf16 or f16. For f16, lines are scaled.
    pub element: Element,
    /// The terms and their number.
    pub terms: Terms,
}

impl SplitSpec {
    pub(super) fn validate(&self) -> Result<(), SpecError> {
        if matches!(self.element, Element::Tf32 | Element::Bf16 | Element::F16) {
            return Ok(());
        }
        let (what, limit) = ("terms of binary32", "are tf32, bf16 or f16".to_owned());
        let spec = format!("{}{}", self.element, self.terms.suffix());
        Err(SpecError::Combination { spec, what, limit })
    }

    /// Whether lines are first divided by powers of two, which the exponents of f16 require.
    pub fn scaled(&self) -> bool {
        self.element == Element::F16
    }

    /// Bytes of a line of the result for `k` numbers. They are whole spans of all terms.
    pub fn pitch(&self, k: u32) -> u64 {
        self.terms.stored_k(k.into(), self.element) * u64::from(self.element.bytes())
    }

    /// Number of chunks of four binary32 that fill a span of each term.
    fn span_chunks(&self) -> u32 {
        Terms::SPAN_BYTES / self.chunk_bytes()
    }

    /// Bytes of a term of four numbers.
    fn chunk_bytes(&self) -> u32 {
        CHUNK_BYTES / BINARY32 * self.element.bytes()
    }

    pub(super) fn units(&self) -> Units {
        Units { element_bytes: BINARY32, chunks: self.span_chunks().into(), batch: BATCH }
    }
}

/// The stores of terms in place of chunks.
#[derive(Clone, Copy)]
pub(super) struct SplitStore<'k> {
    pub(super) spec: SplitSpec,
    /// Address of the scales.
    pub(super) scales: Option<Val<'k, ty::U64>>,
}

impl<'k> SplitStore<'k> {
    /// Stores the terms of chunk `column` of a line that begins at `address`.
    pub(super) fn store(
        &self,
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        line: Val<'k, ty::U32>,
        column: Val<'k, ty::U32>,
        words: Words<'k>,
    ) {
        let SplitSpec { element, terms } = self.spec;
        let (span_chunks, bytes) = (self.spec.span_chunks(), self.spec.chunk_bytes());
        let span = (column / span_chunks).to_u64() * u64::from(terms.count() * Terms::SPAN_BYTES);
        let place = address + span + (column % span_chunks * bytes).to_u64();
        let mut remainder = words.map(Val::as_f32);
        if let Some(scales) = self.scales {
            let [scale] = b.load_global::<ty::U32, 1>(scales + line.to_u64() * 4);
            let inverse = inverse(b, scale);
            remainder = remainder.map(|value| value * inverse);
        }
        for term in 0..terms.count() {
            let place = place + u64::from(term * Terms::SPAN_BYTES);
            let last = term + 1 == terms.count();
            let values = match element {
                Element::F16 => {
                    let packed = [0, 2].map(|i| remainder[i].pack(remainder[i + 1], Element::F16));
                    b.store_global(place, packed.map(Val::<ty::B32>::bits));
                    packed.map(|pair| pair.unpack(Element::F16)).concat()
                }
                Element::Bf16 => {
                    let bits = remainder.map(|value| nearest(value, 16));
                    let pair = |i: usize| bits[i].permute_bytes(bits[i + 1], 0x7632);
                    b.store_global(place, [pair(0), pair(2)]);
                    bits.map(Val::as_f32).to_vec()
                }
                _ => {
                    let bits = remainder.map(|value| nearest(value, 13));
                    b.store_global(place, bits);
                    bits.map(Val::as_f32).to_vec()
                }
            };
            if !last {
                // The subtraction is exact: the difference is a multiple of the number's last bit,
                // and smaller than the number.
                remainder = std::array::from_fn(|i| remainder[i] - values[i]);
            }
        }
    }
}

/// The reciprocal of a power of two from 2^-126 to 2^126. `scale` has its bits.
fn inverse<'k>(b: &'k KernelBuilder, scale: Val<'k, ty::U32>) -> Val<'k, ty::F32> {
    (b.constant::<ty::U32>(254 << 23) - scale).as_f32()
}

/// The bits of a number without the lowest `bits` bits, rounded to nearest even. A number that
/// would round to infinity becomes the largest number. Infinity and NaN become NaN.
fn nearest<'k>(value: Val<'k, ty::F32>, bits: u32) -> Val<'k, ty::U32> {
    const INFINITE: u32 = 0x7f80_0000;
    const NAN: u32 = 0x7fc0_0000;
    let word = value.bits();
    let magnitude = word & 0x7fff_ffff;
    let half = (1 << (bits - 1)) - 1;
    let rounded = (magnitude + half + ((magnitude >> bits) & 1)) & (u32::MAX << bits);
    let finite = rounded.min(INFINITE - (1 << bits));
    (word & (1 << 31)) | magnitude.lt(INFINITE).select::<ty::U32>(finite, NAN)
}
