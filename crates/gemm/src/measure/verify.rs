//! The gate before the clock: no contestant is timed before its D, on poisoned outputs, agrees with
//! a higher-precision reference. Large problems are checked on sampled rows, all columns of each,
//! and scanned whole for unwritten elements.

use std::borrow::Cow;

use pgemm_ir::Element;
use pgemm_kernels::catalogue::PROMOTION_8;
use pgemm_kernels::{BiasAlong, Epilogue};
use pgemm_plan::{Major, MatrixLayout, OperandLayout, Precision, Problem};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::contestant::Contestant;
use super::error::{MeasureError, Result, WrongElements, WrongOutput};
use super::operands::{Elements, OperandSets};
use crate::driver::StreamRef;
use crate::matrix::{HostMatrix, MatrixError};
use crate::numerics::{Accumulation, Comparison, ErrorModel, NumericsError, Reference};
use crate::operands::Operands;

/// Products (m·n·k) up to which every element is compared.
const FULL_PRODUCTS: u128 = 1 << 33;
/// Rows compared of a larger problem, if they cost no more products than that.
const SAMPLED_ROWS: usize = 64;
/// The least number of compared rows.
const MIN_SAMPLED_ROWS: usize = 8;

/// The verification of a contestant's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// The rows that were compared, all columns of each, or `None` if all were.
    pub rows: Option<Vec<usize>>,
    /// The operand sets that were computed and compared.
    pub sets: Vec<usize>,
    /// The comparison of each operand set. For a batch, one for each compared product.
    pub comparisons: Vec<Comparison>,
    /// The compared products of a batch. Empty for a single product.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub products: Vec<usize>,
}

/// Compares a D with the reference on all rows, or on a sample where m·n·k is large. Draws the
/// sample from `seed`.
///
/// `model` is the arithmetic whose errors are allowed. Returns the rows, `None` for all of them,
/// and the comparison, whose row numbers count within the sample.
///
/// # Errors
/// The matrices do not fit the problem, or no error bound is derived for the types.
pub fn verify_sampled(
    problem: &Problem,
    a: &HostMatrix,
    b: &HostMatrix,
    c: Option<&HostMatrix>,
    d: &HostMatrix,
    model: &ErrorModel,
    seed: u64,
) -> Result<(Option<Vec<usize>>, Comparison), NumericsError> {
    let rows = sample_rows(problem, FULL_PRODUCTS, seed);
    let sampled = SampledReference::new(problem, (a, b, c), rows, Epilogue::NONE, None)?;
    let comparison = sampled.compare(d, model, 0.0)?;
    Ok((sampled.rows, comparison))
}

/// The arithmetic that a contestant is allowed on random inputs of these types.
pub fn error_model(elements: Elements) -> ErrorModel {
    let Elements { a, b, precision, .. } = elements;
    let accumulation = match (a, Accumulation::on_tensor_cores(a)) {
        (Element::F32, _) if precision.terms().is_some() => Accumulation::Emulated(precision),
        (Element::F32 | Element::F64, _) => Accumulation::Nearest,
        (Element::F16, _) if precision == Precision::F16 => Accumulation::TensorCore16,
        (_, Accumulation::TensorCore8) if precision == Precision::Full => {
            Accumulation::Promoted8(PROMOTION_8)
        }
        (_, accumulation) => accumulation,
    };
    ErrorModel { accumulation: accumulation.of_random_signs(), a, b }
}

/// A reference of all rows, or of some.
pub struct SampledReference {
    /// The rows that the reference has, or `None` if it has all.
    pub rows: Option<Vec<usize>>,
    /// Their reference.
    pub reference: Reference,
}

impl SampledReference {
    /// A reference of a product's rows, of as many as can be afforded.
    pub fn affordable(
        problem: &Problem,
        a: &HostMatrix,
        b: &HostMatrix,
    ) -> Result<SampledReference, NumericsError> {
        let rows = sample_rows(problem, FULL_PRODUCTS, SAMPLE_SEED);
        SampledReference::new(problem, (a, b, None), rows, Epilogue::NONE, None)
    }

    fn new(
        problem: &Problem,
        (a, b, c): (&HostMatrix, &HostMatrix, Option<&HostMatrix>),
        rows: Option<Vec<usize>>,
        epilogue: Epilogue,
        bias: Option<&HostMatrix>,
    ) -> Result<SampledReference, NumericsError> {
        let Some(rows) = rows else {
            return Ok(SampledReference {
                rows: None,
                reference: Reference::with_epilogue(problem, (a, b, c), epilogue, bias)?,
            });
        };
        let mut part = problem
            .with_d_major(Major::N)
            .with_c_leading_dimension(problem.n.max(1))
            .with_d_leading_dimension(problem.n.max(1));
        part.m = rows.len();
        part.a = OperandLayout::new(Major::K, problem.k.max(1));
        let a = gather_rows(a, &rows)?;
        let c = c.filter(|_| problem.beta != 0.0).map(|c| gather_rows(c, &rows)).transpose()?;
        let of_rows = match (epilogue.bias(), bias) {
            (Some(BiasAlong::M), Some(bias)) => {
                let values: Vec<f64> = rows.iter().filter_map(|&row| bias.get(0, row)).collect();
                let layout = MatrixLayout::row_major(1, rows.len());
                Some(HostMatrix::from_f64(layout, bias.dtype(), &values)?)
            }
            _ => None,
        };
        let of = (&a, b, c.as_ref());
        let reference = Reference::with_epilogue(&part, of, epilogue, of_rows.as_ref().or(bias))?;
        Ok(SampledReference { rows: Some(rows), reference })
    }

    fn compare(
        &self,
        d: &HostMatrix,
        model: &ErrorModel,
        slack: f64,
    ) -> Result<Comparison, NumericsError> {
        self.reference.compare_with(self.part(d)?.as_ref(), model, slack)
    }

    /// The rows of a D that the reference has.
    pub fn part<'a>(&self, d: &'a HostMatrix) -> Result<Cow<'a, HostMatrix>, MatrixError> {
        Ok(match &self.rows {
            None => Cow::Borrowed(d),
            Some(rows) => Cow::Owned(gather_rows(d, rows)?),
        })
    }
}

/// References with this epilogue of some products, each with its number.
fn references(
    operands: &OperandSets,
    epilogue: Epilogue,
) -> Result<Vec<(usize, SampledReference)>> {
    let problem = operands.problem();
    let one = problem.one();
    let reference = |product| -> Result<_> {
        let Operands { a, b, c, bias } = operands.host().of(product);
        let rows = sample_rows(&one, FULL_PRODUCTS, SAMPLE_SEED);
        Ok((product, SampledReference::new(&one, (a, b, c), rows, epilogue, bias)?))
    };
    sample_products(problem, FULL_PRODUCTS).into_iter().map(reference).collect()
}

/// Checks contestants on one problem's operand sets; the reference is computed once.
pub struct Verifier<'a> {
    operands: &'a OperandSets,
    /// References of some products, each with the product's number.
    references: Vec<(usize, SampledReference)>,
}

impl<'a> Verifier<'a> {
    /// Computes the reference for these operand sets.
    ///
    /// # Errors
    /// An error of the problem.
    pub fn new(operands: &'a OperandSets) -> Result<Verifier<'a>> {
        let references = references(operands, operands.elements().epilogue)?;
        Ok(Verifier { operands, references })
    }

    /// Runs the contestant on the first and the last set, on poisoned outputs, and compares both.
    /// Of a batch all products are looked through for elements that were not written.
    pub fn verify(
        &self,
        contestant: &mut dyn Contestant,
        stream: StreamRef<'_>,
    ) -> Result<Verification> {
        let mut sets = vec![0, self.operands.count() - 1];
        sets.dedup();
        self.operands.poison_outputs(stream)?;
        for &set in &sets {
            contestant.enqueue(set, stream)?;
        }
        stream.synchronize()?;
        let own = contestant.epilogue(self.operands.elements().epilogue);
        self.compare(contestant.name(), (own, contestant.slack()), sets, stream)
    }

    /// Compares the results of the contestant `name` on these sets. Errors may exceed the bound by
    /// `slack`.
    pub fn compare(
        &self,
        name: &str,
        (own, slack): (Epilogue, f64),
        sets: Vec<usize>,
        stream: StreamRef<'_>,
    ) -> Result<Verification> {
        let model = error_model(self.operands.elements());
        let requested = self.operands.elements().epilogue;
        let less = (own != requested).then(|| references(self.operands, own)).transpose()?;
        let all = less.as_ref().unwrap_or(&self.references);
        let mut comparisons = Vec::with_capacity(sets.len());
        for &set in &sets {
            let d = self.operands.read_outputs(set, stream)?;
            let wrong = |rows, finding| MeasureError::WrongResult {
                contestant: name.to_owned(),
                set,
                rows,
                finding,
            };
            comparisons.extend(compare_products(all, &d, (&model, slack), wrong)?);
        }
        let rows = self.references.first().and_then(|(_, reference)| reference.rows.clone());
        let products = match self.references.len() {
            1 if self.operands.problem().batch.is_one() => vec![],
            _ => self.references.iter().map(|(product, _)| *product).collect(),
        };
        Ok(Verification { rows, sets, comparisons, products })
    }
}

/// Compares the products that have a reference, and looks through all of them for elements that
/// were not written. `wrong` makes an error of the rows that were compared and the fault.
fn compare_products(
    references: &[(usize, SampledReference)],
    d: &[HostMatrix],
    (model, slack): (&ErrorModel, f64),
    wrong: impl Fn(usize, WrongOutput) -> MeasureError,
) -> Result<Vec<Comparison>> {
    let of_product = |product, what| {
        let product = (d.len() != 1).then_some(product);
        WrongOutput { product, what }
    };
    let mut comparisons = Vec::with_capacity(references.len());
    for (product, reference) in references {
        let d = &d[*product];
        let comparison = reference.compare(d, model, slack)?;
        if let Some(finding) = finding(&comparison, d) {
            let rows = reference.rows.as_ref().map_or(d.rows(), Vec::len);
            return Err(wrong(rows, of_product(*product, finding)));
        }
        comparisons.push(comparison);
    }
    for (product, d) in d.iter().enumerate() {
        if let Some(finding) = left_out(d) {
            return Err(wrong(d.rows(), of_product(product, finding)));
        }
    }
    Ok(comparisons)
}

/// Any seed will do; a fixed one makes runs comparable.
const SAMPLE_SEED: u64 = 0x5eed;

/// The fault of a D, if there is one.
fn finding(comparison: &Comparison, d: &HostMatrix) -> Option<WrongElements> {
    if !comparison.passed {
        return Some(WrongElements::Different(Box::new(comparison.clone())));
    }
    left_out(d)
}

/// Elements of a D that were not written, or writes outside of it.
fn left_out(d: &HostMatrix) -> Option<WrongElements> {
    match unwritten(d) {
        0 if d.gaps_are_poison() => None,
        0 => Some(WrongElements::Overwritten),
        unwritten => Some(WrongElements::Unwritten(unwritten)),
    }
}

/// Elements of a floating-point matrix that still have all bits set. Integers may have them
/// rightly.
fn unwritten(d: &HostMatrix) -> usize {
    if matches!(d.dtype(), Element::S8 | Element::U8 | Element::S32) {
        return 0;
    }
    (0..d.rows())
        .into_par_iter()
        .map(|row| (0..d.columns()).filter(|&column| d.is_poison(row, column)).count())
        .sum()
}

/// The products of a batch to compare: as many as cost no more than `full` multiplications, but the
/// first and the last, and at most [`SAMPLED_ROWS`].
fn sample_products(problem: &Problem, full: u128) -> Vec<usize> {
    let count = problem.batch.count;
    let of_one = problem.m as u128 * problem.n as u128 * problem.k as u128;
    let affordable = usize::try_from(full / of_one.max(1)).unwrap_or(usize::MAX);
    let sampled = count.min(affordable.clamp(2, SAMPLED_ROWS));
    let last = count.saturating_sub(1) as u128;
    (0..sampled).map(|i| (i as u128 * last / (sampled as u128 - 1).max(1)) as usize).collect()
}

/// The rows to compare: one from each of equal strips, including the first and the last row. `None`
/// stands for all rows, if the problem has at most `full` products.
fn sample_rows(problem: &Problem, full: u128, seed: u64) -> Option<Vec<usize>> {
    let row_products = problem.n as u128 * problem.k as u128;
    if row_products * problem.m as u128 <= full {
        return None;
    }
    let affordable = usize::try_from(full / row_products.max(1)).unwrap_or(usize::MAX);
    let count = affordable.clamp(MIN_SAMPLED_ROWS, SAMPLED_ROWS);
    if count >= problem.m {
        return None;
    }
    let mut state = seed;
    let row = |strip: usize| {
        let (from, to) = (strip * problem.m / count, (strip + 1) * problem.m / count);
        // A linear congruential generator (Knuth's MMIX constants): the sample only has to be
        // spread.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (state >> 33) as usize % (to - from)
    };
    let mut rows: Vec<usize> = (0..count).map(row).collect();
    if let Some(first) = rows.first_mut() {
        *first = 0;
    }
    if let Some(last) = rows.last_mut() {
        *last = problem.m - 1;
    }
    Some(rows)
}

/// The given rows of a matrix as a row-major matrix without gaps.
fn gather_rows(matrix: &HostMatrix, rows: &[usize]) -> Result<HostMatrix, MatrixError> {
    let layout = matrix.layout();
    let size = matrix.dtype().bytes() as usize;
    let mut gathered =
        HostMatrix::zeros(MatrixLayout::row_major(rows.len(), layout.columns), matrix.dtype())?;
    let source = matrix.bytes();
    let line = layout.columns * size;
    for (&row, target) in rows.iter().zip(gathered.bytes_mut().chunks_exact_mut(line.max(1))) {
        for (column, target) in target.chunks_exact_mut(size).enumerate() {
            let element = layout
                .offset(row, column)
                .and_then(|offset| source.get(offset * size..(offset + 1) * size))
                .ok_or(MatrixError::OutOfRange { row, column, layout })?;
            target.copy_from_slice(element);
        }
    }
    Ok(gathered)
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Order;

    use super::*;

    #[test]
    fn all_products_of_a_small_batch_are_compared_and_both_ends_of_a_large_one() {
        let batch = |count| Problem::new(8, 8, 8, Major::K, Major::K).with_batch(count);
        assert_eq!(sample_products(&batch(1), 1), [0]);
        assert_eq!(sample_products(&batch(5), FULL_PRODUCTS), [0, 1, 2, 3, 4]);
        assert_eq!(sample_products(&batch(1000), 1), [0, 999]);
        let many = sample_products(&batch(1000), FULL_PRODUCTS);
        assert_eq!((many.len(), many[0], many[SAMPLED_ROWS - 1]), (SAMPLED_ROWS, 0, 999));
    }

    /// 8-bit floats are promoted unless speed was requested, so their sums have to be as accurate
    /// as promoted ones.
    #[test]
    fn each_type_is_judged_by_its_own_arithmetic() {
        use Accumulation::{
            Emulated, Nearest, Promoted8Random, TensorCore, TensorCore8Random, TensorCore16Random,
        };
        for (element, precision, accumulation) in [
            (Element::E4m3, Precision::Full, Promoted8Random(128)),
            (Element::E5m2, Precision::Full, Promoted8Random(128)),
            (Element::E4m3, Precision::Fast, TensorCore8Random),
            (Element::E5m2, Precision::Fast, TensorCore8Random),
            (Element::F16, Precision::Full, TensorCore),
            (Element::F16, Precision::F16, TensorCore16Random),
            (Element::Bf16, Precision::Full, TensorCore),
            (Element::Tf32, Precision::Full, TensorCore),
            (Element::F32, Precision::Full, Nearest),
            (Element::F32, Precision::Tf32x3, Emulated(Precision::Tf32x3)),
            (Element::F64, Precision::Full, Nearest),
        ] {
            let elements = Elements { precision, ..Elements::new(element, Element::F32) };
            let model = error_model(elements);
            assert_eq!(model.accumulation, accumulation, "{element} {precision}");
            assert_eq!((model.a, model.b), (element, element));
        }
    }

    /// Three products, of which one is wrong, or has an element that was not written.
    #[test]
    fn every_product_of_a_batch_is_compared() {
        let problem = Problem::new(4, 5, 6, Major::K, Major::K);
        let mut products = vec![];
        for seed in 0..3 {
            let mut a = HostMatrix::zeros(problem.a_layout(), Element::Bf16).unwrap();
            let mut b = HostMatrix::zeros(problem.b_layout(), Element::Bf16).unwrap();
            a.fill_integers(2 * seed, 4);
            b.fill_integers(2 * seed + 1, 4);
            let reference =
                SampledReference::new(&problem, (&a, &b, None), None, Epilogue::NONE, None);
            let reference = reference.unwrap();
            let values = reference.reference.values();
            let d = HostMatrix::from_f64(problem.d_layout(), Element::F32, values).unwrap();
            products.push((reference, d));
        }
        let (references, right): (Vec<_>, Vec<_>) = products.into_iter().unzip();
        let references: Vec<_> = references.into_iter().enumerate().collect();
        let model = error_model(Elements::new(Element::Bf16, Element::F32));
        let compare = |references: &[(usize, SampledReference)], d: &[HostMatrix]| {
            compare_products(references, d, (&model, 0.0), |rows, finding| {
                MeasureError::WrongResult { contestant: "ours".to_owned(), set: 0, rows, finding }
            })
        };
        assert_eq!(compare(&references, &right).unwrap().len(), 3);
        for wrong in 0..3 {
            let product = |result| match result {
                Err(MeasureError::WrongResult { finding, .. }) => finding,
                other => panic!("{other:?}"),
            };
            let mut d = right.clone();
            let value = d[wrong].get(3, 4).unwrap();
            d[wrong].set(3, 4, value + 1.0).unwrap();
            let finding = product(compare(&references, &d));
            assert_eq!(finding.product, Some(wrong));
            assert!(matches!(finding.what, WrongElements::Different(_)), "{finding:?}");
            // Products that are not compared are looked through.
            d[wrong].poison();
            let finding = product(compare(&[], &d));
            assert_eq!(finding.product, Some(wrong));
            assert!(matches!(finding.what, WrongElements::Unwritten(20)), "{finding:?}");
        }
    }

    fn tall(a_major: Major) -> (Problem, HostMatrix, HostMatrix) {
        let problem = Problem::new(3000, 48, 64, a_major, Major::K);
        let mut a = HostMatrix::zeros(problem.a_layout(), Element::Bf16).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), Element::Bf16).unwrap();
        a.fill_integers(1, 4);
        b.fill_integers(2, 4);
        (problem, a, b)
    }

    /// The sampled rows computed here, all others poisoned.
    fn product_of_rows(
        problem: &Problem,
        a: &HostMatrix,
        b: &HostMatrix,
        rows: &[usize],
    ) -> HostMatrix {
        let mut d = HostMatrix::zeros(problem.d_layout(), Element::F32).unwrap();
        d.poison();
        for &row in rows {
            for column in 0..problem.n {
                let sum: f64 = (0..problem.k)
                    .map(|k| a.get(row, k).unwrap() * b.get(k, column).unwrap())
                    .sum();
                d.set(row, column, sum).unwrap();
            }
        }
        d
    }

    #[test]
    fn samples_are_spread_and_hold_the_edges() {
        let problem = Problem::new(100_000, 4096, 4096, Major::K, Major::K);
        let rows = sample_rows(&problem, FULL_PRODUCTS, 7).unwrap();
        assert_eq!(rows.len(), SAMPLED_ROWS);
        assert_eq!((rows[0], rows[63]), (0, 99_999));
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
        assert_ne!(sample_rows(&problem, FULL_PRODUCTS, 8), Some(rows));

        assert_eq!(
            sample_rows(&Problem::new(2048, 2048, 2048, Major::K, Major::K), FULL_PRODUCTS, 7),
            None
        );
        let deep = Problem::new(512, 65_536, 1 << 20, Major::K, Major::K);
        assert_eq!(sample_rows(&deep, FULL_PRODUCTS, 7).unwrap().len(), MIN_SAMPLED_ROWS);
        // Fewer rows than a sample would have: all of them.
        let flat = Problem::new(5, 65_536, 1 << 20, Major::K, Major::K);
        assert_eq!(sample_rows(&flat, FULL_PRODUCTS, 7), None);
    }

    #[test]
    fn gathering_keeps_bytes_in_any_layout() {
        for layout in [
            MatrixLayout::tight(9, 5, Order::RowMajor).with_leading_dimension(7),
            MatrixLayout::tight(9, 5, Order::ColumnMajor).with_leading_dimension(11),
        ] {
            let mut matrix = HostMatrix::zeros(layout, Element::F16).unwrap();
            matrix.fill_normal(3);
            let gathered = gather_rows(&matrix, &[8, 0, 4]).unwrap();
            assert_eq!((gathered.rows(), gathered.columns()), (3, 5));
            for (index, row) in [8, 0, 4].into_iter().enumerate() {
                for column in 0..5 {
                    assert_eq!(gathered.get(index, column), matrix.get(row, column));
                }
            }
            assert!(gather_rows(&matrix, &[9]).is_err());
        }
    }

    #[test]
    fn sampled_comparison_sees_a_wrong_row() {
        for a_major in [Major::K, Major::M] {
            let (problem, a, b) = tall(a_major);
            // The limit for a full comparison is lowered to a thousandth.
            let rows = sample_rows(&problem, FULL_PRODUCTS / 1000, 11).unwrap();
            let mut d = product_of_rows(&problem, &a, &b, &rows);
            let model = error_model(Elements::new(Element::Bf16, Element::F32));
            let sampled = SampledReference::new(
                &problem,
                (&a, &b, None),
                Some(rows.clone()),
                Epilogue::NONE,
                None,
            )
            .unwrap();
            let comparison = sampled.compare(&d, &model, 0.0).unwrap();
            assert!(comparison.passed, "{comparison}");
            assert_eq!(comparison.elements, 64 * 48);
            assert_eq!(
                finding(&comparison, &d).unwrap().to_string(),
                format!("{} elements are unwritten", (3000 - 64) * 48)
            );

            let value = d.get(rows[40], 17).unwrap();
            d.set(rows[40], 17, value + 1.0).unwrap();
            let comparison = sampled.compare(&d, &model, 0.0).unwrap();
            assert!(!comparison.passed);
            let worst = comparison.worst.unwrap();
            assert_eq!((worst.row, worst.column), (40, 17));
        }
    }

    #[test]
    fn writes_between_rows_are_found() {
        let problem = Problem::new(3, 5, 4, Major::K, Major::N).with_d_leading_dimension(8);
        let mut a = HostMatrix::zeros(problem.a_layout(), Element::F16).unwrap();
        let mut b = HostMatrix::zeros(problem.b_layout(), Element::F16).unwrap();
        a.fill_integers(1, 3);
        b.fill_integers(2, 3);
        let mut d = product_of_rows(&problem, &a, &b, &[0, 1, 2]);
        let check = |d: &HostMatrix| {
            let model = error_model(Elements::new(Element::F16, Element::F16));
            let (rows, comparison) = verify_sampled(&problem, &a, &b, None, d, &model, 0).unwrap();
            assert_eq!(rows, None);
            finding(&comparison, d)
        };
        assert!(check(&d).is_none());
        // Column 6 of row 1 is in the gap between lines.
        d.bytes_mut()[4 * (8 + 6)] = 0;
        assert!(matches!(check(&d), Some(WrongElements::Overwritten)));
    }
}
