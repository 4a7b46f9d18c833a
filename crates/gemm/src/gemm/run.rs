//! Runs at device addresses: the addresses are checked, the arguments patched, and the launches enqueued.

use std::sync::Arc;

use pgemm_kernels::{TMA_ALIGN_BYTES, Workspace};
use pgemm_plan::{OperandAccess, Problem};

use super::prepared::{Patched, PlanKey, Prepared, alignment};
use super::{CallerWorkspace, Gemm, lock};
use crate::driver::{self, StreamRef};
use crate::error::{Error, Result};
use crate::work::{Pointers, factor_of_products};

impl Gemm {
    /// Enqueues D = alpha·A·B + beta·C on `stream` and returns. Prepares the problem first where that has not happened, which
    /// at addresses of operands that are no multiples of 16 means [`prepare_at`](Self::prepare_at).
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare); an address that is null or no multiple of an element's size; [`Error::CaptureUnprepared`] if the stream is being
    /// captured and the problem was not prepared.
    ///
    /// # Safety
    /// The addresses must be those of matrices on this device as the problem describes them, alive and not otherwise written
    /// until the work on `stream` has been done. `stream` must belong to the device's context. Where it is being captured,
    /// matrices and this `Gemm` must live until the last replay has been done, and executables made from one graph must not
    /// run at the same time.
    pub unsafe fn run(
        &self,
        problem: &Problem,
        pointers: &Pointers,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        if problem.is_empty() {
            return Ok(problem.validate()?);
        }
        let prepared = self.prepared_for_run(problem, pointers, stream)?;
        // SAFETY: the caller vouches for addresses and stream.
        unsafe { self.run_prepared(&prepared, problem.alpha, problem.beta, pointers, stream) }
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
            Some(prepared) => Ok(prepared),
            None if stream.is_capturing()? => Err(Error::CaptureUnprepared),
            None => self.prepare_for(problem, alignment),
        }
    }

    /// Enqueues a prepared problem with these scalars and addresses: patches them and launches. At addresses of operands that
    /// are further off multiples of 16 than it was prepared for, it is prepared anew. Where the plan splits tiles
    /// along k or repacks operands, the first run on a stream or in a capture takes the workspace that [`prepare`](Self::prepare) left, or
    /// allocates one and waits for its counters to be zeroed; captures do not forbid that. No other run allocates or waits.
    ///
    /// # Errors
    /// An address that is null or no multiple of an element's size; [`Error::CaptureUnprepared`] if the stream is being
    /// captured and the problem was not prepared for such addresses; [`Error::PreparedWithoutC`] if beta isn't 0 and was when the problem was prepared; scalars
    /// of an integer product that are no 32-bit integers, or that are beyond binary32 where the product is not of f64;
    /// [`Error::OutOfMemory`] where a workspace is allocated, [`Error::WorkspaceLimit`] where it may not be; a launch that the
    /// driver refuses.
    ///
    /// # Safety
    /// As [`run`](Self::run), for the problem that was prepared, by this `Gemm`.
    pub unsafe fn run_prepared(
        &self,
        prepared: &Prepared,
        alpha: f64,
        beta: f64,
        pointers: &Pointers,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.enqueue(prepared, alpha, beta, pointers, None, stream) }
    }

    /// Like [`run_prepared`](Self::run_prepared), with a workspace of the caller's of
    /// [`workspace_required_bytes`](Prepared::workspace_required_bytes), whatever it holds: the part with counters is set to
    /// zero on the stream before each launch. Nothing is allocated. Problems are best prepared by
    /// [`prepare_at`](Self::prepare_at) where operands lie at no multiples of 16: at such addresses a problem that was not needs
    /// what it needs when prepared anew.
    ///
    /// # Errors
    /// As [`run_prepared`](Self::run_prepared); [`Error::Workspace`] where it is too small or not aligned.
    ///
    /// # Safety
    /// As [`run_prepared`](Self::run_prepared). The workspace must be memory of this device that nobody else uses until the work
    /// on `stream` has been done, or, captured, while a replay runs.
    pub unsafe fn run_prepared_with_workspace(
        &self,
        prepared: &Prepared,
        alpha: f64,
        beta: f64,
        pointers: &Pointers,
        workspace: CallerWorkspace,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.enqueue(prepared, alpha, beta, pointers, Some(workspace), stream) }
    }

    /// # Safety
    /// As the two functions above.
    unsafe fn enqueue(
        &self,
        prepared: &Prepared,
        alpha: f64,
        beta: f64,
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
        let alpha = factor_of_products(prepared.problem().k, alpha);
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
            return unsafe { self.enqueue(&prepared, alpha, beta, pointers, own, stream) };
        }
        // Entered once here rather than in each call below.
        let _current = self.0.device.enter()?;
        let mut patched = lock(prepared.patched());
        let Patched { steps, workspaces } = &mut *patched;
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
        // SAFETY: the kernels are the steps', the caller vouches for addresses and stream, and the workspace is as large as the
        // sequence needs it.
        unsafe { run.execute(&mut stream, steps) }
    }
}

/// A workspace of the caller's, with its counters set to zero on the stream; 0 where none is needed.
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
