//! Layouts as functions: from a coordinate to its index.

use crate::coord::{idx2crd, is_within};
use crate::{CuteError, IntTuple, Layout, crd2idx};

impl Layout {
    /// Returns the index of a coordinate, which may be linear, natural or anything between.
    ///
    /// # Errors
    /// Returns [`CuteError::CoordinateProfile`] if the coordinate does not match the nesting of the
    /// shape, and [`CuteError::OutOfBounds`] if it lies outside the shape.
    pub fn index(&self, coord: impl Into<IntTuple>) -> Result<i64, CuteError> {
        let natural = self.coordinate(coord)?;
        crd2idx(&natural, &self.shape, &self.stride)
    }

    /// Returns the index of a coordinate that may lie outside the shape, as CuTe evaluates it.
    ///
    /// An integer coordinate is split over the modes from left to right, and the last mode is
    /// unbounded.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(4,3):(3,1)").unwrap();
    /// assert!(layout.index(12).is_err());
    /// assert_eq!(layout.index_extended(12).unwrap(), 3); // (0,3)
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`crd2idx`].
    pub fn index_extended(&self, coord: impl Into<IntTuple>) -> Result<i64, CuteError> {
        crd2idx(&coord.into(), &self.shape, &self.stride)
    }

    /// Converts a coordinate to the natural coordinate, which is congruent with the shape.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::col_major((3, (2, 3))).unwrap();
    /// assert_eq!(layout.coordinate(16).unwrap().to_string(), "(1,(1,2))");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::CoordinateProfile`] if the coordinate does not match the nesting of the
    /// shape, and [`CuteError::OutOfBounds`] if it lies outside the shape.
    pub fn coordinate(&self, coord: impl Into<IntTuple>) -> Result<IntTuple, CuteError> {
        let coord = coord.into();
        let natural = idx2crd(&coord, &self.shape)?;
        if is_within(&natural, &self.shape) {
            Ok(natural)
        } else {
            Err(CuteError::OutOfBounds {
                coord: Box::new(coord),
                shape: Box::new(self.shape.clone()),
            })
        }
    }
}
