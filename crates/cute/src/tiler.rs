//! Tilers: the second operand of composition, division and product.

use std::fmt;

use crate::{CuteError, IntTuple, Layout};

/// A layout, or a tuple of one tiler per mode.
///
/// A layout applies to the whole of the other operand, as a function of linear coordinates. A tuple
/// applies mode by mode.
///
/// Layouts and lists of layouts convert into a tiler, so operations accept them directly.
///
/// ```
/// use pgemm_cute::Tiler;
///
/// # fn main() -> Result<(), pgemm_cute::CuteError> {
/// assert_eq!(Tiler::shape((3, 8))?.to_string(), "(3:1,8:1)");
/// assert_eq!(Tiler::parse("<3:3, (2,4):(1,8)>")?.to_string(), "(3:3,(2,4):(1,8))");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tiler {
    /// A layout that applies to a mode as if the mode were one-dimensional.
    Layout(Layout),
    /// One tiler per mode.
    Tuple(Vec<Tiler>),
    /// Keeps a mode unchanged; written `_`.
    Keep,
}

impl Tiler {
    /// Creates the tiler of a shape, in which each leaf `n` stands for the layout `n:1`.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::new`].
    pub fn shape(shape: impl Into<IntTuple>) -> Result<Self, CuteError> {
        match shape.into() {
            IntTuple::Int(extent) => Ok(Self::Layout(Layout::new(extent, 1)?)),
            IntTuple::Tuple(modes) if modes.is_empty() => Err(CuteError::EmptyTuple),
            IntTuple::Tuple(modes) => {
                modes.into_iter().map(Self::shape).collect::<Result<_, _>>().map(Self::Tuple)
            }
        }
    }
}

impl fmt::Display for Tiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(layout) => write!(f, "{layout}"),
            Self::Keep => f.write_str("_"),
            Self::Tuple(tilers) => {
                f.write_str("(")?;
                for (position, tiler) in tilers.iter().enumerate() {
                    if position > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{tiler}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl From<Layout> for Tiler {
    fn from(layout: Layout) -> Self {
        Self::Layout(layout)
    }
}

impl From<&Layout> for Tiler {
    fn from(layout: &Layout) -> Self {
        Self::Layout(layout.clone())
    }
}

impl From<&Tiler> for Tiler {
    fn from(tiler: &Tiler) -> Self {
        tiler.clone()
    }
}

impl<T: Into<Tiler>> From<Vec<T>> for Tiler {
    fn from(tilers: Vec<T>) -> Self {
        Self::Tuple(tilers.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Tiler>, const N: usize> From<[T; N]> for Tiler {
    fn from(tilers: [T; N]) -> Self {
        Self::Tuple(tilers.into_iter().map(Into::into).collect())
    }
}
