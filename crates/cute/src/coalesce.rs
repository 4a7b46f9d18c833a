//! Simplification: `coalesce` and `filter`, as a whole and by mode.

use crate::{CuteError, IntTuple, Layout};

impl Layout {
    /// The simplest layout that is the same function on linear coordinates: flat, without modes of
    /// extent 1, and with neighbouring modes merged where one continues the other.
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

    /// Coalesces each mode where `profile` has a leaf; the values of the leaves do not matter, and
    /// modes beyond the profile stay as they are.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,(1,6)):(1,(6,2))").unwrap();
    /// assert_eq!(layout.coalesce_by_mode((1, 1)).unwrap().to_string(), "(2,6):(1,2)");
    /// ```
    ///
    /// # Errors
    /// [`CuteError::TooManyModes`] if the profile has more modes than the layout.
    pub fn coalesce_by_mode(&self, profile: impl Into<IntTuple>) -> Result<Layout, CuteError> {
        self.by_profile("coalesce", &profile.into(), &Layout::coalesce)
    }

    /// Sets the extent of every mode of stride 0 to 1, keeping the nesting.
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
        Self::trusted(ones(self.shape(), self.stride()), self.stride().clone())
    }

    /// The layout without its modes of stride 0, coalesced: as many distinct indices with a
    /// smaller domain.
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

    /// Filters each mode where `profile` has a leaf.
    ///
    /// # Errors
    /// [`CuteError::TooManyModes`] if the profile has more modes than the layout.
    pub fn filter_by_mode(&self, profile: impl Into<IntTuple>) -> Result<Layout, CuteError> {
        self.by_profile("filter", &profile.into(), &Layout::filter)
    }

    /// The leaves for composition from the left: coalesced, but also as a function beyond the
    /// domain, where a last mode of extent 1 still counts.
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

    /// [`Layout::from_flat`] for modes that came from a valid layout of at least this extent.
    fn rebuild(modes: &[(i64, i64)]) -> Layout {
        match modes {
            [(extent, stride)] => Self::trusted((*extent).into(), (*stride).into()),
            _ => Self::trusted(
                modes.iter().map(|mode| mode.0).collect(),
                modes.iter().map(|mode| mode.1).collect(),
            ),
        }
    }
}

/// Drops modes of extent 1 and merges each mode with the next where it continues it. At least one
/// mode remains.
fn merge(modes: &[(i64, i64)]) -> Vec<(i64, i64)> {
    // From the right, because what a mode merges with is the one after it.
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
