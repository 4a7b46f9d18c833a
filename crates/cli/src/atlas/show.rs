//! The tables of `pgemm atlas`: scores against each peer, the worst problems, and the faults.

use comfy_table::Table;
use pgemm_bench::atlas::{AtlasFile, AtlasRow, AtlasScore, Fault, LOSS, Peer};

use crate::Verdict;
use crate::failure::Failure;
use crate::output;

/// Problems in the list of losses.
const WORST: usize = 12;

/// Prints the scores of all populations against each peer, the problems with the lowest ratios, and
/// what did not compute a right result.
pub fn print(files: &[AtlasFile]) -> Result<Verdict, Failure> {
    let rows: Vec<&AtlasRow> = files.iter().flat_map(|file| &file.rows).collect();
    for peer in Peer::ALL {
        let library = versions(files, peer);
        if library.is_empty() {
            continue;
        }
        output::text(&format!("against {peer}: its time over ours ({library})\n"))?;
        output::print(&scores(&rows, peer))?;
        output::text("\n")?;
        output::print(&worst(&rows, peer))?;
        output::text("\n")?;
    }
    output::text(&faults(&rows))?;
    let wrong = rows.iter().any(|row| row.is_wrong());
    Ok(if wrong { Verdict::Wrong } else { Verdict::Fine })
}

/// The versions of a peer's library in these files. Empty if it took part in none.
fn versions(files: &[AtlasFile], peer: Peer) -> String {
    let of_peer = files.iter().flat_map(|file| &file.head.peers);
    let of_peer = of_peer.filter(|version| version.name == peer.name());
    let mut versions: Vec<&str> = of_peer.map(|version| version.library.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions.join("; ")
}

fn scores(rows: &[&AtlasRow], peer: Peer) -> Table {
    let below = format!("below {LOSS}");
    let header = [
        "population",
        "regime",
        "problems",
        "mean",
        below.as_str(),
        "worst",
        "wrong",
        "not run",
        "peer wrong",
        "peer not run",
    ];
    let mut table = output::table(header, &header[2..]);
    for (population, regime, score) in AtlasScore::by_population(rows.iter().copied(), peer) {
        table.add_row([
            population.to_string(),
            regime.map_or_else(|| "all".to_owned(), |regime| regime.to_string()),
            score.compared.to_string(),
            score.mean.map_or_else(|| "–".to_owned(), |mean| format!("{mean:.4}")),
            format!("{:.1} %", 100.0 * score.losses),
            score.worst.map_or_else(|| "–".to_owned(), |(ratio, _)| format!("{ratio:.3}")),
            score.wrong.to_string(),
            score.not_run.to_string(),
            score.wrong_peers.to_string(),
            score.peers_not_run.to_string(),
        ]);
    }
    table
}

fn worst(rows: &[&AtlasRow], peer: Peer) -> Table {
    let mut lost: Vec<_> = rows.iter().filter_map(|row| Some((row.of(peer)?, *row))).collect();
    lost.sort_by(|a, b| a.0.ratio[1].total_cmp(&b.0.ratio[1]));
    let header = ["worst", "problem", "regime", "µs", "kernel", "peer's µs", "peer's algorithm"];
    let mut table = output::table(header, &["worst", "µs", "peer's µs"]);
    for (measured, row) in lost.iter().take(WORST) {
        table.add_row([
            format!("{:.3}", measured.ratio[1]),
            row.problem.clone(),
            row.regime.to_string(),
            row.us.map_or_else(String::new, |us| format!("{us:.2}")),
            row.kernel.clone().unwrap_or_default(),
            format!("{:.2}", measured.us),
            measured.algorithm.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// A line for each result that is wrong or failed, and one for all that somebody refused.
fn faults(rows: &[&AtlasRow]) -> String {
    let mut text = String::new();
    let mut refusals: Vec<(&str, usize, String)> = Vec::new();
    for (row, fault) in rows.iter().flat_map(|row| row.faults.iter().map(move |of| (*row, of))) {
        let Fault { who, refused, why, .. } = fault;
        let example = format!("{}: {why}", row.problem);
        match refusals.iter_mut().find(|(name, ..)| *refused && name == who) {
            Some((_, count, _)) => *count += 1,
            None if *refused => refusals.push((who, 1, example)),
            None => text += &format!("{fault} {}: {example}\n", fault.what()),
        }
    }
    for (who, count, example) in refusals {
        text += &format!("{who} refused {count} of these problems, such as {example}\n");
    }
    text
}
