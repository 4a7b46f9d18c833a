//! The product in double precision, that of doubles in more, with the magnitudes that error bounds
//! need.

use pgemm_ir::Element;
use pgemm_kernels::{Activation, Arithmetic, Epilogue, Numbers};
use pgemm_plan::{Order, Problem};
use rayon::prelude::*;

use super::bound::{Bound, Bounded, Magnitudes, Types};
use super::comparison::{Check, Comparison, Expectation, compare_elements};
use super::format::Format;
use super::{ErrorModel, NumericsError, compensated};
use crate::epilogue::{AppliedEpilogue, RowInput};
use crate::error::Inexact;
use crate::matrix::HostMatrix;
use crate::matrix::convert::{Scalar, with_scalar};
use crate::matrix::panel::{Panel, add_product};

/// `alpha * A·B + beta * C` in double precision, optionally with an epilogue, and `|A|·|B|`. It
/// takes 24 bytes per element of D (8 more with a C, and 24 more while a D is compared with it) and
/// about twice the time of a double-precision product. Sums of products of doubles are compensated:
/// 8 bytes more, and some ten times the time.
#[derive(Clone, Debug)]
pub struct Reference {
    problem: Problem,
    dtypes: [Element; 3],
    sums: Vec<f64>,
    /// D.
    values: Vec<f64>,
    applied: AppliedEpilogue,
    products: Vec<f64>,
    addends: Option<Vec<f64>>,
    a_sums: Vec<f64>,
    b_sums: Vec<f64>,
    integral: bool,
}

/// Integers up to this are exact in single precision, and so is every sum of them that stays below.
const EXACT_LIMIT: u64 = 1 << 24;

/// The same in double precision, for products of f64, and for results in 32-bit integers, which
/// wrap.
const EXACT_LIMIT_DOUBLE: u64 = 1 << 53;

/// The same for 8-bit floats: tensor cores add up their products with 13 bits of fraction.
const EXACT_LIMIT_8: u64 = 1 << 13;

/// The same for sums in f16, which has 11 significant bits.
const EXACT_LIMIT_16: u64 = 1 << 11;

/// Rows of A converted at a time.
const PANEL_ROWS: usize = 1024;
/// Elements of B converted at a time.
const PANEL_ELEMENTS: usize = 1 << 24;

impl Reference {
    /// Computes the reference of a problem, of a batch that of one product. The element types may
    /// be any; where beta is 0, C is not looked at.
    ///
    /// # Errors
    /// The problem is invalid, a matrix has another layout than the problem says, or beta is not 0
    /// and there is no C.
    pub fn new(
        problem: &Problem,
        a: &HostMatrix,
        b: &HostMatrix,
        c: Option<&HostMatrix>,
    ) -> Result<Reference, NumericsError> {
        Self::with_epilogue(problem, (a, b, c), Epilogue::NONE, None)
    }

    /// Like [`new`](Self::new), of `activation(alpha·A·B + beta·C + bias)` for A, B and C. `bias`
    /// is a row of [`Epilogue::bias_length`] elements without gaps, and ignored if the epilogue
    /// adds none. Parameters of the activation are rounded to binary64 if A and B are of f64, else
    /// to binary32.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new); the bias is missing or of another length, or parameters
    /// are missing.
    pub fn with_epilogue(
        problem: &Problem,
        (a, b, c): (&HostMatrix, &HostMatrix, Option<&HostMatrix>),
        epilogue: Epilogue,
        bias: Option<&HostMatrix>,
    ) -> Result<Reference, NumericsError> {
        problem.validate()?;
        let doubles = [a.dtype(), b.dtype()] == [Element::F64; 2];
        let output = if doubles { Element::F64 } else { Element::F32 };
        let applied = AppliedEpilogue::new(problem, epilogue, bias, output)?;
        problem.check_layouts(a.layout(), b.layout(), c.map(HostMatrix::layout))?;
        let c = c.filter(|_| problem.beta != 0.0);
        let (m, n, k) = (problem.m, problem.n, problem.k);
        let mut sums = vec![0.0; m * n];
        let mut products = vec![0.0; m * n];
        let mut lost = vec![0.0; if doubles { m * n } else { 0 }];
        let mut a_sums = vec![0.0; m];
        let mut b_sums = vec![0.0; n];
        let mut integral = applied.is_integral();

        let panel_depth = (PANEL_ELEMENTS / n.max(1)).clamp(64, 4096);
        let (mut a_panel, mut b_panel) = (Panel::<f64>::new(), Panel::<f64>::new());
        let mut b_magnitudes = Panel::<f64>::new();
        for depth in (0..k).step_by(panel_depth).filter(|_| m > 0 && n > 0) {
            let depth = depth..k.min(depth + panel_depth);
            b_panel.read(b, depth.clone(), 0..n);
            b_magnitudes.read(b, depth.clone(), 0..n);
            integral &= take_magnitudes(&mut b_magnitudes);
            add_sums(&b_magnitudes, Order::ColumnMajor, &mut b_sums);
            for (block, (sums, products)) in
                sums.chunks_mut(PANEL_ROWS * n).zip(products.chunks_mut(PANEL_ROWS * n)).enumerate()
            {
                let rows = block * PANEL_ROWS..m.min((block + 1) * PANEL_ROWS);
                a_panel.read(a, rows.clone(), depth.clone());
                if doubles {
                    let lost = &mut lost[rows.start * n..rows.end * n];
                    compensated::add_product(sums, lost, &a_panel, &b_panel);
                } else {
                    add_product(sums, &a_panel, &b_panel);
                }
                integral &= take_magnitudes(&mut a_panel);
                add_sums(&a_panel, Order::RowMajor, &mut a_sums[rows]);
                add_product(products, &a_panel, &b_magnitudes);
            }
        }

        sums.par_iter_mut().zip(&lost).for_each(|(sum, lost)| *sum += lost);
        if is_integer(a.dtype()) && is_integer(b.dtype()) {
            // Sums wrap. Below 2^53 they are exact, and so are their lower halves.
            sums.par_iter_mut().for_each(|sum| *sum = wrapped(*sum));
        }

        let addends = c.map(HostMatrix::to_f64_vec);
        if let Some(addends) = &addends {
            integral &= addends.par_iter().all(|addend| addend.fract() == 0.0);
        }
        let mut reference = Reference {
            problem: *problem,
            dtypes: [a.dtype(), b.dtype(), c.map_or(a.dtype(), HostMatrix::dtype)],
            sums,
            values: vec![],
            applied,
            products,
            addends,
            a_sums,
            b_sums,
            integral,
        };
        reference.values = reference.results_of(|index| reference.sums[index]);
        Ok(reference)
    }

    /// The results in binary64 if these were the sums, by the index of the element.
    fn results_of(&self, sum: impl Fn(usize) -> f64 + Sync) -> Vec<f64> {
        let number = |value| value;
        self.each_row(|row| self.evaluate(&Numbers::<f64>::NEW, row, number, &sum, number))
    }

    /// What `of_row` returns for each row.
    fn each_row<T: Send>(&self, of_row: impl Fn(usize) -> Vec<T> + Sync + Send) -> Vec<T> {
        (0..self.problem.m).into_par_iter().flat_map_iter(of_row).collect()
    }

    /// Evaluates the epilogue for a row. `factor` turns numbers of the launch and of vectors into
    /// numbers of `arithmetic`, `sum` does so for the sum of an element, by its index, and `addend`
    /// for elements of C.
    fn evaluate<A: Arithmetic>(
        &self,
        arithmetic: &A,
        row: usize,
        factor: impl Fn(f64) -> A::Value,
        sum: impl Fn(usize) -> A::Value,
        addend: impl Fn(f64) -> A::Value,
    ) -> Vec<A::Value> {
        let n = self.problem.n;
        let indices = row * n..(row + 1) * n;
        self.applied.evaluate(arithmetic, (row, 0..n), |input| match input {
            RowInput::Same(value) => vec![factor(value); n],
            RowInput::Each(values) => values.iter().map(|value| factor(*value)).collect(),
            RowInput::Sums => indices.clone().map(&sum).collect(),
            RowInput::C => {
                let addends = self.addends.iter().flat_map(|addends| &addends[indices.clone()]);
                addends.map(|value| addend(*value)).collect()
            }
        })
    }

    /// The exact result up to double precision, row after row. Sums of products of integers are
    /// those of 32 bits, which wrap.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// `Σ |aᵢ||bᵢ|` of each element, without alpha, row after row.
    pub fn magnitudes_of_products(&self) -> &[f64] {
        &self.products
    }

    /// The exact result of an element, counted row after row, as a D of type `output` has it:
    /// modulo 2^32 in 32-bit integers, and in the range of types that saturate. It is not rounded.
    pub fn expected(&self, index: usize, output: Element) -> f64 {
        let value = self.values[index];
        match Format::saturation(output) {
            _ if output == Element::S32 => wrapped(value),
            Some([least, largest]) => value.clamp(least, largest),
            None => value,
        }
    }

    /// Factor of the products.
    pub fn alpha(&self) -> f64 {
        self.problem.alpha
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.problem.m
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.problem.n
    }

    fn magnitudes(&self, index: usize) -> Magnitudes {
        let (row, column) = (index / self.problem.n, index % self.problem.n);
        Magnitudes {
            sum: self.sums[index].abs(),
            products: self.products[index],
            a_sum: self.a_sums[row],
            b_sum: self.b_sums[column],
        }
    }

    fn bound_for(&self, model: &ErrorModel, output: Element) -> Result<Bound, NumericsError> {
        let [a, b, c] = self.dtypes;
        Bound::new(*model, Types { a, b, c, output }, self.problem.k)
    }

    /// The results with the errors that they may have before they are rounded to D's type.
    fn bounded(&self, bound: &Bound) -> Vec<Bounded> {
        let epilogue = bound.epilogue();
        let sum = |index: usize| bound.sum(self.sums[index], self.magnitudes(index));
        self.each_row(|row| {
            self.evaluate(
                epilogue,
                row,
                |value| epilogue.factor(value),
                sum,
                |value| bound.c(value),
            )
        })
    }

    /// The largest errors that elements of a D of type `output` may have, row after row.
    ///
    /// # Errors
    /// No bound is derived for these types or this k.
    pub fn bounds(&self, model: &ErrorModel, output: Element) -> Result<Vec<f64>, NumericsError> {
        let bound = self.bound_for(model, output)?;
        Ok(self.bounded(&bound).into_iter().map(|result| bound.of(result)).collect())
    }

    /// Compares a computed D with the reference under the bound of an arithmetic.
    ///
    /// Every element must be within its bound. NaN never is, and elements as [`HostMatrix::poison`]
    /// leaves them are counted as unwritten. An infinity passes where the exact result may round to
    /// it. A reference that is itself not finite (inputs with NaN or infinity) never passes. Where
    /// D's type saturates, so does the reference. Integers in a D of s32 have no errors: they are
    /// compared as [`compare_exact`](Self::compare_exact) does.
    ///
    /// # Errors
    /// D has another shape, or no bound is derived for these types or this k.
    pub fn compare(&self, d: &HostMatrix, model: &ErrorModel) -> Result<Comparison, NumericsError> {
        self.compare_with(d, model, 0.0)
    }

    /// The same with bounds enlarged by `slack`.
    pub(crate) fn compare_with(
        &self,
        d: &HostMatrix,
        model: &ErrorModel,
        slack: f64,
    ) -> Result<Comparison, NumericsError> {
        self.check_shape(d)?;
        if d.dtype() == Element::S32 && is_integer(model.a) && is_integer(model.b) {
            return self.compare_exact(d);
        }
        let bound = self.bound_for(model, d.dtype())?;
        let saturates = Format::saturation(d.dtype()).is_some();
        let overflow = (!saturates).then(|| Format::of(d.dtype()).overflow_threshold());
        let results = self.bounded(&bound);
        // An activation may map an infinite sum to a number.
        let ends = match bound.has_narrow_sums() {
            true => vec![f64::NEG_INFINITY, f64::INFINITY],
            false => vec![],
        };
        let ends: Vec<Vec<f64>> = ends.into_iter().map(|sum| self.results_of(|_| sum)).collect();
        Ok(compare_elements(d, Check::ErrorBound, |row, column| {
            let index = row * self.problem.n + column;
            let sums_may_overflow = bound.sums_may_overflow(self.magnitudes(index));
            let reference = self.expected(index, d.dtype());
            let mut largest = bound.of(results[index]) + slack;
            if sums_may_overflow {
                let ends = ends.iter().map(|end| end[index]).filter(|end| end.is_finite());
                largest = ends.fold(largest, |most, end| most.max((end - reference).abs()));
            }
            Expectation {
                reference,
                bound: largest,
                defined: results[index].defined,
                may_overflow: overflow.is_some_and(|from| reference.abs() + largest >= from),
                sums_may_overflow,
            }
        }))
    }

    /// Compares a computed D of integer-valued inputs with the reference: with every partial sum
    /// exact in single precision, each element must be the reference rounded once to D's type, to
    /// nearest even. A D of 32-bit integers must be the reference modulo 2^32.
    ///
    /// # Errors
    /// D has another shape, or the inputs leave something to rounding: a value is not an integer,
    /// the activation makes fractions of integers, or the magnitudes that an element adds up exceed
    /// 2^24 (2^13 for products of 8-bit floats, 2^53 of f64 and where D is of 32-bit integers).
    pub fn compare_exact(&self, d: &HostMatrix) -> Result<Comparison, NumericsError> {
        let wraps = d.dtype() == Element::S32;
        let [of_products, of_results] = match self.dtypes {
            _ if wraps => [EXACT_LIMIT_DOUBLE; 2],
            [Element::F64, Element::F64, _] if d.dtype() == Element::F64 => [EXACT_LIMIT_DOUBLE; 2],
            [input, ..] if input.is_float8() => [EXACT_LIMIT_8, EXACT_LIMIT],
            _ => [EXACT_LIMIT; 2],
        };
        self.compare_exact_to(d, [of_products, of_results])
    }

    /// The same of sums in f16, which are exact as long as the magnitudes of the products sum up to
    /// 2^11 at most.
    ///
    /// # Errors
    /// The errors of [`compare_exact`](Self::compare_exact), with that limit.
    pub fn compare_exact_f16(&self, d: &HostMatrix) -> Result<Comparison, NumericsError> {
        self.compare_exact_to(d, [EXACT_LIMIT_16, EXACT_LIMIT])
    }

    /// The exact comparison with these limits for the magnitudes of products and of results.
    fn compare_exact_to(
        &self,
        d: &HostMatrix,
        [of_products, of_results]: [u64; 2],
    ) -> Result<Comparison, NumericsError> {
        self.check_shape(d)?;
        self.check_exact(of_products, of_results)?;
        Ok(compare_elements(d, Check::Exact, |row, column| {
            let value = self.expected(row * self.problem.n + column, d.dtype());
            let reference = with_scalar!(d.dtype(), S => S::from_double(value).to_double());
            Expectation {
                reference,
                bound: 0.0,
                defined: value.is_finite(),
                may_overflow: reference.is_infinite(),
                sums_may_overflow: false,
            }
        }))
    }

    fn check_shape(&self, d: &HostMatrix) -> Result<(), NumericsError> {
        if (d.rows(), d.columns()) != (self.rows(), self.columns()) {
            return Err(NumericsError::Shape {
                found: d.layout(),
                rows: self.rows(),
                columns: self.columns(),
            });
        }
        Ok(())
    }

    /// Fails unless all values are integers, and magnitudes of products and of results stay below
    /// these limits.
    fn check_exact(&self, of_products: u64, of_results: u64) -> Result<(), NumericsError> {
        let largest = |a: f64, b: f64| a.max(b);
        let products = self.products.par_iter().copied().reduce(|| 0.0, largest);
        let results = self.each_row(|row| {
            self.evaluate(&Sizes, row, f64::abs, |index| self.products[index], f64::abs)
        });
        let results = results.into_par_iter().reduce(|| 0.0, largest);
        let inexact = |limit, reached| Err(NumericsError::NotExact { limit, reached });
        let activation = self.applied.activation();
        if let Some(activation) = activation.filter(|activation| activation.makes_fractions()) {
            return inexact(of_products, Inexact::Activation(activation));
        }
        if !self.integral {
            return inexact(of_products, Inexact::Fraction);
        }
        for (reached, limit) in [(products, of_products), (results, of_results)] {
            if reached > limit as f64 {
                return inexact(limit, Inexact::Sum(reached));
            }
        }
        Ok(())
    }
}

/// The magnitudes that partial results reach.
struct Sizes;

impl Arithmetic for Sizes {
    type Value = f64;

    fn multiply(&self, a: f64, b: f64) -> f64 {
        a * b
    }

    fn multiply_add(&self, a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }

    /// What is added up is the argument.
    fn activate(&self, _: Activation, x: f64, _: &[f64]) -> f64 {
        x
    }
}

/// An integer below 2^53 modulo 2^32, as one of 32 bits with a sign.
fn wrapped(value: f64) -> f64 {
    f64::from(value as i64 as i32)
}

fn is_integer(element: Element) -> bool {
    matches!(element, Element::S8 | Element::U8 | Element::S32)
}

/// Replaces values by their magnitudes. Returns whether all are integers.
fn take_magnitudes(panel: &mut Panel<f64>) -> bool {
    panel
        .values_mut()
        .par_chunks_mut(1 << 14)
        .map(|values| {
            values.iter_mut().fold(true, |integral, value| {
                *value = value.abs();
                integral & (value.fract() == 0.0)
            })
        })
        .reduce(|| true, |a, b| a & b)
}

/// Adds up the rows (`RowMajor`) or columns (`ColumnMajor`) of a panel.
fn add_sums(panel: &Panel<f64>, along: Order, sums: &mut [f64]) {
    let length = match panel.order() {
        Order::RowMajor => panel.columns(),
        Order::ColumnMajor => panel.rows(),
    };
    let lines = panel.values().chunks(length.max(1));
    if panel.order() == along {
        for (sum, line) in sums.iter_mut().zip(lines) {
            *sum += line.iter().sum::<f64>();
        }
    } else {
        for line in lines {
            for (sum, value) in sums.iter_mut().zip(line) {
                *sum += value;
            }
        }
    }
}
