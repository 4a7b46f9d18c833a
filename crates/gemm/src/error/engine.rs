//! Errors of a resident engine.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pgemm_kernels::Spec;
use pgemm_kernels::resident::record::RecordError;
use pgemm_plan::Major;

use super::Error;

/// Why an engine does not take a job, or does not finish it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The kernel cannot compute the job.
    #[error(transparent)]
    Job(#[from] RecordError),
    /// There is no resident kernel of these types.
    #[error(
        "{spec} is launched for each problem: engines are for products of f16, bf16, tf32 and 8 \
         bits on tensor cores"
    )]
    Kernel {
        /// The kernel that is launched.
        spec: Box<Spec>,
    },
    /// The kernel's operands have other majors.
    #[error(
        "the engine multiplies with a {}-major and {}-major A and B, and the problem has a \
         {}-major and {}-major A and B: start another engine for it",
        engine[0], engine[1], problem[0], problem[1]
    )]
    Majors {
        /// The majors of the engine's A and B.
        engine: [Major; 2],
        /// The majors of the problem's A and B.
        problem: [Major; 2],
    },
    /// An operand that TMA cannot read.
    #[error(
        "{operand} cannot be read by TMA: its address and the bytes from line to line have to be \
         multiples of 16, and its elements to lie side by side; launch this problem instead, or \
         pad its rows"
    )]
    Operand {
        /// `A` or `B`.
        operand: &'static str,
    },
    /// The problem is transposed, or of a kind that kernels do not take.
    #[error("the engine stores a row-major D: {what}")]
    Output {
        /// What it is.
        what: &'static str,
    },
    /// All slots are occupied.
    #[error("{slots} jobs are under way, and more do not fit: wait for one of them")]
    Full {
        /// The number that exists.
        slots: u32,
    },
    /// All records are in use.
    #[error(
        "{limit} jobs are prepared, and more are not possible: drop some, which frees them once \
         they are done"
    )]
    Records {
        /// The number that exists.
        limit: u32,
    },
    /// Other streams have all lanes.
    #[error(
        "{limit} other streams have jobs under way in this engine, and more are not possible: use \
         one of them, submit from the host, or start another engine"
    )]
    Lanes {
        /// The number of lanes for streams.
        limit: u32,
    },
    /// A job of the host's after one of a stream's that is not done.
    #[error(
        "job {job} of a stream is not done, and a job of the host's cannot come after it: the \
         engine may get to the host's first, whose tiles would hold the SMs that the stream's \
         needs; wait for that ticket first, or submit on that stream"
    )]
    AfterStream {
        /// The stream's job's number.
        job: u32,
    },
    /// A job or ticket of another engine.
    #[error("the {what} belongs to another engine: prepare it with this one")]
    Foreign {
        /// `job` or `ticket`.
        what: &'static str,
    },
    /// A number that is no ticket.
    #[error("{ticket:#x} is no ticket of this engine: give one that submitting a job to it gave")]
    NoTicket {
        /// The number.
        ticket: u64,
    },
    /// The engine accepts no more jobs.
    #[error("the engine was stopped: start another one")]
    Stopped,
    /// The job was given up.
    #[error("job {job} was given up, since the engine was aborted: submit it to another one")]
    Aborted {
        /// Its number.
        job: u32,
    },
    /// Too many SMs, or none.
    #[error("an engine on {requested} SMs: it needs 1 to {limit}")]
    Sms {
        /// The requested number.
        requested: u32,
        /// The number that the device has for the engine.
        limit: u32,
    },
    /// Waited for long enough.
    #[error("job {job} was not done after {waited:?}: it goes on, and can be waited for again")]
    Timeout {
        /// Its number.
        job: u32,
        /// The time that was waited.
        waited: Duration,
    },
    /// The watchdog's time has passed without any job getting done.
    #[error(
        "the engine has made no progress for {waited:?} while job {job} was waited for: another \
         kernel may hold the SMs, or the job waits for something that waits for it"
    )]
    Stuck {
        /// Its number.
        job: u32,
        /// The time without progress.
        waited: Duration,
    },
    /// A kernel failed.
    #[error(
        "the engine failed while job {job} was under way: {cause}; a kernel's failure ends its \
         CUDA context with all that was made in it: start the process again, or work in a new \
         context"
    )]
    Failed {
        /// Its number.
        job: u32,
        /// The first failure.
        cause: Arc<Error>,
    },
    /// The system starts no more threads.
    #[error(
        "a thread of the engine could not be started: {cause}; end others, or raise the limit of \
         threads (ulimit -u)"
    )]
    Thread {
        /// The error of the operating system.
        cause: Arc<io::Error>,
    },
    /// The stream is being captured.
    #[error(
        "a stream that is being captured cannot submit to an engine, which takes each job once: \
         launch this problem, which can be captured"
    )]
    Capture,
}
