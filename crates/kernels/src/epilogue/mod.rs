//! Epilogues as users ask for them: what happens to results on their way to D beside alpha and
//! beta. This module is the description; [`crate::store`] has the code.
//!
//! The text form of an epilogue is its parts in the order of their application, `bias_n|silu`.
//! Names of specs have them at the end: `…-c1x1-ebias_n.silu`.

mod activation;

use std::fmt;
use std::str::FromStr;

use pgemm_ir::Element;
use serde::{Deserialize, Serialize};

pub use self::activation::Activation;
use crate::dtype;

/// The dimension of D that a bias lies along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BiasAlong {
    /// Along n: element j is added to all of column j, as linear layers do it.
    N,
    /// Along m: element i is added to all of row i.
    M,
}

impl BiasAlong {
    const ALL: [BiasAlong; 2] = [BiasAlong::N, BiasAlong::M];

    /// How users write it.
    pub const fn name(self) -> &'static str {
        match self {
            BiasAlong::N => "bias_n",
            BiasAlong::M => "bias_m",
        }
    }

    /// The dimension in the transposed D.
    pub const fn transposed(self) -> Self {
        match self {
            BiasAlong::N => BiasAlong::M,
            BiasAlong::M => BiasAlong::N,
        }
    }
}

/// What happens to results on their way to D: `D = activation(alpha·A·B + beta·C + bias)`, rounded
/// once to D's type. By default nothing. It can be made from text:
///
/// ```
/// use pgemm_kernels::{Activation, BiasAlong, Epilogue};
/// let epilogue: Epilogue = "bias_n|silu".parse()?;
/// assert_eq!(epilogue.bias(), Some(BiasAlong::N));
/// assert_eq!(epilogue.activation(), Some(Activation::Silu));
/// # Ok::<(), pgemm_kernels::EpilogueError>(())
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Epilogue {
    bias: Option<BiasAlong>,
    activation: Option<Activation>,
}

/// A text that is no epilogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no epilogue: part {place}, '{part}', {reason}. An epilogue is none, or bias_n or \
     bias_m, or one of {}, or both with | between them, the bias first: bias_n|silu",
    activation_names()
)]
pub struct EpilogueError {
    /// What was given.
    pub text: String,
    /// Which part is wrong, from 1.
    pub place: usize,
    /// The part.
    pub part: String,
    /// Why it is wrong.
    pub reason: &'static str,
}

/// The names of all activations: `relu, gelu and silu`.
fn activation_names() -> String {
    let names = Activation::ALL.map(Activation::name);
    match &names[..] {
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    }
}

/// The text of an epilogue that does nothing.
const NONE: &str = "none";

impl Epilogue {
    /// An epilogue that does nothing.
    pub const NONE: Epilogue = Epilogue { bias: None, activation: None };

    /// Reads the text form: parts with `|` between them, or `none`, or nothing at all.
    ///
    /// # Errors
    /// Which part is wrong, and why.
    pub fn parse(text: &str) -> Result<Epilogue, EpilogueError> {
        if matches!(text.trim(), "" | NONE) {
            return Ok(Epilogue::NONE);
        }
        Epilogue::of_parts(text, '|')
    }

    fn of_parts(text: &str, separator: char) -> Result<Epilogue, EpilogueError> {
        let mut epilogue = Epilogue::NONE;
        for (place, part) in (1..).zip(text.split(separator).map(str::trim)) {
            let refuse = |reason| {
                let (text, part) = (text.to_owned(), part.to_owned());
                Err(EpilogueError { text, place, part, reason })
            };
            let bias = BiasAlong::ALL.into_iter().find(|bias| bias.name() == part);
            let activation = Activation::ALL.into_iter().find(|found| found.name() == part);
            match (bias, activation) {
                (Some(_), _) if epilogue.activation.is_some() => {
                    return refuse("comes after an activation, and a bias is added before");
                }
                (Some(_), _) if epilogue.bias.is_some() => return refuse("is a second bias"),
                (_, Some(_)) if epilogue.activation.is_some() => {
                    return refuse("is a second activation");
                }
                (Some(bias), _) => epilogue.bias = Some(bias),
                (_, Some(activation)) => epilogue.activation = Some(activation),
                (None, None) => return refuse("is unknown"),
            }
        }
        Ok(epilogue)
    }

    /// The same epilogue with a bias along this dimension.
    pub const fn with_bias(self, along: BiasAlong) -> Self {
        Epilogue { bias: Some(along), ..self }
    }

    /// The same epilogue with an activation.
    pub const fn with_activation(self, activation: Activation) -> Self {
        Epilogue { activation: Some(activation), ..self }
    }

    /// The dimension that the bias lies along; `None` where there is no bias.
    pub const fn bias(&self) -> Option<BiasAlong> {
        self.bias
    }

    /// The activation, if there is one.
    pub const fn activation(&self) -> Option<Activation> {
        self.activation
    }

    /// Whether it does nothing.
    pub const fn is_none(&self) -> bool {
        self.bias.is_none() && self.activation.is_none()
    }

    /// Elements of the bias of an `m × n` D, 0 where there is no bias. They follow each other
    /// without gaps.
    pub const fn bias_length(&self, m: usize, n: usize) -> usize {
        match self.bias {
            None => 0,
            Some(BiasAlong::N) => n,
            Some(BiasAlong::M) => m,
        }
    }

    /// Element type of the bias for results of this type: theirs, and bf16 for 8-bit floats.
    pub const fn bias_type(output: Element) -> Element {
        dtype::bias_type(output)
    }

    /// The same epilogue for Dᵀ in place of D.
    pub fn transposed(self) -> Self {
        Epilogue { bias: self.bias.map(BiasAlong::transposed), ..self }
    }

    fn parts(&self) -> impl Iterator<Item = &'static str> + use<> {
        let bias = self.bias.map(BiasAlong::name);
        bias.into_iter().chain(self.activation.map(Activation::name))
    }

    /// The suffix of a spec's name.
    pub(crate) fn suffix(&self) -> String {
        match self.is_none() {
            true => String::new(),
            false => format!("-e{}", self.parts().collect::<Vec<_>>().join(".")),
        }
    }

    /// Reads the part of a spec's name behind `-e`.
    pub(crate) fn from_suffix(text: &str) -> Option<Epilogue> {
        Epilogue::of_parts(text, '.').ok()
    }
}

impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_none() {
            true => f.pad(NONE),
            false => f.pad(&self.parts().collect::<Vec<_>>().join("|")),
        }
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
        for activation in activations {
            for bias in biases {
                let epilogue = Epilogue { bias, activation };
                assert_eq!(epilogue.to_string().parse(), Ok(epilogue));
                assert_eq!(Epilogue::try_from(String::from(epilogue)), Ok(epilogue));
                assert_eq!(epilogue.transposed().transposed(), epilogue);
                let suffix = epilogue.suffix();
                match suffix.strip_prefix("-e") {
                    Some(parts) => assert_eq!(Epilogue::from_suffix(parts), Some(epilogue)),
                    None => assert!(epilogue.is_none() && suffix.is_empty()),
                }
            }
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
