//! Recast: the layout of the same bytes in wider or narrower elements.

use crate::compose::ceil_div;
use crate::{CuteError, IntTuple, Layout, Swizzle};

impl Layout {
    /// Merges each group of `factor` adjacent elements into one wider element.
    ///
    /// The extent of a mode of stride 1 is divided by `factor`, and so are the strides that are
    /// multiples of it. As in CuTe, the extent is rounded up if the factor does not divide it.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let halves = Layout::parse("(8,64):(64,1)").unwrap();
    /// assert_eq!(halves.upcast(8).unwrap().to_string(), "(8,8):(8,1)"); // 16-byte vectors
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::RecastFactor`] for a factor below 1, and
    /// [`CuteError::UpcastDivisibility`] for a stride that neither divides the factor nor is a
    /// multiple of it.
    pub fn upcast(&self, factor: i64) -> Result<Layout, CuteError> {
        check_factor(factor)?;
        self.map_leaves(&|extent, stride| {
            let step = stride.saturating_abs();
            if stride == 0 {
                return Ok((extent, 0));
            }
            if step % factor != 0 && factor % step != 0 {
                return Err(CuteError::UpcastDivisibility {
                    layout: Box::new(self.clone()),
                    stride,
                    factor,
                });
            }
            let together = ceil_div(factor, step);
            Ok((ceil_div(extent, together), stride.signum() * ceil_div(step, factor)))
        })
    }

    /// Splits each element into `factor` narrower elements.
    ///
    /// The extent of a mode of stride 1 or -1 is multiplied by `factor`, and so are all other
    /// strides.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let vectors = Layout::parse("(8,8):(8,1)").unwrap();
    /// assert_eq!(vectors.downcast(8).unwrap().to_string(), "(8,64):(64,1)");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::RecastFactor`] for a factor below 1, [`CuteError::DowncastStride`] if
    /// no mode has stride 1, and [`CuteError::Overflow`] if an extent or stride does not fit an
    /// `i64`.
    pub fn downcast(&self, factor: i64) -> Result<Layout, CuteError> {
        check_factor(factor)?;
        if !self.stride().leaves().contains(&1) {
            return Err(CuteError::DowncastStride { layout: Box::new(self.clone()), factor });
        }
        self.map_leaves(&|extent, stride| {
            let product = |value: i64| {
                value.checked_mul(factor).ok_or_else(|| CuteError::Overflow {
                    quantity: "a mode after downcast",
                    operand: Box::new([value, factor].into()),
                })
            };
            if stride.saturating_abs() == 1 {
                Ok((product(extent)?, stride))
            } else {
                Ok((extent, product(stride)?))
            }
        })
    }

    /// Converts the units of the layout from elements of `from_bits` bits to elements of `to_bits`
    /// bits.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let bytes = Layout::parse("(8,128):(128,1)").unwrap();
    /// assert_eq!(bytes.recast(8, 16).unwrap().to_string(), "(8,64):(64,1)");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::upcast`] and [`Layout::downcast`], and
    /// [`CuteError::ElementBits`] for a width below 1 bit.
    pub fn recast(&self, from_bits: i64, to_bits: i64) -> Result<Layout, CuteError> {
        let (up, down) = recast_factors(from_bits, to_bits)?;
        let wide = if up == 1 { self.clone() } else { self.upcast(up)? };
        if down == 1 { Ok(wide) } else { wide.downcast(down) }
    }

    /// Returns the largest `n` for which the set of indices consists of whole groups `n * i .. n *
    /// (i + 1)`.
    ///
    /// This is the length in elements of the widest aligned vector that can access the layout.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// assert_eq!(Layout::parse("(8,64):(72,1)").unwrap().max_alignment().unwrap(), 8);
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::logical_divide`] for layouts with overlapping modes or
    /// negative strides.
    pub fn max_alignment(&self) -> Result<i64, CuteError> {
        let flat = self.coalesce();
        let divided = flat.logical_divide(flat.right_inverse())?;
        let rest = divided.mode(1)?;
        Ok(rest.stride().leaves().into_iter().fold(divided.mode(0)?.size(), gcd))
    }

    fn map_leaves(
        &self,
        map: &dyn Fn(i64, i64) -> Result<(i64, i64), CuteError>,
    ) -> Result<Layout, CuteError> {
        match (self.shape(), self.stride()) {
            (IntTuple::Int(extent), IntTuple::Int(stride)) => {
                let (extent, stride) = map(*extent, *stride)?;
                Layout::new(extent, stride)
            }
            _ => {
                let modes = self.modes().iter().map(|mode| mode.map_leaves(map)).collect::<Result<
                    Vec<_>,
                    _,
                >>(
                )?;
                Layout::concat(&modes)
            }
        }
    }
}

impl Swizzle {
    /// Converts the swizzle to units of elements that are `factor` times as large. Bits that
    /// address within such an element are dropped.
    ///
    /// ```
    /// use pgemm_cute::Swizzle;
    ///
    /// let bytes = Swizzle::new(3, 4, 3).unwrap();
    /// assert_eq!(bytes.upcast(2).unwrap().to_string(), "Sw<3,3,3>"); // in 2-byte elements
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::SwizzleFactor`] unless the factor is a power of two.
    pub fn upcast(&self, factor: i64) -> Result<Swizzle, CuteError> {
        let log2 = log2(factor)?;
        match self.base().checked_sub(log2) {
            Some(base) => Swizzle::new(self.bits(), base, self.shift()),
            None => Swizzle::new((self.bits() + self.base()).saturating_sub(log2), 0, self.shift()),
        }
    }

    /// Converts the swizzle to units of elements that are smaller by `factor`.
    ///
    /// # Errors
    /// Returns [`CuteError::SwizzleFactor`] unless the factor is a power of two, and
    /// [`CuteError::SwizzleParameters`] if the masks exceed 62 bits.
    pub fn downcast(&self, factor: i64) -> Result<Swizzle, CuteError> {
        Swizzle::new(self.bits(), self.base() + log2(factor)?, self.shift())
    }

    /// Converts the swizzle from units of `from_bits` bits to units of `to_bits` bits.
    ///
    /// # Errors
    /// Returns the errors of [`Swizzle::upcast`] and [`Swizzle::downcast`], and
    /// [`CuteError::ElementBits`] for a width below 1 bit.
    pub fn recast(&self, from_bits: i64, to_bits: i64) -> Result<Swizzle, CuteError> {
        let (up, down) = recast_factors(from_bits, to_bits)?;
        self.upcast(up)?.downcast(down)
    }
}

/// Returns the upcast factor and the downcast factor, in lowest terms. The upcast is applied first.
pub(crate) fn recast_factors(from_bits: i64, to_bits: i64) -> Result<(i64, i64), CuteError> {
    if from_bits < 1 || to_bits < 1 {
        return Err(CuteError::ElementBits { from_bits, to_bits });
    }
    let common = gcd(from_bits, to_bits);
    Ok((to_bits / common, from_bits / common))
}

pub(crate) fn check_factor(factor: i64) -> Result<(), CuteError> {
    if factor < 1 { Err(CuteError::RecastFactor { factor }) } else { Ok(()) }
}

fn log2(factor: i64) -> Result<u32, CuteError> {
    if factor > 0 && factor.count_ones() == 1 {
        Ok(factor.trailing_zeros())
    } else {
        Err(CuteError::SwizzleFactor { factor })
    }
}

/// Returns the greatest common divisor of a positive integer and any integer.
fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a, b.saturating_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
