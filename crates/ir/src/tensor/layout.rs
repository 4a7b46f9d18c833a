//! [`TensorLayout`]: a layout whose extents and strides are constants or values of the kernel. It
//! is evaluated at coordinates of the device.

use pgemm_cute::{ComposedLayout, CuteError, Layout, Swizzle};

use super::int::{Int, IntoInts};
use crate::builder::KernelBuilder;
use crate::error::BuildError;
use crate::value::{Val, ty};

/// A layout on the device: the function from coordinates to offsets in elements.
///
/// Each mode is a mode of a [`Layout`], or an extent and a stride that may be values. A swizzle may
/// follow. An offset has 32 bits and wraps; addresses in global memory are computed with 64 bits.
///
/// ```
/// use pgemm_ir::layout::{Layout, Swizzle};
/// use pgemm_ir::{KernelBuilder, Special, TensorLayout};
///
/// # let b = KernelBuilder::new("layouts", 1);
/// let tile = Layout::row_major((32, 64)).unwrap();
/// let tile = TensorLayout::of(&b, Swizzle::new(3, 3, 3).unwrap().over(&tile).unwrap());
/// let lane = b.special(Special::Lane);
/// let offset = tile.offset((lane, 8)); // a value: the swizzle of lane * 64 + 8
/// # let _ = offset;
/// ```
#[derive(Clone)]
pub struct TensorLayout<'k> {
    pub(super) b: &'k KernelBuilder,
    pub(super) modes: Vec<Mode<'k>>,
    pub(super) swizzle: Swizzle,
    /// Elements that are added before the swizzle.
    pub(super) before_swizzle: Int<'k>,
}

/// A mode of the top level.
#[derive(Clone)]
pub(super) enum Mode<'k> {
    /// One extent and one stride.
    Strided { extent: Int<'k>, stride: Int<'k> },
    /// A layout of several modes, all of them constant.
    Nested(Layout),
}

impl<'k> Mode<'k> {
    pub(super) fn extent(&self) -> Int<'k> {
        match self {
            Mode::Strided { extent, .. } => *extent,
            // `TensorLayout::of` has checked that it fits.
            Mode::Nested(layout) => Int::from(layout.size() as u32),
        }
    }

    /// The offset of a coordinate.
    #[track_caller]
    pub(super) fn offset(&self, coordinate: Int<'k>) -> Int<'k> {
        match self {
            Mode::Strided { stride, .. } => coordinate * *stride,
            Mode::Nested(layout) => evaluate(layout, coordinate, 1),
        }
    }

    /// The stride, if it is not a constant.
    pub(super) fn run_time_stride(&self) -> Option<Int<'k>> {
        match self {
            Mode::Strided { stride, .. } => Some(*stride).filter(|s| s.constant().is_none()),
            Mode::Nested(_) => None,
        }
    }

    /// The mode as a layout, if it is constant.
    pub(super) fn constant(&self) -> Option<Result<Layout, CuteError>> {
        match self {
            Mode::Strided { extent, stride } => {
                Some(Layout::new(extent.constant()?, stride.constant()?))
            }
            Mode::Nested(layout) => Some(Ok(layout.clone())),
        }
    }
}

impl<'k> TensorLayout<'k> {
    /// The layout with these extents and strides in elements.
    #[track_caller]
    pub fn new(
        b: &'k KernelBuilder,
        extents: impl IntoInts<'k>,
        strides: impl IntoInts<'k>,
    ) -> Self {
        let (extents, strides) = (extents.into_ints(), strides.into_ints());
        if extents.len() != strides.len() {
            rank_differs(b, "strides", strides.len(), extents.len());
        }
        let modes = extents.into_iter().zip(strides);
        let modes = modes.map(|(extent, stride)| Mode::Strided { extent, stride }).collect();
        Self::unswizzled(b, modes)
    }

    /// The compact layout whose last mode is contiguous.
    #[track_caller]
    pub fn row_major(b: &'k KernelBuilder, extents: impl IntoInts<'k>) -> Self {
        b.at_caller(|| {
            let mut modes = compact(extents.into_ints().into_iter().rev());
            modes.reverse();
            Self::unswizzled(b, modes)
        })
    }

    /// The compact layout whose first mode is contiguous.
    #[track_caller]
    pub fn col_major(b: &'k KernelBuilder, extents: impl IntoInts<'k>) -> Self {
        b.at_caller(|| Self::unswizzled(b, compact(extents.into_ints().into_iter())))
    }

    /// A constant layout, with a swizzle or without.
    #[track_caller]
    pub fn of(b: &'k KernelBuilder, layout: impl Into<ComposedLayout>) -> Self {
        let composed = layout.into();
        let layout = composed.layout();
        let leaves = layout.stride().leaves();
        let fits = u32::try_from(layout.cosize().max(layout.size())).is_ok();
        let offset = u32::try_from(composed.offset());
        let (Ok(offset), true, false) = (offset, fits, leaves.iter().any(|&s| s < 0)) else {
            let layout = match composed.offset() {
                0 => layout.to_string(),
                _ => composed.to_string(),
            };
            b.fail(|location| BuildError::LayoutOnDevice { location, layout });
            return Self::unswizzled(b, vec![]);
        };
        let modes = layout.modes().into_iter().map(|mode| {
            let mode = mode.coalesce();
            match (mode.shape().as_int(), mode.stride().as_int()) {
                (Some(extent), Some(stride)) => Mode::Strided {
                    extent: Int::from(extent as u32),
                    stride: Int::from(stride as u32),
                },
                _ => Mode::Nested(mode),
            }
        });
        TensorLayout {
            b,
            modes: modes.collect(),
            swizzle: composed.swizzle(),
            before_swizzle: Int::from(offset),
        }
    }

    fn unswizzled(b: &'k KernelBuilder, modes: Vec<Mode<'k>>) -> Self {
        TensorLayout { b, modes, swizzle: Swizzle::identity(), before_swizzle: Int::from(0) }
    }

    /// The number of modes.
    pub fn rank(&self) -> usize {
        self.modes.len()
    }

    /// The extent of each mode.
    pub fn extents(&self) -> Vec<Int<'k>> {
        self.modes.iter().map(Mode::extent).collect()
    }

    /// The offset of the element at a coordinate: one number for each mode, or a linear coordinate,
    /// which is split with the first mode fastest.
    #[track_caller]
    pub fn offset(&self, coordinates: impl IntoInts<'k>) -> Int<'k> {
        self.b.at_caller(|| {
            let coordinates = self.coordinates(coordinates.into_ints());
            let offsets = self.modes.iter().zip(coordinates).map(|(mode, at)| mode.offset(at));
            let sum = offsets.fold(self.before_swizzle, |sum, offset| sum + offset);
            apply(self.b, self.swizzle, sum)
        })
    }

    /// One coordinate for each mode.
    #[track_caller]
    pub(super) fn coordinates(&self, given: Vec<Int<'k>>) -> Vec<Int<'k>> {
        let (b, rank) = (self.b, self.modes.len());
        if given.len() == rank {
            return given;
        }
        let [linear] = given[..] else {
            rank_differs(b, "coordinates", given.len(), rank);
            return vec![Int::from(0); rank];
        };
        let mut remainder = linear;
        let mut coordinates = vec![];
        for mode in self.modes.iter().take(rank.saturating_sub(1)) {
            let (quotient, own) = remainder.divide_by(mode.extent());
            coordinates.push(own);
            remainder = quotient;
        }
        coordinates.push(remainder);
        coordinates.truncate(rank);
        coordinates
    }
}

/// An index after a swizzle.
#[track_caller]
pub(super) fn apply<'k>(b: &'k KernelBuilder, swizzle: Swizzle, index: Int<'k>) -> Int<'k> {
    match index.constant() {
        _ if swizzle.is_identity() => index,
        Some(constant) => Int::from(swizzle.apply(constant.into()) as u32),
        None => index.value(b).swizzled(swizzle).into(),
    }
}

/// Compact modes, the first of them contiguous.
#[track_caller]
fn compact<'k>(extents: impl Iterator<Item = Int<'k>>) -> Vec<Mode<'k>> {
    let mut next = Int::from(1);
    let mode = |extent: Int<'k>| {
        let stride = next;
        next = stride * extent;
        Mode::Strided { extent, stride }
    };
    extents.map(mode).collect()
}

#[track_caller]
pub(super) fn rank_differs(b: &KernelBuilder, what: &'static str, given: usize, modes: usize) {
    b.fail(|location| BuildError::TensorRank { location, what, given, modes });
}

/// The offset of a linear coordinate in a constant layout without negative strides, in units of
/// which an element has `scale`. The last mode continues beyond its extent.
#[track_caller]
pub(super) fn evaluate<'k>(layout: &Layout, coordinate: Int<'k>, scale: u32) -> Int<'k> {
    let layout = layout.coalesce();
    let modes: Vec<(i64, i64)> =
        layout.shape().leaves().into_iter().zip(layout.stride().leaves()).collect();
    let mut remainder = coordinate.at_most((layout.size() - 1) as u32);
    let mut sum = Int::from(0);
    for (number, &(extent, stride)) in modes.iter().enumerate() {
        let own = if number + 1 == modes.len() {
            remainder
        } else {
            let (quotient, own) = remainder.divide(extent as u32);
            remainder = quotient;
            own
        };
        sum = sum + own * (stride as u32).wrapping_mul(scale);
    }
    sum
}

impl Val<'_, ty::U32> {
    /// The index after a swizzle: some of its bits, exclusive-or others.
    ///
    /// ```
    /// use pgemm_ir::layout::Swizzle;
    /// use pgemm_ir::{KernelBuilder, Special};
    ///
    /// # let b = KernelBuilder::new("swizzle", 1);
    /// let chunk = b.special(Special::Lane).swizzled(Swizzle::new(2, 0, 3).unwrap());
    /// # let _ = chunk;
    /// ```
    #[track_caller]
    pub fn swizzled(self, swizzle: Swizzle) -> Self {
        if swizzle.is_identity() {
            return self;
        }
        // Bits beyond the 32 of the index are 0.
        let source = self & swizzle.source_mask() as u32;
        let distance = swizzle.shift().unsigned_abs();
        self ^ if swizzle.shift() >= 0 { source >> distance } else { source << distance }
    }
}
