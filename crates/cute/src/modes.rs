//! Mode manipulation: selecting, appending, replacing, grouping and flattening modes.

use crate::{CuteError, Layout};

impl Layout {
    /// Returns mode `mode` of the top level as a layout.
    ///
    /// # Errors
    /// Returns [`CuteError::NoSuchMode`] if `mode` is not below the rank.
    pub fn mode(&self, mode: usize) -> Result<Layout, CuteError> {
        match (self.shape().get(mode), self.stride().get(mode)) {
            (Some(shape), Some(stride)) => Ok(Self::new_unchecked(shape.clone(), stride.clone())),
            _ => Err(CuteError::NoSuchMode {
                mode,
                rank: self.rank(),
                layout: Box::new(self.clone()),
            }),
        }
    }

    /// Returns the nested mode that `path` leads to, outermost level first. The path `[1, 0]`
    /// selects mode 0 of mode 1.
    ///
    /// # Errors
    /// Returns [`CuteError::NoSuchMode`] if a level has no mode of that number.
    pub fn mode_at(&self, path: &[usize]) -> Result<Layout, CuteError> {
        path.iter().try_fold(self.clone(), |layout, &mode| layout.mode(mode))
    }

    /// Returns the modes of the top level as layouts. A layout of depth 0 is its own single mode.
    pub fn modes(&self) -> Vec<Layout> {
        let strides = self.stride().modes().iter();
        self.shape()
            .modes()
            .iter()
            .zip(strides)
            .map(|(shape, stride)| Self::new_unchecked(shape.clone(), stride.clone()))
            .collect()
    }

    /// Returns the modes `begin..end` as a layout of rank `end - begin`.
    ///
    /// # Errors
    /// Returns [`CuteError::ModeRange`] if the range is empty or exceeds the rank.
    pub fn take(&self, begin: usize, end: usize) -> Result<Layout, CuteError> {
        let modes = self.modes();
        match modes.get(begin..end) {
            Some(range) if !range.is_empty() => Self::concat(range),
            _ => Err(self.mode_range(begin, end)),
        }
    }

    /// Returns a layout of the listed modes, in the order of the list.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::col_major((2, 3, 5, 7)).unwrap();
    /// assert_eq!(layout.select(&[3, 1]).unwrap().to_string(), "(7,3):(30,2)");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::NoSuchMode`] for a mode that does not exist, and
    /// [`CuteError::EmptyTuple`] for an empty list.
    pub fn select(&self, modes: &[usize]) -> Result<Layout, CuteError> {
        let selected = modes.iter().map(|&mode| self.mode(mode)).collect::<Result<Vec<_>, _>>()?;
        Self::concat(&selected)
    }

    /// Appends `other` as the last mode.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::new`].
    pub fn append(&self, other: &Layout) -> Result<Layout, CuteError> {
        let mut modes = self.modes();
        modes.push(other.clone());
        Self::concat(&modes)
    }

    /// Prepends `other` as the first mode.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::new`].
    pub fn prepend(&self, other: &Layout) -> Result<Layout, CuteError> {
        let mut modes = self.modes();
        modes.insert(0, other.clone());
        Self::concat(&modes)
    }

    /// Appends modes `1:0` until the layout has rank `rank`.
    ///
    /// # Errors
    /// Returns [`CuteError::RankTooSmall`] if the layout has more than `rank` modes.
    pub fn append_to_rank(&self, rank: usize) -> Result<Layout, CuteError> {
        self.pad_to_rank(rank, false)
    }

    /// Prepends modes `1:0` until the layout has rank `rank`.
    ///
    /// # Errors
    /// Returns [`CuteError::RankTooSmall`] if the layout has more than `rank` modes.
    pub fn prepend_to_rank(&self, rank: usize) -> Result<Layout, CuteError> {
        self.pad_to_rank(rank, true)
    }

    fn pad_to_rank(&self, rank: usize, in_front: bool) -> Result<Layout, CuteError> {
        let missing = match rank.checked_sub(self.rank()) {
            None => return Err(CuteError::RankTooSmall { rank, layout: Box::new(self.clone()) }),
            Some(0) => return Ok(self.clone()),
            Some(missing) => missing,
        };
        let mut modes = self.modes();
        let at = if in_front { 0 } else { modes.len() };
        let unit = Self::new_unchecked(1.into(), 0.into());
        modes.splice(at..at, std::iter::repeat_n(unit, missing));
        Self::concat(&modes)
    }

    /// Replaces mode `mode` by `other`. For a layout of depth 0 the result is `other` itself.
    ///
    /// # Errors
    /// Returns [`CuteError::NoSuchMode`] if `mode` is not below the rank, otherwise the errors of
    /// [`Layout::new`].
    pub fn replace(&self, mode: usize, other: &Layout) -> Result<Layout, CuteError> {
        self.mode(mode)?;
        if self.shape().as_int().is_some() {
            return Ok(other.clone());
        }
        let mut modes = self.modes();
        modes[mode] = other.clone();
        Self::concat(&modes)
    }

    /// Groups the modes `begin..end` into one nested mode, as CuTe's `group_modes` does.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::col_major((2, 3, 5, 7)).unwrap();
    /// let grouped = layout.group_modes(0, 2).unwrap();
    /// assert_eq!(grouped.to_string(), "((2,3),5,7):((1,2),6,30)");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::ModeRange`] if the range is empty or exceeds the rank, and
    /// [`CuteError::TooDeep`] if the result is nested deeper than [`MAX_DEPTH`](crate::MAX_DEPTH).
    pub fn group_modes(&self, begin: usize, end: usize) -> Result<Layout, CuteError> {
        let group = self.take(begin, end)?;
        let mut modes = self.modes();
        modes.splice(begin..end, [group]);
        Self::concat(&modes)
    }

    /// Removes all nesting, which leaves the function on linear coordinates unchanged. The result
    /// has depth 0 or 1.
    pub fn flatten(&self) -> Layout {
        Self::new_unchecked(self.shape().flatten(), self.stride().flatten())
    }

    fn mode_range(&self, begin: usize, end: usize) -> CuteError {
        CuteError::ModeRange { begin, end, rank: self.rank(), layout: Box::new(self.clone()) }
    }
}
