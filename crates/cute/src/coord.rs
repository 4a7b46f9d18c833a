//! Coordinate arithmetic: between linear, partial and natural coordinates, and to indices.

use crate::{CuteError, IntTuple};

/// Index of a coordinate in `shape:stride`: the coordinate's modes are matched with the shape's,
/// and an integer that meets a tuple is split colexicographically.
///
/// As in CuTe the coordinate is not checked against the shape: the last mode that an integer is
/// split over takes whatever is left. [`crate::Layout::index`] is the checked form.
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
/// [`CuteError::CoordinateProfile`] if the coordinate is nested deeper than the shape or has
/// another number of modes, [`CuteError::NotCongruent`] if shape and stride differ in nesting,
/// [`CuteError::Overflow`] if the index does not fit 64 bits.
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

/// Natural coordinate (congruent with `shape`) of any coordinate of the shape. Like [`crd2idx`]
/// it leaves what exceeds the shape in the last mode.
///
/// # Errors
/// [`CuteError::CoordinateProfile`] if the coordinate is nested deeper than the shape or has
/// another number of modes, [`CuteError::EmptyTuple`] and [`CuteError::ExtentNotPositive`] for a
/// shape that no layout can have.
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

/// Linear coordinate of any coordinate of a shape: its position in colexicographic order.
///
/// # Errors
/// As [`crd2idx`].
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

/// The coordinate of `to` at the same colexicographic position as `coord` in `from`.
///
/// # Errors
/// As [`crd2idx`].
pub fn crd2crd(coord: &IntTuple, from: &IntTuple, to: &IntTuple) -> Result<IntTuple, CuteError> {
    idx2crd(&IntTuple::Int(colex_index(coord, from)?), to)
}

/// Whether a natural coordinate lies within its shape.
pub(crate) fn is_within(natural: &IntTuple, shape: &IntTuple) -> bool {
    natural.leaves().into_iter().zip(shape.leaves()).all(|(c, s)| (0..s).contains(&c))
}
