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

/// Whether matrices that overlap in one allocation have the same elements there.
pub(crate) fn agree(matrices: &[HostMatrix], stride: usize) -> Result<bool> {
    let Some(first) = matrices.first().filter(|_| matrices.len() > 1) else { return Ok(true) };
    if stride >= first.layout().span(first.dtype())? {
        return Ok(true);
    }
    let all = laid_together(matrices, stride)?;
    let is_there = |(index, matrix): (usize, &HostMatrix)| {
        lines(matrix, index * stride)
            .all(|(line, at)| all.bytes()[at..at + line.len()] == matrix.bytes()[line])
    };
    Ok(matrices.iter().enumerate().all(is_there))
}

/// Gives matrices that overlap in one allocation, `stride` elements apart, the elements that they
/// have if they are written there one after the other.
///
/// # Errors
/// Memory is not to be had.
pub fn overlap(matrices: &mut [HostMatrix], stride: usize) -> Result<()> {
    if !agree(matrices, stride)? {
        let all = laid_together(matrices, stride)?.into_owned();
        take_apart(all.bytes(), stride, matrices);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_that_overlap_agree_or_are_made_to() {
        let layout = MatrixLayout::row_major(3, 4);
        let random = |seed| {
            let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
            matrix.fill_random(seed);
            matrix
        };
        let mut matrices = [random(1), random(2), random(3)];
        assert!(agree(&matrices, 12).unwrap() && agree(&matrices[..1], 0).unwrap());
        assert!(!agree(&matrices, 11).unwrap() && !agree(&matrices, 1).unwrap());
        let last = matrices[2].clone();
        overlap(&mut matrices, 4).unwrap();
        assert!(agree(&matrices, 4).unwrap());
        // The last one was written last. The first one's last two rows are the others' first rows.
        assert_eq!(matrices[2], last);
        let rows = |matrix: &HostMatrix, from: usize| matrix.bytes()[16 * from..][..16].to_vec();
        assert_eq!(rows(&matrices[0], 2), rows(&matrices[2], 0));
        assert_eq!(rows(&matrices[0], 1), rows(&matrices[1], 0));
    }
}
