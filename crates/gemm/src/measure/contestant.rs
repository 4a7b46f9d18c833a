//! [`Contestant`]: something that computes the product of operand sets, and our own GEMM as one.

use std::sync::Arc;

use pgemm_kernels::Epilogue;
use pgemm_plan::{Plan, Split};

use super::error::Result;
use super::operands::OperandSets;
use crate::driver::StreamRef;
use crate::gemm::{Gemm, Prepared};
use crate::work::Pointers;

/// Something that computes the product of the operand sets it was made for.
pub trait Contestant {
    /// The name in reports.
    fn name(&self) -> &str;

    /// Details of what runs: a spec and plan, or a library's algorithm. Reports contain them
    /// unchanged.
    fn details(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// The epilogue that it computes where `requested` is wanted: a library may have less.
    fn epilogue(&self, requested: Epilogue) -> Epilogue {
        requested
    }

    /// The additional error allowed beyond the bound, because the contestant's activation is a
    /// different approximation.
    fn slack(&self) -> f64 {
        0.0
    }

    /// Enqueues one GEMM on the operands of `set`. It must not wait for the stream, and after its
    /// first call on a set not allocate or load code either: it is also called while the stream is
    /// captured.
    ///
    /// # Errors
    /// An error of the enqueue. The benchmark ends with it.
    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<()>;
}

/// A prepared [`Gemm`] on operand sets.
pub struct GemmContestant {
    gemm: Gemm,
    prepared: Arc<Prepared>,
    operands: Arc<OperandSets>,
    name: String,
}

impl GemmContestant {
    /// Prepares `gemm` for the problem of `operands`.
    ///
    /// # Errors
    /// The errors of [`Gemm::prepare`].
    pub fn new(gemm: &Gemm, operands: &Arc<OperandSets>) -> Result<Self> {
        let prepared = gemm.prepare(operands.problem())?;
        let plan = prepared.plan();
        let Plan { spec, raster_rows, split, dependent_launch, .. } = plan;
        let name = match (split, dependent_launch) {
            (Split::Whole, true) => spec.to_string(),
            (_, true) => format!("{spec}:{split}"),
            (_, false) => format!("{spec}:{split}:{raster_rows}:serial"),
        };
        Ok(GemmContestant { gemm: gemm.clone(), prepared, operands: operands.clone(), name })
    }

    /// The same contestant with another name than that of its kernel.
    pub fn named(self, name: String) -> GemmContestant {
        GemmContestant { name, ..self }
    }

    /// The plan of the contestant.
    pub fn plan(&self) -> &Plan {
        self.prepared.plan()
    }
}

impl Contestant for GemmContestant {
    fn name(&self) -> &str {
        &self.name
    }

    fn details(&self) -> serde_json::Value {
        let plan = self.prepared.plan();
        // A plan holds numbers and texts only, which always have a JSON form.
        let mut details = serde_json::to_value(plan).unwrap_or_default();
        if let Some(details) = details.as_object_mut() {
            details.insert("swapped".into(), plan.swapped().into());
            details.insert("workspace_bytes".into(), self.prepared.workspace_bytes().into());
        }
        details
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<()> {
        let addresses = self.operands.addresses(set)?;
        let pointers = Pointers::new(addresses.a, addresses.b, addresses.c, addresses.d);
        let pointers = pointers.with_bias(addresses.bias);
        // SAFETY: the operand sets lie on this device as their problem says and live as long as
        // this contestant; the harness uses a stream of the same device and waits for it before it
        // drops them.
        Ok(unsafe { self.gemm.run_at(&self.prepared, &pointers, stream) }?)
    }
}
