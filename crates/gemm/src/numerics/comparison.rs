//! The outcome of a comparison, and the walk over a matrix that finds it.

use std::fmt;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::matrix::HostMatrix;

/// The kind of check that the elements were compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Check {
    /// A derived error bound.
    ErrorBound,
    /// The exact result, rounded once.
    Exact,
}

/// An element with its error: the one with the largest in proportion to its bound, or the first
/// that is outside its bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstElement {
    /// Its row.
    pub row: usize,
    /// Its column.
    pub column: usize,
    /// The computed value.
    #[serde(with = "any_float")]
    pub computed: f64,
    /// The expected value.
    #[serde(with = "any_float")]
    pub reference: f64,
    /// Their distance.
    #[serde(with = "any_float")]
    pub error: f64,
    /// The largest distance allowed.
    #[serde(with = "any_float")]
    pub bound: f64,
    /// `error / bound`. At most 1 if the element is correct.
    #[serde(with = "any_float")]
    pub ratio: f64,
}

/// The comparison of a computed matrix with a reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Every element is within its bound, and so is the norm of all errors.
    pub passed: bool,
    /// What the elements were held against.
    pub check: Check,
    /// Elements compared.
    pub elements: u64,
    /// Elements outside their bound, including the unwritten and undefined ones below.
    pub failed: u64,
    /// Elements that are NaN, unwritten ones excluded.
    pub not_a_number: u64,
    /// Elements that still have all bits set, as [`HostMatrix::poison`] leaves them.
    pub unwritten: u64,
    /// Elements whose reference is NaN or infinite, because inputs are.
    pub undefined: u64,
    /// Elements that rightly overflowed to infinity. They are not part of the norms.
    pub overflowed: u64,
    /// The worst element; none in an empty matrix.
    pub worst: Option<WorstElement>,
    /// The first element outside its bound, row after row; none if there is no such element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failed: Option<WorstElement>,
    /// `‖D − reference‖ / ‖reference‖` in the Frobenius norm, over finite elements.
    #[serde(with = "any_float")]
    pub relative_frobenius: f64,
    /// What `relative_frobenius` may reach: the Frobenius norm of the elements' bounds over that of
    /// the reference.
    #[serde(with = "any_float")]
    pub frobenius_bound: f64,
}

impl Comparison {
    /// Whether some elements have no finite reference, and all others are correct.
    pub fn cannot_be_judged(&self) -> bool {
        !self.passed && self.undefined > 0 && self.failed == self.undefined
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed {
            "correct"
        } else if self.cannot_be_judged() {
            "CANNOT BE JUDGED, because inputs or exact sums are not finite"
        } else {
            "WRONG"
        };
        write!(
            f,
            "{verdict}: relative error {:.2e} (bound {:.2e})",
            self.relative_frobenius, self.frobenius_bound
        )?;
        if self.failed > 0 && !self.cannot_be_judged() {
            write!(f, ", {} of {} elements failed", self.failed, self.elements)?;
        }
        for (count, what) in [
            (self.unwritten, "unwritten"),
            (self.not_a_number, "NaN"),
            (self.undefined, "with a reference that is not finite"),
            (self.overflowed, "overflowed as they should"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if let Some(worst) = self.worst.as_ref().filter(|_| !self.cannot_be_judged()) {
            write!(
                f,
                "; worst at ({}, {}): {:.6e} instead of {:.6e}, {:.3} of its bound {:.2e}",
                worst.row, worst.column, worst.computed, worst.reference, worst.ratio, worst.bound
            )?;
        }
        Ok(())
    }
}

/// The expected value and bound of one element.
pub(super) struct Expectation {
    pub(super) reference: f64,
    pub(super) bound: f64,
    /// The exact result is a finite number.
    pub(super) defined: bool,
    /// An infinity of the sign of the reference is right.
    pub(super) may_overflow: bool,
    /// A partial sum may be infinite, so that any infinity is right, and NaN, the difference of
    /// two.
    pub(super) sums_may_overflow: bool,
}

#[derive(Default)]
struct Tally {
    failed: u64,
    not_a_number: u64,
    unwritten: u64,
    undefined: u64,
    overflowed: u64,
    worst: Option<WorstElement>,
    first_failed: Option<WorstElement>,
    error_squares: f64,
    bound_squares: f64,
    reference_squares: f64,
}

impl Tally {
    fn add(
        &mut self,
        row: usize,
        column: usize,
        computed: f64,
        unwritten: bool,
        expected: Expectation,
    ) {
        let Expectation { reference, bound, defined, may_overflow, sums_may_overflow } = expected;
        let mut error = (computed - reference).abs();
        let same_sign = computed.is_sign_negative() == reference.is_sign_negative();
        let within = if unwritten {
            self.unwritten += 1;
            false
        } else if !defined {
            self.undefined += 1;
            false
        } else if sums_may_overflow && !computed.is_finite() {
            self.overflowed += 1;
            error = 0.0;
            true
        } else if computed.is_nan() {
            self.not_a_number += 1;
            false
        } else if computed.is_infinite() {
            let overflowed = may_overflow && same_sign;
            self.overflowed += u64::from(overflowed);
            error = if overflowed { 0.0 } else { f64::INFINITY };
            overflowed
        } else if reference.is_infinite() {
            error = f64::INFINITY;
            false
        } else {
            self.error_squares += error * error;
            self.bound_squares += bound * bound;
            self.reference_squares += reference * reference;
            error <= bound
        };
        let ratio = match (within, error == 0.0) {
            (true, true) => 0.0,
            (true, false) => error / bound,
            // Also where error or bound is NaN.
            (false, _) => {
                (error / bound).max(1.0).max(if error > bound { 0.0 } else { f64::INFINITY })
            }
        };
        let element = WorstElement { row, column, computed, reference, error, bound, ratio };
        if !within {
            self.failed += 1;
            self.first_failed.get_or_insert(element);
        }
        self.offer(element);
    }

    fn offer(&mut self, element: WorstElement) {
        let position = |e: &WorstElement| (e.row, e.column);
        let worse = match &self.worst {
            None => true,
            Some(worst) => {
                element.ratio > worst.ratio
                    || element.ratio == worst.ratio && position(&element) < position(worst)
            }
        };
        if worse {
            self.worst = Some(element);
        }
    }

    fn merge(mut self, other: Tally) -> Tally {
        self.failed += other.failed;
        self.not_a_number += other.not_a_number;
        self.unwritten += other.unwritten;
        self.undefined += other.undefined;
        self.overflowed += other.overflowed;
        self.error_squares += other.error_squares;
        self.bound_squares += other.bound_squares;
        self.reference_squares += other.reference_squares;
        self.first_failed = self.first_failed.or(other.first_failed);
        if let Some(worst) = other.worst {
            self.offer(worst);
        }
        self
    }
}

const ROWS_PER_BLOCK: usize = 16;

/// Compares every element of `d` with `expected(row, column)`.
pub(super) fn compare_elements(
    d: &HostMatrix,
    check: Check,
    expected: impl Fn(usize, usize) -> Expectation + Sync,
) -> Comparison {
    // Blocks of a fixed size, merged in order: the sums do not depend on the number of threads.
    let blocks: Vec<Tally> = (0..d.rows().div_ceil(ROWS_PER_BLOCK))
        .into_par_iter()
        .map(|block| {
            let mut tally = Tally::default();
            for row in block * ROWS_PER_BLOCK..d.rows().min((block + 1) * ROWS_PER_BLOCK) {
                for column in 0..d.columns() {
                    let computed = d.get(row, column).unwrap_or(f64::NAN);
                    let unwritten = computed.is_nan() && d.is_poison(row, column);
                    tally.add(row, column, computed, unwritten, expected(row, column));
                }
            }
            tally
        })
        .collect();
    let tally = blocks.into_iter().fold(Tally::default(), Tally::merge);

    let (error, bound) = (tally.error_squares.sqrt(), tally.bound_squares.sqrt());
    let reference = tally.reference_squares.sqrt();
    let relative = |norm: f64| if norm == 0.0 { 0.0 } else { norm / reference };
    Comparison {
        passed: tally.failed == 0 && error <= bound,
        check,
        elements: d.rows() as u64 * d.columns() as u64,
        failed: tally.failed,
        not_a_number: tally.not_a_number,
        unwritten: tally.unwritten,
        undefined: tally.undefined,
        overflowed: tally.overflowed,
        worst: tally.worst,
        first_failed: tally.first_failed,
        relative_frobenius: relative(error),
        frobenius_bound: relative(bound),
    }
}

/// JSON has no NaN and no infinity: they travel as strings.
mod any_float {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Special(Special),
    }

    #[derive(Serialize, Deserialize)]
    enum Special {
        #[serde(rename = "NaN")]
        NotANumber,
        #[serde(rename = "inf")]
        Infinity,
        #[serde(rename = "-inf")]
        MinusInfinity,
    }

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        let number = if value.is_finite() {
            Number::Finite(*value)
        } else if value.is_nan() {
            Number::Special(Special::NotANumber)
        } else if *value > 0.0 {
            Number::Special(Special::Infinity)
        } else {
            Number::Special(Special::MinusInfinity)
        };
        number.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(match Number::deserialize(deserializer)? {
            Number::Finite(value) => value,
            Number::Special(Special::NotANumber) => f64::NAN,
            Number::Special(Special::Infinity) => f64::INFINITY,
            Number::Special(Special::MinusInfinity) => f64::NEG_INFINITY,
        })
    }
}
