//! Simplification of layouts: `coalesce` and `filter`, for the whole layout or by mode.

use crate::{CuteError, IntTuple, Layout};

impl Layout {
    /// Returns the simplified layout that is the same function on linear coordinates.
    ///
    /// The result is flat and has no modes of extent 1; a layout of size 1 becomes `1:0`. Two
    /// neighbouring modes `s0:d0` and `s1:d1` merge into one mode if `d1 = s0 * d0`.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,(1,6)):(1,(6,2))").unwrap();
    /// assert_eq!(layout.coalesce().to_string(), "12:1");
    /// ```
    pub fn coalesce(&self) -> Layout {
        let mut modes = merge(&self.flat_modes());
        if let [(1, stride)] = modes.as_mut_slice() {
            *stride = 0;
        }
        Self::rebuild(&modes)
    }

    /// Coalesces each mode for which `profile` has a leaf.
    ///
    /// The values of the leaves have no meaning, and modes beyond the profile stay unchanged. The
    /// rank of the result is that of the layout, so a matrix remains a matrix.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,(1,6)):(1,(6,2))").unwrap();
    /// assert_eq!(layout.coalesce_by_mode((1, 1)).unwrap().to_string(), "(2,6):(1,2)");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::TooManyModes`] if the profile has more modes than the layout.
    pub fn coalesce_by_mode(&self, profile: impl Into<IntTuple>) -> Result<Layout, CuteError> {
        self.by_profile("coalesce", &profile.into(), &Layout::coalesce)
    }

    /// Sets the extent of every mode of stride 0 to 1, and keeps the nesting.
    pub fn filter_zeros(&self) -> Layout {
        fn ones(shape: &IntTuple, stride: &IntTuple) -> IntTuple {
            match (shape, stride) {
                (_, IntTuple::Int(0)) => IntTuple::Int(1),
                (IntTuple::Tuple(shapes), IntTuple::Tuple(strides)) => {
                    shapes.iter().zip(strides).map(|(shape, stride)| ones(shape, stride)).collect()
                }
                _ => shape.clone(),
            }
        }
        Self::new_unchecked(ones(self.shape(), self.stride()), self.stride().clone())
    }

    /// Removes the modes of stride 0 and coalesces the result.
    ///
    /// The result takes the same set of indices, on a smaller domain.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,4,4):(4,1,0)").unwrap();
    /// assert_eq!(layout.filter().to_string(), "(2,4):(4,1)");
    /// ```
    pub fn filter(&self) -> Layout {
        self.filter_zeros().coalesce()
    }

    /// Filters each mode for which `profile` has a leaf, like [`Layout::coalesce_by_mode`].
    ///
    /// # Errors
    /// Returns [`CuteError::TooManyModes`] if the profile has more modes than the layout.
    pub fn filter_by_mode(&self, profile: impl Into<IntTuple>) -> Result<Layout, CuteError> {
        self.by_profile("filter", &profile.into(), &Layout::filter)
    }

    /// Returns the coalesced modes of the left-hand side of a composition.
    ///
    /// The result is the same function also for coordinates beyond the domain. The last mode
    /// continues there, so it is kept even if its extent is 1.
    pub(crate) fn coalesced_beyond_domain(&self) -> Vec<(i64, i64)> {
        let mut modes = self.flat_modes();
        if let Some((extent, _)) = modes.last_mut()
            && *extent == 1
        {
            *extent = 2;
        }
        merge(&modes)
    }

    fn by_profile(
        &self,
        operation: &'static str,
        profile: &IntTuple,
        simplify: &dyn Fn(&Layout) -> Layout,
    ) -> Result<Layout, CuteError> {
        let IntTuple::Tuple(profiles) = profile else { return Ok(simplify(self)) };
        let mut modes = self.modes();
        if profiles.len() > modes.len() {
            return Err(CuteError::TooManyModes {
                operation,
                modes: profiles.len(),
                rank: modes.len(),
                layout: Box::new(self.clone()),
            });
        }
        for (mode, profile) in modes.iter_mut().zip(profiles) {
            *mode = mode.by_profile(operation, profile, simplify)?;
        }
        Layout::concat(&modes)
    }

    /// Does what [`Layout::from_flat`] does, for modes derived from a valid layout of at least this
    /// cosize.
    fn rebuild(modes: &[(i64, i64)]) -> Layout {
        match modes {
            [(extent, stride)] => Self::new_unchecked((*extent).into(), (*stride).into()),
            _ => Self::new_unchecked(
                modes.iter().map(|mode| mode.0).collect(),
                modes.iter().map(|mode| mode.1).collect(),
            ),
        }
    }
}

/// Drops modes of extent 1 and merges each mode with the next if their strides are contiguous. At
/// least one mode remains.
fn merge(modes: &[(i64, i64)]) -> Vec<(i64, i64)> {
    // The loop runs from the right because each mode is compared with the mode after it.
    let mut merged: Vec<(i64, i64)> = Vec::with_capacity(modes.len());
    for &(extent, stride) in modes.iter().rev() {
        match merged.last_mut() {
            None => merged.push((extent, stride)),
            Some(_) if extent == 1 => {}
            Some(next) if next.0 == 1 => *next = (extent, stride),
            Some(next) if extent.checked_mul(stride) == Some(next.1) => {
                *next = (extent.saturating_mul(next.0), stride);
            }
            Some(_) => merged.push((extent, stride)),
        }
    }
    merged.reverse();
    merged
}
