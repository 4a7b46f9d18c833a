//! alpha and beta, converted to the types in which kernels take them.

use pgemm_ir::Element;

use super::Problem;
use crate::error::PlanError;

impl Problem {
    /// alpha and beta for products of integers with a D of s32.
    ///
    /// # Errors
    /// One of them is not a 32-bit integer.
    pub fn integer_scalars(&self) -> Result<[i32; 2], PlanError> {
        Ok([integer_scalar("alpha", self.alpha)?, integer_scalar("beta", self.beta)?])
    }

    /// alpha and beta for all other products except those of f64: rounded to the nearest binary32.
    ///
    /// # Errors
    /// One of them is beyond the range of binary32, or too small for a normal binary32.
    pub fn single_scalars(&self) -> Result<[f32; 2], PlanError> {
        Ok([single_scalar("alpha", self.alpha)?, single_scalar("beta", self.beta)?])
    }

    /// Checks alpha and beta for a product with results of this type.
    ///
    /// # Errors
    /// The errors of [`integer_scalars`](Self::integer_scalars) for s32, none for f64, and those of
    /// [`single_scalars`](Self::single_scalars) for other types.
    pub fn check_scalars(&self, output: Element) -> Result<(), PlanError> {
        match output {
            Element::S32 => self.integer_scalars().map(|_| ()),
            Element::F64 => Ok(()),
            _ => self.single_scalars().map(|_| ()),
        }
    }
}

/// A scalar of a product of integers with a D of s32.
fn integer_scalar(scalar: &'static str, value: f64) -> Result<i32, PlanError> {
    let fits = value.fract() == 0.0 && (-2_147_483_648.0..2_147_483_648.0).contains(&value);
    if fits { Ok(value as i32) } else { Err(PlanError::FractionalScalar { scalar, value }) }
}

/// A scalar of a product that is not of f64. NaN and infinities are kept.
fn single_scalar(scalar: &'static str, value: f64) -> Result<f32, PlanError> {
    let single = value as f32;
    let rounded = single.is_normal() || f64::from(single) == value || !value.is_finite();
    if rounded { Ok(single) } else { Err(PlanError::ScalarRange { scalar, value }) }
}
