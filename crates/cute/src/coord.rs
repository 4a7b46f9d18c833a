//! Coordinate arithmetic: conversion between linear, natural and intermediate coordinates, and
//! indices.

use crate::{CuteError, IntTuple};

/// Returns the index of a coordinate in `shape:stride`.
///
/// A tuple coordinate is matched with the shape mode by mode. An integer coordinate of a nested
/// mode is split colexicographically.
///
/// As in CuTe, the coordinate is not checked against the shape, and the last mode of a split is
/// unbounded. [`Layout::index`](crate::Layout::index) is the checked form.
///
/// ```
/// use pgemm_cute::{crd2idx, IntTuple};
///
/// let (shape, stride) = (IntTuple::from((3, (2, 3))), IntTuple::from((3, (12, 1))));
/// for coordinate in [IntTuple::from(16), (1, 5).into(), (1, (1, 2)).into()] {
///     assert_eq!(crd2idx(&coordinate, &shape, &stride).unwrap(), 17);
/// }
/// ```
///
/// # Errors
/// Returns [`CuteError::CoordinateProfile`] if the coordinate does not match the nesting of the
/// shape, [`CuteError::NotCongruent`] if shape and stride differ in nesting, and
/// [`CuteError::Overflow`] if the index does not fit an `i64`.
pub fn crd2idx(coord: &IntTuple, shape: &IntTuple, stride: &IntTuple) -> Result<i64, CuteError> {
    if !shape.is_congruent(stride) {
        return Err(CuteError::NotCongruent {
            shape: Box::new(shape.clone()),
            stride: Box::new(stride.clone()),
        });
    }
    let natural = idx2crd(coord, shape)?;
    let overflow = || CuteError::Overflow {
        quantity: "the index of a coordinate",
        operand: Box::new(coord.clone()),
    };
    natural.leaves().into_iter().zip(stride.leaves()).try_fold(0i64, |sum, (c, d)| {
        c.checked_mul(d).and_then(|term| sum.checked_add(term)).ok_or_else(overflow)
    })
}

/// Converts a coordinate of a shape to the natural coordinate, which is congruent with the shape.
///
/// As in [`crd2idx`], the coordinate is not checked against the shape.
///
/// ```
/// use pgemm_cute::{IntTuple, idx2crd};
///
/// let shape = IntTuple::from((3, (2, 3)));
/// assert_eq!(idx2crd(&16.into(), &shape).unwrap(), (1, (1, 2)).into());
/// ```
///
/// # Errors
/// Returns [`CuteError::CoordinateProfile`] if the coordinate does not match the nesting of the
/// shape. Returns [`CuteError::EmptyTuple`] or [`CuteError::ExtentNotPositive`] if no layout can
/// have the shape.
pub fn idx2crd(coord: &IntTuple, shape: &IntTuple) -> Result<IntTuple, CuteError> {
    match (coord, shape) {
        (_, IntTuple::Tuple(modes)) if modes.is_empty() => Err(CuteError::EmptyTuple),
        (IntTuple::Int(_), IntTuple::Int(_)) => Ok(coord.clone()),
        (IntTuple::Tuple(coords), IntTuple::Tuple(modes)) if coords.len() == modes.len() => {
            coords.iter().zip(modes).map(|(c, s)| idx2crd(c, s)).collect()
        }
        (IntTuple::Int(linear), IntTuple::Tuple(modes)) => {
            let mut rest = *linear;
            let last = modes.len() - 1;
            let mut split = Vec::with_capacity(modes.len());
            for (position, mode) in modes.iter().enumerate() {
                if position == last {
                    split.push(idx2crd(&IntTuple::Int(rest), mode)?);
                } else {
                    let size = mode.size()?;
                    if size < 1 {
                        return Err(CuteError::ExtentNotPositive { extent: size });
                    }
                    split.push(idx2crd(&IntTuple::Int(rest % size), mode)?);
                    rest /= size;
                }
            }
            Ok(IntTuple::Tuple(split))
        }
        _ => Err(CuteError::CoordinateProfile {
            coord: Box::new(coord.clone()),
            shape: Box::new(shape.clone()),
        }),
    }
}

/// Converts a coordinate of a shape to the linear coordinate, its position in colexicographic
/// order.
///
/// # Errors
/// Returns the errors of [`crd2idx`].
pub fn colex_index(coord: &IntTuple, shape: &IntTuple) -> Result<i64, CuteError> {
    let natural = idx2crd(coord, shape)?;
    let overflow = || CuteError::Overflow {
        quantity: "a linear coordinate",
        operand: Box::new(coord.clone()),
    };
    natural.leaves().into_iter().zip(shape.leaves()).rev().try_fold(0i64, |linear, (c, s)| {
        linear.checked_mul(s).and_then(|high| high.checked_add(c)).ok_or_else(overflow)
    })
}

/// Converts a coordinate of shape `from` to the natural coordinate of shape `to` with the same
/// linear coordinate.
///
/// # Errors
/// Returns the errors of [`crd2idx`].
pub fn crd2crd(coord: &IntTuple, from: &IntTuple, to: &IntTuple) -> Result<IntTuple, CuteError> {
    idx2crd(&IntTuple::Int(colex_index(coord, from)?), to)
}

/// Returns whether a natural coordinate lies within its shape.
pub(crate) fn is_within(natural: &IntTuple, shape: &IntTuple) -> bool {
    natural.leaves().into_iter().zip(shape.leaves()).all(|(c, s)| (0..s).contains(&c))
}
