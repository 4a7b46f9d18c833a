//! Composed layouts: a layout, then an offset, then a swizzle.

use std::fmt;

use crate::recast::{check_factor, recast_factors};
use crate::{CuteError, Indices, IntTuple, Layout, Swizzle, Tiler};

/// Largest domain on which a moved swizzle is compared with the original at every point.
const MAX_CHECKED_POINTS: i64 = 1 << 22;

/// The function `c -> swizzle(offset + layout(c))`, written `swizzle o offset o layout`.
///
/// Division, product and right composition apply to the layout and keep swizzle and offset. A
/// composed layout has no strides, because a swizzle is not linear.
///
/// ```
/// use pgemm_cute::{ComposedLayout, Layout, Swizzle};
///
/// # fn main() -> Result<(), pgemm_cute::CuteError> {
/// // The 128-byte swizzle on 2-byte elements, repeated to a 128 x 64 tile.
/// let atom = Swizzle::new(3, 3, 3)?.over(&Layout::row_major((8, 64))?)?;
/// assert_eq!(atom.to_string(), "Sw<3,3,3> o 0 o (8,64):(64,1)");
/// let tile = atom.tile_to_shape((128, 64))?;
/// assert_eq!(tile.to_string(), "Sw<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))");
/// assert_eq!(tile.index((1, 0))?, 64 + 8);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ComposedLayout {
    swizzle: Swizzle,
    offset: i64,
    layout: Layout,
}

impl Swizzle {
    /// Returns the composition `swizzle o 0 o layout` of this swizzle with a layout.
    ///
    /// # Errors
    /// Returns the errors of [`ComposedLayout::new`].
    pub fn over(&self, layout: &Layout) -> Result<ComposedLayout, CuteError> {
        ComposedLayout::new(*self, 0, layout.clone())
    }
}

impl Layout {
    /// Returns the composition `self o rhs` with a composed layout by moving the swizzle of `rhs`
    /// to the left of `self`.
    ///
    /// The moved swizzle `S` satisfies `self(rhs.swizzle(x)) = S(self(x))` at every index `x` of
    /// `rhs.layout`. This is checked at every point of the domain.
    ///
    /// ```
    /// use pgemm_cute::{ComposedLayout, Layout};
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let spread = Layout::parse("(8,8):(2,32)")?;
    /// let inner = ComposedLayout::parse("Sw<2,0,3> o 0 o (8,8):(8,1)")?;
    /// let composed = spread.compose_composed(&inner)?;
    /// assert_eq!(composed.to_string(), "Sw<2,1,4> o 0 o (8,8):(32,2)");
    /// assert_eq!(composed.index(13)?, spread.index(inner.index(13)?)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::OffsetNotZero`] if `rhs` has an offset,
    /// [`CuteError::SwizzleNotCarried`] if no such swizzle exists,
    /// [`CuteError::SwizzledDomainTooLarge`] if the domain is too large to check, and otherwise the
    /// errors of [`Layout::compose`].
    pub fn compose_composed(&self, rhs: &ComposedLayout) -> Result<ComposedLayout, CuteError> {
        rhs.check_no_offset("composition with a layout on the left")?;
        let layout = self.compose_layout(&rhs.layout)?;
        check_domain_size(self, rhs.swizzle, rhs.size())?;
        let swizzle = move_swizzle_left(self, rhs.swizzle, rhs.layout.indices())?;
        ComposedLayout::new(swizzle, 0, layout)
    }
}

/// Defines methods that apply to the layout and keep swizzle and offset.
macro_rules! forward_to_layout {
    ($($name:ident($($argument:ident: $type:ty),*), $result:literal;)*) => {$(
        #[doc = concat!("Applies [`Layout::", stringify!($name), "`] to the layout and keeps swizzle")]
        #[doc = concat!("and offset", $result, ".")]
        ///
        /// # Errors
        #[doc = concat!("Returns the errors of [`Layout::", stringify!($name), "`].")]
        pub fn $name(&self, $($argument: $type),*) -> Result<ComposedLayout, CuteError> {
            self.with_layout(self.layout.$name($($argument),*)?)
        }
    )*};
}

impl ComposedLayout {
    /// Creates the composed layout `swizzle o offset o layout`.
    ///
    /// # Errors
    /// Returns [`CuteError::Overflow`] if the sum of the offset and an index of the layout may not
    /// fit an `i64`.
    pub fn new(swizzle: Swizzle, offset: i64, layout: Layout) -> Result<Self, CuteError> {
        let reach = layout.cosize() - 1;
        if offset.checked_add(reach).is_none() || offset.checked_sub(reach).is_none() {
            return Err(CuteError::Overflow {
                quantity: "the sum of an index and the offset",
                operand: Box::new(offset.into()),
            });
        }
        Ok(Self { swizzle, offset, layout })
    }

    /// Returns the swizzle.
    pub fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    /// Returns the offset, which is added to the index of the layout before the swizzle is applied.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the shape of the layout.
    pub fn shape(&self) -> &IntTuple {
        self.layout.shape()
    }

    /// Returns the number of modes of the layout.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// Returns the number of coordinates in the domain.
    pub fn size(&self) -> i64 {
        self.layout.size()
    }

    /// Returns the cosize of the layout, as CuTe defines the cosize of a composed layout.
    ///
    /// The cosize bounds the indices if the offset is 0 and the cosize is a multiple of
    /// [`Swizzle::period`].
    pub fn cosize(&self) -> i64 {
        self.layout.cosize()
    }

    /// Returns the index of a coordinate.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::index`].
    pub fn index(&self, coord: impl Into<IntTuple>) -> Result<i64, CuteError> {
        Ok(self.swizzle.apply(self.offset + self.layout.index(coord)?))
    }

    /// Returns the index of a coordinate that may lie outside the shape, like
    /// [`Layout::index_extended`].
    ///
    /// # Errors
    /// Returns the errors of [`Layout::index_extended`], and [`CuteError::Overflow`] if the sum of
    /// offset and index does not fit an `i64`.
    pub fn index_extended(&self, coord: impl Into<IntTuple>) -> Result<i64, CuteError> {
        let index = self.layout.index_extended(coord)?;
        match self.offset.checked_add(index) {
            Some(index) => Ok(self.swizzle.apply(index)),
            None => Err(CuteError::Overflow {
                quantity: "the sum of an index and the offset",
                operand: Box::new(self.offset.into()),
            }),
        }
    }

    /// Iterates over the indices of all coordinates, in the order of the linear coordinates.
    pub fn indices(&self) -> impl Iterator<Item = i64> + Clone + use<> {
        let (swizzle, offset) = (self.swizzle, self.offset);
        let indices: Indices = self.layout.indices();
        indices.map(move |index| swizzle.apply(offset + index))
    }

    forward_to_layout! {
        mode(mode: usize), "";
        take(begin: usize, end: usize), "";
        append(other: &Layout), "";
        group_modes(begin: usize, end: usize), "";
        coalesce_by_mode(profile: impl Into<IntTuple>), "";
        filter_by_mode(profile: impl Into<IntTuple>), "";
        compose(rhs: impl Into<Tiler>), ": `(S o f o L) o R = S o f o (L o R)`";
        with_shape(shape: impl Into<IntTuple>), "";
        logical_divide(tiler: impl Into<Tiler>), "";
        zipped_divide(tiler: impl Into<Tiler>), "";
        tiled_divide(tiler: impl Into<Tiler>), "";
        flat_divide(tiler: impl Into<Tiler>), "";
        logical_product(tiler: impl Into<Tiler>), "";
        zipped_product(tiler: impl Into<Tiler>), "";
        tiled_product(tiler: impl Into<Tiler>), "";
        flat_product(tiler: impl Into<Tiler>), "";
        blocked_product(tiler: &Layout), "";
        raked_product(tiler: &Layout), "";
        tile_to_shape(target: impl Into<IntTuple>), "";
        tile_to_shape_ordered(target: impl Into<IntTuple>, order: impl Into<IntTuple>), "";
    }

    /// Applies [`Layout::flatten`] to the layout and keeps swizzle and offset.
    pub fn flatten(&self) -> ComposedLayout {
        Self { layout: self.layout.flatten(), ..self.clone() }
    }

    /// Applies [`Layout::coalesce`] to the layout and keeps swizzle and offset. The function on
    /// linear coordinates does not change.
    pub fn coalesce(&self) -> ComposedLayout {
        Self { layout: self.layout.coalesce(), ..self.clone() }
    }

    /// Returns the composition `self o rhs` with another composed layout.
    ///
    /// The swizzle of `rhs` moves to the left of this layout and merges with this swizzle.
    ///
    /// # Errors
    /// Returns [`CuteError::OffsetNotZero`] if either has an offset, otherwise the errors of
    /// [`Layout::compose_composed`] and [`Swizzle::compose`].
    pub fn compose_composed(&self, rhs: &ComposedLayout) -> Result<ComposedLayout, CuteError> {
        if rhs.swizzle.is_identity() && rhs.offset == 0 {
            return self.compose(&rhs.layout);
        }
        self.check_no_offset("composition with a swizzle on the right")?;
        self.layout.compose_composed(rhs)?.swizzled(self.swizzle)
    }

    /// Returns the composition `outer o self`, with both swizzles merged into one.
    ///
    /// # Errors
    /// Returns the errors of [`Swizzle::compose`].
    pub fn swizzled(&self, outer: Swizzle) -> Result<ComposedLayout, CuteError> {
        let swizzle = match (outer.is_identity(), self.swizzle.is_identity()) {
            (true, _) => self.swizzle,
            (_, true) => outer,
            _ => outer.compose(&self.swizzle)?,
        };
        Ok(Self { swizzle, ..self.clone() })
    }

    /// Returns the right inverse `R`, for which `self(R(i)) = i` for every `i` below the size of
    /// `R`.
    ///
    /// A swizzle is its own inverse, and it moves to the left of the layout's right inverse.
    ///
    /// ```
    /// use pgemm_cute::ComposedLayout;
    ///
    /// let layout = ComposedLayout::parse("Sw<3,0,3> o 0 o (8,8):(8,1)").unwrap();
    /// let inverse = layout.right_inverse().unwrap();
    /// assert_eq!(inverse.to_string(), "Sw<3,0,-3> o 0 o (8,8):(8,1)");
    /// assert!((0..64).all(|i| layout.index(inverse.index(i).unwrap()) == Ok(i)));
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::OffsetNotZero`] if the offset is not 0,
    /// [`CuteError::SwizzleNotCarried`] if the inverse is not a swizzle of a layout, and
    /// [`CuteError::SwizzledDomainTooLarge`] if the domain is too large to check.
    pub fn right_inverse(&self) -> Result<ComposedLayout, CuteError> {
        self.check_no_offset("right inverse")?;
        let inverse = self.layout.right_inverse();
        let size = inverse.size();
        check_domain_size(&inverse, self.swizzle, size)?;
        if (0..size).any(|index| !(0..size).contains(&self.swizzle.apply(index))) {
            return Err(swizzle_not_carried(&inverse, self.swizzle));
        }
        let swizzle = move_swizzle_left(&inverse, self.swizzle, 0..size)?;
        ComposedLayout::new(swizzle, 0, inverse)
    }

    /// Returns the left inverse `L`, for which `L(self(c)) = c` for every linear coordinate `c` of
    /// an injective layout.
    ///
    /// # Errors
    /// Returns [`CuteError::OffsetNotZero`] if the offset is not 0,
    /// [`CuteError::SwizzleNotCarried`] if the inverse is not a swizzle of a layout,
    /// [`CuteError::SwizzledDomainTooLarge`] if the domain is too large to check, and otherwise the
    /// errors of [`Layout::left_inverse`].
    pub fn left_inverse(&self) -> Result<ComposedLayout, CuteError> {
        self.check_no_offset("left inverse")?;
        let inverse = self.layout.left_inverse()?;
        check_domain_size(&inverse, self.swizzle, self.size())?;
        let swizzle = move_swizzle_left(&inverse, self.swizzle, self.indices())?;
        ComposedLayout::new(swizzle, 0, inverse)
    }

    /// Merges each group of `factor` adjacent elements into one element, by [`Layout::upcast`] and
    /// [`Swizzle::upcast`].
    ///
    /// # Errors
    /// Returns the errors of both functions, and [`CuteError::OffsetDivisibility`] if the factor
    /// does not divide the offset.
    pub fn upcast(&self, factor: i64) -> Result<ComposedLayout, CuteError> {
        check_factor(factor)?;
        if self.offset % factor != 0 {
            return Err(CuteError::OffsetDivisibility { offset: self.offset, factor });
        }
        Self::new(self.swizzle.upcast(factor)?, self.offset / factor, self.layout.upcast(factor)?)
    }

    /// Splits each element into `factor` smaller elements, by [`Layout::downcast`] and
    /// [`Swizzle::downcast`].
    ///
    /// # Errors
    /// Returns the errors of both functions, and [`CuteError::Overflow`] if the new offset does not
    /// fit an `i64`.
    pub fn downcast(&self, factor: i64) -> Result<ComposedLayout, CuteError> {
        check_factor(factor)?;
        let offset = self.offset.checked_mul(factor).ok_or_else(|| CuteError::Overflow {
            quantity: "an offset after downcast",
            operand: Box::new([self.offset, factor].into()),
        })?;
        Self::new(self.swizzle.downcast(factor)?, offset, self.layout.downcast(factor)?)
    }

    /// Converts the units of the layout from elements of `from_bits` bits to elements of `to_bits`
    /// bits.
    ///
    /// ```
    /// use pgemm_cute::ComposedLayout;
    ///
    /// let bits = ComposedLayout::parse("Sw<3,7,3> o 0 o (8,1024):(1024,1)").unwrap();
    /// assert_eq!(bits.recast(1, 16).unwrap().to_string(), "Sw<3,3,3> o 0 o (8,64):(64,1)");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`ComposedLayout::upcast`] and [`ComposedLayout::downcast`].
    pub fn recast(&self, from_bits: i64, to_bits: i64) -> Result<ComposedLayout, CuteError> {
        let (up, down) = recast_factors(from_bits, to_bits)?;
        let wide = if up == 1 { self.clone() } else { self.upcast(up)? };
        if down == 1 { Ok(wide) } else { wide.downcast(down) }
    }

    /// Returns the number of contiguous elements that this layout and `other` share, like
    /// [`Layout::max_common_vector`].
    ///
    /// The result is at most `2^base` elements, the longest run that the swizzle keeps contiguous.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::max_common_vector`].
    pub fn max_common_vector(&self, other: &Layout) -> Result<i64, CuteError> {
        let run = if self.swizzle.is_identity() { i64::MAX } else { 1 << self.swizzle.base() };
        Ok(self.layout.max_common_vector(other)?.min(run))
    }

    fn with_layout(&self, layout: Layout) -> Result<ComposedLayout, CuteError> {
        Self::new(self.swizzle, self.offset, layout)
    }

    fn check_no_offset(&self, operation: &'static str) -> Result<(), CuteError> {
        if self.offset == 0 {
            Ok(())
        } else {
            Err(CuteError::OffsetNotZero { operation, offset: self.offset })
        }
    }
}

impl From<Layout> for ComposedLayout {
    fn from(layout: Layout) -> Self {
        Self { swizzle: Swizzle::identity(), offset: 0, layout }
    }
}

impl fmt::Display for ComposedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.swizzle, self.offset, self.layout)
    }
}

/// Returns a swizzle `S` for which `layout(swizzle(x)) = S(layout(x))` at every point `x`.
fn move_swizzle_left(
    layout: &Layout,
    swizzle: Swizzle,
    points: impl Iterator<Item = i64> + Clone,
) -> Result<Swizzle, CuteError> {
    let modes = layout.flat_modes();
    let size = layout.size();
    // The layout maps an index that consists of mask bits to a mask of the moved swizzle. The
    // layout may map bits beyond its domain to any bits. A swizzle of the bits within the domain is
    // therefore the second candidate, and the identity is the third.
    let mut active = (0, 0);
    let (source, target) = (swizzle.source_mask(), swizzle.target_mask());
    for bit in (0..62).map(|bit| 1i64 << bit).filter(|bit| bit & source != 0) {
        let changed = swizzle.apply(bit) ^ bit;
        if bit < size && changed < size {
            active = (active.0 | bit, active.1 | changed);
        }
    }
    let candidates = [(source, target), active, (0, 0)];
    candidates
        .into_iter()
        .filter_map(|(source, target)| {
            let masks = (extended_index(&modes, source)?, extended_index(&modes, target)?);
            Swizzle::from_masks(masks.0, masks.1).ok()
        })
        .find(|candidate| {
            points.clone().all(|point| {
                let moved = extended_index(&modes, swizzle.apply(point));
                moved == extended_index(&modes, point).map(|index| candidate.apply(index))
            })
        })
        .ok_or_else(|| swizzle_not_carried(layout, swizzle))
}

/// Does what [`Layout::index_extended`] does for a linear coordinate, without allocation.
fn extended_index(modes: &[(i64, i64)], coord: i64) -> Option<i64> {
    let (&(_, last_stride), inner) = modes.split_last()?;
    let (mut rest, mut index) = (coord, 0i64);
    for &(extent, stride) in inner {
        index = index.checked_add((rest % extent).checked_mul(stride)?)?;
        rest /= extent;
    }
    index.checked_add(rest.checked_mul(last_stride)?)
}

fn check_domain_size(layout: &Layout, swizzle: Swizzle, points: i64) -> Result<(), CuteError> {
    if points <= MAX_CHECKED_POINTS {
        return Ok(());
    }
    Err(CuteError::SwizzledDomainTooLarge {
        layout: Box::new(layout.clone()),
        swizzle,
        size: points,
        limit: MAX_CHECKED_POINTS,
    })
}

fn swizzle_not_carried(layout: &Layout, swizzle: Swizzle) -> CuteError {
    CuteError::SwizzleNotCarried { layout: Box::new(layout.clone()), swizzle }
}
