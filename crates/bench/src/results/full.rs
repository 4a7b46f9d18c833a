//! Rows of the reports that commands write.

use persistent_gemm::head::Head;
use persistent_gemm::measure::Elements;
use persistent_gemm::stats::Summary;
use persistent_gemm::tune;
use serde_json::Value;

use super::{
    ErrorRow, ErrorsOf, MethodRow, PeerRow, ProblemRow, Reader, Run, Spread, StreamRow, TunedRow,
    types_of,
};
use crate::atlas::{AtlasFile, AtlasPeer};
use crate::machine::Machine;
use crate::names::{parsed_name, problem_name};
use crate::numbers::NumbersReport;
use crate::outcome::{ContestantSummary, Outcome};
use crate::report::Report;
use crate::roofline::RooflineReport;

impl Run {
    fn new(name: String, head: &Head, machine: Option<&Machine>) -> Run {
        let run = Run {
            name,
            kind: Some(head.kind),
            date: head.date.clone(),
            command: head.command.join(" "),
            version: Some(head.version.clone()),
            ..Run::default()
        };
        let Some(machine) = machine else { return run };
        Run {
            device: Some(machine.device.clone()),
            driver: machine.driver.clone(),
            cuda: Some(machine.cuda.clone()),
            cublaslt: machine.cublaslt.map(|version| version.to_string()),
            power_limit_watts: machine.power_limit_watts,
            ..run
        }
    }
}

fn spread(summary: &Summary) -> Spread {
    [summary.min, summary.median, summary.max]
}

impl Reader {
    pub(super) fn add_report(&mut self, name: String, report: &Report) {
        let run = self.add_run(Run::new(name, &report.head, Some(&report.machine)));
        for outcome in &report.outcomes {
            let row = self.outcome_row(run, outcome);
            self.collection.problems.extend(row);
        }
        self.collection.streams.extend(report.streams.iter().map(|stream| StreamRow {
            run,
            problem: stream.name.clone(),
            count: stream.count,
            operations: stream.problem.operations().unwrap_or(0),
            methods: stream.methods.iter().map(MethodRow::of).collect(),
        }));
    }

    /// The row of the planner's pick, which is our first contestant. `None` without one.
    fn outcome_row(&self, run: usize, outcome: &Outcome) -> Option<ProblemRow> {
        let contestants = &outcome.contestants;
        let (ours, ours_is_peer) = match contestants.get(outcome.peer)? {
            peer if is_ours(peer) => (peer, true),
            _ => (contestants.iter().find(|contestant| is_ours(contestant))?, false),
        };
        let peers = match ours_is_peer {
            true => Vec::new(),
            false => {
                let peer = contestants.get(outcome.peer)?;
                vec![PeerRow {
                    name: peer.name.clone(),
                    us: peer.microseconds.median,
                    ratio: spread(&ours.ratio),
                    joules: peer.joules.map(|joules| joules.median),
                    algorithm: None,
                }]
            }
        };
        Some(ProblemRow {
            launch: Some(outcome.launch().name().to_owned()),
            kernel: kernel_of(&ours.details),
            us: Some(ours.microseconds.median),
            joules: ours.joules.map(|joules| joules.median),
            mhz: ours.sm_clock_mhz,
            peers,
            ..self.row(run, &outcome.name, &outcome.problem, outcome.elements)
        })
    }

    pub(super) fn add_atlas(&mut self, name: String, atlas: &AtlasFile) {
        let head = &atlas.head;
        let run = self.add_run(Run::new(name, &head.run, Some(&head.machine)));
        for row in &atlas.rows {
            let Some((problem, elements)) = parsed_name(&row.problem) else { continue };
            let row = ProblemRow {
                group: row.population.name().to_owned(),
                regime: Some(row.regime),
                launch: row.launch.map(|launch| launch.name().to_owned()),
                kernel: row.kernel.clone(),
                label: row.label.clone(),
                us: row.us,
                peers: row.peers.iter().map(PeerRow::of).collect(),
                faults: row.faults.clone(),
                ..self.row(run, &row.problem, &problem, elements)
            };
            self.collection.problems.push(row);
        }
    }

    pub(super) fn add_numbers(&mut self, name: String, report: &NumbersReport) {
        let run = self.add_run(Run::new(name, &report.head, report.machine.as_ref()));
        self.collection.errors.extend(report.entries.iter().map(|entry| {
            ErrorRow {
                run,
                problem: entry.name.clone(),
                types: types_of(&entry.name).to_owned(),
                values: entry.values.name().to_owned(),
                results: entry
                    .results
                    .iter()
                    .map(|measured| ErrorsOf {
                        name: measured.name.clone(),
                        normwise: measured.errors.normwise,
                        elementwise: measured.errors.elementwise,
                        bias: measured.errors.bias,
                        of_bound: measured.errors.of_bound,
                        within_bound: measured.errors.within_bound,
                        not_finite: Some(measured.errors.overflowed + measured.errors.not_a_number),
                    })
                    .collect(),
            }
        }));
    }

    #[cfg(feature = "peers")]
    pub(super) fn add_regression(&mut self, name: String, report: &crate::RegressionReport) {
        let run = self.add_run(Run::new(name, &report.head, Some(&report.machine)));
        let rows = report.compared.iter().map(|row| {
            let us = [row.old_microseconds, row.new_microseconds];
            super::ComparisonRow::new(run, &row.problem, us, spread(&row.ratio))
        });
        self.collection.comparisons.extend(rows);
    }

    pub(super) fn add_roofline(&mut self, name: String, report: &RooflineReport) {
        let run = self.add_run(Run::new(name, &report.head, Some(&report.machine)));
        (self.ceilings, self.ceilings_run) = (report.medians(), Some(run));
    }

    pub(super) fn add_tuned(&mut self, name: String, results: &tune::Results) {
        let platform = &results.platform;
        let run = self.add_run(Run {
            device: Some(platform.device.clone()),
            driver: platform.driver.clone(),
            cuda: Some(platform.cuda.clone()),
            ..Run::new(name, &results.head, None)
        });
        self.collection.tuned.extend(results.problems.iter().map(|result| {
            let problem = problem_name(&result.key.problem(), Elements::of(&result.key));
            TunedRow {
                run,
                types: types_of(&problem).to_owned(),
                problem,
                m: result.key.m,
                n: result.key.n,
                k: result.key.k,
                picked: result.heuristic.to_string(),
                chosen: result.chosen.to_string(),
                ratio: result.finalist.as_ref().map(|finalist| {
                    [finalist.interval.lower, finalist.ratio, finalist.interval.upper]
                }),
                trials: result.trials.iter().filter(|trial| !trial.rungs.is_empty()).count(),
            }
        }));
    }
}

impl PeerRow {
    fn of(peer: &AtlasPeer) -> PeerRow {
        PeerRow {
            name: peer.name.clone(),
            us: peer.us,
            ratio: peer.ratio,
            joules: None,
            algorithm: peer.algorithm.clone(),
        }
    }
}

impl MethodRow {
    fn of(times: &crate::MethodTimes) -> MethodRow {
        MethodRow {
            contestant: times.contestant.clone(),
            method: times.method,
            us: spread(&times.microseconds),
        }
    }
}

/// Whether a contestant is a kernel of this library: its details are a plan.
fn is_ours(contestant: &ContestantSummary) -> bool {
    contestant.details.get("spec").is_some()
}

/// The kernel of a plan in JSON, as `--also` of `pgemm bench` takes it.
fn kernel_of(plan: &Value) -> Option<String> {
    let mut name = plan.get("spec")?.as_str()?.to_owned();
    let split = match plan.get("split") {
        Some(Value::Object(split)) => format!("split-{}", split.get("split_k")?),
        Some(split) => split.as_str()?.replace('_', "-"),
        None => "whole".to_owned(),
    };
    name += &format!(":{split}:{}", plan.get("raster_rows")?);
    Some(match plan.get("dependent_launch").and_then(Value::as_bool) {
        Some(true) => name + ":dependent",
        Some(false) => name + ":serial",
        None => name,
    })
}
