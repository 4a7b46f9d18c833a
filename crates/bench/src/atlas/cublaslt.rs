//! cuBLASLt as a [`Library`]: the algorithms of its heuristic are its candidates.

use std::sync::Arc;

use persistent_gemm::driver::StreamRef;
use persistent_gemm::measure::{Contestant, MeasureError};

use super::grid::Operands;
use super::library::{Candidate, Library, Runner};
use super::peer::FIRST_PICK;
use crate::cublaslt::{CublasLt, CublasLtPlan};
use crate::cublaslt_facts::{CublasLtCandidate, CublasLtVersion};
use crate::error::Result;

impl Library for CublasLt {
    fn name(&self) -> &'static str {
        FIRST_PICK
    }

    fn version(&self) -> String {
        format!("cuBLASLt {}", CublasLt::version(self))
    }

    fn cublaslt(&self) -> Option<CublasLtVersion> {
        Some(CublasLt::version(self))
    }

    fn place(&self) -> String {
        self.path().display().to_string()
    }

    fn candidates<'o>(&'o self, operands: &'o Operands<'o>) -> Result<Vec<Candidate<'o>>> {
        let plan = Arc::new(self.plan(operands.problem, operands.pool.elements(), 0)?);
        let candidate = |(rank, facts): (usize, &CublasLtCandidate)| {
            let algorithm = Algorithm { plan: Arc::clone(&plan), rank, operands };
            Candidate {
                rank: Some(rank),
                algorithm: Some(facts.algorithm()),
                details: serde_json::to_string(facts).ok(),
                runner: Runner::Here(Box::new(algorithm)),
            }
        };
        Ok(plan.candidates().iter().enumerate().map(candidate).collect())
    }
}

/// One of the heuristic's algorithms.
struct Algorithm<'a> {
    plan: Arc<CublasLtPlan>,
    rank: usize,
    operands: &'a Operands<'a>,
}

impl Contestant for Algorithm<'_> {
    fn name(&self) -> &str {
        FIRST_PICK
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let addresses = self.operands.pool.addresses(&self.operands.sets, set);
        // SAFETY: the addresses are those of matrices of the plan's problem, which outlive the
        // atlas's work; all of it is on this stream, and is waited for.
        Ok(unsafe { self.plan.enqueue(self.rank, &addresses, stream) }?)
    }
}
