//! Matrices in the memory of the host, read and written element by element as their strides say.

use std::ptr;

/// A strided matrix: the address of its first element, its extents, and the bytes from one row and
/// one column to the next.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    /// Address of the first element.
    pub address: u64,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Bytes from row to row.
    pub row_bytes: usize,
    /// Bytes from column to column.
    pub column_bytes: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
}

impl Strided {
    fn is_contiguous_by_row(&self) -> bool {
        self.column_bytes == self.element_bytes
    }

    fn at(&self, row: usize, column: usize) -> *mut u8 {
        let offset = row * self.row_bytes + column * self.column_bytes;
        (self.address as usize + offset) as *mut u8
    }
}

/// The bytes of a matrix, row after row without gaps.
///
/// # Safety
/// The matrix must be in memory that may be read.
pub unsafe fn gather(from: &Strided) -> Vec<u8> {
    let line = from.columns * from.element_bytes;
    let mut bytes = vec![0u8; from.rows * line];
    for (row, to) in bytes.chunks_exact_mut(line.max(1)).enumerate() {
        if from.is_contiguous_by_row() {
            // SAFETY: as the caller vouches; the line is as long as the row.
            unsafe { ptr::copy_nonoverlapping(from.at(row, 0), to.as_mut_ptr(), line) };
            continue;
        }
        for (column, to) in to.chunks_exact_mut(from.element_bytes).enumerate() {
            // SAFETY: as above, for one element.
            unsafe {
                ptr::copy_nonoverlapping(from.at(row, column), to.as_mut_ptr(), from.element_bytes);
            }
        }
    }
    bytes
}

/// Writes elements to the places that [`gather`] reads.
///
/// # Safety
/// The matrix must be in memory that may be written, and `bytes` elsewhere.
pub unsafe fn scatter(bytes: &[u8], to: &Strided) {
    let line = to.columns * to.element_bytes;
    for (row, from) in bytes.chunks_exact(line.max(1)).enumerate().take(to.rows) {
        if to.is_contiguous_by_row() {
            // SAFETY: as the caller vouches; the line is as long as the row.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.at(row, 0), line) };
            continue;
        }
        for (column, from) in from.chunks_exact(to.element_bytes).enumerate() {
            // SAFETY: as above, for one element.
            unsafe {
                ptr::copy_nonoverlapping(from.as_ptr(), to.at(row, column), to.element_bytes)
            };
        }
    }
}
