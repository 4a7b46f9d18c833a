//! Reports of benchmarks: a JSON file with every raw number and the machine it was measured on, and
//! flat rows for tables.

use std::path::Path;

use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind};
use serde::{Deserialize, Serialize};

use crate::bandwidth::ReadBandwidth;
use crate::error::{BenchError, Result};
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::stream::StreamOutcome;

/// A benchmark run: one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The run.
    #[serde(flatten)]
    pub head: Head,
    /// The machine.
    pub machine: Machine,
    /// The read bandwidth, one entry for each buffer size, or empty if it was not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_bandwidth: Vec<ReadBandwidth>,
    /// One entry for each problem.
    pub outcomes: Vec<Outcome>,
    /// One entry for each problem that was measured many times in a row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamOutcome>,
}

impl Report {
    /// An empty report of a run that begins now, with this process's command line.
    pub fn new(machine: Machine) -> Report {
        Report {
            head: Head::now(ResultsKind::Bench),
            machine,
            read_bandwidth: Vec::new(),
            outcomes: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// Writes the report as indented JSON. A reader sees the old file or the new one, never half of
    /// either.
    ///
    /// # Errors
    /// [`Error::Io`](persistent_gemm::Error::Io) with the path.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(files::write_json(path, self)?)
    }

    /// Reads a report of the present [`SCHEMA`](persistent_gemm::head::SCHEMA).
    ///
    /// # Errors
    /// [`Error::Io`](persistent_gemm::Error::Io), or [`BenchError::Report`] for another schema or
    /// anything that is no report.
    pub fn read(path: &Path) -> Result<Report> {
        let text = files::read(path)?;
        let wrong =
            |finding| BenchError::Report { path: path.to_path_buf(), finding: Box::new(finding) };
        Head::parse(&text, ResultsKind::Bench).map_err(wrong)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use persistent_gemm::Error;
    use persistent_gemm::measure::{
        Elements, EnergyBlock, LaunchMode, Measurement, Protocol, Slice, Verification,
    };
    use persistent_gemm::power::{EnergyReading, PowerSample};
    use persistent_gemm::stats::Summary;
    use pgemm_ir::Element;
    use pgemm_plan::{Major, Problem};

    use super::*;
    use crate::names::problem_name;
    use crate::outcome::ContestantSummary;

    /// One problem with two contestants: `ours`, which takes half the time, and `peer`.
    pub(crate) fn report() -> Report {
        let problem = Problem::new(64, 32, 16, Major::K, Major::N).with_beta(0.5);
        let elements = Elements::new(Element::Bf16, Element::F32);
        let state = PowerSample { sm_clock_mhz: Some(1500), ..PowerSample::default() };
        let slice =
            |contestant, seconds| Slice { contestant, gemms: 7, seconds, state: state.clone() };
        let measurement = Measurement {
            launch: LaunchMode::Graph,
            gemms_per_slice: vec![7, 7],
            warm_up_seconds: 1.0 / 3.0,
            settled: Some(true),
            rounds: vec![vec![slice(0, 0.1), slice(1, 0.2), slice(1, 0.2), slice(0, 0.1)]],
            energy_blocks: vec![EnergyBlock {
                contestant: 1,
                gemms: 70,
                seconds: 2.0,
                energy: Some(EnergyReading { watts: 350.0, seconds: 0.4, joules: 140.0 }),
            }],
        };
        let contestants = ["ours", "peer"].into_iter().enumerate().map(|(index, name)| {
            let times: Vec<_> =
                measurement.seconds_per_gemm(index).iter().map(|seconds| seconds * 1e6).collect();
            ContestantSummary {
                name: name.into(),
                details: serde_json::json!({ "tile": [128, 256] }),
                verification: Verification {
                    rows: Some(vec![0, 63]),
                    sets: vec![0],
                    comparisons: Vec::new(),
                    products: vec![],
                },
                ratio: Summary::of(&measurement.ratios(index, 1)).unwrap(),
                ratio_alone: measurement.ratio_alone(index, 1),
                microseconds: Summary::of(&times).unwrap(),
                teraflops: 0.5,
                joules: Summary::of(&measurement.joules_per_gemm(index)),
                watts: measurement.watts(index),
                sm_clock_mhz: measurement.sm_clock_mhz(index),
            }
        });
        let outcome = Outcome {
            name: problem_name(&problem, elements),
            problem,
            elements,
            operand_sets: 2,
            operand_bytes: 4096,
            protocol: Protocol::default(),
            peer: 1,
            contestants: contestants.collect(),
            measurement,
        };
        Report { outcomes: vec![outcome], ..Report::new(Machine::example()) }
    }

    #[test]
    fn json_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/report.json");
        let report = report();
        report.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
        // Overwriting leaves one file and no temporary ones.
        report.write(&path).unwrap();
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn other_schemas_and_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let mut newer = report();
        newer.head.schema += 1;
        newer.write(&path).unwrap();
        let message = Report::read(&path).unwrap_err().to_string();
        assert!(message.contains(&format!("schema is {}", newer.head.schema)), "{message}");
        std::fs::write(&path, "{}").unwrap();
        assert!(Report::read(&path).unwrap_err().to_string().contains("schema"));
        let missing = Report::read(&folder.path().join("absent.json"));
        assert!(matches!(missing, Err(BenchError::Gemm(Error::Io { .. }))));
    }

    #[test]
    fn rows_leave_the_peer_out() {
        let report = report();
        let rows = report.outcomes[0].rows();
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row.name.as_str(), row.peer.as_str(), row.launch), ("ours", "peer", "graph"));
        assert_eq!((row.ratio, row.ratio_min, row.ratio_max), (2.0, 2.0, 2.0));
        assert_eq!((row.joules, row.peer_joules), (None, Some(10.0)));
        assert_eq!(row.sm_clock_mhz, Some(1500.0));
    }
}
