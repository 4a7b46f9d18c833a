//! [`Atlas`]: measures problems quickly, one after the other: verifies each contestant on a grid of
//! D's elements, then times all of them together.

use std::sync::Arc;

use persistent_gemm::driver::StreamRef;
use persistent_gemm::measure::{
    Contestant, Elements, MeasureError, Measurement, Protocol, SliceTimer, measure,
};
use persistent_gemm::stats::Summary;
use persistent_gemm::tune::Picks;
use persistent_gemm::{Gemm, Pointers, Prepared};
use pgemm_plan::Config;
use serde::{Deserialize, Serialize};

use super::grid::{Grid, Operands};
use super::population::{AtlasProblem, Population};
use super::regime::Regime;
use super::row::{AtlasPeer, AtlasRow, FASTEST, FIRST_PICK, Fault, OURS};
use crate::bench::Bench;
use crate::cublaslt::{CublasLt, CublasLtPlan};
use crate::error::Result;
use crate::names::{choice_name, problem_name};
use crate::pool::{OperandPool, Sets};

/// How the problems of an atlas are measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasOptions {
    /// Seconds of launches of each problem, warm-up included.
    pub seconds: f64,
    /// Whether all of cuBLASLt's candidates take part, to find the fastest.
    pub best: bool,
}

/// Measures the problems of one set of element types on one device.
pub struct Atlas<'a> {
    bench: &'a Bench,
    peer: Option<&'a CublasLt>,
    gemm: Gemm,
    options: AtlasOptions,
    pool: OperandPool,
}

impl<'a> Atlas<'a> {
    /// Allocates operands for these problems. Tuned choices are not used.
    ///
    /// # Errors
    /// A knob of the config is impossible; driver errors.
    pub fn new(
        bench: &'a Bench,
        peer: Option<&'a CublasLt>,
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
        let pool = OperandPool::new(device, elements, bytes, bench.stream())?;
        let gemm = Gemm::with_picks(device, config, Arc::new(Picks::default()))?;
        Ok(Atlas { bench, peer, gemm, options, pool })
    }

    /// Measures a problem.
    ///
    /// # Errors
    /// Errors of the device, after which nothing can be measured. A contestant that cannot run is
    /// not an error: the row says why.
    pub fn measure(&self, population: Population, at: &AtlasProblem) -> Result<AtlasRow> {
        let problem = &at.problem;
        let elements = self.pool.elements();
        let l2_bytes = self.bench.device().properties().l2_bytes;
        let operands =
            Operands { pool: &self.pool, sets: Sets::of(problem, elements, l2_bytes)?, problem };
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
        let grid = Grid::new(&operands)?;
        let mut ours = match self.gemm.prepare(problem) {
            Ok(prepared) => {
                row.kernel = Some(choice_name(prepared.plan()));
                let ours = Ours { gemm: &self.gemm, prepared, operands: &operands };
                self.verified(ours, &grid, &operands, &mut row.faults)?
            }
            Err(error) => {
                self.survived()?;
                row.faults.push(Fault { who: OURS.into(), wrong: false, why: error.to_string() });
                None
            }
        };
        let mut theirs = self.theirs(&grid, &operands, &mut row.faults)?;

        let ranks: Vec<usize> = theirs.iter().map(|candidate| candidate.rank).collect();
        let mut everybody: Vec<&mut dyn Contestant> = Vec::new();
        everybody.extend(ours.as_mut().map(|ours| ours as &mut dyn Contestant));
        let own = everybody.len();
        everybody.extend(theirs.iter_mut().map(|candidate| candidate as &mut dyn Contestant));
        if everybody.is_empty() {
            return Ok(row);
        }
        let protocol = Protocol::quick(self.options.seconds, everybody.len());
        let mut timer = SliceTimer::new(self.bench, &mut everybody, operands.sets.count)?;
        let measurement = measure(&mut timer, &protocol)?;
        row.launch = Some(measurement.launch);
        if own > 0 {
            row.us = microseconds(&measurement, 0);
            row.peers = peers(&measurement, &ranks, self.options.best);
        }
        drop(timer);
        // The workspace of this problem is not needed again.
        self.gemm.trim()?;
        Ok(row)
    }

    /// cuBLASLt's candidates that compute right results: its first, or all of them if the fastest
    /// is wanted.
    fn theirs<'o>(
        &self,
        grid: &Grid,
        operands: &'o Operands<'o>,
        faults: &mut Vec<Fault>,
    ) -> Result<Vec<Theirs<'o>>> {
        let Some(library) = self.peer else { return Ok(Vec::new()) };
        let plan = match library.plan(operands.problem, operands.pool.elements(), 0) {
            Ok(plan) => Arc::new(plan),
            Err(error) => {
                let who = FIRST_PICK.to_owned();
                faults.push(Fault { who, wrong: false, why: error.to_string() });
                return Ok(Vec::new());
            }
        };
        let mut right = Vec::new();
        for rank in 0..plan.candidates().len() {
            let name = format!("{FIRST_PICK} #{rank}");
            let candidate = Theirs { plan: Arc::clone(&plan), rank, name, operands };
            right.extend(self.verified(candidate, grid, operands, faults)?);
            if !right.is_empty() && !self.options.best {
                break;
            }
        }
        Ok(right)
    }

    /// The contestant, if it computes a right result. Otherwise the fault is noted.
    fn verified<C: Contestant>(
        &self,
        mut contestant: C,
        grid: &Grid,
        operands: &Operands<'_>,
        faults: &mut Vec<Fault>,
    ) -> Result<Option<C>> {
        let stream = self.bench.stream();
        let set = operands.sets.count - 1;
        operands.pool.poison(&operands.sets, set, stream)?;
        let (wrong, why) = match contestant.enqueue(set, stream) {
            Ok(()) => match grid.finding(operands, stream)? {
                Some(finding) => (true, finding),
                None => return Ok(Some(contestant)),
            },
            Err(error) => {
                self.survived()?;
                (false, error.to_string())
            }
        };
        faults.push(Fault { who: contestant.name().to_owned(), wrong, why });
        Ok(None)
    }

    /// An error if the device no longer works. A kernel that has broken the context has broken it
    /// for all.
    fn survived(&self) -> Result<()> {
        Ok(self.bench.stream().synchronize()?)
    }
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

/// The first of the peer's candidates and, if it is wanted, the fastest. Ours is contestant 0, and
/// the candidates of these ranks follow.
fn peers(measurement: &Measurement, ranks: &[usize], best: bool) -> Vec<AtlasPeer> {
    let all: Vec<AtlasPeer> = ranks
        .iter()
        .enumerate()
        .filter_map(|(index, &rank)| {
            let ratio = Summary::of(&measurement.ratios(0, index + 1))?;
            Some(AtlasPeer {
                name: FIRST_PICK.to_owned(),
                rank,
                us: microseconds(measurement, index + 1)?,
                ratio: [ratio.min, ratio.median, ratio.max].map(rounded),
            })
        })
        .collect();
    let fastest = all.iter().min_by(|a, b| a.us.total_cmp(&b.us)).filter(|_| best);
    let fastest = fastest.map(|peer| AtlasPeer { name: FASTEST.to_owned(), ..peer.clone() });
    all.first().cloned().into_iter().chain(fastest).collect()
}

/// Our kernel.
struct Ours<'a> {
    gemm: &'a Gemm,
    prepared: Arc<Prepared>,
    operands: &'a Operands<'a>,
}

impl Contestant for Ours<'_> {
    fn name(&self) -> &str {
        OURS
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let at = self.operands.pool.addresses(&self.operands.sets, set);
        let pointers = Pointers::new(at.a, at.b, at.c, at.d);
        // SAFETY: the pool, on this device, holds the matrices of every set and outlives the work
        // of the atlas, which is waited for.
        Ok(unsafe { self.gemm.run_at(&self.prepared, &pointers, stream) }?)
    }
}

/// One of cuBLASLt's candidates.
struct Theirs<'a> {
    plan: Arc<CublasLtPlan>,
    rank: usize,
    name: String,
    operands: &'a Operands<'a>,
}

impl Contestant for Theirs<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let addresses = self.operands.pool.addresses(&self.operands.sets, set);
        // SAFETY: the addresses are those of matrices of the plan's problem, which outlive the
        // atlas's work; all of it is on this stream, and is waited for.
        Ok(unsafe { self.plan.enqueue(self.rank, &addresses, stream) }?)
    }
}

#[cfg(test)]
mod tests {
    use persistent_gemm::measure::LaunchMode;

    use super::*;

    #[test]
    fn the_first_right_candidate_is_the_peer_and_the_fastest_its_best() {
        let slice = |contestant, seconds| persistent_gemm::measure::Slice {
            contestant,
            gemms: 10,
            seconds,
            state: Default::default(),
        };
        let measurement = Measurement {
            launch: LaunchMode::Graph,
            gemms_per_slice: vec![10; 3],
            warm_up_seconds: 0.0,
            settled: None,
            rounds: vec![vec![slice(0, 2e-4), slice(1, 3e-4), slice(2, 1e-4)]],
            energy_blocks: vec![],
        };
        let peers = peers(&measurement, &[1, 4], true);
        let [first, fastest] = &peers[..] else { panic!("{peers:?}") };
        assert_eq!((first.name.as_str(), first.rank, first.us), (FIRST_PICK, 1, 30.0));
        assert_eq!((fastest.name.as_str(), fastest.rank, fastest.us), (FASTEST, 4, 10.0));
        assert_eq!((first.ratio, fastest.ratio), ([1.5; 3], [0.5; 3]));
        assert_eq!(microseconds(&measurement, 0), Some(20.0));
    }
}
