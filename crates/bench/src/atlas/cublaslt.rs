//! cuBLASLt as a [`Library`]: the algorithms of its heuristic are its candidates.

use std::sync::Arc;

use super::library::{Candidate, Library, Runner};
use super::peer::FIRST_PICK;
use crate::cublaslt::CublasLt;
use crate::cublaslt_facts::{CublasLtCandidate, CublasLtVersion};
use crate::error::Result;
use crate::pooled::{Algorithm, Operands};

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
            let algorithm = Algorithm { name: FIRST_PICK, plan: Arc::clone(&plan), rank, operands };
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
