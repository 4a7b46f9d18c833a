//! What is wrong with an attribute.

use std::fmt::Display;

/// An attribute outside of the range that the instruction has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attribute} is {value}: use {allowed}")]
pub struct AttributeError {
    /// The attribute, by the name of its field.
    pub attribute: &'static str,
    /// Its value.
    pub value: String,
    /// The values that are possible.
    pub allowed: String,
}

/// Collects the errors of an operation.
pub(super) type Errors = Vec<AttributeError>;

pub(super) fn refuse(
    errors: &mut Errors,
    attribute: &'static str,
    value: impl Display,
    allowed: impl Into<String>,
) {
    errors.push(AttributeError { attribute, value: value.to_string(), allowed: allowed.into() });
}
