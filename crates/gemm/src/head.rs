//! [`Head`]: what every results file says first.

use std::collections::HashMap;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::error::FileDamage;
use crate::files::{command_line, now};

/// The version of the form of all results files. It increases when a field changes its meaning or
/// disappears.
pub const SCHEMA: u32 = 4;

/// The kind of results that a file holds. JSON has the names of [`name`](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultsKind {
    /// Pairs of contestants, the read bandwidth of memory, and streams of jobs.
    Bench,
    /// Products of host matrices that exceed device memory.
    OutOfCore,
    /// Populations of problems.
    Atlas,
    /// Times of many kernels.
    Survey,
    /// What the autotuner found.
    Autotune,
    /// Errors of results.
    Numbers,
    /// Properties of kernels that change the bits of results.
    Bits,
    /// A release beside an older one.
    Regression,
    /// The ceilings of a card.
    Roofline,
}

impl ResultsKind {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            ResultsKind::Bench => "bench",
            ResultsKind::OutOfCore => "out-of-core",
            ResultsKind::Atlas => "atlas",
            ResultsKind::Survey => "survey",
            ResultsKind::Autotune => "autotune",
            ResultsKind::Numbers => "numbers",
            ResultsKind::Bits => "bits",
            ResultsKind::Regression => "regression",
            ResultsKind::Roofline => "roofline",
        }
    }
}

/// The first fields of every results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What the file holds.
    pub kind: ResultsKind,
    /// The command line of the run, one string for each argument.
    pub command: Vec<String>,
    /// When the run began, UTC, ISO 8601.
    pub date: String,
    /// Version of this library.
    pub version: String,
}

impl Head {
    /// The head of a run of this process that begins now.
    pub fn now(kind: ResultsKind) -> Head {
        Head {
            schema: SCHEMA,
            kind,
            command: command_line(),
            date: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Parses the JSON of a results file of this kind and [`SCHEMA`].
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn parse<T: DeserializeOwned>(text: &[u8], kind: ResultsKind) -> Result<T, FileDamage> {
        let found = ResultsKind::of(text)?;
        if found != kind {
            return Err(FileDamage::Kind { found: found.name(), needed: kind.name() });
        }
        Ok(serde_json::from_slice(text)?)
    }
}

impl ResultsKind {
    /// The kind of a results file from its JSON, of which all but the head is ignored.
    ///
    /// # Errors
    /// Another schema, or no results file.
    pub fn of(text: &[u8]) -> Result<ResultsKind, FileDamage> {
        #[derive(Deserialize)]
        struct Schema {
            schema: u32,
            // With it, an array is no schema.
            #[serde(flatten)]
            _others: HashMap<String, IgnoredAny>,
        }
        #[derive(Deserialize)]
        struct Kind {
            kind: ResultsKind,
        }
        let Schema { schema, .. } = serde_json::from_slice(text)?;
        if schema != SCHEMA {
            return Err(FileDamage::Schema { found: schema, needed: SCHEMA });
        }
        let Kind { kind } = serde_json::from_slice(text)?;
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for kind in [ResultsKind::OutOfCore, ResultsKind::Bench, ResultsKind::Regression] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn other_kinds_and_schemas_are_refused() {
        #[derive(Debug, Deserialize)]
        struct File {
            #[serde(flatten)]
            head: Head,
            rows: Vec<u32>,
        }
        let mut value = serde_json::to_value(Head::now(ResultsKind::Survey)).unwrap();
        value["rows"] = vec![3, 4].into();
        let parse = |value: &serde_json::Value, kind| {
            Head::parse::<File>(value.to_string().as_bytes(), kind)
        };
        let file = parse(&value, ResultsKind::Survey).unwrap();
        assert_eq!((file.head.kind, &file.rows[..]), (ResultsKind::Survey, &[3, 4][..]));
        let other = parse(&value, ResultsKind::Bench).unwrap_err().to_string();
        assert_eq!(other, "it holds results of the kind 'survey', and 'bench' is needed");
        value["schema"] = 3.into();
        let old = parse(&value, ResultsKind::Survey).unwrap_err().to_string();
        assert_eq!(old, "its schema is 3, this version reads 4");
    }
}
