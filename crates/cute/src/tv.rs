//! Thread-value layouts: which thread holds which element of a tile in which of its values.

use std::fmt;

use crate::coord::{colex_index, idx2crd, is_within};
use crate::{CuteError, IntTuple, Layout};

/// A layout from `(thread, value)` to linear (column-major) coordinates of a tile.
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
    /// The thread-value layout `layout`, whose indices are column-major positions in a tile of
    /// shape `tile`. It need not be a bijection: values may be replicated over threads.
    ///
    /// # Errors
    /// [`CuteError::ThreadValueRank`] unless the layout has the two modes thread and value,
    /// [`CuteError::OutsideTile`] if an index lies outside the tile.
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

    /// The thread-value layout of threads arranged over a tile, each holding a block of values.
    /// `threads` maps coordinates to thread numbers, `values` coordinates within a thread's block
    /// to value numbers; mode `i` of the tile is as long as mode `i` of both together. It is the
    /// right inverse of their raked product.
    ///
    /// # Errors
    /// [`CuteError::NotCompact`] unless each takes every number from 0 to its size once.
    pub fn from_threads_and_values(threads: &Layout, values: &Layout) -> Result<Self, CuteError> {
        for (what, layout) in [("thread", threads), ("value", values)] {
            if !layout.is_bijection() {
                return Err(CuteError::NotCompact { what, layout: Box::new(layout.clone()) });
            }
        }
        let product = wrapped(threads)?.raked_product(&wrapped(values)?)?;
        let layout = product.right_inverse().with_shape([threads.size(), values.size()])?;
        Self::new(layout, product.shape().product_each()?)
    }

    /// The layout from `(thread, value)` to linear coordinates of the tile.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Shape of the tile.
    pub fn tile(&self) -> &IntTuple {
        &self.tile
    }

    /// Number of threads.
    pub fn threads(&self) -> i64 {
        self.layout.shape().get(0).and_then(|mode| mode.size().ok()).unwrap_or(1)
    }

    /// Number of values that each thread holds.
    pub fn values(&self) -> i64 {
        self.layout.size() / self.threads()
    }

    /// Linear coordinate in the tile of value `value` of thread `thread`.
    ///
    /// # Errors
    /// [`CuteError::OutOfBounds`] if there is no such thread or value.
    pub fn index(&self, thread: i64, value: i64) -> Result<i64, CuteError> {
        self.layout.index([thread, value])
    }

    /// Coordinate in the tile of value `value` of thread `thread`, with the tile's nesting.
    ///
    /// # Errors
    /// [`CuteError::OutOfBounds`] if there is no such thread or value.
    pub fn coordinate(&self, thread: i64, value: i64) -> Result<IntTuple, CuteError> {
        idx2crd(&IntTuple::Int(self.index(thread, value)?), &self.tile)
    }

    /// Where each `(thread, value)` lies in `data`, a layout of the tile: `data o layout`.
    ///
    /// # Errors
    /// [`CuteError::TileMismatch`] if the tile's coordinates are not coordinates of `data`,
    /// otherwise as [`Layout::compose`].
    pub fn over(&self, data: &Layout) -> Result<Layout, CuteError> {
        if !self.tile.is_compatible(data.shape()) {
            return Err(CuteError::TileMismatch {
                tile: Box::new(self.tile.clone()),
                data: Box::new(data.clone()),
            });
        }
        data.compose(&self.layout)
    }

    /// The layout from tile coordinates to `thread + threads * value`.
    ///
    /// ```
    /// use pgemm_cute::{Layout, TvLayout};
    ///
    /// let tv = TvLayout::new(Layout::parse("((4,8),2):((16,1),8)").unwrap(), (8, 8)).unwrap();
    /// assert_eq!(tv.inverse().unwrap().to_string(), "(8,(2,4)):(4,(32,1))");
    /// ```
    ///
    /// # Errors
    /// As [`TvLayout::check_bijection`].
    pub fn inverse(&self) -> Result<Layout, CuteError> {
        self.check_bijection()?;
        self.layout.right_inverse().with_shape(self.tile.clone())
    }

    /// The `(thread, value)` that holds a coordinate of the tile.
    ///
    /// # Errors
    /// [`CuteError::CoordinateProfile`] or [`CuteError::OutOfBounds`] if the coordinate is not in
    /// the tile, otherwise as [`TvLayout::check_bijection`].
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

    /// Whether every element of the tile belongs to exactly one thread and value.
    pub fn is_bijection(&self) -> bool {
        self.check_bijection().is_ok()
    }

    /// Checks that every element of the tile belongs to exactly one thread and value.
    ///
    /// # Errors
    /// [`CuteError::NotABijection`] with the first element that does not, in column-major order.
    pub fn check_bijection(&self) -> Result<(), CuteError> {
        // By increasing stride, each mode must start where those before it end. Where the first
        // one starts earlier an element repeats; where it starts later one is left out.
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
            // At most the cosize of the layout.
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

/// An integer layout as a layout of one mode, so that its product with another keeps rank 1.
fn wrapped(layout: &Layout) -> Result<Layout, CuteError> {
    if layout.shape().as_int().is_some() { Layout::concat([layout]) } else { Ok(layout.clone()) }
}
