//! A [`Problem`](abi::Problem) of C as the library's.

use pgemm::{Major, Problem};

use crate::abi::{self, *};
use crate::failure::Failure;

/// Row-major matrices without gaps.
///
/// # Errors
/// A negative extent.
pub fn row_major(m: i64, n: i64, k: i64) -> Result<Problem, Failure> {
    let [m, n, k] = extents(m, n, k)?;
    Ok(Problem::new(m, n, k, Major::K, Major::N))
}

/// Reads the fields of a problem. Overlap of lines is checked later.
///
/// # Errors
/// A negative number that is not allowed, or an unknown layout.
pub fn problem(from: &abi::Problem) -> Result<Problem, Failure> {
    let [m, n, k] = extents(from.m, from.n, from.k)?;
    let a_major = major("layout_a", from.layout_a, Major::K, Major::M)?;
    let b_major = major("layout_b", from.layout_b, Major::N, Major::K)?;
    let d_major = major("layout_c", from.layout_c, Major::N, Major::M)?;
    let mut problem = Problem::new(m, n, k, a_major, b_major)
        .with_d_major(d_major)
        .with_alpha(from.alpha)
        .with_beta(from.beta);
    for (what, requested, leading_dimension) in [
        ("lda", from.lda, &mut problem.a.leading_dimension),
        ("ldb", from.ldb, &mut problem.b.leading_dimension),
        ("ldc", from.ldc, &mut problem.c_leading_dimension),
        ("ldd", from.ldd, &mut problem.d_leading_dimension),
    ] {
        // As in BLAS, 0 is not a stride, so it stands for PGEMM_TIGHT.
        let requested = if requested == 0 { PGEMM_TIGHT } else { requested };
        set(what, requested, leading_dimension)?;
    }
    if from.batch == 1 {
        return Ok(problem);
    }
    // Matrices without gaps follow from the leading dimensions.
    let mut problem = problem.with_batch(extent("batch", from.batch)?);
    for (what, requested, stride) in [
        ("batch_stride_a", from.batch_stride_a, &mut problem.batch.a),
        ("batch_stride_b", from.batch_stride_b, &mut problem.batch.b),
        ("batch_stride_c", from.batch_stride_c, &mut problem.batch.c),
        ("batch_stride_d", from.batch_stride_d, &mut problem.batch.d),
    ] {
        set(what, requested, stride)?;
    }
    Ok(problem)
}

/// Sets the elements from one line or matrix to the next, or keeps the present value, which leaves
/// no gaps.
fn set(what: &str, requested: i64, elements: &mut usize) -> Result<(), Failure> {
    match requested {
        PGEMM_TIGHT => {}
        PGEMM_SAME => *elements = 0,
        _ => {
            *elements = usize::try_from(requested).map_err(|_| {
                Failure::argument(format!(
                    "{what} is {requested}: give elements, PGEMM_TIGHT for no gaps, or PGEMM_SAME for \
                     one and the same"
                ))
            })?;
        }
    }
    Ok(())
}

fn extents(m: i64, n: i64, k: i64) -> Result<[usize; 3], Failure> {
    Ok([extent("m", m)?, extent("n", n)?, extent("k", k)?])
}

fn extent(what: &str, requested: i64) -> Result<usize, Failure> {
    usize::try_from(requested)
        .map_err(|_| Failure::argument(format!("{what} is {requested}: it must be 0 or more")))
}

fn major(what: &str, requested: Layout, rows: Major, columns: Major) -> Result<Major, Failure> {
    match requested {
        PGEMM_ROW_MAJOR => Ok(rows),
        PGEMM_COLUMN_MAJOR => Ok(columns),
        _ => {
            let names = "PGEMM_ROW_MAJOR (0), PGEMM_COLUMN_MAJOR (1)";
            Err(Failure::unknown(what, requested, names))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(m: i64, n: i64, k: i64) -> abi::Problem {
        abi::Problem { m, n, k, ..Default::default() }
    }

    #[test]
    fn defaults_are_row_major_without_gaps() {
        let row_major = row_major(3, 5, 7).unwrap();
        assert_eq!(problem(&of(3, 5, 7)).unwrap(), row_major);
        assert_eq!(row_major, Problem::new(3, 5, 7, Major::K, Major::N));
        assert!(row_major.validate().is_ok());
    }

    #[test]
    fn every_field_reaches_its_place() {
        let from = abi::Problem {
            lda: 11,
            ldb: 12,
            ldc: 13,
            ldd: 14,
            layout_a: PGEMM_COLUMN_MAJOR,
            layout_b: PGEMM_COLUMN_MAJOR,
            layout_c: PGEMM_COLUMN_MAJOR,
            alpha: 2.0,
            beta: 3.0,
            batch: 4,
            batch_stride_a: 1000,
            batch_stride_b: 1001,
            batch_stride_c: 1002,
            batch_stride_d: 1003,
            ..of(3, 5, 7)
        };
        let expected = Problem::new(3, 5, 7, Major::M, Major::K)
            .with_d_major(Major::M)
            .with_a_leading_dimension(11)
            .with_b_leading_dimension(12)
            .with_c_leading_dimension(13)
            .with_d_leading_dimension(14)
            .with_alpha(2.0)
            .with_beta(3.0)
            .with_batch(4)
            .with_a_batch_stride(1000)
            .with_b_batch_stride(1001)
            .with_c_batch_stride(1002)
            .with_d_batch_stride(1003);
        assert_eq!(problem(&from).unwrap(), expected);
        assert!(expected.validate().is_ok());
    }

    #[test]
    fn nothing_given_is_tight_and_nothing_between_is_the_same() {
        let tight = abi::Problem { batch: 2, lda: 8, ldd: 0, ..of(3, 5, 7) };
        let tight = problem(&tight).unwrap();
        assert_eq!((tight.batch.a, tight.batch.b, tight.batch.d), (24, 35, 15));
        assert_eq!((tight.a.leading_dimension, tight.d_leading_dimension), (8, 5));
        let same = abi::Problem {
            batch: 2,
            lda: PGEMM_SAME,
            batch_stride_b: 0,
            batch_stride_c: PGEMM_SAME,
            ..of(3, 5, 7)
        };
        let same = problem(&same).unwrap();
        assert_eq!((same.a.leading_dimension, same.batch.b, same.batch.c), (0, 0, 0));
        assert!(same.validate().is_ok());
    }

    #[test]
    fn numbers_that_stand_for_nothing_are_refused() {
        for (from, part) in [
            (of(-1, 5, 7), "m is -1"),
            (of(3, i64::MIN, 7), "n is -9223372036854775808"),
            (of(3, 5, -7), "k is -7"),
            (abi::Problem { lda: -3, ..of(3, 5, 7) }, "lda is -3"),
            (abi::Problem { batch: -1, ..of(3, 5, 7) }, "batch is -1"),
            (abi::Problem { batch: 2, batch_stride_d: -9, ..of(3, 5, 7) }, "batch_stride_d is -9"),
            (abi::Problem { layout_b: 2, ..of(3, 5, 7) }, "layout_b = 2 is unknown"),
        ] {
            let failure = problem(&from).unwrap_err();
            assert_eq!(failure.status, PGEMM_ERROR_INVALID_ARGUMENT);
            assert!(failure.message.contains(part), "{failure:?}");
        }
    }
}
