//! The figures: errors of a D against its reference, over all rows that there is a reference of.

use persistent_gemm::measure::SampledReference;
use persistent_gemm::{ErrorModel, HostMatrix, NumericsError};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The errors of a D. If its type saturates, so does the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Elements that were compared.
    pub elements: u64,
    /// Elements of D that are infinite although the reference is finite. They are not part of the
    /// figures below.
    pub overflowed: u64,
    /// Elements that are NaN, including unwritten ones. They are not part of the figures below.
    pub not_a_number: u64,
    /// `‖D − R‖ / ‖R‖` in the Frobenius norm, with R the reference.
    pub normwise: f64,
    /// The largest `|d − r| / (|alpha|·Σ |aᵢ||bᵢ|)`.
    pub elementwise: f64,
    /// The mean of `(|d| − |r|) / (|alpha|·Σ |aᵢ||bᵢ|)`: below 0 where results are too small, as
    /// truncated sums are.
    pub bias: f64,
    /// The largest ratio of an element's error to its derived bound. `None` if there is no bound,
    /// or no such element.
    pub of_bound: Option<f64>,
    /// Whether every element is within its bound, or `None` if there is none.
    pub within_bound: Option<bool>,
}

#[derive(Default)]
struct Sums {
    overflowed: u64,
    not_a_number: u64,
    counted: u64,
    error_squares: f64,
    reference_squares: f64,
    elementwise: f64,
    bias: f64,
}

impl Sums {
    fn add(mut self, computed: f64, reference: f64, products: f64) -> Sums {
        if computed.is_nan() {
            self.not_a_number += 1;
            return self;
        }
        if computed.is_infinite() {
            self.overflowed += 1;
            return self;
        }
        let error = computed - reference;
        self.counted += 1;
        self.error_squares += error * error;
        self.reference_squares += reference * reference;
        if products > 0.0 {
            self.elementwise = self.elementwise.max(error.abs() / products);
            self.bias += (computed.abs() - reference.abs()) / products;
        }
        self
    }

    fn merge(self, other: Sums) -> Sums {
        Sums {
            overflowed: self.overflowed + other.overflowed,
            not_a_number: self.not_a_number + other.not_a_number,
            counted: self.counted + other.counted,
            error_squares: self.error_squares + other.error_squares,
            reference_squares: self.reference_squares + other.reference_squares,
            elementwise: self.elementwise.max(other.elementwise),
            bias: self.bias + other.bias,
        }
    }
}

impl Errors {
    /// The errors of a D, over the rows of the sampled reference.
    pub(super) fn of(
        sampled: &SampledReference,
        d: &HostMatrix,
        model: &ErrorModel,
    ) -> Result<Errors, NumericsError> {
        let d = sampled.part(d)?;
        let reference = &sampled.reference;
        let comparison = match reference.compare(&d, model) {
            Ok(comparison) => Some(comparison),
            Err(
                NumericsError::NoBound { .. }
                | NumericsError::NoOutputBound { .. }
                | NumericsError::DepthTooLarge { .. },
            ) => None,
            Err(error) => return Err(error),
        };
        let (columns, products) = (reference.columns(), reference.magnitudes_of_products());
        let alpha = reference.alpha().abs();
        // Rows are added up one by one, so the sums do not depend on the number of threads.
        let rows: Vec<Sums> = (0..reference.rows())
            .into_par_iter()
            .map(|row| {
                (0..columns).fold(Sums::default(), |sums, column| {
                    let index = row * columns + column;
                    let value = reference.expected(index, d.dtype());
                    sums.add(d.get(row, column).unwrap_or(f64::NAN), value, alpha * products[index])
                })
            })
            .collect();
        let sums = rows.into_iter().fold(Sums::default(), Sums::merge);
        let part = |of: f64, whole: f64| if of == 0.0 { 0.0 } else { of / whole };
        let worst = comparison.as_ref().and_then(|comparison| comparison.worst.as_ref());
        Ok(Errors {
            elements: (reference.rows() * columns) as u64,
            overflowed: sums.overflowed,
            not_a_number: sums.not_a_number,
            normwise: part(sums.error_squares.sqrt(), sums.reference_squares.sqrt()),
            elementwise: sums.elementwise,
            bias: part(sums.bias, sums.counted as f64),
            of_bound: worst.map(|worst| worst.ratio).filter(|ratio| ratio.is_finite()),
            within_bound: comparison.map(|comparison| comparison.passed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KINDS, Sample, Values};
    use pgemm_ir::Element;

    use super::*;
    use persistent_gemm::Accumulation;

    #[test]
    fn errors_are_those_of_the_rows_that_were_computed() {
        let kind = &KINDS[0];
        let sample = Sample::new(kind, Values::Uniform, [5, 7, 9], 3).unwrap();
        assert_eq!(sample.a.layout().leading_dimension, 16);
        let (values, products) = (
            sample.reference.reference.values(),
            sample.reference.reference.magnitudes_of_products(),
        );
        let layout = sample.problem.d_layout();
        let right = HostMatrix::from_f64(layout, Element::F32, values).unwrap();
        let model = ErrorModel::new(Accumulation::Nearest, Element::Bf16);
        let errors = Errors::of(&sample.reference, &right, &model).unwrap();
        assert!(errors.normwise < 2f64.powi(-24) && errors.within_bound == Some(true));
        assert!(errors.elementwise > 0.0 && errors.of_bound.unwrap() > 0.0);

        // An eighth too small, one element infinite and one not a number.
        let mut small = HostMatrix::zeros(layout, Element::F32).unwrap();
        small.fill_with(|row, column| values[row * 7 + column] * 0.875);
        small.set(1, 2, f64::INFINITY).unwrap();
        small.set(4, 6, f64::NAN).unwrap();
        let errors = Errors::of(&sample.reference, &small, &model).unwrap();
        assert_eq!((errors.elements, errors.overflowed, errors.not_a_number), (35, 1, 1));
        assert!((errors.normwise - 0.125).abs() < 1e-6);
        // Positive values: the sum of magnitudes is the sum.
        assert_eq!(values, products);
        assert!((errors.elementwise - 0.125).abs() < 1e-6 && (errors.bias + 0.125).abs() < 1e-6);
        assert_eq!(errors.within_bound, Some(false));
        // No bound, the same errors.
        let unbounded = ErrorModel::new(Accumulation::Nearest, Element::S32);
        let without = Errors::of(&sample.reference, &small, &unbounded).unwrap();
        assert_eq!((without.of_bound, without.within_bound), (None, None));
        assert_eq!(without.normwise, errors.normwise);
    }
}
