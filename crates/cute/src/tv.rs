//! Thread-value layouts: the elements of a tile that each thread holds in each of its values.

use std::fmt;

use crate::coord::{colex_index, idx2crd, is_within};
use crate::{CuteError, IntTuple, Layout};

/// A layout from (thread, value) to linear (column-major) coordinates of a tile.
///
/// CuTe uses such layouts to describe the fragments of MMA and copy atoms.
///
/// ```
/// use pgemm_cute::{Layout, TvLayout};
///
/// # fn main() -> Result<(), pgemm_cute::CuteError> {
/// // 8 x 4 threads, row-major, each with 1 x 8 values.
/// let threads = Layout::row_major((8, 4))?;
/// let values = Layout::row_major((1, 8))?;
/// let tv = TvLayout::from_threads_and_values(&threads, &values)?;
/// assert_eq!(tv.to_string(), "((4,8),8):((64,1),8) in (8,32)");
/// assert_eq!(tv.coordinate(5, 3)?, (1, 11).into());
/// assert_eq!(tv.owner((1, 11))?, (5, 3));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TvLayout {
    layout: Layout,
    tile: IntTuple,
}

impl TvLayout {
    /// Creates a thread-value layout whose indices are linear (column-major) coordinates of a tile
    /// of shape `tile`.
    ///
    /// The layout need not be a bijection: several threads may hold the same element.
    ///
    /// # Errors
    /// Returns [`CuteError::ThreadValueRank`] unless the layout has the two modes thread and value,
    /// and [`CuteError::OutsideTile`] if an index lies outside the tile.
    pub fn new(layout: Layout, tile: impl Into<IntTuple>) -> Result<Self, CuteError> {
        let tile = tile.into();
        let size = Layout::col_major(&tile)?.size();
        if layout.rank() != 2 {
            return Err(CuteError::ThreadValueRank { layout: Box::new(layout) });
        }
        let negative = layout.flat_modes().into_iter().any(|(s, d)| s > 1 && d < 0);
        if negative || layout.cosize() > size {
            return Err(CuteError::OutsideTile { layout: Box::new(layout), tile: Box::new(tile) });
        }
        Ok(Self { layout, tile })
    }

    /// Creates the thread-value layout of threads that are arranged over a tile and each hold a
    /// block of values.
    ///
    /// `threads` maps coordinates to thread numbers, and `values` maps coordinates within a
    /// thread's block to value numbers. The extent of each mode of the tile is the product of the
    /// extents of both layouts in this mode. The result is the right inverse of the raked product
    /// of `threads` and `values`, as in CuTe's `make_tiled_copy`.
    ///
    /// # Errors
    /// Returns [`CuteError::NotCompact`] unless each of both layouts takes every number in
    /// `0..size` exactly once.
    pub fn from_threads_and_values(threads: &Layout, values: &Layout) -> Result<Self, CuteError> {
        for (what, layout) in [("thread", threads), ("value", values)] {
            if !layout.is_bijection() {
                return Err(CuteError::NotCompact { what, layout: Box::new(layout.clone()) });
            }
        }
        let product = wrap_in_mode(threads)?.raked_product(&wrap_in_mode(values)?)?;
        let layout = product.right_inverse().with_shape([threads.size(), values.size()])?;
        Self::new(layout, product.shape().product_each()?)
    }

    /// Returns the layout from (thread, value) to linear coordinates of the tile.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the shape of the tile.
    pub fn tile(&self) -> &IntTuple {
        &self.tile
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> i64 {
        self.layout.shape().get(0).and_then(|mode| mode.size().ok()).unwrap_or(1)
    }

    /// Returns the number of values that each thread holds.
    pub fn values(&self) -> i64 {
        self.layout.size() / self.threads()
    }

    /// Returns the linear coordinate of the element that thread `thread` holds in value `value`.
    ///
    /// # Errors
    /// Returns [`CuteError::OutOfBounds`] if the thread or the value does not exist.
    pub fn index(&self, thread: i64, value: i64) -> Result<i64, CuteError> {
        self.layout.index([thread, value])
    }

    /// Returns the natural coordinate, within the tile, of the element that thread `thread` holds
    /// in value `value`.
    ///
    /// # Errors
    /// Returns [`CuteError::OutOfBounds`] if the thread or the value does not exist.
    pub fn coordinate(&self, thread: i64, value: i64) -> Result<IntTuple, CuteError> {
        idx2crd(&IntTuple::Int(self.index(thread, value)?), &self.tile)
    }

    /// Returns the composition `data o layout`, which maps (thread, value) to the index in `data`,
    /// a layout of the tile.
    ///
    /// ```
    /// use pgemm_cute::{Layout, TvLayout};
    ///
    /// let threads = Layout::row_major((8, 4)).unwrap();
    /// let values = Layout::row_major((1, 8)).unwrap();
    /// let tv = TvLayout::from_threads_and_values(&threads, &values).unwrap();
    /// let row_major = Layout::row_major((8, 32)).unwrap();
    /// assert_eq!(tv.over(&row_major).unwrap().to_string(), "((4,8),8):((8,32),1)");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::TileMismatch`] if the tile is not compatible with the shape of `data`,
    /// otherwise the errors of [`Layout::compose`].
    pub fn over(&self, data: &Layout) -> Result<Layout, CuteError> {
        if !self.tile.is_compatible(data.shape()) {
            return Err(CuteError::TileMismatch {
                tile: Box::new(self.tile.clone()),
                data: Box::new(data.clone()),
            });
        }
        data.compose(&self.layout)
    }

    /// Returns the layout from coordinates of the tile to `thread + threads * value`.
    ///
    /// ```
    /// use pgemm_cute::{Layout, TvLayout};
    ///
    /// let tv = TvLayout::new(Layout::parse("((4,8),2):((16,1),8)").unwrap(), (8, 8)).unwrap();
    /// assert_eq!(tv.inverse().unwrap().to_string(), "(8,(2,4)):(4,(32,1))");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`TvLayout::check_bijection`].
    pub fn inverse(&self) -> Result<Layout, CuteError> {
        self.check_bijection()?;
        self.layout.right_inverse().with_shape(self.tile.clone())
    }

    /// Returns the (thread, value) that holds the element at a coordinate of the tile.
    ///
    /// # Errors
    /// Returns [`CuteError::CoordinateProfile`] or [`CuteError::OutOfBounds`] if the coordinate is
    /// not in the tile, otherwise the errors of [`TvLayout::check_bijection`].
    pub fn owner(&self, coord: impl Into<IntTuple>) -> Result<(i64, i64), CuteError> {
        let coord = coord.into();
        let natural = idx2crd(&coord, &self.tile)?;
        if !is_within(&natural, &self.tile) {
            return Err(CuteError::OutOfBounds {
                coord: Box::new(coord),
                shape: Box::new(self.tile.clone()),
            });
        }
        self.check_bijection()?;
        let linear = colex_index(&natural, &self.tile)?;
        let number = self.layout.right_inverse().index(linear)?;
        Ok((number % self.threads(), number / self.threads()))
    }

    /// Returns whether exactly one (thread, value) holds each element of the tile.
    pub fn is_bijection(&self) -> bool {
        self.check_bijection().is_ok()
    }

    /// Checks that exactly one (thread, value) holds each element of the tile.
    ///
    /// # Errors
    /// Returns [`CuteError::NotABijection`] with the first element, in column-major order, that
    /// violates this.
    pub fn check_bijection(&self) -> Result<(), CuteError> {
        // By increasing stride, each mode must start at the end of the modes before it. An earlier
        // start repeats an element, and a later start skips one.
        let size = self.tile.size()?;
        let mut modes = self.layout.flat_modes();
        modes.retain(|&(extent, _)| extent > 1);
        modes.sort_by_key(|&(_, stride)| stride);
        let mut covered = 1;
        for (extent, stride) in modes {
            if stride < covered {
                return Err(self.not_a_bijection(stride, true));
            }
            if stride > covered {
                break;
            }
            // The product is at most the cosize of the layout.
            covered *= extent;
        }
        if covered < size { Err(self.not_a_bijection(covered, false)) } else { Ok(()) }
    }

    fn not_a_bijection(&self, element: i64, repeated: bool) -> CuteError {
        CuteError::NotABijection {
            layout: Box::new(self.layout.clone()),
            tile: Box::new(self.tile.clone()),
            coord: Box::new(
                idx2crd(&IntTuple::Int(element), &self.tile).unwrap_or(IntTuple::Int(element)),
            ),
            held: if repeated { "more than once" } else { "by no thread" },
        }
    }
}

impl fmt::Display for TvLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.layout, self.tile)
    }
}

/// Wraps a layout of depth 0 into one mode, so that its product with another such layout has rank
/// 1.
fn wrap_in_mode(layout: &Layout) -> Result<Layout, CuteError> {
    if layout.shape().as_int().is_some() { Layout::concat([layout]) } else { Ok(layout.clone()) }
}
