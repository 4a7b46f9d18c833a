//! The table of activations. Each row has a function's name, its parameters, its code in binary32
//! and binary64, its reference on the host, and its error. A function is added by a variant and a
//! row here. The command, the Python module, the C library and the reference of the tests read this
//! table.
//!
//! gelu is `max(x, 0) − |x|·Q(|x|)` with Q = 1 − Φ, and Q is two to the power of a polynomial. That
//! takes one `ex2` for each element and has no cancellation below zero. A relative error of Q is an
//! absolute error of the polynomial. silu takes an `ex2` and a reciprocal. In binary64, Q is
//! exp(−x²/2) times a rational function of |x|, and exp is a polynomial times a power of two.
//!
//! The polynomials in binary32 are minimax fits of −log₂ Q by Lawson's iteration. They cover [0, 5]
//! (for results of up to 16 bits) and [0, 6.5]. Their weight allows the error of the row. Beyond
//! these ranges they only have to lead to zero.

use std::f64::consts::FRAC_1_SQRT_2;
use std::fmt;

use pgemm_ir::{Element, Val, ty};

/// A function that an epilogue applies to each result. Code outside of this module reads the table
/// and does not match on the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activation {
    /// max(x, 0). NaN stays NaN.
    Relu,
    /// x·Φ(x) with the distribution function Φ of N(0, 1). This is the exact form, by the error
    /// function.
    Gelu,
    /// x / (1 + exp(−x)), also called swish.
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + exp(−x)), the logistic function.
    Sigmoid,
    /// x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2. This is gelu with an approximation of Φ.
    GeluTanh,
    /// min(max(x, lower), upper) with two parameters. NaN stays NaN.
    Clamp,
}

/// Code that computes an activation of x with parameters, for results of a type.
type Code<T> = for<'k> fn(Val<'k, T>, &[Val<'k, T>], Element) -> Val<'k, T>;

/// One row of the table.
struct Row {
    /// The name in texts of users.
    name: &'static str,
    /// The formula, in one line for the help of the command.
    formula: &'static str,
    /// The parameters.
    parameter_rules: ParameterRules,
    /// The code in binary32.
    binary32: Code<ty::F32>,
    /// The code in binary64.
    binary64: Code<ty::F64>,
    /// The value in binary64 on the host, for any x except NaN.
    reference: fn(f64, &[f64]) -> f64,
    /// The limit towards −∞. `None` if `reference` returns it.
    below: Option<f64>,
    /// Whether an integer can have a fractional result, with parameters that are integers.
    makes_fractions: bool,
    /// Whether the code needs registers for exponentials and polynomials.
    is_long: bool,
    /// The largest relative error of the code, and the absolute error on top of it. They are given
    /// for results in 16 or fewer bits, in binary32 and in binary64.
    errors: [[f64; 2]; 3],
    /// The steepest slope. An error of the argument grows at most by this factor. Errors of
    /// parameters must not grow.
    slope: f64,
}

/// The parameters of an activation. They are numbers of the launch, so that one kernel computes the
/// function for any values.
struct ParameterRules {
    /// The names of the parameters, at most [`MOST_PARAMETERS`](super::MOST_PARAMETERS).
    names: &'static [&'static str],
    /// The advice to users if values are not allowed.
    rule: &'static str,
    /// Whether values are allowed.
    allows: fn(&[f64]) -> bool,
}

/// No parameters, for functions of x alone.
const NO_PARAMETERS: ParameterRules = ParameterRules { names: &[], rule: "", allows: |_| true };

/// 2 to the power of −`bits`.
const fn parts(bits: u32) -> f64 {
    1.0 / (1u64 << bits) as f64
}

const RELU: Row = Row {
    name: "relu",
    formula: "max(x, 0)",
    parameter_rules: NO_PARAMETERS,
    binary32: |x, _, _| x.max_nan(0.0),
    binary64: |x, _, _| x.lt(0.0).select(0.0, x),
    reference: |x, _| x.max(0.0),
    below: None,
    makes_fractions: false,
    is_long: false,
    errors: [[0.0; 2]; 3],
    slope: 1.0,
};

const GELU: Row = Row {
    name: "gelu",
    formula: "x·Φ(x), by the error function",
    parameter_rules: NO_PARAMETERS,
    binary32: |x, _, output| gelu(x, if output.bytes() <= 2 { &NARROW } else { &WIDE }),
    binary64: |x, _, _| gelu_64(x),
    reference: |x, _| x * (0.5 * libm::erfc(-x * FRAC_1_SQRT_2)),
    below: Some(-0.0),
    makes_fractions: true,
    is_long: true,
    errors: [[parts(14), 1.5e-9], [parts(19), 1e-10], [parts(42), 1e-300]],
    // The slope is Φ(√2) + √2·φ(√2), at √2.
    slope: 1.129,
};

const SILU: Row = Row {
    name: "silu",
    formula: "x / (1 + exp(−x))",
    parameter_rules: NO_PARAMETERS,
    binary32: |x, _, _| {
        let x = x.max_nan(SILU_ENDS);
        let decay = (x * -std::f32::consts::LOG2_E).exp2();
        x * (decay + 1.0).reciprocal()
    },
    binary64: |x, _, _| {
        let decay = exponential(-x.abs().min(SILU_ENDS_64));
        let value = x * x.lt(0.0).select(decay, 1.0) / (decay + 1.0);
        x.lt(-SILU_ENDS_64).select(-0.0, value)
    },
    reference: |x, _| x / (1.0 + (-x).exp()),
    below: Some(-0.0),
    makes_fractions: true,
    is_long: true,
    errors: [[parts(19), 1e-11], [parts(19), 1e-11], [parts(42), 1e-300]],
    // The steepest slope is near 2.4.
    slope: 1.1,
};

const TANH: Row = Row {
    name: "tanh",
    formula: "the hyperbolic tangent",
    parameter_rules: NO_PARAMETERS,
    binary32: |x, _, _| {
        let magnitude = x.abs();
        let decay = (magnitude * (-2.0 * std::f32::consts::LOG2_E)).exp2();
        let large = (1.0 - decay) * (decay + 1.0).reciprocal();
        let square = x * x;
        let [above, below] = TANH_PADE.map(|[first, second, third, fourth]| {
            let [first, second, third, fourth] = [first, second, third, fourth].map(|c| c as f32);
            square.mul_add(first, second).mul_add(square, third).mul_add(square, fourth)
        });
        let small = x * (above * below.reciprocal());
        magnitude.lt(1.0).select(small, x.lt(0.0).select(-large, large))
    },
    binary64: |x, _, _| {
        let magnitude = x.abs();
        let decay = exponential(magnitude.min(TANH_ENDS_64) * -2.0);
        let large = (1.0 - decay) / (decay + 1.0);
        let square = x * x;
        let [above, below] = TANH_PADE.map(|[first, second, third, fourth]| {
            square.mul_add(first, second).mul_add(square, third).mul_add(square, fourth)
        });
        let small = x * (above / below);
        let value = magnitude.lt(0.5).select(small, x.lt(0.0).select(-large, large));
        x.eq(x).select(value, x)
    },
    reference: |x, _| x.tanh(),
    below: None,
    makes_fractions: true,
    is_long: true,
    errors: [[parts(20), 0.0], [parts(20), 0.0], [parts(42), 1e-300]],
    slope: 1.0,
};

const SIGMOID: Row = Row {
    name: "sigmoid",
    formula: "1 / (1 + exp(−x))",
    parameter_rules: NO_PARAMETERS,
    binary32: |x, _, _| ((x * -std::f32::consts::LOG2_E).exp2() + 1.0).reciprocal(),
    binary64: |x, _, _| {
        let decay = exponential(-x.abs().min(SILU_ENDS_64));
        let value = x.lt(0.0).select(decay, 1.0) / (decay + 1.0);
        x.eq(x).select(value, x)
    },
    reference: |x, _| 1.0 / (1.0 + (-x).exp()),
    below: None,
    makes_fractions: true,
    is_long: true,
    errors: [[parts(19), 1e-11], [parts(19), 1e-11], [parts(42), 1e-300]],
    slope: 0.25,
};

/// This function is x times the sigmoid of 2·√(2/π)·(x + 0.044715·x³).
const GELU_TANH: Row = Row {
    name: "gelu_tanh",
    formula: "x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2",
    parameter_rules: NO_PARAMETERS,
    binary32: |x, _, _| {
        let x = x.max_nan(-GELU_ENDS);
        let scale = -2.0 * GELU_TANH_SCALE * std::f64::consts::LOG2_E;
        let inner = (x * x).mul_add((scale * GELU_TANH_CUBE) as f32, scale as f32);
        x * ((x * inner).exp2() + 1.0).reciprocal()
    },
    binary64: |x, _, _| {
        let inner = (x * x).mul_add(GELU_TANH_CUBE, 1.0) * (2.0 * GELU_TANH_SCALE);
        let decay = exponential(-(x * inner).abs().min(SILU_ENDS_64));
        let value = x * x.lt(0.0).select(decay, 1.0) / (decay + 1.0);
        x.lt(-GELU_ENDS_64).select(-0.0, value)
    },
    reference: |x, _| x / (1.0 + (-2.0 * GELU_TANH_SCALE * (x + GELU_TANH_CUBE * x * x * x)).exp()),
    below: Some(-0.0),
    makes_fractions: true,
    is_long: true,
    errors: [[parts(17), 1e-11], [parts(17), 1e-11], [parts(40), 1e-290]],
    // The steepest slope is near √2, as for gelu.
    slope: 1.13,
};

/// The minimum of two numbers is computed as minus the maximum of their negatives.
const CLAMP: Row = Row {
    name: "clamp",
    formula: "min(max(x, lower), upper)",
    parameter_rules: ParameterRules {
        names: &["lower", "upper"],
        rule: "lower must be at most upper, and neither NaN: write the smaller one first, and -inf or inf for none",
        allows: |bounds| bounds[0] <= bounds[1],
    },
    binary32: |x, bounds, _| -(-x.max_nan(bounds[0])).max_nan(-bounds[1]),
    binary64: |x, bounds, _| {
        let raised = x.lt(bounds[0]).select(bounds[0], x);
        bounds[1].lt(raised).select(bounds[1], raised)
    },
    reference: |x, bounds| x.max(bounds[0]).min(bounds[1]),
    below: None,
    makes_fractions: false,
    is_long: false,
    errors: [[0.0; 2]; 3],
    slope: 1.0,
};

/// √(2/π), and the factor of x³ in gelu by tanh (Hendrycks and Gimpel, "Gaussian Error Linear
/// Units", 2016).
const GELU_TANH_SCALE: f64 = 0.797_884_560_802_865_4;
const GELU_TANH_CUBE: f64 = 0.044_715;

/// Numerator and denominator of tanh(x) / x in falling powers of x². They are the continued
/// fraction of tanh up to its seventh level. The relative error is below 2⁻³⁷ up to 1, and below
/// 2⁻⁵¹ up to 1/2.
const TANH_PADE: [[f64; 4]; 2] =
    [[1.0, 378.0, 17_325.0, 135_135.0], [28.0, 3_150.0, 62_370.0, 135_135.0]];

/// From this number on, tanh is ±1 in binary64.
const TANH_ENDS_64: f64 = 20.0;

impl Activation {
    /// All activations.
    pub const ALL: [Activation; 7] = [
        Activation::Relu,
        Activation::Gelu,
        Activation::Silu,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::GeluTanh,
        Activation::Clamp,
    ];

    const fn row(self) -> &'static Row {
        match self {
            Activation::Relu => &RELU,
            Activation::Gelu => &GELU,
            Activation::Silu => &SILU,
            Activation::Tanh => &TANH,
            Activation::Sigmoid => &SIGMOID,
            Activation::GeluTanh => &GELU_TANH,
            Activation::Clamp => &CLAMP,
        }
    }

    /// The name in texts of users.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The formula, in one line.
    pub const fn formula(self) -> &'static str {
        self.row().formula
    }

    /// The names of the parameters.
    pub const fn parameters(self) -> &'static [&'static str] {
        self.row().parameter_rules.names
    }

    /// The form in texts of users, with parameters: `name(first,second)`.
    pub fn form(self) -> String {
        match self.parameters() {
            [] => self.name().to_owned(),
            names => format!("{}({})", self.name(), names.join(",")),
        }
    }

    /// Whether the activation takes these values. There must be one value for each parameter.
    pub(super) fn allows(self, values: &[f64]) -> bool {
        (self.row().parameter_rules.allows)(values)
    }

    /// The advice to users if values are not allowed.
    pub(super) const fn rule(self) -> &'static str {
        self.row().parameter_rules.rule
    }

    /// The value on the host, with these parameters. NaN stays NaN. A zero keeps its sign if the
    /// function's zero does.
    pub fn reference(self, x: f64, parameters: &[f64]) -> f64 {
        match self.row().below {
            _ if x.is_nan() => x,
            Some(limit) if x == f64::NEG_INFINITY => limit,
            _ => (self.row().reference)(x, parameters),
        }
    }

    /// The largest error of the code in kernels whose results have this type, before rounding. It
    /// consists of a relative error, and an absolute error on top.
    pub const fn error(self, output: Element) -> [f64; 2] {
        let errors = &self.row().errors;
        match output.bytes() {
            8 => errors[2],
            4 => errors[1],
            _ => errors[0],
        }
    }

    /// The steepest slope. An error of the argument grows at most by this factor.
    pub const fn slope(self) -> f64 {
        self.row().slope
    }

    /// Whether an integer can have a fractional result, with parameters that are integers.
    pub const fn makes_fractions(self) -> bool {
        self.row().makes_fractions
    }

    /// Whether the code takes instructions and registers for exponentials and polynomials, instead
    /// of a comparison.
    pub const fn is_long(self) -> bool {
        self.row().is_long
    }

    /// Writes the code in binary64, with these parameters.
    pub(crate) fn in_binary64<'k>(
        self,
        x: Val<'k, ty::F64>,
        parameters: &[Val<'k, ty::F64>],
    ) -> Val<'k, ty::F64> {
        (self.row().binary64)(x, parameters, Element::F64)
    }

    /// Writes the code in binary32, with these parameters, for results of this type. NaN stays NaN.
    pub(crate) fn in_binary32<'k>(
        self,
        x: Val<'k, ty::F32>,
        parameters: &[Val<'k, ty::F32>],
        output: Element,
    ) -> Val<'k, ty::F32> {
        (self.row().binary32)(x, parameters, output)
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Coefficients of −log₂ Q in rising powers of |x|, for results of 16 or fewer bits and for others.
const NARROW: [f32; 7] = [
    1.000_059_7,
    1.150_227_5,
    0.461_235_9,
    0.051_123_053,
    -0.007_129_947_7,
    0.000_591_164_34,
    -2.105_986e-5,
];
const WIDE: [f32; 11] = [
    0.999_999_94,
    1.151_106_1,
    0.459_207_74,
    0.052_474_264,
    -0.006_985_069,
    2.140_766_6e-5,
    0.000_274_788,
    -7.685_171e-5,
    1.138_841_3e-5,
    -9.354_206e-7,
    3.346_749e-8,
];

/// From this number on, |x|·Q(|x|) is zero in binary32. Subnormal numbers count as zero.
const GELU_ENDS: f32 = 16.0;

/// Below this number, 1 / (1 + exp(−x)) is zero in the same sense. Its product with x would be NaN
/// at −∞.
const SILU_ENDS: f32 = -128.0;

/// (|x| + 4)·Q(|x|)·exp(x²/2) as a polynomial of (|x| − 4) / (|x| + 4). It is a Chebyshev series,
/// written in rising powers.
const UPPER_64: [f64; 23] = [
    0.755_285_130_415_751_4,
    -0.607_896_641_971_893,
    0.387_137_400_742_226_6,
    -0.186_521_857_959_578_7,
    0.060_396_574_890_360_92,
    -0.007_540_188_968_891_619,
    -0.003_479_692_356_651_502_5,
    0.001_630_818_485_473_585_6,
    0.000_133_344_209_160_147_67,
    -0.000_231_095_137_787_289_16,
    -1.907_676_030_718_460_6e-06,
    3.514_560_235_904_388e-05,
    7.146_021_531_247_902e-07,
    -5.922_893_777_540_554e-06,
    -6.249_551_077_526_777e-07,
    1.026_984_070_141_327_3e-06,
    2.647_337_281_931_606e-07,
    -1.622_316_320_838_094_4e-07,
    -7.878_360_342_318_211e-08,
    1.956_960_893_925_816_3e-08,
    1.606_738_695_568_381_7e-08,
    -1.277_235_143_154_241_6e-09,
    -1.688_657_696_368_032e-09,
];
const SHIFT_64: f64 = 4.0;

/// The corresponding limit of |x| in binary64. exp is not computed beyond it.
const GELU_ENDS_64: f64 = 37.5;
const SILU_ENDS_64: f64 = 700.0;

/// 1.5·2⁵². A sum with this number is rounded to an integer, which is then in its lowest bits.
const ROUNDS_64: f64 = 6_755_399_441_055_744.0;

/// ln 2 in two parts. The first has 32 bits, so that its product with a small integer is exact.
const LN_2_64: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];

/// Number of terms of the series of exp. Its error on ±ln 2 / 2 is below 2⁻⁵⁶.
const TERMS_64: u32 = 14;

/// exp(x) for x from −704 to 0.
fn exponential(x: Val<'_, ty::F64>) -> Val<'_, ty::F64> {
    let shifted = x.mul_add(std::f64::consts::LOG2_E, ROUNDS_64);
    let power = shifted - ROUNDS_64;
    let remainder = power.mul_add(-LN_2_64[0], x);
    let remainder = power.mul_add(-LN_2_64[1], remainder);
    let factorial = |term: u32| (1..=term).map(f64::from).product::<f64>();
    let last = x.constant(1.0 / factorial(TERMS_64 - 1));
    let series = (0..TERMS_64 - 1).rev();
    let series = series.fold(last, |sum, term| sum.mul_add(remainder, 1.0 / factorial(term)));
    // The shift moves the integer to the exponent's field. Higher bits fall off.
    (series.bits() + (shifted.bits() << 52)).as_f64()
}

fn gelu<'k>(x: Val<'k, ty::F32>, exponent: &[f32]) -> Val<'k, ty::F32> {
    let magnitude = x.abs().min(GELU_ENDS);
    let mut coefficients = exponent.iter().rev().map(|coefficient| -coefficient);
    let (first, second) = (coefficients.next().unwrap_or(0.0), coefficients.next().unwrap_or(0.0));
    let start = magnitude.mul_add(first, second);
    let power = coefficients.fold(start, |sum, coefficient| sum.mul_add(magnitude, coefficient));
    // The zero is −0, so that a zero keeps its sign.
    (-magnitude).mul_add(power.exp2(), x.max_nan(-0.0))
}

fn gelu_64(x: Val<'_, ty::F64>) -> Val<'_, ty::F64> {
    let negative = x.lt(0.0);
    let magnitude = x.abs().min(GELU_ENDS_64);
    let inverse = 1.0 / (magnitude + SHIFT_64);
    let place = inverse.mul_add(-2.0 * SHIFT_64, 1.0);
    let (last, others) = (UPPER_64[UPPER_64.len() - 1], &UPPER_64[..UPPER_64.len() - 1]);
    let last = x.constant(last);
    let ratio = others.iter().rev().fold(last, |sum, &part| sum.mul_add(place, part));
    let density = exponential(magnitude * magnitude * -0.5);
    let upper = magnitude * density * ratio * inverse;
    let upper = magnitude.ge(GELU_ENDS_64).select(0.0, upper);
    negative.select(-0.0, x) - upper
}

#[cfg(test)]
mod tests;
