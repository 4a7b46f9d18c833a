//! Composition: `(A o B)(c) = A(B(c))`, with a layout or by mode with a tiler.
//!
//! A layout on the right is composed leaf by leaf. Each leaf `s:d` divides the first `d` elements
//! out of the left-hand side's modes and keeps the next `s`. That is the composition only if the
//! leaves do not carry into one another's modes; CuTe leaves this to the caller, here it is checked.

use crate::{CuteError, IntTuple, Layout, Tiler};

impl Layout {
    /// The composition `self o rhs`: a layout over the domain of `rhs` with
    /// `result(c) = self(rhs(c))`, where `self` is continued beyond its domain in its last mode.
    /// With a tuple of tilers, each is composed with the mode it stands at, and modes beyond the
    /// tiler are dropped.
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
    /// [`CuteError::StrideDivisibility`], [`CuteError::ShapeDivisibility`], [`CuteError::Carry`] or
    /// [`CuteError::MixedSigns`] if no layout with this domain is the composition,
    /// [`CuteError::TooManyModes`] if the tiler has more modes than the layout,
    /// [`CuteError::Overflow`].
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
    /// The left-hand side, coalesced.
    modes: Vec<(i64, i64)>,
    rhs: &'a Layout,
    /// Largest coordinate that the leaves so far reach together in each mode but the last.
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
        let (mut rest, mut step) = (extent, checked_abs(stride)?);
        let mut result = Vec::new();
        let last = self.modes.len() - 1;
        for position in 0..last {
            let (mode_extent, mode_stride) = self.modes[position];
            let stride_error = || CuteError::StrideDivisibility {
                lhs: Box::new(self.lhs()),
                rhs: Box::new(Layout::trusted(extent.into(), stride.into())),
                stride: step,
                extent: mode_extent,
            };
            if rest > 1 && step >= mode_extent && step % mode_extent != 0 {
                return Err(stride_error());
            }
            // Both are at least 1.
            let available = ceil_div(mode_extent, step);
            let next_step = ceil_div(step, mode_extent);
            if available > 1 && rest > 1 {
                let taken = available.min(rest);
                if rest > taken && mode_extent % step != 0 {
                    return Err(stride_error());
                }
                if rest % taken != 0 {
                    return Err(CuteError::ShapeDivisibility {
                        lhs: Box::new(self.lhs()),
                        rhs: Box::new(Layout::trusted(extent.into(), stride.into())),
                        remaining: rest,
                        available,
                    });
                }
                result.push((taken, checked_mul(sign * step, mode_stride)?));
                // Below the mode's extent for one leaf; the leaves of a layout are far fewer than
                // it takes to overflow, and saturating keeps the check right.
                self.reach[position] = self.reach[position].saturating_add((taken - 1) * step);
                rest /= taken;
            }
            step = next_step;
        }
        if result.is_empty() || rest > 1 {
            result.push((rest, checked_mul(sign * step, self.modes[last].1)?));
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

    /// The left-hand side for error messages.
    fn lhs(&self) -> Layout {
        Layout::from_flat(&self.modes).unwrap_or_else(|_| Layout::trusted(1.into(), 0.into()))
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
