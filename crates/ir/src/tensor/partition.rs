//! [`Partition`]: the elements of a tile that one thread has, by a thread–value layout, and copies
//! of them.

use pgemm_cute::{CuteError, IntTuple, Layout, TvLayout};

use super::fragment::{Fragment, filled};
use super::int::{Int, gcd, power_of_two};
use super::layout::evaluate;
use super::space::{MemorySpace, Term};
use super::swizzled::Swizzled;
use super::view::{MAX_VECTOR_BYTES, Pointer, Span, Tensor};
use crate::Element;
use crate::builder::KernelBuilder;
use crate::error::BuildError;
use crate::value::{Val, ty};

/// The elements of a tile that one thread has: its values, in the order of a thread–value layout.
///
/// Values are accessed in vectors, as wide as layout, alignment and edges certainly allow: up to 16
/// bytes. An element beyond the end of the whole tensor is neither read nor written.
#[derive(Clone)]
pub struct Partition<'k, S> {
    b: &'k KernelBuilder,
    /// The address of the thread's value 0; with a swizzle, that of the tensor's offset 0.
    pointer: Pointer<'k, S>,
    values: Vec<Value>,
    /// The modes of the tile.
    modes: Vec<PartMode<'k>>,
    swizzle: Option<Swizzled<'k>>,
    /// Values of a vector.
    vector: u32,
}

/// Where a value of the thread is, besides what all values of the thread share.
#[derive(Clone)]
struct Value {
    /// The offset by the constant strides, in elements.
    offset: u32,
    /// By mode: the coordinate.
    coordinates: Vec<u32>,
}

#[derive(Clone)]
struct PartMode<'k> {
    /// The coordinate in the whole tensor, without that of the value.
    first: Int<'k>,
    /// The stride, unless it is constant.
    stride: Option<Int<'k>>,
    span: Span<'k>,
}

impl<'k, S: MemorySpace> Tensor<'k, S> {
    /// The elements that a thread has of a tile, by a thread–value layout. The tile's extents are
    /// constants. If they are multiples of the layout's, the layout is repeated, the first mode
    /// fastest, and each repetition gives the thread more values. `thread` is below the number of
    /// threads of the layout.
    ///
    /// ```
    /// # use pgemm_ir::{KernelBuilder, Special, ty};
    /// use pgemm_ir::layout::{Layout, TvLayout};
    /// use pgemm_ir::{Element, Int, Pointer, TensorLayout};
    ///
    /// # let b = KernelBuilder::new("copy", 1);
    /// # let [rows, columns] = ["rows", "columns"].map(|name| b.param::<ty::U32>(name));
    /// // Tiles of matrices whose rows are whole vectors of 8 elements.
    /// let [x, y] = ["x", "y"].map(|name| {
    ///     let layout = TensorLayout::row_major(&b, (rows, Int::from(columns).multiple_of(8)));
    ///     let pointer = Pointer::new(b.param::<ty::U64>(name), Element::Bf16).aligned(16);
    ///     let place = (b.special(Special::CtaY), b.special(Special::Cta));
    ///     pointer.tensor(layout).tile([32, 64], place)
    /// });
    /// // 16 × 8 threads with 8 neighbours each: two vectors for each thread of the tile.
    /// let threads = Layout::row_major((16, 8)).unwrap();
    /// let values = Layout::row_major((1, 8)).unwrap();
    /// let threads = TvLayout::from_threads_and_values(&threads, &values).unwrap();
    /// let [x, y] = [x, y].map(|tile| tile.partition(&threads, b.special(Special::Thread)));
    /// assert_eq!((x.len(), x.vector_bytes()), (16, 16));
    /// y.store(&x.load(0.0)); // what is outside of the matrices stays as it is
    /// ```
    #[track_caller]
    pub fn partition(&self, tv: &TvLayout, thread: impl Into<Int<'k>>) -> Partition<'k, S> {
        let b = self.layout.b;
        b.at_caller(|| {
            let extents = match self.extents_for(tv) {
                Some(extents) if self.check_offsets(&extents) => extents,
                _ => return self.no_elements(),
            };
            Partition::new(self, tv, &extents, thread.into()).unwrap_or_else(|error| {
                self.refuse(tv.to_string(), error);
                self.no_elements()
            })
        })
    }

    /// The elements that a thread has of a tile whose neighbouring elements belong to different
    /// threads: `threads` maps coordinates to threads, and is repeated over the tile.
    #[track_caller]
    pub fn local_partition(
        &self,
        threads: &Layout,
        thread: impl Into<Int<'k>>,
    ) -> Partition<'k, S> {
        self.layout.b.at_caller(|| {
            let ones = match threads.shape() {
                IntTuple::Int(_) => IntTuple::Int(1),
                IntTuple::Tuple(modes) => modes.iter().map(|_| IntTuple::Int(1)).collect(),
            };
            let ones = Layout::row_major(ones);
            match ones.and_then(|ones| TvLayout::from_threads_and_values(threads, &ones)) {
                Ok(tv) => self.partition(&tv, thread),
                Err(error) => {
                    self.refuse(threads.to_string(), error);
                    self.no_elements()
                }
            }
        })
    }

    /// The extents of the tile and of a thread–value layout by mode, if one can be repeated over
    /// the other.
    #[track_caller]
    pub(super) fn extents_for(&self, tv: &TvLayout) -> Option<Vec<[i64; 2]>> {
        let own: Option<Vec<i64>> =
            self.extents().iter().map(|extent| extent.constant().map(i64::from)).collect();
        let of_tv = tv.tile().product_each().map(|each| each.leaves()).unwrap_or_default();
        let fits = own.filter(|own| {
            own.len() == of_tv.len() && own.iter().zip(&of_tv).all(|(own, tv)| own % tv == 0)
        });
        if let Some(own) = fits {
            return Some(own.into_iter().zip(of_tv).map(|(own, tv)| [own, tv]).collect());
        }
        let extents = self.extents();
        let extents = extents.iter().map(|extent| match extent.constant() {
            Some(extent) => extent.to_string(),
            None => "?".to_owned(),
        });
        let (tile, thread_value) = (extents.collect::<Vec<_>>().join(","), tv.to_string());
        self.layout.b.fail(|location| BuildError::PartitionedTile { location, tile, thread_value });
        None
    }

    /// The layout by the constant strides. Others stay apart, and count as 0.
    fn constant_strides(&self, extents: &[[i64; 2]]) -> Result<Layout, CuteError> {
        let modes = self.layout.modes.iter().zip(extents).map(|(mode, [extent, _])| {
            mode.constant().unwrap_or_else(|| Layout::new(*extent, 0i64))
        });
        Layout::concat(&modes.collect::<Result<Vec<_>, _>>()?)
    }

    /// Whether constant offsets have 32 bits.
    #[track_caller]
    fn check_offsets(&self, extents: &[[i64; 2]]) -> bool {
        let Ok(layout) = self.constant_strides(extents) else { return true };
        let bytes = layout.cosize().saturating_mul(self.element().bytes().into());
        let fits = u32::try_from(bytes).is_ok();
        if !fits {
            let layout = layout.to_string();
            self.layout.b.fail(|location| BuildError::LayoutOnDevice { location, layout });
        }
        fits
    }

    #[track_caller]
    fn refuse(&self, threads: String, error: CuteError) {
        let error = Box::new(error);
        self.layout.b.fail(|location| BuildError::Partition { location, threads, error });
    }

    fn no_elements(&self) -> Partition<'k, S> {
        let (b, pointer) = (self.layout.b, self.pointer);
        Partition { b, pointer, values: vec![], modes: vec![], swizzle: None, vector: 1 }
    }
}

impl<'k, S: MemorySpace> Partition<'k, S> {
    /// `extents` are those of the tile and of the thread–value layout.
    #[track_caller]
    pub(super) fn new(
        tensor: &Tensor<'k, S>,
        tv: &TvLayout,
        extents: &[[i64; 2]],
        thread: Int<'k>,
    ) -> Result<Self, CuteError> {
        let (b, layout) = (tensor.layout.b, &tensor.layout);
        let bytes = tensor.element().bytes();
        let tv = repeated(tv, extents)?;
        let split = |over: Layout| {
            let over = over.compose(&tv)?;
            Ok::<_, CuteError>([over.mode(0)?, over.mode(1)?])
        };

        let [thread_offset, value_offset] = split(tensor.constant_strides(extents)?)?;
        let mut values: Vec<Value> = value_offset
            .indices()
            .map(|offset| Value { offset: offset as u32, coordinates: vec![] })
            .collect();

        let shape: IntTuple = extents.iter().map(|[extent, _]| IntTuple::Int(*extent)).collect();
        let mut modes = vec![];
        let mut terms = vec![Term::of_layout(&thread_offset, thread, bytes)];
        for (number, (mode, span)) in layout.modes.iter().zip(&tensor.spans).enumerate() {
            let unit = (0..extents.len()).map(|other| IntTuple::Int((other == number).into()));
            let [of_thread, of_value] =
                split(Layout::new(shape.clone(), unit.collect::<IntTuple>())?)?;
            let of_thread = evaluate(&of_thread, thread, 1);
            for (value, coordinate) in values.iter_mut().zip(of_value.indices()) {
                value.coordinates.push(coordinate as u32);
            }
            let stride = mode.run_time_stride();
            if let Some(stride) = stride {
                terms.push(Term::new(of_thread, stride, bytes));
            }
            modes.push(PartMode { first: span.origin + of_thread, stride, span: *span });
        }

        let (mut pointer, mut swizzle) = (tensor.pointer, None);
        if layout.swizzle.is_identity() {
            pointer = pointer.moved(terms);
        } else {
            swizzle = Some(Swizzled::new(layout, &thread_offset, thread, bytes)?);
        }
        let mut partition = Partition { b, pointer, values, modes, swizzle, vector: 1 };
        let widest = (MAX_VECTOR_BYTES / bytes).max(1);
        let widths = [16, 8, 4, 2].into_iter().filter(|width| *width <= widest);
        partition.vector = widths.into_iter().find(|&w| partition.allows(w)).unwrap_or(1);
        Ok(partition)
    }

    /// Whether vectors of this many values are consecutive, aligned, and inside of the tensor or
    /// outside as a whole.
    fn allows(&self, width: u32) -> bool {
        let divides = |number: u32| number.is_multiple_of(width);
        let bytes = width * self.element().bytes();
        let aligned = self.pointer.align.is_multiple_of(bytes)
            && self.swizzle.as_ref().is_none_or(|swizzled| swizzled.keeps(bytes));
        aligned
            && self.values.len().is_multiple_of(width as usize)
            && self.values.chunks(width as usize).all(|vector| {
                let first = &vector[0];
                divides(first.offset)
                    && (0..).zip(vector).all(|(i, value)| value.offset == first.offset + i)
                    && self.modes.iter().enumerate().all(|(number, mode)| {
                        let at = first.coordinates[number];
                        let is = |step: u32| {
                            let mut steps = (0..).zip(vector);
                            steps.all(|(i, value)| value.coordinates[number] == at + i * step)
                        };
                        let strided = mode.stride.is_none_or(|stride| {
                            is(0) && divides(at.wrapping_mul(power_of_two(stride.multiple())))
                        });
                        let bounded = mode.span.end.is_none_or(|end| {
                            let whole =
                                divides(gcd(gcd(mode.first.multiple(), at), end.multiple()));
                            is(0) || is(1) && whole
                        });
                        strided && bounded
                    })
            })
    }

    /// The element type.
    pub fn element(&self) -> Element {
        self.pointer.element
    }

    /// The number of values that the thread has, some of which may be outside.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the thread has no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Bytes of a vector: what one instruction moves.
    pub fn vector_bytes(&self) -> u32 {
        self.vector * self.element().bytes()
    }

    /// The number of vectors.
    pub fn vectors(&self) -> usize {
        self.values.len() / self.vector as usize
    }

    /// The same elements in vectors of so many bytes, which must be possible.
    #[track_caller]
    #[must_use]
    pub fn in_vectors_of(&self, bytes: u32) -> Self {
        let (element, possible) = (self.element(), self.vector_bytes());
        if bytes > possible || !bytes.is_power_of_two() || bytes < element.bytes() {
            self.b.fail(|location| BuildError::Vector { location, element, bytes, possible });
            return self.clone();
        }
        Partition { vector: bytes / element.bytes(), ..self.clone() }
    }

    /// The coordinate of a value in the whole tensor, by mode.
    #[track_caller]
    pub fn coordinates(&self, value: usize) -> Vec<Int<'k>> {
        let Some(value) = self.values.get(value) else { return vec![] };
        let modes = self.modes.iter().zip(&value.coordinates);
        self.b.at_caller(|| modes.map(|(mode, &at)| mode.first + at).collect())
    }

    /// Whether a value is inside of the whole tensor; `None` if that is certain.
    #[track_caller]
    pub fn contains(&self, value: usize) -> Option<Val<'k, ty::Bool>> {
        self.b.at_caller(|| {
            let modes = self.modes.iter().zip(self.coordinates(value));
            let inside = modes.filter_map(|(mode, at)| mode.span.contains(self.b, at));
            inside.reduce(|a, b| a & b)
        })
    }

    /// The address of a value that begins a vector.
    #[track_caller]
    pub(super) fn at(&self, value: usize) -> Pointer<'k, S> {
        let (b, value, bytes) = (self.b, &self.values[value], self.element().bytes());
        let one = Int::from(1);
        let terms = match &self.swizzle {
            None => {
                let run_time = self.modes.iter().zip(&value.coordinates);
                let run_time = run_time
                    .filter_map(|(mode, &at)| Some(Term::new(Int::from(at), mode.stride?, bytes)));
                run_time.chain([Term::new(Int::from(value.offset), one, bytes)]).collect()
            }
            Some(swizzled) => {
                let (varying, constant) = swizzled.plus(b, value.offset * bytes);
                vec![Term::new(varying, one, 1), Term::new(constant.into(), one, 1)]
            }
        };
        // `allows` has checked the alignment, also that of sums of swizzled offsets.
        let align = self.vector_bytes().max(bytes);
        Pointer { align, ..self.pointer.moved(terms) }
    }

    /// Loads all values. Those outside of the tensor are `fill`, which the element type must have:
    /// every type has 0.
    #[track_caller]
    pub fn load(&self, fill: f32) -> Fragment<'k> {
        self.b.at_caller(|| {
            let mut all = Fragment::zeros(self.b, self.element(), 0);
            (0..self.vectors()).for_each(|vector| all.append(&self.load_vector(vector, fill)));
            all
        })
    }

    /// Loads one of the thread's vectors.
    #[track_caller]
    pub fn load_vector(&self, vector: usize, fill: f32) -> Fragment<'k> {
        let (b, element) = (self.b, self.element());
        b.at_caller(|| {
            let first = vector * self.vector as usize;
            if first >= self.values.len() {
                let vectors = self.vectors();
                b.fail(|location| BuildError::NoVector { location, vector, vectors });
                return Fragment::zeros(b, element, self.vector);
            }
            // Before the branch, so that the branch becomes a predicate of the load.
            let address = self.at(first);
            let load = || address.load_vector(self.vector);
            match self.contains(first) {
                None => load(),
                Some(inside) => {
                    let fill = filled(b, element, fill);
                    let words = vec![fill; self.vector_bytes().div_ceil(4) as usize];
                    let outside = Fragment::packed(b, element, self.vector, &words);
                    b.if_else(inside, load, || outside)
                }
            }
        })
    }

    /// Stores a fragment of as many elements of the same type. Elements outside of the tensor are
    /// left out.
    #[track_caller]
    pub fn store(&self, fragment: &Fragment<'k>) {
        self.b.at_caller(|| {
            if self.pointer.check_fragment(fragment, self.values.len() as u32) {
                self.store_from(0, fragment);
            }
        });
    }

    /// Stores values from number `first` on, which begins a vector.
    #[track_caller]
    fn store_from(&self, first: usize, fragment: &Fragment<'k>) {
        for start in (0..fragment.len()).step_by(self.vector as usize) {
            let address = self.at(first + start);
            let vector = fragment.slice(start, self.vector as usize).repacked();
            match self.contains(first + start) {
                None => address.store_vector(&vector),
                Some(inside) => self.b.if_(inside, || address.store_vector(&vector)),
            }
        }
    }

    /// Copies all values to another partition of as many elements of the same type, by loads and
    /// stores in turn. Elements outside of this tensor are copied as 0, and those outside of the
    /// other one are left out. To have all loads in flight before the first store, store what
    /// [`load`](Self::load) gives.
    #[track_caller]
    pub fn copy_to<D: MemorySpace>(&self, destination: &Partition<'k, D>) {
        self.b.at_caller(|| {
            if !self.check_copy(destination) {
                return;
            }
            let step = self.vector.max(destination.vector) as usize;
            for first in (0..self.len()).step_by(step) {
                let mut fragment = Fragment::zeros(self.b, self.element(), 0);
                for start in (first..first + step).step_by(self.vector as usize) {
                    fragment.append(&self.load_vector(start / self.vector as usize, 0.0));
                }
                destination.store_from(first, &fragment);
            }
        });
    }

    /// Whether a copy is possible.
    #[track_caller]
    fn check_copy<D: MemorySpace>(&self, destination: &Partition<'k, D>) -> bool {
        let fits = destination.element() == self.element() && destination.len() == self.len();
        if !fits {
            let of = |element: Element, len: usize| format!("{len} elements of {element}");
            let given = of(self.element(), self.len());
            let expected = of(destination.element(), destination.len());
            self.b.fail(|location| BuildError::FragmentDiffers { location, given, expected });
        }
        fits
    }
}

impl<'k> Partition<'k, ty::U64> {
    /// Starts asynchronous copies (`cp.async`) of all values to as many elements of shared memory.
    /// Those outside of this tensor become 0. The copies belong to the group that the next
    /// [`copy_commit`](KernelBuilder::copy_commit) closes.
    ///
    /// Both sides must have vectors of at least 4 bytes.
    #[track_caller]
    pub fn copy_async(&self, destination: &Partition<'k, ty::Smem>) {
        let (b, element) = (self.b, self.element());
        b.at_caller(|| {
            if !self.check_copy(destination) {
                return;
            }
            let vector = self.vector.min(destination.vector);
            let bytes = vector * element.bytes();
            if bytes < 4 {
                b.fail(|location| BuildError::AsyncVector { location, element, bytes });
                return;
            }
            for first in (0..self.len()).step_by(vector as usize) {
                let copy = || {
                    let size = match self.contains(first) {
                        None => b.constant(bytes),
                        Some(inside) => inside.select::<ty::U32>(bytes, 0),
                    };
                    let (source, destination) = (self.at(first), destination.at(first));
                    b.copy_async(bytes, source.address, destination.address, size);
                };
                match destination.contains(first) {
                    None => copy(),
                    Some(inside) => b.if_(inside, copy),
                }
            }
        });
    }
}

/// A thread–value layout, repeated over a tile, with indices that are linear coordinates of the
/// tile. `extents` are those of the tile and of the layout.
pub(super) fn repeated(tv: &TvLayout, extents: &[[i64; 2]]) -> Result<Layout, CuteError> {
    let mut stride = 1;
    let (mut block, mut repetitions) = (vec![], vec![]);
    for &[extent, of_tv] in extents {
        block.push(Layout::new(of_tv, stride)?);
        repetitions.push(Layout::new(extent / of_tv, stride * of_tv)?);
        stride *= extent;
    }
    let once = Layout::concat(&block)?.compose(tv.layout())?;
    let values = Layout::concat([&once.mode(1)?, &Layout::concat(&repetitions)?])?;
    Layout::concat([&once.mode(0)?, &values])
}
