//! Sizes of integer tuples, which may not fit an integer.

use crate::{CuteError, IntTuple};

impl IntTuple {
    /// Returns the product of all leaves.
    ///
    /// # Errors
    /// Returns [`CuteError::Overflow`] if the product does not fit an `i64`.
    pub fn size(&self) -> Result<i64, CuteError> {
        let leaves = self.leaves();
        // A tuple with a zero leaf has size 0, even if the product of the other leaves overflows.
        if leaves.contains(&0) {
            return Ok(0);
        }
        leaves.iter().try_fold(1i64, |product, &leaf| product.checked_mul(leaf)).ok_or_else(|| {
            CuteError::Overflow { quantity: "the size of a tuple", operand: Box::new(self.clone()) }
        })
    }

    /// Replaces each mode by its size, as CuTe's `product_each` does. An integer stays as it is.
    ///
    /// ```
    /// use pgemm_cute::IntTuple;
    ///
    /// let shape = IntTuple::from(((2, 4), 8));
    /// assert_eq!(shape.product_each().unwrap(), (8, 8).into());
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::Overflow`] if a product does not fit an `i64`.
    pub fn product_each(&self) -> Result<IntTuple, CuteError> {
        match self {
            Self::Int(_) => Ok(self.clone()),
            Self::Tuple(modes) => {
                modes.iter().map(|mode| mode.size().map(Self::Int)).collect::<Result<_, _>>()
            }
        }
    }

    /// Returns whether the shape `self` is compatible with the shape `other`.
    ///
    /// Compatibility means that every coordinate of `self` is also a coordinate of `other`. `other`
    /// may refine an integer of `self` into a tuple of the same size.
    ///
    /// ```
    /// use pgemm_cute::IntTuple;
    ///
    /// let shape = |text| IntTuple::parse(text).unwrap();
    /// assert!(shape("(4,6)").is_compatible(&shape("((2,2),6)")));
    /// assert!(!shape("((2,3),4)").is_compatible(&shape("((2,2),(3,2))")));
    /// ```
    pub fn is_compatible(&self, other: &IntTuple) -> bool {
        match (self, other) {
            (Self::Int(size), _) => other.size().is_ok_and(|other| other == *size),
            (Self::Tuple(a), Self::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_compatible(b))
            }
            _ => false,
        }
    }
}
