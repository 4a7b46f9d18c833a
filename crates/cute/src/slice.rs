//! Slicing: fixes the coordinates of some modes of a layout.

use crate::{ComposedLayout, CuteError, IntTuple, Layout};

impl Layout {
    /// Fixes the modes for which `coord` holds a coordinate, and keeps the modes for which it holds
    /// `None`.
    ///
    /// Returns the layout of the kept modes, and the index that the fixed coordinates contribute.
    ///
    /// ```
    /// use pgemm_cute::{Layout, Tiler};
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let tiles = Layout::row_major((64, 64))?.zipped_divide(Tiler::shape((16, 32))?)?;
    /// let (tile, offset) = tiles.slice(&[None, Some((1, 1).into())])?;
    /// assert_eq!(tile.to_string(), "((16,32)):((64,1))");
    /// assert_eq!(offset, 16 * 64 + 32);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::SliceRank`] unless there is one entry per mode,
    /// [`CuteError::EmptyTuple`] if no mode is kept, and otherwise the errors of [`Layout::index`]
    /// for each fixed mode.
    pub fn slice(&self, coord: &[Option<IntTuple>]) -> Result<(Layout, i64), CuteError> {
        let modes = self.modes();
        if coord.len() != modes.len() {
            return Err(CuteError::SliceRank {
                entries: coord.len(),
                rank: modes.len(),
                layout: Box::new(self.clone()),
            });
        }
        let (mut kept, mut offset) = (Vec::new(), 0);
        for (mode, coord) in modes.into_iter().zip(coord) {
            match coord {
                None => kept.push(mode),
                // The sum is the index of a coordinate of the whole layout, so it cannot overflow.
                Some(coord) => offset += mode.index(coord)?,
            }
        }
        Ok((Layout::concat(&kept)?, offset))
    }
}

impl ComposedLayout {
    /// Slices the layout like [`Layout::slice`], and adds the index of the fixed coordinates to the
    /// offset.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::slice`].
    pub fn slice(&self, coord: &[Option<IntTuple>]) -> Result<ComposedLayout, CuteError> {
        let (layout, start) = self.layout().slice(coord)?;
        // The sum is within the range of offset and layout that `new` checked, so it cannot
        // overflow.
        Self::new(self.swizzle(), self.offset() + start, layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Swizzle;

    #[test]
    fn a_slice_is_the_layout_at_the_fixed_coordinates() {
        let layout = Layout::parse("(4,(2,3),5):(30,(15,5),1)").unwrap();
        let swizzled = Swizzle::new(2, 1, 2).unwrap().over(&layout).unwrap();
        for column in 0..6 {
            let coord = [None, Some(column.into()), None];
            let (kept, offset) = layout.slice(&coord).unwrap();
            let composed = swizzled.slice(&coord).unwrap();
            assert_eq!(kept.to_string(), "(4,5):(30,1)");
            for row in 0..4 {
                for depth in 0..5 {
                    let whole = layout.index((row, column, depth)).unwrap();
                    assert_eq!(kept.index((row, depth)), Ok(whole - offset));
                    let whole = swizzled.index((row, column, depth));
                    assert_eq!(composed.index((row, depth)), whole);
                }
            }
        }
        assert!(matches!(layout.slice(&[None]), Err(CuteError::SliceRank { entries: 1, .. })));
        let fixed = [Some(0.into()), Some((1, 2).into()), Some(4.into())];
        assert_eq!(layout.slice(&fixed), Err(CuteError::EmptyTuple));
        let outside = [None, Some(6.into()), None];
        assert!(matches!(layout.slice(&outside), Err(CuteError::OutOfBounds { .. })));
    }
}
