//! cuBLASLt as a contestant.

use std::sync::Arc;

use persistent_gemm::driver::StreamRef;
use persistent_gemm::measure::{Contestant, MeasureError, OperandSets};
use pgemm_kernels::Epilogue;

use crate::cublaslt::{CublasLt, CublasLtPlan};
use crate::error::Result;

/// cuBLASLt with one of its heuristic's algorithms.
#[derive(Clone, Debug)]
pub struct CublasLtContestant {
    plan: Arc<CublasLtPlan>,
    operands: Arc<OperandSets>,
    rank: usize,
    name: String,
    version: String,
}

impl CublasLtContestant {
    /// The heuristic's first pick, which programs that call cuBLAS get.
    ///
    /// # Errors
    /// The errors of [`CublasLt::plan`].
    pub fn first_pick(
        cublaslt: &CublasLt,
        operands: &Arc<OperandSets>,
    ) -> Result<CublasLtContestant> {
        let plan = Arc::new(cublaslt.plan(
            operands.problem(),
            operands.elements(),
            operands.bias_address(),
        )?);
        Ok(Self::of(cublaslt, &plan, operands, 0).named("cuBLASLt"))
    }

    /// Every algorithm that the heuristic returns, its first pick first.
    ///
    /// # Errors
    /// The errors of [`CublasLt::plan`].
    pub fn all(
        cublaslt: &CublasLt,
        operands: &Arc<OperandSets>,
    ) -> Result<Vec<CublasLtContestant>> {
        let plan = Arc::new(cublaslt.plan(
            operands.problem(),
            operands.elements(),
            operands.bias_address(),
        )?);
        let ranks = 0..plan.candidates().len();
        Ok(ranks.map(|rank| Self::of(cublaslt, &plan, operands, rank)).collect())
    }

    /// The algorithm at this place of the heuristic's order.
    pub(crate) fn of(
        cublaslt: &CublasLt,
        plan: &Arc<CublasLtPlan>,
        operands: &Arc<OperandSets>,
        rank: usize,
    ) -> CublasLtContestant {
        CublasLtContestant {
            plan: Arc::clone(plan),
            operands: Arc::clone(operands),
            rank,
            name: format!("cuBLASLt #{rank}"),
            version: cublaslt.version().to_string(),
        }
    }

    /// The same contestant with another name.
    pub fn named(self, name: &str) -> CublasLtContestant {
        CublasLtContestant { name: name.to_owned(), ..self }
    }

    /// Place of its algorithm in the heuristic's order.
    pub fn rank(&self) -> usize {
        self.rank
    }
}

impl Contestant for CublasLtContestant {
    fn name(&self) -> &str {
        &self.name
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({
            "library": format!("cuBLASLt {}", self.version),
            "candidates": self.plan.candidates().len(),
            "algorithm": self.plan.candidates().get(self.rank),
            "epilogue": self.plan.epilogue(),
        })
    }

    fn epilogue(&self, _: Epilogue) -> Epilogue {
        self.plan.epilogue()
    }

    fn slack(&self) -> f64 {
        self.plan.slack()
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let addresses = self.operands.addresses(set)?;
        // SAFETY: the plan was made for these operands, which live as long as `self`; freeing
        // device memory waits for the work that uses it.
        Ok(unsafe { self.plan.enqueue(self.rank, &addresses, stream) }?)
    }
}
