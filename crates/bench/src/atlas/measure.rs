//! [`Atlas`]: measures problems quickly, one after the other: verifies each contestant on a grid of
//! D's elements, then times all of them together.

use std::sync::Arc;

use persistent_gemm::Gemm;
use persistent_gemm::measure::{Elements, Measurement, Protocol, measure};
use persistent_gemm::stats::Summary;
use persistent_gemm::tune::Picks;
use pgemm_plan::Config;
use serde::{Deserialize, Serialize};

use super::grid::{Density, Grid};
use super::judge::{Judge, Verdict};
use super::library::{Candidate, Runner};
use super::peer::{Peer, Pick};
use super::peers::Peers;
use super::population::{AtlasProblem, Population};
use super::regime::Regime;
use super::row::{AtlasPeer, AtlasRow, Fault, OURS};
use super::timer::Seats;
use crate::bench::Bench;
use crate::error::{BenchError, Result};
use crate::names::{choice_name, problem_name};
use crate::pool::Sets;
use crate::pooled::{Operands, Ours};

/// How the problems of an atlas are measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasOptions {
    /// Seconds of launches of each problem, warm-up included.
    pub seconds: f64,
}

/// Measures the problems of one set of element types on one device.
pub struct Atlas<'a> {
    judge: Judge<'a>,
    gemm: Gemm,
    options: AtlasOptions,
}

/// A contestant that computes a right result.
struct Entrant<'a> {
    library: &'static str,
    candidate: Candidate<'a>,
}

impl<'a> Atlas<'a> {
    /// Allocates operands for these problems. Tuned choices are not used.
    ///
    /// # Errors
    /// A knob of the config is impossible; driver errors.
    pub fn new(
        bench: &'a Bench,
        peers: &'a Peers,
        (config, elements): (Config, Elements),
        options: AtlasOptions,
        problems: &[AtlasProblem],
    ) -> Result<Atlas<'a>> {
        let device = bench.device();
        let mut bytes = [0; 3];
        for AtlasProblem { problem, .. } in problems {
            let sets = Sets::of(problem, elements, device.properties().l2_bytes)?;
            for (all, of_problem) in bytes.iter_mut().zip(sets.bytes()) {
                *all = of_problem.max(*all);
            }
        }
        let judge = Judge::new(bench, peers, elements, bytes)?;
        let gemm = Gemm::with_picks(device, config, Arc::new(Picks::default()))?;
        Ok(Atlas { judge, gemm, options })
    }

    /// Measures a problem.
    ///
    /// # Errors
    /// Errors of the device, after which nothing can be measured. A contestant that cannot run is
    /// not an error: the row says why.
    pub fn measure(&self, population: Population, at: &AtlasProblem) -> Result<AtlasRow> {
        let problem = &at.problem;
        let elements = self.judge.elements();
        let operands = self.judge.operands(problem)?;
        let mut row = AtlasRow {
            population,
            index: at.index,
            label: at.label.clone(),
            problem: problem_name(problem, elements),
            regime: Regime::of(problem, elements)?,
            launch: None,
            kernel: None,
            us: None,
            peers: Vec::new(),
            faults: Vec::new(),
        };
        let grid = Grid::new(&operands, Density::Usual)?;
        let ours = self.ours(&grid, &operands, &mut row)?;
        let theirs = self.theirs(&grid, &operands, &mut row.faults)?;
        if let Some(ours) = ours {
            let mut entrants = vec![ours];
            entrants.extend(theirs);
            let measurement = self.time(&mut entrants, operands.sets.count, &mut row.faults)?;
            row.launch = Some(measurement.launch);
            row.us = microseconds(&measurement, 0);
            let places: Vec<_> = entrants.iter().map(Entrant::place).collect();
            row.peers = results(&measurement, &places, self.judge.peers.wanted());
        }
        // The workspace of this problem is not needed again.
        self.gemm.trim()?;
        Ok(row)
    }

    /// Our kernel, if it computes a right result.
    fn ours<'o>(
        &'o self,
        grid: &Grid,
        operands: &'o Operands<'o>,
        row: &mut AtlasRow,
    ) -> Result<Option<Entrant<'o>>> {
        let prepared = match self.gemm.prepare(operands.problem) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.judge.survived()?;
                row.faults.push(not_run((OURS, None, None), &error.into()));
                return Ok(None);
            }
        };
        row.kernel = Some(choice_name(prepared.plan()));
        let runner =
            Runner::Here(Box::new(Ours { name: OURS, gemm: &self.gemm, prepared, operands }));
        let candidate = Candidate { rank: None, algorithm: None, details: None, runner };
        self.verified(OURS, candidate, (grid, operands), &mut row.faults)
    }

    /// The candidates of all libraries that compute right results: the first of a library, or all
    /// of them if the fastest is wanted.
    fn theirs<'o>(
        &'o self,
        grid: &Grid,
        operands: &'o Operands<'o>,
        faults: &mut Vec<Fault>,
    ) -> Result<Vec<Entrant<'o>>> {
        let mut right = Vec::new();
        for library in self.judge.peers.libraries() {
            let name = library.name();
            let candidates = match library.candidates(operands) {
                Ok(candidates) => candidates,
                Err(error) => {
                    faults.push(not_run((name, None, None), &error));
                    continue;
                }
            };
            for candidate in candidates {
                let entrant = self.verified(name, candidate, (grid, operands), faults)?;
                let is_right = entrant.is_some();
                right.extend(entrant);
                if is_right && !self.judge.peers.wants_all(name) {
                    break;
                }
            }
        }
        Ok(right)
    }

    /// The candidate, if it computes a right result. Otherwise the fault is noted.
    fn verified<'o>(
        &self,
        library: &'static str,
        mut candidate: Candidate<'o>,
        (grid, operands): (&Grid, &Operands<'_>),
        faults: &mut Vec<Fault>,
    ) -> Result<Option<Entrant<'o>>> {
        let verdict = self.judge.verdict(&mut candidate.runner, grid, operands)?;
        let entrant = Entrant { library, candidate };
        match verdict {
            Verdict::Right => return Ok(Some(entrant)),
            Verdict::Wrong(finding) => faults.push(fault(entrant.place(), true, &finding)),
            Verdict::NotRun(error) => faults.push(not_run(entrant.place(), &error)),
        }
        Ok(None)
    }

    /// Times all of them. One of another process that fails meanwhile is noted, and the others are
    /// timed without it.
    fn time(
        &self,
        entrants: &mut Vec<Entrant<'_>>,
        sets: usize,
        faults: &mut Vec<Fault>,
    ) -> Result<Measurement> {
        loop {
            let protocol = Protocol::quick(self.options.seconds, entrants.len());
            let mut seats = Seats::default();
            for entrant in entrants.iter_mut() {
                seats.add(&mut entrant.candidate.runner);
            }
            let mut timer = seats.timer(self.judge.bench, sets)?;
            let error = match measure(&mut timer, &protocol) {
                Ok(measurement) => return Ok(measurement),
                Err(error) => BenchError::from(error),
            };
            let Some(failed) = timer.failed() else { return Err(error) };
            faults.push(not_run(entrants.remove(failed).place(), &error));
        }
    }
}

/// A library, the rank of its candidate, and what runs.
type Place<'a> = (&'static str, Option<usize>, Option<&'a str>);

impl Entrant<'_> {
    fn place(&self) -> Place<'_> {
        (self.library, self.candidate.rank, self.candidate.algorithm.as_deref())
    }
}

fn fault((who, rank, algorithm): Place<'_>, wrong: bool, why: &impl ToString) -> Fault {
    let (who, algorithm) = (who.to_owned(), algorithm.map(str::to_owned));
    Fault { who, rank, algorithm, wrong, refused: false, why: why.to_string() }
}

fn not_run(place: Place<'_>, error: &BenchError) -> Fault {
    Fault { refused: error.is_refusal(), ..fault(place, false, error) }
}

/// Median microseconds of a contestant's product.
fn microseconds(measurement: &Measurement, contestant: usize) -> Option<f64> {
    let seconds = Summary::of(&measurement.seconds_per_gemm(contestant))?;
    Some(rounded(seconds.median * 1e6))
}

/// Five significant digits: more than a measurement of this kind has.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// What was measured of each peer. Contestant 0 is ours, and the candidates of libraries are in
/// their libraries' order.
fn results(measurement: &Measurement, contestants: &[Place<'_>], peers: &[Peer]) -> Vec<AtlasPeer> {
    let result = |peer: &Peer| {
        let of_library = contestants.iter().enumerate().filter(|(_, of)| of.0 == peer.library());
        let mut timed = of_library
            .filter_map(|(index, &place)| Some((index, place, microseconds(measurement, index)?)));
        let (index, (_, rank, algorithm), us) = match peer.pick() {
            Pick::First => timed.next(),
            Pick::Fastest => timed.min_by(|a, b| a.2.total_cmp(&b.2)),
        }?;
        let ratio = Summary::of(&measurement.ratios(0, index))?;
        Some(AtlasPeer {
            name: peer.name().to_owned(),
            rank,
            algorithm: algorithm.map(str::to_owned),
            us,
            ratio: [ratio.min, ratio.median, ratio.max].map(rounded),
        })
    };
    peers.iter().filter_map(result).collect()
}

#[cfg(test)]
mod tests {
    use persistent_gemm::measure::{LaunchMode, Slice};

    use super::super::peer::{FASTEST, FIRST_PICK, TORCH};
    use super::*;
    use crate::worker::WorkerError;

    /// One round of ten GEMMs, in which the contestants took these times.
    fn measurement(seconds: &[f64]) -> Measurement {
        let slice = |(contestant, &seconds): (usize, &f64)| Slice {
            contestant,
            gemms: 10,
            seconds,
            state: Default::default(),
        };
        Measurement {
            launch: LaunchMode::Graph,
            gemms_per_slice: vec![10; seconds.len()],
            warm_up_seconds: 0.0,
            settled: None,
            rounds: vec![seconds.iter().enumerate().map(slice).collect()],
            energy_blocks: vec![],
        }
    }

    #[test]
    fn the_first_right_candidate_is_the_peer_and_the_fastest_its_best() {
        let measurement = measurement(&[2e-4, 3e-4, 1e-4, 4e-4]);
        let contestants = [
            (OURS, None, None),
            (FIRST_PICK, Some(1), Some("66/20/36/3/1")),
            (FIRST_PICK, Some(4), Some("67/20/36/3/1")),
            (TORCH, None, Some("torch.matmul")),
        ];
        let peers = results(&measurement, &contestants, &Peer::ALL);
        let [first, fastest, torch] = &peers[..] else { panic!("{peers:?}") };
        assert_eq!((first.name.as_str(), first.rank, first.us), (FIRST_PICK, Some(1), 30.0));
        assert_eq!((fastest.name.as_str(), fastest.rank, fastest.us), (FASTEST, Some(4), 10.0));
        assert_eq!((torch.name.as_str(), torch.rank, torch.us), (TORCH, None, 40.0));
        assert_eq!([first, fastest, torch].map(|peer| peer.ratio), [[1.5; 3], [0.5; 3], [2.0; 3]]);
        assert_eq!(first.algorithm.as_deref(), Some("66/20/36/3/1"));
        assert_eq!(microseconds(&measurement, 0), Some(20.0));
        let asked = results(&measurement, &contestants[..2], &[Peer::CublasLtBest, Peer::Torch]);
        assert_eq!(asked.len(), 1, "{asked:?}");
    }

    #[test]
    fn a_refusal_is_no_failure_and_neither_is_a_wrong_result() {
        let of = |error: WorkerError| not_run((TORCH, None, None), &error.into());
        let refused = of(WorkerError::Refused("no such types".into()));
        let failed = of(WorkerError::Failed("out of memory".into()));
        assert_eq!((refused.wrong, refused.refused), (false, true));
        assert_eq!((failed.wrong, failed.refused), (false, false));
        assert_eq!((refused.why.as_str(), failed.why.as_str()), ("no such types", "out of memory"));
    }
}
