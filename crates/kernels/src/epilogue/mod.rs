//! Epilogues as users describe them. An epilogue is applied to results on their way to D, in
//! addition to alpha and beta. This module is the description and the graph of values that follows
//! from it, and [`crate::store`] has the code.
//!
//! The text form of an epilogue lists its parts in the order of their application, such as
//! `bias_n|silu`. An activation may have parameters. Kernels take the values of parameters at
//! launch, as they take alpha. So a spec has an [`EpilogueShape`], which is an epilogue without
//! these values. The names of specs end with it: `…-c1x1-ebias_n.silu`.

mod activation;
mod graph;
mod shape;

use std::fmt;
use std::str::FromStr;

use pgemm_ir::Element;
use serde::{Deserialize, Serialize};

pub use self::activation::Activation;
pub use self::graph::{Arithmetic, Graph, Input, Numbers, Part};
pub use self::shape::{EpilogueShape, ParameterError, PartError};
use crate::dtype;

/// The dimension of D that a bias lies along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BiasAlong {
    /// Along n: element j is added to all of column j, as in linear layers.
    N,
    /// Along m: element i is added to all of row i.
    M,
}

impl BiasAlong {
    const ALL: [BiasAlong; 2] = [BiasAlong::N, BiasAlong::M];

    /// The name in texts of users.
    pub const fn name(self) -> &'static str {
        match self {
            BiasAlong::N => "bias_n",
            BiasAlong::M => "bias_m",
        }
    }

    /// The same dimension in the transposed D.
    pub const fn transposed(self) -> Self {
        match self {
            BiasAlong::N => BiasAlong::M,
            BiasAlong::M => BiasAlong::N,
        }
    }
}

/// Maximum number of parameters of an activation.
pub const MOST_PARAMETERS: usize = 2;

/// The computation of D from the sums: `D = activation(alpha·A·B + beta·C + bias)`, rounded once to
/// D's type. The default has no bias and no activation. An epilogue can be parsed from text:
///
/// ```
/// use pgemm_kernels::{Activation, BiasAlong, Epilogue};
/// let epilogue: Epilogue = "bias_n|silu".parse()?;
/// assert_eq!(epilogue.bias(), Some(BiasAlong::N));
/// assert_eq!(epilogue.activation(), Some(Activation::Silu));
/// # Ok::<(), pgemm_kernels::EpilogueError>(())
/// ```
///
/// An epilogue also has the values of its activation's parameters, exactly as they were given.
/// Kernels take them in the type in which they compute results ([`for_output`](Self::for_output)).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Epilogue {
    shape: EpilogueShape,
    /// The bits of the parameters, which can be compared and hashed. Unused entries are 0.
    bits: [u64; MOST_PARAMETERS],
    /// Whether the activation has parameters whose values were not given yet.
    lacks_parameters: bool,
}

/// A text that is not an epilogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no epilogue: part {place}, '{part}', {reason}. An epilogue is none, or bias_n or \
     bias_m, or one of {}, or both with | between them, the bias first: bias_n|silu",
    activation_forms()
)]
pub struct EpilogueError {
    /// The given text.
    pub text: String,
    /// The position of the wrong part, counted from 1.
    pub place: usize,
    /// The wrong part.
    pub part: String,
    /// The reason why it is wrong.
    pub reason: PartError,
}

/// All activations as a text: `relu, gelu and silu`.
fn activation_forms() -> String {
    let forms = Activation::ALL.map(Activation::form);
    match &forms[..] {
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    }
}

impl Epilogue {
    /// The epilogue without bias and activation.
    pub const NONE: Epilogue = Epilogue::of_shape(EpilogueShape::NONE);

    /// An epilogue of this shape. If its activation has parameters, their values have yet to be
    /// given.
    pub const fn of_shape(shape: EpilogueShape) -> Epilogue {
        let lacks_parameters = !shape.parameters().is_empty();
        Epilogue { shape, bits: [0; MOST_PARAMETERS], lacks_parameters }
    }

    /// Parses the text form, which is parts with `|` between them, `none`, or an empty text. The
    /// parameters of an activation follow its name in parentheses, with commas between them.
    ///
    /// # Errors
    /// The part that is wrong, and the reason.
    pub fn parse(text: &str) -> Result<Epilogue, EpilogueError> {
        if matches!(text.trim(), "" | shape::NONE) {
            return Ok(Epilogue::NONE);
        }
        let parts = (1..).zip(text.split('|').map(str::trim));
        parts.into_iter().try_fold(Epilogue::NONE, |epilogue, (place, part)| {
            epilogue.with_part(part).map_err(|reason| {
                let (text, part) = (text.to_owned(), part.to_owned());
                EpilogueError { text, place, part, reason }
            })
        })
    }

    fn with_part(self, part: &str) -> Result<Epilogue, PartError> {
        let (name, given) = match part.strip_suffix(')').and_then(|part| part.split_once('(')) {
            Some((name, given)) => (name.trim_end(), given.split(',').map(str::trim).collect()),
            None => (part, vec![]),
        };
        let shape = self.shape.with_part(name)?;
        let is_activation = shape.activation() != self.activation();
        if !is_activation {
            return if part == name {
                Ok(Epilogue { shape, ..self })
            } else {
                Err(PartError::Unknown)
            };
        }
        let number = |(place, text): (usize, &str)| {
            let wrong = || ParameterError::NoNumber { place: place + 1, text: text.to_owned() };
            text.parse::<f64>().map_err(|_| wrong())
        };
        let values = given.into_iter().enumerate().map(number).collect::<Result<Vec<_>, _>>()?;
        Ok(Epilogue::of_shape(shape).with_parameters(&values)?)
    }

    /// The same epilogue with a bias along this dimension.
    pub const fn with_bias(self, along: BiasAlong) -> Self {
        Epilogue { shape: self.shape.with_bias(along), ..self }
    }

    /// The same epilogue with an activation. If the activation has parameters,
    /// [`with_parameters`](Self::with_parameters) has to give their values.
    pub const fn with_activation(self, activation: Activation) -> Self {
        Epilogue::of_shape(self.shape.with_activation(activation))
    }

    /// The same epilogue with these parameters of its activation.
    ///
    /// # Errors
    /// There are too few or too many values, or the activation does not take them.
    pub fn with_parameters(self, values: &[f64]) -> Result<Self, ParameterError> {
        let names = self.shape.parameters();
        if values.len() != names.len() {
            return Err(ParameterError::Count { shape: self.shape, given: values.len() });
        }
        if let Some(activation) = self.activation().filter(|one| !one.allows(values)) {
            let asked = names.iter().zip(values).map(|(name, value)| format!("{name} = {value}"));
            let asked = asked.collect::<Vec<_>>().join(" and ");
            return Err(ParameterError::Values { activation, asked });
        }
        let mut bits = [0; MOST_PARAMETERS];
        for (bits, value) in bits.iter_mut().zip(values) {
            *bits = value.to_bits();
        }
        Ok(Epilogue { bits, lacks_parameters: false, ..self })
    }

    /// The part of the epilogue that changes a kernel's code. It lacks only the values of
    /// parameters.
    pub const fn shape(&self) -> EpilogueShape {
        self.shape
    }

    /// The dimension that the bias lies along. `None` if there is no bias.
    pub const fn bias(&self) -> Option<BiasAlong> {
        self.shape.bias()
    }

    /// The activation, if there is one.
    pub const fn activation(&self) -> Option<Activation> {
        self.shape.activation()
    }

    /// The parameters of the activation. Entries beyond the last parameter are 0.
    pub fn parameters(&self) -> [f64; MOST_PARAMETERS] {
        self.bits.map(f64::from_bits)
    }

    /// Whether the activation has parameters whose values were not given.
    pub const fn lacks_parameters(&self) -> bool {
        self.lacks_parameters
    }

    /// The graph by which D is computed.
    pub fn graph(&self) -> Graph {
        Graph::new(self.shape, 1, false)
    }

    /// Applies the activation to a number on the host. The number stays the same if there is no
    /// activation.
    pub fn activate(&self, x: f64) -> f64 {
        self.activation().map_or(x, |activation| activation.reference(x, &self.parameters()))
    }

    /// The same epilogue with its parameters rounded to the type that kernels with results of this
    /// type use. It is binary64 if results are binary64, and binary32 otherwise.
    pub fn for_output(self, output: Element) -> Self {
        let rounded = |bits| match dtype::compute_type(output) {
            Element::F64 => bits,
            _ => f64::from(f64::from_bits(bits) as f32).to_bits(),
        };
        Epilogue { bits: self.bits.map(rounded), ..self }
    }

    /// Whether the epilogue has neither bias nor activation.
    pub const fn is_none(&self) -> bool {
        self.shape.is_none()
    }

    /// Number of elements of the bias of an `m × n` D. It is 0 if there is no bias. The elements
    /// are contiguous.
    pub const fn bias_length(&self, m: usize, n: usize) -> usize {
        self.shape.bias_length(m, n)
    }

    /// Element type of the bias for results of this type. It is the type of the results, and bf16
    /// for 8-bit floats.
    pub const fn bias_type(output: Element) -> Element {
        dtype::bias_type(output)
    }

    /// The same epilogue for Dᵀ in place of D.
    pub fn transposed(self) -> Self {
        Epilogue { shape: self.shape.transposed(), ..self }
    }
}

impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.shape.parameters();
        let Some(activation) = self.activation().filter(|_| !names.is_empty()) else {
            return self.shape.fmt(f);
        };
        if self.lacks_parameters {
            return self.shape.fmt(f);
        }
        let values = self.parameters().map(|value| {
            let (plain, short) = (value.to_string(), format!("{value:e}"));
            if short.len() < plain.len() { short } else { plain }
        });
        let bias = self.bias().map(|bias| format!("{}|", bias.name())).unwrap_or_default();
        f.pad(&format!("{bias}{activation}({})", values[..names.len()].join(",")))
    }
}

impl FromStr for Epilogue {
    type Err = EpilogueError;

    fn from_str(text: &str) -> Result<Self, EpilogueError> {
        Epilogue::parse(text)
    }
}

impl TryFrom<String> for Epilogue {
    type Error = EpilogueError;

    fn try_from(text: String) -> Result<Self, EpilogueError> {
        Epilogue::parse(&text)
    }
}

impl From<Epilogue> for String {
    fn from(epilogue: Epilogue) -> String {
        epilogue.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_parse_back() {
        let biases = [None, Some(BiasAlong::N), Some(BiasAlong::M)];
        let activations = Activation::ALL.into_iter().map(Some).chain([None]);
        let all = activations.flat_map(|activation| biases.map(|bias| (bias, activation)));
        for (bias, activation) in all {
            let epilogue = activation.map_or(Epilogue::NONE, |activation| {
                let own = &[-0.75, 1e300][..activation.parameters().len()];
                Epilogue::NONE.with_activation(activation).with_parameters(own).unwrap()
            });
            let epilogue = bias.map_or(epilogue, |along| epilogue.with_bias(along));
            assert_eq!((epilogue.bias(), epilogue.activation()), (bias, activation));
            assert_eq!(epilogue.to_string().parse(), Ok(epilogue));
            assert_eq!(Epilogue::try_from(String::from(epilogue)), Ok(epilogue));
            assert_eq!(epilogue.transposed().transposed(), epilogue);
            let shape = epilogue.shape();
            match shape.suffix().strip_prefix("-e") {
                Some(parts) => assert_eq!(EpilogueShape::from_suffix(parts), Some(shape)),
                None => assert!(epilogue.is_none() && shape.suffix().is_empty()),
            }
            // An epilogue made of a shape lacks the values of parameters.
            let of_shape = Epilogue::of_shape(shape);
            assert_eq!(of_shape.lacks_parameters(), !shape.parameters().is_empty());
            assert_eq!(of_shape == epilogue, !of_shape.lacks_parameters());
        }
        assert_eq!(" bias_n | gelu ".parse::<Epilogue>().unwrap().to_string(), "bias_n|gelu");
        assert_eq!("".parse(), Ok(Epilogue::NONE));
    }

    #[test]
    fn what_is_no_epilogue_is_explained() {
        for (text, place, reason) in [
            ("bias_n|swish", 2, "'swish', is unknown"),
            ("bias", 1, "'bias', is unknown"),
            ("silu|bias_n", 2, "comes after an activation"),
            ("bias_n|bias_m", 2, "second bias"),
            ("relu|silu", 2, "second activation"),
            ("bias_n|", 2, "'', is unknown"),
            ("none|relu", 1, "'none', is unknown"),
            ("relu(3)", 1, "needs 0 parameters and has 1: write relu"),
            ("bias_n(3)|relu", 1, "'bias_n(3)', is unknown"),
            ("bias_n|relu(", 2, "'relu(', is unknown"),
            ("gelu()", 1, "'' as parameter 1: write a number"),
        ] {
            let error = text.parse::<Epilogue>().unwrap_err();
            assert_eq!(error.place, place, "{error}");
            let message = error.to_string();
            assert!(message.contains(reason) && message.contains("bias_n|silu"), "{message}");
        }
    }

    #[test]
    fn a_bias_is_as_long_as_the_dimension_that_it_lies_along() {
        let of = |text: &str| text.parse::<Epilogue>().unwrap();
        assert_eq!(of("bias_n|relu").bias_length(3, 5), 5);
        assert_eq!(of("bias_n").transposed().bias_length(3, 5), 3);
        assert_eq!(of("relu").bias_length(3, 5), 0);
        assert_eq!(Epilogue::bias_type(Element::E5m2), Element::Bf16);
        assert_eq!(Epilogue::bias_type(Element::F64), Element::F64);
    }
}
