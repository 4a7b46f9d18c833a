//! [`Pointer`] and [`Tensor`]: typed addresses, and the layout of the elements there.

use pgemm_cute::Layout;

use super::fragment::Fragment;
use super::int::{Int, IntoInts, gcd, power_of_two};
use super::layout::{Mode, TensorLayout, evaluate, rank_differs};
use super::space::{self, MemorySpace, Term};
use crate::error::BuildError;
use crate::value::{Val, ty};
use crate::{Element, KernelBuilder};

/// The widest access of a thread.
pub(super) const MAX_VECTOR_BYTES: u32 = 16;

/// The address of an element of a type, in global or in shared memory.
///
/// ```
/// # use pgemm_ir::{KernelBuilder, Special, ty};
/// use pgemm_ir::{Element, Pointer};
///
/// # let b = KernelBuilder::new("pointers", 1);
/// let x = Pointer::new(b.param::<ty::U64>("x"), Element::Bf16);
/// let own = x.plus(b.special(Special::Thread));
/// own.store(own.load() * 2.0); // one element of 2 bytes, as a binary32 number
/// ```
#[derive(Clone, Copy)]
pub struct Pointer<'k, S> {
    pub(super) b: &'k KernelBuilder,
    pub(super) address: Val<'k, S>,
    pub(super) element: Element,
    /// A power of two that divides the address.
    pub(super) align: u32,
    /// Whether nothing reads the data again soon.
    pub(super) once: bool,
}

impl<'k, S: MemorySpace> Pointer<'k, S> {
    /// The address of an element. It is a multiple of the element's size.
    pub fn new(address: Val<'k, S>, element: Element) -> Self {
        let b = address.builder;
        Pointer { b, address, element, align: element.bytes(), once: false }
    }

    /// States that the address is a multiple of `bytes`. The kernel guarantees it. Vectors of up to
    /// 16 bytes are possible then.
    #[must_use]
    pub fn aligned(self, bytes: u32) -> Self {
        Pointer { align: self.align.max(power_of_two(bytes)), ..self }
    }

    /// The address.
    pub fn address(self) -> Val<'k, S> {
        self.address
    }

    /// The element type.
    pub fn element(self) -> Element {
        self.element
    }

    /// The address of an element behind this one.
    #[track_caller]
    #[must_use]
    pub fn plus(self, elements: impl Into<Int<'k>>) -> Self {
        self.b.at_caller(|| {
            self.moved(vec![Term::new(elements.into(), Int::from(1), self.element.bytes())])
        })
    }

    #[track_caller]
    pub(super) fn moved(self, terms: Vec<Term<'k>>) -> Self {
        let align = terms.iter().fold(self.align, |align, term| gcd(align, term.multiple()));
        let address = S::advance(self.b, self.address, terms);
        Pointer { address, align: power_of_two(align), ..self }
    }

    /// The element as a binary32 number. The type is one of [`Element::is_movable`].
    #[track_caller]
    pub fn load(self) -> Val<'k, ty::F32> {
        self.b.at_caller(|| self.load_vector(1).to_f32()[0])
    }

    /// Stores a number as the element, rounded as [`Val::pack`] does. The type is one of
    /// [`Element::is_movable`].
    #[track_caller]
    pub fn store(self, value: impl crate::IntoVal<'k, ty::F32>) {
        self.b.at_caller(|| {
            let value = value.into_val(self.b);
            self.store_vector(&Fragment::from_f32(self.b, self.element, &[value]));
        });
    }

    /// Loads consecutive elements by one instruction: 1, 2, 4, 8 or 16 bytes, of which the address
    /// is a multiple.
    #[track_caller]
    pub fn load_vector(self, elements: u32) -> Fragment<'k> {
        self.b.at_caller(|| match self.vector_bytes(elements) {
            Some(bytes) => {
                let words = space::load(self.b, self.address, bytes, self.once);
                Fragment::packed(self.b, self.element, elements, &words)
            }
            None => Fragment::zeros(self.b, self.element, elements),
        })
    }

    /// Stores consecutive elements by one instruction: 1, 2, 4, 8 or 16 bytes, of which the address
    /// is a multiple.
    #[track_caller]
    pub fn store_vector(self, fragment: &Fragment<'k>) {
        self.b.at_caller(|| {
            let elements = fragment.len() as u32;
            self.check_fragment(fragment, elements);
            if let Some(bytes) = self.vector_bytes(elements) {
                space::store(self.b, self.address, bytes, &fragment.words());
            }
        });
    }

    /// The bytes of a vector, if there is such an access.
    #[track_caller]
    fn vector_bytes(self, elements: u32) -> Option<u32> {
        let (element, align) = (self.element, self.align.min(MAX_VECTOR_BYTES));
        let bytes = elements.saturating_mul(element.bytes());
        if element.bytes() > 4 {
            self.b.fail(|location| BuildError::WideElement { location, element });
            return None;
        }
        if bytes.is_power_of_two() && bytes <= align {
            return Some(bytes);
        }
        self.b.fail(|location| BuildError::Vector { location, element, bytes, possible: align });
        None
    }

    #[track_caller]
    pub(super) fn check_fragment(self, fragment: &Fragment<'k>, elements: u32) -> bool {
        let fits = fragment.element() == self.element && fragment.len() == elements as usize;
        if !fits {
            let given = format!("{} elements of {}", fragment.len(), fragment.element());
            let expected = format!("{elements} elements of {}", self.element);
            self.b.fail(|location| BuildError::FragmentDiffers { location, given, expected });
        }
        fits
    }

    /// The tensor whose elements are at this address, by a layout.
    #[track_caller]
    pub fn tensor(self, layout: TensorLayout<'k>) -> Tensor<'k, S> {
        let extents = layout.extents().into_iter();
        let spans = extents.map(|end| Span { origin: Int::from(0), end: Some(end) }).collect();
        Tensor { pointer: self, layout, spans }
    }
}

impl Pointer<'_, ty::U64> {
    /// States that nothing reads the data again soon, so that caches keep other data: see
    /// [`KernelBuilder::load_global_once`].
    #[must_use]
    pub fn read_once(self) -> Self {
        Pointer { once: true, ..self }
    }
}

/// Where a mode of a tile lies in the mode of the whole tensor.
#[derive(Clone, Copy)]
pub(super) struct Span<'k> {
    /// The coordinate of the first element.
    pub(super) origin: Int<'k>,
    /// The end of the whole; `None` if all elements are certainly inside.
    pub(super) end: Option<Int<'k>>,
}

impl<'k> Span<'k> {
    /// Whether a coordinate of the whole tensor is inside; `None` if that is certain.
    #[track_caller]
    pub(super) fn contains(
        self,
        b: &'k KernelBuilder,
        coordinate: Int<'k>,
    ) -> Option<Val<'k, ty::Bool>> {
        let end = self.end?;
        if coordinate.is_never_below(end) {
            Some(b.constant(false))
        } else {
            coordinate.is_below(end)
        }
    }
}

/// Elements in memory and their layout, or a tile of such a tensor.
///
/// A tile knows where it lies in the whole tensor, so that copies stay inside: see
/// [`Partition`](crate::Partition).
///
/// ```
/// # use pgemm_ir::{KernelBuilder, Special, ty};
/// use pgemm_ir::{Element, Int, Pointer, TensorLayout};
///
/// # let b = KernelBuilder::new("tensors", 1);
/// let [rows, columns] = ["rows", "columns"].map(|name| b.param::<ty::U32>(name));
/// let columns = Int::from(columns).multiple_of(8);
/// let layout = TensorLayout::row_major(&b, (rows, columns));
/// let x = Pointer::new(b.param::<ty::U64>("x"), Element::Bf16).aligned(16).tensor(layout);
/// let tile = x.tile([64, 128], (b.special(Special::CtaY), b.special(Special::Cta)));
/// # let _ = tile;
/// ```
#[derive(Clone)]
pub struct Tensor<'k, S> {
    /// The address of the element at coordinate 0; with a swizzle, that of offset 0.
    pub(super) pointer: Pointer<'k, S>,
    pub(super) layout: TensorLayout<'k>,
    /// By mode.
    pub(super) spans: Vec<Span<'k>>,
}

impl<'k, S: MemorySpace> Tensor<'k, S> {
    /// The element type.
    pub fn element(&self) -> Element {
        self.pointer.element
    }

    /// The extent of each mode. The last tile of a mode may reach beyond the end of the tensor.
    pub fn extents(&self) -> Vec<Int<'k>> {
        self.layout.extents()
    }

    /// The address of the element at a coordinate: one number for each mode, or a linear
    /// coordinate.
    #[track_caller]
    pub fn at(&self, coordinates: impl IntoInts<'k>) -> Pointer<'k, S> {
        let (layout, bytes) = (&self.layout, self.element().bytes());
        layout.b.at_caller(|| {
            if !layout.swizzle.is_identity() {
                return self.pointer.plus(layout.offset(coordinates));
            }
            let coordinates = layout.coordinates(coordinates.into_ints());
            let terms = layout.modes.iter().zip(coordinates).map(|(mode, at)| match mode {
                Mode::Strided { stride, .. } => Term::new(at, *stride, bytes),
                Mode::Nested(nested) => Term::of_layout(nested, at, bytes),
            });
            self.pointer.moved(terms.collect())
        })
    }

    /// Whether the element at a coordinate is inside of the whole tensor: one number for each mode.
    /// `None` if that is certain.
    #[track_caller]
    pub fn contains(&self, coordinates: impl IntoInts<'k>) -> Option<Val<'k, ty::Bool>> {
        let layout = &self.layout;
        layout.b.at_caller(|| {
            let coordinates = layout.coordinates(coordinates.into_ints());
            let inside = self.spans.iter().zip(coordinates);
            let inside = inside.filter_map(|(span, at)| span.contains(layout.b, span.origin + at));
            inside.reduce(|a, b| a & b)
        })
    }

    /// The tile of these extents at a coordinate that counts tiles, one number for each mode.
    ///
    /// The last tile of a mode may reach beyond the end of the tensor. If the tile's extent
    /// certainly divides that of the mode ([`Int::multiple_of`]), no element is outside, and none
    /// is checked. Then the coordinate must be that of a tile of the tensor.
    #[track_caller]
    #[must_use]
    pub fn tile<const N: usize>(
        &self,
        extents: [u32; N],
        coordinates: impl IntoInts<'k>,
    ) -> Tensor<'k, S> {
        let b = self.layout.b;
        b.at_caller(|| self.tile_of(&extents, coordinates.into_ints()))
    }

    #[track_caller]
    fn tile_of(&self, extents: &[u32], coordinates: Vec<Int<'k>>) -> Tensor<'k, S> {
        let (b, rank) = (self.layout.b, self.layout.rank());
        for (what, given) in [("tile extents", extents.len()), ("coordinates", coordinates.len())] {
            if given != rank {
                rank_differs(b, what, given, rank);
                return self.clone();
            }
        }
        let bytes = self.element().bytes();
        let (mut modes, mut spans, mut terms, mut offsets) = (vec![], vec![], vec![], vec![]);
        for (number, mode) in self.layout.modes.iter().enumerate() {
            let (tile, at) = (extents[number], coordinates[number]);
            if tile == 0 {
                self.refuse_tile(number, tile);
                return self.clone();
            }
            let origin = at * tile;
            spans.push(self.tile_span(number, tile, origin));
            match mode {
                Mode::Strided { stride, .. } => {
                    modes.push(Mode::Strided { extent: Int::from(tile), stride: *stride });
                    terms.push(Term::new(origin, *stride, bytes));
                    offsets.push(origin * *stride);
                }
                Mode::Nested(layout) => match divided(layout, tile) {
                    Some((tile, tiles)) => {
                        modes.push(Mode::Nested(tile));
                        terms.push(Term::of_layout(&tiles, at, bytes));
                        offsets.push(evaluate(&tiles, at, 1));
                    }
                    None => {
                        self.refuse_tile(number, tile);
                        return self.clone();
                    }
                },
            }
        }
        let (mut pointer, mut layout) =
            (self.pointer, TensorLayout { modes, ..self.layout.clone() });
        if layout.swizzle.is_identity() {
            pointer = pointer.moved(terms);
        } else {
            let offsets = offsets.into_iter();
            layout.before_swizzle = offsets.fold(layout.before_swizzle, |sum, at| sum + at);
        }
        Tensor { pointer, layout, spans }
    }

    /// Where a tile lies in the whole tensor.
    #[track_caller]
    fn tile_span(&self, mode: usize, tile: u32, origin: Int<'k>) -> Span<'k> {
        let (span, extent) = (self.spans[mode], self.layout.modes[mode].extent());
        let divides = extent.multiple().is_multiple_of(tile);
        let is_whole =
            span.origin.constant() == Some(0) && span.end.is_some_and(|end| end.is(extent));
        let end = match span.end {
            end if divides => end.filter(|_| !is_whole),
            end if is_whole => end,
            // Tiles of a tile also end where that tile does.
            Some(end) => Some(end.min(span.origin + extent)),
            None => Some(span.origin + extent),
        };
        Span { origin: span.origin + origin, end }
    }

    #[track_caller]
    fn refuse_tile(&self, mode: usize, tile: u32) {
        let layout = match &self.layout.modes[mode] {
            Mode::Strided { .. } => "the mode".to_owned(),
            Mode::Nested(layout) => layout.to_string(),
        };
        self.layout.b.fail(|location| BuildError::Tile { location, mode, tile, layout });
    }

    /// The tensor with its modes in another order, or with some of them.
    #[track_caller]
    #[must_use]
    pub fn select(&self, modes: &[usize]) -> Tensor<'k, S> {
        let rank = self.layout.rank();
        if let Some(&mode) = modes.iter().find(|&&mode| mode >= rank) {
            rank_differs(self.layout.b, "selected modes", mode + 1, rank);
            return self.clone();
        }
        let layout = TensorLayout {
            modes: modes.iter().map(|&mode| self.layout.modes[mode].clone()).collect(),
            ..self.layout.clone()
        };
        let spans = modes.iter().map(|&mode| self.spans[mode]).collect();
        Tensor { pointer: self.pointer, layout, spans }
    }
}

/// A layout's tile of consecutive elements, and the layout of the tiles.
fn divided(layout: &Layout, tile: u32) -> Option<(Layout, Layout)> {
    let tile = i64::from(tile);
    if layout.size() % tile != 0 {
        return None;
    }
    let divided = layout.logical_divide(Layout::new(tile, 1).ok()?).ok()?;
    Some((divided.mode(0).ok()?, divided.mode(1).ok()?))
}
