//! The error bound derived in the module documentation, as coefficients of the reference's values
//! for an element.

use pgemm_ir::Element;
use pgemm_kernels::{Activation, MOST_PARAMETERS, Terms};
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

/// The parameters of a bound that do not depend on the element.
pub(super) struct Setting {
    pub(super) k: usize,
    pub(super) alpha: f64,
    pub(super) beta: f64,
    pub(super) a: Element,
    pub(super) b: Element,
    pub(super) c: Element,
    /// Whether a bias is added.
    pub(super) bias: bool,
    pub(super) activation: Option<Activation>,
    /// The parameters that the reference has of it.
    pub(super) parameters: [f64; MOST_PARAMETERS],
    pub(super) output: Element,
}

/// The reference's values for an element.
#[derive(Clone, Copy)]
pub(super) struct Magnitudes {
    /// `|v|`.
    pub(super) value: f64,
    /// `|act(v)|`, or the same.
    pub(super) result: f64,
    /// `Σ |aᵢ||bᵢ|`.
    pub(super) products: f64,
    /// `|c|`.
    pub(super) addend: f64,
    /// `|bias|`.
    pub(super) bias: f64,
    /// `Σ |aᵢ|`.
    pub(super) a_sum: f64,
    /// `Σ |bᵢ|`.
    pub(super) b_sum: f64,
}

/// A linear form in [`Magnitudes`].
#[derive(Clone, Copy, Default)]
struct Form {
    value: f64,
    result: f64,
    products: f64,
    addend: f64,
    bias: f64,
    a_sum: f64,
    b_sum: f64,
    /// Of the product of these two.
    of_sums: f64,
    constant: f64,
}

impl Form {
    fn plus(self, other: Form) -> Form {
        Form {
            value: self.value + other.value,
            result: self.result + other.result,
            products: self.products + other.products,
            addend: self.addend + other.addend,
            bias: self.bias + other.bias,
            a_sum: self.a_sum + other.a_sum,
            b_sum: self.b_sum + other.b_sum,
            of_sums: self.of_sums + other.of_sums,
            constant: self.constant + other.constant,
        }
    }

    fn times(self, factor: f64) -> Form {
        Form {
            value: self.value * factor,
            result: self.result * factor,
            products: self.products * factor,
            addend: self.addend * factor,
            bias: self.bias * factor,
            a_sum: self.a_sum * factor,
            b_sum: self.b_sum * factor,
            of_sums: self.of_sums * factor,
            constant: self.constant * factor,
        }
    }

    fn of(self, m: Magnitudes) -> f64 {
        self.value * m.value
            + self.result * m.result
            + self.products * m.products
            + self.addend * m.addend
            + self.bias * m.bias
            + self.a_sum * m.a_sum
            + self.b_sum * m.b_sum
            + self.of_sums * m.a_sum * m.b_sum
            + self.constant
    }
}

/// The largest error that each element may have.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// The bound without the rounding of the exact result to D's type.
    form: Form,
    /// The error of that rounding, relative to the result, or to the largest number of a saturating
    /// type.
    of_result: f64,
    most: f64,
    /// The magnitude that partial sums may reach, and the value from which they become infinite.
    /// `None` if they have at least the range of binary32.
    sums: Option<(Form, f64)>,
}

impl Bound {
    pub(super) fn new(model: ErrorModel, setting: &Setting) -> Result<Bound, NumericsError> {
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
        let narrow = setting.output.is_packed() && !doubles;
        if setting.output != working && !narrow {
            return Err(NumericsError::NoOutputBound { output: setting.output });
        }
        let k = setting.k as f64;
        let (of_sum, of_products) = match integers {
            // Exact, and then rounded.
            true => (NEAREST, 0.0),
            false => model.accumulation.factors(setting.k, doubles)?,
        };
        let single = Format::of(working);
        let (alpha, beta) = (setting.alpha.abs(), setting.beta.abs());

        // Rounding of the inputs: â = a(1 + δ) + ε. It is zero if the type holds every value.
        let conversion = |from: Element, to: Element| {
            let to = Format::of(to);
            if Format::of(from).fits(to) {
                (0.0, 0.0)
            } else {
                (to.unit_roundoff, to.half_smallest())
            }
        };
        let conversions =
            [(setting.a, a_input), (setting.b, b_input)].map(|(from, to)| conversion(from, to));
        let [(a_unit, a_half), (b_unit, b_half)] = match split {
            None => conversions,
            Some(split) => [(split.unit, split.half_smallest); 2],
        };
        let of_terms = split.unwrap_or_default();
        let converted = Form {
            products: a_unit + b_unit + a_unit * b_unit + of_terms.dropped,
            of_sums: of_terms.of_sums,
            a_sum: (1.0 + a_unit) * b_half,
            b_sum: (1.0 + b_unit) * a_half,
            constant: k * a_half * b_half,
            ..Form::default()
        };

        // Accumulation.
        let products = Form { products: 1.0, ..Form::default() };
        let in_f16 = matches!(
            model.accumulation,
            Accumulation::TensorCore16 | Accumulation::TensorCore16Random
        );
        let sums = Format::of(if in_f16 { Element::F16 } else { working });
        let underflow = Form { constant: k * sums.smallest, ..Form::default() };
        let rounded = products.plus(converted).plus(underflow).times(of_products);
        let accumulated = converted.plus(underflow).plus(rounded);

        // Epilogue. |alpha·s| is at most |v| + |beta·c| + |bias|.
        let rounds = |factor: f64| if factor == 0.0 || factor == 1.0 { 0.0 } else { 1.0 };
        // The rounding of alpha and beta themselves.
        let conversions = |factor: f64| {
            f64::from(!doubles && f64::from(factor as f32) != factor && !factor.is_nan())
        };
        let bias = f64::from(setting.bias);
        let addition = bias + if beta == 0.0 { 0.0 } else { 1.0 };
        let product_gamma =
            gamma(rounds(alpha) + conversions(alpha) + addition, single.unit_roundoff);
        let addend_gamma = gamma(rounds(beta) + conversions(beta) + addition, single.unit_roundoff);
        let scaled_sum = Form { value: 1.0, addend: beta, bias, ..Form::default() };
        // C is used in D's type.
        let (c_unit, c_half) = conversion(setting.c, setting.output);
        let addend = Form { addend: 1.0, ..Form::default() };
        let addend_converted = Form { addend: c_unit, constant: c_half, ..Form::default() };
        let scaled = accumulated.times(alpha).plus(scaled_sum.times(of_sum));
        let epilogue = scaled
            .plus(scaled_sum.plus(scaled).times(product_gamma))
            .plus(addend_converted.times(beta))
            .plus(addend.plus(addend_converted).times(beta * addend_gamma))
            .plus(Form {
                bias: bias * gamma(addition, single.unit_roundoff),
                constant: (rounds(alpha) + rounds(beta)) * single.half_smallest(),
                ..Form::default()
            });

        // The activation: its amplification of earlier errors, and its own error.
        let slope = setting.activation.map_or(1.0, Activation::slope);
        let [relative, absolute] =
            setting.activation.map_or([0.0; 2], |activation| activation.error(setting.output));
        let epilogue = epilogue.times(slope * (1.0 + relative));
        // What its parameters were rounded by.
        let rounding = |parameter: &f64| match f64::from(*parameter as f32) {
            rounded if doubles || rounded == *parameter => 0.0,
            rounded => (rounded - parameter).abs(),
        };
        let of_parameters = setting.parameters.iter().map(rounding).fold(0.0, f64::max);
        let constant = absolute + of_parameters;
        let epilogue = epilogue.plus(Form { result: relative, constant, ..Form::default() });

        // Output: the rounding of the epilogue's error, and of |act(v)| within D's range.
        let output = Format::of(setting.output);
        let (unit, half) = match setting.output {
            same if same == working => (0.0, 0.0),
            Element::S8 => (0.0, output.half_smallest()),
            _ => (output.unit_roundoff, output.half_smallest()),
        };
        let total =
            epilogue.plus(epilogue.times(unit)).plus(Form { constant: half, ..Form::default() });
        let saturation = Format::saturation(setting.output);
        let most = saturation.map_or(f64::INFINITY, |[least, largest]| largest.max(-least));

        // The reference: k products and additions, and up to three operations with alpha and beta.
        // Its magnitudes are computed too, so they may be short by the same factor, and |v| by its
        // error. Of doubles only the last rounding of the compensated sum is as large.
        let double = DOUBLE;
        let of_reference = if doubles {
            gamma(5.0, double) + compensated::relative_error(k) * (1.0 + gamma(5.0, double))
        } else {
            gamma(k + 4.0, double)
        };
        let reference =
            Form { products: alpha, addend: beta, bias, ..Form::default() }.times(of_reference);
        let lost = if doubles { 4.0 * k * alpha * single.smallest } else { 0.0 };
        let reference = reference.plus(Form { constant: lost, ..Form::default() }).times(slope);
        let reference = match setting.activation {
            // The rounding of its argument matters for small values.
            Some(activation) if activation.makes_fractions() => {
                reference.plus(Form { result: 8.0, constant: 4.0, ..Form::default() }.times(double))
            }
            _ => reference,
        };
        let value_shortfall = reference.times(total.value + total.result + unit);
        let rounded = 1.0 + gamma(2.0 * k + 8.0, double);
        let form = total.plus(value_shortfall).plus(reference).times(rounded);
        let reached = match model.accumulation {
            // Those of the sum itself, which is (v - beta·c)/alpha.
            Accumulation::TensorCore16Random if alpha > 0.0 => Form {
                products: (RANDOM_SUM / k.sqrt().max(1.0)).min(1.0),
                ..scaled_sum.times(1.0 / alpha)
            },
            _ => products,
        };
        let reached = reached.plus(accumulated).times(rounded);
        let sums = in_f16.then_some((reached, sums.largest));
        Ok(Bound { form, of_result: unit * rounded, most, sums })
    }

    /// Whether a partial sum may have been infinite, independent of the result.
    pub(super) fn sums_may_overflow(&self, magnitudes: Magnitudes) -> bool {
        self.sums.is_some_and(|(reached, largest)| reached.of(magnitudes) >= largest)
    }

    pub(super) fn of(&self, magnitudes: Magnitudes) -> f64 {
        // No product of 0 and an infinite result is a bound.
        let of_result = match self.of_result {
            0.0 => 0.0,
            unit => unit * magnitudes.result.min(self.most),
        };
        self.form.of(magnitudes) + of_result
    }
}
