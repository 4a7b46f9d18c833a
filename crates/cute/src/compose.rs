//! Composition `(A o B)(c) = A(B(c))`, with a layout `B` or by mode with a tiler.
//!
//! The right-hand side is composed leaf by leaf. For a leaf `s:d`, the modes of the left-hand side
//! are divided by `d`, and then `s` elements of the quotient are kept. The concatenation of the
//! composed leaves equals the composition only if the leaves do not carry into one another's modes.
//! CuTe leaves this condition to the caller, whereas this module checks it.

use crate::{CuteError, IntTuple, Layout, Tiler};

impl Layout {
    /// Returns the composition `self o rhs`, for which `result(c) = self(rhs(c))`.
    ///
    /// The shape of `rhs` is compatible with that of the result. The indices of `rhs` may leave the
    /// domain of `self`, because the last mode of `self` is taken to be unbounded.
    ///
    /// A tuple of tilers composes mode by mode, and modes beyond the tiler are dropped.
    ///
    /// ```
    /// use pgemm_cute::{Layout, Tiler};
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let a = Layout::parse("(10,2):(16,4)")?;
    /// let b = Layout::parse("(5,4):(1,5)")?;
    /// assert_eq!(a.compose(&b)?.to_string(), "(5,(2,2)):(16,(80,4))");
    ///
    /// let a = Layout::parse("(12,(4,8)):(59,(13,1))")?;
    /// let tiler = Tiler::parse("(3:4,8:2)")?;
    /// assert_eq!(a.compose(&tiler)?.to_string(), "(3,(2,4)):(236,(26,1))");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::StrideDivisibility`], [`CuteError::ShapeDivisibility`],
    /// [`CuteError::Carry`] or [`CuteError::MixedSigns`] if a condition of composition is violated,
    /// [`CuteError::TooManyModes`] if the tiler has more modes than the layout, and
    /// [`CuteError::Overflow`] if the result does not fit an `i64`.
    pub fn compose(&self, rhs: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.compose_tiler(&rhs.into())
    }

    fn compose_tiler(&self, rhs: &Tiler) -> Result<Layout, CuteError> {
        match rhs {
            Tiler::Keep => Ok(self.clone()),
            Tiler::Layout(rhs) => self.compose_layout(rhs),
            Tiler::Tuple(tilers) => {
                let modes = self.modes();
                if tilers.len() > modes.len() {
                    return Err(self.too_many_modes("composition", tilers.len()));
                }
                let composed = modes
                    .iter()
                    .zip(tilers)
                    .map(|(mode, tiler)| mode.compose_tiler(tiler))
                    .collect::<Result<Vec<_>, _>>()?;
                Layout::concat(&composed)
            }
        }
    }

    pub(crate) fn compose_layout(&self, rhs: &Layout) -> Result<Layout, CuteError> {
        let mut composition = Composition::new(self.coalesced_beyond_domain(), rhs);
        let (shape, stride) = composition.compose(rhs.shape(), rhs.stride())?;
        composition.check_carry()?;
        Layout::new(shape, stride)
    }

    pub(crate) fn too_many_modes(&self, operation: &'static str, modes: usize) -> CuteError {
        CuteError::TooManyModes {
            operation,
            modes,
            rank: self.rank(),
            layout: Box::new(self.clone()),
        }
    }
}

struct Composition<'a> {
    /// Modes (extent, stride) of the left-hand side, coalesced.
    modes: Vec<(i64, i64)>,
    rhs: &'a Layout,
    /// For each mode of the left-hand side except the last: the largest coordinate in it that the
    /// leaves composed so far reach together.
    reach: Vec<i64>,
    has_positive: bool,
    has_negative: bool,
}

impl<'a> Composition<'a> {
    fn new(modes: Vec<(i64, i64)>, rhs: &'a Layout) -> Self {
        let reach = vec![0; modes.len()];
        Self { modes, rhs, reach, has_positive: false, has_negative: false }
    }

    fn compose(
        &mut self,
        shape: &IntTuple,
        stride: &IntTuple,
    ) -> Result<(IntTuple, IntTuple), CuteError> {
        match (shape, stride) {
            (IntTuple::Int(extent), IntTuple::Int(stride)) => {
                let modes = self.compose_leaf(*extent, *stride)?;
                let (shapes, strides): (Vec<_>, Vec<_>) =
                    modes.into_iter().map(|(s, d)| (IntTuple::Int(s), IntTuple::Int(d))).unzip();
                Ok((IntTuple::unwrapped(shapes), IntTuple::unwrapped(strides)))
            }
            _ => {
                let parts = shape
                    .modes()
                    .iter()
                    .zip(stride.modes())
                    .map(|(shape, stride)| self.compose(shape, stride))
                    .collect::<Result<Vec<_>, _>>()?;
                let (shapes, strides): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
                Ok((IntTuple::Tuple(shapes), IntTuple::Tuple(strides)))
            }
        }
    }

    fn compose_leaf(&mut self, extent: i64, stride: i64) -> Result<Vec<(i64, i64)>, CuteError> {
        if stride == 0 {
            return Ok(vec![(extent, 0)]);
        }
        if extent > 1 {
            self.has_positive |= stride > 0;
            self.has_negative |= stride < 0;
        }
        let sign = stride.signum();
        let (mut rest_extent, mut rest_stride) = (extent, checked_abs(stride)?);
        let mut result = Vec::new();
        let last = self.modes.len() - 1;
        for position in 0..last {
            let (mode_extent, mode_stride) = self.modes[position];
            let stride_error = || CuteError::StrideDivisibility {
                lhs: Box::new(self.lhs()),
                rhs: Box::new(Layout::new_unchecked(extent.into(), stride.into())),
                stride: rest_stride,
                extent: mode_extent,
            };
            if rest_extent > 1 && rest_stride >= mode_extent && rest_stride % mode_extent != 0 {
                return Err(stride_error());
            }
            // Both quotients are at least 1.
            let available = ceil_div(mode_extent, rest_stride);
            let next_stride = ceil_div(rest_stride, mode_extent);
            if available > 1 && rest_extent > 1 {
                let selected = available.min(rest_extent);
                if rest_extent > selected && mode_extent % rest_stride != 0 {
                    return Err(stride_error());
                }
                if rest_extent % selected != 0 {
                    return Err(CuteError::ShapeDivisibility {
                        lhs: Box::new(self.lhs()),
                        rhs: Box::new(Layout::new_unchecked(extent.into(), stride.into())),
                        remaining: rest_extent,
                        available,
                    });
                }
                result.push((selected, checked_mul(sign * rest_stride, mode_stride)?));
                // A single leaf adds less than the mode's extent. A saturated sum is at least
                // every extent, so the carry check stays correct.
                self.reach[position] =
                    self.reach[position].saturating_add((selected - 1) * rest_stride);
                rest_extent /= selected;
            }
            rest_stride = next_stride;
        }
        if result.is_empty() || rest_extent > 1 {
            result.push((rest_extent, checked_mul(sign * rest_stride, self.modes[last].1)?));
        }
        Ok(result)
    }

    fn check_carry(&self) -> Result<(), CuteError> {
        let (_, inner) = self.modes.split_last().unwrap_or((&(1, 0), &[]));
        if !inner.is_empty() && self.has_positive && self.has_negative {
            return Err(CuteError::MixedSigns {
                lhs: Box::new(self.lhs()),
                rhs: Box::new(self.rhs.clone()),
            });
        }
        for (&(extent, _), &reach) in inner.iter().zip(&self.reach) {
            if reach >= extent {
                return Err(CuteError::Carry {
                    lhs: Box::new(self.lhs()),
                    rhs: Box::new(self.rhs.clone()),
                    reach,
                    extent,
                });
            }
        }
        Ok(())
    }

    /// Returns the left-hand side for error messages.
    fn lhs(&self) -> Layout {
        Layout::from_flat(&self.modes).unwrap_or_else(|_| Layout::new_unchecked(1.into(), 0.into()))
    }
}

pub(crate) fn ceil_div(a: i64, b: i64) -> i64 {
    a / b + i64::from(a % b != 0)
}

fn checked_abs(stride: i64) -> Result<i64, CuteError> {
    stride.checked_abs().ok_or_else(|| CuteError::Overflow {
        quantity: "the magnitude of a stride",
        operand: Box::new(stride.into()),
    })
}

fn checked_mul(a: i64, b: i64) -> Result<i64, CuteError> {
    a.checked_mul(b).ok_or_else(|| CuteError::Overflow {
        quantity: "the product of two strides in a composition",
        operand: Box::new(IntTuple::from([a, b])),
    })
}
