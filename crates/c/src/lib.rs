//! The C and C++ interface of `persistent-gemm`: `libpersistent_gemm` and
//! `include/persistent_gemm.h`, which is generated from [`abi`], [`ffi`] and `persistent_gemm.hpp`
//! (`tests/header.rs`). docs/c.md is the guide.

pub mod abi;
mod config;
mod engine;
mod failure;
pub mod ffi;
#[cfg(test)]
mod fuzz;
mod problem;
mod tuner;
