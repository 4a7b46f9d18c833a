//! The CPU backend: inputs widened block by block to binary32, or integers to binary64, in which
//! their sums are exact, as f64 is; multiplied by the `gemm` crate on all threads.

use pgemm_ir::Element;
use pgemm_kernels::{Arithmetic, Epilogue, Numbers, Product};
use pgemm_plan::{Major, PlanError, Problem};
use rayon::prelude::*;

use crate::epilogue::{AppliedEpilogue, RowInput};
pub use crate::error::CpuError;
use crate::matrix::HostMatrix;
use crate::matrix::convert::with_scalar;
use crate::matrix::panel::{Panel, WorkingElement, add_product};

/// The types that C and D may have. Empty if A and B cannot be multiplied.
fn outputs(a: Element, b: Element) -> &'static [Element] {
    Product::of(a, b).map_or(&[], |product| product.outputs)
}

/// Rows and columns of D computed at a time: 64 MiB of binary32.
const BLOCK: usize = 4096;
/// Columns of A and rows of B widened at a time.
const DEPTH: usize = 2048;

/// Computes `D = alpha * A·B + beta * C` on the current rayon thread pool, with binary32
/// accumulation, that of f64 with binary64. Of a batch it computes one product, of the matrices
/// given. A and B are f16 or bf16, with C and D of the same type or f32; tf32 (values of binary32
/// are rounded first) or f32, with f32; e4m3 or e5m2, with f32, f16, bf16 or either; f64, with f64.
/// Products of s8 or u8 are exact, and everything wraps into C and D of s32; with f32, f16, bf16 or
/// s8 their sums, which wrap alone, become binary32. 8-bit results saturate. If beta is 0, C is not
/// looked at; with k = 0, D is `beta * C` whatever alpha is. Gaps between lines of D stay as they
/// are. At most about 200 MiB are needed besides the matrices, or 400 for integers and f64, and
/// copies of A, B and C where D is column-major.
///
/// # Errors
/// The problem is invalid, a matrix has another layout than the problem, the element types are not
/// supported, or a scalar does not fit. Scalars must be 32-bit integers if D is of s32, and within
/// binary32 unless D is of f64.
pub fn run(
    problem: &Problem,
    a: &HostMatrix,
    b: &HostMatrix,
    c: Option<&HostMatrix>,
    d: &mut HostMatrix,
) -> Result<(), CpuError> {
    problem.validate()?;
    let applied = AppliedEpilogue::new(problem, Epilogue::NONE, None, d.dtype())?;
    run_applied(problem, &applied, a, b, c, d)
}

/// Like [`run`], with an epilogue. It is computed in the type of the sums, and activations in
/// binary64. Sums of integers become binary32 before it, or wrap with it if D is of s32.
///
/// # Errors
/// The same as for [`run`].
pub(crate) fn run_applied(
    problem: &Problem,
    applied: &AppliedEpilogue,
    a: &HostMatrix,
    b: &HostMatrix,
    c: Option<&HostMatrix>,
    d: &mut HostMatrix,
) -> Result<(), CpuError> {
    problem.validate()?;
    problem.check_layouts(a.layout(), b.layout(), c.map(HostMatrix::layout))?;
    let (found, needed) = (d.layout(), problem.d_layout());
    if found != needed {
        return Err(PlanError::LayoutMismatch { matrix: "D", found, needed }.into());
    }
    let c = c.filter(|_| problem.beta != 0.0);
    if problem.d_major == Major::M {
        let turned = |matrix: &HostMatrix| {
            let mut matrix = matrix.clone();
            matrix.transpose();
            matrix
        };
        let (a, b, c) = (turned(a), turned(b), c.map(turned));
        d.transpose();
        let done = run_applied(&problem.transposed(), &applied.transposed(), &b, &a, c.as_ref(), d);
        d.transpose();
        return done;
    }
    let input = a.dtype();
    let outputs = outputs(input, b.dtype());
    if outputs.is_empty() {
        return Err(CpuError::Inputs { a: input, b: b.dtype() });
    }
    for (matrix, found) in [("C", c.map_or(outputs[0], HostMatrix::dtype)), ("D", d.dtype())] {
        if !outputs.contains(&found) {
            return Err(CpuError::Output { matrix, found, input, possible: outputs });
        }
    }

    match (d.dtype(), input) {
        (Element::S32, _) => {
            problem.integer_scalars()?;
            // Sums stay below 2^53, so they and their lower 32 bits are exact.
            let numbers = Conversions::<f64, i32> {
                sum: |sum| sum as i64 as i32,
                addend: |value| value as i32,
                factor: |value| value as i32,
                write: f64::from,
            };
            blocks(problem, applied, (a, b, c), d, Numbers::<i32>::NEW, &numbers);
        }
        (Element::F64, _) => {
            let same = |value: f64| value;
            let numbers = Conversions { sum: same, addend: same, factor: same, write: same };
            blocks(problem, applied, (a, b, c), d, Numbers::<f64>::NEW, &numbers);
        }
        (_, Element::S8 | Element::U8) => {
            problem.single_scalars()?;
            // Sums are exact, as above, before they wrap; and each binary32 is a binary64.
            let numbers = Conversions::<f64, f32> {
                sum: |sum| sum as i64 as i32 as f32,
                addend: |value| value as f32,
                factor: |value| value as f32,
                write: f64::from,
            };
            blocks(problem, applied, (a, b, c), d, Numbers::<f32>::NEW, &numbers);
        }
        _ => {
            problem.single_scalars()?;
            let same = |value: f32| value;
            let factor = |value: f64| value as f32;
            let numbers = Conversions { sum: same, addend: same, factor, write: same };
            blocks(problem, applied, (a, b, c), d, Numbers::<f32>::NEW, &numbers);
        }
    }
    Ok(())
}

/// How the numbers of an epilogue follow from sums and elements of C, which are read as `T`.
struct Conversions<T, V> {
    sum: fn(T) -> V,
    addend: fn(T) -> V,
    /// A number of the launch, or an element of a vector.
    factor: fn(f64) -> V,
    /// A result.
    write: fn(V) -> T,
}

/// Computes D block by block: the sums of products, and the epilogue of each row.
fn blocks<T: WorkingElement, A: Arithmetic<Value: Send + Sync> + Sync>(
    problem: &Problem,
    applied: &AppliedEpilogue,
    (a, b, c): (&HostMatrix, &HostMatrix, Option<&HostMatrix>),
    d: &mut HostMatrix,
    arithmetic: A,
    numbers: &Conversions<T, A::Value>,
) {
    let (m, n, k) = (problem.m, problem.n, problem.k);
    let (mut a_panel, mut b_panel, mut c_panel) = (Panel::new(), Panel::new(), Panel::<T>::new());
    let mut sums = Vec::new();
    for column in (0..n).step_by(BLOCK) {
        let columns = column..n.min(column + BLOCK);
        for row in (0..m).step_by(BLOCK) {
            let rows = row..m.min(row + BLOCK);
            sums.clear();
            sums.resize(rows.len() * columns.len(), T::ZERO);
            for depth in (0..k).step_by(DEPTH) {
                let depth = depth..k.min(depth + DEPTH);
                a_panel.read(a, rows.clone(), depth.clone());
                b_panel.read(b, depth, columns.clone());
                add_product(&mut sums, &a_panel, &b_panel);
            }
            if let Some(c) = c {
                c_panel.read(c, rows.clone(), columns.clone());
            }
            let width = columns.len();
            sums.par_chunks_mut(width).enumerate().for_each(|(line, sums)| {
                let place = (rows.start + line, columns.clone());
                let results = applied.evaluate(&arithmetic, place, |input| {
                    let each = |values: &[T], read: fn(T) -> A::Value| {
                        values.iter().map(|value| read(*value)).collect()
                    };
                    match input {
                        RowInput::Same(value) => vec![(numbers.factor)(value); width],
                        RowInput::Each(values) => {
                            values.iter().map(|value| (numbers.factor)(*value)).collect()
                        }
                        RowInput::Sums => each(sums, numbers.sum),
                        RowInput::C => {
                            each(&c_panel.values()[line * width..][..width], numbers.addend)
                        }
                    }
                });
                for (sum, result) in sums.iter_mut().zip(results) {
                    *sum = (numbers.write)(result);
                }
            });
            with_scalar!(d.dtype(), S => {
                let lines = d.par_lines_mut::<S>().skip(row);
                sums.par_chunks(columns.len()).zip(lines).for_each(|(sums, line)| {
                    T::write(sums, &mut line[columns.clone()]);
                });
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::MatrixLayout;
    use proptest::prelude::*;

    use super::*;
    use crate::numerics::{Accumulation, ErrorModel, Reference};

    fn matrix(layout: MatrixLayout, element: Element) -> HostMatrix {
        let mut matrix = HostMatrix::zeros(layout, element).unwrap();
        // NaN in the gaps: reading one would show.
        matrix.poison();
        matrix
    }

    const FLOATS: [(Element, Element); 9] = [
        (Element::F64, Element::F64),
        (Element::F32, Element::F32),
        (Element::F16, Element::F16),
        (Element::Bf16, Element::Bf16),
        (Element::Tf32, Element::Tf32),
        (Element::E4m3, Element::E4m3),
        (Element::E4m3, Element::E5m2),
        (Element::E5m2, Element::E4m3),
        (Element::E5m2, Element::E5m2),
    ];

    prop_compose! {
        fn problems()(
            m in 0usize..20, n in 0usize..20, k in 0usize..40, a_m_major: bool, b_n_major: bool,
            gaps in prop::array::uniform4(0usize..4),
            alpha in prop::sample::select(vec![0.0, 1.0, -2.0, 0.3]),
            beta in prop::sample::select(vec![0.0, 1.0, -1.0, 0.7]),
        ) -> Problem {
            let problem = Problem::new(
                m, n, k,
                if a_m_major { Major::M } else { Major::K },
                if b_n_major { Major::N } else { Major::K },
            );
            problem
                .with_a_leading_dimension(problem.a.leading_dimension + gaps[0])
                .with_b_leading_dimension(problem.b.leading_dimension + gaps[1])
                .with_c_leading_dimension(problem.c_leading_dimension + gaps[2])
                .with_d_leading_dimension(problem.d_leading_dimension + gaps[3])
                .with_alpha(alpha)
                .with_beta(beta)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn agrees_with_three_loops(
            problem in problems(), (a_type, b_type) in prop::sample::select(FLOATS.to_vec()), of_c: prop::sample::Index,
            of_d: prop::sample::Index, integers: bool, seed: u64,
        ) {
            let wide = |index: prop::sample::Index| *index.get(outputs(a_type, b_type));
            let mut a = matrix(problem.a_layout(), a_type);
            let mut b = matrix(problem.b_layout(), b_type);
            let mut c = matrix(problem.c_layout(), wide(of_c));
            let mut d = matrix(problem.d_layout(), wide(of_d));
            for (matrix, seed) in [(&mut a, seed), (&mut b, seed ^ 1), (&mut c, seed ^ 2)] {
                if integers { matrix.fill_integers(seed, 4) } else { matrix.fill_normal(seed) }
            }
            if problem.beta == 0.0 {
                c.poison();
            }
            run(&problem, &a, &b, Some(&c), &mut d).unwrap();
            prop_assert!(d.gaps_are_poison());

            let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
            for row in 0..problem.m {
                for column in 0..problem.n {
                    let mut sum = 0.0;
                    for depth in 0..problem.k {
                        sum += a.get(row, depth).unwrap() * b.get(depth, column).unwrap();
                    }
                    sum *= problem.alpha;
                    if problem.beta != 0.0 {
                        sum += problem.beta * c.get(row, column).unwrap();
                    }
                    let error = (reference.values()[row * problem.n + column] - sum).abs();
                    prop_assert!(error <= 1e-13 * (1.0 + problem.k as f64));
                }
            }
            let model = ErrorModel { accumulation: Accumulation::Nearest, a: a_type, b: b_type };
            let comparison = reference.compare(&d, &model).unwrap();
            prop_assert!(comparison.passed, "{}", comparison);
            if integers && problem.alpha.fract() == 0.0 && problem.beta.fract() == 0.0 {
                let comparison = reference.compare_exact(&d).unwrap();
                prop_assert!(comparison.passed, "{}", comparison);
            }
        }
    }

    #[test]
    fn integers_wrap_and_are_never_rounded() {
        for (a_type, b_type) in [(Element::S8, Element::U8), (Element::U8, Element::U8)] {
            let problem = Problem::new(7, 5, 300, Major::K, Major::K);
            let mut a = matrix(problem.a_layout(), a_type);
            let mut b = matrix(problem.b_layout(), b_type);
            let mut c = matrix(problem.c_layout(), Element::S32);
            a.fill_integers(1, 127);
            b.fill_integers(2, 127);
            c.fill_with(|row, column| f64::from(i32::MAX) - (row * 3 + column) as f64);
            let mut d = matrix(problem.d_layout(), Element::S32);
            // Sums reach a few millions: the second pair takes most of them beyond 2^31.
            for (alpha, beta) in [(1.0, 0.0), (10_000.0, 0.0), (-3.0, 2.0), (0.0, 1.0)] {
                let problem = problem.with_alpha(alpha).with_beta(beta);
                run(&problem, &a, &b, Some(&c), &mut d).unwrap();
                let wide =
                    |matrix: &HostMatrix, row, column| matrix.get(row, column).unwrap() as i64;
                for row in 0..7 {
                    for column in 0..5 {
                        let products = (0..300).map(|k| wide(&a, row, k) * wide(&b, k, column));
                        let sum = alpha as i64 * products.sum::<i64>()
                            + beta as i64 * wide(&c, row, column);
                        assert_eq!(d.get(row, column), Some(f64::from(sum as i32)));
                    }
                }
                let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
                assert!(reference.compare_exact(&d).unwrap().passed);
            }
            for (scalar, bad) in
                [("alpha", problem.with_alpha(0.5)), ("beta", problem.with_beta(3e9))]
            {
                let error = run(&bad, &a, &b, Some(&c), &mut d).unwrap_err().to_string();
                assert!(error.contains(scalar) && error.contains("2147483647"), "{error}");
            }
        }
    }

    #[test]
    fn integers_are_scaled_and_rounded_or_saturated() {
        for (a_type, b_type) in [(Element::S8, Element::S8), (Element::U8, Element::S8)] {
            let problem = Problem::new(7, 5, 300, Major::K, Major::K).with_beta(0.75);
            let mut a = matrix(problem.a_layout(), a_type);
            let mut b = matrix(problem.b_layout(), b_type);
            a.fill_random(1);
            b.fill_random(2);
            for output in [Element::F32, Element::F16, Element::Bf16, Element::S8] {
                let mut c = matrix(problem.c_layout(), output);
                c.fill_normal(3);
                let mut d = matrix(problem.d_layout(), output);
                for alpha in [1e-3, -0.02, 1.0] {
                    let problem = problem.with_alpha(alpha);
                    run(&problem, &a, &b, Some(&c), &mut d).unwrap();
                    let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
                    let accumulation = Accumulation::Nearest;
                    let model = ErrorModel { accumulation, a: a_type, b: b_type };
                    let comparison = reference.compare(&d, &model).unwrap();
                    assert!(comparison.passed, "{output} {alpha}: {comparison}");
                }
                let ends = d.to_f64_vec().into_iter().filter(|value| value.abs() >= 127.0).count();
                assert!(output != Element::S8 || ends > 20, "{ends}");
            }
        }
        // Sums wrap before they are scaled; what is no number is 0 in integers.
        let problem = Problem::new(1, 1, 33_026, Major::K, Major::K);
        let mut a = matrix(problem.a_layout(), Element::U8);
        a.fill_with(|_, _| 255.0);
        let mut b = matrix(problem.b_layout(), Element::U8);
        b.fill_with(|_, _| 255.0);
        let mut d = matrix(problem.d_layout(), Element::F32);
        run(&problem, &a, &b, None, &mut d).unwrap();
        let sum = 255i64 * 255 * 33_026;
        assert_eq!(d.get(0, 0), Some(f64::from(sum as i32 as f32)));
        let mut bytes = matrix(problem.d_layout(), Element::S8);
        run(&problem.with_alpha(f64::NAN), &a, &b, None, &mut bytes).unwrap();
        assert_eq!(bytes.get(0, 0), Some(0.0));
    }

    #[test]
    fn tf32_is_rounded_before_it_is_multiplied() {
        let problem = Problem::new(1, 1, 1, Major::K, Major::K);
        let single = |layout, value: f32| {
            HostMatrix::from_bytes(layout, Element::Tf32, &value.to_le_bytes()).unwrap()
        };
        let one = single(problem.b_layout(), 1.0);
        let mut d = matrix(problem.d_layout(), Element::F32);
        // Beyond the tie between 1 and the next tf32, then below it.
        let (above, below) = (1.0 + 2f32.powi(-11) * 1.25, 1.0 + 2f32.powi(-11) * 0.75);
        for (value, rounded) in [(above, 1.0 + 2f64.powi(-10)), (below, 1.0)] {
            run(&problem, &single(problem.a_layout(), value), &one, None, &mut d).unwrap();
            assert_eq!(d.get(0, 0), Some(rounded));
        }
    }

    #[test]
    fn blocks_meet_at_their_edges() {
        for (m, n, k) in [(BLOCK + 3, 2, 5), (2, BLOCK + 3, 5), (3, 2, 2 * DEPTH + 1)] {
            let problem = Problem::new(m, n, k, Major::M, Major::N).with_beta(1.0);
            let mut a = matrix(problem.a_layout(), Element::Bf16);
            let mut b = matrix(problem.b_layout(), Element::Bf16);
            let mut c = matrix(problem.c_layout(), Element::Bf16);
            let mut d = matrix(problem.d_layout(), Element::F32);
            a.fill_integers(1, 4);
            b.fill_integers(2, 4);
            c.fill_integers(3, 4);
            run(&problem, &a, &b, Some(&c), &mut d).unwrap();
            let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
            let comparison = reference.compare_exact(&d).unwrap();
            assert!(comparison.passed, "{comparison}");
        }
    }

    #[test]
    fn no_depth_leaves_beta_times_c() {
        let problem =
            Problem::new(2, 3, 0, Major::K, Major::K).with_alpha(f64::INFINITY).with_beta(2.0);
        let a = matrix(problem.a_layout(), Element::F16);
        let b = matrix(problem.b_layout(), Element::F16);
        let c =
            HostMatrix::from_f64(problem.c_layout(), Element::F16, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let c = c.unwrap();
        let mut d = matrix(problem.d_layout(), Element::F16);
        run(&problem, &a, &b, Some(&c), &mut d).unwrap();
        assert_eq!(d.to_f64_vec(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        run(&problem.with_beta(0.0), &a, &b, None, &mut d).unwrap();
        assert_eq!(d.to_f64_vec(), [0.0; 6]);
    }

    #[test]
    fn wrong_types_and_layouts_are_errors() {
        let problem = Problem::new(2, 3, 4, Major::K, Major::K);
        let half = |layout| matrix(layout, Element::F16);
        let (a, b) = (half(problem.a_layout()), half(problem.b_layout()));
        let mut d = half(problem.d_layout());
        let brain = matrix(problem.b_layout(), Element::Bf16);
        assert!(matches!(run(&problem, &a, &brain, None, &mut d), Err(CpuError::Inputs { .. })));
        let single = matrix(problem.a_layout(), Element::F32);
        assert!(matches!(run(&problem, &single, &b, None, &mut d), Err(CpuError::Inputs { .. })));
        let byte = |element, layout| matrix(layout, element);
        let (a8, b8) =
            (byte(Element::S8, problem.a_layout()), byte(Element::E4m3, problem.b_layout()));
        assert!(matches!(run(&problem, &a8, &b8, None, &mut d), Err(CpuError::Inputs { .. })));
        let b8 = byte(Element::U8, problem.b_layout());
        let mut d8 = byte(Element::E5m2, problem.d_layout());
        let error = run(&problem, &a8, &b8, None, &mut d8).unwrap_err().to_string();
        assert!(error.contains("a D of e5m2 with inputs of s8: use s32 or f32 or"), "{error}");
        let mut other = matrix(problem.d_layout(), Element::Bf16);
        assert!(matches!(
            run(&problem, &a, &b, None, &mut other),
            Err(CpuError::Output { matrix: "D", .. })
        ));
        let wrong_c = matrix(problem.c_layout(), Element::Bf16);
        assert!(matches!(
            run(&problem.with_beta(1.0), &a, &b, Some(&wrong_c), &mut d),
            Err(CpuError::Output { matrix: "C", .. })
        ));
        // Never looked at where beta is 0.
        run(&problem, &a, &b, Some(&wrong_c), &mut d).unwrap();
        let mut wide = half(problem.with_d_leading_dimension(9).d_layout());
        assert!(matches!(
            run(&problem, &a, &b, None, &mut wide),
            Err(CpuError::Problem(PlanError::LayoutMismatch { matrix: "D", .. }))
        ));
    }
}
