//! [`EpilogueShape`]: what of an epilogue changes a kernel's code.

use std::fmt;

use super::{Activation, BiasAlong};

/// An epilogue without the values of its activation's parameters, which a launch gives. Kernels
/// are the same for all values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EpilogueShape {
    bias: Option<BiasAlong>,
    activation: Option<Activation>,
}

/// The text of an epilogue that does nothing.
pub(super) const NONE: &str = "none";

/// A part of an epilogue that cannot stand where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// It has no such name.
    #[error("is unknown")]
    Unknown,
    /// A bias behind an activation.
    #[error("comes after an activation, and a bias is added before")]
    AfterActivation,
    /// A bias behind a bias.
    #[error("is a second bias")]
    SecondBias,
    /// An activation behind an activation.
    #[error("is a second activation")]
    SecondActivation,
    /// The activation does not take these parameters.
    #[error("{0}")]
    Parameters(#[from] ParameterError),
}

/// Parameters that an activation does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// They are too few or too many.
    #[error("needs {} parameters and has {given}: write {shape}", shape.parameters().len())]
    Count {
        /// What they are for.
        shape: EpilogueShape,
        /// How many are given.
        given: usize,
    },
    /// One is no number.
    #[error("has '{text}' as parameter {place}: write a number, such as 0.5, or inf or -inf")]
    NoNumber {
        /// Which one, from 1.
        place: usize,
        /// What is given.
        text: String,
    },
    /// The values are not possible.
    #[error("has {asked}, which {activation} does not take: {}", activation.rule())]
    Values {
        /// The activation.
        activation: Activation,
        /// Names and values.
        asked: String,
    },
}

impl EpilogueShape {
    /// An epilogue that does nothing.
    pub const NONE: EpilogueShape = EpilogueShape { bias: None, activation: None };

    /// The same with a bias along this dimension.
    pub const fn with_bias(self, along: BiasAlong) -> Self {
        EpilogueShape { bias: Some(along), ..self }
    }

    /// The same with an activation.
    pub const fn with_activation(self, activation: Activation) -> Self {
        EpilogueShape { activation: Some(activation), ..self }
    }

    /// The dimension that the bias lies along; `None` where there is no bias.
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

    /// The same epilogue for Dᵀ in place of D.
    pub fn transposed(self) -> Self {
        EpilogueShape { bias: self.bias.map(BiasAlong::transposed), ..self }
    }

    /// The same with a further part of this name.
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

    /// The suffix of a spec's name.
    pub(crate) fn suffix(&self) -> String {
        let bias = self.bias.map(BiasAlong::name);
        let parts: Vec<_> = bias.into_iter().chain(self.activation.map(Activation::name)).collect();
        match &parts[..] {
            [] => String::new(),
            parts => format!("-e{}", parts.join(".")),
        }
    }

    /// Reads the part of a spec's name behind `-e`.
    pub(crate) fn from_suffix(text: &str) -> Option<EpilogueShape> {
        text.split('.').try_fold(EpilogueShape::NONE, |shape, part| shape.with_part(part).ok())
    }
}

/// The text form, with the names of parameters in place of values: `bias_n|silu`.
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
