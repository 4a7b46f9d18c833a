//! What is reported where the PTX is not what the IR says.

/// The first difference between a kernel and its PTX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "PTX line {line} (`{text}`){}: found {found}, expected {expected}",
    operation.as_ref().map_or(String::new(), |operation| format!(", {operation}"))
)]
pub struct Mismatch {
    /// The line of the PTX, from 1.
    pub line: usize,
    /// That line.
    pub text: String,
    /// The operation of the IR and its source, where the difference belongs to one.
    pub operation: Option<String>,
    /// What the PTX has.
    pub found: String,
    /// What the IR says.
    pub expected: String,
}

impl Mismatch {
    /// A difference at a line. The text of the line and the operation are added later.
    pub(crate) fn at(
        line: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Box<Mismatch> {
        let (found, expected) = (found.into(), expected.into());
        Box::new(Mismatch { line, text: String::new(), operation: None, found, expected })
    }
}

/// The outcome of a step of the comparison.
pub(crate) type Outcome<T> = Result<T, Box<Mismatch>>;
