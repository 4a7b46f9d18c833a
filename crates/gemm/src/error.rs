//! [`Error`]: the error type of this library. Each variant says what was requested, what the limit
//! is and what to do. Modules with many errors have their own enum, which is a variant here. The
//! tuner and its measurements are not part of it: [`TuneError`](crate::tune::TuneError),
//! [`MeasureError`](crate::measure::MeasureError).

mod cpu;
mod driver;
mod engine;
mod files;
mod matrix;
mod numerics;
mod program;

use std::fmt;
use std::path::PathBuf;

pub use cpu::CpuError;
pub use driver::{DriverVersion, LaunchError, TensorMapError};
pub use engine::EngineError;
pub use files::{FileDamage, PackDamage, PlatformDifference, PlatformPart};
pub use matrix::MatrixError;
pub use numerics::{Inexact, NumericsError};
pub use program::ProgramError;

/// The result type of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong between a call of this library and its result.
///
/// Its `Debug` form is for people too, since Rust prints that form of an error that `main` returns
/// or that is unwrapped: the message, and the causes that it does not name itself.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refuses to start a thread.
    #[error(
        "the operating system refuses to start a thread: {source}. Raise the limits of processes \
         and of memory for this user (ulimit -u, ulimit -v), or end other programs"
    )]
    NoThreads {
        /// What the operating system says.
        source: std::io::Error,
    },

    // ---- driver and device ----
    /// libcuda could not be opened.
    #[error(
        "no CUDA driver: libcuda.so.1 was not found. Install the NVIDIA driver, put its folder on \
         LD_LIBRARY_PATH, or use the cpu backend"
    )]
    NoDriver,

    /// libcuda lacks a function that this library calls.
    #[error(
        "the CUDA driver {found} has no function {symbol}. Install a driver for CUDA {needed} or \
         later, or use the cpu backend"
    )]
    MissingDriverFunction {
        /// The function's name in libcuda.
        symbol: &'static str,
        /// The driver's version.
        found: DriverVersion,
        /// The oldest version that this library supports.
        needed: DriverVersion,
    },

    /// The driver is older than the PTX that the kernels are written in.
    #[error(
        "the CUDA driver supports CUDA {found}, and kernels need CUDA {needed} or later. Update \
         the NVIDIA driver, or use the cpu backend"
    )]
    DriverTooOld {
        /// The driver's version.
        found: DriverVersion,
        /// The oldest version that works.
        needed: DriverVersion,
    },

    /// The driver is there and sees no GPU.
    #[error(
        "the CUDA driver sees no GPU. Look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use the \
         cpu backend"
    )]
    NoDevice,

    /// The device ordinal does not exist.
    #[error("there is no device {requested}: the CUDA driver sees {count} (ordinals start at 0)")]
    NoSuchDevice {
        /// The requested ordinal.
        requested: u32,
        /// How many devices there are.
        count: u32,
    },

    /// The GPU is of another generation than the kernels.
    #[error(
        "{name} has compute capability {major}.{minor}, and the CUDA kernels need 9.0 (Hopper: \
         H100, H200, GH200). Choose another device, or use the cpu backend"
    )]
    NotHopper {
        /// The device's name.
        name: String,
        /// Compute capability, major.
        major: u32,
        /// Compute capability, minor.
        minor: u32,
    },

    /// No CUDA context is current on the calling thread.
    #[error(
        "no CUDA context is current on this thread: call cuCtxSetCurrent first, or open a device \
         by its ordinal"
    )]
    NoCurrentContext,

    /// A driver call failed.
    #[error("{call} failed with {name} (code {code}): {what_to_do}")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The CUresult it returned.
        code: u32,
        /// The CUresult's name.
        name: &'static str,
        /// Advice for the user.
        what_to_do: &'static str,
    },

    /// Device memory ran out.
    #[error(
        "out of device memory: asked for {requested} bytes, {free} of {total} are free. Free buffers, \
         use smaller matrices, or look with `nvidia-smi` for other processes on the device"
    )]
    OutOfMemory {
        /// The requested bytes.
        requested: u64,
        /// Bytes free when the allocation failed.
        free: u64,
        /// Bytes on the device.
        total: u64,
    },

    /// A call that waits for all streams of its context, while one of them waits for a job of a
    /// resident engine.
    #[error(
        "{call} waits for all streams, and one of them waits for job {job} of a resident engine, \
         which was not done within {waited:?}: both could wait for ever. Wait for the job's ticket \
         or for its stream, and do this again"
    )]
    StreamWaits {
        /// The driver's function, or its purpose.
        call: &'static str,
        /// The job's number in its lane.
        job: u32,
        /// The time that was waited.
        waited: std::time::Duration,
    },

    /// A copy or fill goes past the end of a device buffer.
    #[error(
        "bytes {offset}..{offset}+{bytes} lie outside a device buffer of {capacity} bytes: copy \
         less, or allocate more"
    )]
    DeviceRange {
        /// The first requested byte.
        offset: u64,
        /// The requested bytes.
        bytes: u64,
        /// The buffer's size in bytes.
        capacity: u64,
    },

    /// A string for the driver contains a zero byte.
    #[error("{what} contains a zero byte, which the driver takes for its end: remove it")]
    ZeroByte {
        /// The text, such as `the kernel's name`.
        what: &'static str,
    },

    /// The driver's JIT refused a kernel.
    #[error("the driver's JIT compiler rejected the kernel ({name}, code {code}). Its log:\n{log}")]
    Jit {
        /// The CUresult.
        code: u32,
        /// The CUresult's name.
        name: &'static str,
        /// The JIT's error log.
        log: String,
    },

    /// A tensor map cannot describe what was asked.
    #[error(transparent)]
    TensorMap(#[from] TensorMapError),

    /// A kernel cannot be launched as asked.
    #[error(transparent)]
    Launch(#[from] LaunchError),

    // ---- what the caller asks for ----
    /// A backend that this program was built without.
    #[error(
        "this program was built without the {backend} backend: build persistent-gemm with its \
         feature {backend}, or use another backend"
    )]
    NoBackend {
        /// The backend, which has the name of its feature.
        backend: &'static str,
    },

    /// Two extents that must be equal differ.
    #[error("{what} is {found}, and {needed} is needed: {why}")]
    DimensionMismatch {
        /// The extent that is off, such as `rows of B`.
        what: &'static str,
        /// The found value.
        found: u64,
        /// The value it should have.
        needed: u64,
        /// The reason for the needed value, such as `it must equal the columns of A`.
        why: &'static str,
    },

    /// A host matrix is of another type than the config says.
    #[error(
        "{matrix} is of {found}, and the config says {needed}: convert it, or change the config"
    )]
    MatrixType {
        /// The name of the matrix.
        matrix: &'static str,
        /// Its element type.
        found: pgemm_ir::Element,
        /// The config's.
        needed: pgemm_ir::Element,
    },

    /// A device address at which no matrix can be.
    #[error(
        "{matrix} is at address {address:#x}: it must not be null, and must be a multiple of \
         {align}, the bytes of an element. Allocate it with cuMemAlloc, or copy it to an aligned \
         place"
    )]
    Address {
        /// The name of the matrix.
        matrix: &'static str,
        /// The address given.
        address: u64,
        /// What it must be a multiple of.
        align: u64,
    },

    /// An unprepared problem met a stream that is being captured.
    #[error(
        "the stream is being captured, and this problem is not prepared: call prepare(problem) \
         before the capture begins"
    )]
    CaptureUnprepared,

    /// A workspace would be beyond the limit that the caller set.
    #[error(
        "a workspace of {requested} bytes is needed, {held} are held, and the limit is {limit}: raise \
         it with Gemm::set_workspace_limit, bring a workspace with RunRequest::with_workspace, or \
         set the split to whole"
    )]
    WorkspaceLimit {
        /// Bytes of the workspace.
        requested: u64,
        /// Bytes that the workspaces of this `Gemm` hold.
        held: u64,
        /// The limit, in bytes.
        limit: u64,
    },

    /// A workspace of the caller's does not do.
    #[error(
        "the workspace has {found} bytes at address {address:#x}: {needed} are needed \
         (Prepared::workspace_required_bytes), at a multiple of {align}"
    )]
    Workspace {
        /// Its address.
        address: u64,
        /// Its size.
        found: u64,
        /// Bytes that are needed.
        needed: u64,
        /// What the address must be a multiple of.
        align: u64,
    },

    /// A buffer on the device holds fewer elements than the problem needs.
    #[error(
        "{matrix} has {found} elements, and the problem reaches over {needed}: give a longer \
         buffer, or check extents, leading dimension, step and batch stride"
    )]
    BufferLength {
        /// The name of the matrix.
        matrix: &'static str,
        /// Elements given.
        found: usize,
        /// Elements from the first that the problem touches to one past the last.
        needed: usize,
    },

    /// A buffer's Rust type is not that of the config.
    #[error(
        "{matrix} is a buffer of {found}, and the config says {needed}: use a buffer of that type, \
         or change the config"
    )]
    BufferType {
        /// The name of the matrix.
        matrix: &'static str,
        /// The Rust type given.
        found: &'static str,
        /// The config's.
        needed: pgemm_ir::Element,
    },

    /// A stream, buffer or device of another context.
    #[error(
        "{what} belongs to another CUDA context than this GEMM's device: make both from one device \
         or context"
    )]
    OtherContext {
        /// The object, such as `the stream`.
        what: &'static str,
    },

    /// A stream has not done its work in time.
    #[error(
        "the stream has not done its work after {seconds} s. A kernel that waits for what never \
         comes runs forever: try it on the emulator, which reports such a wait"
    )]
    Timeout {
        /// The time that was given.
        seconds: f64,
    },

    /// A kernel that the program brings itself, or the arguments of its launch.
    #[error(transparent)]
    Program(#[from] ProgramError),

    /// The device memory budget of a product is too small for any block.
    #[error(
        "the product may take {requested} bytes of device memory, and its smallest blocks take \
         {needed}: raise the budget{}",
        if *whole_k { ", or have a D of f32, whose sums can be kept from one part of k to the \
            next" } else { "" }
    )]
    DeviceBudget {
        /// The budget in bytes.
        requested: u64,
        /// Bytes that are needed at least.
        needed: u64,
        /// Whether blocks must span all of k, because D is narrower than the type of sums.
        whole_k: bool,
    },

    /// A product of host matrices beyond the device's memory is of a kind that this is not done
    /// for.
    #[error("a product by blocks has {what}: {instead}")]
    NotByBlocks {
        /// The property that is not supported.
        what: &'static str,
        /// The advice.
        instead: &'static str,
    },

    /// A prepared problem without C was run with a beta that needs one.
    #[error(
        "beta is not 0, and was when the problem was prepared: prepare it with a beta other than 0"
    )]
    PreparedWithoutC,

    /// Every kernel that the planner could take for the problem is spoiled by the driver's JIT.
    #[error(
        "this driver compiles every {dtype} kernel for this problem and these knobs with spills or \
         serialised MMAs: leave knobs to the planner where some are given; else update the NVIDIA \
         driver, and report its version"
    )]
    NoCleanKernel {
        /// Operand type.
        dtype: pgemm_ir::Element,
    },

    /// The requested kernel by name is spoiled by the driver's JIT.
    #[error(
        "the kernel {spec} was asked for, and this driver does not compile it cleanly: {}. Name \
         another spec, or leave the kernel to the planner",
        report.findings().join(", ")
    )]
    UncleanKernel {
        /// The requested spec.
        spec: pgemm_kernels::Spec,
        /// The report of the driver.
        report: Box<pgemm_ptx::ResourceReport>,
    },

    /// The device has no room for a single cluster of a kernel.
    #[error(
        "a cluster of the kernel {spec} needs {needed} {} at the same time, and of the {sms} SMs of \
         this device it gets none: a MIG instance or another process may leave too few of them, or \
         too few in one GPC. Ask for a cluster of 1x1, leave the kernel to the planner, or free SMs",
        if *needed == 1 { "SM" } else { "SMs of one GPC" },
    )]
    ClusterDoesNotFit {
        /// The kernel.
        spec: Box<pgemm_kernels::Spec>,
        /// SMs that a cluster needs.
        needed: u32,
        /// SMs of the device.
        sms: u32,
    },

    /// The driver's JIT compiles the repack kernel with spills.
    #[error(
        "operands have to be repacked, and this driver does not compile the repack kernel cleanly: \
         {}. Align operands and their lines to 16 bytes, along k where their type needs it, or \
         update the NVIDIA driver",
        report.findings().join(", ")
    )]
    UncleanRepack {
        /// The report of the driver.
        report: Box<pgemm_ptx::ResourceReport>,
    },

    // ---- kernels ----
    /// A kernel cannot be built.
    #[error(transparent)]
    Kernel(Box<pgemm_kernels::KernelError>),

    /// The repack kernel cannot be built.
    #[error(transparent)]
    Repack(Box<pgemm_kernels::RepackError>),

    /// A kernel cannot be lowered.
    #[error(transparent)]
    Emit(Box<pgemm_ptx::EmitError>),

    /// The emulator cannot run the launch.
    #[cfg(feature = "emulator")]
    #[error(transparent)]
    EmulatorSetup(#[from] pgemm_emulator::SetupError),

    /// The emulator found the kernel wrong.
    #[cfg(feature = "emulator")]
    #[error("the emulator stopped: {0}")]
    Emulation(#[from] Box<pgemm_emulator::Report>),

    /// An access to the emulator's memory failed.
    #[cfg(feature = "emulator")]
    #[error(transparent)]
    EmulatorMemory(#[from] pgemm_emulator::MemoryError),

    // ---- problems, matrices and their comparison ----
    /// The problem or the config is impossible, or a matrix does not fit the problem.
    #[error(transparent)]
    Plan(#[from] pgemm_plan::PlanError),

    /// The resident engine does not take a job, or does not finish it.
    #[error(transparent)]
    Engine(#[from] EngineError),

    /// A host matrix cannot be made or used so.
    #[error(transparent)]
    Matrix(#[from] MatrixError),

    /// The CPU backend cannot compute this.
    #[error(transparent)]
    Cpu(#[from] CpuError),

    /// A result cannot be judged.
    #[error(transparent)]
    Numerics(#[from] NumericsError),

    // ---- the machine around it ----
    /// A file could not be read or written.
    #[error("{path}: {source}. Check that the path exists and that this user may use it")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },

    /// A file that holds no results of the tuner that this version can read.
    #[error(
        "{path} holds no autotune results of this version: {finding}. It is left as it is; tune \
         again into another file"
    )]
    DamagedResults {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        finding: Box<FileDamage>,
    },

    /// A pack of kernels that this version cannot use.
    #[error("{path} is no pack that can be used: {finding}. Write it again with `pgemm pack`")]
    UnusablePack {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        finding: Box<PackDamage>,
    },

    /// Results of the tuner that were found on another device, driver or version.
    #[error(
        "{path} was tuned elsewhere: {}. It is left as it is; tune again on this machine",
        files::listed(differences)
    )]
    ForeignResults {
        /// The file.
        path: PathBuf,
        /// The part that differs.
        differences: Vec<PlatformDifference>,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let message = error.to_string();
            if !text.contains(&message) {
                text = format!("{text}\n  caused by: {message}");
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

/// Boxed, because it carries a whole spec, and every `Result` of this crate would grow to its size.
impl From<pgemm_ir::BuildError> for Error {
    fn from(error: pgemm_ir::BuildError) -> Self {
        ProgramError::from(error).into()
    }
}

impl From<pgemm_cute::CuteError> for Error {
    fn from(error: pgemm_cute::CuteError) -> Self {
        Error::Program(error.into())
    }
}

/// Boxed, as it may carry layouts.
impl From<pgemm_kernels::parts::PartsError> for Error {
    fn from(error: pgemm_kernels::parts::PartsError) -> Self {
        ProgramError::Parts(Box::new(error)).into()
    }
}

impl From<pgemm_kernels::KernelError> for Error {
    fn from(error: pgemm_kernels::KernelError) -> Self {
        Error::Kernel(Box::new(error))
    }
}

/// Boxed for the same reason.
impl From<pgemm_ptx::EmitError> for Error {
    fn from(error: pgemm_ptx::EmitError) -> Self {
        Error::Emit(Box::new(error))
    }
}

impl From<pgemm_kernels::RepackError> for Error {
    fn from(error: pgemm_kernels::RepackError) -> Self {
        Error::Repack(Box::new(error))
    }
}

#[cfg(test)]
mod tests;
