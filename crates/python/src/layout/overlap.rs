//! Checks whether arrays share memory. Arrays reported as disjoint are; a few unusually interleaved
//! disjoint arrays are not recognised.

use super::View;

/// Bytes from the first element to one past the last, or more than memory has.
fn span(view: &View) -> u128 {
    let along = |(extent, stride): (&i64, &i64)| (*extent as u128 - 1) * *stride as u128;
    let last = view.shape.iter().zip(view.strides.iter()).map(along).fold(0, u128::saturating_add);
    last.saturating_add(1).saturating_mul(view.dtype.bytes().into())
}

/// Whether two arrays without negative strides share no byte: one follows the other, or they are
/// side by side between the lines of one matrix.
pub fn are_disjoint(one: &View, other: &View) -> bool {
    if one.is_empty() || other.is_empty() || one.place != other.place {
        return true;
    }
    let (first, second) = if one.address <= other.address { (one, other) } else { (other, one) };
    let apart = u128::from(second.address - first.address);
    apart >= span(first) || side_by_side(first, second, apart)
}

/// Whether both are columns of one matrix: all strides except those within a line are multiples of
/// the line.
fn side_by_side(first: &View, second: &View, apart: u128) -> bool {
    let bytes = |view: &View, stride: i64| stride as u128 * u128::from(view.dtype.bytes());
    let longest = |view: &View| {
        let strides = view.shape.iter().zip(view.strides.iter()).filter(|(extent, _)| **extent > 1);
        // Of the two matrix dimensions, the longer stride is the one from line to line.
        strides.rev().take(2).map(|(_, stride)| bytes(view, *stride)).max().unwrap_or(0)
    };
    let line = longest(first);
    if line == 0 || line != longest(second) {
        return false;
    }
    let width = |view: &View| {
        let mut within = u128::from(view.dtype.bytes());
        for (extent, stride) in view.shape.iter().zip(view.strides.iter()) {
            let stride = bytes(view, *stride);
            if *extent > 1 && !stride.is_multiple_of(line) {
                within = (*extent as u128 - 1).saturating_mul(stride).saturating_add(within);
            }
        }
        within
    };
    let offset = apart % line;
    offset >= width(first) && width(second) <= line - offset
}

/// Whether no two elements of an array with no negative strides share memory, as far as sorting
/// dimensions by stride tells.
pub fn is_injective(view: &View) -> bool {
    let mut dimensions: Vec<(i64, i64)> = view
        .strides
        .iter()
        .zip(view.shape.iter())
        .filter(|(_, extent)| **extent > 1)
        .map(|(stride, extent)| (*stride, *extent))
        .collect();
    dimensions.sort_unstable();
    let mut reach = 0i128;
    dimensions.into_iter().all(|(stride, extent)| {
        let fits = i128::from(stride) > reach;
        reach = reach.saturating_add(i128::from(stride) * i128::from(extent - 1));
        fits
    })
}

/// Whether two arrays are the same one: elements at the same places.
pub fn are_same(one: &View, other: &View) -> bool {
    let strides = one.strides.iter().zip(other.strides.iter());
    one.address == other.address
        && one.shape == other.shape
        && one.dtype.bytes() == other.dtype.bytes()
        && one.shape.iter().zip(strides).all(|(extent, (a, b))| *extent <= 1 || a == b)
}
