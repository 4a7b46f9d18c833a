//! Exact comparisons, and values that are not finite or saturate.

use super::*;

#[test]
fn integers_are_compared_modulo_two_to_the_32() {
    let problem = Problem::new(3, 4, 100, Major::K, Major::K).with_alpha(100_000.0);
    let mut a = HostMatrix::zeros(problem.a_layout(), Element::S8).unwrap();
    let mut b = HostMatrix::zeros(problem.b_layout(), Element::U8).unwrap();
    a.fill_integers(1, 127);
    b.fill_integers(2, 127);
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    assert!(reference.values().iter().any(|value| value.abs() > 2f64.powi(32)));
    let mut d = HostMatrix::zeros(problem.d_layout(), Element::S32).unwrap();
    d.fill_with(|row, column| f64::from(reference.values()[row * 4 + column] as i64 as i32));
    let model =
        ErrorModel { accumulation: Accumulation::TensorCore, a: Element::S8, b: Element::U8 };
    for comparison in [reference.compare_exact(&d).unwrap(), reference.compare(&d, &model).unwrap()]
    {
        assert!(comparison.passed && comparison.check == Check::Exact, "{comparison}");
    }
    d.set(2, 3, d.get(2, 3).unwrap() + 1.0).unwrap();
    let comparison = reference.compare(&d, &model).unwrap();
    assert_eq!((comparison.passed, comparison.failed), (false, 1));
    // Products of an integer and a float are nobody's.
    let mixed = ErrorModel { b: Element::Bf16, ..model };
    assert!(matches!(reference.compare(&d, &mixed), Err(NumericsError::NoBound { .. })));
    // Beyond what the reference holds exactly.
    let huge = Reference::new(&problem.with_alpha(2e9), &a, &b, None).unwrap();
    assert!(huge.compare_exact(&d).is_ok());
    let huge = problem.with_alpha(1e12).with_beta(0.0);
    let huge = Reference::new(&huge, &a, &b, None).unwrap();
    assert!(matches!(huge.compare_exact(&d), Err(NumericsError::NotExact { .. })));
}

#[test]
fn exact_results_are_rounded_once() {
    let (problem, a, b) = integer_problem(100, 1);
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    for output in [Element::F32, Element::Bf16, Element::F16] {
        let mut d = HostMatrix::from_f64(problem.d_layout(), output, reference.values()).unwrap();
        let comparison = reference.compare_exact(&d).unwrap();
        assert!(comparison.passed && comparison.check == Check::Exact);
        assert_eq!(comparison.worst.unwrap().ratio, 0.0);
        let off = d.get(3, 4).unwrap() + if output == Element::Bf16 { 2.0 } else { 1.0 };
        d.set(3, 4, off).unwrap();
        let comparison = reference.compare_exact(&d).unwrap();
        assert_eq!((comparison.passed, comparison.failed), (false, 1));
        let worst = comparison.worst.unwrap();
        assert_eq!((worst.row, worst.column, worst.ratio), (3, 4, f64::INFINITY));
    }
}

#[test]
fn the_first_wrong_element_is_named_beside_the_worst() {
    let (problem, a, b) = integer_problem(50, 3);
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let model = ErrorModel::new(Accumulation::Nearest, Element::Bf16);
    let layout = problem.d_layout();
    let mut d = HostMatrix::from_f64(layout, Element::F32, reference.values()).unwrap();
    assert_eq!(reference.compare(&d, &model).unwrap().first_failed, None);
    // In two blocks of rows.
    for (row, column, off) in [(18, 2, 1e6), (3, 7, 1e3), (3, 9, 1e4)] {
        d.set(row, column, d.get(row, column).unwrap() + off).unwrap();
    }
    let comparison = reference.compare(&d, &model).unwrap();
    let [first, worst] = [comparison.first_failed, comparison.worst].map(Option::unwrap);
    assert_eq!((first.row, first.column), (3, 7));
    assert_eq!((worst.row, worst.column), (18, 2));
    assert!((first.error - 1e3).abs() < 1.0, "{first:?}");
}

#[test]
fn inexact_inputs_are_refused_by_the_exact_check() {
    let (problem, mut a, b) = integer_problem(100, 1);
    let d = HostMatrix::zeros(problem.d_layout(), Element::F32).unwrap();
    let scaled = problem.with_alpha(1e6);
    let reference = Reference::new(&scaled, &a, &b, None).unwrap();
    assert!(matches!(reference.compare_exact(&d), Err(NumericsError::NotExact { .. })));
    a.set(0, 0, 0.5).unwrap();
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let error = reference.compare_exact(&d).unwrap_err();
    assert!(error.to_string().contains("a fraction"), "{error}");
}

#[test]
fn nan_never_passes_and_poison_is_counted() {
    let (problem, a, b) = integer_problem(50, 3);
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let model = ErrorModel::new(Accumulation::Nearest, Element::Bf16);
    let mut d = HostMatrix::zeros(problem.d_layout(), Element::Bf16).unwrap();
    d.poison();
    for comparison in [reference.compare(&d, &model).unwrap(), reference.compare_exact(&d).unwrap()]
    {
        assert!(!comparison.passed);
        assert_eq!(
            (comparison.failed, comparison.unwritten, comparison.not_a_number),
            (600, 600, 0)
        );
    }
    let mut d =
        HostMatrix::from_f64(problem.d_layout(), Element::Bf16, reference.values()).unwrap();
    d.set(19, 29, f64::NAN).unwrap();
    let comparison = reference.compare(&d, &model).unwrap();
    assert!(!comparison.passed);
    assert_eq!((comparison.failed, comparison.unwritten, comparison.not_a_number), (1, 0, 1));
    let worst = comparison.worst.unwrap();
    assert_eq!((worst.row, worst.column), (19, 29));
    assert!(comparison.to_string().contains("WRONG"), "{comparison}");
    // The report travels as JSON, NaN included.
    let text = serde_json::to_string(&comparison).unwrap();
    let back: Comparison = serde_json::from_str(&text).unwrap();
    assert!(back.worst.unwrap().computed.is_nan());
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn inputs_that_are_not_finite_are_reported() {
    let (problem, mut a, b) = integer_problem(50, 3);
    a.set(2, 0, f64::INFINITY).unwrap();
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let model = ErrorModel::new(Accumulation::Nearest, Element::Bf16);
    let d = HostMatrix::from_f64(problem.d_layout(), Element::F32, reference.values()).unwrap();
    let comparison = reference.compare(&d, &model).unwrap();
    assert_eq!((comparison.passed, comparison.undefined), (false, 30));
}

#[test]
fn overflow_is_right_where_the_result_overflows() {
    let problem = Problem::new(1, 2, 4, Major::K, Major::N);
    let a = HostMatrix::from_f64(problem.a_layout(), Element::F16, &[1.0, 1.0, 1.0, 1.0]).unwrap();
    let b = HostMatrix::from_f64(
        problem.b_layout(),
        Element::F16,
        &[30000.0, 1.0, 30000.0, 1.0, 30000.0, 1.0, 0.0, 1.0],
    )
    .unwrap();
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let model = ErrorModel::new(Accumulation::TensorCore, Element::F16);
    let layout = problem.d_layout();
    let judge = |first: f64, second: f64| {
        let d = HostMatrix::from_f64(layout, Element::F16, &[first, second]).unwrap();
        let bounded = reference.compare(&d, &model).unwrap();
        let exact = reference.compare_exact(&d).unwrap();
        assert_eq!(bounded.passed, exact.passed);
        bounded
    };
    let comparison = judge(f64::INFINITY, 4.0);
    assert!(comparison.passed, "{comparison}");
    assert_eq!(comparison.overflowed, 1);
    for (first, second) in
        [(f64::NEG_INFINITY, 4.0), (65504.0, 4.0), (f64::INFINITY, f64::INFINITY), (f64::NAN, 4.0)]
    {
        assert!(!judge(first, second).passed, "{first} {second}");
    }
}

/// Results beyond the range of a D that saturates are its ends, and nothing beside these; ties go
/// to either side of their error.
#[test]
fn results_that_saturate_are_held_against_the_ends() {
    let problem = Problem::new(1, 1, 1, Major::K, Major::N);
    let one = |element, value| {
        HostMatrix::from_f64(MatrixLayout::row_major(1, 1), element, &[value]).unwrap()
    };
    for (input, output, value, right, wrong) in [
        (Element::E4m3, Element::E4m3, 1000.0, &[448.0][..], &[416.0, -448.0][..]),
        (Element::E4m3, Element::E4m3, -460.0, &[-448.0], &[-416.0]),
        // Halfway between two numbers.
        (Element::E5m2, Element::E4m3, 17.0, &[16.0, 18.0], &[15.0, 20.0]),
        (Element::E5m2, Element::E5m2, -1e6, &[-57344.0], &[-49152.0]),
        (Element::S8, Element::S8, 300.0, &[127.0], &[126.0, -128.0]),
        (Element::S8, Element::S8, -128.4, &[-128.0], &[-127.0]),
        (Element::U8, Element::S8, 3.4, &[3.0], &[4.0, 2.0]),
        (Element::S8, Element::S8, 2.5, &[2.0, 3.0], &[1.0, 4.0]),
        (Element::S8, Element::Bf16, 257.0, &[256.0, 258.0], &[254.0, 260.0]),
    ] {
        let problem = problem.with_alpha(value);
        let (a, b) = (one(input, 1.0), one(input, 1.0));
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let model = ErrorModel::new(Accumulation::on_tensor_cores(input), input);
        let passes = |d| reference.compare(&one(output, d), &model).unwrap().passed;
        for &d in right {
            assert!(passes(d), "{output}: {d} for {value}");
        }
        for &d in wrong {
            assert!(!passes(d), "{output}: {d} for {value}");
        }
    }
    // An infinity is no saturated result.
    let problem = problem.with_alpha(1e6);
    let factor = one(Element::E5m2, 1.0);
    let reference = Reference::new(&problem, &factor, &factor, None).unwrap();
    let infinite =
        HostMatrix::from_bytes(MatrixLayout::row_major(1, 1), Element::E5m2, &[0x7c]).unwrap();
    let model = ErrorModel::new(Accumulation::Nearest, Element::E5m2);
    assert!(!reference.compare(&infinite, &model).unwrap().passed);
}

/// What the roundings of a sum lose is added to it, so that doubles have a reference too.
#[test]
fn large_addends_that_cancel_leave_the_small_one() {
    let layout = |rows, columns| MatrixLayout::row_major(rows, columns);
    let a = HostMatrix::from_f64(layout(1, 3), Element::F64, &[1e16, 1.0, -1e16]).unwrap();
    let b = HostMatrix::from_f64(layout(3, 1), Element::F64, &[1.0; 3]).unwrap();
    let d = HostMatrix::from_f64(layout(1, 1), Element::F64, &[1.0]).unwrap();
    let problem = Problem::new(1, 1, 3, Major::K, Major::N);
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let model = ErrorModel::new(Accumulation::Nearest, Element::F64);
    let comparison = reference.compare(&d, &model).unwrap();
    assert!(comparison.passed, "{comparison}");
    assert_eq!(comparison.worst.unwrap().reference, 1.0);
}
