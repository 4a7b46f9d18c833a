//! The products of the checks, what each element of D should be, and special numbers of each type.

use std::panic::{AssertUnwindSafe, catch_unwind};

use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{Config, Dtype, HostMatrix, Major, Operands, Precision, Problem, Split};

/// Types of A, B and D: every pair of operands, every output of floats.
const TYPES: [[Dtype; 3]; 15] = {
    use Dtype::{Bf16, E4m3, E5m2, F16, F32, F64, Tf32};
    [
        [F32, F32, F32],
        [F16, F16, F16],
        [F16, F16, F32],
        [Bf16, Bf16, Bf16],
        [Bf16, Bf16, F32],
        [Tf32, Tf32, F32],
        [E4m3, E4m3, F32],
        [E4m3, E5m2, F16],
        [E5m2, E4m3, Bf16],
        [E5m2, E5m2, F32],
        [E5m2, E5m2, F16],
        [E4m3, E4m3, E4m3],
        [E5m2, E4m3, E5m2],
        [E5m2, E5m2, E4m3],
        [F64, F64, F64],
    ]
};

pub(super) const M: usize = 24;
pub(super) const N: usize = 40;
pub(super) const K: usize = 100;

/// One product: small integers, until a check puts something else there.
pub(super) struct Case<'e> {
    executor: &'e Executor,
    pub(super) config: Config,
    pub(super) problem: Problem,
    pub(super) a: HostMatrix,
    pub(super) b: HostMatrix,
    pub(super) c: Option<HostMatrix>,
}

/// Whether the sign of a zero counts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Zeros {
    Alike,
    Signed,
}

/// A product of each combination of types, in each way that sums may go on this backend: those of
/// f16 in f16 too.
fn cases(executor: &Executor) -> impl Iterator<Item = Case<'_>> {
    let planned = TYPES.map(|[a, b, d]| Config::new(a).with_b_dtype(b).with_output(d));
    let in_f16 = [Dtype::F16, Dtype::F32].map(in_f16);
    planned.into_iter().chain(in_f16).flat_map(move |planned| {
        let a = planned.dtype;
        let split = planned.clone().with_split(Split::SplitK(2)).with_swapped(true);
        let has_splits =
            !matches!(a, Dtype::F32 | Dtype::F64) && !matches!(executor, Executor::Cpu { .. });
        let configs = std::iter::once(planned).chain(has_splits.then_some(split));
        configs.map(move |config| Case::new(executor, config, [M, N, K]))
    })
}

/// Products of f16 that are added up in f16.
pub(super) fn in_f16(output: Dtype) -> Config {
    Config::new(Dtype::F16).with_output(output).with_precision(Precision::F16)
}

/// Checks a product of each combination of types. All of them run, so that hardware shows every
/// type that differs.
pub(super) fn each(executor: &Executor, check: impl Fn(Case<'_>)) {
    let failed: Vec<String> = cases(executor)
        .filter_map(|case| {
            let name = case.name();
            catch_unwind(AssertUnwindSafe(|| check(case))).err().map(|_| name)
        })
        .collect();
    assert!(failed.is_empty(), "on {executor} these differ: {}", failed.join(", "));
}

impl<'e> Case<'e> {
    pub(super) fn new(executor: &'e Executor, config: Config, [m, n, k]: [usize; 3]) -> Case<'e> {
        let problem = Problem::new(m, n, k, Major::K, Major::K);
        let [a_type, b_type] = config.operands();
        let mut a = HostMatrix::zeros(problem.a_layout(), a_type).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), b_type).unwrap();
        a.fill_integers(1, 2);
        b.fill_integers(2, 2);
        Case { executor, config, problem, a, b, c: None }
    }

    /// Its types, and whether it is not as planned.
    pub(super) fn name(&self) -> String {
        let ([a, b], d) = (self.config.operands(), self.output());
        let split = if self.config.split.is_some() { " split" } else { "" };
        let precision =
            self.config.precision.map_or(String::new(), |requested| format!(" {requested}"));
        format!("{a}*{b}->{d}{precision}{split}")
    }

    pub(super) fn output(&self) -> Dtype {
        self.config.output_dtype()
    }

    pub(super) fn is(&self, operand: Dtype) -> bool {
        self.config.operands().contains(&operand)
    }

    /// Operands whose products reach beyond the range of binary32, or of binary64 for f64.
    pub(super) fn has_wide_operands(&self) -> bool {
        [Dtype::Bf16, Dtype::Tf32, Dtype::F32, Dtype::F64].into_iter().any(|dtype| self.is(dtype))
    }

    pub(super) fn scaled(mut self, alpha: f64) -> Self {
        self.problem = self.problem.with_alpha(alpha);
        self
    }

    /// With a C of small integers.
    pub(super) fn plus(mut self, beta: f64) -> Self {
        self.problem = self.problem.with_beta(beta);
        let mut c = HostMatrix::zeros(self.problem.c_layout(), self.output()).unwrap();
        c.fill_integers(3, 2);
        self.c = Some(c);
        self
    }

    /// Element (row, column) of D as binary64 has it, without rounding to D's type.
    fn exact(&self, row: usize, column: usize) -> f64 {
        let Problem { k, alpha, beta, .. } = self.problem;
        let products = (0..k).map(|k| self.a.get(row, k).unwrap() * self.b.get(k, column).unwrap());
        let sum = products.fold(0.0, |sum: f64, product| sum + product);
        // No product at all is 0 whatever alpha is.
        let product = if k == 0 { 0.0 } else { alpha * sum };
        match &self.c {
            Some(c) if beta != 0.0 => product + beta * c.get(row, column).unwrap(),
            _ => product,
        }
    }

    /// Computes D and holds every element against what it should be, rounded once to D's type.
    /// Returns D.
    pub(super) fn check(&self, what: &str, zeros: Zeros) -> HostMatrix {
        let inputs = Operands::new(&self.a, &self.b).c(self.c.as_ref());
        let product = multiply(self.executor, &self.config, &self.problem, inputs);
        let d = product.unwrap_or_else(|error| panic!("{what}, {}: {error}", self.name())).d;
        let mut expected = HostMatrix::zeros(d.layout(), d.dtype()).unwrap();
        expected.fill_with(|row, column| self.exact(row, column));
        for row in 0..d.rows() {
            for column in 0..d.columns() {
                let found = d.get(row, column).unwrap();
                let expected = expected.get(row, column).unwrap();
                let same = found == expected || found.is_nan() && expected.is_nan();
                let sign = found.is_sign_negative() == expected.is_sign_negative();
                assert!(
                    same && (zeros == Zeros::Alike || found.is_nan() || sign),
                    "{what}, {}: ({row}, {column}) is {found:e} instead of {expected:e}",
                    self.name()
                );
                // All bits of an integer are set where it is -1.
                let unwritten = d.dtype() != Dtype::S8 && d.is_poison(row, column);
                assert!(!unwritten, "{what}: ({row}, {column}) is unwritten");
            }
        }
        d
    }
}

/// Sets an element, to an infinity too where the type has one: the host's conversion to e5m2
/// saturates.
pub(super) fn put(matrix: &mut HostMatrix, row: usize, column: usize, value: f64) {
    matrix.set(row, column, value).unwrap();
    if matrix.dtype() == Dtype::E5m2 && value.is_infinite() {
        let offset = matrix.layout().offset(row, column).unwrap();
        matrix.bytes_mut()[offset] = if value > 0.0 { 0x7c } else { 0xfc };
        assert_eq!(matrix.get(row, column), Some(value));
    }
}

/// The smallest positive number of a type, as an exponent of two.
pub(super) fn smallest(element: Dtype) -> i32 {
    match element {
        Dtype::F16 => -24,
        Dtype::Bf16 => -133,
        Dtype::Tf32 => -136,
        Dtype::F32 => -149,
        Dtype::E4m3 => -9,
        Dtype::E5m2 => -16,
        Dtype::F64 => -1074,
        other => panic!("{other} has no fractions"),
    }
}

/// The exponent of the largest power of two of a type of D.
pub(super) fn top(output: Dtype) -> i32 {
    match output {
        Dtype::E4m3 => 8,
        Dtype::F16 | Dtype::E5m2 => 15,
        Dtype::F64 => 1023,
        _ => 127,
    }
}

/// What a result beyond the range of D becomes: the largest number where it saturates.
pub(super) fn beyond(output: Dtype) -> f64 {
    match output {
        Dtype::E4m3 => 448.0,
        Dtype::E5m2 => 57344.0,
        _ => f64::INFINITY,
    }
}

/// 2^exponent, subnormal ones included.
pub(super) fn power(exponent: i32) -> f64 {
    if exponent < -1000 { 2f64.powi(exponent + 200) * 2f64.powi(-200) } else { 2f64.powi(exponent) }
}

/// Scales a matrix of small integers by a power of two.
pub(super) fn scale(matrix: &mut HostMatrix, exponent: i32) {
    let source = matrix.clone();
    matrix.fill_with(|row, column| source.get(row, column).unwrap() * power(exponent));
}
