//! Parts of messages: what is too large for a survey, what is wrong with a family of a suite, and
//! lists of paths.

use std::fmt;
use std::path::PathBuf;

/// The part of a problem that is too large for a survey.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SurveyLimit {
    /// The memory for its operands.
    Memory {
        /// Sets of operands.
        sets: usize,
        /// Bytes of all sets together.
        bytes: u64,
    },
    /// The time that its choices would need.
    Time {
        /// In seconds.
        seconds: f64,
    },
}

impl fmt::Display for SurveyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SurveyLimit::Memory { sets, bytes } => {
                write!(f, "{sets} sets of operands take {:.1} GB", bytes as f64 / 1e9)
            }
            SurveyLimit::Time { seconds } => {
                write!(f, "its choices would take some {seconds:.0} s")
            }
        }
    }
}

/// What is wrong with a family of a suite.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FamilyError {
    /// Its fields are not those of a family.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// An element type that there is not.
    #[error(transparent)]
    Dtype(#[from] pgemm_ir::UnknownElement),
    /// Extents are given in several ways, or not at all.
    #[error("its extents are given by one of `problems`, `sizes`, or `m` with `nk`")]
    Extents,
    /// A field that belongs to another kind of family.
    #[error("`lda_extra` belongs to single products, and `count` to streams, which need it")]
    OtherKind,
    /// More or fewer extents than the kind has.
    #[error("{extents:?} should have {needed} extents")]
    ExtentCount {
        /// The extents given.
        extents: Vec<usize>,
        /// How many are needed.
        needed: usize,
    },
    /// A problem without elements.
    #[error("{extents:?} has an extent of 0, which leaves nothing to time")]
    Empty {
        /// The extents given.
        extents: Vec<usize>,
    },
    /// A text that names no majors.
    #[error("'{text}' is no pair of majors: write kk, kn, mk or mn")]
    Majors {
        /// The text in the file.
        text: String,
    },
}

/// Paths one after the other.
pub(super) fn listed(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}
