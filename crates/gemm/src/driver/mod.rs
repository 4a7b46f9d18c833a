//! The CUDA driver: devices, memory, modules, tensor maps and launches over libcuda, which is
//! opened at run time.
//!
//! Nothing here panics if libcuda is absent or old; [`Driver::load`] returns an error. Contexts and
//! streams of the caller are borrowed ([`ContextRef`], [`StreamRef`]), never owned. The current
//! context of a thread is left unchanged.

mod api;
mod arguments;
mod capture;
mod device;
mod graph;
mod host_signal;
mod jit;
mod launch;
mod mailbox;
mod memory;
mod module;
mod pinned;
mod stream;
mod stream_waits;
mod tensor_map;

pub use api::{Driver, MINIMUM_DRIVER};
pub use arguments::PreparedArguments;
pub(crate) use capture::{CaptureInfo, Uncaptured};
pub use device::{ContextRef, CurrentContext, Device, DeviceProperties};
pub use graph::Graph;
pub(crate) use host_signal::HostSignal;
pub use jit::{compile, compile_with_report, load_cubin};
pub use launch::{LaunchConfig, launch, max_active_clusters};
pub(crate) use mailbox::Mailbox;
pub use memory::DeviceBuffer;
pub(crate) use memory::zero;
pub use module::{Function, FunctionAttributes, Module};
pub(crate) use pinned::{Direction, Lines, PinnedBuffer, Registration, copy_lines, is_pinned};
pub use stream::{Event, Stream, StreamRef, Timing};
pub(crate) use stream_waits::{StreamJobs, StreamWaits};
pub use tensor_map::{L2Promotion, TensorMap, check_argument, check_spec};

pub use crate::error::{DriverVersion, LaunchError, TensorMapError};
