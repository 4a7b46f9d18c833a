//! The complement of a layout: the layout that iterates over repetitions of it.

use crate::compose::ceil_div;
use crate::{CuteError, Layout};

impl Layout {
    /// Returns the layout that repeats this layout up to `cosize`, as CuTe's `complement` does.
    ///
    /// The indices of the complement increase, and only index 0 is shared with this layout. The
    /// concatenation of both layouts has a cosize of at least `cosize`.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,2):(1,6)").unwrap();
    /// assert_eq!(layout.complement(24).unwrap().to_string(), "(3,2):(2,12)");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::ComplementTarget`] for a `cosize` below 1,
    /// [`CuteError::NegativeStride`] for a layout with a negative stride, and
    /// [`CuteError::ComplementOverlap`] for a layout that repeats or interleaves indices.
    pub fn complement(&self, cosize: i64) -> Result<Layout, CuteError> {
        if cosize < 1 {
            return Err(CuteError::ComplementTarget { layout: Box::new(self.clone()), cosize });
        }
        let filtered = self.filter();
        let mut modes = filtered.flat_modes();
        if let [(_, 0)] = modes.as_slice() {
            return Ok(Layout::new_unchecked(cosize.into(), 1.into()).coalesce());
        }
        modes.sort_by_key(|&(_, stride)| stride);

        let mut result = Vec::with_capacity(modes.len() + 1);
        let mut span = 1;
        for (extent, stride) in modes {
            if stride < 0 {
                return Err(CuteError::NegativeStride {
                    operation: "complement",
                    layout: Box::new(self.clone()),
                    stride,
                });
            }
            if stride < span {
                return Err(CuteError::ComplementOverlap {
                    layout: Box::new(filtered.clone()),
                    stride,
                    span,
                });
            }
            result.push((stride / span, span));
            span = stride.checked_mul(extent).ok_or_else(|| CuteError::Overflow {
                quantity: "the span of a mode",
                operand: Box::new([extent, stride].into()),
            })?;
        }
        result.push((ceil_div(cosize, span), span));
        Ok(Layout::from_flat(&result)?.coalesce())
    }

    /// Returns the complement up to the cosize of the layout without its modes of stride 0.
    ///
    /// This is CuTe's `complement` with one argument, and it iterates over the gaps between the
    /// layout's indices.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("4:2").unwrap();
    /// assert_eq!(layout.holes().unwrap().to_string(), "2:1");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::complement`].
    pub fn holes(&self) -> Result<Layout, CuteError> {
        self.complement(self.filter().cosize())
    }
}
