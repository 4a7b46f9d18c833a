//! Nested integer tuples: the shapes, strides and coordinates of layouts.

use std::fmt;

/// Largest nesting depth of a layout, a coordinate or a parsed text.
pub const MAX_DEPTH: usize = 32;

/// An integer or a tuple of integer tuples, which CuTe calls `IntTuple`.
///
/// Integers, arrays and Rust tuples of up to six elements convert into an `IntTuple`:
///
/// ```
/// use pgemm_cute::IntTuple;
///
/// let shape = IntTuple::from((3, (2, 3)));
/// assert_eq!(shape.to_string(), "(3,(2,3))");
/// assert_eq!((shape.rank(), shape.depth(), shape.size().unwrap()), (2, 2, 18));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IntTuple {
    /// An integer leaf.
    Int(i64),
    /// A tuple of modes.
    Tuple(Vec<IntTuple>),
}

impl IntTuple {
    /// Returns the number of modes. An integer has rank 1.
    pub fn rank(&self) -> usize {
        match self {
            Self::Int(_) => 1,
            Self::Tuple(modes) => modes.len(),
        }
    }

    /// Returns the number of nesting levels. An integer has depth 0, a tuple of integers depth 1.
    pub fn depth(&self) -> usize {
        match self {
            Self::Int(_) => 0,
            Self::Tuple(modes) => 1 + modes.iter().map(Self::depth).max().unwrap_or(0),
        }
    }

    /// Returns the value of an integer, and `None` for a tuple.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Tuple(_) => None,
        }
    }

    /// Returns mode `index`, if it exists. An integer is its own mode 0.
    pub fn get(&self, index: usize) -> Option<&IntTuple> {
        match self {
            Self::Int(_) => (index == 0).then_some(self),
            Self::Tuple(modes) => modes.get(index),
        }
    }

    /// Returns the modes in order. An integer is its own single mode.
    pub fn modes(&self) -> &[IntTuple] {
        match self {
            Self::Int(_) => std::slice::from_ref(self),
            Self::Tuple(modes) => modes,
        }
    }

    /// Returns the leaves from left to right.
    pub fn leaves(&self) -> Vec<i64> {
        fn visit(tuple: &IntTuple, leaves: &mut Vec<i64>) {
            match tuple {
                IntTuple::Int(value) => leaves.push(*value),
                IntTuple::Tuple(modes) => modes.iter().for_each(|mode| visit(mode, leaves)),
            }
        }
        let mut leaves = Vec::new();
        visit(self, &mut leaves);
        leaves
    }

    /// Removes the nesting. The result has the same leaves and depth 0 or 1.
    pub fn flatten(&self) -> IntTuple {
        match self {
            Self::Int(_) => self.clone(),
            Self::Tuple(_) => self.leaves().into_iter().map(Self::Int).collect(),
        }
    }

    /// Returns whether both tuples have the same nesting, which CuTe calls congruence.
    pub fn is_congruent(&self, other: &IntTuple) -> bool {
        match (self, other) {
            (Self::Int(_), Self::Int(_)) => true,
            (Self::Tuple(a), Self::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_congruent(b))
            }
            _ => false,
        }
    }

    /// Returns whether `self` is weakly congruent with `other`: the nesting of `other` is that of
    /// `self`, except that any integer of `self` may correspond to a tuple in `other`.
    ///
    /// ```
    /// use pgemm_cute::IntTuple;
    ///
    /// let tuple = |text| IntTuple::parse(text).unwrap();
    /// assert!(tuple("(4,6)").is_weakly_congruent(&tuple("((2,2),6)")));
    /// assert!(!tuple("((2,2),6)").is_weakly_congruent(&tuple("(4,6)")));
    /// ```
    pub fn is_weakly_congruent(&self, other: &IntTuple) -> bool {
        match (self, other) {
            (Self::Int(_), _) => true,
            (Self::Tuple(a), Self::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_weakly_congruent(b))
            }
            _ => false,
        }
    }

    /// Returns whether the nesting has at most `limit` levels. The recursion stops at that depth.
    pub(crate) fn is_within_depth(&self, limit: usize) -> bool {
        match self {
            Self::Int(_) => true,
            Self::Tuple(modes) => {
                limit > 0 && modes.iter().all(|mode| mode.is_within_depth(limit - 1))
            }
        }
    }

    /// Returns whether the tuple or a tuple nested in it has no modes.
    pub(crate) fn has_empty_tuple(&self) -> bool {
        match self {
            Self::Int(_) => false,
            Self::Tuple(modes) => modes.is_empty() || modes.iter().any(Self::has_empty_tuple),
        }
    }

    /// Returns the tuple of `modes`, or the mode itself if there is exactly one.
    pub(crate) fn unwrapped(mut modes: Vec<IntTuple>) -> IntTuple {
        match modes.len() {
            1 => modes.remove(0),
            _ => Self::Tuple(modes),
        }
    }
}

impl fmt::Display for IntTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Tuple(modes) => {
                f.write_str("(")?;
                for (position, mode) in modes.iter().enumerate() {
                    if position > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{mode}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl FromIterator<IntTuple> for IntTuple {
    fn from_iter<I: IntoIterator<Item = IntTuple>>(modes: I) -> Self {
        Self::Tuple(modes.into_iter().collect())
    }
}

impl FromIterator<i64> for IntTuple {
    fn from_iter<I: IntoIterator<Item = i64>>(modes: I) -> Self {
        modes.into_iter().map(Self::Int).collect()
    }
}

macro_rules! from_integer {
    ($($integer:ty)*) => {$(
        impl From<$integer> for IntTuple {
            fn from(value: $integer) -> Self {
                Self::Int(i64::from(value))
            }
        }
    )*};
}

from_integer!(i64 i32 u32 u16 u8);

macro_rules! from_tuple {
    ($($mode:ident)+) => {
        impl<$($mode: Into<IntTuple>),+> From<($($mode,)+)> for IntTuple {
            #[allow(non_snake_case)]
            fn from(($($mode,)+): ($($mode,)+)) -> Self {
                Self::Tuple(vec![$($mode.into()),+])
            }
        }
    };
}

from_tuple!(A);
from_tuple!(A B);
from_tuple!(A B C);
from_tuple!(A B C D);
from_tuple!(A B C D E);
from_tuple!(A B C D E F);

impl<T: Into<IntTuple>, const N: usize> From<[T; N]> for IntTuple {
    fn from(modes: [T; N]) -> Self {
        Self::Tuple(modes.into_iter().map(Into::into).collect())
    }
}

impl From<Vec<i64>> for IntTuple {
    fn from(modes: Vec<i64>) -> Self {
        modes.into_iter().collect()
    }
}

impl From<&[i64]> for IntTuple {
    fn from(modes: &[i64]) -> Self {
        modes.iter().copied().collect()
    }
}

impl From<&IntTuple> for IntTuple {
    fn from(tuple: &IntTuple) -> Self {
        tuple.clone()
    }
}
