//! The types of files' matrices become those of the product.

use std::borrow::Cow;

use persistent_gemm::{Dtype, HostMatrix};
use pgemm_files::IoError;

use crate::output;

/// The matrices in this type, each with a note on standard error if that changes its type. `name`
/// is what the note calls it, such as `A`.
///
/// # Errors
/// The memory is not to be had.
pub(super) fn converted<'a>(
    matrices: &'a [HostMatrix],
    dtype: Dtype,
    name: &str,
) -> Result<Cow<'a, [HostMatrix]>, IoError> {
    if matrices.iter().all(|matrix| matrix.dtype() == dtype) {
        return Ok(Cow::Borrowed(matrices));
    }
    let converted = matrices.iter().map(|matrix| with_notice(matrix, dtype, name));
    converted.collect::<Result<_, _>>().map(Cow::Owned)
}

/// The matrix in another element type, with a note on standard error, in which the matrix is called
/// `name`, such as `A`.
///
/// # Errors
/// The memory is not to be had.
fn with_notice(matrix: &HostMatrix, dtype: Dtype, name: &str) -> Result<HostMatrix, IoError> {
    output::note(notice(matrix, dtype, name));
    matrix.convert(dtype).map_err(|source| IoError::Matrix { what: name.to_owned(), source })
}

fn notice(matrix: &HostMatrix, dtype: Dtype, name: &str) -> String {
    let from = matrix.dtype();
    let rounded = format!("{name}: {from} converted to {dtype}, rounded to nearest even");
    let total = matrix.rows() * matrix.columns();
    let warning = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!("; WARNING: {count} of {total} elements {what}"),
    };
    let becomes = match (dtype.is_integer(), dtype) {
        (true, _) => format!("exceed the range of {dtype} and become its nearest value"),
        (false, Dtype::E4m3 | Dtype::E5m2) => {
            format!("exceed the range of {dtype} and become its largest value")
        }
        (false, _) => format!("exceed the range of {dtype} and become infinite"),
    };
    let lost = warning(matrix.out_of_range(dtype), &becomes);
    let undefined = match dtype.is_integer() {
        true => {
            warning(matrix.nan_elements(), &format!("are NaN, which {dtype} lacks, and become 0"))
        }
        false => String::new(),
    };
    format!("{rounded}{lost}{undefined}")
}

#[cfg(test)]
mod tests {
    use persistent_gemm::MatrixLayout;

    use super::*;

    #[test]
    fn conversion_says_what_it_does() {
        let layout = MatrixLayout::row_major(1, 3);
        let source = HostMatrix::from_f64(layout, Dtype::F32, &[1e6, 0.1, -1e6]).unwrap();
        assert_eq!(
            notice(&source, Dtype::Bf16, "A"),
            "A: f32 converted to bf16, rounded to nearest even"
        );
        assert_eq!(
            notice(&source, Dtype::F16, "B"),
            "B: f32 converted to f16, rounded to nearest even; WARNING: 2 of 3 elements exceed the \
             range of f16 and become infinite"
        );
        let special = [1e6, f64::NAN, f64::INFINITY];
        let special = HostMatrix::from_f64(layout, Dtype::F32, &special).unwrap();
        assert_eq!(
            notice(&special, Dtype::S8, "A"),
            "A: f32 converted to s8, rounded to nearest even; WARNING: 2 of 3 elements exceed the \
             range of s8 and become its nearest value; WARNING: 1 of 3 elements are NaN, which s8 \
             lacks, and become 0"
        );
        let half = with_notice(&source, Dtype::F16, "A").unwrap();
        assert_eq!(half.get(0, 0), Some(f64::INFINITY));
    }
}
