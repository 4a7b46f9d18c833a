//! [`Split`]: how output tiles are split along k.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How output tiles are split along k among clusters, so that a few tiles keep all SMs busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Split {
    /// Tiles are not split.
    #[default]
    Whole,
    /// Split-K: each tile is computed by this number of workers.
    SplitK(u32),
    /// Stream-K: the k-tiles of all tiles, laid end to end, are distributed evenly over the
    /// workers. If the tiles make more than two waves, only those of the last two waves are split.
    /// Full waves are not split.
    StreamK,
}

/// The text is not the name of a split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no split: use whole, stream-k, or split-N with N from 1 to {MAX_SPLITS}")]
pub struct UnknownSplit {
    /// The text.
    pub text: String,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Split::Whole => f.write_str("whole"),
            Split::SplitK(splits) => write!(f, "split-{splits}"),
            Split::StreamK => f.write_str("stream-k"),
        }
    }
}

impl FromStr for Split {
    type Err = UnknownSplit;

    fn from_str(text: &str) -> Result<Self, UnknownSplit> {
        match text {
            "whole" => Ok(Split::Whole),
            "stream-k" => Ok(Split::StreamK),
            _ => text
                .strip_prefix("split-")
                .and_then(|splits| splits.parse().ok())
                .filter(|splits| (1..=MAX_SPLITS).contains(splits))
                .map(Split::SplitK)
                .ok_or_else(|| UnknownSplit { text: text.to_owned() }),
        }
    }
}

/// The largest number of workers that may share a tile under split-K.
pub const MAX_SPLITS: u32 = 256;
