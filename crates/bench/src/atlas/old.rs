//! Files of schemas 1 and 2 as files of the present schema.

use persistent_gemm::head::{ResultsKind, SCHEMA};
use serde_json::{Value, json};

use super::peer::Peer;
use super::peers::PeerVersion;
use super::row::AtlasRow;

/// The schema of files with at most one peer.
pub(super) const WITH_ONE_PEER: u32 = 1;

/// The last schema in which files did not name their kind.
pub(super) const LAST: u32 = 2;

/// The first line of a file of an old schema with the fields of the present one. In schema 1 the
/// peers follow from the version of cuBLASLt and from the option that told whether its fastest was
/// wanted too.
pub(super) fn upgrade_head(head: &mut Value, schema: u32) {
    if let Some(head) = head.as_object_mut() {
        head.insert("schema".into(), json!(SCHEMA));
        head.insert("kind".into(), json!(ResultsKind::Atlas));
    }
    if schema == WITH_ONE_PEER {
        add_peers(head);
    }
}

fn add_peers(head: &mut Value) {
    let version = |part: &str| head["machine"]["cublaslt"][part].as_u64();
    let version = || Some([version("major")?, version("minor")?, version("patch")?]);
    let peers: Vec<PeerVersion> = version().map_or_else(Vec::new, |version| {
        let library = format!("cuBLASLt {}", version.map(|part| part.to_string()).join("."));
        let best = head["options"]["best"].as_bool() == Some(true);
        let peers = [Peer::CublasLt, Peer::CublasLtBest];
        let peers = peers.into_iter().take(1 + usize::from(best));
        peers.map(|peer| PeerVersion { name: peer.to_string(), library: library.clone() }).collect()
    });
    if let Some(head) = head.as_object_mut() {
        head.insert("peers".into(), json!(peers));
    }
}

/// A row of schema 1, whose faults had the candidate's place in the name, `cuBLASLt #0`.
pub(super) fn upgrade_row(row: &mut AtlasRow) {
    for fault in &mut row.faults {
        if let Some((who, rank)) = fault.who.split_once(" #")
            && let Ok(rank) = rank.parse()
        {
            (fault.rank, fault.who) = (Some(rank), who.to_owned());
        }
    }
}
