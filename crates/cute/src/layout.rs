//! `Layout`: a shape and a congruent stride, and how it maps coordinates to indices.

use std::fmt;

use crate::coord::{idx2crd, is_within};
use crate::{CuteError, IntTuple, MAX_DEPTH, crd2idx};

/// A function from coordinates to integers, `shape:stride`.
///
/// Extents are at least 1, strides any integer. Size and cosize of every layout fit 64 bits, which
/// its constructors check, so that evaluating it inside its domain cannot overflow.
///
/// ```
/// use pgemm_cute::Layout;
///
/// # fn main() -> Result<(), pgemm_cute::CuteError> {
/// let layout = Layout::new((3, (2, 3)), (3, (12, 1)))?;
/// assert_eq!(layout.to_string(), "(3,(2,3)):(3,(12,1))");
/// assert_eq!(layout.index(16)?, 17); // linear coordinate
/// assert_eq!(layout.index((1, 5))?, 17); // row and column
/// assert_eq!(layout.index((1, (1, 2)))?, 17); // natural coordinate
/// assert_eq!((layout.size(), layout.cosize()), (18, 21));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: IntTuple,
    stride: IntTuple,
}

impl Layout {
    /// The layout `shape:stride`.
    ///
    /// # Errors
    /// If the two are not congruent, an extent is below 1, a tuple is empty or nested deeper than
    /// [`MAX_DEPTH`], or size or cosize exceed 64 bits.
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

    /// Column-major layout: strides are the running product of the extents from the left, whatever
    /// the nesting. A mode of extent 1 gets stride 0.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn col_major(shape: impl Into<IntTuple>) -> Result<Self, CuteError> {
        let shape = shape.into();
        check_shape(&shape)?;
        let stride = compact(&shape, &mut 1, false)?;
        Self::new(shape, stride)
    }

    /// Row-major layout: strides are the running product of the extents from the right, whatever
    /// the nesting. A mode of extent 1 gets stride 0.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn row_major(shape: impl Into<IntTuple>) -> Result<Self, CuteError> {
        let shape = shape.into();
        check_shape(&shape)?;
        let stride = compact(&shape, &mut 1, true)?;
        Self::new(shape, stride)
    }

    /// Compact layout whose modes vary in the order of the numbers in `order`, smallest first.
    /// A number may stand for a whole nested mode, which is then column-major inside.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::ordered((2, 2, 2, 2), (0, 2, 3, 1)).unwrap();
    /// assert_eq!(layout.to_string(), "(2,2,2,2):(1,4,8,2)");
    /// ```
    ///
    /// # Errors
    /// [`CuteError::Order`] if `order` is nested differently from the shape or repeats a number,
    /// otherwise as [`Layout::new`].
    pub fn ordered(
        shape: impl Into<IntTuple>,
        order: impl Into<IntTuple>,
    ) -> Result<Self, CuteError> {
        let (shape, order) = (shape.into(), order.into());
        check_shape(&shape)?;
        let wrong =
            || CuteError::Order { order: Box::new(order.clone()), shape: Box::new(shape.clone()) };
        if !order.is_within_depth(MAX_DEPTH) || !order.is_weakly_congruent(&shape) {
            return Err(wrong());
        }
        let mut ranked = Vec::new();
        collect_ordered(&shape, &order, &mut ranked)?;
        for (position, &(number, size)) in ranked.iter().enumerate() {
            let repeats = |&(other, extent): &(i64, i64)| other == number && extent > 1;
            if size > 1 && ranked[..position].iter().any(repeats) {
                return Err(wrong());
            }
        }
        let stride = compact_ordered(&shape, &order, &ranked)?;
        Self::new(shape, stride)
    }

    /// Concatenation: each layout becomes a mode. One layout gives a layout of rank 1 around it.
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
    /// If there is no layout, or as [`Layout::new`].
    pub fn concat<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> Result<Self, CuteError> {
        let (shape, stride): (Vec<_>, Vec<_>) =
            layouts.into_iter().map(|l| (l.shape.clone(), l.stride.clone())).unzip();
        Self::new(IntTuple::Tuple(shape), IntTuple::Tuple(stride))
    }

    /// A layout whose invariants follow from those of the layouts it was made from.
    pub(crate) fn trusted(shape: IntTuple, stride: IntTuple) -> Self {
        debug_assert!(Self::new(shape.clone(), stride.clone()).is_ok(), "{shape}:{stride}");
        Self { shape, stride }
    }

    /// The layout of flat modes `(extent, stride)`: an integer layout if there is one mode, `1:0`
    /// if there is none.
    pub(crate) fn from_flat(modes: &[(i64, i64)]) -> Result<Self, CuteError> {
        match modes {
            [] => Ok(Self::trusted(1.into(), 0.into())),
            [(extent, stride)] => Self::new(*extent, *stride),
            _ => Self::new(
                modes.iter().map(|mode| mode.0).collect::<IntTuple>(),
                modes.iter().map(|mode| mode.1).collect::<IntTuple>(),
            ),
        }
    }

    /// The leaves as `(extent, stride)`.
    pub(crate) fn flat_modes(&self) -> Vec<(i64, i64)> {
        self.shape.leaves().into_iter().zip(self.stride.leaves()).collect()
    }

    /// The shape.
    pub fn shape(&self) -> &IntTuple {
        &self.shape
    }

    /// The stride, congruent with the shape.
    pub fn stride(&self) -> &IntTuple {
        &self.stride
    }

    /// Number of modes at the top level.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Levels of nesting of the shape.
    pub fn depth(&self) -> usize {
        self.shape.depth()
    }

    /// Number of coordinates in the domain.
    pub fn size(&self) -> i64 {
        self.shape.leaves().iter().product()
    }

    /// One more than the distance between the smallest and the largest index: for strides from 0
    /// up, the number of elements of storage that the layout needs.
    pub fn cosize(&self) -> i64 {
        self.flat_modes().iter().map(|(s, d)| (s - 1) * d.abs()).sum::<i64>() + 1
    }

    /// Index of a coordinate: a linear one, a natural one, or anything between.
    ///
    /// # Errors
    /// [`CuteError::CoordinateProfile`] if it does not fit the shape's nesting,
    /// [`CuteError::OutOfBounds`] if it lies outside the shape.
    pub fn index(&self, coord: impl Into<IntTuple>) -> Result<i64, CuteError> {
        let natural = self.coordinate(coord)?;
        crd2idx(&natural, &self.shape, &self.stride)
    }

    /// Index of a coordinate as CuTe continues a layout beyond its domain: the last mode that an
    /// integer is split over is taken to be endless.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(4,3):(3,1)").unwrap();
    /// assert!(layout.index(12).is_err());
    /// assert_eq!(layout.index_extended(12).unwrap(), 3); // (0,3)
    /// ```
    ///
    /// # Errors
    /// As [`crd2idx`].
    pub fn index_extended(&self, coord: impl Into<IntTuple>) -> Result<i64, CuteError> {
        crd2idx(&coord.into(), &self.shape, &self.stride)
    }

    /// Natural coordinate (congruent with the shape) of a coordinate of the layout.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::col_major((3, (2, 3))).unwrap();
    /// assert_eq!(layout.coordinate(16).unwrap().to_string(), "(1,(1,2))");
    /// ```
    ///
    /// # Errors
    /// [`CuteError::CoordinateProfile`] if it does not fit the shape's nesting,
    /// [`CuteError::OutOfBounds`] if it lies outside the shape.
    pub fn coordinate(&self, coord: impl Into<IntTuple>) -> Result<IntTuple, CuteError> {
        let coord = coord.into();
        let natural = idx2crd(&coord, &self.shape)?;
        if is_within(&natural, &self.shape) {
            Ok(natural)
        } else {
            Err(CuteError::OutOfBounds {
                coord: Box::new(coord),
                shape: Box::new(self.shape.clone()),
            })
        }
    }

    /// The indices of all linear coordinates in order.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::parse("(2,4):(4,1)").unwrap();
    /// assert_eq!(layout.indices().collect::<Vec<_>>(), [0, 4, 1, 5, 2, 6, 3, 7]);
    /// ```
    pub fn indices(&self) -> Indices {
        let modes = self.flat_modes();
        Indices { position: vec![0; modes.len()], modes, index: 0, left: self.size() }
    }

    /// Mode `mode` as a layout of its own.
    ///
    /// # Errors
    /// [`CuteError::NoSuchMode`].
    pub fn mode(&self, mode: usize) -> Result<Layout, CuteError> {
        match (self.shape.get(mode), self.stride.get(mode)) {
            (Some(shape), Some(stride)) => Ok(Self::trusted(shape.clone(), stride.clone())),
            _ => Err(CuteError::NoSuchMode {
                mode,
                rank: self.rank(),
                layout: Box::new(self.clone()),
            }),
        }
    }

    /// The mode reached by following `path` from the outside in: `[1, 0]` is mode 0 of mode 1.
    ///
    /// # Errors
    /// [`CuteError::NoSuchMode`].
    pub fn mode_at(&self, path: &[usize]) -> Result<Layout, CuteError> {
        path.iter().try_fold(self.clone(), |layout, &mode| layout.mode(mode))
    }

    /// All modes as layouts.
    pub fn modes(&self) -> Vec<Layout> {
        let strides = self.stride.modes().iter();
        self.shape
            .modes()
            .iter()
            .zip(strides)
            .map(|(shape, stride)| Self::trusted(shape.clone(), stride.clone()))
            .collect()
    }

    /// The modes `begin..end` only, as a layout of rank `end - begin`.
    ///
    /// # Errors
    /// [`CuteError::ModeRange`].
    pub fn take(&self, begin: usize, end: usize) -> Result<Layout, CuteError> {
        let modes = self.modes();
        match modes.get(begin..end) {
            Some(range) if !range.is_empty() => Self::concat(range),
            _ => Err(self.mode_range(begin, end)),
        }
    }

    /// The listed modes, in that order.
    ///
    /// # Errors
    /// [`CuteError::NoSuchMode`], or [`CuteError::EmptyTuple`] for an empty list.
    pub fn select(&self, modes: &[usize]) -> Result<Layout, CuteError> {
        let selected = modes.iter().map(|&mode| self.mode(mode)).collect::<Result<Vec<_>, _>>()?;
        Self::concat(&selected)
    }

    /// The layout with `other` as a further, last mode.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn append(&self, other: &Layout) -> Result<Layout, CuteError> {
        let mut modes = self.modes();
        modes.push(other.clone());
        Self::concat(&modes)
    }

    /// The layout with `other` as a further, first mode.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn prepend(&self, other: &Layout) -> Result<Layout, CuteError> {
        let mut modes = self.modes();
        modes.insert(0, other.clone());
        Self::concat(&modes)
    }

    /// The layout with modes `1:0` appended up to `rank`.
    ///
    /// # Errors
    /// [`CuteError::RankTooSmall`] if it has more modes already.
    pub fn append_to_rank(&self, rank: usize) -> Result<Layout, CuteError> {
        self.pad_to_rank(rank, false)
    }

    /// The layout with modes `1:0` prepended up to `rank`.
    ///
    /// # Errors
    /// [`CuteError::RankTooSmall`] if it has more modes already.
    pub fn prepend_to_rank(&self, rank: usize) -> Result<Layout, CuteError> {
        self.pad_to_rank(rank, true)
    }

    fn pad_to_rank(&self, rank: usize, in_front: bool) -> Result<Layout, CuteError> {
        let missing = match rank.checked_sub(self.rank()) {
            None => return Err(CuteError::RankTooSmall { rank, layout: Box::new(self.clone()) }),
            Some(0) => return Ok(self.clone()),
            Some(missing) => missing,
        };
        let mut modes = self.modes();
        let at = if in_front { 0 } else { modes.len() };
        let unit = Self::trusted(1.into(), 0.into());
        modes.splice(at..at, std::iter::repeat_n(unit, missing));
        Self::concat(&modes)
    }

    /// The layout with mode `mode` replaced by `other`.
    ///
    /// # Errors
    /// [`CuteError::NoSuchMode`], or as [`Layout::new`].
    pub fn replace(&self, mode: usize, other: &Layout) -> Result<Layout, CuteError> {
        self.mode(mode)?;
        if self.shape.as_int().is_some() {
            return Ok(other.clone());
        }
        let mut modes = self.modes();
        modes[mode] = other.clone();
        Self::concat(&modes)
    }

    /// The modes `begin..end` gathered into one.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// let layout = Layout::col_major((2, 3, 5, 7)).unwrap();
    /// let grouped = layout.group_modes(0, 2).unwrap();
    /// assert_eq!(grouped.to_string(), "((2,3),5,7):((1,2),6,30)");
    /// ```
    ///
    /// # Errors
    /// [`CuteError::ModeRange`], or [`CuteError::TooDeep`].
    pub fn group_modes(&self, begin: usize, end: usize) -> Result<Layout, CuteError> {
        let group = self.take(begin, end)?;
        let mut modes = self.modes();
        modes.splice(begin..end, [group]);
        Self::concat(&modes)
    }

    /// The layout without nesting: depth at most 1, the same function on linear coordinates.
    pub fn flatten(&self) -> Layout {
        Self::trusted(self.shape.flatten(), self.stride.flatten())
    }

    /// The same function under another shape: composition with the column-major layout of `shape`.
    ///
    /// # Errors
    /// As [`Layout::compose`].
    pub fn with_shape(&self, shape: impl Into<IntTuple>) -> Result<Layout, CuteError> {
        self.compose(Layout::col_major(shape)?)
    }

    /// Whether the layout takes every value in `0..size` exactly once.
    pub fn is_bijection(&self) -> bool {
        // Progressions tile an interval only if, by increasing stride, each starts where the
        // smaller ones end, which is the chain that the right inverse follows.
        self.right_inverse().size() == self.size()
    }

    pub(crate) fn mode_range(&self, begin: usize, end: usize) -> CuteError {
        CuteError::ModeRange { begin, end, rank: self.rank(), layout: Box::new(self.clone()) }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape, self.stride)
    }
}

/// Iterator over the indices of a layout in the order of its linear coordinates.
#[derive(Debug, Clone)]
pub struct Indices {
    modes: Vec<(i64, i64)>,
    position: Vec<i64>,
    index: i64,
    left: i64,
}

impl Iterator for Indices {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        if self.left == 0 {
            return None;
        }
        let index = self.index;
        self.left -= 1;
        if self.left > 0 {
            for ((extent, stride), position) in self.modes.iter().zip(&mut self.position) {
                if *position + 1 < *extent {
                    *position += 1;
                    self.index += stride;
                    break;
                }
                self.index -= *position * stride;
                *position = 0;
            }
        }
        Some(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).ok();
        (left.unwrap_or(usize::MAX), left)
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

/// Compact strides for a shape, starting at `*current`, which moves on by the shape's size.
pub(crate) fn compact(
    shape: &IntTuple,
    current: &mut i64,
    from_right: bool,
) -> Result<IntTuple, CuteError> {
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

/// The sizes of the modes that the leaves of `order` stand for.
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
            // A product of some of the shape's extents, whose whole product fits.
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
