//! [`Judge`]: says whether a contestant computes the right D.

use persistent_gemm::measure::Elements;
use pgemm_plan::Problem;

use super::finding::Finding;
use super::grid::Grid;
use super::library::Runner;
use super::peers::Peers;
use crate::bench::Bench;
use crate::error::{BenchError, Result};
use crate::pool::{OperandPool, Sets};
use crate::pooled::Operands;

/// A device with operands, and the peers that compute products of them.
pub(super) struct Judge<'a> {
    pub(super) bench: &'a Bench,
    pub(super) peers: &'a Peers,
    pool: OperandPool,
}

/// What a contestant did.
pub(super) enum Verdict {
    /// It computed the right D.
    Right,
    /// It computed something else.
    Wrong(Finding),
    /// It did not run.
    NotRun(BenchError),
}

impl<'a> Judge<'a> {
    /// Allocates so many bytes for A, B and D.
    pub(super) fn new(
        bench: &'a Bench,
        peers: &'a Peers,
        elements: Elements,
        bytes: [usize; 3],
    ) -> Result<Judge<'a>> {
        let pool = OperandPool::new(bench.device(), elements, bytes, bench.stream())?;
        Ok(Judge { bench, peers, pool })
    }

    /// The element types.
    pub(super) fn elements(&self) -> Elements {
        self.pool.elements()
    }

    /// The operands of a problem.
    pub(super) fn operands<'o>(&'o self, problem: &'o Problem) -> Result<Operands<'o>> {
        let l2_bytes = self.bench.device().properties().l2_bytes;
        let sets = Sets::of(problem, self.elements(), l2_bytes)?;
        Ok(Operands { pool: &self.pool, sets, problem })
    }

    /// Runs a contestant once.
    ///
    /// # Errors
    /// Errors of the device, after which nothing more can be computed on it.
    pub(super) fn verdict(
        &self,
        runner: &mut Runner<'_>,
        grid: &Grid,
        operands: &Operands<'_>,
    ) -> Result<Verdict> {
        let stream = self.bench.stream();
        let sample = match runner {
            Runner::Here(contestant) => {
                let set = operands.sets.count - 1;
                operands.pool.poison(&operands.sets, set, stream)?;
                if let Err(error) = contestant.enqueue(set, stream) {
                    self.survived()?;
                    return Ok(Verdict::NotRun(error.into()));
                }
                grid.sample(operands, stream)?
            }
            Runner::Elsewhere(remote) => match remote.sample(grid) {
                Ok(sample) => sample,
                Err(error) => return Ok(Verdict::NotRun(error)),
            },
        };
        Ok(grid.finding(&sample)?.map_or(Verdict::Right, Verdict::Wrong))
    }

    /// An error if the device no longer works. A kernel that has broken the context has broken it
    /// for all.
    pub(super) fn survived(&self) -> Result<()> {
        Ok(self.bench.stream().synchronize()?)
    }
}
