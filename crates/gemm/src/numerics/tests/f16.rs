//! Sums in f16: their bounds hold whatever tensor cores round, to the nearest or towards zero, once
//! a block or at every product; and what overflows on the way is told from what is wrong.

use super::*;

/// The accumulator and some products, added up in double precision and then rounded to f16.
pub(super) fn add(sum: f32, products: &[f64], toward_zero: bool) -> f32 {
    let exact: f64 = f64::from(sum) + products.iter().sum::<f64>();
    let nearest = half::f16::from_f64(exact);
    let beyond = toward_zero && nearest.is_finite() && nearest.to_f64().abs() > exact.abs();
    if beyond { half::f16::from_bits(nearest.to_bits() - 1).to_f32() } else { nearest.to_f32() }
}

fn operands(problem: &Problem, seed: u64, exponent: i32) -> [HostMatrix; 2] {
    let mut a = HostMatrix::zeros(problem.a_layout(), Element::F16).unwrap();
    let mut b = HostMatrix::zeros(problem.b_layout(), Element::F16).unwrap();
    fill(&mut a, seed, exponent);
    fill(&mut b, seed ^ 1, exponent);
    [a, b]
}

const F16: ErrorModel = ErrorModel::new(Accumulation::TensorCore16, Element::F16);
const F16_RANDOM: ErrorModel = ErrorModel::new(Accumulation::TensorCore16Random, Element::F16);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_bound_holds_however_sums_are_rounded(
        k in 0usize..300, length in prop::sample::select(vec![1usize, 4, 8, 16]), toward_zero: bool,
        interval in prop::sample::select(vec![1usize, 64, 1000]), positive: bool, output in output(), alpha in scalars(),
        beta in scalars(), exponent in prop::sample::select(vec![0, 1, 5, -4, -9]), seed: u64,
    ) {
        let problem = Problem::new(3, 4, k, Major::K, Major::N).with_alpha(alpha).with_beta(beta);
        let [mut a, mut b] = operands(&problem, seed, exponent);
        if positive {
            // Truncations that all go one way.
            for matrix in [&mut a, &mut b] {
                let values = matrix.clone();
                matrix.fill_with(|row, column| values.get(row, column).unwrap().abs());
            }
        }
        let mut c = HostMatrix::zeros(problem.c_layout(), output).unwrap();
        c.fill_normal(seed ^ 2);
        let mut rng = StdRng::seed_from_u64(seed);
        let order = Order::F16 { length, toward_zero, interval };
        let d = emulate(&problem, (&a, &b, &c), output, order, &mut rng);
        let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
        let comparison = reference.compare(&d, &F16).unwrap();
        prop_assert!(comparison.passed, "{}", comparison);
    }
}

/// At every depth the statistical bound leaves room for what tensor cores may do with random
/// numbers, and none for a D of zeros.
#[test]
fn random_numbers_have_a_bound_that_says_something() {
    let mut rng = StdRng::seed_from_u64(11);
    for k in [16, 64, 1024, 4096, 8192] {
        let problem = Problem::new(16, 24, k, Major::K, Major::K);
        let [mut a, mut b] = operands(&problem, 0, 0);
        a.fill_normal(k as u64);
        b.fill_normal(k as u64 + 1);
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let mut compare = |a: &HostMatrix, length, toward_zero| {
            let order = Order::F16 { length, toward_zero, interval: k };
            let d = emulate(&problem, (a, &b, &b), Element::F16, order, &mut rng);
            reference.compare(&d, &F16_RANDOM).unwrap()
        };
        for (length, toward_zero) in [(16, false), (16, true), (8, true), (4, true), (1, false)] {
            let comparison = compare(&a, length, toward_zero);
            assert!(comparison.passed, "{k}, {length}, {toward_zero}: {comparison}");
        }
        let zeros = HostMatrix::zeros(problem.d_layout(), Element::F16).unwrap();
        assert!(!reference.compare(&zeros, &F16_RANDOM).unwrap().passed, "{k}");
    }
}

/// A row of ones by columns of `values`, of which partial sums overflow.
fn compare(values: [f64; 3], found: f64, model: &ErrorModel) -> Comparison {
    let problem = Problem::new(1, 1, 3, Major::K, Major::K);
    let matrix =
        |layout, values: &[f64]| HostMatrix::from_f64(layout, Element::F16, values).unwrap();
    let a = matrix(problem.a_layout(), &[1.0; 3]);
    let b = matrix(problem.b_layout(), &values);
    let d = matrix(problem.d_layout(), &[found]);
    Reference::new(&problem, &a, &b, None).unwrap().compare(&d, model).unwrap()
}

#[test]
fn sums_that_overflow_on_the_way_may_be_anything_but_wrong_numbers() {
    let large = [60000.0, 10000.0, -60000.0];
    for found in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let comparison = compare(large, found, &F16);
        assert!(comparison.passed && comparison.overflowed == 1, "{found}: {comparison}");
        // Sums in binary32 have no such excuse, nor have small ones.
        let tensor_core = ErrorModel::new(Accumulation::TensorCore, Element::F16);
        assert!(!compare(large, found, &tensor_core).passed, "{found}");
        assert!(!compare([100.0, 200.0, -300.0], found, &F16).passed, "{found}");
    }
    assert!(compare(large, 9984.0, &F16).passed);
    assert!(!compare(large, 5000.0, &F16).passed);
}

#[test]
fn integers_are_exact_up_to_2048() {
    let problem = Problem::new(1, 1, 2, Major::K, Major::K);
    let matrix =
        |layout, values: &[f64]| HostMatrix::from_f64(layout, Element::F16, values).unwrap();
    let d = |value| HostMatrix::from_f64(problem.d_layout(), Element::F32, &[value]).unwrap();
    for (last, exact) in [(1.0, true), (2.0, false)] {
        let a = matrix(problem.a_layout(), &[2047.0, last]);
        let b = matrix(problem.b_layout(), &[1.0, 1.0]);
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let comparison = reference.compare_exact_f16(&d(2047.0 + last));
        assert_eq!(comparison.is_ok(), exact, "{comparison:?}");
        assert!(reference.compare_exact(&d(2047.0 + last)).unwrap().passed);
    }
}
