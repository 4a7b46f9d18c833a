//! The error bound derived in the module documentation. The sums of an element have a bound that
//! follows from how products are added up. The epilogue's graph is then evaluated on numbers that
//! carry their bounds ([`Bounded`]).

use pgemm_ir::Element;
use pgemm_kernels::{Activation, Arithmetic, Terms};
use serde::{Deserialize, Serialize};

use super::accumulation::{Accumulation, DOUBLE, NEAREST, RANDOM_SUM, gamma};
use super::format::Format;
use super::{NumericsError, compensated};

/// The arithmetic whose errors are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ErrorModel {
    /// How the products are added up.
    pub accumulation: Accumulation,
    /// The type of A in the product. If the reference was computed from a wider matrix, the
    /// rounding to this type is part of the bound.
    pub a: Element,
    /// The type of B in the product.
    pub b: Element,
}

impl ErrorModel {
    /// A and B of one type.
    pub const fn new(accumulation: Accumulation, input: Element) -> ErrorModel {
        ErrorModel { accumulation, a: input, b: input }
    }
}

/// A binary32 as a sum of terms.
#[derive(Clone, Copy, Default)]
struct Split {
    /// The part of a number that no term represents, relative to the number, and its least value.
    unit: f64,
    half_smallest: f64,
    /// Products of terms that are left out, in parts of the product.
    dropped: f64,
    /// The loss of scaled numbers due to larger numbers in their row or column, relative to the
    /// product of the sums of magnitudes.
    of_sums: f64,
}

impl Split {
    fn of((element, terms): (Element, Terms)) -> Split {
        let format = Format::of(element);
        let unit = format.unit_roundoff;
        let count = terms.count() as i32;
        let taken = terms.products();
        let all = (0..terms.count()).flat_map(|a| (0..terms.count()).map(move |b| (a, b)));
        let left_out = all.filter(|product| !taken.contains(product));
        let dropped: f64 = left_out.map(|(a, b)| unit.powi((a + b) as i32)).sum();
        let residue = unit.powi(count);
        // Three terms of 8 bits hold all of the 24.
        let exact = residue <= NEAREST;
        // Scales bring the largest of a row or column above 2^13.
        let scaled = element == Element::F16;
        Split {
            unit: if exact { 0.0 } else { residue },
            half_smallest: if scaled { 0.0 } else { format.half_smallest() },
            dropped: dropped * (1.0 - unit).powi(-4),
            of_sums: if scaled { 4.0 * format.half_smallest() / 8192.0 } else { 0.0 },
        }
    }
}

/// The element types of a product.
#[derive(Clone, Copy)]
pub(super) struct Types {
    /// The types of A, B and C, from which the reference was computed.
    pub(super) a: Element,
    pub(super) b: Element,
    pub(super) c: Element,
    /// The type of D.
    pub(super) output: Element,
}

/// The reference's values for a sum of products.
#[derive(Clone, Copy)]
pub(super) struct Magnitudes {
    /// `|Σ aᵢbᵢ|`.
    pub(super) sum: f64,
    /// `Σ |aᵢ||bᵢ|`.
    pub(super) products: f64,
    /// `Σ |aᵢ|`.
    pub(super) a_sum: f64,
    /// `Σ |bᵢ|`.
    pub(super) b_sum: f64,
}

/// A number of the reference, and the largest distance of the computed number from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    pub(super) value: f64,
    pub(super) error: f64,
    /// Whether all numbers that it follows from are finite.
    pub(super) defined: bool,
}

impl Bounded {
    pub(super) fn new(value: f64, error: f64) -> Bounded {
        Bounded { value, error, defined: value.is_finite() }
    }

    /// Whether the number and its negative leave others as they are when they are multiplied, or
    /// make them zero.
    fn multiplies_exactly(self) -> bool {
        self.error == 0.0 && matches!(self.value.abs(), 0.0 | 1.0)
    }

    /// What an error factor relative to the number allows. An infinite parameter of an activation
    /// makes an infinite number that has no error.
    fn part(self, factor: f64) -> f64 {
        factor * (self.value.abs().min(f64::MAX) + self.error)
    }
}

/// The arithmetic of an epilogue, with the errors of both the kernel and the reference.
pub(super) struct Rounding {
    /// The type in which the epilogue computes.
    working: Element,
    output: Element,
}

impl Rounding {
    /// A number of the launch, such as alpha, in the type in which the epilogue computes.
    pub(super) fn factor(&self, value: f64) -> Bounded {
        let rounded = if self.working == Element::F64 { value } else { f64::from(value as f32) };
        let error = (rounded - value).abs();
        Bounded::new(value, if error.is_finite() { error } else { 0.0 })
    }

    /// A result of an operation with the rounding of that result.
    fn rounded(&self, exact: Bounded) -> Bounded {
        let unit = Format::of(self.working).unit_roundoff;
        Bounded { error: exact.error + exact.part(unit + DOUBLE), ..exact }
    }
}

impl Arithmetic for Rounding {
    type Value = Bounded;

    fn multiply(&self, a: Bounded, b: Bounded) -> Bounded {
        let value = a.value * b.value;
        let error = a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error;
        let defined = a.defined && b.defined && value.is_finite();
        let product = Bounded { value, error, defined };
        if a.multiplies_exactly() || b.multiplies_exactly() {
            return product;
        }
        let rounded = self.rounded(product);
        Bounded { error: rounded.error + Format::of(self.working).half_smallest(), ..rounded }
    }

    fn multiply_add(&self, a: Bounded, b: Bounded, c: Bounded) -> Bounded {
        let product = self.multiply(a, b);
        let value = product.value + c.value;
        let defined = product.defined && c.defined && value.is_finite();
        self.rounded(Bounded { value, error: product.error + c.error, defined })
    }

    fn activate(&self, activation: Activation, x: Bounded, parameters: &[Bounded]) -> Bounded {
        let values: Vec<f64> = parameters.iter().map(|parameter| parameter.value).collect();
        let value = activation.reference(x.value, &values);
        let of_parameters = parameters.iter().map(|parameter| parameter.error).fold(0.0, f64::max);
        let [relative, absolute] = activation.error(self.output);
        let propagated = Bounded { value, error: activation.slope() * x.error, ..x };
        let own = propagated.part(relative) + absolute + of_parameters;
        // The functions of the host's library, and the rounding of their arguments, which matters
        // for small values.
        let of_reference = match activation.makes_fractions() {
            true => DOUBLE * (8.0 * value.abs() + 4.0),
            false => 0.0,
        };
        Bounded { error: propagated.error + own + of_reference, ..propagated }
    }
}

/// The largest errors of sums of k products.
struct SumErrors {
    /// Errors in parts of the sum's own magnitude, and of the magnitudes of products.
    of_sum: f64,
    of_products: f64,
    /// What the conversions of operands add, in parts of the magnitudes.
    conversions: Magnitudes,
    /// The same in parts of the product of the sums of A's and of B's magnitudes.
    of_sums: f64,
    constant: f64,
    /// What numbers below the normal ones lose.
    underflow: f64,
    /// The error of the reference's sum, in parts of the magnitudes of products.
    of_reference: f64,
}

impl SumErrors {
    fn accumulated(&self, m: Magnitudes) -> f64 {
        let of = &self.conversions;
        let converted = of.products * m.products
            + of.a_sum * m.a_sum
            + of.b_sum * m.b_sum
            + self.of_sums * m.a_sum * m.b_sum
            + self.constant;
        let added_up = self.of_products * (m.products + converted + self.underflow);
        converted + self.underflow + added_up
    }

    fn of(&self, m: Magnitudes) -> f64 {
        // No product of 0 and an infinite sum is a bound.
        let of_sum = if self.of_sum == 0.0 { 0.0 } else { self.of_sum * m.sum };
        self.accumulated(m) + of_sum + self.of_reference * m.products
    }
}

/// The largest error that each element may have.
pub(super) struct Bound {
    sums: SumErrors,
    epilogue: Rounding,
    /// The conversion of C to D's type: errors relative to the number and below normal numbers.
    of_c: [f64; 2],
    /// The rounding to D's type, of results in the range of a type that saturates.
    of_output: [f64; 2],
    most: f64,
    /// The error of the magnitudes, which are computed too.
    shortfall: f64,
    /// If sums are in f16: the value from which they become infinite, and the magnitude that
    /// partial sums may reach, in parts of the sum and of the magnitudes of products.
    range: Option<(f64, [f64; 2])>,
}

impl Bound {
    pub(super) fn new(model: ErrorModel, types: Types, k: usize) -> Result<Bound, NumericsError> {
        let (a_input, b_input) = (model.a, model.b);
        let split = match model.accumulation {
            Accumulation::Emulated(precision) => precision.terms().map(Split::of),
            _ => None,
        };
        let doubles = [a_input, b_input] == [Element::F64; 2];
        let integer = |input| matches!(input, Element::S8 | Element::U8);
        let integers = integer(a_input) && integer(b_input);
        for input in [a_input, b_input].into_iter().filter(|_| !doubles && !integers) {
            let known = match split {
                None => input.is_float() && input != Element::F64,
                Some(_) => input == Element::F32,
            };
            if !known {
                return Err(NumericsError::NoBound { input });
            }
        }
        let working = if doubles { Element::F64 } else { Element::F32 };
        let output = types.output;
        let narrow = output.is_packed() && !doubles;
        if output != working && !narrow {
            return Err(NumericsError::NoOutputBound { output });
        }
        let (of_sum, of_products) = match integers {
            // Exact, and then rounded.
            true => (NEAREST, 0.0),
            false => model.accumulation.factors(k, doubles)?,
        };

        // Rounding of the inputs: â = a(1 + δ) + ε. It is zero if the type holds every value.
        let conversion = |from: Element, to: Element| {
            let to = Format::of(to);
            let fits = Format::of(from).fits(to);
            if fits { [0.0; 2] } else { [to.unit_roundoff, to.half_smallest()] }
        };
        let conversions =
            [(types.a, a_input), (types.b, b_input)].map(|(from, to)| conversion(from, to));
        let [[a_unit, a_half], [b_unit, b_half]] = match split {
            None => conversions,
            Some(split) => [[split.unit, split.half_smallest]; 2],
        };
        let of_terms = split.unwrap_or_default();
        let in_f16 = matches!(
            model.accumulation,
            Accumulation::TensorCore16 | Accumulation::TensorCore16Random
        );
        let format = Format::of(if in_f16 { Element::F16 } else { working });
        let count = k as f64;
        // A sum of doubles is compensated. Its products may lose what no double holds.
        let (of_reference, lost) = match doubles {
            true => {
                let of_sum = compensated::relative_error(count);
                (gamma(1.0, DOUBLE) + of_sum * (1.0 + gamma(1.0, DOUBLE)), 4.0)
            }
            false => (gamma(count, DOUBLE), 0.0),
        };
        let sums = SumErrors {
            of_sum,
            of_products,
            conversions: Magnitudes {
                sum: 0.0,
                products: a_unit + b_unit + a_unit * b_unit + of_terms.dropped,
                a_sum: (1.0 + a_unit) * b_half,
                b_sum: (1.0 + b_unit) * a_half,
            },
            of_sums: of_terms.of_sums,
            constant: count * a_half * b_half,
            underflow: count * format.smallest * (1.0 + lost),
            of_reference,
        };

        // The rounding of results to D's type. The type in which they are computed has none, and
        // integers have one of half a unit.
        let own = Format::of(output);
        let of_output = match output {
            same if same == working => [0.0; 2],
            Element::S8 => [0.0, own.half_smallest()],
            _ => [own.unit_roundoff, own.half_smallest()],
        };
        let saturation = Format::saturation(output);
        let reached = match model.accumulation {
            Accumulation::TensorCore16Random => {
                [1.0, (RANDOM_SUM / count.sqrt().max(1.0)).min(1.0)]
            }
            _ => [0.0, 1.0],
        };
        Ok(Bound {
            sums,
            epilogue: Rounding { working, output },
            of_c: conversion(types.c, output),
            of_output,
            most: saturation.map_or(f64::INFINITY, |[least, largest]| largest.max(-least)),
            shortfall: 1.0 + gamma(2.0 * count + 32.0, DOUBLE),
            range: in_f16.then_some((format.largest, reached)),
        })
    }

    /// The arithmetic of the epilogue.
    pub(super) fn epilogue(&self) -> &Rounding {
        &self.epilogue
    }

    /// A sum of products.
    pub(super) fn sum(&self, value: f64, magnitudes: Magnitudes) -> Bounded {
        Bounded::new(value, self.sums.of(magnitudes) * self.shortfall)
    }

    /// An element of C, which is used in D's type.
    pub(super) fn c(&self, value: f64) -> Bounded {
        let [unit, half] = self.of_c;
        let error = if unit == 0.0 { 0.0 } else { unit * value.abs() };
        Bounded::new(value, error + half)
    }

    /// The largest distance of an element of D from the result of the reference.
    pub(super) fn of(&self, result: Bounded) -> f64 {
        let [unit, half] = self.of_output;
        // No product of 0 and an infinite result is a bound.
        let of_result = if unit == 0.0 { 0.0 } else { unit * result.value.abs().min(self.most) };
        (result.error * (1.0 + unit) + half + of_result) * self.shortfall
    }

    /// Whether partial sums have less range than binary32, so that they may be infinite.
    pub(super) fn has_narrow_sums(&self) -> bool {
        self.range.is_some()
    }

    /// Whether a partial sum may have been infinite, independent of the result.
    pub(super) fn sums_may_overflow(&self, m: Magnitudes) -> bool {
        self.range.is_some_and(|(largest, [of_sum, of_products])| {
            let reached = of_sum * m.sum + of_products * m.products + self.sums.accumulated(m);
            reached * self.shortfall >= largest
        })
    }
}
