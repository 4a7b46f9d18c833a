//! The facts about cuBLASLt that reports contain.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The environment variable that names the file of cuBLASLt and skips the search.
pub const CUBLASLT_VARIABLE: &str = "PGEMM_CUBLASLT";

/// Workspace given to cuBLASLt. NVIDIA's documentation recommends 32 MiB on Hopper; twice that
/// leaves no split-K algorithm out for lack of space.
pub const WORKSPACE_BYTES: usize = 64 << 20;

/// The library's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CublasLtVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Patch level.
    pub patch: u32,
}

impl CublasLtVersion {
    /// Decodes the result of cublasLtGetVersion: 120805 is 12.8.5.
    #[cfg(feature = "peers")]
    pub(crate) fn of(number: usize) -> CublasLtVersion {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        CublasLtVersion { major: number / 10_000, minor: number / 100 % 100, patch: number % 100 }
    }
}

impl fmt::Display for CublasLtVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// One algorithm that the heuristic proposed, in the library's own numbering. `None` if this
/// version has no such attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CublasLtCandidate {
    /// Place in the heuristic's order; 0 is its first pick.
    pub rank: usize,
    /// CUBLASLT_ALGO_CONFIG_ID.
    pub algorithm_id: Option<u32>,
    /// cublasLtMatmulTile_t.
    pub tile_id: Option<u32>,
    /// cublasLtMatmulStages_t.
    pub stages_id: Option<u32>,
    /// Number of K slices.
    pub split_k: Option<u32>,
    /// cublasLtReductionScheme_t of the slices.
    pub reduction_scheme: Option<u32>,
    /// Whether CTAs are swizzled.
    pub cta_swizzling: Option<u32>,
    /// The algorithm's custom option.
    pub custom_option: Option<u32>,
    /// cublasLtClusterShape_t.
    pub cluster_shape_id: Option<u32>,
    /// Workspace that it needs, bytes.
    pub workspace_bytes: u64,
    /// Waves of CTAs by the library's own count.
    pub waves: f32,
}

impl CublasLtCandidate {
    /// The ids of algorithm, tile, stages and cluster, and the number of K slices, `66/20/36/3/1`.
    /// What this version of the library does not say is a `?`.
    pub fn algorithm(&self) -> String {
        let CublasLtCandidate { algorithm_id, tile_id, stages_id, .. } = self;
        [algorithm_id, tile_id, stages_id, &self.cluster_shape_id, &self.split_k]
            .map(|part| part.map_or_else(|| "?".to_owned(), |number| number.to_string()))
            .join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_named_by_the_librarys_numbers() {
        let text = r#"{"rank":0,"algorithm_id":66,"tile_id":20,"stages_id":36,"split_k":1,
            "reduction_scheme":0,"cta_swizzling":0,"custom_option":0,"cluster_shape_id":null,
            "workspace_bytes":0,"waves":0.5}"#;
        let candidate: CublasLtCandidate = serde_json::from_str(text).unwrap();
        assert_eq!(candidate.algorithm(), "66/20/36/?/1");
    }
}
