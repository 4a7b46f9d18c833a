//! Persistent dense GEMM for NVIDIA Hopper: devices, plans, caches, heuristics.

pub mod cache;
pub mod driver;
pub mod error;
pub mod matrix;
pub mod numerics;
pub mod problem;

pub use error::{Error, Result};
pub use matrix::{HostMatrix, MatrixError};
pub use numerics::{
    Accumulation, Check, Comparison, ErrorModel, NumericsError, Reference, WorstElement,
};
pub use pgemm_ir::Element as Dtype;
pub use problem::{Major, MatrixLayout, OperandLayout, Order, Problem, ProblemError};
