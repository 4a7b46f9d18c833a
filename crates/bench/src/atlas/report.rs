//! [`AtlasFile`]: the rows of an atlas on disk, one JSON line each, and [`AtlasScore`], what a
//! population of them says.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use persistent_gemm::Error;
use persistent_gemm::error::FileDamage;
use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind, SCHEMA};
use persistent_gemm::measure::Elements;
use persistent_gemm::stats::geometric_mean;
use pgemm_plan::Major;
use serde::{Deserialize, Serialize};

use super::measure::AtlasOptions;
use super::old;
use super::peer::Peer;
use super::peers::PeerVersion;
use super::population::Population;
use super::regime::Regime;
use super::row::AtlasRow;
use crate::error::{BenchError, Result};
use crate::machine::Machine;

/// Ratios below this are counted as losses.
pub const LOSS: f64 = 0.97;

/// The conditions that the rows of a file share: its first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasHead {
    /// The run.
    #[serde(flatten)]
    pub run: Head,
    /// The machine.
    pub machine: Machine,
    /// Element types and precision.
    pub elements: Elements,
    /// The seed of the populations.
    pub seed: u64,
    /// Majors of A and B that problems are drawn with.
    pub majors: Vec<(Major, Major)>,
    /// The peers, with the versions of their libraries.
    pub peers: Vec<PeerVersion>,
    /// How problems are measured.
    pub options: AtlasOptions,
}

impl AtlasHead {
    /// The head of a run that begins now.
    pub fn new(
        machine: Machine,
        elements: Elements,
        (seed, majors): (u64, Vec<(Major, Major)>),
        peers: Vec<PeerVersion>,
        options: AtlasOptions,
    ) -> AtlasHead {
        AtlasHead {
            run: Head::now(ResultsKind::Atlas),
            machine,
            elements,
            seed,
            majors,
            peers,
            options,
        }
    }

    /// The first condition that differs from that of another run, as JSON: its name, the other's
    /// value, this one's.
    fn difference(&self, now: &AtlasHead) -> Option<(&'static str, String, String)> {
        let json = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
        let unlike = |what, file: serde_json::Value, now: serde_json::Value| {
            (file != now).then(|| (what, file.to_string(), now.to_string()))
        };
        let of = |head: &AtlasHead| {
            [
                json(serde_json::to_value(head.elements)),
                json(serde_json::to_value(head.seed)),
                json(serde_json::to_value(&head.majors)),
                json(serde_json::to_value(head.options)),
                json(serde_json::to_value(&head.machine.device)),
                json(serde_json::to_value(&head.machine.driver)),
                json(serde_json::to_value(&head.peers)),
                json(serde_json::to_value(&head.run.version)),
            ]
        };
        let names = [
            "set of element types",
            "seed",
            "list of majors",
            "set of options",
            "device",
            "driver",
            "list of peers",
            "version of persistent-gemm",
        ];
        let both = of(self).into_iter().zip(of(now));
        names.into_iter().zip(both).find_map(|(what, (file, now))| unlike(what, file, now))
    }
}

/// The rows of a run, in memory and on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct AtlasFile {
    path: Option<PathBuf>,
    /// The conditions.
    pub head: AtlasHead,
    /// The rows, in the order in which they were measured.
    pub rows: Vec<AtlasRow>,
}

impl AtlasFile {
    /// Begins a file, or a run without one. The file is written with the first row.
    pub fn new(path: Option<&Path>, head: AtlasHead) -> AtlasFile {
        AtlasFile { path: path.map(Path::to_owned), head, rows: Vec::new() }
    }

    /// Whether a file that begins with this line is an atlas.
    pub(crate) fn begins(line: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Conditions {
            #[serde(rename = "majors")]
            _majors: Vec<(Major, Major)>,
        }
        serde_json::from_slice::<Conditions>(line).is_ok()
    }

    /// Reads a file. A last line without an end, which an interruption leaves, is ignored.
    ///
    /// # Errors
    /// [`Error::Io`], or [`BenchError::Report`] if a line cannot be read.
    pub fn read(path: &Path) -> Result<AtlasFile> {
        let text = files::read(path)?;
        let damaged = |finding: FileDamage| BenchError::Report {
            path: path.to_owned(),
            finding: Box::new(finding),
        };
        let end = text.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        let mut lines = text[..end].split(|&byte| byte == b'\n');
        let not_json = |error: serde_json::Error| damaged(error.into());
        let first = lines.next().unwrap_or_default();
        let mut head: serde_json::Value = serde_json::from_slice(first).map_err(not_json)?;
        let schema = head["schema"].as_u64();
        let schema = schema.map(|schema| u32::try_from(schema).unwrap_or(u32::MAX));
        match schema {
            Some(found) if found <= old::LAST => old::upgrade_head(&mut head, found),
            Some(found) if found != SCHEMA => {
                return Err(damaged(FileDamage::Schema { found, needed: SCHEMA }));
            }
            // Without a schema the head is refused below.
            _ => {}
        }
        let head: AtlasHead = serde_json::from_value(head).map_err(not_json)?;
        let rows = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
        let mut rows: Vec<AtlasRow> = rows.map_err(not_json)?;
        if schema == Some(old::WITH_ONE_PEER) {
            rows.iter_mut().for_each(old::upgrade_row);
        }
        Ok(AtlasFile { path: Some(path.to_owned()), head, rows })
    }

    /// Reads the file at `path` to continue it, or begins it if there is none.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), and [`BenchError::Resume`] if the file was made under
    /// other conditions.
    pub fn resume(path: &Path, head: AtlasHead) -> Result<AtlasFile> {
        if !path.exists() {
            return Ok(AtlasFile::new(Some(path), head));
        }
        let file = AtlasFile::read(path)?;
        if let Some((what, file, now)) = file.head.difference(&head) {
            return Err(BenchError::Resume { path: path.to_owned(), what, file, now });
        }
        file.write()?;
        Ok(file)
    }

    /// Whether the file has this problem of a population.
    pub fn has(&self, population: Population, index: usize) -> bool {
        self.rows.iter().any(|row| (row.population, row.index) == (population, index))
    }

    /// Adds a row, in the file too.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn push(&mut self, row: AtlasRow) -> Result<()> {
        self.rows.push(row);
        let (Some(path), Some(row)) = (&self.path, self.rows.last()) else { return Ok(()) };
        if self.rows.len() == 1 {
            return self.write();
        }
        let io = |source| Error::Io { path: path.clone(), source };
        let line = serde_json::to_string(row).map_err(|error| io(error.into()))? + "\n";
        let mut file = OpenOptions::new().append(true).open(path).map_err(io)?;
        Ok(file.write_all(line.as_bytes()).map_err(io)?)
    }

    /// Writes all of the file anew.
    fn write(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let io = |error: serde_json::Error| Error::Io { path: path.clone(), source: error.into() };
        let mut text = serde_json::to_string(&self.head).map_err(io)? + "\n";
        for row in &self.rows {
            text += &(serde_json::to_string(row).map_err(io)? + "\n");
        }
        Ok(files::write(path, text.as_bytes())?)
    }
}

/// What the rows of a population, or of one regime of it, say.
#[derive(Clone, Debug, PartialEq)]
pub struct AtlasScore {
    /// Rows with a ratio.
    pub compared: usize,
    /// The geometric mean of the ratios.
    pub mean: Option<f64>,
    /// The share of ratios below [`LOSS`].
    pub losses: f64,
    /// The lowest ratio and its problem.
    pub worst: Option<(f64, String)>,
    /// Rows in which our result is wrong, or our kernel did not run.
    pub wrong: usize,
    /// See [`wrong`](Self::wrong).
    pub not_run: usize,
    /// Rows in which one of the candidates that the peer tried computed a wrong result.
    pub wrong_peers: usize,
    /// Rows in which the peer refused the problem or failed.
    pub peers_not_run: usize,
}

impl AtlasScore {
    /// The score of rows against a peer.
    pub fn of<'r>(rows: impl IntoIterator<Item = &'r AtlasRow>, peer: Peer) -> AtlasScore {
        let rows: Vec<&AtlasRow> = rows.into_iter().collect();
        let ratios: Vec<(f64, &str)> =
            rows.iter().filter_map(|row| Some((row.ratio(peer)?, row.problem.as_str()))).collect();
        let count = |is: &dyn Fn(&AtlasRow) -> bool| rows.iter().filter(|row| is(row)).count();
        let lost = ratios.iter().filter(|(ratio, _)| *ratio < LOSS).count();
        let worst = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        AtlasScore {
            compared: ratios.len(),
            mean: geometric_mean(ratios.iter().map(|(ratio, _)| *ratio)),
            losses: lost as f64 / ratios.len().max(1) as f64,
            worst: worst.map(|(ratio, problem)| (*ratio, (*problem).to_owned())),
            wrong: count(&AtlasRow::is_wrong),
            not_run: count(&|row| row.us.is_none() && !row.is_wrong()),
            wrong_peers: count(&|row| row.is_wrong_of(peer)),
            peers_not_run: count(&|row| row.is_without(peer)),
        }
    }

    /// The score of each population, all together and by regime.
    pub fn by_population<'r>(
        rows: impl IntoIterator<Item = &'r AtlasRow>,
        peer: Peer,
    ) -> Vec<(Population, Option<Regime>, AtlasScore)> {
        let mut populations: BTreeMap<&str, Vec<&AtlasRow>> = BTreeMap::new();
        for row in rows {
            populations.entry(row.population.name()).or_default().push(row);
        }
        let mut scores = Vec::new();
        for rows in populations.into_values() {
            let Some(population) = rows.first().map(|row| row.population) else { continue };
            scores.push((population, None, AtlasScore::of(rows.iter().copied(), peer)));
            for regime in Regime::ALL {
                let of_regime: Vec<_> =
                    rows.iter().copied().filter(|row| row.regime == regime).collect();
                if !of_regime.is_empty() {
                    scores.push((population, Some(regime), AtlasScore::of(of_regime, peer)));
                }
            }
        }
        scores
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pgemm_ir::Element;
    use serde_json::json;

    use super::super::peer::{FIRST_PICK, TORCH};
    use super::super::row::{AtlasPeer, Fault};
    use super::*;

    fn head() -> AtlasHead {
        AtlasHead::new(
            Machine::example(),
            Elements::new(Element::Bf16, Element::Bf16),
            (5, vec![(Major::K, Major::K)]),
            vec![PeerVersion { name: FIRST_PICK.into(), library: "cuBLASLt 13.1.0".into() }],
            AtlasOptions { seconds: 0.25 },
        )
    }

    fn row(index: usize, regime: Regime, ratio: f64) -> AtlasRow {
        AtlasRow {
            population: Population::Eights,
            index,
            label: None,
            problem: format!("p{index}"),
            regime,
            launch: None,
            kernel: None,
            us: Some(1.0),
            peers: vec![AtlasPeer {
                name: FIRST_PICK.into(),
                rank: Some(0),
                algorithm: None,
                us: ratio,
                ratio: [ratio - 0.01, ratio, ratio + 0.01],
            }],
            faults: vec![],
        }
    }

    fn wrong(who: &str, rank: Option<usize>) -> Vec<Fault> {
        let (who, why) = (who.into(), "3 elements are wrong".into());
        vec![Fault { who, rank, algorithm: None, wrong: true, refused: false, why }]
    }

    #[test]
    fn a_file_is_continued_where_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("atlas.jsonl");
        let mut file = AtlasFile::resume(&path, head()).unwrap();
        for index in 0..3 {
            file.push(row(index, Regime::Memory, 1.1)).unwrap();
        }
        assert_eq!(AtlasFile::read(&path).unwrap(), file);

        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        let mut file = AtlasFile::resume(&path, head()).unwrap();
        assert_eq!(file.rows.len(), 2);
        assert!(file.has(Population::Eights, 1) && !file.has(Population::Eights, 2));
        file.push(row(2, Regime::Memory, 1.1)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn files_of_other_runs_and_damaged_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("atlas.jsonl");
        AtlasFile::new(Some(&path), head()).push(row(0, Regime::Launch, 1.0)).unwrap();
        let other = AtlasHead { seed: 6, ..head() };
        let error = AtlasFile::resume(&path, other).unwrap_err().to_string();
        assert!(error.contains("seed is 5, and now it is 6"), "{error}");
        let other = AtlasHead { options: AtlasOptions { seconds: 1.0 }, ..head() };
        assert!(matches!(AtlasFile::resume(&path, other), Err(BenchError::Resume { .. })));
        for text in ["", "{}\n", "no JSON\n"] {
            fs::write(&path, text).unwrap();
            let error = AtlasFile::read(&path).unwrap_err();
            assert!(matches!(error, BenchError::Report { .. }), "{error}");
        }
        let missing = AtlasFile::read(&folder.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("missing"), "{missing}");
    }

    /// A file of schema 1 with the fastest of cuBLASLt, whose first pick is wrong.
    fn old_file() -> String {
        let mut machine = serde_json::to_value(Machine::example()).unwrap();
        machine["cublaslt"] = json!({ "major": 13, "minor": 1, "patch": 0 });
        let head = json!({
            "schema": 1, "command": [], "date": "d", "version": "0.1.0", "machine": machine,
            "elements": { "a": "bf16", "b": "bf16", "d": "bf16" }, "seed": 5,
            "majors": [["k", "k"]], "options": { "seconds": 0.25, "best": true },
        });
        let peer = |name, rank, ratio| json!({ "name": name, "rank": rank, "us": 20.0, "ratio": [ratio - 0.1, ratio, ratio] });
        let row = json!({
            "population": "any", "index": 5, "problem": "bf16 kk 45x16x9", "regime": "launch",
            "launch": "graph", "kernel": "k", "us": 8.8,
            "peers": [peer("cuBLASLt", 1, 2.5), peer("cuBLASLt best", 3, 2.0)],
            "faults": [{ "who": "cuBLASLt #0", "wrong": true, "why": "1 of 9" }],
        });
        format!("{head}\n{row}\n")
    }

    #[test]
    fn files_of_schema_1_are_read_and_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.jsonl");
        fs::write(&path, old_file()).unwrap();
        let file = AtlasFile::read(&path).unwrap();
        let version =
            |peer: Peer| PeerVersion { name: peer.to_string(), library: "cuBLASLt 13.1.0".into() };
        let peers = [Peer::CublasLt, Peer::CublasLtBest];
        assert_eq!((file.head.run.schema, &file.head.peers[..]), (SCHEMA, &peers.map(version)[..]));
        let row = &file.rows[0];
        assert_eq!(Peer::ALL.map(|peer| row.ratio(peer)), [Some(2.5), Some(2.0), None]);
        assert_eq!((row.faults[0].who.as_str(), row.faults[0].rank), (FIRST_PICK, Some(0)));
        assert_eq!(Peer::ALL.map(|peer| row.is_wrong_of(peer)), [true, true, false]);

        // It is written in the present schema, and says the same.
        assert_eq!(AtlasFile::resume(&path, file.head.clone()).unwrap(), file);
        assert!(fs::read_to_string(&path).unwrap().starts_with(r#"{"schema":4,"kind":"atlas","#));
        assert_eq!(AtlasFile::read(&path).unwrap(), file);
        fs::write(&path, old_file().replace(r#""schema":1"#, r#""schema":3"#)).unwrap();
        let error = AtlasFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("its schema is 3, this version reads 4"), "{error}");
    }

    #[test]
    fn scores_are_those_of_the_rows() {
        let mut rows = vec![
            row(0, Regime::Memory, 2.0),
            row(1, Regime::Memory, 0.5),
            row(2, Regime::Compute, 8.0),
            row(3, Regime::Compute, 0.98),
        ];
        rows[1].faults = wrong(TORCH, None);
        rows[1].faults[0].wrong = false;
        rows[3].faults = wrong(FIRST_PICK, Some(0));
        rows[3].peers[0].rank = Some(1);
        rows.push(AtlasRow {
            us: None,
            peers: vec![],
            faults: wrong("persistent-gemm", None),
            ..row(4, Regime::Compute, 1.0)
        });
        let scores = AtlasScore::by_population(&rows, Peer::CublasLt);
        let [(_, None, all), (_, Some(Regime::Memory), memory), (_, Some(_), compute)] =
            &scores[..]
        else {
            panic!("{scores:?}")
        };
        assert_eq!((all.compared, memory.compared, compute.compared), (4, 2, 2));
        assert!((memory.mean.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((all.losses, memory.losses, compute.losses), (0.25, 0.5, 0.0));
        assert_eq!(all.worst, Some((0.5, "p1".to_owned())));
        assert_eq!((all.wrong, all.not_run, all.wrong_peers), (1, 0, 1));
        let torch = AtlasScore::of(&rows, Peer::Torch);
        assert_eq!((torch.mean, torch.wrong_peers, torch.peers_not_run), (None, 0, 1));
        assert_eq!(AtlasScore::of(&rows, Peer::CublasLtBest).wrong_peers, 1);
    }
}
