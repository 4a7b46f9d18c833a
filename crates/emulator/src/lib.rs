//! Runs kernel IR on the CPU and finds races, deadlocks and misuse. mbarriers, TMA, wgmma and
//! memory proxies behave as on the hardware. The lanes of a warp run in lockstep, asynchronous
//! operations are actors of their own, and every schedule can be replayed.
//!
//! See `docs/emulator.md` for the model.

mod access;
mod accumulator;
mod acquired;
mod atomic;
mod banks;
mod barrier;
mod bulk;
mod clock;
mod collective;
mod copies;
mod custom;
mod deadlock;
mod debug;
mod diagnosis;
mod error;
mod execute;
mod exit;
mod fault;
mod flatten;
mod flight;
mod float16;
mod float8;
mod host;
mod host_turn;
mod lane_cell;
mod lane_order;
mod lanes;
mod late;
mod late_store;
mod loaded;
mod machine;
mod maps;
mod matrix;
mod mbarrier;
mod memory;
mod mma;
mod number;
mod options;
mod ordering;
mod phase;
mod product;
mod program;
mod published;
mod registers;
mod report;
mod run;
mod schedule;
mod setup;
mod shadow;
mod slots;
mod state;
pub mod tensor_core;
mod thread_copy;
mod tile;
mod tma;
mod uniform;
mod value;
mod warp_mma;
mod warpgroup;
mod wavefronts;
mod wgmma;

pub use error::SetupError;
pub use host::{Host, HostStep, HostView, Released};
pub use machine::Emulator;
pub use maps::{tensor_map_image, tensor_map_of_image};
pub use memory::{Memory, MemoryError, Permission};
pub use options::{Checks, Options};
pub use report::{Actor, ActorKind, Report, ReportKind, Site, Statistics};
pub use schedule::{Schedule, UnknownSchedule};
pub use wavefronts::SharedAccesses;
