//! Runs at device addresses: the addresses are checked, the arguments patched, and the launches
//! enqueued.

use std::sync::Arc;

use pgemm_kernels::{TMA_ALIGN_BYTES, Workspace};
use pgemm_plan::{OperandAccess, Problem};

use super::prepared::{PatchedArguments, PlanKey, Prepared, alignment};
use super::{CallerWorkspace, Gemm, lock};
use crate::driver::{self, StreamRef};
use crate::error::{Error, Result};
use crate::work::Pointers;

/// The problem that a run computes, or a prepared problem, which needs no lookup.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    what: RequestTarget<'a>,
    workspace: Option<CallerWorkspace>,
}

#[derive(Clone, Copy)]
enum RequestTarget<'a> {
    Problem(&'a Problem),
    Prepared(&'a Prepared, [f64; 2]),
}

impl<'a> RunRequest<'a> {
    /// A prepared problem with these scalars in place of its own.
    pub fn prepared(prepared: &'a Prepared, alpha: f64, beta: f64) -> Self {
        RunRequest { what: RequestTarget::Prepared(prepared, [alpha, beta]), workspace: None }
    }

    /// Runs with a workspace of the caller that has
    /// [`workspace_required_bytes`](Prepared::workspace_required_bytes). Its content does not
    /// matter, because the counters are zeroed on the stream before each launch. Nothing is
    /// allocated. If operands are not aligned to 16 bytes, the problem should be prepared for their
    /// addresses ([`Preparation::at`](super::Preparation::at)); otherwise the run may need a larger
    /// workspace.
    pub fn with_workspace(self, workspace: CallerWorkspace) -> Self {
        RunRequest { workspace: Some(workspace), ..self }
    }
}

impl<'a> From<&'a Problem> for RunRequest<'a> {
    fn from(problem: &'a Problem) -> Self {
        RunRequest { what: RequestTarget::Problem(problem), workspace: None }
    }
}

/// The prepared problem with the scalars of its preparation.
impl<'a> From<&'a Prepared> for RunRequest<'a> {
    fn from(prepared: &'a Prepared) -> Self {
        RunRequest::prepared(prepared, prepared.problem().alpha, prepared.problem().beta)
    }
}

/// The same as for a reference to the prepared problem.
impl<'a> From<&'a Arc<Prepared>> for RunRequest<'a> {
    fn from(prepared: &'a Arc<Prepared>) -> Self {
        RunRequest::from(&**prepared)
    }
}

impl Gemm {
    /// Enqueues D = alpha·A·B + beta·C, with the config's epilogue, for matrices at addresses, and
    /// returns. The problem is prepared first if necessary, also if the operands are less aligned
    /// than those it was prepared for. Then addresses and scalars are patched and the kernels
    /// launched.
    ///
    /// If the plan splits tiles along k or repacks operands, the first run on a stream or in a
    /// capture needs a workspace. It takes the one that [`prepare`](Self::prepare) created, or
    /// allocates one and waits until its counters are zeroed. This is allowed during a capture. No
    /// other run of a prepared problem allocates or waits.
    ///
    /// ```no_run
    /// # use persistent_gemm::driver::StreamRef;
    /// # use persistent_gemm::{Error, Gemm, Pointers, Problem, RunRequest};
    /// # unsafe fn run(gemm: &Gemm, problem: &Problem, at: &Pointers, stream: StreamRef<'_>) -> Result<(), Error> {
    /// unsafe { gemm.run_at(problem, at, stream) }?;
    /// let prepared = gemm.prepare(problem)?;
    /// let (alpha, beta) = (2.0, 0.0);
    /// unsafe { gemm.run_at(RunRequest::prepared(&prepared, alpha, beta), at, stream) }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`prepare`](Self::prepare). An address that is null or no multiple of an
    /// element's size. [`Error::CaptureUnprepared`] if the stream is being captured and the problem
    /// was not prepared for such addresses. [`Error::PreparedWithoutC`] if beta is not 0 and was
    /// when the problem was prepared. Scalars of an integer product that are no 32-bit integers, or
    /// that are beyond binary32 where the product is not of f64. [`Error::OutOfMemory`] if a
    /// workspace is allocated, [`Error::WorkspaceLimit`] if it may not be, [`Error::Workspace`] if
    /// the caller's is too small or not aligned. A launch that the driver refuses.
    ///
    /// # Safety
    /// The addresses must be those of matrices on this device as the problem describes them, alive
    /// and not otherwise written until the work on `stream` has been done. `stream` must belong to
    /// the device's context. If it is being captured, matrices and this `Gemm` must live until the
    /// last replay has been done, and executables made from one graph must not run at the same
    /// time. A problem that is prepared must have been so by this `Gemm`. A workspace must be
    /// memory of this device that nobody else uses until the work on `stream` has been done, or,
    /// captured, while a replay runs.
    pub unsafe fn run_at<'a>(
        &self,
        request: impl Into<RunRequest<'a>>,
        pointers: &Pointers,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let RunRequest { what, workspace } = request.into();
        match what {
            RequestTarget::Problem(problem) if problem.is_empty() => Ok(problem.validate()?),
            RequestTarget::Problem(problem) => {
                let prepared = self.prepared_for_run(problem, pointers, stream)?;
                let scalars = [problem.alpha, problem.beta];
                // SAFETY: the caller vouches for addresses, workspace and stream.
                unsafe { self.enqueue(&prepared, scalars, pointers, workspace, stream) }
            }
            RequestTarget::Prepared(prepared, scalars) => {
                // SAFETY: as above.
                unsafe { self.enqueue(prepared, scalars, pointers, workspace, stream) }
            }
        }
    }

    /// The problem as it was prepared, or prepared now.
    fn prepared_for_run(
        &self,
        problem: &Problem,
        pointers: &Pointers,
        stream: StreamRef<'_>,
    ) -> Result<Arc<Prepared>> {
        let alignment = alignment(problem, &self.0.config, pointers);
        let known = lock(&self.0.prepared).get(&PlanKey::new(problem, alignment)).cloned();
        match known {
            Some(prepared) if prepared.stand_in_for().is_none() => Ok(prepared),
            None if stream.is_capturing()? => Err(Error::CaptureUnprepared),
            // The problem is not prepared again while it is captured.
            Some(stand_in) if stream.is_capturing()? => {
                tracing::info!("a graph keeps {}, which stands in", stand_in.plan().spec);
                Ok(stand_in)
            }
            _ => self.prepare_for(problem, alignment),
        }
    }

    /// # Safety
    /// The same as for [`run_at`](Self::run_at).
    unsafe fn enqueue(
        &self,
        prepared: &Prepared,
        [alpha, beta]: [f64; 2],
        pointers: &Pointers,
        own: Option<CallerWorkspace>,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let reads_c = beta != 0.0;
        if reads_c && prepared.problem().beta == 0.0 {
            return Err(Error::PreparedWithoutC);
        }
        let output = self.0.config.output_dtype();
        prepared.problem().with_alpha(alpha).with_beta(beta).check_scalars(output)?;
        let reads_operands = prepared.problem().k > 0;
        let adds_bias = self.0.config.epilogue.bias().is_some();
        let ([a, b], output) = (self.0.config.operands(), self.0.config.output_dtype());
        for (matrix, address, element, read) in [
            ("A", pointers.a, a, reads_operands),
            ("B", pointers.b, b, reads_operands),
            ("C", pointers.c, output, reads_c),
            ("D", pointers.d, output, true),
            ("the bias", pointers.bias, self.0.config.bias_dtype(), adds_bias),
        ] {
            let align = u64::from(element.bytes());
            if read && (address == 0 || !address.is_multiple_of(align)) {
                return Err(Error::Address { matrix, address, align });
            }
        }
        let sequence = prepared.sequence();
        let (planned, accesses) = (sequence.planned(), sequence.plan().accesses);
        let [a, b] = planned.in_order([pointers.a, pointers.b]);
        let unaligned = |address: u64, access| {
            access == OperandAccess::InPlace && !address.is_multiple_of(TMA_ALIGN_BYTES)
        };
        if reads_operands && (unaligned(a, accesses.a) || unaligned(b, accesses.b)) {
            let problem = prepared.problem().with_alpha(alpha).with_beta(beta);
            let prepared = self.prepared_for_run(&problem, pointers, stream)?;
            // SAFETY: the caller's promises are the same.
            return unsafe { self.enqueue(&prepared, [alpha, beta], pointers, own, stream) };
        }
        // Entered once here rather than in each call below.
        let _current = self.0.device.enter()?;
        let mut patched = lock(prepared.patched());
        let PatchedArguments { steps, workspaces } = &mut *patched;
        let workspace = match own {
            // SAFETY: the caller vouches for the memory.
            Some(own) => unsafe { given(own, workspaces.size(), stream) }?,
            None => match workspaces.address(stream) {
                Err(Error::WorkspaceLimit { .. }) => {
                    workspaces.trim()?;
                    self.trim_idle()?;
                    workspaces.address(stream)
                }
                address => address,
            }?,
        };
        let run = sequence.run(pointers, [alpha, beta], workspace, self.0.zeros.address());
        let mut stream = stream;
        // SAFETY: the kernels are the steps', the caller vouches for addresses and stream, and the
        // workspace is as large as the sequence needs it.
        unsafe { run.execute(&mut stream, steps) }
    }
}

/// The address of the caller's workspace, whose counters are zeroed on the stream. 0 if no
/// workspace is needed.
///
/// # Errors
/// [`Error::Workspace`]; [`Error::Driver`] if the call fails.
///
/// # Safety
/// It must be memory of the stream's device that nobody else uses until the stream has passed this.
unsafe fn given(own: CallerWorkspace, size: Workspace, stream: StreamRef<'_>) -> Result<u64> {
    let CallerWorkspace { address, bytes } = own;
    let Workspace { bytes: needed, zeroed } = size;
    if needed == 0 {
        return Ok(0);
    }
    let align = CallerWorkspace::ALIGN;
    if address == 0 || !address.is_multiple_of(align) || bytes < needed {
        return Err(Error::Workspace { address, found: bytes, needed, align });
    }
    // SAFETY: as the caller vouches.
    unsafe { driver::zero(address, zeroed, stream) }?;
    Ok(address)
}
