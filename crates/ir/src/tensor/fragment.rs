//! [`Fragment`]: elements of memory in the registers of a thread.

use super::space::constant_word;
use crate::builder::KernelBuilder;
use crate::carried::Carried;
use crate::error::BuildError;
use crate::value::{Val, ty};
use crate::{Element, Op, ValueId};

/// Elements that a thread holds in registers, in the format that they have in memory: what
/// [`Partition::load`](crate::Partition::load) gives and
/// [`Partition::store`](crate::Partition::store) takes. Elements of one type have 8, 16 or 32 bits.
///
/// A fragment is packed as it was loaded. It is packed anew, by byte permutations, only where a
/// store or [`words`](Self::words) needs other words. Loops can carry it.
#[derive(Clone)]
pub struct Fragment<'k> {
    b: &'k KernelBuilder,
    element: Element,
    places: Vec<Place<'k>>,
}

/// An element in a word.
#[derive(Clone, Copy)]
struct Place<'k> {
    word: Val<'k, ty::B32>,
    /// Its first byte.
    byte: u32,
}

impl<'k> Fragment<'k> {
    /// Numbers as elements, rounded as [`Val::pack`] does. The type is one of
    /// [`Element::is_movable`].
    #[track_caller]
    pub fn from_f32(b: &'k KernelBuilder, element: Element, values: &[Val<'k, ty::F32>]) -> Self {
        let mut fragment = Fragment { b, element, places: vec![] };
        if !fragment.check_movable() {
            return Fragment::zeros(b, element, values.len() as u32);
        }
        b.at_caller(|| {
            for pair in values.chunks(2) {
                let (first, second) = (pair[0], *pair.last().unwrap_or(&pair[0]));
                if element == Element::F32 {
                    let words = pair.iter().map(|value| value.bits().as_b32());
                    fragment.places.extend(words.map(|word| Place { word, byte: 0 }));
                } else {
                    let word = first.pack(second, element);
                    let bytes = [0, element.bytes()].into_iter().take(pair.len());
                    fragment.places.extend(bytes.map(|byte| Place { word, byte }));
                }
            }
        });
        fragment
    }

    /// As many elements whose bits are zero.
    #[track_caller]
    pub fn zeros(b: &'k KernelBuilder, element: Element, elements: u32) -> Self {
        let words = vec![constant_word(b, 0); (elements as usize).div_ceil(in_word(element))];
        Fragment::packed(b, element, elements, &words)
    }

    /// Elements that are packed in words, the first in the lowest bytes.
    pub(super) fn packed(
        b: &'k KernelBuilder,
        element: Element,
        elements: u32,
        words: &[Val<'k, ty::B32>],
    ) -> Self {
        let place = |index: u32| {
            let byte = index * element.bytes();
            words.get((byte / 4) as usize).map(|&word| Place { word, byte: byte % 4 })
        };
        Fragment { b, element, places: (0..elements).filter_map(place).collect() }
    }

    /// The element type.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The elements as binary32 numbers. The type is one of [`Element::is_movable`].
    #[track_caller]
    pub fn to_f32(&self) -> Vec<Val<'k, ty::F32>> {
        let b = self.b;
        if !self.check_movable() {
            return vec![b.constant(0.0); self.len()];
        }
        b.at_caller(|| self.places.iter().map(|place| place.number(self.element)).collect())
    }

    /// The words of the elements, packed: the first element in the lowest bytes of the first word.
    /// Elements that fill no word have others above them, which are arbitrary.
    #[track_caller]
    pub fn words(&self) -> Vec<Val<'k, ty::B32>> {
        self.b.at_caller(|| {
            let words = self.places.chunks(in_word(self.element));
            words.map(|places| pack(places, self.element.bytes())).collect()
        })
    }

    /// Some consecutive elements; those that exist.
    #[must_use]
    pub fn slice(&self, first: usize, elements: usize) -> Self {
        let places = self.places.iter().skip(first).take(elements).copied().collect();
        Fragment { places, ..*self }
    }

    /// The same elements, packed in as few words as possible.
    #[track_caller]
    pub(super) fn repacked(&self) -> Self {
        Fragment::packed(self.b, self.element, self.len() as u32, &self.words())
    }

    /// Adds the elements of another fragment of the same type behind these.
    pub(super) fn append(&mut self, other: &Fragment<'k>) {
        self.places.extend_from_slice(&other.places);
    }

    #[track_caller]
    fn check_movable(&self) -> bool {
        let element = self.element;
        if !element.is_movable() {
            self.b.fail(|location| BuildError::NotMovable { location, element });
        }
        element.is_movable()
    }
}

impl<'k> Place<'k> {
    #[track_caller]
    fn number(self, element: Element) -> Val<'k, ty::F32> {
        match (element.bytes(), self.byte) {
            (4, _) => self.word.bits().as_f32(),
            (2, byte) => self.word.unpack(element)[(byte / 2) as usize],
            (_, byte @ (0 | 1)) => self.word.unpack(element)[byte as usize],
            (_, byte) => (self.word.bits() >> 16).as_b32().unpack(element)[byte as usize - 2],
        }
    }
}

/// The word of consecutive elements, which have up to four bytes together.
#[track_caller]
fn pack<'k>(places: &[Place<'k>], size: u32) -> Val<'k, ty::B32> {
    let first = places[0].word;
    if (0..).zip(places).all(|(i, place)| place.word.id == first.id && place.byte == i * size) {
        return first;
    }
    let other = places.iter().map(|place| place.word).find(|word| word.id != first.id);
    let other = other.unwrap_or(first);
    if places.iter().all(|place| place.word.id == first.id || place.word.id == other.id) {
        let mut selector = 0;
        for (i, place) in (0..).zip(places) {
            let base = if place.word.id == first.id { 0 } else { 4 };
            for byte in 0..size {
                selector |= (base + place.byte + byte) << (4 * (i * size + byte));
            }
        }
        return first.bits().permute_bytes(other.bits(), selector).as_b32();
    }
    // Four bytes of at least three words.
    let [low, high] = [&places[..2], &places[2..]].map(|half| pack(half, size).bits());
    low.permute_bytes(high, 0x5410).as_b32()
}

impl<'k> Carried<'k> for Fragment<'k> {
    /// The type and the number of elements.
    type Static = (Element, usize);

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        // Packed, so that all fragments of as many elements have as many words.
        values.extend(self.words().iter().map(|word| word.id));
        (self.element, self.places.len())
    }

    fn join(
        builder: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        (element, elements): Self::Static,
    ) -> Self {
        let words = elements.div_ceil(in_word(element));
        let words: Vec<Val<'k, ty::B32>> = values.take(words).map(|id| builder.wrap(id)).collect();
        Fragment::packed(builder, element, elements as u32, &words)
    }
}

/// Elements in a word.
fn in_word(element: Element) -> usize {
    (4 / element.bytes()).max(1) as usize
}

/// A word that is full of one number: the fill value of elements beyond the edges.
#[track_caller]
pub(super) fn filled<'k>(b: &'k KernelBuilder, element: Element, fill: f32) -> Val<'k, ty::B32> {
    if fill.to_bits() == 0 {
        return constant_word(b, 0);
    }
    if element == Element::F32 {
        return constant_word(b, fill.to_bits());
    }
    if !element.is_packed() {
        b.fail(|location| BuildError::NotMovable { location, element });
        return constant_word(b, 0);
    }
    let fill: Val<'k, ty::F32> = b.constant(fill);
    let pair: Val<'k, ty::B32> = b.value(Op::Pack(element), vec![fill.id, fill.id]);
    let bits = pair.bits();
    if element.bytes() == 1 { bits.permute_bytes(bits, 0x1010).as_b32() } else { pair }
}
