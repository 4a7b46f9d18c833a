//! Continues a report after an interruption, if the conditions are the same as at its beginning.

use std::path::Path;

use persistent_gemm::measure::{Elements, L2, Protocol};
use pgemm_plan::Precision;

use crate::error::{BenchError, Result};
use crate::machine::Machine;
use crate::report::Report;

/// The conditions that all numbers of a report must share.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The machine. The momentary state of the device is not compared.
    pub machine: Machine,
    /// Element types.
    pub elements: Elements,
    /// The protocol of each problem.
    pub protocol: Protocol,
    /// Cold or warm L2.
    pub l2: L2,
    /// The peer's name; `None` for our own kernels, whose names differ from problem to problem.
    pub peer: Option<String>,
}

impl Report {
    /// Reads the report at `path` to add to it, or begins a new one if there is no file.
    ///
    /// # Errors
    /// The errors of [`Report::read`], and [`BenchError::Resume`] if the report was made under
    /// other conditions.
    pub fn resume(path: &Path, conditions: &Conditions) -> Result<Report> {
        if !path.exists() {
            return Ok(Report::new(conditions.machine.clone()));
        }
        let report = Report::read(path)?;
        if let Some((what, file, now)) = report.difference(conditions) {
            return Err(BenchError::Resume { path: path.to_path_buf(), what, file, now });
        }
        Ok(report)
    }

    /// Whether a problem of this name has been measured.
    pub fn holds(&self, problem: &str) -> bool {
        self.outcomes.iter().any(|outcome| outcome.name == problem)
    }

    /// Whether the report has a stream of `count` jobs of the problem of this name.
    pub fn holds_stream(&self, problem: &str, count: usize) -> bool {
        self.streams.iter().any(|stream| stream.name == problem && stream.count == count)
    }

    /// The first condition that is not the same: its name, as it was, as it is now.
    fn difference(&self, now: &Conditions) -> Option<(&'static str, String, String)> {
        let unlike = |what, file: String, now: String| (file != now).then_some((what, file, now));
        let (old, new) = (&self.machine, &now.machine);
        let of_the_run = unlike("device", old.device.clone(), new.device.clone())
            .or_else(|| unlike("number of SMs", old.sm_count.to_string(), new.sm_count.to_string()))
            .or_else(|| unlike("driver", or_none(&old.driver), or_none(&new.driver)))
            .or_else(|| unlike("cuBLASLt", or_none(&old.cublaslt), or_none(&new.cublaslt)))
            .or_else(|| {
                let watts = |machine: &Machine| or_none(&machine.power_limit_watts);
                unlike("power limit in watts", watts(old), watts(new))
            })
            .or_else(|| {
                let version = env!("CARGO_PKG_VERSION").to_owned();
                unlike("version of persistent-gemm", self.head.version.clone(), version)
            });
        of_the_run.or_else(|| {
            self.outcomes.iter().find_map(|outcome| {
                unlike("set of element types", types(outcome.elements), types(now.elements))
                    .or_else(|| {
                        let (file, now) = (outcome.l2().name(), now.l2.name());
                        unlike("L2 state", file.to_owned(), now.to_owned())
                    })
                    .or_else(|| {
                        let launch = |protocol: &Protocol| protocol.launch.name().to_owned();
                        unlike("launch mode", launch(&outcome.protocol), launch(&now.protocol))
                    })
                    .or_else(|| {
                        let (file, now) = (times(&outcome.protocol), times(&now.protocol));
                        unlike("protocol", file, now)
                    })
                    .or_else(|| {
                        let file = outcome.contestants.get(outcome.peer)?.name.clone();
                        unlike("peer", file, now.peer.clone()?)
                    })
            })
        })
    }
}

fn or_none(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
}

fn types(Elements { a, b, d, precision, epilogue }: Elements) -> String {
    let precision = match precision {
        Precision::Full => String::new(),
        other => format!(" {other}"),
    };
    let epilogue = match epilogue.is_none() {
        true => String::new(),
        false => format!(" {epilogue}"),
    };
    format!("{a}*{b}->{d}{precision}{epilogue}")
}

/// A protocol without its launch mode.
fn times(protocol: &Protocol) -> String {
    let Protocol {
        rounds,
        palindromes_per_round,
        slice_seconds,
        lead_in_seconds,
        warm_up_min_seconds,
        warm_up_max_seconds,
        energy_rounds,
        block_seconds,
        launch: _,
        graph_below_seconds,
    } = protocol;
    format!(
        "{rounds} rounds of {palindromes_per_round} palindromes with slices of {slice_seconds} s, \
         each after {lead_in_seconds} s that are not timed, {warm_up_min_seconds} to \
         {warm_up_max_seconds} s of warm-up, {energy_rounds} rounds of energy blocks of \
         {block_seconds} s, graphs below {graph_below_seconds} s"
    )
}

#[cfg(test)]
mod tests {
    use persistent_gemm::measure::LaunchChoice;
    use persistent_gemm::power::PowerSample;
    use pgemm_ir::Element;

    use super::*;
    use crate::cublaslt_facts::CublasLtVersion;
    use crate::report::tests::report;

    fn conditions(report: &Report) -> Conditions {
        let outcome = &report.outcomes[0];
        Conditions {
            machine: report.machine.clone(),
            elements: outcome.elements,
            protocol: outcome.protocol.clone(),
            l2: L2::Cold,
            peer: Some("peer".into()),
        }
    }

    #[test]
    fn an_interrupted_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("suite.json");
        let old = report();
        let mut now = conditions(&old);
        assert!(Report::resume(&path, &now).unwrap().outcomes.is_empty());

        old.write(&path).unwrap();
        // The temperature and clock may differ.
        now.machine.state = PowerSample { temperature_celsius: Some(70), ..PowerSample::default() };
        let resumed = Report::resume(&path, &now).unwrap();
        assert_eq!(resumed, old);
        assert!(resumed.holds("bf16->f32 kn 64x32x16 beta=0.5"));
        assert!(!resumed.holds("bf16->f32 kn 64x32x32 beta=0.5"));
    }

    #[test]
    fn other_conditions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("suite.json");
        let old = report();
        old.write(&path).unwrap();
        type Change = fn(&mut Conditions);
        let changes: [(&str, Change); 10] = [
            ("device is NVIDIA Example, and now it is H100", |now| {
                now.machine.device = "H100".into()
            }),
            ("number of SMs is 132, and now it is 78", |now| now.machine.sm_count = 78),
            ("driver is none, and now it is 580.1", |now| {
                now.machine.driver = Some("580.1".into())
            }),
            ("cuBLASLt is 13.1.0, and now it is 12.8.5", |now| {
                now.machine.cublaslt = Some(CublasLtVersion { major: 12, minor: 8, patch: 5 });
            }),
            ("power limit in watts is 700, and now it is 350", |now| {
                now.machine.power_limit_watts = Some(350.0);
            }),
            ("element types is bf16*bf16->f32, and now it is f16*f16->f32", |now| {
                now.elements = Elements::new(Element::F16, Element::F32);
            }),
            ("L2 state is cold, and now it is warm", |now| now.l2 = L2::Warm),
            ("launch mode is auto, and now it is eager", |now| {
                now.protocol.launch = LaunchChoice::Eager;
            }),
            ("protocol is 9 rounds", |now| now.protocol.rounds = 3),
            ("peer is peer, and now it is cuBLASLt best", |now| {
                now.peer = Some("cuBLASLt best".into());
            }),
        ];
        for (part, change) in changes {
            let mut now = conditions(&old);
            change(&mut now);
            let message = Report::resume(&path, &now).unwrap_err().to_string();
            assert!(message.contains(part), "{part}: {message}");
        }

        let mut other = report();
        other.head.version = "0.0.1".into();
        other.write(&path).unwrap();
        let message = Report::resume(&path, &conditions(&old)).unwrap_err().to_string();
        assert!(message.contains("version of persistent-gemm is 0.0.1"), "{message}");
    }

    #[test]
    fn without_a_library_any_of_our_kernels_may_be_the_peer() {
        let old = report();
        let now = Conditions { peer: None, ..conditions(&old) };
        assert_eq!(old.difference(&now), None);
    }
}
