//! The hardware tests. Without a Hopper GPU each says `SKIPPED` and passes; with
//! `PGEMM_REQUIRE_GPU=1` that is a failure. One binary, which is what a GPU box without Rust gets.

mod behind;
mod device;
mod driver;
mod engine;
mod engine_beside;
mod engine_epilogues;
mod engine_told;
mod epilogue;
mod gated;
mod gemm;
mod host_cost;
mod interop;
mod layouts;
mod operands;
mod outofcore;
mod run;
#[path = "../common/specials/mod.rs"]
mod special_values;
mod specials;
mod split;
mod stress;
mod terms;
mod workspaces;
