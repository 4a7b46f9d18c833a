//! The matrices of a batch in one allocation.

use std::borrow::Cow;
use std::ops::Range;

use pgemm_ir::Element as Dtype;
use pgemm_plan::MatrixLayout;

use super::HostMatrix;
use crate::error::Result;

/// Copies matrices into one allocation, `stride` elements apart, with NaN in between. There must be
/// at least one.
pub(crate) fn laid_together(matrices: &[HostMatrix], stride: usize) -> Result<Cow<'_, HostMatrix>> {
    let (first, others) = (&matrices[0], matrices.len() - 1);
    if others == 0 {
        return Ok(Cow::Borrowed(first));
    }
    let mut all = room_for(first.layout(), first.dtype(), matrices.len(), stride)?;
    let bytes = all.bytes_mut();
    for (index, matrix) in matrices.iter().enumerate() {
        for (line, at) in lines(matrix, index * stride) {
            bytes[at..at + line.len()].copy_from_slice(&matrix.bytes()[line]);
        }
    }
    Ok(Cow::Owned(all))
}

/// Reads matrices that lie `stride` elements apart.
pub(crate) fn take_apart(all: &[u8], stride: usize, matrices: &mut [HostMatrix]) {
    for (index, matrix) in matrices.iter_mut().enumerate() {
        for (line, at) in lines(matrix, index * stride).collect::<Vec<_>>() {
            let bytes = &all[at..at + line.len()];
            matrix.bytes_mut()[line].copy_from_slice(bytes);
        }
    }
}

/// One line of NaN with room for `count` matrices.
pub(crate) fn room_for(
    layout: MatrixLayout,
    element: Dtype,
    count: usize,
    stride: usize,
) -> Result<HostMatrix> {
    let elements = count.saturating_sub(1).saturating_mul(stride);
    let elements = elements.saturating_add(layout.span(element)?);
    let mut all = HostMatrix::zeros(MatrixLayout::row_major(1, elements), element)?;
    all.poison();
    Ok(all)
}

/// The bytes of each line of a matrix, each with its offset in an allocation in which the matrix
/// begins at element `first`.
fn lines(matrix: &HostMatrix, first: usize) -> impl Iterator<Item = (Range<usize>, usize)> + use<> {
    let (layout, size) = (matrix.layout(), matrix.dtype().bytes() as usize);
    let lines = if layout.is_empty() { 0 } else { layout.lines() };
    (0..lines).map(move |line| {
        let start = line * layout.leading_dimension;
        (start * size..(start + layout.line_length()) * size, (first + start) * size)
    })
}
