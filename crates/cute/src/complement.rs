//! Complement: the layout of the repetitions of a layout.

use crate::compose::ceil_div;
use crate::{CuteError, Layout};

impl Layout {
    /// The layout of the repetitions of this one up to `cosize`: its indices increase, none but 0
    /// is an index of this layout, and both together span at least `cosize` indices.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,2):(1,6)").unwrap();
    /// assert_eq!(layout.complement(24).unwrap().to_string(), "(3,2):(2,12)");
    /// ```
    ///
    /// # Errors
    /// [`CuteError::ComplementTarget`] for a `cosize` below 1, [`CuteError::NegativeStride`], and
    /// [`CuteError::ComplementOverlap`] for layouts that repeat or interleave indices.
    pub fn complement(&self, cosize: i64) -> Result<Layout, CuteError> {
        if cosize < 1 {
            return Err(CuteError::ComplementTarget { layout: Box::new(self.clone()), cosize });
        }
        let filtered = self.filter();
        let mut modes = filtered.flat_modes();
        if let [(_, 0)] = modes.as_slice() {
            return Ok(Layout::trusted(cosize.into(), 1.into()).coalesce());
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

    /// The complement within the layout's own cosize: the holes in it.
    ///
    /// # Errors
    /// As [`Layout::complement`].
    pub fn holes(&self) -> Result<Layout, CuteError> {
        self.complement(self.filter().cosize())
    }
}
