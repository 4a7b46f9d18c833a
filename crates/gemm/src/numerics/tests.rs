//! The bound holds for every order and rounding of the additions that it claims, and planted errors
//! are found.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng, seq::SliceRandom};

mod f16;
mod orders;
mod recorded;
mod specials;

use super::*;
use pgemm_ir::Element;
use pgemm_kernels::Terms;
use pgemm_plan::{Major, MatrixLayout, PlanError, Precision, Problem};

use crate::matrix::HostMatrix;
use orders::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_bound_holds_for_every_order(
        k in 0usize..200, input in input(), output in output(), order in orders(), alpha in scalars(),
        beta in scalars(), exponent in prop::sample::select(vec![0, 0, 3, -9, -63]), seed: u64,
    ) {
        let problem = Problem::new(3, 4, k, Major::K, Major::N).with_alpha(alpha).with_beta(beta);
        let mut a = HostMatrix::zeros(problem.a_layout(), input).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), input).unwrap();
        let mut c = HostMatrix::zeros(problem.c_layout(), input).unwrap();
        fill(&mut a, seed, exponent);
        fill(&mut b, seed ^ 1, exponent);
        c.fill_normal(seed ^ 2);
        let mut rng = StdRng::seed_from_u64(seed);
        let d = emulate(&problem, (&a, &b, &c), output, order, &mut rng);
        let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
        let model = ErrorModel::new(order.accumulation(), input);
        let comparison = reference.compare(&d, &model).unwrap();
        prop_assert!(comparison.passed, "{}", comparison);
        prop_assert!(comparison.relative_frobenius <= comparison.frobenius_bound);
    }

    #[test]
    fn the_bound_holds_for_8_bit_floats_in_blocks(
        k in 0usize..200, a_type in input_8(), b_type in input_8(), output in output(), alpha in scalars(),
        order in prop::sample::select(vec![
            Order::Blocks8 { length: 16 }, Order::Blocks8 { length: 32 }, Order::Promoted8 { interval: 32 },
            Order::Promoted8 { interval: 128 },
        ]),
        positive: bool, seed: u64,
    ) {
        let problem = Problem::new(3, 4, k, Major::K, Major::K).with_alpha(alpha);
        let mut a = HostMatrix::zeros(problem.a_layout(), a_type).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), b_type).unwrap();
        fill(&mut a, seed, 0);
        fill(&mut b, seed ^ 1, 0);
        if positive {
            // Truncations that all go one way.
            for matrix in [&mut a, &mut b] {
                let values = matrix.clone();
                matrix.fill_with(|row, column| values.get(row, column).unwrap().abs());
            }
        }
        let mut rng = StdRng::seed_from_u64(seed);
        let d = emulate(&problem, (&a, &b, &b), output, order, &mut rng);
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let model = ErrorModel { accumulation: order.accumulation(), a: a_type, b: b_type };
        let comparison = reference.compare(&d, &model).unwrap();
        prop_assert!(comparison.passed, "{}", comparison);
    }

    #[test]
    fn the_bound_covers_rounded_inputs(
        k in 1usize..100, input in input(), output in output(), order in orders(), alpha in scalars(),
        beta in scalars(), wide in prop::sample::select(vec![Element::F32, Element::F64, Element::F16, Element::Bf16]),
        exponent in prop::sample::select(vec![0, 2, -6, -10]), seed: u64,
    ) {
        let problem = Problem::new(3, 4, k, Major::M, Major::K).with_alpha(alpha).with_beta(beta);
        let mut a = HostMatrix::zeros(problem.a_layout(), wide).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), Element::F32).unwrap();
        let mut c = HostMatrix::zeros(problem.c_layout(), wide).unwrap();
        fill(&mut a, seed, exponent);
        fill(&mut b, seed ^ 1, exponent);
        c.fill_normal(seed ^ 2);
        let narrow = |matrix: &HostMatrix| matrix.convert(input).unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        let used_c = c.convert(output).unwrap();
        let d = emulate(&problem, (&narrow(&a), &narrow(&b), &used_c), output, order, &mut rng);
        let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
        let model = ErrorModel::new(order.accumulation(), input);
        let comparison = reference.compare(&d, &model).unwrap();
        prop_assert!(comparison.passed, "{}", comparison);
    }

    #[test]
    fn a_planted_error_is_found_and_located(
        k in 1usize..200, input in input(), output in output(), row in 0usize..5, column in 0usize..6,
        widths in 2.5f64..50.0, up: bool, seed: u64,
    ) {
        let problem = Problem::new(5, 6, k, Major::K, Major::K);
        let mut a = HostMatrix::zeros(problem.a_layout(), input).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), input).unwrap();
        a.fill_normal(seed);
        b.fill_normal(seed ^ 1);
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let model = ErrorModel::new(Accumulation::TensorCore, input);
        let mut d = HostMatrix::from_f64(problem.d_layout(), output, reference.values()).unwrap();
        prop_assert!(reference.compare(&d, &model).unwrap().passed);
        let index = row * 6 + column;
        let bound = reference.bounds(&model, output).unwrap()[index];
        let width = if up { widths * bound } else { -widths * bound };
        // Rounding the planted value to D's type takes back at most a bit more than one bound.
        d.set(row, column, reference.values()[index] + width).unwrap();
        let comparison = reference.compare(&d, &model).unwrap();
        prop_assert!(!comparison.passed);
        prop_assert_eq!(comparison.failed, 1);
        let worst = comparison.worst.unwrap();
        prop_assert_eq!((worst.row, worst.column), (row, column));
        prop_assert!(worst.ratio > 1.0);
    }

    #[test]
    fn the_reference_is_the_product(
        m in 0usize..6, n in 0usize..6, k in 0usize..40, a_m_major: bool, b_n_major: bool, gap in 0usize..3,
        alpha in -3i32..4, beta in -3i32..4, element in prop::sample::select(Element::ALL.to_vec()), seed: u64,
    ) {
        let problem = Problem::new(
            m, n, k, if a_m_major { Major::M } else { Major::K }, if b_n_major { Major::N } else { Major::K },
        ).with_alpha(alpha.into()).with_beta(beta.into());
        let problem = problem
            .with_a_leading_dimension(problem.a.leading_dimension + gap)
            .with_b_leading_dimension(problem.b.leading_dimension + 2 * gap)
            .with_c_leading_dimension(problem.c_leading_dimension + gap);
        let mut a = HostMatrix::zeros(problem.a_layout(), element).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), element).unwrap();
        let mut c = HostMatrix::zeros(problem.c_layout(), element).unwrap();
        a.poison();
        b.poison();
        c.poison();
        a.fill_integers(seed, 8);
        b.fill_integers(seed ^ 1, 8);
        if beta != 0 {
            c.fill_integers(seed ^ 2, 8);
        }
        let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
        for row in 0..m {
            for column in 0..n {
                let product: f64 = (0..k)
                    .map(|depth| a.get(row, depth).unwrap() * b.get(depth, column).unwrap())
                    .sum();
                let addend = if beta == 0 { 0.0 } else { f64::from(beta) * c.get(row, column).unwrap() };
                prop_assert_eq!(reference.values()[row * n + column], f64::from(alpha) * product + addend);
            }
        }
    }
}

fn integer_problem(k: usize, seed: u64) -> (Problem, HostMatrix, HostMatrix) {
    let problem = Problem::new(20, 30, k, Major::K, Major::N);
    let mut a = HostMatrix::zeros(problem.a_layout(), Element::Bf16).unwrap();
    let mut b = HostMatrix::zeros(problem.b_layout(), Element::Bf16).unwrap();
    a.fill_integers(seed, 4);
    b.fill_integers(seed + 1, 4);
    (problem, a, b)
}

#[test]
fn large_references_cross_their_blocks() {
    // More rows and more depth than one block holds.
    let problem = Problem::new(1030, 3, 5000, Major::M, Major::K);
    let mut a = HostMatrix::zeros(problem.a_layout(), Element::F16).unwrap();
    let mut b = HostMatrix::zeros(problem.b_layout(), Element::F16).unwrap();
    a.fill_integers(1, 8);
    b.fill_integers(2, 8);
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    for row in [0, 1, 1023, 1024, 1029] {
        for column in 0..3 {
            let product: f64 =
                (0..5000).map(|k| a.get(row, k).unwrap() * b.get(k, column).unwrap()).sum();
            assert_eq!(reference.values()[row * 3 + column], product);
        }
    }
}

#[test]
fn a_dropped_product_is_found() {
    let model = ErrorModel::new(Accumulation::TensorCore, Element::Bf16);
    let mut rng = StdRng::seed_from_u64(5);
    for (k, exact) in [(64, false), (4096, true)] {
        let (problem, mut a, mut b) = integer_problem(k, 7);
        if !exact {
            a.fill_normal(7);
            b.fill_normal(8);
        }
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let compare = |d: &HostMatrix| {
            if exact { reference.compare_exact(d) } else { reference.compare(d, &model) }.unwrap()
        };
        let matrices = (&a, &b, &b);
        let right = emulate(
            &problem,
            matrices,
            Element::F32,
            Order::Blocks { length: 16, extra: 2 },
            &mut rng,
        );
        assert!(compare(&right).passed);
        let mut short = a.clone();
        for row in 0..problem.m {
            short.set(row, k / 2, 0.0).unwrap();
        }
        let matrices = (&short, &b, &b);
        let wrong = emulate(&problem, matrices, Element::F32, Order::Forward, &mut rng);
        let comparison = compare(&wrong);
        assert!(!comparison.passed);
        assert!(comparison.failed > 300, "{comparison}");
    }
}

/// At every depth the statistical bound leaves room for what tensor cores do with random 8-bit
/// floats, and none for a D of zeros, which the bound for all inputs lets pass.
#[test]
fn random_8_bit_floats_have_a_bound_that_says_something() {
    let mut rng = StdRng::seed_from_u64(9);
    for k in [16, 64, 1024, 4096, 16384] {
        let problem = Problem::new(8, 12, k, Major::K, Major::K);
        let mut a = HostMatrix::zeros(problem.a_layout(), Element::E4m3).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), Element::E5m2).unwrap();
        a.fill_normal(k as u64);
        b.fill_normal(k as u64 + 1);
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let model = ErrorModel {
            accumulation: Accumulation::TensorCore8Random,
            a: Element::E4m3,
            b: Element::E5m2,
        };
        for length in [16, 32] {
            let order = Order::Blocks8 { length };
            let d = emulate(&problem, (&a, &b, &b), Element::F32, order, &mut rng);
            let comparison = reference.compare(&d, &model).unwrap();
            assert!(comparison.passed, "{k}: {comparison}");
            // Another half of the bits lost would still pass.
            assert!(comparison.worst.unwrap().ratio < 0.5, "{k}: {comparison}");
        }
        let zeros = HostMatrix::zeros(problem.d_layout(), Element::F32).unwrap();
        assert!(!reference.compare(&zeros, &model).unwrap().passed, "{k}");
    }
}

/// Sums that are promoted are off by less the longer k is; their bound says so, and what the tensor
/// core does alone fails it.
#[test]
fn promoted_8_bit_floats_have_a_bound_of_their_own() {
    let mut rng = StdRng::seed_from_u64(10);
    for k in [100, 128, 1024, 4096, 16384] {
        let problem = Problem::new(8, 12, k, Major::K, Major::K);
        let mut a = HostMatrix::zeros(problem.a_layout(), Element::E4m3).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), Element::E4m3).unwrap();
        a.fill_normal(k as u64);
        b.fill_normal(k as u64 + 1);
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let accumulation = Accumulation::Promoted8(128).of_random_signs();
        let model = ErrorModel::new(accumulation, Element::E4m3);
        let mut compare = |order| {
            let d = emulate(&problem, (&a, &b, &b), Element::F32, order, &mut rng);
            reference.compare(&d, &model).unwrap()
        };
        let promoted = compare(Order::Promoted8 { interval: 128 });
        assert!(promoted.passed && promoted.worst.unwrap().ratio < 0.5, "{k}: {promoted}");
        let fast = compare(Order::Blocks8 { length: 32 });
        if k >= 4096 {
            let better = fast.relative_frobenius / promoted.relative_frobenius;
            assert!(better > 4.0, "{k}: {better}");
        }
        // For positive numbers too, where truncations add up, the bound for all inputs stays below
        // that without promotion.
        let worst = |accumulation| {
            let model = ErrorModel::new(accumulation, Element::E4m3);
            reference.bounds(&model, Element::F32).unwrap()[0]
        };
        let [promoted, fast] = [Accumulation::Promoted8(128), Accumulation::TensorCore8].map(worst);
        assert!(if k <= 128 { promoted <= fast * 1.001 } else { promoted < fast / 2.0 }, "{k}");
    }
}

/// The bounds at one depth as numbers: parts of the sum's own magnitude, and of the sum of all
/// magnitudes. Tests of what a bound lets pass do not notice that it is some times too wide.
#[test]
fn bounds_are_as_narrow_as_derived() {
    for (accumulation, doubles, own, all) in [
        (Accumulation::Nearest, false, 0.0, 2.442_002e-4),
        (Accumulation::Nearest, true, 0.0, 4.547_474e-13),
        (Accumulation::TensorCore, false, 0.0, 4.885_198e-4),
        (Accumulation::Promoted(32), false, 0.0, 1.144_419e-5),
        (Accumulation::TensorCore8, false, 0.0, 1.718_282),
        (Accumulation::TensorCore8Random, false, 0.0625, 0.005_859_375),
        (Accumulation::Promoted8(128), false, 0.0, 3.174_538e-2),
        (Accumulation::Promoted8Random(128), false, 0.0, 8.860_188e-4),
        (Accumulation::TensorCore16, false, 0.0, 53.598_15),
        (Accumulation::TensorCore16Random, false, 0.25, 0.023_437_5),
    ] {
        let found = accumulation.factors(4096, doubles).unwrap();
        for (found, derived) in [(found.0, own), (found.1, all)] {
            let apart = (found - derived).abs();
            assert!(apart <= 1e-5 * derived, "{accumulation:?}: {found}, not {derived}");
        }
    }
}

/// Products of binary32 split into terms, the small ones first, in blocks as tensor cores add them
/// up; the sums of each span to the nearest.
fn emulate_terms(problem: &Problem, a: &HostMatrix, b: &HostMatrix, mode: Precision) -> HostMatrix {
    let (element, terms) = mode.terms().unwrap();
    let span = (Terms::SPAN_BYTES / element.bytes()) as usize;
    let round = |value: f64| {
        HostMatrix::from_f64(MatrixLayout::row_major(1, 1), element, &[value])
            .unwrap()
            .get(0, 0)
            .unwrap()
    };
    // A line's scale brings its largest into [2^13, 2^14).
    let scale = |line: &[f64]| {
        let largest = line.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        if element == Element::F16 && largest > 0.0 {
            2f64.powi(13 - largest.log2().floor() as i32)
        } else {
            1.0
        }
    };
    let split = |value: f64| {
        let mut rest = value;
        (0..terms.count())
            .map(|_| {
                let term = round(rest);
                rest -= term;
                term
            })
            .collect::<Vec<_>>()
    };
    let mut d = HostMatrix::zeros(problem.d_layout(), Element::F32).unwrap();
    for row in 0..problem.m {
        for column in 0..problem.n {
            let a: Vec<f64> = (0..problem.k).map(|k| a.get(row, k).unwrap()).collect();
            let b: Vec<f64> = (0..problem.k).map(|k| b.get(k, column).unwrap()).collect();
            let scales = [scale(&a), scale(&b)];
            let split = |line: &[f64], scale: f64| -> Vec<Vec<f64>> {
                line.iter().map(|value| split(value * scale)).collect()
            };
            let (a, b) = (split(&a, scales[0]), split(&b, scales[1]));
            let sum = (0..problem.k).step_by(span).fold(0.0f32, |sum, first| {
                let places = first..problem.k.min(first + span);
                let in_span = terms.products().into_iter().fold(0.0f32, |sum, (i, j)| {
                    let products: Vec<f64> =
                        places.clone().map(|k| a[k][i as usize] * b[k][j as usize]).collect();
                    products.chunks(8).fold(sum, |sum, block| add_block(sum, block, 2))
                });
                sum + in_span
            });
            d.set(row, column, f64::from(sum) / (scales[0] * scales[1])).unwrap();
        }
    }
    d
}

/// Every split of binary32 stays inside of its bound, with numbers far apart in a line too, and the
/// bound is tight enough to tell one tf32 from two.
#[test]
fn products_of_terms_have_bounds() {
    for k in [7, 32, 200, 1024] {
        for exponent in [0, -12, 20] {
            let problem = Problem::new(5, 6, k, Major::K, Major::K);
            let mut a = HostMatrix::zeros(problem.a_layout(), Element::F32).unwrap();
            let mut b = HostMatrix::zeros(problem.b_layout(), Element::F32).unwrap();
            fill(&mut a, k as u64, exponent);
            fill(&mut b, k as u64 + 1, exponent);
            let reference = Reference::new(&problem, &a, &b, None).unwrap();
            for mode in [Precision::Tf32x3, Precision::F16x3, Precision::Bf16x6, Precision::Bf16x9]
            {
                let model = ErrorModel::new(Accumulation::Emulated(mode), Element::F32);
                let d = emulate_terms(&problem, &a, &b, mode);
                let comparison = reference.compare(&d, &model).unwrap();
                assert!(comparison.passed, "{mode} {k} {exponent}: {comparison}");
                let [a, b] = [&a, &b].map(|matrix| matrix.convert(Element::Tf32).unwrap());
                let order = Order::Promoted { interval: 32 };
                let mut rng = StdRng::seed_from_u64(1);
                let once = emulate(&problem, (&a, &b, &b), Element::F32, order, &mut rng);
                assert!(!reference.compare(&once, &model).unwrap().passed, "{mode} {k}");
            }
        }
    }
    let model = ErrorModel::new(Accumulation::Emulated(Precision::Full), Element::F32);
    let problem = Problem::new(1, 1, 1, Major::K, Major::N);
    let one = HostMatrix::zeros(problem.a_layout(), Element::F32).unwrap();
    let reference = Reference::new(&problem, &one, &one, None).unwrap();
    assert!(matches!(reference.bounds(&model, Element::F32), Err(NumericsError::NoBound { .. })));
}

#[test]
fn what_cannot_be_judged_is_an_error() {
    let (problem, a, b) = integer_problem(50, 3);
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let model = ErrorModel::new(Accumulation::Nearest, Element::Bf16);
    let d = HostMatrix::zeros(problem.d_layout(), Element::U8).unwrap();
    assert!(matches!(reference.compare(&d, &model), Err(NumericsError::NoOutputBound { .. })));
    let unknown = ErrorModel { a: Element::F64, ..model };
    assert!(matches!(reference.compare(&d, &unknown), Err(NumericsError::NoBound { .. })));
    let d = HostMatrix::zeros(problem.a_layout(), Element::F32).unwrap();
    assert!(matches!(reference.compare(&d, &model), Err(NumericsError::Shape { .. })));
    assert!(matches!(
        Reference::new(&problem.with_beta(1.0), &a, &b, None),
        Err(NumericsError::Problem(PlanError::MissingC { .. }))
    ));
    assert!(matches!(
        Reference::new(&problem, &b, &b, None),
        Err(NumericsError::Problem(PlanError::LayoutMismatch { matrix: "A", .. }))
    ));
    let deep = Problem::new(1, 1, 1 << 23, Major::K, Major::K);
    let line = HostMatrix::zeros(deep.a_layout(), Element::Bf16).unwrap();
    let column = HostMatrix::zeros(deep.b_layout(), Element::Bf16).unwrap();
    let reference = Reference::new(&deep, &line, &column, None).unwrap();
    let d = HostMatrix::zeros(deep.d_layout(), Element::F32).unwrap();
    let model = ErrorModel { accumulation: Accumulation::TensorCore, ..model };
    assert!(matches!(reference.compare(&d, &model), Err(NumericsError::DepthTooLarge { .. })));
}

/// Sums of doubles in any order, with products rounded or not, are within the bound, and one bit
/// too few is not.
#[test]
fn doubles_have_a_bound_of_their_own() {
    let mut rng = StdRng::seed_from_u64(3);
    for (k, exponent, alpha, beta) in
        [(1, 0, 1.0, 0.0), (7, 40, -1.0 / 3.0, 0.1), (300, 0, 1.0, 0.0), (900, -300, 0.7, -2.0)]
    {
        let problem = Problem::new(3, 4, k, Major::M, Major::K).with_alpha(alpha).with_beta(beta);
        let filled = |layout, seed, exponent| {
            let mut matrix = HostMatrix::zeros(layout, Element::F64).unwrap();
            fill(&mut matrix, seed, exponent);
            matrix
        };
        let (a, b) = (filled(problem.a_layout(), 1, exponent), filled(problem.b_layout(), 2, 0));
        let c = filled(problem.c_layout(), 3, exponent);
        let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
        let model = ErrorModel::new(Accumulation::Nearest, Element::F64);
        for order in 0..4 {
            let mut d = HostMatrix::zeros(problem.d_layout(), Element::F64).unwrap();
            for (row, column) in (0..3).flat_map(|row| (0..4).map(move |column| (row, column))) {
                let mut pairs: Vec<(f64, f64)> = (0..k)
                    .map(|depth| (a.get(row, depth).unwrap(), b.get(depth, column).unwrap()))
                    .collect();
                pairs.shuffle(&mut rng);
                let rounded = |part: &[(f64, f64)]| part.iter().map(|(a, b)| a * b).sum::<f64>();
                let fused =
                    |part: &[(f64, f64)]| part.iter().fold(0.0, |sum, (a, b)| a.mul_add(*b, sum));
                let sum = match order {
                    0 => rounded(&pairs),
                    1 => fused(&pairs),
                    2 => pairs.chunks(16).map(fused).sum(),
                    _ => pairs.chunks(5).map(rounded).sum(),
                };
                let value = alpha * sum + beta * c.get(row, column).unwrap();
                d.set(row, column, value).unwrap();
            }
            let comparison = reference.compare(&d, &model).unwrap();
            assert!(comparison.passed, "{k}: {comparison}");
            let single = d.convert(Element::F32).unwrap().convert(Element::F64).unwrap();
            let comparison = reference.compare(&single, &model).unwrap();
            assert!(!comparison.passed, "{k}: {comparison}");
        }
        let (bounds, values) =
            (reference.bounds(&model, Element::F64).unwrap(), reference.values());
        let relative = bounds.iter().zip(values).map(|(bound, value)| bound / value.abs());
        assert!(relative.fold(f64::INFINITY, f64::min) < 1e-12, "{bounds:?}");
    }
    let problem = Problem::new(2, 2, 2, Major::K, Major::N);
    let ones = HostMatrix::zeros(problem.a_layout(), Element::F64).unwrap();
    let reference = Reference::new(&problem, &ones, &ones, None).unwrap();
    for (a, b, output) in [
        (Element::F64, Element::F64, Element::F32),
        (Element::F64, Element::F32, Element::F64),
        (Element::Bf16, Element::Bf16, Element::F64),
    ] {
        let model = ErrorModel { accumulation: Accumulation::Nearest, a, b };
        assert!(reference.bounds(&model, output).is_err(), "{a} {b} {output}");
    }
}

/// alpha is rounded to binary32 where the product is not of f64, and must have a place there.
#[test]
fn scalars_that_are_rounded_are_part_of_the_bound() {
    let problem = Problem::new(1, 1, 1, Major::K, Major::N).with_alpha(1.0 + 0.9 * 2f64.powi(-24));
    let one = HostMatrix::from_f64(problem.a_layout(), Element::Bf16, &[1.0]).unwrap();
    let reference = Reference::new(&problem, &one, &one, None).unwrap();
    let model = ErrorModel::new(Accumulation::Nearest, Element::Bf16);
    let d = HostMatrix::from_f64(problem.d_layout(), Element::F32, &[1.0]).unwrap();
    assert!(reference.compare(&d, &model).unwrap().passed);
    for (alpha, fits) in [(1e39, false), (1e-50, false), (1e-40, false), (2f64.powi(-149), true)] {
        assert_eq!(problem.with_alpha(alpha).check_scalars(Element::F32).is_ok(), fits, "{alpha}");
        assert_eq!(problem.with_alpha(alpha).check_scalars(Element::F64), Ok(()));
    }
}
