//! Contestants whose operands are cut from an [`OperandPool`]: our kernels and cuBLASLt's.

use std::sync::Arc;

use persistent_gemm::driver::StreamRef;
use persistent_gemm::measure::{Contestant, MeasureError};
use persistent_gemm::{Gemm, Pointers, Prepared};
use pgemm_plan::Problem;

use crate::cublaslt::CublasLtPlan;
use crate::pool::{OperandPool, Sets};

/// The operands of one problem.
pub(crate) struct Operands<'a> {
    pub(crate) pool: &'a OperandPool,
    pub(crate) sets: Sets,
    pub(crate) problem: &'a Problem,
}

/// One of our kernels.
pub(crate) struct Ours<'a> {
    pub(crate) name: &'static str,
    pub(crate) gemm: &'a Gemm,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) operands: &'a Operands<'a>,
}

impl Contestant for Ours<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let at = self.operands.pool.addresses(&self.operands.sets, set);
        let pointers = Pointers::new(at.a, at.b, at.c, at.d);
        // SAFETY: the pool, on this device, holds the matrices of every set and outlives the work
        // of its users, which is waited for.
        Ok(unsafe { self.gemm.run_at(&self.prepared, &pointers, stream) }?)
    }
}

/// One of the algorithms of cuBLASLt's heuristic.
pub(crate) struct Algorithm<'a> {
    pub(crate) name: &'static str,
    pub(crate) plan: Arc<CublasLtPlan>,
    pub(crate) rank: usize,
    pub(crate) operands: &'a Operands<'a>,
}

impl Contestant for Algorithm<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let addresses = self.operands.pool.addresses(&self.operands.sets, set);
        // SAFETY: the addresses are those of matrices of the plan's problem, which outlive the
        // pool's users; all of their work is on this stream, and is waited for.
        Ok(unsafe { self.plan.enqueue(self.rank, &addresses, stream) }?)
    }
}
