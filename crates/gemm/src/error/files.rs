//! Errors of the files of the tuner and of benchmarks.

use std::fmt;

use pgemm_cubins::PackError;
use pgemm_plan::{Choice, ProblemKey};

/// Why a JSON file of this project cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileDamage {
    /// The file is not JSON of the expected form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The file has another schema version.
    #[error("its schema is {found}, this version reads {needed}")]
    Schema {
        /// The file's.
        found: u32,
        /// The schema version of this library.
        needed: u32,
    },
    /// The file holds other results.
    #[error("it holds results of the kind '{found}', and '{needed}' is needed")]
    Kind {
        /// The file's.
        found: &'static str,
        /// What was to be read.
        needed: &'static str,
    },
    /// The file holds results that have no rows for reports.
    #[error("results of the kind '{kind}' are not shown")]
    NoRows {
        /// What it holds.
        kind: &'static str,
    },
    /// A line belongs to a run that no line before describes.
    #[error("no line describes the run '{run}' before its results")]
    NoRun {
        /// The run's name.
        run: String,
    },
    /// A choice in it is not one for its problem.
    #[error(
        "{choice} is no kernel for {}x{}x{} with operands of {}, {}-major, and {}, {}-major, and \
         {} output",
        key.m, key.n, key.k, key.operands()[0], key.a_major, key.operands()[1], key.b_major, key.output
    )]
    Choice {
        /// The choice.
        choice: Box<Choice>,
        /// The problem.
        key: Box<ProblemKey>,
    },
}

/// Why a pack cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackDamage {
    /// The file is no pack, or a damaged one.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// What it holds besides kernels cannot be read.
    #[error("its notes cannot be read: {0}")]
    Notes(#[from] FileDamage),
    /// Another version of the library wrote it.
    #[error(
        "version {version} of the library wrote it, whose kernels are generated differently from \
         those of this version {}", env!("CARGO_PKG_VERSION")
    )]
    Generator {
        /// The version that wrote it.
        version: String,
    },
}

/// Something in which the platform of results differs from this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformDifference {
    /// The part that differs.
    pub part: PlatformPart,
    /// Its value where the results were measured.
    pub there: String,
    /// Its value on this machine.
    pub here: String,
}

/// A part of a platform that results depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlatformPart {
    /// The device's name.
    Device,
    /// The number of streaming multiprocessors.
    SmCount,
    /// The CUDA version that the driver supports.
    Cuda,
    /// The driver's version.
    Driver,
    /// The version of this library.
    Library,
}

impl fmt::Display for PlatformDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlatformDifference { part, there, here } = self;
        let part = match part {
            PlatformPart::Device => "device",
            PlatformPart::SmCount => "SMs:",
            PlatformPart::Cuda => "CUDA",
            PlatformPart::Driver => "driver",
            PlatformPart::Library => "library version",
        };
        write!(f, "{part} {there} there, {here} here")
    }
}

/// The differences in one line.
pub(super) fn listed(differences: &[PlatformDifference]) -> String {
    let texts: Vec<_> = differences.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
