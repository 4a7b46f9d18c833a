use pgemm_ir::Element;
use proptest::prelude::*;

use super::*;

#[test]
fn majors_become_orders() {
    let problem = Problem::new(3, 5, 7, Major::K, Major::K);
    assert_eq!(problem.a_layout(), MatrixLayout::row_major(3, 7));
    assert_eq!(problem.b_layout(), MatrixLayout::column_major(7, 5));
    let problem = Problem::new(3, 5, 7, Major::M, Major::N);
    assert_eq!(problem.a_layout(), MatrixLayout::column_major(3, 7));
    assert_eq!(problem.b_layout(), MatrixLayout::row_major(7, 5));
    assert_eq!(problem.d_layout(), MatrixLayout::row_major(3, 5));
    assert_eq!(problem.operations(), Ok(210));
}

#[test]
fn impossible_majors_are_named() {
    let problem = Problem::new(3, 5, 7, Major::N, Major::K);
    assert_eq!(
        problem.validate().unwrap_err().to_string(),
        "A cannot be n-major: it has the dimensions m and k; use one of them"
    );
    assert!(matches!(
        Problem::new(3, 5, 7, Major::K, Major::M).validate(),
        Err(PlanError::NoSuchMajor { operand: "B", .. })
    ));
}

#[test]
fn short_leading_dimensions_are_refused() {
    let problem = Problem::new(3, 5, 7, Major::K, Major::N);
    for (short, matrix, least) in [
        (problem.with_a_leading_dimension(6), "A", 7),
        (problem.with_b_leading_dimension(4), "B", 5),
        (problem.with_c_leading_dimension(1), "C", 5),
        (problem.with_d_leading_dimension(4), "D", 5),
    ] {
        match short.validate() {
            Err(PlanError::LeadingDimension { matrix: found, least: found_least, .. }) => {
                assert_eq!((found, found_least), (matrix, least));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn vectors_are_broadcast_as_operands_and_never_written() {
    let problem = Problem::new(3, 5, 7, Major::K, Major::N);
    problem.with_a_leading_dimension(0).with_b_leading_dimension(0).validate().unwrap();
    problem.with_a_step(0).with_b_step(9).with_c_leading_dimension(0).validate().unwrap();
    assert!(problem.with_d_leading_dimension(0).validate().is_err());
    let far = problem.with_a_step(usize::MAX).validate();
    assert!(matches!(far, Err(PlanError::TooManyBytes { .. })), "{far:?}");
}

#[test]
fn a_column_major_result_is_the_row_major_one_of_the_transposed_problem() {
    let problem = Problem::new(3, 5, 7, Major::M, Major::K).with_d_major(Major::M);
    assert_eq!(problem.d_layout(), MatrixLayout::column_major(3, 5));
    let transposed = problem.transposed();
    assert_eq!(
        (transposed.m, transposed.n, transposed.a.major, transposed.b.major),
        (5, 3, Major::K, Major::N)
    );
    assert_eq!(transposed.d_layout(), MatrixLayout::row_major(5, 3));
    assert_eq!(transposed.transposed(), problem);
    let error = problem.with_d_major(Major::K).validate().unwrap_err().to_string();
    assert!(error.starts_with("D cannot be k-major"), "{error}");
}

#[test]
fn overflow_is_an_error() {
    let huge = 1 << 40;
    assert!(matches!(
        Problem::new(huge, huge, 2, Major::K, Major::K).validate(),
        Err(PlanError::TooManyBytes { .. })
    ));
    assert!(matches!(
        Problem::new(huge, 1, 1, Major::K, Major::K)
            .with_a_leading_dimension(usize::MAX)
            .validate(),
        Err(PlanError::TooManyBytes { .. })
    ));
    let many = 1 << 22;
    assert!(matches!(
        Problem::new(many, many, many, Major::K, Major::K).validate(),
        Err(PlanError::TooManyOperations { .. })
    ));
    // Fits as bytes, but not as doubles.
    let layout = MatrixLayout::row_major(1 << 31, 1 << 31);
    assert!(layout.bytes(Element::S8).is_ok());
    assert!(matches!(
        layout.bytes(Element::F64),
        Err(PlanError::TooManyBytes { element_bytes: 8, .. })
    ));
}

#[test]
fn a_batch_is_packed_unless_it_says_otherwise() {
    let problem = Problem::new(3, 5, 7, Major::K, Major::N).with_a_leading_dimension(8);
    let batch = problem.with_batch(4);
    assert_eq!(batch.batch, Batch { count: 4, a: 24, b: 35, c: 15, d: 15 });
    assert_eq!(batch.operations(), Ok(4 * 210));
    assert_eq!(batch.one(), problem);
    assert_eq!(problem.with_batch(1), problem);
    batch.validate().unwrap();
    let transposed = batch.transposed();
    assert_eq!((transposed.batch.a, transposed.batch.b, transposed.batch.d), (35, 24, 15));
    assert!(batch.with_batch(0).is_empty() && batch.with_batch(0).validate().is_ok());

    let same = batch.with_a_batch_stride(0).with_b_batch_stride(1).with_c_batch_stride(0);
    same.validate().unwrap();
    let overlapping = batch.with_d_batch_stride(14).validate();
    assert!(matches!(overlapping, Err(PlanError::BatchOverlap { least: 15, .. })));
    assert!(batch.with_d_batch_stride(0).validate().is_err());
    let far = batch.with_b_batch_stride(usize::MAX / 2).validate();
    assert!(matches!(far, Err(PlanError::TooManyMatrices { matrix: "B", .. })), "{far:?}");
    let many = problem.with_batch(usize::MAX).validate();
    assert!(matches!(many, Err(PlanError::TooManyMatrices { .. })), "{many:?}");
}

#[test]
fn inner_dimensions_must_agree() {
    let error =
        Problem::of(&MatrixLayout::row_major(2, 3), &MatrixLayout::row_major(4, 5)).unwrap_err();
    assert!(error.to_string().starts_with("A is 2×3 and B is 4×5"), "{error}");
}

#[test]
fn empty_problems_are_legal() {
    for (m, n, k) in [(0, 5, 7), (3, 0, 7), (3, 5, 0), (0, 0, 0)] {
        for (a, b) in [(Major::K, Major::K), (Major::M, Major::N)] {
            Problem::new(m, n, k, a, b).validate().unwrap();
        }
    }
}

proptest! {
    #[test]
    fn offsets_are_distinct_and_inside_the_span(
        rows in 0usize..9, columns in 0usize..9, gap in 0usize..4, column_major: bool,
    ) {
        let order = if column_major { Order::ColumnMajor } else { Order::RowMajor };
        let layout = MatrixLayout::tight(rows, columns, order);
        let layout = layout.with_leading_dimension(layout.leading_dimension + gap);
        let span = layout.span(Element::F64).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for row in 0..rows {
            for column in 0..columns {
                let offset = layout.offset(row, column).unwrap();
                prop_assert!(offset < span);
                prop_assert!(seen.insert(offset));
            }
        }
        prop_assert_eq!(seen.last().map_or(0, |last| last + 1), span);
        prop_assert_eq!(layout.offset(rows, 0), None);
        prop_assert_eq!(layout.offset(0, columns), None);
    }

    #[test]
    fn layouts_survive_the_way_through_a_problem(
        m in 1usize..9, n in 1usize..9, k in 1usize..9, gap in 0usize..4,
        a_column_major: bool, b_column_major: bool,
    ) {
        let order = |c| if c { Order::ColumnMajor } else { Order::RowMajor };
        let widen = |l: MatrixLayout| l.with_leading_dimension(l.leading_dimension + gap);
        let a = widen(MatrixLayout::tight(m, k, order(a_column_major)));
        let b = widen(MatrixLayout::tight(k, n, order(b_column_major)));
        let problem = Problem::of(&a, &b).unwrap();
        prop_assert_eq!(problem.a_layout(), a);
        prop_assert_eq!(problem.b_layout(), b);
    }
}
