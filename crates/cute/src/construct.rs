//! Layouts from shapes, strides, orders and other layouts, with the checks that make them valid.

use crate::{CuteError, IntTuple, Layout, MAX_DEPTH};

impl Layout {
    /// Creates the layout `shape:stride`.
    ///
    /// # Errors
    /// Returns [`CuteError::NotCongruent`] if shape and stride differ in nesting,
    /// [`CuteError::ExtentNotPositive`] for an extent below 1, [`CuteError::EmptyTuple`] for a
    /// tuple without modes, [`CuteError::TooDeep`] for a shape nested deeper than [`MAX_DEPTH`],
    /// and [`CuteError::Overflow`] if size or cosize does not fit an `i64`.
    pub fn new(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Result<Self, CuteError> {
        let (shape, stride) = (shape.into(), stride.into());
        check_shape(&shape)?;
        if !stride.is_within_depth(MAX_DEPTH) || !shape.is_congruent(&stride) {
            return Err(CuteError::NotCongruent {
                shape: Box::new(shape),
                stride: Box::new(stride),
            });
        }
        let cosize =
            shape.leaves().into_iter().zip(stride.leaves()).try_fold(1i64, |sum, (s, d)| {
                d.checked_abs()
                    .and_then(|d| (s - 1).checked_mul(d))
                    .and_then(|reach| sum.checked_add(reach))
            });
        match cosize {
            Some(_) => Ok(Self { shape, stride }),
            None => Err(CuteError::Overflow {
                quantity: "the cosize of a layout with these strides",
                operand: Box::new(stride),
            }),
        }
    }

    /// Creates the column-major layout of `shape`, which CuTe calls `LayoutLeft`.
    ///
    /// Each leaf's stride is the product of all extents to its left, across every level of nesting.
    /// A leaf of extent 1 gets stride 0.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::col_major((2, (3, 4))).unwrap();
    /// assert_eq!(layout.to_string(), "(2,(3,4)):(1,(2,6))");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::new`].
    pub fn col_major(shape: impl Into<IntTuple>) -> Result<Self, CuteError> {
        let shape = shape.into();
        check_shape(&shape)?;
        let stride = compact(&shape, &mut 1, false)?;
        Self::new(shape, stride)
    }

    /// Creates the row-major layout of `shape`, which CuTe calls `LayoutRight`.
    ///
    /// Each leaf's stride is the product of all extents to its right, across every level of
    /// nesting. A leaf of extent 1 gets stride 0.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::row_major((2, (3, 4))).unwrap();
    /// assert_eq!(layout.to_string(), "(2,(3,4)):(12,(4,1))");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::new`].
    pub fn row_major(shape: impl Into<IntTuple>) -> Result<Self, CuteError> {
        let shape = shape.into();
        check_shape(&shape)?;
        let stride = compact(&shape, &mut 1, true)?;
        Self::new(shape, stride)
    }

    /// Creates the compact layout whose modes vary in the order given by `order`, smallest number
    /// fastest. This is CuTe's `make_ordered_layout`.
    ///
    /// A number in `order` may stand for a nested mode, whose leaves are then column-major among
    /// themselves.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::ordered((2, 2, 2, 2), (0, 2, 3, 1)).unwrap();
    /// assert_eq!(layout.to_string(), "(2,2,2,2):(1,4,8,2)");
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::Order`] if `order` is not weakly congruent with `shape`, or if two
    /// modes larger than 1 share a number. Otherwise returns the errors of [`Layout::new`].
    pub fn ordered(
        shape: impl Into<IntTuple>,
        order: impl Into<IntTuple>,
    ) -> Result<Self, CuteError> {
        let (shape, order) = (shape.into(), order.into());
        check_shape(&shape)?;
        let invalid_order =
            || CuteError::Order { order: Box::new(order.clone()), shape: Box::new(shape.clone()) };
        if !order.is_within_depth(MAX_DEPTH) || !order.is_weakly_congruent(&shape) {
            return Err(invalid_order());
        }
        let mut ranked = Vec::new();
        collect_ordered(&shape, &order, &mut ranked)?;
        for (position, &(number, size)) in ranked.iter().enumerate() {
            let repeats = |&(other, extent): &(i64, i64)| other == number && extent > 1;
            if size > 1 && ranked[..position].iter().any(repeats) {
                return Err(invalid_order());
            }
        }
        let stride = compact_ordered(&shape, &order, &ranked)?;
        Self::new(shape, stride)
    }

    /// Concatenates layouts: each one becomes a mode of the result. This is CuTe's `make_layout` of
    /// several layouts.
    ///
    /// A single layout is wrapped into a layout of rank 1.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let (a, b) = (Layout::parse("3:1")?, Layout::parse("4:3")?);
    /// assert_eq!(Layout::concat([&a, &b])?.to_string(), "(3,4):(1,3)");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::EmptyTuple`] if there are no layouts, otherwise the errors of
    /// [`Layout::new`].
    pub fn concat<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> Result<Self, CuteError> {
        let (shape, stride): (Vec<_>, Vec<_>) =
            layouts.into_iter().map(|l| (l.shape.clone(), l.stride.clone())).unzip();
        Self::new(IntTuple::Tuple(shape), IntTuple::Tuple(stride))
    }

    /// Creates the flat layout of modes given as `(extent, stride)`. One mode gives a layout of
    /// depth 0, and no mode gives `1:0`.
    pub(crate) fn from_flat(modes: &[(i64, i64)]) -> Result<Self, CuteError> {
        match modes {
            [] => Ok(Self::new_unchecked(1.into(), 0.into())),
            [(extent, stride)] => Self::new(*extent, *stride),
            _ => Self::new(
                modes.iter().map(|mode| mode.0).collect::<IntTuple>(),
                modes.iter().map(|mode| mode.1).collect::<IntTuple>(),
            ),
        }
    }

    /// Reshapes the layout: composes it with the column-major layout of `shape`.
    ///
    /// The result is the same function on linear coordinates if the sizes agree.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("12:2").unwrap();
    /// assert_eq!(layout.with_shape((3, 4)).unwrap().to_string(), "(3,4):(2,6)");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::col_major`] and [`Layout::compose`].
    pub fn with_shape(&self, shape: impl Into<IntTuple>) -> Result<Layout, CuteError> {
        self.compose(Layout::col_major(shape)?)
    }
}

fn check_shape(shape: &IntTuple) -> Result<(), CuteError> {
    if !shape.is_within_depth(MAX_DEPTH) {
        return Err(CuteError::TooDeep);
    }
    if shape.has_empty_tuple() {
        return Err(CuteError::EmptyTuple);
    }
    if let Some(&extent) = shape.leaves().iter().find(|&&extent| extent < 1) {
        return Err(CuteError::ExtentNotPositive { extent });
    }
    shape.size().map(|_| ())
}

/// Returns the compact strides of a shape, starting at `*current`. Multiplies `*current` by the
/// size of the shape.
fn compact(shape: &IntTuple, current: &mut i64, from_right: bool) -> Result<IntTuple, CuteError> {
    match shape {
        IntTuple::Int(1) => Ok(IntTuple::Int(0)),
        IntTuple::Int(extent) => {
            let stride = *current;
            *current = stride.checked_mul(*extent).ok_or_else(|| CuteError::Overflow {
                quantity: "a compact stride",
                operand: Box::new(shape.clone()),
            })?;
            Ok(IntTuple::Int(stride))
        }
        IntTuple::Tuple(modes) if from_right => {
            let mut strides = modes
                .iter()
                .rev()
                .map(|mode| compact(mode, current, true))
                .collect::<Result<Vec<_>, _>>()?;
            strides.reverse();
            Ok(IntTuple::Tuple(strides))
        }
        IntTuple::Tuple(modes) => modes.iter().map(|mode| compact(mode, current, false)).collect(),
    }
}

/// Collects the pair (number, size of the mode) for each leaf of `order`.
fn collect_ordered(
    shape: &IntTuple,
    order: &IntTuple,
    ranked: &mut Vec<(i64, i64)>,
) -> Result<(), CuteError> {
    match order {
        IntTuple::Int(number) => ranked.push((*number, shape.size()?)),
        IntTuple::Tuple(orders) => {
            for (mode, order) in shape.modes().iter().zip(orders) {
                collect_ordered(mode, order, ranked)?;
            }
        }
    }
    Ok(())
}

fn compact_ordered(
    shape: &IntTuple,
    order: &IntTuple,
    ranked: &[(i64, i64)],
) -> Result<IntTuple, CuteError> {
    match order {
        IntTuple::Int(number) => {
            // The product cannot overflow: its factors are among the extents of a shape with a
            // valid size.
            let mut start =
                ranked.iter().filter(|(other, _)| other < number).map(|(_, size)| size).product();
            compact(shape, &mut start, false)
        }
        IntTuple::Tuple(orders) => shape
            .modes()
            .iter()
            .zip(orders)
            .map(|(mode, order)| compact_ordered(mode, order, ranked))
            .collect(),
    }
}
