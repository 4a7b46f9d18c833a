//! [`Layout`]: its parts, and all its indices.

use std::fmt;

use crate::IntTuple;

/// A function from coordinates to indices, written `shape:stride`.
///
/// Every extent is at least 1, and a stride may be any integer. The constructors check that size
/// and cosize fit an `i64`, so evaluation within the domain cannot overflow.
///
/// A coordinate may be linear (one integer), natural (congruent with the shape) or anything
/// between.
///
/// ```
/// use pgemm_cute::Layout;
///
/// # fn main() -> Result<(), pgemm_cute::CuteError> {
/// let layout = Layout::new((3, (2, 3)), (3, (12, 1)))?;
/// assert_eq!(layout.to_string(), "(3,(2,3)):(3,(12,1))");
/// assert_eq!(layout.index(16)?, 17); // linear coordinate
/// assert_eq!(layout.index((1, 5))?, 17); // row and column
/// assert_eq!(layout.index((1, (1, 2)))?, 17); // natural coordinate
/// assert_eq!((layout.size(), layout.cosize()), (18, 21));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    pub(crate) shape: IntTuple,
    pub(crate) stride: IntTuple,
}

impl Layout {
    /// Creates a layout without checking its invariants. The caller derives `shape` and `stride`
    /// from valid layouts in a way that preserves them.
    pub(crate) fn new_unchecked(shape: IntTuple, stride: IntTuple) -> Self {
        debug_assert!(Self::new(shape.clone(), stride.clone()).is_ok(), "{shape}:{stride}");
        Self { shape, stride }
    }

    /// Returns the leaves from left to right as `(extent, stride)`.
    pub(crate) fn flat_modes(&self) -> Vec<(i64, i64)> {
        self.shape.leaves().into_iter().zip(self.stride.leaves()).collect()
    }

    /// Returns the shape.
    pub fn shape(&self) -> &IntTuple {
        &self.shape
    }

    /// Returns the stride, which is congruent with the shape.
    pub fn stride(&self) -> &IntTuple {
        &self.stride
    }

    /// Returns the number of modes at the top level.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Returns the number of nesting levels of the shape; an integer shape has depth 0.
    pub fn depth(&self) -> usize {
        self.shape.depth()
    }

    /// Returns the number of coordinates in the domain, the product of all extents.
    pub fn size(&self) -> i64 {
        self.shape.leaves().iter().product()
    }

    /// Returns the distance between the smallest and the largest index, plus 1.
    ///
    /// Without negative strides this is the number of elements of storage that the layout
    /// addresses.
    pub fn cosize(&self) -> i64 {
        self.flat_modes().iter().map(|(s, d)| (s - 1) * d.abs()).sum::<i64>() + 1
    }

    /// Iterates over the indices of all coordinates, in the order of the linear coordinates.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,4):(4,1)").unwrap();
    /// assert_eq!(layout.indices().collect::<Vec<_>>(), [0, 4, 1, 5, 2, 6, 3, 7]);
    /// ```
    pub fn indices(&self) -> Indices {
        let modes = self.flat_modes();
        Indices { position: vec![0; modes.len()], modes, index: 0, left: self.size() }
    }

    /// Returns whether the layout takes each value in `0..size` exactly once.
    pub fn is_bijection(&self) -> bool {
        // A layout is such a bijection if and only if, by increasing stride, the stride of each
        // mode of extent above 1 is the product of the extents before it. The right inverse follows
        // this chain of modes and stops at the first gap.
        self.right_inverse().size() == self.size()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape, self.stride)
    }
}

/// Iterator over the indices of a layout, in the order of its linear coordinates.
#[derive(Debug, Clone)]
pub struct Indices {
    modes: Vec<(i64, i64)>,
    position: Vec<i64>,
    index: i64,
    left: i64,
}

impl Iterator for Indices {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        if self.left == 0 {
            return None;
        }
        let index = self.index;
        self.left -= 1;
        if self.left > 0 {
            for ((extent, stride), position) in self.modes.iter().zip(&mut self.position) {
                if *position + 1 < *extent {
                    *position += 1;
                    self.index += stride;
                    break;
                }
                self.index -= *position * stride;
                *position = 0;
            }
        }
        Some(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).ok();
        (left.unwrap_or(usize::MAX), left)
    }
}
