//! The library on the emulated device: tests that run on the hardware too (`tests/device`), and
//! those of what the hardware does not show.

mod alone;
mod captures;
#[path = "../device/check.rs"]
mod check;
mod device;
#[path = "../device/epilogues.rs"]
mod epilogues;
#[path = "../device/executor.rs"]
mod executor;
mod faults;
mod given_back;
#[path = "../device/interop.rs"]
mod interop;
mod kernels;
#[path = "../device/known.rs"]
mod known;
#[path = "../device/layouts.rs"]
mod layouts;
#[path = "../device/memory.rs"]
mod memory;
#[path = "../device/operands.rs"]
mod operands;
#[path = "../device/outofcore.rs"]
mod outofcore;
#[path = "../device/packs.rs"]
mod packs;
#[path = "../device/products.rs"]
mod products;
#[path = "../device/resident.rs"]
mod resident;
mod scale;
#[path = "../device/split.rs"]
mod split;
mod tuning;
#[path = "../device/workspaces.rs"]
mod workspaces;
