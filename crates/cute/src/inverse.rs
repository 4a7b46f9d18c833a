//! Right and left inverse, and what two layouts have in common.

use crate::{CuteError, Layout};

impl Layout {
    /// The largest layout `R` with `self(R(i)) = i` for all `i` below its size.
    ///
    /// It covers `0..n`, the longest contiguous range of indices that the modes of positive stride
    /// build up without gaps; for a bijection that is everything.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(8,4):(4,1)").unwrap();
    /// assert_eq!(layout.right_inverse().to_string(), "(4,8):(8,1)");
    /// ```
    pub fn right_inverse(&self) -> Layout {
        let mut result = vec![(1, 0)];
        let mut next = 1;
        for (extent, stride, position) in self.by_stride() {
            if stride == next {
                result.push((extent, position));
                // At most the cosize, by the invariant of layouts.
                next = stride.saturating_mul(extent);
            }
        }
        simplified(&result)
    }

    /// A layout `L` with `self(L(self(i))) = self(i)`; if `self` takes no value twice,
    /// `L(self(i)) = i`.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(4,2):(1,5)").unwrap();
    /// let left = layout.left_inverse().unwrap();
    /// assert_eq!(left.to_string(), "(5,2):(1,4)");
    /// assert!((0..8).all(|i| left.index(layout.index(i).unwrap()) == Ok(i)));
    /// ```
    ///
    /// # Errors
    /// [`CuteError::NegativeStride`], or [`CuteError::LeftInverseDivisibility`] if the strides do
    /// not divide one another in increasing order.
    pub fn left_inverse(&self) -> Result<Layout, CuteError> {
        let mut result = Vec::new();
        let mut reached = 1;
        let mut positions = vec![0];
        let mut last_extent = 1;
        for (extent, stride, position) in self.by_stride() {
            if stride < 0 {
                return Err(CuteError::NegativeStride {
                    operation: "left inverse",
                    layout: Box::new(self.clone()),
                    stride,
                });
            }
            last_extent = extent;
            if stride == 0 {
                continue;
            }
            if stride % reached != 0 {
                return Err(CuteError::LeftInverseDivisibility {
                    layout: Box::new(self.coalesce()),
                    stride,
                    divisor: reached,
                });
            }
            result.push(stride / reached);
            positions.push(position);
            reached = stride;
        }
        result.push(last_extent);
        let modes = result.into_iter().zip(positions).collect::<Vec<_>>();
        Ok(Layout::from_flat(&modes)?.coalesce())
    }

    /// The longest layout `R` that both layouts read contiguously: `self(R(i)) = other(R(i)) = i`
    /// for all `i` below its size.
    ///
    /// # Errors
    /// As [`Layout::compose`].
    pub fn max_common_layout(&self, other: &Layout) -> Result<Layout, CuteError> {
        let inverse = other.right_inverse();
        let common = self.compose_layout(&inverse)?.coalesce();
        match common.flat_modes().first() {
            Some(&(extent, 1)) => inverse.compose_layout(&Layout::new(extent, 1)?),
            _ => Ok(Layout::trusted(1.into(), 0.into())),
        }
    }

    /// How many contiguous elements both layouts hold at the same coordinates: the widest vector
    /// that a copy between them can move, in elements.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let source = Layout::parse("((4,2),8):((1,32),4)").unwrap();
    /// let target = Layout::parse("(8,8):(1,8)").unwrap();
    /// assert_eq!(source.max_common_vector(&target).unwrap(), 4);
    /// ```
    ///
    /// # Errors
    /// As [`Layout::compose`].
    pub fn max_common_vector(&self, other: &Layout) -> Result<i64, CuteError> {
        let common = self.compose_layout(&other.right_inverse())?.coalesce();
        Ok(match common.flat_modes().first() {
            Some(&(extent, 1)) => extent,
            _ => 1,
        })
    }

    /// The layout of the coordinates that map to index 0 because of strides of 0.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,4,3):(1,0,2)").unwrap();
    /// assert_eq!(layout.nullspace().to_string(), "4:2");
    /// ```
    pub fn nullspace(&self) -> Layout {
        let mut position = 1;
        let mut result = Vec::new();
        for (extent, stride) in self.flat_modes() {
            if stride == 0 && extent > 1 {
                result.push((extent, position));
            }
            position *= extent;
        }
        result.insert(0, (1, 0));
        simplified(&result)
    }

    /// The coalesced modes by increasing stride, as (extent, stride, linear coordinate at which
    /// the mode advances).
    fn by_stride(&self) -> Vec<(i64, i64, i64)> {
        let mut position = 1;
        let mut modes = Vec::new();
        for (extent, stride) in self.coalesce().flat_modes() {
            modes.push((extent, stride, position));
            position *= extent;
        }
        modes.sort_by_key(|&(_, stride, _)| stride);
        modes
    }
}

/// Coalesced layout of modes whose extents are those of some of a valid layout's modes.
fn simplified(modes: &[(i64, i64)]) -> Layout {
    Layout::trusted(
        modes.iter().map(|mode| mode.0).collect(),
        modes.iter().map(|mode| mode.1).collect(),
    )
    .coalesce()
}
