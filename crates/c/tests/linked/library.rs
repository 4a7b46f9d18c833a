//! The library as `tests/linked.rs` links it: the modules of `src/lib.rs`.

#[path = "../../src/abi.rs"]
pub mod abi;
#[path = "../../src/config.rs"]
mod config;
#[path = "../../src/engine.rs"]
mod engine;
#[path = "../../src/failure.rs"]
mod failure;
#[path = "../../src/ffi/mod.rs"]
pub mod ffi;
#[path = "../../src/problem.rs"]
mod problem;
#[path = "../../src/tuner.rs"]
mod tuner;
