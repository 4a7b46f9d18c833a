//! The resident engine: a kernel that is launched once, stays on the device, and computes jobs of
//! any shape as they arrive. A job needs no launch, independent jobs overlap, and the host waits
//! for a word in memory. docs/resident.md describes the protocol.
//!
//! The kernel occupies its SMs while there are jobs, and for [`EngineOptions::idle`] after the last
//! one. Other kernels that find no free SM wait for this time. So do driver calls that wait for the
//! whole device, such as freeing memory. A job must not wait for such work, and such work must not
//! wait for a job that has not been submitted yet.

#[cfg(all(test, feature = "emulator"))]
mod emulated;
mod ends;
mod future;
mod host_side;
mod job;
mod lock;
mod pick;
mod queue;
mod records;
mod signal;
mod stream_lanes;
mod streams;
mod submit;
mod ticket;
mod wait_progress;
mod watcher;
mod words;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use pgemm_kernels::resident::QueueQuantity;
use pgemm_kernels::resident::layout::{doorbell, initial_queue};
use pgemm_kernels::{MOST_PARAMETERS, Spec};

use crate::driver::{
    self, Device, DeviceBuffer, L2Promotion, LaunchConfig, Mailbox, PreparedArguments, Stream,
    StreamJobs, StreamWaits, Uncaptured,
};
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::store::LoadedKernel;
use crate::work::Pointers;
use host_side::{ABORTED, FAILED, HostSide, OPEN};
use pgemm_plan::Problem;
use records::{DeviceRecords, Records};
use streams::Streams;
use watcher::Watcher;

pub use crate::error::EngineError;
pub use job::Job;
pub use pick::Goal;
pub use ticket::Ticket;

/// The lane that the host submits to.
const HOST: u32 = 0;

/// Options of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Whether jobs should have high throughput or low latency.
    pub goal: Goal,
    /// Number of SMs that the engine occupies. `None` stands for all.
    pub sms: Option<u32>,
    /// Time after the last job until the kernel leaves the device. The next job launches it again.
    pub idle: Duration,
    /// Time without any progress after which waiting for a job is an error.
    pub watchdog: Duration,
}

impl Default for EngineOptions {
    /// Throughput, all SMs, a millisecond, ten seconds.
    fn default() -> Self {
        EngineOptions {
            goal: Goal::default(),
            sms: None,
            idle: Duration::from_millis(1),
            watchdog: Duration::from_secs(10),
        }
    }
}

/// A resident kernel and its queue. Shared by reference or [`Arc`] between threads. Dropping it
/// waits for the jobs that were submitted.
pub struct Engine {
    shared: Arc<Shared>,
}

/// The state that tickets share with their engine.
struct Shared {
    device: Device,
    kernel: Arc<LoadedKernel>,
    launch: LaunchConfig,
    host: HostSide<Mailbox, PreparedArguments>,
    /// Index of the launch number among the kernel's arguments.
    number_at: usize,
    /// The words of the queue on the device.
    _queue: DeviceBuffer,
    records: Records<DeviceRecords>,
    streams: Streams,
    watcher: Watcher<Ticket>,
    stream: Stream,
    zeros: DeviceBuffer,
    /// Those of the activation.
    parameters: [f64; MOST_PARAMETERS],
    watchdog: Duration,
    /// The first failure.
    failure: OnceLock<Arc<Error>>,
    /// Dropped last, because dropping the other fields frees memory.
    waits: StreamWaits,
}

/// Priorities of the engine's streams, as steps above the default: for launches, for copies of
/// records, and for waits on streams of the caller. A stream that waits for a job may block all
/// streams of its hardware channel, so it must not share one with the streams that the job needs.
const LAUNCHES_BEFORE: i32 = 3;
const COPIES_BEFORE: i32 = 2;
const BELLS_BEFORE: i32 = 1;

impl Engine {
    /// Starts an engine for jobs like `typical`, with `gemm`'s types, epilogue and device. If
    /// `gemm`'s config requests a kernel, by name or by tile and schedule, the engine uses it.
    /// Otherwise the kernel is chosen for the goal. It is compiled and loaded now, and launched
    /// with the first job.
    ///
    /// # Errors
    /// [`EngineError::Sms`], [`EngineError::Kernel`], [`EngineError::Thread`]; a kernel that cannot
    /// be built or that the driver compiles with spills; a lack of memory.
    pub fn start(gemm: &Gemm, typical: &Problem, options: EngineOptions) -> Result<Self> {
        let waits = StreamWaits::new(gemm.device());
        let facts = gemm.device().properties().into();
        let spec = pick::spec(gemm.config(), typical, options.goal, facts)?;
        let device = gemm.device().clone();
        let kernel = gemm.store().kernel(&spec)?.0;
        let resident = kernel.fitting_clusters()?;
        let ctas = options.sms.unwrap_or(resident);
        if ctas == 0 || ctas > resident {
            return Err(EngineError::Sms { requested: ctas, limit: resident }.into());
        }
        let stream = Stream::before_others(&device, LAUNCHES_BEFORE)?;
        let words = Mailbox::new(&device, queue::SHARED_BYTES)?;
        let queue = DeviceBuffer::from_host(&device, &initial_queue(), stream.as_ref())?;
        let records = DeviceRecords::new(&device)?;
        let addresses = queue::addresses(words.address(), queue.address(), records.address());
        let zeros = DeviceBuffer::from_host(&device, &[0; 256], stream.as_ref())?;
        let idle = options.idle.as_nanos().min(u128::from(u64::MAX)) as u64;
        let bound =
            kernel.signature.bind_queue(&addresses, ctas, 0, idle).map_err(EngineError::from)?;
        let maps = &kernel.signature.tensor_maps;
        let arguments = PreparedArguments::new(&device, &bound.arguments, maps, L2Promotion::None)?;
        let number = kernel.signature.queue_position(QueueQuantity::Launch);
        let launch = LaunchConfig::new(kernel.signature.shape, bound.grid);
        let shared = Shared {
            device,
            kernel,
            launch,
            host: HostSide::new(words, arguments),
            number_at: number.unwrap_or(0),
            _queue: queue,
            records: Records::new(records),
            streams: Streams::new(gemm.device())?,
            watcher: Watcher::start()?,
            stream,
            zeros,
            parameters: gemm.config().epilogue.parameters(),
            watchdog: options.watchdog,
            failure: OnceLock::new(),
            waits,
        };
        let shared = Arc::new(shared);
        shared.waits.ask(Arc::downgrade(&shared) as Weak<dyn StreamJobs>);
        shared.streams.watch(Arc::downgrade(&shared))?;
        Ok(Engine { shared })
    }

    /// The kernel.
    pub fn spec(&self) -> &Spec {
        &self.shared.kernel.signature.spec
    }

    /// Checks a problem at these addresses and makes it a job. This takes the time of a small copy
    /// to the device. The number of jobs that exist at the same time is limited.
    ///
    /// # Errors
    /// An address that is null or not a multiple of 16 (for the bias: of its element size); a
    /// problem that the kernel cannot compute, with the reason; [`EngineError::Records`].
    pub fn prepare(&self, problem: &Problem, pointers: &Pointers) -> Result<Job> {
        Job::new(&self.shared, problem, pointers)
    }

    /// The ticket that [`Ticket::to_raw`] made a number, for interfaces that pass numbers on.
    ///
    /// # Errors
    /// [`EngineError::NoTicket`]: this engine has given no such ticket.
    pub fn ticket_from_raw(&self, ticket: u64) -> Result<Ticket> {
        match ticket::from_raw(ticket, |lane| self.shared.host.queue().submitted(lane)) {
            Some((lane, job)) => Ok(Ticket::new(&self.shared, lane, job)),
            None => Err(EngineError::NoTicket { ticket }.into()),
        }
    }

    /// Waits until all jobs that were submitted are done.
    ///
    /// # Errors
    /// The errors of [`Ticket::wait`].
    pub fn drain(&self) -> Result<()> {
        self.shared.drain()
    }

    /// Accepts no more jobs, finishes the submitted ones, and leaves the device.
    ///
    /// # Errors
    /// The errors of [`Ticket::wait`].
    pub fn stop(&self) -> Result<()> {
        self.shared.stop()
    }

    /// Accepts no more jobs and abandons jobs that have not begun. Tiles in progress are finished.
    /// The results of jobs that were not done are undefined, and streams that wait for them
    /// continue.
    ///
    /// # Errors
    /// [`EngineError::Failed`] with the failure of the kernel.
    pub fn abort(&self) -> Result<()> {
        self.shared.abort()
    }

    /// Whether the kernel is on the device, as far as the host knows.
    pub fn is_resident(&self) -> bool {
        !self.shared.host.has_left()
    }

    /// The number of launches of the kernel so far.
    pub fn launches(&self) -> u32 {
        self.shared.host.launches()
    }
}

impl Shared {
    fn check_open(&self) -> Result<()> {
        match self.host.phase() {
            OPEN => Ok(()),
            FAILED => Err(self.failed(self.host.queue().submitted(HOST))),
            _ => Err(EngineError::Stopped.into()),
        }
    }

    /// Launches the kernel if it has left: see [`HostSide::launch_if_left`].
    ///
    /// # Errors
    /// [`EngineError::Failed`] with the error of the launch. The engine has then failed, and
    /// submitted jobs will not be done.
    fn keep_running(&self) -> Result<()> {
        self.launch_if_left().map_err(|error| {
            let failed = self.fail(error);
            // The kernel may have found a job at its last check.
            self.host.queue().control(doorbell::ABORT);
            failed
        })
    }

    fn launch_if_left(&self) -> Result<()> {
        self.host.launch_if_left(|arguments, number| {
            arguments.set(self.number_at, &pgemm_ir::Argument::U32(number))?;
            let stream = self.stream.as_ref();
            // SAFETY: the arguments are those of the kernel, and what they point to lives as long
            // as this, which waits for the stream.
            unsafe { driver::launch(&self.kernel.function, &self.launch, arguments, stream) }
        })
    }

    /// A counter that changes when jobs are done.
    fn done(&self) -> u64 {
        self.host.queue().done()
    }

    /// Checks whether the kernel failed or was told to abandon jobs.
    fn check(&self, ticket: &Ticket) -> Result<()> {
        match self.host.phase() {
            ABORTED if self.is_idle().unwrap_or(true) && !ticket.is_done() => {
                return Err(EngineError::Aborted { job: ticket.job }.into());
            }
            FAILED => return Err(self.failed(ticket.job)),
            _ => {}
        }
        match self.is_idle() {
            Ok(_) => Ok(()),
            Err(error) => {
                self.fail(error);
                Err(self.failed(ticket.job))
            }
        }
    }

    /// Whether no kernel is on the device.
    fn is_idle(&self) -> Result<bool> {
        // Asking would end another thread's capture otherwise.
        let _uncaptured = Uncaptured::enter(&self.device)?;
        self.stream.as_ref().is_idle()
    }

    /// Records a failure and returns the error for the engine's users.
    fn fail(&self, error: Error) -> Error {
        self.failure.get_or_init(|| Arc::new(error));
        self.host.fail();
        self.failed(self.host.queue().submitted(HOST))
    }

    /// The recorded failure, as an error of this job.
    fn failed(&self, job: u32) -> Error {
        match self.failure.get() {
            Some(cause) => EngineError::Failed { job, cause: cause.clone() }.into(),
            None => EngineError::Stopped.into(),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(error) = self.shared.stop() {
            tracing::warn!(%error, "the engine did not end well");
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        f.debug_struct("Engine")
            .field("spec", &shared.kernel.signature.spec.to_string())
            .field("ctas", &shared.launch.grid[0])
            .field("launches", &self.launches())
            .finish()
    }
}
