//! The hardware tests. Without a Hopper GPU each says `SKIPPED` and passes; with
//! `PGEMM_REQUIRE_GPU=1` that is a failure. One binary, which is what a GPU box without Rust gets.
//! The tests in `tests/device` run on the emulated device too.

mod banks;
mod behind;
mod boxes;
mod budget;
#[path = "../device/check.rs"]
mod check;
mod conformance;
mod device;
mod driver;
mod engine;
mod engine_beside;
mod engine_epilogues;
mod engine_told;
mod epilogue;
#[path = "../device/epilogues.rs"]
mod epilogues;
#[path = "../device/executor.rs"]
mod executor;
mod forgotten;
mod gated;
mod gemm;
mod host_cost;
#[path = "../device/interop.rs"]
mod interop;
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
mod run;
mod scale;
mod shard;
#[path = "../common/specials/mod.rs"]
mod special_values;
mod specials;
#[path = "../device/split.rs"]
mod split;
mod stress;
mod terms;
#[path = "../device/workspaces.rs"]
mod workspaces;
