//! [`Split`]: how output tiles are split along k.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How output tiles are split along k among CTAs, so that few tiles keep all SMs busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Split {
    /// Each tile is computed by one CTA.
    #[default]
    Whole,
    /// Split-K: each tile by so many.
    SplitK(u32),
    /// Stream-K: the k-tiles of all tiles, laid end to end, are dealt out evenly; of tiles that
    /// fill the device more than twice, only those of the last two waves, unless these are full.
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

/// Most CTAs that split-K lets share a tile.
pub const MAX_SPLITS: u32 = 256;
