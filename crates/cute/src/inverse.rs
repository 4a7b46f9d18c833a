//! Right and left inverses, common vectors of two layouts, and the nullspace.

use crate::{CuteError, Layout};

impl Layout {
    /// Returns the largest layout `R` for which `self(R(i)) = i` for every `i` below the size of
    /// `R`.
    ///
    /// The size of `R` is the length of the longest contiguous range `0..n` of indices that the
    /// modes of positive stride build up without gaps. For a bijection it is the size of the
    /// layout.
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
                // The product is at most the cosize, which fits an `i64`.
                next = stride.saturating_mul(extent);
            }
        }
        coalesce_modes(&result)
    }

    /// Returns a layout `L` for which `self(L(self(i))) = self(i)`.
    ///
    /// If the layout is injective, then `L(self(i)) = i`.
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
    /// Returns [`CuteError::NegativeStride`] for a layout with a negative stride, and
    /// [`CuteError::LeftInverseDivisibility`] if a stride does not divide the next larger one.
    pub fn left_inverse(&self) -> Result<Layout, CuteError> {
        let mut result = Vec::new();
        let mut last_stride = 1;
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
            if stride % last_stride != 0 {
                return Err(CuteError::LeftInverseDivisibility {
                    layout: Box::new(self.coalesce()),
                    stride,
                    divisor: last_stride,
                });
            }
            result.push(stride / last_stride);
            positions.push(position);
            last_stride = stride;
        }
        result.push(last_extent);
        let modes = result.into_iter().zip(positions).collect::<Vec<_>>();
        Ok(Layout::from_flat(&modes)?.coalesce())
    }

    /// Returns the largest layout `R` over which both layouts are contiguous: `self(R(i)) =
    /// other(R(i)) = i` for every `i` below the size of `R`.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::compose`].
    pub fn max_common_layout(&self, other: &Layout) -> Result<Layout, CuteError> {
        let inverse = other.right_inverse();
        let common = self.compose_layout(&inverse)?.coalesce();
        match common.flat_modes().first() {
            Some(&(extent, 1)) => inverse.compose_layout(&Layout::new(extent, 1)?),
            _ => Ok(Layout::new_unchecked(1.into(), 0.into())),
        }
    }

    /// Returns the number of contiguous elements that both layouts hold at the same coordinates.
    ///
    /// This is the length in elements of the widest vector that a copy between the layouts can use.
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
    /// Returns the errors of [`Layout::compose`].
    pub fn max_common_vector(&self, other: &Layout) -> Result<i64, CuteError> {
        let common = self.compose_layout(&other.right_inverse())?.coalesce();
        Ok(match common.flat_modes().first() {
            Some(&(extent, 1)) => extent,
            _ => 1,
        })
    }

    /// Returns the layout of the linear coordinates that the modes of stride 0 map to index 0.
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
        coalesce_modes(&result)
    }

    /// Returns the coalesced modes by increasing stride, as (extent, stride, position). The
    /// position is the linear coordinate whose only nonzero coordinate is a 1 in this mode.
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

/// Coalesces a layout of modes whose extents are among the extents of a valid layout.
fn coalesce_modes(modes: &[(i64, i64)]) -> Layout {
    Layout::new_unchecked(
        modes.iter().map(|mode| mode.0).collect(),
        modes.iter().map(|mode| mode.1).collect(),
    )
    .coalesce()
}
