//! Runs kernel IR on the CPU and finds races, deadlocks and misuse: warps in lockstep, mbarriers, TMA, wgmma and proxies
//! behave as on the hardware, asynchronous operations are actors of their own, and every schedule can be replayed.
//!
//! See `docs/emulator.md` for the model.

mod access;
mod barrier;
mod byte;
mod clock;
mod error;
mod execute;
mod flatten;
mod float16;
mod float8;
mod host;
mod late;
mod machine;
mod maps;
mod mbarrier;
mod memory;
mod mma;
mod ordering;
mod program;
mod report;
mod schedule;
mod shadow;
mod slots;
mod state;
mod tma;
mod uniform;
mod value;
mod warp_mma;
mod wgmma;

pub use error::SetupError;
pub use host::{Host, HostStep, HostView};
pub use machine::{Checks, Emulator, Options};
pub use maps::tensor_map_image;
pub use memory::{Memory, MemoryError, Permission};
pub use report::{Actor, ActorKind, Report, ReportKind, Site, Statistics};
pub use schedule::Schedule;
