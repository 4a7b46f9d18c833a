//! [`EpilogueShape`] is the part of an epilogue that changes a kernel's code.

use std::fmt;

use super::{Activation, BiasAlong};

/// An epilogue without the values of its activation's parameters. A launch gives these values, and
/// kernels are the same for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EpilogueShape {
    bias: Option<BiasAlong>,
    activation: Option<Activation>,
}

/// The text of the epilogue without bias and activation.
pub(super) const NONE: &str = "none";

/// The reason why a part of an epilogue is not legal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// No part has this name.
    #[error("is unknown")]
    Unknown,
    /// A bias follows an activation.
    #[error("comes after an activation, and a bias is added before")]
    AfterActivation,
    /// A bias follows another bias.
    #[error("is a second bias")]
    SecondBias,
    /// An activation follows another activation.
    #[error("is a second activation")]
    SecondActivation,
    /// The activation does not take these parameters.
    #[error("{0}")]
    Parameters(#[from] ParameterError),
}

/// The reason why an activation does not take parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// There are too few or too many parameters.
    #[error("needs {} parameters and has {given}: write {shape}", shape.parameters().len())]
    Count {
        /// The epilogue that the parameters are for.
        shape: EpilogueShape,
        /// The given number of parameters.
        given: usize,
    },
    /// A parameter is not a number.
    #[error("has '{text}' as parameter {place}: write a number, such as 0.5, or inf or -inf")]
    NoNumber {
        /// The position of this parameter, counted from 1.
        place: usize,
        /// The given text.
        text: String,
    },
    /// The activation does not allow the values.
    #[error("has {asked}, which {activation} does not take: {}", activation.rule())]
    Values {
        /// The activation.
        activation: Activation,
        /// The names and values that were given.
        asked: String,
    },
}

impl EpilogueShape {
    /// The shape without bias and activation.
    pub const NONE: EpilogueShape = EpilogueShape { bias: None, activation: None };

    /// The same shape with a bias along this dimension.
    pub const fn with_bias(self, along: BiasAlong) -> Self {
        EpilogueShape { bias: Some(along), ..self }
    }

    /// The same shape with an activation.
    pub const fn with_activation(self, activation: Activation) -> Self {
        EpilogueShape { activation: Some(activation), ..self }
    }

    /// The dimension that the bias lies along. `None` if there is no bias.
    pub const fn bias(&self) -> Option<BiasAlong> {
        self.bias
    }

    /// The activation, if there is one.
    pub const fn activation(&self) -> Option<Activation> {
        self.activation
    }

    /// The names of the activation's parameters.
    pub const fn parameters(&self) -> &'static [&'static str] {
        match self.activation {
            Some(activation) => activation.parameters(),
            None => &[],
        }
    }

    /// Whether the shape has neither bias nor activation.
    pub const fn is_none(&self) -> bool {
        self.bias.is_none() && self.activation.is_none()
    }

    /// Number of elements of the bias of an `m × n` D. It is 0 if there is no bias. The elements
    /// are contiguous.
    pub const fn bias_length(&self, m: usize, n: usize) -> usize {
        match self.bias {
            None => 0,
            Some(BiasAlong::N) => n,
            Some(BiasAlong::M) => m,
        }
    }

    /// The same shape for Dᵀ in place of D.
    pub fn transposed(self) -> Self {
        EpilogueShape { bias: self.bias.map(BiasAlong::transposed), ..self }
    }

    /// Appends the part with this name.
    pub(super) fn with_part(self, name: &str) -> Result<Self, PartError> {
        let bias = BiasAlong::ALL.into_iter().find(|bias| bias.name() == name);
        let activation = Activation::ALL.into_iter().find(|found| found.name() == name);
        match (bias, activation) {
            (Some(_), _) if self.activation.is_some() => Err(PartError::AfterActivation),
            (Some(_), _) if self.bias.is_some() => Err(PartError::SecondBias),
            (_, Some(_)) if self.activation.is_some() => Err(PartError::SecondActivation),
            (Some(bias), _) => Ok(self.with_bias(bias)),
            (_, Some(activation)) => Ok(self.with_activation(activation)),
            (None, None) => Err(PartError::Unknown),
        }
    }

    /// The suffix that the name of a spec has for this shape.
    pub(crate) fn suffix(&self) -> String {
        let bias = self.bias.map(BiasAlong::name);
        let parts: Vec<_> = bias.into_iter().chain(self.activation.map(Activation::name)).collect();
        match &parts[..] {
            [] => String::new(),
            parts => format!("-e{}", parts.join(".")),
        }
    }

    /// Parses the part of a spec's name that follows `-e`.
    pub(crate) fn from_suffix(text: &str) -> Option<EpilogueShape> {
        text.split('.').try_fold(EpilogueShape::NONE, |shape, part| shape.with_part(part).ok())
    }
}

/// Writes the text form. It has the names of parameters in place of their values: `bias_n|silu`.
impl fmt::Display for EpilogueShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bias = self.bias.map(|bias| bias.name().to_owned());
        let parts: Vec<_> = bias.into_iter().chain(self.activation.map(Activation::form)).collect();
        match &parts[..] {
            [] => f.pad(NONE),
            parts => f.pad(&parts.join("|")),
        }
    }
}
